"""Nearest neighbours through the whole sequence: ragged shapes, seeds, and data that is meant to go wrong."""

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
from examples import knn
from tests.examples import EXAMPLES

SOURCE = EXAMPLES / "knn.cake"
LARGE = {"D": 64, "K": 8, "SPLIT": 4, "PARTS": 8, "WGS": 2, "TEAM": 1, "SAMPLE": 1}
FEW = {"D": 64, "K": 10, "SPLIT": 3, "PARTS": 16, "CLASSES": 1, "WGS": 1, "TEAM": 2, "SAMPLE": 1}
WAYS = {"knn": LARGE, "knn_few": FEW}


@functools.cache
def sequence(name: str, point: tuple[tuple[str, int], ...]) -> Sequence:
    file = parse(SOURCE.read_text(encoding="utf-8"), str(SOURCE))
    chosen = select(file, name)
    assert isinstance(chosen, s.Sequence)
    return expand_steps(file, chosen, dict(point))


def search(name: str, q: Any, x: Any, seed: int = 0, **constants: int) -> tuple[Any, Any]:
    """Distances and rows that a sequence gives."""
    point = {**WAYS[name], **constants}
    k = point["K"]
    out = {"distance": np.zeros((len(q), k), np.float32), "row": np.zeros((len(q), k), np.int32)}
    with np.errstate(all="ignore"):
        found = run_sequence(sequence(name, tuple(sorted(point.items()))), {"q": q, "x": x, **out}, seed=seed).outputs
    return found["distance"], found["row"]


def agrees(q: Any, x: Any, found: tuple[Any, Any]) -> bool:
    """Whether these are the nearest, the lower row of equals first."""
    k = found[0].shape[1]
    expected = knn.reference({"q": q, "x": x}, {}, {"K": k})
    return np.array_equal(found[1], expected["row"]) and np.array_equal(
        found[0], expected["distance"].astype(np.float32)
    )


def small(rng: np.random.Generator, rows: int, d: int = 64) -> Any:
    """Small integers: every sum is exact, and many rows are equally near."""
    return rng.integers(-2, 3, (rows, d)).astype(ml_dtypes.bfloat16)


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize(("queries", "rows"), [(1, 1), (65, 5), (130, 128), (64, 1153), (3, 3000)])
def test_ragged(name: str, queries: int, rows: int) -> None:
    """One row, fewer rows than neighbours, whole tiles, one row more; more parts than tiles and fewer."""
    rng = np.random.default_rng(queries + rows)
    q, x = small(rng, queries), small(rng, rows)
    for seed in (0, 1) if rows < 100 else (2,):
        assert agrees(q, x, search(name, q, x, seed))


@pytest.mark.parametrize(
    "constants", [{"K": 1}, {"K": 32, "SPLIT": 22, "PARTS": 32, "TEAM": 8}, {"D": 128, "K": 16}], ids=str
)
def test_points(constants: dict[str, int]) -> None:
    rng = np.random.default_rng(5)
    for name in WAYS:
        q, x = small(rng, 17, constants.get("D", 64)), small(rng, 1500, constants.get("D", 64))
        assert agrees(q, x, search(name, q, x, **constants))


@pytest.mark.parametrize("name", WAYS)
def test_all_equally_near(name: str) -> None:
    """The lowest rows win, although every score of the sample equals the floor."""
    q, x = np.ones((66, 64), ml_dtypes.bfloat16), np.zeros((1300, 64), ml_dtypes.bfloat16)
    distance, row = search(name, q, x)
    assert (row == np.arange(WAYS[name]["K"])).all() and (distance == 64.0).all()


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("order", ["nearest last", "nearest first"])
def test_sorted_databases(name: str, order: str) -> None:
    """Every row is nearer than all before it, or none is: a sample says nothing, or everything."""
    n = 1400
    x = np.zeros((n, 64), ml_dtypes.bfloat16)
    x[:, :8] = (np.arange(n)[:, None] // 8 ** np.arange(8) % 8).astype(ml_dtypes.bfloat16)
    q = np.zeros((65, 64), ml_dtypes.bfloat16)
    x = x[np.argsort(np.square(x.astype(np.float32)).sum(axis=1), kind="stable")]
    x = x[::-1].copy() if order == "nearest last" else x
    assert agrees(q, x, search(name, q, x))


@pytest.mark.parametrize("name", WAYS)
def test_rows_that_are_no_numbers(name: str) -> None:
    """Rows with NaN or infinity are nobody's neighbours; a query with NaN has none."""
    rng = np.random.default_rng(11)
    q, x = small(rng, 66), small(rng, 1300)
    bad = rng.permutation(1300)[:900]
    x[bad[:500], rng.integers(0, 64, 500)] = np.nan
    x[bad[500:700], 7], x[bad[700:], 9] = np.inf, -np.inf
    q[3, 5] = np.nan
    distance, row = search(name, q, x)
    good = np.setdiff1d(np.arange(1300), bad)
    expected = knn.reference({"q": q, "x": x[good]}, {}, {"K": row.shape[1]})
    keep = np.arange(66) != 3
    assert np.array_equal(row[keep], good[expected["row"][keep]])
    assert np.array_equal(distance[keep], expected["distance"][keep].astype(np.float32))
    assert (row[3] == -1).all() and np.isposinf(distance[3]).all()


@pytest.mark.parametrize("name", WAYS)
def test_a_class_of_no_numbers(name: str) -> None:
    """A sample with nothing but NaN gives no floor."""
    rng = np.random.default_rng(12)
    q, x = small(rng, 64), small(rng, 2000)
    x[::7] = np.nan
    _, row = search(name, q, x)
    good = np.flatnonzero(np.arange(2000) % 7)
    assert np.array_equal(row, good[knn.reference({"q": q, "x": x[good]}, {}, {"K": row.shape[1]})["row"]])


@pytest.mark.parametrize("constants", [{}, {"PROBE": True}, {"FUSED": True, "WGS": 1}], ids=str)
def test_order(constants: dict[str, Any]) -> None:
    k = expand_file(SOURCE, kernel="knn_scan", constants={"D": 64, **constants})
    dims = {"Q": 300, "N": 700}
    given: dict[str, Any] = knn.inputs_knn_scan(dims, dict(k.constants), np.random.default_rng(0))
    n = int(k.constants["SPLIT"]) * int(k.constants["K"])
    given |= {"found": given["peak"], "score": np.zeros((300, n), np.float32), "id": np.zeros((300, n), np.int32)}
    assert check(k, {t.name: given[t.name] for t in k.tensors}, ctas=2) == []


def test_order_of_the_merge() -> None:
    k = expand_file(SOURCE, kernel="knn_merge", constants={"D": 64})
    given: dict[str, Any] = knn.inputs_knn_merge({"Q": 20, "N": 300}, dict(k.constants), np.random.default_rng(0))
    given |= {"distance": np.zeros((20, 8), np.float32), "row": np.zeros((20, 8), np.int32)}
    assert check(k, {t.name: given[t.name] for t in k.tensors}, ctas=2) == []
    assert run(k, given).outputs["row"].min() >= 0


def test_registers() -> None:
    """Four warpgroups with lists of eight leave nothing in local memory."""
    assert not build(expand_file(SOURCE, kernel="knn_scan")).report.spills
