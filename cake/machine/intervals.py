"""Integer tile expressions and predicates without arrays: bounds over all elements of a domain, and sums of a scalar and a part
that never changes.

Most indices are a scalar plus rows or columns, and most predicates hold for a whole tile. What can be said of those takes a few
integers; everything else is left to ``cake.machine.registers``, element by element.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from cake.ir.evaluate import Scalar, compile_expr
from cake.ir.expr import Apply, Axis, Expr, Reg, is_scalar, walk
from cake.ir.expr import Sym as Symbol
from cake.ir.layout import TileType
from cake.machine import owners

if TYPE_CHECKING:
    from cake.machine.instance import Instance

Bounds = tuple[int, int]
"""The least and the greatest value; of a predicate, 0 and 1 stand for false and true."""

BoundsFunction = Callable[["Instance"], Bounds | None]
"""None: not known."""

LIMITS = {"i32": 31, "i64": 63, "bool": 1}


def bounds(expr: Expr, domain: TileType | None, warps: int) -> BoundsFunction | None:
    """Bounds of an expression over all elements of ``domain``; None for one of which nothing can be said at any time. All its
    scalars are evaluated, as for the elements."""
    if expr.dtype not in LIMITS:
        return None
    if is_scalar(expr):
        scalar = compile_expr(expr)

        def one(inst: Instance) -> Bounds:
            value = int(scalar(inst.env))
            return value, value

        return one
    if isinstance(expr, Axis):
        if domain is None:
            return None
        if expr.axis == "lin":
            numbers = owners.lin(domain.rows, domain.cols, domain.layout, warps)
            least, most = int(numbers.min()), int(numbers.max())
        else:
            least, most = 0, (domain.rows if expr.axis == "row" else domain.cols) - 1
        return lambda inst: (least, most)
    if not isinstance(expr, Apply) or expr.op not in _RULES:
        return None
    parts = [bounds(a, domain, warps) for a in expr.args]
    if any(p is None for p in parts):
        return None
    rule, limit = _RULES[expr.op], 1 << LIMITS[expr.dtype]

    def run(inst: Instance) -> Bounds | None:
        found = [p(inst) for p in parts]  # type: ignore[misc]
        if any(f is None for f in found):
            return None
        result = rule(*found)
        return result if result is not None and -limit <= result[0] and result[1] < limit else None

    return run


def _times(a: Bounds, b: Bounds) -> Bounds:
    corners = [p * q for p in a for q in b]
    return min(corners), max(corners)


def _over(a: Bounds, b: Bounds) -> Bounds | None:
    return (a[0] // b[0], a[1] // b[0]) if b[0] == b[1] > 0 else None


def _modulo(a: Bounds, b: Bounds) -> Bounds | None:
    if not b[0] == b[1] > 0:
        return None
    return (a[0] % b[0], a[1] % b[0]) if a[0] // b[0] == a[1] // b[0] else (0, b[0] - 1)


def _compared(always: bool, never: bool) -> Bounds:
    return int(always), int(not never)


_RULES: dict[str, Callable[..., Bounds | None]] = {
    "+": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "-": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "*": _times,
    "//": _over,
    "%": _modulo,
    "min": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "max": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "<": lambda a, b: _compared(a[1] < b[0], a[0] >= b[1]),
    "<=": lambda a, b: _compared(a[1] <= b[0], a[0] > b[1]),
    ">": lambda a, b: _compared(a[0] > b[1], a[1] <= b[0]),
    ">=": lambda a, b: _compared(a[0] >= b[1], a[1] < b[0]),
    "and": lambda a, b: (a[0] & b[0], a[1] & b[1]),
    "or": lambda a, b: (a[0] | b[0], a[1] | b[1]),
    "not": lambda a: (1 - a[1], 1 - a[0]),
}


def shifted(expr: Expr) -> tuple[Scalar | None, Expr | None] | None:
    """An index as the sum of a scalar and a part without symbols, either of which may be missing; None for other ones."""
    split = _split(expr)
    if split is None:
        return None
    scalar, fixed = split
    return (None if scalar is None else compile_expr(scalar)), fixed


def _split(expr: Expr) -> tuple[Expr | None, Expr | None] | None:
    if is_scalar(expr):
        return expr, None
    if not any(isinstance(n, Reg | Symbol) for n in walk(expr)):
        return None, expr
    if not isinstance(expr, Apply) or expr.op != "+":
        return None
    parts = [_split(a) for a in expr.args]
    if any(p is None for p in parts):
        return None
    (s, f), (t, g) = parts  # type: ignore[misc]
    return _sum(s, t, expr), _sum(f, g, expr)


def _sum(a: Expr | None, b: Expr | None, whole: Apply) -> Expr | None:
    if a is None or b is None:
        return a or b
    return Apply(op="+", args=(a, b), dtype=whole.dtype)
