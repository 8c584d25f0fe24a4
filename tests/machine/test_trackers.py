"""Trackers against NumPy: the simulator, and the generated code run on the CPU."""

from __future__ import annotations

import numpy as np
import pytest

from cake.compiler import expand_text
from cake.ir import expanded as x
from cake.machine import run
from tests.codegen import emulator

SOURCE = """
kernel k(x: f32[{rows}, {total}], out y: f32[{rows}], out z: i32[{rows}]) for sm_90a:
    tiles once:
        i in 1
    role math: warps {warps}
    do math:
        a: f32[{rows}, {cols}] frag
        best: {function}[{rows}] frag group({group})
        for t in tiles:
            best.clear()
            for j in unroll({total} // {cols}):
                a = load(x[rows(a), {cols} * j + cols(a)])
                best.add(a, {cols} * j)
            top, at = best.take()
            store(y[rows(top)], top)
            store(z[rows(at)], at)
"""


def kernel(function: str, group: int, rows: int = 64, cols: int = 64, total: int = 192, warps: int = 4) -> x.Kernel:
    """A kernel that follows the columns of x, tile by tile."""
    return expand_text(SOURCE.format(function=function, group=group, rows=rows, cols=cols, total=total, warps=warps))


def values(rows: int, total: int, worst: float) -> np.ndarray:
    """Few distinct values, so that there are ties in and between tiles; rows with NaN, infinities, and nothing at all."""
    rng = np.random.default_rng(5)
    a = rng.integers(-4, 5, (rows, total)).astype(np.float32)
    a[0] = np.nan
    a[1, ::2] = np.nan
    a[2] = worst
    a[3] = -worst
    a[4] = np.where(np.arange(total) % 3, worst, a[4])
    a[5] = rng.standard_normal(total)
    a[6, -1], a[7, 0] = -worst, -worst
    a[8] = 0.0
    a[8, 1::2] = -0.0
    return a


def expected(a: np.ndarray, function: str) -> tuple[np.ndarray, np.ndarray]:
    """The extremum and the lowest column that has it; NaN never wins, and where nothing does the column is 0."""
    worst = np.float32(-np.inf if function == "argmax" else np.inf)
    clean = np.where(np.isnan(a), worst, a)
    return getattr(clean, function[3:])(axis=1), getattr(clean, function)(axis=1)


CASES = [
    ("argmax", 1, 64, 64, 192, 4),
    ("argmax", 2, 64, 24, 48, 4),
    ("argmax", 4, 64, 64, 192, 4),
    ("argmax", 8, 128, 32, 96, 4),
    ("argmin", 4, 64, 64, 192, 4),
    ("argmin", 1, 16, 8, 32, 1),
    ("argmax", 4, 16, 16, 64, 1),
]


@pytest.mark.parametrize(("function", "group", "rows", "cols", "total", "warps"), CASES)
def test_against_numpy(function: str, group: int, rows: int, cols: int, total: int, warps: int) -> None:
    k = kernel(function, group, rows, cols, total, warps)
    a = values(rows, total, -np.inf if function == "argmax" else np.inf)
    top, at = expected(a, function)
    arguments = {"x": a, "y": np.zeros(rows, np.float32), "z": np.zeros(rows, np.int32)}
    out = run(k, arguments).outputs
    assert np.array_equal(out["y"], top) and np.array_equal(out["z"], at)
    memory = {n: v.ravel().copy() for n, v in arguments.items()}
    emulator.run(k, memory)
    assert np.array_equal(memory["y"], top) and np.array_equal(memory["z"], at)


LISTS = """
kernel k(x: f32[{rows}, {total}], low: f32[{rows}], out y: f32[{rows}, {k}], out z: i32[{rows}, {k}]) for sm_90a:
    tiles once:
        i in 1
    role math: warps {warps}
    do math:
        a: f32[{rows}, {cols}] frag
        f: f32[{rows}, 1] frag
        best: topk[{rows}, {k}] frag group({group})
        for t in tiles:
            f = load(low[rows(f)])
            best.clear()
            for j in unroll({total} // {cols}):
                a = load(x[rows(a), {cols} * j + cols(a)])
                best.add({value}, {cols} * j{floor})
            top, at = best.take()
            store(y[rows(top), cols(top)], top)
            store(z[rows(at), cols(at)], at)
"""


def best_of(a: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k greatest of each row and their columns, the lower column first among equals; -inf and -1 where there are no more
    that are greater than -inf."""
    clean = np.where(np.isnan(a), np.float32(-np.inf), a)
    order = np.argsort(-clean, axis=1, kind="stable")[:, :k]
    best = np.take_along_axis(clean, order, axis=1)
    missing = ((0, 0), (0, k - best.shape[1]))
    best, order = np.pad(best, missing, constant_values=-np.inf), np.pad(order, missing)
    return best, np.where(np.isneginf(best), -1, order)


LIST_CASES = [
    (1, 2, 64, 24, 48, 4, "a"),
    (5, 4, 64, 64, 192, 4, "a"),
    (8, 4, 64, 64, 192, 4, "a"),
    (8, 2, 64, 64, 64, 4, "where(cols(a) % 3 == 1, a, -inf)"),
    (10, 8, 128, 32, 96, 4, "a"),
    (16, 4, 16, 16, 64, 1, "a"),
    (31, 2, 16, 8, 24, 1, "a[:, 0 : 8]"),
    (32, 4, 64, 128, 256, 4, "a"),
]


def lists_agree(source: str, a: np.ndarray, low: np.ndarray, followed: np.ndarray, k: int) -> None:
    """Simulator and emitted code give the k greatest of what is followed."""
    best, at = best_of(followed, k)
    arguments = {"x": a, "low": low, "y": np.zeros(best.shape, np.float32), "z": np.zeros(best.shape, np.int32)}
    out = run(expand_text(source), arguments).outputs
    assert np.array_equal(out["y"], best) and np.array_equal(out["z"], at)
    memory = {n: v.ravel().copy() for n, v in arguments.items()}
    emulator.run(expand_text(source), memory)
    assert np.array_equal(memory["y"], best.ravel()) and np.array_equal(memory["z"], at.ravel())


@pytest.mark.parametrize(("k", "group", "rows", "cols", "total", "warps", "value"), LIST_CASES)
def test_lists_against_numpy(k: int, group: int, rows: int, cols: int, total: int, warps: int, value: str) -> None:
    source = LISTS.format(k=k, group=group, rows=rows, cols=cols, total=total, warps=warps, value=value, floor="")
    a = values(rows, total, -np.inf)
    followed = a if "%" not in value else np.where(np.arange(total) % cols % 3 == 1, a, -np.inf)
    lists_agree(source, a, np.zeros(rows, np.float32), followed, k)


@pytest.mark.parametrize(
    ("k", "rows", "warps", "floor"), [(8, 64, 4, "f"), (1, 16, 1, "f"), (5, 128, 4, "f * 2.0 - f")]
)
def test_floors_against_numpy(k: int, rows: int, warps: int, floor: str) -> None:
    """What is less than its row's floor is passed over, what equals it is not; a floor of NaN or -inf is none."""
    source = LISTS.format(k=k, group=4, rows=rows, cols=32, total=64, warps=warps, value="a", floor=f", floor={floor}")
    a = values(rows, 64, -np.inf)
    low = np.sort(np.where(np.isnan(a), -np.inf, a), axis=1)[np.arange(rows), np.arange(rows) * 5 % 64].astype(
        np.float32
    )
    low[:7] = [-np.inf, np.inf, np.nan, 0.0, -0.0, 1e-45, -1e-45]
    a[3:7, ::2] = [[0.0], [-0.0], [-1e-45], [1e-45]]
    if floor != "f":
        low[:3] = 0.5
    lists_agree(source, a, low, np.where(a < low[:, None], np.float32(-np.inf), a), k)
