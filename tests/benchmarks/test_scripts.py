"""The records of the scripts that time kernels, with a device of our own."""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import gpu_smoke, host_time, tune
from benchmarks.problems import PROBLEMS
from cake.evaluate.record import plain
from tests.evaluate.fakes import Torch

torch = pytest.importorskip("torch")
SHAPE = (70, 72, 64)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Torch:
    """In place of torch, with tensors on the CPU."""
    made = Torch()
    monkeypatch.setattr(Torch, "Generator", lambda self, device: torch.Generator(), raising=False)
    monkeypatch.setitem(sys.modules, "torch", made)
    return made


def product(fake: Torch, milliseconds: float) -> Any:
    def kernel(a: Any, b: Any, c: Any) -> None:
        fake.now += milliseconds
        c.copy_(a.float() @ b.float().T)

    return kernel


def slowed(monkeypatch: pytest.MonkeyPatch, fake: Torch) -> None:
    """The peer takes 3 ms."""
    mm = torch.mm

    def slow(*given: Any, **named: Any) -> Any:
        fake.now += 3.0
        return mm(*given, **named)

    monkeypatch.setattr(Torch, "mm", staticmethod(slow), raising=False)


def test_smoke_times(fake: Torch, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any) -> None:
    slowed(monkeypatch, fake)
    monkeypatch.setattr(gpu_smoke, "load", lambda directory: product(fake, 2.0))
    (tmp_path / "manifest.json").write_text('{"constants": {}}')
    gpu_smoke.time_shapes(str(tmp_path), "gemm", [SHAPE], 4, str(tmp_path / "progress"))
    (record,) = [json.loads(line) for line in (tmp_path / "progress").read_text().splitlines()]
    assert record["ratio"]["median"] == pytest.approx(1.5) and record["peer"] == "torch.mm (cuBLAS)"
    assert record["recheck"]["worst"] <= 1
    (error,) = record["errors"]
    assert error["ratio"] == pytest.approx({"normwise": 1.0, "worst": 1.0}, abs=0.2)
    measure = functools.partial(host_time.measure, calls=2, rounds=2)
    monkeypatch.setattr(host_time, "measure", measure)
    hosts = gpu_smoke.host_times(str(tmp_path), "gemm")
    assert set(hosts) == {"call_us", "four_sets_us", "peer_us"}
    gpu_smoke._table({"host": hosts, "times": [record]})
    printed = capsys.readouterr().out
    assert "70x72x64" in printed and "normwise" in printed and "x peer's" in printed


def test_tuning(fake: Torch, monkeypatch: pytest.MonkeyPatch) -> None:
    slowed(monkeypatch, fake)
    able = [(product(fake, ms), {"BN": bn}) for ms, bn in ((4.0, 64), (2.0, 128), (2.5, 256))]
    record = plain(tune.tune_shape(PROBLEMS["gemm"], SHAPE, able, 4))
    assert record["constants"] == {"BN": 128} and record["ratio"]["median"] == pytest.approx(1.5)
    assert [p["constants"]["BN"] for p in record["points"]] == [128, 256, 64]
    assert record["recheck"]["worst"] <= 1 and record["errors"][0]["kernel"]["compared"] == 70 * 72


def test_every_point_of_the_examples_is_accepted() -> None:
    """`gpu_smoke.py build` asks for no point that the examples refuse."""
    for name in gpu_smoke.POINTS:
        kernel = gpu_smoke.expanded(name)
        assert kernel.name in PROBLEMS, name
        chosen = gpu_smoke.POINTS.get(name, ("", None, {}))[2]
        assert {n: kernel.constants[n] for n in chosen} == chosen
