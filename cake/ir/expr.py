"""Elementwise expressions of the expanded IR: uniform scalars and the elements of register tiles.

One family serves both. A *scalar* expression has no ``Reg`` or ``Axis`` leaf and is uniform over the instance. A *tile*
expression is evaluated once for each element of its statement's domain (the result's shape and layout): ``Axis`` is the
element's row, column or linear number, ``Reg`` an element of a register tile, where axes of size 1 broadcast. Every node
carries the dtype of its value, so no reader has to infer anything.

Integer ``//`` and ``%`` floor, as in Python. ``cdiv(a, b)`` is ``-(-a // b)``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Literal

from pydantic import Field

from cake.diagnostics import Record
from cake.ir.dtypes import DTypeName


class Const(Record):
    """A literal. Floats may be inf or -inf (JSON keeps them as strings)."""

    kind: Literal["const"] = "const"
    value: bool | int | float
    dtype: DTypeName


class Sym(Record):
    """A uniform scalar by name: a dim, scalar parameter, definition, loop variable, tile field, instance index or local.

    Names are unique within a kernel. Built-in names start with ``%``: ``%cta`` (rank of this CTA's cluster in the grid, or of
    the CTA where there is no cluster), ``%grid`` (number of those), ``%rank`` (rank of the CTA in its cluster).
    """

    kind: Literal["sym"] = "sym"
    name: str
    dtype: DTypeName = "i32"


class Axis(Record):
    """The index of the element being computed: its row, its column, or its number in ``lin`` order."""

    kind: Literal["axis"] = "axis"
    axis: Literal["row", "col", "lin"]
    dtype: DTypeName = "i32"


class Reg(Record):
    """A register tile, or a part of it with constant bounds. ``lead`` fixes every leading axis; ``rows`` and ``cols`` are
    half-open ranges, None for the whole axis."""

    kind: Literal["reg"] = "reg"
    name: str
    dtype: DTypeName
    lead: tuple[int, ...] = ()
    rows: tuple[int, int] | None = None
    cols: tuple[int, int] | None = None


class Apply(Record):
    """An elementwise operation (a row of ``cake.ir.elementwise``) on its arguments. Casts are the op ``cast``."""

    kind: Literal["apply"] = "apply"
    op: str
    args: tuple[Expr, ...]
    dtype: DTypeName


Expr = Annotated[Const | Sym | Axis | Reg | Apply, Field(discriminator="kind")]
Apply.model_rebuild()


def integer(value: int) -> Const:
    """An i32 literal."""
    return Const(value=value, dtype="i32")


def boolean(value: bool) -> Const:
    """A bool literal."""
    return Const(value=value, dtype="bool")


def children(e: Expr) -> tuple[Expr, ...]:
    """The direct operands."""
    return e.args if isinstance(e, Apply) else ()


def walk(e: Expr) -> Iterator[Expr]:
    """Every node, operands after their operation."""
    yield e
    for child in children(e):
        yield from walk(child)


def rewrite(e: Expr, leaf: Callable[[Expr], Expr | None]) -> Expr:
    """Replace nodes from the top: where ``leaf`` returns an expression it stands for the whole node."""
    new = leaf(e)
    if new is not None:
        return new
    if isinstance(e, Apply):
        args = tuple(rewrite(a, leaf) for a in e.args)
        return e if args == e.args else Apply(op=e.op, args=args, dtype=e.dtype)
    return e


def substitute(e: Expr, values: dict[str, Expr]) -> Expr:
    """Replace symbols by expressions."""
    return rewrite(e, lambda n: values.get(n.name) if isinstance(n, Sym) else None)


def symbols(e: Expr) -> set[str]:
    """Names of the scalar symbols that occur."""
    return {n.name for n in walk(e) if isinstance(n, Sym)}


def registers(e: Expr) -> set[str]:
    """Names of the register tiles that occur."""
    return {n.name for n in walk(e) if isinstance(n, Reg)}


def is_scalar(e: Expr) -> bool:
    """True if the value is uniform: no tile leaf occurs."""
    return not any(isinstance(n, Reg | Axis) for n in walk(e))
