"""Tile expressions evaluated to values and states at once (values as ``cake.machine.registers`` computes them)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from cake.ir.expr import Apply, Axis, Expr, Reg, is_scalar
from cake.ir.layout import TileType
from cake.machine.elementwise import ELEMENTWISE_MEANINGS, Array, cast
from cake.machine.registers import compile_tile
from cake.verify.padding import states as st

if TYPE_CHECKING:
    from cake.machine.instance import Instance

Pair = tuple[Array, Array]
PairFunction = Callable[["Instance"], Pair]
Registers = Callable[["Instance", Reg], Array]
"""The states of a register tile, or of the part of one that is named."""

Births = Callable[[Expr], None]
"""Told of a difference of two infinities."""


def compile_pair(
    expr: Expr, domain: TileType | None, warps: int, registers: Registers, births: Births | None = None
) -> PairFunction:
    """``expr`` as a function of an instance: arrays that broadcast to the domain's shape."""
    if isinstance(expr, Reg):
        value, reg = compile_tile(expr, domain, warps), expr
        return lambda inst: (value(inst), registers(inst, reg))
    if is_scalar(expr) or isinstance(expr, Axis):
        value = compile_tile(expr, domain, warps)

        def leaf(inst: Instance) -> Pair:
            v = value(inst)
            return v, st.positive(v)

        return leaf
    assert isinstance(expr, Apply)
    return _apply(expr, domain, warps, registers, births)


def _apply(
    expr: Apply, domain: TileType | None, warps: int, registers: Registers, births: Births | None
) -> PairFunction:
    parts = [compile_pair(a, domain, warps, registers, births) for a in expr.args]
    op, same = expr.op, len(expr.args) == 2 and expr.args[0] == expr.args[1]
    if op == "cast":
        (source,), from_name, to_name = parts, expr.args[0].dtype, expr.dtype

        def casted(inst: Instance) -> Pair:
            value, state = source(inst)
            return cast(value, from_name, to_name), state

        return casted
    function = ELEMENTWISE_MEANINGS[op](expr.dtype)

    def run(inst: Instance) -> Pair:
        pairs = [p(inst) for p in parts]
        values = tuple(v for v, _ in pairs)
        value = function(*values)
        state = st.applied(op, values, tuple(s for _, s in pairs), same)
        if op == "-" and births is not None and len(values) == 2:
            _born(expr, values, value, state, births)
        return value, state

    return run


def _born(expr: Apply, values: tuple[Array, ...], value: Array, state: Array, births: Births) -> None:
    """An infinity less itself, at an element that stands for data or for a constant."""
    if value.dtype.kind in "iub":
        return
    sound = ~np.isnan(np.asarray(values[0], dtype=np.float32)) & ~np.isnan(np.asarray(values[1], dtype=np.float32))
    if (np.isnan(np.asarray(value, dtype=np.float32)) & sound & (st.kind(state) != st.PAD)).any():
        births(expr)
