"""Typing of expressions: surface expressions to values, with implicit reads made explicit statements.

Elementwise operations stay one expression tree. Whatever touches memory or crosses threads (loads, reductions, ldmatrix)
becomes a statement of its own into a derived tile, and so does a smaller tile before it is broadcast, so that nothing is
computed once an element that could be computed once a row.
"""

from __future__ import annotations

import difflib
from dataclasses import replace

from cake.diagnostics import Span
from cake.expand.context import KernelContext, RoleContext
from cake.expand.values import (
    Function,
    Handle,
    Method,
    Namespace,
    Of,
    Poison,
    Record,
    Reference,
    RingName,
    Scalar,
    Storage,
    Tile,
    TileVar,
    Tracker,
    TrackerMethod,
    Unassigned,
    Value,
    describe,
)
from cake.ir import expanded as x
from cake.ir import surface as s
from cake.ir.dtypes import DTYPES, DTypeName
from cake.ir.elementwise import ELEMENTWISE
from cake.ir.expr import Apply, Const, Expr, Reg, boolean, integer, is_scalar
from cake.ir.layout import Layout, TileType

Context = KernelContext | RoleContext

FAR = 1 << 20
"""Later releases of a stage that was given back before a loop: there may be any number."""

COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")


def kernel_of(ctx: Context) -> KernelContext:
    """The kernel a context belongs to."""
    return ctx.kernel if isinstance(ctx, RoleContext) else ctx


def typed(ctx: Context, e: s.Expr) -> Value:
    """The value of an expression; raises Abort after recording a diagnostic."""
    match e:
        case s.Number():
            if isinstance(e.value, int) and e.value >= 1 << 63:
                ctx.refuse("T023", f"{e.value} does not fit in any integer type", e.span)
            return Scalar(Const(value=e.value, dtype="i32" if isinstance(e.value, int) else "f32"), literal=True)
        case s.Bool():
            return Scalar(boolean(e.value), literal=True)
        case s.Name():
            return lookup(ctx, e.name, e.span)
        case s.Unary():
            return unary(ctx, e.op, typed(ctx, e.operand), e.span)
        case s.Binary():
            left = typed(ctx, e.left)
            if e.op in ("and", "or") and isinstance(left, Scalar) and left.constant is (e.op == "or"):
                return left
            return elementwise(ctx, e.op, (left, typed(ctx, e.right)), e.span)
        case s.Attribute():
            return attribute(ctx, e)
        case s.Index():
            from cake.expand.references import subscript

            return subscript(ctx, typed(ctx, e.base), e)
        case s.Call():
            from cake.expand.functions import call

            return call(ctx, e)


def lookup(ctx: Context, name: str, span: Span) -> Value:
    """The value of a name, or a T001 with the nearest known one."""
    from cake.expand.functions import NAMESPACES, is_function

    value = ctx.env.get(name)
    if value is not None:
        if isinstance(value, Poison):
            from cake.expand.context import Abort

            raise Abort
        if isinstance(value, Unassigned):
            ctx.refuse(
                "T010", f"`{name}` has no value on some path to here", span, help="assign it before the branch or loop"
            )
        if isinstance(value, Reference) and value.handle is not None:
            check_held(ctx, value.handle, span)
        return value
    if name == "inf":
        return Scalar(Const(value=float("inf"), dtype="f32"), literal=True)
    if name in NAMESPACES:
        return Namespace(name)
    if is_function(name):
        return Function(name)
    near = difflib.get_close_matches(name, [*ctx.env, *NAMESPACES], n=1)
    ctx.refuse("T001", f"unknown name `{name}`", span, help=f"did you mean `{near[0]}`?" if near else None)


def attribute(ctx: Context, e: s.Attribute) -> Value:
    """``base.name``: a field of a stage or tile, the transpose of a reference, a method, or a dotted operation."""
    base = typed(ctx, e.base)
    kernel = kernel_of(ctx)
    match base:
        case Namespace():
            return Function(f"{base.name}.{e.name}")
        case Function():
            return Function(f"{base.name}.{e.name}")
        case RingName():
            return Method(base.name, e.name)
        case Tracker():
            return TrackerMethod(base, e.name)
        case Record():
            if e.name in base.fields:
                return Scalar(base.fields[e.name])
            _unknown(ctx, "tile", e.name, list(base.fields), e.span)
        case Handle():
            ring = kernel.rings[base.ring]
            if e.name not in ring.fields:
                _unknown(ctx, f"stage of `{ring.name}`", e.name, list(ring.fields), e.span)
            from cake.expand.pipelines import field_cursor

            info = kernel.buffers[ring.fields[e.name]]
            check_held(ctx, base, e.span, info.linger)
            view = whole(kernel.storages[info.name], base)
            if info.linger and base.slot.cursor is not None:
                cursor = field_cursor(base.slot.cursor, ring, info.slots)
                return replace(view, slot=x.Slot(cursor=cursor, back=base.slot.back))
            return view
        case Reference() if e.name == "of":
            return Of(base)
        case Storage() | Reference() if e.name == "T":
            return (whole(base) if isinstance(base, Storage) else base).transpose()
        case Tile() | TileVar() if e.name == "T":
            ctx.refuse(
                "T007",
                "a register tile can be transposed only as the B operand of `mma` and by `stmatrix(ref.T, x)`",
                e.span,
                help="go through shared memory",
            )
    ctx.refuse("T014", f"{describe(base)} has no `{e.name}`", e.span)


def check_held(ctx: Context, handle: Handle, span: Span, linger: int = 0) -> None:
    """A stage is used between its wait and its release (D212), or a lingering field of it until ``linger`` more are given
    back."""
    if not isinstance(ctx, RoleContext) or ctx.state.released.get(handle.root, -1) < linger:
        return
    later = ctx.state.released[handle.root]
    if linger:
        ctx.refuse(
            "D212",
            f"this field of `{handle.name}` lingers until {linger} more stages of `{handle.ring}` are given back",
            span,
            facts=(
                f"up to {later} have been given back since" if later < FAR else "it was given back before the loop",
            ),
            help="read it earlier, or let it linger longer",
        )
    ctx.refuse(
        "D212",
        f"stage `{handle.name}` of `{handle.ring}` is used after it was given back",
        span,
        help="move the release after the last use",
    )


def _unknown(ctx: Context, what: str, name: str, known: list[str], span: Span) -> None:
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean `{near[0]}`?" if near else f"it has {', '.join(f'`{k}`' for k in known) or 'no fields'}"
    ctx.refuse("T014", f"the {what} has no field `{name}`", span, help=hint)


def whole(storage: Storage, handle: Handle | None = None) -> Reference:
    """The reference to all of a storage; axes of unknown extent get size 0 and must be subscripted before use."""
    subs = tuple(x.Range(start=integer(0), size=int(n.value) if isinstance(n, Const) else 0) for n in storage.extents)
    return Reference(storage, subs, slot=handle.slot if handle else None, handle=handle)


# ---- scalars and tiles ----------------------------------------------------------------------------------------------


def scalar(ctx: Context, e: s.Expr, what: str = "here") -> Scalar:
    """A uniform scalar, or T011."""
    value = typed(ctx, e)
    if isinstance(value, Scalar):
        return value
    ctx.refuse("T011", f"a uniform scalar is needed {what}, not {describe(value)}", e.span)


def int_expr(ctx: Context, e: s.Expr, what: str = "here") -> Expr:
    """A uniform integer expression, folded if it is constant."""
    value = scalar(ctx, e, what)
    if DTYPES[value.dtype].kind != "int":
        ctx.refuse("T005", f"an integer is needed {what}, not {value.dtype}", e.span)
    check_range(ctx, value, value.dtype, e.span)
    return fold(ctx, value.expr)


def check_range(ctx: Context, value: Scalar | Tile, dtype: str, span: Span) -> None:
    """A literal integer has a value in the type it takes (T023)."""
    number = value.constant if isinstance(value, Scalar) and value.literal else None
    kind = DTYPES[dtype]
    if not isinstance(number, int) or isinstance(number, bool) or kind.kind != "int":
        return
    low, high = (0, 1 << kind.bits) if dtype == "u8" else (-1 << (kind.bits - 1), 1 << (kind.bits - 1))
    if not low <= number < high:
        ctx.refuse(
            "T023",
            f"{number} does not fit in {dtype}",
            span,
            help="i64(…) is wider" if dtype != "i64" else None,
        )


def fold(ctx: Context, e: Expr) -> Expr:
    """The constant that an integer expression reduces to, else the expression as written (its symbols stay readable)."""
    known = ctx.facts.constant(e)
    return e if known is None else integer(known)


def condition(ctx: Context, e: s.Expr) -> Expr:
    """A uniform condition, folded where the facts decide it."""
    value = scalar(ctx, e, "as a condition")
    if value.dtype != "bool":
        ctx.refuse("T005", f"a condition must be bool, not {value.dtype}", e.span, help="compare it with something")
    decided = ctx.facts.prove(value.expr)
    return value.expr if decided is None else boolean(decided)


def constant(ctx: Context, e: s.Expr, what: str) -> bool | int | float:
    """A compile-time value, or T008."""
    value = scalar(ctx, e, what)
    expr = ctx.facts.simplify(value.expr)
    if isinstance(expr, Const):
        return expr.value
    ctx.refuse(
        "T008",
        f"{what} must be known at compile time",
        e.span,
        help="make it a `const`, or an expression of constants",
    )


def constant_int(ctx: Context, e: s.Expr, what: str, low: int = 1) -> int:
    """A compile-time integer of at least ``low``."""
    value = constant(ctx, e, what)
    if isinstance(value, bool) or not isinstance(value, int):
        ctx.refuse("T008", f"{what} must be an integer, not {value}", e.span)
    if value < low:
        ctx.refuse("T008", f"{what} must be at least {low}, not {value}", e.span)
    return value


def as_tile(ctx: Context, value: Value, span: Span) -> Tile:
    """A register tile to compute with; reads a whole tile variable."""
    if isinstance(value, TileVar):
        if len(value.lead) < len(value.type.lead):
            ctx.refuse("T011", f"`{value.name}` has leading axes: subscript them with constants", span)
        kind = value.type
        return Tile(value.reg, TileType(dtype=kind.dtype, shape=kind.shape[-2:], layout=kind.layout))
    if isinstance(value, Tile):
        return value
    ctx.refuse("T011", f"a register tile or scalar is needed here, not {describe(value)}", span, help=_advice(value))


def _advice(value: Value) -> str | None:
    if isinstance(value, Reference | Storage):
        return "memory is read by `load(ref[index tiles])` or `ldmatrix(ref)`"
    return None


def unary(ctx: Context, op: str, value: Value, span: Span) -> Value:
    """Negation and ``not``; folds literals."""
    if isinstance(value, Scalar) and value.literal and value.constant is not None:
        if op == "neg" and not isinstance(value.constant, bool):
            return Scalar(Const(value=-value.constant, dtype=value.expr.dtype), literal=True)
        if op == "not" and isinstance(value.constant, bool):
            return Scalar(boolean(not value.constant), literal=True)
    return elementwise(ctx, op, (value,), span)


def elementwise(ctx: Context, op: str, values: tuple[Value, ...], span: Span) -> Value:
    """Apply a row of the elementwise table with broadcasting and literal adaptation."""
    operands = [v if isinstance(v, Scalar) else as_tile(ctx, v, span) for v in values]
    row = ELEMENTWISE[op]
    if row.operands not in ("any", "bool"):
        for o in operands:
            if isinstance(o, Scalar) and o.literal and isinstance(o.constant, bool):
                ctx.refuse("T005", f"`{op}` takes numbers, not {o.constant}", span)
    if all(isinstance(o, Scalar) and o.literal for o in operands):
        folded = _fold(op, [o.constant for o in operands if isinstance(o, Scalar)])
        if folded is not None:
            return folded
    if op in ("//", "%", "cdiv") and isinstance(operands[1], Scalar) and operands[1].constant == 0:
        ctx.refuse("T023", f"`{op}` by zero", span)
    data = operands[1:] if op == "where" else operands
    dtype = _common_dtype(ctx, op, data, span)
    exprs = [_adapt(o, dtype) if not (op == "where" and i == 0) else o for i, o in enumerate(operands)]
    if op == "where" and exprs[0].dtype != "bool":
        ctx.refuse("T005", f"the condition of `where` must be bool, not {exprs[0].dtype}", span)
    kind = DTYPES[dtype].kind
    if row.operands in ("float", "int", "bool") and kind != row.operands:
        ways = {"/": "use `//` on integers, or cast with f32(…)", "//": "use `/` on floats", "%": "cast to an integer"}
        ctx.refuse("T005", f"`{op}` takes {row.operands} operands, not {dtype}", span, help=ways.get(op))
    if row.operands == "number" and kind == "bool":
        ctx.refuse("T005", f"`{op}` takes numbers, not bool", span)
    out: DTypeName = "bool" if row.result == "bool" else dtype
    tiles = [o for o in exprs if isinstance(o, Tile)]
    if not tiles:
        expr = Apply(op=op, args=tuple(o.expr for o in exprs), dtype=out)
        return Scalar(expr)
    domain = broadcast(ctx, tiles, span)
    args = []
    for o in exprs:
        if isinstance(o, Tile) and o.type.shape != domain.shape and not o.symbolic and not isinstance(o.expr, Reg):
            o = materialise(ctx, o, span)
        args.append(o.expr)
    symbolic = all(o.symbolic for o in tiles) and all(is_scalar(o.expr) or isinstance(o, Tile) for o in exprs)
    kind_ = TileType(dtype=out, shape=domain.shape, layout=domain.layout)
    return Tile(Apply(op=op, args=tuple(args), dtype=out), kind_, symbolic)


def _fold(op: str, values: list[bool | int | float | None]) -> Scalar | None:
    import math

    a = values[0]
    b = values[1] if len(values) > 1 else None
    c = values[2] if len(values) > 2 else None
    try:
        result: bool | int | float | None
        match op, a, b, c:
            case "where", bool(), _, _:
                result = b if a else c
            case ("and", bool(), bool(), None):
                result = a and b
            case ("or", bool(), bool(), None):
                result = a or b
            case (("==" | "!=" | "<" | "<=" | ">" | ">="), int() | float(), int() | float(), None):
                result = {"==": a == b, "!=": a != b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[op]
            case (("+" | "-" | "*" | "min" | "max"), int() | float(), int() | float(), None):
                result = {"+": a + b, "-": a - b, "*": a * b, "min": min(a, b), "max": max(a, b)}[op]
            case ("/", int() | float(), int() | float(), None):
                result = a / b
            case ("//", int(), int(), None):
                result = a // b
            case ("%", int(), int(), None):
                result = a % b
            case ("cdiv", int(), int(), None):
                result = -(-a // b)
            case ("abs", int() | float(), None, None):
                result = abs(a)
            case ("log2", int() | float(), None, None):
                result = math.log2(a)
            case ("exp2", int() | float(), None, None):
                result = 2.0**a
            case ("sqrt", int() | float(), None, None):
                result = math.sqrt(a)
            case _:
                result = None
    except (ZeroDivisionError, OverflowError, ValueError):
        return None
    if result is None:
        return None
    dtype: DTypeName = "bool" if isinstance(result, bool) else "i32" if isinstance(result, int) else "f32"
    return Scalar(Const(value=result, dtype=dtype), literal=True)


def _common_dtype(ctx: Context, op: str, operands: list[Scalar | Tile], span: Span) -> DTypeName:
    firm = {o.dtype for o in operands if not (isinstance(o, Scalar) and o.literal)}
    if len(firm) > 1:
        a, b = sorted(firm)
        ctx.refuse(
            "T005",
            f"`{op}` on {a} and {b}: nothing but literals converts by itself",
            span,
            help=f"cast one side, for example {'f32' if 'f32' in firm else a}(…)",
        )
    if firm:
        dtype = firm.pop()
        for o in operands:
            if isinstance(o, Scalar) and o.literal and not _fits(o.constant, dtype):
                ctx.refuse(
                    "T005",
                    f"the literal {o.constant} is not {'an' if dtype[0] in 'aei' else 'a'} {dtype}",
                    span,
                    help="write the literal, or cast the other side, so that both have one type",
                )
            check_range(ctx, o, dtype, span)
        return dtype
    kinds = {o.dtype for o in operands}
    return "f32" if "f32" in kinds else kinds.pop()


def _fits(value: bool | int | float | None, dtype: str) -> bool:
    kind = DTYPES[dtype].kind
    if isinstance(value, bool):
        return kind == "bool"
    if isinstance(value, int):
        return kind in ("int", "float")
    return kind == "float"


def _adapt(o: Scalar | Tile, dtype: DTypeName) -> Scalar | Tile:
    if isinstance(o, Scalar) and o.literal and o.dtype != dtype and o.constant is not None:
        value = float(o.constant) if DTYPES[dtype].kind == "float" else o.constant
        return Scalar(Const(value=value, dtype=dtype))
    return o


def adapt(ctx: Context, value: Scalar, dtype: DTypeName, span: Span) -> Expr:
    """The scalar as an expression of ``dtype``: literals adapt, everything else must have it already."""
    check_range(ctx, value, dtype, span)
    if value.literal and _fits(value.constant, dtype):
        return _adapt(value, dtype).expr
    if value.dtype != dtype:
        ctx.refuse("T005", f"{value.dtype} where {dtype} is needed", span, help=f"cast with {dtype}(…)")
    return value.expr


def join_layout(ctx: Context, a: TileType, b: TileType, span: Span) -> Layout:
    """The layout of an elementwise operation on two tiles; a [1, 1] spread tile goes with every vector width."""
    if a.layout == b.layout:
        return a.layout
    if a.layout.kind == b.layout.kind == "spread":
        if a.shape[-2:] == (1, 1):
            return b.layout
        if b.shape[-2:] == (1, 1):
            return a.layout
    ctx.refuse(
        "T007",
        f"operands have different register layouts: {a.layout} and {b.layout}",
        span,
        help="a change of layout goes through shared memory",
    )


def broadcast(ctx: Context, tiles: list[Tile], span: Span) -> TileType:
    """Shape and layout of an elementwise result (NumPy rules on the two axes)."""
    first = tiles[0].type
    shape, layout, whole_type = first.shape, first.layout, first
    for t in tiles[1:]:
        layout = join_layout(ctx, whole_type, t.type, span)
        merged = []
        for m, n in zip(shape, t.type.shape, strict=True):
            if m != n and 1 not in (m, n):
                ctx.refuse(
                    "T006",
                    f"shapes [{shape[0]}, {shape[1]}] and [{t.type.shape[0]}, {t.type.shape[1]}] do not broadcast",
                    span,
                    help="axes must be equal or 1",
                )
            merged.append(max(m, n))
        shape = (merged[0], merged[1])
        whole_type = TileType(dtype=first.dtype, shape=shape, layout=layout)
    return whole_type


def materialise(ctx: Context, tile: Tile, span: Span, hint: str = "row") -> Tile:
    """Compute a tile into a derived register tile."""
    assert isinstance(ctx, RoleContext)
    name = ctx.fresh(hint)
    from cake.expand.emission import emit_op

    ctx.tiles[name] = tile.type
    reg = Reg(name=name, dtype=tile.type.dtype)
    emit_op(
        ctx,
        x.Op(op="assign", operands={"dst": reg, "value": tile.expr}, type=tile.type, reason="broadcast", span=span),
    )
    return replace(tile, expr=reg, symbolic=False)
