"""Register tiles: their storage, and tile expressions compiled to functions on arrays.

A tile is one NumPy array for the whole instance. Fresh registers hold a pattern that shows: NaN, or a large integer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from cake.ir.dtypes import DTYPES, numpy_dtype
from cake.ir.evaluate import compile_expr, convert
from cake.ir.expr import Apply, Axis, Const, Expr, Reg, is_scalar
from cake.ir.layout import TileType
from cake.machine import owners
from cake.machine.elementwise import ELEMENTWISE_MEANINGS, Array, cast

if TYPE_CHECKING:
    from cake.machine.instance import Instance

TileFunction = Callable[["Instance"], Array]

POISON = {"i8": 0x5A, "u8": 0xA5, "i32": 0x5A5A5A5A, "i64": 0x5A5A5A5A5A5A5A5A, "bool": True}


def poison(dtype: str, shape: tuple[int, ...]) -> Array:
    """An array that nothing has written: NaN in floats, a large value in integers."""
    value = POISON.get(dtype, float("nan"))
    return np.full(shape, value, dtype=numpy_dtype(dtype))


def part(tile: Array, reg: Reg) -> Array:
    """The part of a tile's array that ``reg`` names (a view)."""
    view: Array = tile[reg.lead] if reg.lead else tile
    if reg.rows is not None or reg.cols is not None:
        view = view[..., slice(*(reg.rows or (None, None))), slice(*(reg.cols or (None, None)))]
    return view


def compile_tile(expr: Expr, domain: TileType | None, warps: int) -> TileFunction:
    """``expr`` as a function of an instance: an array that broadcasts to the domain's shape."""
    if is_scalar(expr):
        scalar = compile_expr(expr)
        kind = numpy_dtype(expr.dtype)
        if isinstance(expr, Const):
            constant = np.asarray(convert(expr.value, expr.dtype), dtype=kind)
            return lambda inst: constant
        return lambda inst: np.asarray(scalar(inst.env), dtype=kind)
    if isinstance(expr, Reg):
        name, reg = expr.name, expr
        if not reg.lead and reg.rows is None and reg.cols is None:
            return lambda inst: inst.tiles[name]
        return lambda inst: part(inst.tiles[name], reg)
    if isinstance(expr, Axis):
        axis = _axis(expr, domain, warps)
        return lambda inst: axis
    assert isinstance(expr, Apply)
    return _apply(expr, domain, warps)


def _axis(expr: Axis, domain: TileType | None, warps: int) -> Array:
    assert domain is not None, "an index tile needs a domain"
    kind = numpy_dtype(expr.dtype)
    if expr.axis == "row":
        return np.arange(domain.rows, dtype=kind)[:, None]
    if expr.axis == "col":
        return np.arange(domain.cols, dtype=kind)[None, :]
    return owners.lin(domain.rows, domain.cols, domain.layout, warps).astype(kind)


def _apply(expr: Apply, domain: TileType | None, warps: int) -> TileFunction:
    args = [compile_tile(a, domain, warps) for a in expr.args]
    if expr.op == "cast":
        (source,), from_name, to_name = args, expr.args[0].dtype, expr.dtype
        return lambda inst: cast(source(inst), from_name, to_name)
    function = ELEMENTWISE_MEANINGS[expr.op](expr.dtype)
    if len(args) == 1:
        (only,) = args
        return lambda inst: function(only(inst))
    if len(args) == 2:
        first, second = args
        return lambda inst: function(first(inst), second(inst))
    return lambda inst: function(*(a(inst) for a in args))


def zero(dtype: str) -> Any:
    """The zero of ``dtype``."""
    return numpy_dtype(dtype).type(0)


def is_float(dtype: str) -> bool:
    """True for the float types."""
    return DTYPES[dtype].kind == "float"
