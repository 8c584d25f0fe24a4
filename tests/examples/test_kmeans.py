"""Flash-KMeans: exact assignments over ragged shapes, with ties; the order of its warps; its registers; whole sequences
over data that is meant to go wrong."""

from __future__ import annotations

import functools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from cake.codegen.build import build
from cake.compiler import expand_file, expand_steps, parse, select
from cake.ir import surface as s
from cake.ir.sequences import Sequence
from cake.machine import run
from cake.machine.order import check
from cake.machine.sequences import run_sequence
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


# ---- whole sequences ------------------------------------------------------------------------------------------------

SMALL = (("BN", 64), ("D", 64), ("WGS", 2))


@functools.cache
def sequence(name: str) -> Sequence:
    file = parse(SOURCE.read_text(encoding="utf-8"), str(SOURCE))
    chosen = select(file, name)
    assert isinstance(chosen, s.Sequence)
    constants = {"D": 64} if name == "kmeans_update" else dict(SMALL)
    return expand_steps(file, chosen, constants)


def call(name: str, seed: int = 0, **given: Any) -> dict[str, Any]:
    """What a sequence makes of points and centroids (and labels), from outputs that are poisoned."""
    x, c = given["x"], given["c"]
    (b, n, _), k = x.shape, c.shape[1]
    poison = {
        "ids": np.full((b, n), -7, np.int32),
        "next": np.full(c.shape, np.nan, ml_dtypes.bfloat16),
        "moved": np.full((b, k), np.nan, np.float32),
    }
    names = sequence(name).tensors
    with np.errstate(all="ignore"):
        return run_sequence(sequence(name), {t.name: {**poison, **given}[t.name] for t in names}, seed=seed).outputs


def agrees(x: Any, c: Any, seeds: tuple[int, ...] = (0, 1)) -> dict[str, Any]:
    """Checks the three sequences against the references, under several seeds; gives what a step made."""
    with np.errstate(all="ignore"):
        expected = kmeans.reference_kmeans_step({"x": x, "c": c}, {}, {})
    found: dict[str, Any] = {}
    for seed in seeds:
        assert np.array_equal(call("kmeans_assign", seed, x=x, c=c)["ids"], expected["ids"])
        update = call("kmeans_update", seed, x=x, c=c, ids=expected["ids"].astype(np.int32))
        found = call("kmeans_step", seed, x=x, c=c)
        assert np.array_equal(found["ids"], expected["ids"])
        for made in (update, found):
            assert np.array_equal(made["next"].astype(np.float64), expected["next"].astype(np.float64), equal_nan=True)
            assert np.allclose(made["moved"], expected["moved"], rtol=1e-6, atol=0, equal_nan=True)
    return found


def small(rng: np.random.Generator, *shape: int) -> Any:
    """Small integers: every sum is exact."""
    return rng.integers(-2, 3, shape).astype(ml_dtypes.bfloat16)


def test_all_equally_near() -> None:
    """All centroids are one: the first takes every point, and the others stay where they are."""
    x, c = small(np.random.default_rng(1), 2, 140, 64), np.ones((2, 68, 64), ml_dtypes.bfloat16)
    found = agrees(x, c)
    assert (found["ids"] == 0).all() and (found["moved"][:, 0] > 0).all() and not found["moved"][:, 1:].any()


def test_zeros_past_the_last_centroid_do_not_win() -> None:
    """K divides no tile, and every score is below the zero that lies past the end of the centroids."""
    rng = np.random.default_rng(2)
    x, c = -abs(small(rng, 1, 130, 64)), abs(small(rng, 1, 132, 64)) + np.ones((), ml_dtypes.bfloat16)
    assert (agrees(x, c, (3,))["ids"] < 132).all()


@pytest.mark.parametrize("label", [0, 67])
def test_one_label(label: int) -> None:
    """Every addition goes to one centroid."""
    x = np.ones((1, 129, 64), ml_dtypes.bfloat16)
    c = np.full((1, 68, 64), -1, ml_dtypes.bfloat16)
    c[0, label] = 2
    found = agrees(x, c)
    assert (found["ids"] == label).all() and (found["next"][0, label] == 1).all()
    assert found["moved"][0].nonzero()[0].tolist() == [label] and found["moved"][0, label] == 64


def test_empty_clusters_stay() -> None:
    """Far centroids keep every bit, and have not moved."""
    rng = np.random.default_rng(4)
    x, c = small(rng, 1, 70, 64), small(rng, 1, 72, 64)
    c[0, 5:] = (100 + rng.random((67, 64))).astype(ml_dtypes.bfloat16)
    found = agrees(x, c)
    assert np.array_equal(found["next"][0, 5:], c[0, 5:]) and not found["moved"][0, 5:].any()


def test_points_that_are_no_numbers() -> None:
    """Points with NaN, and those for which every score is -inf or NaN, have no label and spoil no centroid."""
    rng = np.random.default_rng(5)
    x, c = small(rng, 1, 140, 64), abs(small(rng, 1, 68, 64)) + np.ones((), ml_dtypes.bfloat16)
    nobody = [0, 3, 64, 100, 127, 128, 139]
    x[0, nobody[:3], 7], x[0, nobody[3]] = np.nan, np.nan
    x[0, nobody[4:6]], x[0, nobody[6], 9] = -np.inf, -np.inf
    found = agrees(x, c)
    assert (found["ids"][0] == -1).nonzero()[0].tolist() == nobody
    assert np.isfinite(found["next"].astype(np.float32)).all()


def test_points_at_infinity() -> None:
    """The lowest centroid with a score of +inf gets them, and its mean is infinite."""
    rng = np.random.default_rng(6)
    x, c = small(rng, 1, 70, 64), small(rng, 1, 68, 64)
    x[0, 11, 4], c[0, :, 4] = -np.inf, 1
    c[0, 40:50, 4] = -1
    found = agrees(x, c)
    assert found["ids"][0, 11] == 40 and np.isneginf(found["next"][0, 40, 4].astype(np.float32))


def test_centroids_that_are_no_numbers() -> None:
    """They get no points and stay."""
    rng = np.random.default_rng(7)
    x, c = small(rng, 1, 130, 64), small(rng, 1, 68, 64)
    c[0, 0, 3], c[0, 1, 5], c[0, 67, 7] = np.nan, np.inf, -np.inf
    found = agrees(x, c)
    assert not np.isin(found["ids"], [0, 1, 67]).any() and (found["ids"] >= 0).all()
    assert np.isnan(found["moved"][0, [0, 1, 67]]).all()


def test_labels_out_of_range_count_nowhere() -> None:
    rng = np.random.default_rng(8)
    x, c = small(rng, 1, 140, 64), small(rng, 1, 68, 64)
    ids = rng.integers(0, 68, (1, 140), np.int32)
    ids[0, ::5] = rng.choice([-1, 68, 1 << 30, -(1 << 31)], 28)
    expected = kmeans.reference_kmeans_update({"x": x, "ids": ids, "c": c}, {}, {})
    for seed in (0, 1):
        assert np.array_equal(call("kmeans_update", seed, x=x, c=c, ids=ids)["next"], expected["next"])
