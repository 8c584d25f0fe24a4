"""The smoke script survives hangs, crashes and CUDA errors; host times take turns. No GPU needed."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from benchmarks import gpu_smoke, host_time
from benchmarks.gpu_smoke import survive
from benchmarks.problems import GEMM, Shape
from cake.evaluate.intervals import Interval


def _write(progress: str, record: dict[str, object]) -> None:
    with open(progress, "a", encoding="utf-8") as f:
        f.write(json.dumps(record) + "\n")


def troubled(directory: str, problem: str, shapes: list[Shape], progress: str) -> None:
    """(2,) hangs, (3,) dies, (4,) reports a CUDA error and ends, (5,) raises; the others are right."""
    for shape in shapes:
        number = shape[0]
        if number == 2:
            time.sleep(60)
        if number == 3:
            os._exit(3)
        if number == 4:
            _write(progress, {"shape": shape, "ok": False, "error": ["R018: failed"]})
            raise RuntimeError("R018: failed")
        if number == 5:
            raise ValueError("odd")
        _write(progress, {"shape": shape, "ok": True})


def test_trouble_is_recorded_where_it_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_smoke, "FAILURES", 5)
    shapes: list[Shape] = [(n,) for n in (1, 2, 3, 4, 5, 6)]
    records = survive(troubled, tmp_path, GEMM, shapes, 10.0)
    assert [tuple(r["shape"]) for r in records] == shapes
    assert [r["ok"] for r in records] == [True, False, False, False, False, True]
    assert "R019" in records[1]["error"][0]
    assert "exit status 3" in records[2]["error"][1]
    assert records[3]["error"] == ["R018: failed"]
    assert "odd" in records[4]["error"][0]


def test_a_kernel_that_fails_often_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_smoke, "FAILURES", 1)
    records = survive(troubled, tmp_path, GEMM, [(1,), (5,), (6,)], 60.0)
    assert [r["ok"] for r in records] == [True, False, False]
    assert "not run" in records[2]["error"][0]


def test_host_times_take_turns() -> None:
    order: list[str] = []
    functions = {name: (lambda name=name: order.append(name)) for name in ("a", "b", "c")}
    samples = host_time.measure(functions, lambda: order.append("wait"), calls=3, rounds=8)
    assert {name: len(values) for name, values in samples.items()} == {"a": 8, "b": 8, "c": 8}
    assert all(v > 0 for values in samples.values() for v in values)
    bursts = [order[i + 1 : i + 5] for i, what in enumerate(order[:-1]) if what == "wait"]
    assert all(len(set(burst)) == 1 for burst in bursts), "a burst is of one function"
    rounds = {tuple(burst[0] for burst in bursts[3 * r : 3 * r + 3]) for r in range(8)}
    assert len(rounds) > 1 and all(sorted(r) == ["a", "b", "c"] for r in rounds)


def test_the_table_of_host_times() -> None:
    interval = Interval(7.0, 6.5, 7.5)
    result = {
        "microseconds": {"ours": interval},
        "over_ours": {"ours": Interval(1, 1, 1)},
        "missing": {"Triton": "no"},
    }
    text = host_time.table(result)
    assert "ours" in text and "7.00" in text and "no" in text
