"""What results say of where they come from, and that they are JSON."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace

import cake
from cake.evaluate.intervals import Interval
from cake.evaluate.record import environment, plain, write_json


def test_environment() -> None:
    cuda = SimpleNamespace(
        get_device_name=lambda device: "Fake H200",
        get_device_properties=lambda device: SimpleNamespace(multi_processor_count=132),
    )
    torch = SimpleNamespace(__version__="2.0", version=SimpleNamespace(cuda="13.0"), cuda=cuda)
    found = environment(torch)
    assert found["device"] == "Fake H200" and found["sms"] == 132 and found["cake"] == cake.__version__
    assert {"command", "python", "torch", "cuda", "time", "driver", "commit"} <= set(found)


def test_results_are_strict_json(tmp_path: Path) -> None:
    value = {"i": Interval(1.0, 0.5, math.inf), "t": (1, math.nan), 3: None}
    assert plain(value) == {"i": {"median": 1.0, "low": 0.5, "high": "inf"}, "t": [1, "nan"], "3": None}
    write_json(tmp_path / "a" / "b.json", value)
    assert json.loads((tmp_path / "a" / "b.json").read_text(), parse_constant=lambda c: 1 / 0) == plain(value)
