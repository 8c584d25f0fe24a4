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


@pytest.mark.parametrize(
    ("name", "queries", "rows"),
    [("knn", 1, 1), ("knn_few", 3, 5), ("knn", 130, 128), ("knn_few", 64, 1153), ("knn_few", 1, 128), ("knn", 3, 1200)],
)
def test_ragged(name: str, queries: int, rows: int) -> None:
    """One row, fewer rows than neighbours, whole tiles, one row more; more parts than tiles and fewer."""
    rng = np.random.default_rng(queries + rows)
    q, x = small(rng, queries), small(rng, rows)
    assert agrees(q, x, search(name, q, x, seed=rows))


@pytest.mark.parametrize(
    ("name", "constants"),
    [
        ("knn", {"K": 1}),
        ("knn", {"K": 32, "SPLIT": 22, "PARTS": 32, "TEAM": 8}),
        ("knn_few", {"D": 128, "K": 16}),
    ],
    ids=str,
)
def test_points(name: str, constants: dict[str, int]) -> None:
    rng = np.random.default_rng(5)
    q, x = small(rng, 2, constants.get("D", 64)), small(rng, 700, constants.get("D", 64))
    assert agrees(q, x, search(name, q, x, **constants))


def test_all_equally_near() -> None:
    """The lowest rows win, although every score of the sample equals the floor."""
    q, x = np.ones((5, 64), ml_dtypes.bfloat16), np.zeros((1300, 64), ml_dtypes.bfloat16)
    distance, row = search("knn_few", q, x)
    assert (row == np.arange(10)).all() and (distance == 64.0).all()


@pytest.mark.parametrize(("name", "order"), [("knn", "nearest last"), ("knn_few", "nearest first")])
def test_sorted_databases(name: str, order: str) -> None:
    """Every row is nearer than all before it, or none is: a sample says nothing, or everything."""
    n = 1400
    x = np.zeros((n, 64), ml_dtypes.bfloat16)
    x[:, :8] = (np.arange(n)[:, None] // 8 ** np.arange(8) % 8).astype(ml_dtypes.bfloat16)
    q = np.zeros((5, 64), ml_dtypes.bfloat16)
    x = x[np.argsort(np.square(x.astype(np.float32)).sum(axis=1), kind="stable")]
    x = x[::-1].copy() if order == "nearest last" else x
    assert agrees(q, x, search(name, q, x))


def test_rows_that_are_no_numbers() -> None:
    """Rows with NaN or infinity are nobody's neighbours; a query with NaN has none."""
    rng = np.random.default_rng(11)
    q, x = small(rng, 6), small(rng, 1300)
    bad = rng.permutation(1300)[:900]
    x[bad[:500], rng.integers(0, 64, 500)] = np.nan
    x[bad[500:700], 7], x[bad[700:], 9] = np.inf, -np.inf
    q[3, 5] = np.nan
    distance, row = search("knn_few", q, x)
    good = np.setdiff1d(np.arange(1300), bad)
    expected = knn.reference({"q": q, "x": x[good]}, {}, {"K": row.shape[1]})
    keep = np.arange(6) != 3
    assert np.array_equal(row[keep], good[expected["row"][keep]])
    assert np.array_equal(distance[keep], expected["distance"][keep].astype(np.float32))
    assert (row[3] == -1).all() and np.isposinf(distance[3]).all()


def test_a_class_of_no_numbers() -> None:
    """Every class of the sample holds NaN: there is no floor."""
    rng = np.random.default_rng(12)
    q, x = small(rng, 6), small(rng, 1300)
    x[::7] = np.nan
    _, row = search("knn", q, x)
    good = np.flatnonzero(np.arange(1300) % 7)
    assert np.array_equal(row, good[knn.reference({"q": q, "x": x[good]}, {}, {"K": row.shape[1]})["row"]])


@pytest.mark.parametrize("constants", [{}, {"PROBE": True}, {"FUSED": True, "WGS": 1}], ids=str)
def test_order(constants: dict[str, Any]) -> None:
    k = expand_file(SOURCE, kernel="knn_scan", constants={"D": 64, **constants})
    dims = {"Q": 70, "N": 700}
    given: dict[str, Any] = knn.inputs_knn_scan(dims, dict(k.constants), np.random.default_rng(0))
    n = int(k.constants["SPLIT"]) * int(k.constants["K"])
    given |= {"found": given["peak"], "score": np.zeros((70, n), np.float32), "id": np.zeros((70, n), np.int32)}
    assert check(k, {t.name: given[t.name] for t in k.tensors}, ctas=2) == []


def test_order_of_the_merge() -> None:
    k = expand_file(SOURCE, kernel="knn_merge", constants={"D": 64})
    given: dict[str, Any] = knn.inputs_knn_merge({"Q": 3, "N": 300}, dict(k.constants), np.random.default_rng(0))
    given |= {"distance": np.zeros((3, 8), np.float32), "row": np.zeros((3, 8), np.int32)}
    assert check(k, {t.name: given[t.name] for t in k.tensors}, ctas=2) == []
    assert run(k, given).outputs["row"].min() >= 0


def test_registers() -> None:
    """Four warpgroups with lists of eight leave nothing in local memory."""
    assert not build(expand_file(SOURCE, kernel="knn_scan")).report.spills
