"""Flash-KMeans: exact assignments over ragged shapes, with ties; the order of its warps; its registers."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from cake.codegen.build import build
from cake.compiler import expand_file
from cake.machine import run
from cake.machine.order import check
from examples import kmeans
from tests.examples import EXAMPLES

SOURCE = EXAMPLES / "kmeans.cake"


def problem(b: int, n: int, k: int, d: int) -> dict[str, Any]:
    """Small integers, so that every sum is exact and many centroids are equally near; some centroids occur twice."""
    rng = np.random.default_rng(b * n + k * d)
    x = rng.integers(-2, 3, (b, n, d)).astype(ml_dtypes.bfloat16)
    c = rng.integers(-1, 2, (b, k, d)).astype(ml_dtypes.bfloat16)
    c[:, rng.integers(0, k, k // 3)] = c[:, rng.integers(0, k, k // 3)]
    return {"x": x, "c": c, "half": np.zeros((b, k), np.float32), "ids": np.zeros((b, n), np.int32)}


SHAPES = [
    (1, 1, 4, 128, {}),
    (1, 255, 100, 128, {}),
    (2, 257, 128, 128, {}),
    (1, 300, 1000, 128, {}),
    (3, 130, 260, 64, {}),
    (1, 64, 132, 64, {"BN": 64, "WGS": 2}),
    (1, 200, 512, 64, {"BN": 256, "STAGES": 2}),
    (1, 193, 140, 256, {"WGS": 3, "BN": 64, "STAGES": 2, "POINTS": 1}),
]


@pytest.mark.parametrize(("b", "n", "k", "d", "constants"), SHAPES, ids=str)
def test_exact(b: int, n: int, k: int, d: int, constants: dict[str, Any]) -> None:
    given = problem(b, n, k, d)
    norms = expand_file(SOURCE, kernel="half_norms", constants={"D": d})
    given["half"] = run(norms, {"c": given["c"], "half": given["half"]}).outputs["half"]
    assert np.array_equal(given["half"], kmeans.reference_half_norms(given, {}, {})["half"])
    assign = expand_file(SOURCE, kernel="assign", constants={"D": d, **constants})
    expected = kmeans.reference(given, {}, {})["ids"]
    for seed in (0, 1):
        assert np.array_equal(run(assign, given, seed=seed).outputs["ids"], expected)


@pytest.mark.parametrize("kernel", ["assign", "half_norms"])
def test_order(kernel: str) -> None:
    k = expand_file(SOURCE, kernel=kernel)
    given = problem(2, 600, 300, 128)
    assert check(k, {t.name: given[t.name] for t in k.tensors}, ctas=2) == []


def test_registers() -> None:
    """Four warpgroups and a producer leave 96 registers a thread."""
    report = build(expand_file(SOURCE, kernel="assign")).report
    assert report.registers <= 93 and not report.spills
