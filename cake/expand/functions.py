"""Calls: the registry of operations and functions, and the functions that are pure arithmetic.

An operation registers its typing rule under its name with ``@function``; the rule returns the value of the call (None for a
statement) and emits what has an effect.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from math import isfinite

from cake.expand import expressions as ex
from cake.expand.context import KernelContext, RoleContext
from cake.expand.values import Function, Method, Namespace, Of, Scalar, Tile, TileVar, TrackerMethod, Value, describe
from cake.ir import surface as s
from cake.ir.dtypes import DTYPES, DTypeName
from cake.ir.expr import Apply, Axis, Const
from cake.ir.layout import TileType

Context = KernelContext | RoleContext
Rule = Callable[[Context, s.Call], Value | None]

FUNCTIONS: dict[str, Rule] = {}
NAMESPACES = ("tma", "wgmma", "tcgen05", "atomic", "fence", "pdl")

NOT_BUILT = {
    "pdl.wait": "programmatic dependent launch",
    "pdl.launch": "programmatic dependent launch",
    "tcgen05.mma": "tcgen05",
    "tcgen05.load": "tcgen05",
    "tcgen05.store": "tcgen05",
    "tcgen05.wait": "tcgen05",
}


def function(*names: str) -> Callable[[Rule], Rule]:
    """Register the typing rule of an operation or function under its dotted names."""

    def register(rule: Rule) -> Rule:
        for name in names:
            FUNCTIONS[name] = rule
        return rule

    return register


def load_rules() -> None:
    """Import the modules that register operations."""
    from cake.expand import blocks, matrix, moves, order, reductions  # noqa: F401


def is_function(name: str) -> bool:
    """True for the name of a function or of a type used as a cast."""
    return name in FUNCTIONS or name in NOT_BUILT or name in DTYPES


def known_functions() -> list[str]:
    """Every callable name, for suggestions."""
    return [*FUNCTIONS, *NOT_BUILT, *DTYPES]


def call(ctx: Context, e: s.Call) -> Value:
    """The value of a call used as an expression; T011 if it has none."""
    value = invoke(ctx, e)
    if value is None:
        ctx.refuse("T011", "this operation has no value", e.span, help="write it as a statement of its own")
    return value


def invoke(ctx: Context, e: s.Call) -> Value | None:
    """Run the rule of a call."""
    name = dotted(ctx, e.func)
    if name is None:
        callee = ex.typed(ctx, e.func)
        if isinstance(callee, Method):
            from cake.expand.pipelines import method

            if not isinstance(ctx, RoleContext):
                ctx.refuse("T011", "pipelines are used inside `do` blocks", e.span)
            return method(ctx, callee, e)
        if isinstance(callee, TrackerMethod) and isinstance(ctx, RoleContext):
            from cake.expand import trackers

            return trackers.method(ctx, callee, e)
        if isinstance(callee, Of) and isinstance(ctx, RoleContext):
            from cake.expand.clusters import peer

            return peer(ctx, callee.reference, e)
        ctx.refuse("T004", f"{describe(callee)} cannot be called", e.func.span)
    if name in DTYPES:
        return cast(ctx, e, DTYPES[name].name)
    rule = FUNCTIONS.get(name)
    if rule is None:
        if name in NOT_BUILT and isinstance(ctx, RoleContext):
            ctx.not_built(NOT_BUILT[name], e.span)
        near = difflib.get_close_matches(name, known_functions(), n=1)
        ctx.refuse(
            "T004", f"there is no operation `{name}`", e.func.span, help=f"did you mean `{near[0]}`?" if near else None
        )
    return rule(ctx, e)


def dotted(ctx: Context, e: s.Expr) -> str | None:
    """The dotted name of an operation; None if the callee is something else (a method)."""
    if isinstance(e, s.Name):
        if is_function(e.name):
            return e.name
        value = ex.lookup(ctx, e.name, e.span) if e.name in ctx.env or e.name in NAMESPACES else None
        if value is None:
            near = difflib.get_close_matches(e.name, known_functions(), n=1)
            ctx.refuse(
                "T004", f"there is no operation `{e.name}`", e.span, help=f"did you mean `{near[0]}`?" if near else None
            )
        return value.name if isinstance(value, Namespace | Function) else None
    if isinstance(e, s.Attribute):
        base = dotted_base(ctx, e.base)
        return f"{base}.{e.name}" if base else None
    return None


def dotted_base(ctx: Context, e: s.Expr) -> str | None:
    """The dotted prefix of an operation's name, where ``e`` is one."""
    if isinstance(e, s.Name):
        return e.name if e.name in NAMESPACES and e.name not in ctx.env else None
    if isinstance(e, s.Attribute):
        base = dotted_base(ctx, e.base)
        return f"{base}.{e.name}" if base else None
    return None


def arguments(ctx: Context, e: s.Call, required: tuple[str, ...], optional: tuple[str, ...] = ()) -> dict[str, s.Expr]:
    """Match positional and keyword arguments with names; T003 where they do not fit."""
    names = required + optional
    shown = f"{_show(e.func)}({', '.join([*required, *(f'{o}=' for o in optional)])})"
    if len(e.args) > len(names):
        ctx.refuse(
            "T003", f"`{_show(e.func)}` takes at most {len(names)} arguments, not {len(e.args)}", e.span, help=shown
        )
    bound = dict(zip(names, e.args, strict=False))
    for kw in e.kwargs:
        if kw.name not in names:
            near = difflib.get_close_matches(kw.name, names, n=1)
            ctx.refuse(
                "T003",
                f"`{_show(e.func)}` has no argument `{kw.name}`",
                kw.span,
                help=f"did you mean `{near[0]}=`?" if near else shown,
            )
        if kw.name in bound:
            ctx.refuse("T003", f"argument `{kw.name}` is given twice", kw.span, help=shown)
        bound[kw.name] = kw.value
    missing = [n for n in required if n not in bound]
    if missing:
        ctx.refuse("T003", f"`{_show(e.func)}` lacks `{missing[0]}`", e.span, help=shown)
    return bound


def _show(e: s.Expr) -> str:
    if isinstance(e, s.Name):
        return e.name
    return f"{_show(e.base)}.{e.name}" if isinstance(e, s.Attribute) else "…"


def cast(ctx: Context, e: s.Call, dtype: DTypeName) -> Value:
    """``f32(x)``: the same values in another type, in the same layout."""
    value = ex.typed(ctx, arguments(ctx, e, ("x",))["x"])
    if isinstance(value, Scalar):
        if value.literal and value.constant is not None:
            if isinstance(value.constant, float) and DTYPES[dtype].kind == "int" and not isfinite(value.constant):
                ctx.refuse("T023", f"{value.constant} does not fit in {dtype}", e.span)
            number = float(value.constant) if DTYPES[dtype].kind == "float" else int(value.constant)
            ex.check_range(ctx, Scalar(Const(value=number, dtype="i64"), literal=True), dtype, e.span)
            return Scalar(Const(value=number, dtype=dtype))
        return value if value.dtype == dtype else Scalar(Apply(op="cast", args=(value.expr,), dtype=dtype))
    tile = ex.as_tile(ctx, value, e.span)
    if tile.dtype == dtype:
        return tile
    kind = TileType(dtype=dtype, shape=tile.type.shape, layout=tile.type.layout)
    return Tile(Apply(op="cast", args=(tile.expr,), dtype=dtype), kind, tile.symbolic)


def _elementwise(name: str, arity: int) -> Rule:
    def rule(ctx: Context, e: s.Call) -> Value:
        bound = arguments(ctx, e, ("x", "y", "z")[:arity])
        return ex.elementwise(ctx, name, tuple(ex.typed(ctx, a) for a in bound.values()), e.span)

    return rule


for _name, _arity in (
    ("exp2", 1),
    ("log2", 1),
    ("exp", 1),
    ("log", 1),
    ("rsqrt", 1),
    ("sqrt", 1),
    ("tanh", 1),
    ("erf", 1),
    ("abs", 1),
    ("cdiv", 2),
):
    FUNCTIONS[_name] = _elementwise(_name, _arity)


@function("where")
def where(ctx: Context, e: s.Call) -> Value:
    """``where(cond, a, b)``; a condition that the facts decide picks its side now."""
    bound = arguments(ctx, e, ("cond", "a", "b"))
    cond = ex.typed(ctx, bound["cond"])
    if isinstance(cond, Scalar) and cond.dtype == "bool":
        decided = cond.constant if cond.literal else ctx.facts.prove(cond.expr)
        if decided is not None:
            return ex.typed(ctx, bound["a"] if decided else bound["b"])
    return ex.elementwise(ctx, "where", (cond, ex.typed(ctx, bound["a"]), ex.typed(ctx, bound["b"])), e.span)


# ---- index tiles ----------------------------------------------------------------------------------------------------


def _index(axis: str) -> Rule:
    def rule(ctx: Context, e: s.Call) -> Value:
        value = ex.typed(ctx, arguments(ctx, e, ("x",))["x"])
        if not isinstance(value, Tile | TileVar):
            ctx.refuse("T011", f"`{_show(e.func)}` takes a register tile, not {describe(value)}", e.span)
        rows, cols = value.type.shape[-2:]
        shape = {"row": (rows, 1), "col": (1, cols), "lin": (rows, cols)}[axis]
        kind = TileType(dtype="i32", shape=shape, layout=value.type.layout)
        return Tile(Axis(axis=axis), kind, symbolic=True)  # type: ignore[arg-type]

    return rule


FUNCTIONS["rows"] = _index("row")
FUNCTIONS["cols"] = _index("col")
FUNCTIONS["lin"] = _index("lin")
