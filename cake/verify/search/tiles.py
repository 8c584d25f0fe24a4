"""Index tiles as arrays, and which thread of an instance holds which element of a register tile.

The engines here must not share code with the machine that they check, so this says again, from the register maps of
``cake.ir.layout``, who touches what. Values that come from registers (data) are unknown: None.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from cake.ir.expr import Apply, Axis, Const, Expr, Reg, Sym
from cake.ir.layout import RegisterMap, TileType

Array = np.ndarray[Any, Any]

WARP = 32


@cache
def first_holder(tile: TileType, warps: int) -> Array:
    """The lowest thread that holds each element of the last two axes."""
    threads = WARP * warps
    layout = RegisterMap(tile.rows, tile.cols, tile.layout, threads)
    held = np.full((tile.rows, tile.cols), threads, dtype=np.int64)
    for thread in range(threads):
        for register in range(layout.count):
            at = layout.element(thread, register)
            if at is not None and at[0] < tile.rows and at[1] < tile.cols and held[at] > thread:
                held[at] = thread
    return np.where(held == threads, 0, held)


@cache
def held_by(tile: TileType, warps: int, some: tuple[int, ...], lane: int) -> Array:
    """Which elements of the last two axes ``lane`` of ``some`` of the warps holds."""
    layout = RegisterMap(tile.rows, tile.cols, tile.layout, WARP * warps)
    held = np.zeros((tile.rows, tile.cols), dtype=bool)
    for warp in some:
        for register in range(layout.count):
            at = layout.element(WARP * warp + lane, register)
            if at is not None and at[0] < tile.rows and at[1] < tile.cols:
                held[at] = True
    return held


def replicated(tile: TileType) -> bool:
    """Every warp may hold every element: a uniform tile, or one row (one element) that is broadcast."""
    kind = tile.layout.kind
    return kind == "uniform" or (tile.rows == 1 and (kind in ("frag", "quad", "rowwise") or tile.cols == 1))


def several_lanes(tile: TileType) -> bool:
    """Lanes of one warp hold the same element: a fragment's column of row values, a value for each warp."""
    return tile.layout.kind == "perwarp" or (tile.layout.kind in ("frag", "quad") and tile.cols == 1)


@cache
def numbers(tile: TileType, warps: int) -> Array:
    """The ``lin`` number of each element."""
    layout = RegisterMap(tile.rows, tile.cols, tile.layout, WARP * warps)
    result = np.zeros((tile.rows, tile.cols), dtype=np.int64)
    for thread in range(WARP * warps):
        for register in range(layout.count):
            at = layout.element(thread, register)
            if at is not None and at[0] < tile.rows and at[1] < tile.cols:
                result[at] = layout.lin(thread, register)
    return result


class Unknown(Exception):
    """A value that only the data decides."""


def value(e: Expr, env: Mapping[str, Any], tile: TileType | None, warps: int) -> Array | None:
    """An integer or boolean tile expression over its domain (broadcastable), None where data decides it."""
    try:
        return np.asarray(_value(e, env, tile, warps))
    except Unknown:
        return None


def _value(e: Expr, env: Mapping[str, Any], tile: TileType | None, warps: int) -> Any:
    if isinstance(e, Const):
        return e.value
    if isinstance(e, Sym):
        found = env.get(e.name)
        if found is None:
            raise Unknown
        return found
    if isinstance(e, Axis):
        assert tile is not None
        if e.axis == "row":
            return np.arange(tile.rows)[:, None]
        if e.axis == "col":
            return np.arange(tile.cols)[None, :]
        return numbers(tile, warps)
    if isinstance(e, Reg):
        raise Unknown
    assert isinstance(e, Apply)
    return _apply(e, [_value(a, env, tile, warps) for a in e.args])


def _apply(e: Apply, a: list[Any]) -> Any:
    match e.op:
        case "+":
            return a[0] + a[1]
        case "-":
            return a[0] - a[1]
        case "*":
            return a[0] * a[1]
        case "//":
            return np.floor_divide(a[0], a[1])
        case "%":
            return np.mod(a[0], a[1])
        case "cdiv":
            return -np.floor_divide(np.negative(a[0]), a[1])
        case "neg":
            return np.negative(a[0])
        case "abs":
            return np.abs(a[0])
        case "min":
            return np.minimum(a[0], a[1])
        case "max":
            return np.maximum(a[0], a[1])
        case "==" | "!=" | "<" | "<=" | ">" | ">=":
            return _COMPARE[e.op](a[0], a[1])
        case "and":
            return np.logical_and(a[0], a[1])
        case "or":
            return np.logical_or(a[0], a[1])
        case "not":
            return np.logical_not(a[0])
        case "where":
            return np.where(a[0], a[1], a[2])
        case "cast" if e.dtype in ("i32", "i64", "i8", "u8", "bool"):
            return a[0]
    raise Unknown


_COMPARE: dict[str, Any] = {
    "==": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}
