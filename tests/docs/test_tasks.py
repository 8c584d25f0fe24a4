"""The tasks: each text has a solution, which checks without a finding and agrees with NumPy on ragged shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cake.compiler import check_text, expand_file
from tests.docs.support import inputs, simulate

TASKS = Path(__file__).parents[2] / "docs" / "tasks"
NAMES = sorted(p.stem for p in TASKS.glob("[0-9]*.md"))

Arrays = Mapping[str, Any]


def f32(a: Any) -> Any:
    """An array in f32."""
    return np.asarray(a).astype(np.float32)


def axpy(a: Arrays) -> Arrays:
    return {"y": np.float32(a["alpha"]) * a["a"] + a["b"]}


def row_max(a: Arrays) -> Arrays:
    return {"y": f32(a["x"]).max(axis=1)}


def bias_relu(a: Arrays) -> Arrays:
    return {"y": np.maximum(f32(a["x"]) + f32(a["bias"]), 0)}


def transpose(a: Arrays) -> Arrays:
    return {"y": f32(a["x"]).T}


def matvec(a: Arrays) -> Arrays:
    return {"y": f32(a["a"]) @ a["x"]}


def mean_variance(a: Arrays) -> Arrays:
    return {"mean": a["x"].mean(axis=1), "var": a["x"].var(axis=1)}


def gather(a: Arrays) -> Arrays:
    rows = f32(a["table"])[np.maximum(a["index"], 0)]
    return {"y": np.where(a["index"][:, None] < 0, 0, rows)}


def segment_count(a: Arrays) -> Arrays:
    count, total = a["count"].copy(), a["total"].copy()
    np.add.at(count, a["seg"], 1)
    np.add.at(total, a["seg"], a["weight"])
    return {"count": count, "total": total}


def gemm_small(a: Arrays) -> Arrays:
    return {"c": f32(a["a"]) @ f32(a["b"]).T}


def gemm_bias(a: Arrays) -> Arrays:
    return {"c": np.maximum(f32(a["a"]) @ f32(a["b"]).T + a["bias"], 0)}


REFERENCES: dict[str, tuple[Callable[[Arrays], Arrays], list[dict[str, int]]]] = {
    "01_axpy": (axpy, [{"N": 4}, {"N": 4100}, {"N": 9000}]),
    "02_row_max": (row_max, [{"M": 3, "N": 8}, {"M": 5, "N": 2048}, {"M": 2, "N": 4104}]),
    "03_bias_relu": (bias_relu, [{"M": 1, "N": 8}, {"M": 45, "N": 264}, {"M": 64, "N": 256}]),
    "04_transpose": (transpose, [{"M": 8, "N": 8}, {"M": 72, "N": 136}, {"M": 64, "N": 128}]),
    "05_matvec": (matvec, [{"M": 1, "K": 8}, {"M": 7, "K": 520}, {"M": 12, "K": 1024}]),
    "06_mean_variance": (mean_variance, [{"M": 1, "N": 4}, {"M": 6, "N": 1004}, {"M": 2, "N": 2048}]),
    "07_gather": (gather, [{"V": 1, "D": 8, "N": 1}, {"V": 5, "D": 72, "N": 19}, {"V": 9, "D": 1024, "N": 8}]),
    "08_segment_count": (segment_count, [{"N": 4, "S": 1}, {"N": 1004, "S": 5}, {"N": 2048, "S": 3}]),
    "09_gemm_small": (
        gemm_small,
        [{"M": 1, "N": 8, "K": 8}, {"M": 100, "N": 72, "K": 200}, {"M": 64, "N": 64, "K": 64}],
    ),
    "10_gemm_bias": (
        gemm_bias,
        [{"M": 1, "N": 8, "K": 8}, {"M": 150, "N": 136, "K": 72}, {"M": 128, "N": 256, "K": 128}],
    ),
}


def test_every_task_has_a_solution() -> None:
    assert sorted(REFERENCES) == NAMES == sorted(p.stem for p in TASKS.glob("*.cake"))
    assert all((TASKS / f"{n}.md").read_text(encoding="utf-8").startswith("# ") for n in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_clean(name: str) -> None:
    path = TASKS / f"{name}.cake"
    assert [(d.code, d.message) for d in check_text(path.read_text(encoding="utf-8"), str(path))] == []


CASES = [(name, shape) for name, (_, shapes) in REFERENCES.items() for shape in shapes]


@pytest.mark.parametrize(("name", "shape"), CASES, ids=[f"{n}-{'x'.join(map(str, s.values()))}" for n, s in CASES])
def test_agrees(name: str, shape: dict[str, int]) -> None:
    reference, _ = REFERENCES[name]
    kernel = expand_file(TASKS / f"{name}.cake")
    arguments = inputs(kernel, seed=1, given=shape)
    expected = reference(arguments)
    for seed in (0, 3):
        outputs = simulate(kernel, arguments, seed=seed)
        for output, wanted in expected.items():
            given = outputs[output]
            if given.dtype.kind == "i":
                np.testing.assert_array_equal(given, wanted)
            else:
                loose = given.dtype != np.float32
                np.testing.assert_allclose(
                    f32(given), wanted, rtol=1e-2 if loose else 1e-5, atol=1e-2 if loose else 1e-4
                )
