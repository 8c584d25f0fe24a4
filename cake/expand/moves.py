"""Element moves: ``load``, ``store`` and atomics with index tiles. Bounds are proved, access widths too."""

from __future__ import annotations

from dataclasses import replace

from cake.diagnostics import Span
from cake.expand import expressions as ex
from cake.expand.context import RoleContext
from cake.expand.emission import emit_op
from cake.expand.functions import Context, arguments, function
from cake.expand.values import Reference, Scalar, Storage, Tile, Value, describe
from cake.facts import Facts, show
from cake.ir import expanded as x
from cake.ir import surface as s
from cake.ir.dtypes import DTYPES
from cake.ir.expr import Apply, Axis, Const, Expr, Reg, Sym, integer, rewrite, walk
from cake.ir.layout import Layout, TileType, register_map

ONE = TileType(dtype="f32", shape=(1, 1), layout=Layout(kind="spread", vector=1))


def role_of(ctx: Context, e: s.Call) -> RoleContext:
    """The role context, or a refusal: the operation belongs in a `do` block."""
    if isinstance(ctx, RoleContext):
        return ctx
    ctx.refuse("T011", "this operation belongs in a `do` block", e.span)


def reference(ctx: Context, e: s.Expr, what: str, peers: bool = False) -> Reference:
    """A reference (a bare tensor or buffer stands for all of it). ``peers``: it may lie in another CTA of the cluster."""
    value = ex.typed(ctx, e)
    if isinstance(value, Storage):
        value = ex.whole(value)
    if not isinstance(value, Reference):
        ctx.refuse("T011", f"{what} must be a tensor or buffer reference, not {describe(value)}", e.span)
    if value.peer is not None and not peers:
        ctx.refuse(
            "T011",
            f"{what} cannot lie in another CTA's shared memory: only `load` reads there",
            e.span,
            help="leave `.of(…)` out, or load it",
        )
    return value


def predicate(ctx: RoleContext, e: s.Expr | None) -> tuple[Expr | None, TileType | None]:
    """The condition of ``where=`` and its domain (None for a uniform one); a decided condition is dropped."""
    if e is None:
        return None, None
    value = ex.typed(ctx, e)
    if isinstance(value, Scalar):
        cond = ex.condition(ctx, e)
        return (None if cond == Const(value=True, dtype="bool") else cond), None
    tile = ex.as_tile(ctx, value, e.span)
    if tile.dtype != "bool":
        ctx.refuse("T005", f"`where=` must be bool, not {tile.dtype}", e.span)
    return tile.expr, tile.type


@function("load")
def load(ctx: Context, e: s.Call) -> Value:
    """``load(ref[, where=, other=, l2=])``."""
    bound = arguments(ctx, e, ("ref",), ("where", "other", "l2"))
    ctx = role_of(ctx, e)
    ref = reference(ctx, bound["ref"], "the source of `load`", peers=True)
    if ref.transposed:
        ctx.refuse("T013", "element moves index the memory as it is: swap the subscripts instead of `.T`", e.span)
    if any(isinstance(sub, x.Range) for sub in ref.subs):
        ctx.refuse(
            "T007",
            "`load` of a block has no register layout",
            e.span,
            help="subscript with index tiles, `load(ref[rows(x), cols(x)])`, or use `ldmatrix(ref)`",
        )
    check_filled(ctx, ref, e.span)
    cond, cond_domain = predicate(ctx, bound.get("where"))
    dtype = ref.storage.dtype
    other = ex.adapt(ctx, ex.scalar(ctx, bound["other"]), dtype, bound["other"].span) if "other" in bound else None
    if ref.domain is None:
        if cond_domain is not None:
            ctx.refuse(
                "T006",
                "one element is loaded under one condition, not under a tile of them",
                e.span,
                help="use index tiles",
            )
        return load_scalar(ctx, ref, cond, other, e.span)
    domain = TileType(dtype=dtype, shape=ref.domain.shape, layout=ref.domain.layout)
    if cond_domain is not None:
        joined = ex.broadcast(ctx, [Tile(Axis(axis="row"), domain), Tile(Axis(axis="row"), cond_domain)], e.span)
        if joined.shape != domain.shape:
            ctx.refuse("T006", "the predicate has more elements than the load", e.span)
    check_bounds(ctx, ref, cond, domain, e.span)
    note_generic(ctx, ref)
    name = ctx.fresh("load")
    ctx.tiles[name] = domain
    reg = Reg(name=name, dtype=dtype)
    operands: dict[str, x.Ref | Expr] = {"dst": reg, "src": ref.ref}
    if cond is not None:
        operands["where"] = cond
        operands["other"] = other if other is not None else ex.adapt(ctx, ZERO, dtype, e.span)
    attrs = {"vector": vector(ctx, ref, cond, domain, e.span), **hint(ctx, bound.get("l2"))}
    emit_op(ctx, x.Op(op="load", operands=operands, attrs=attrs, type=domain, span=e.span))
    return Tile(reg, domain)


ZERO = Scalar(integer(0), literal=True)


def hint(ctx: Context, e: s.Expr | None) -> dict[str, x.Attribute]:
    if e is None:
        return {}
    names = ("evict_first", "evict_last", "evict_normal")
    if isinstance(e, s.Name) and e.name in names:
        return {"l2": e.name}
    ctx.refuse("T003", "an L2 hint is one of " + ", ".join(names), e.span)


def check_points(ctx: RoleContext, ref: Reference, span: Span) -> None:
    """The scalar subscripts of a block of shared memory are inside their axes (O503); slices are checked where they are written."""
    if ref.storage.space != "shared":
        return
    for axis, (sub, extent) in enumerate(zip(ref.subs, ref.storage.extents, strict=True)):
        if not isinstance(sub, x.Point):
            continue
        for claim in (_cmp("<=", integer(0), sub.at), _cmp("<", sub.at, extent)):
            if ctx.facts.prove(claim) is not True:
                ctx.refuse(
                    "O503",
                    f"index {show(sub.at)} may leave axis {axis} of `{ref.storage.name}`, which has {show(extent)} elements",
                    span,
                    facts=ctx.facts.explain(claim),
                )


def check_filled(ctx: RoleContext, ref: Reference, span: Span) -> None:
    """What is read has been filled: a stage inside its own fill has no contents yet (D201)."""
    if ref.handle is not None and ref.handle.role == "fill":
        ctx.refuse(
            "D201", "the stage is being filled and has no contents yet", span, help="wait for it in the consumer"
        )


def note_generic(ctx: RoleContext, ref: Reference) -> None:
    """Remember that this role touches a stage through the generic proxy: its release needs an async-proxy fence."""
    if ref.handle is not None:
        ctx.generic |= {ref.handle.ring, ref.storage.name}


def load_scalar(ctx: RoleContext, ref: Reference, cond: Expr | None, other: Expr | None, span: Span) -> Scalar:
    """One element as a uniform scalar, with what the assumptions say of its value."""
    check_bounds(ctx, ref, cond, None, span)
    note_generic(ctx, ref)
    dtype = ref.storage.dtype
    name = ctx.hint or ctx.fresh("load")
    ctx.hint = None
    if name in ctx.env or "." in name:
        ctx.facts.forget(name)
    symbol = Sym(name=name, dtype=dtype)
    operands: dict[str, x.Ref | Expr] = {"dst": symbol, "src": ref.ref}
    if cond is not None:
        operands["where"] = cond
        operands["other"] = other if other is not None else ex.adapt(ctx, ZERO, dtype, span)
    ctx.emit(x.Op(op="load_scalar", operands=operands, span=span))
    if DTYPES[dtype].kind == "int" and cond is None:
        assume_value(ctx, ref, symbol)
    elif DTYPES[dtype].kind == "int":
        assume_range(ctx, ref, symbol, other)
    return Scalar(symbol)


def _cmp(op: str, a: Expr, b: Expr) -> Expr:
    return Apply(op=op, args=(a, b), dtype="bool")


def assume_range(ctx: RoleContext, ref: Reference, symbol: Sym, other: Expr | None) -> None:
    """``within``: the value's range, widened to the replacement of a masked load."""
    for a in ctx.kernel.assumes:
        if a.form != "within" or a.tensor != ref.storage.name:
            continue
        low, high = _cmp("<=", a.args[0], symbol), _cmp("<", symbol, a.args[1])
        if other is None or ctx.facts.prove(_cmp("<=", a.args[0], other)):
            ctx.facts.assume(low)
        if other is None or ctx.facts.prove(_cmp("<", other, a.args[1])):
            ctx.facts.assume(high)


def assume_value(ctx: RoleContext, ref: Reference, symbol: Sym) -> None:
    """``within``, ``increasing`` and element equalities: relations to bounds and to earlier loads of the same tensor."""
    assume_range(ctx, ref, symbol, None)
    if len(ref.subs) != 1 or not isinstance(ref.subs[0], x.Point):
        return
    at = ref.subs[0].at
    name = ref.storage.name
    increasing = any(a.form == "increasing" and a.tensor == name for a in ctx.kernel.assumes)
    fixed = [(a.args[0], a.args[1]) for a in ctx.kernel.assumes if a.form == "element" and a.tensor == name]
    earlier = ctx.loads.setdefault(name, [])
    for index, value in [*fixed, *earlier]:
        if ctx.facts.equal(index, at):
            ctx.facts.assume(_cmp("==", symbol, value))
        elif increasing and ctx.facts.prove(_cmp("<=", index, at)):
            ctx.facts.assume(_cmp("<=", value, symbol))
        elif increasing and ctx.facts.prove(_cmp("<=", at, index)):
            ctx.facts.assume(_cmp("<=", symbol, value))
    earlier.append((at, symbol))


def element_facts(ctx: RoleContext, domain: TileType | None, cond: Expr | None) -> Facts:
    """The facts about one element of a domain under a predicate."""
    facts = ctx.facts.copy()
    if domain is not None:
        facts.declare("%row", 0, domain.rows)
        facts.declare("%col", 0, domain.cols)
        facts.declare("%lin", 0, domain.rows * domain.cols)
    if cond is not None:
        facts.assume(cond)
    return facts


def check_bounds(ctx: RoleContext, ref: Reference, cond: Expr | None, domain: TileType | None, span: Span) -> None:
    """Every subscript is inside its axis for every element where the predicate holds (O503)."""
    facts = element_facts(ctx, domain, cond)
    for axis, (sub, extent) in enumerate(zip(ref.subs, ref.storage.extents, strict=True)):
        index: Expr
        last: Expr
        if isinstance(sub, x.Range):
            index, last = sub.start, Apply(op="+", args=(sub.start, integer(sub.size - 1)), dtype="i32")
        else:
            index = last = sub.at if isinstance(sub, x.Point) else sub.index
        for claim, side in ((_cmp("<=", integer(0), index), "below"), (_cmp("<", last, extent), "past")):
            if facts.prove(claim) is not True:
                mask = f"{show(last)} < {show(extent)}" if side == "past" else f"{show(index)} >= 0"
                ctx.refuse(
                    "O503",
                    f"index {show(index)} may lie {side} axis {axis} of `{ref.storage.name}` (extent {show(extent)})",
                    span,
                    facts=facts.explain(claim),
                    help=f"guard it with `where={mask}`, or state what makes it true in `where` or `assume`",
                )


def flat(ref: Reference) -> Expr:
    """The element offset of a reference from its storage's start (row-major)."""
    total: Expr = integer(0)
    for sub, extent in zip(ref.subs, ref.storage.extents, strict=True):
        at = sub.at if isinstance(sub, x.Point) else sub.index if isinstance(sub, x.Elem) else sub.start
        total = Apply(op="+", args=(Apply(op="*", args=(total, extent), dtype="i32"), at), dtype="i32")
    return total


def vector(ctx: RoleContext, ref: Reference, cond: Expr | None, domain: TileType, span: Span) -> int:
    """Elements a thread moves at once: the layout's run, where consecutive registers are consecutive in memory; the alignment
    and the uniformity of the predicate over the vector must then be provable (O506). Under a predicate from a tile, whose
    elements differ as they will, each element is moved by itself."""
    axis = _contiguous(ctx, ref)
    if (
        axis == "lin" and ref.storage.space == "global"
    ):  # ptxas moves accumulators to line vectors of four up, in flight (W713)
        axis = None
    layout = register_map(domain, ctx.threads)
    run, count = (layout.lin_vector, domain.rows * domain.cols) if axis == "lin" else (layout.run, domain.cols)
    run = min(run, 128 // DTYPES[ref.storage.dtype].bits)
    if run <= 1 or axis is None or (cond is not None and _by_tile(ctx, cond)):
        return 1
    start = Apply(op="*", args=(Sym(name="%vec"), integer(run)), dtype="i32")
    facts = element_facts(ctx, domain, None)
    facts.declare("%vec", 0, count // run)

    def at(e: Expr, shift: int) -> Expr:
        place = Apply(op="+", args=(start, integer(shift)), dtype="i32")
        return rewrite(e, lambda n: place if isinstance(n, Axis) and n.axis == axis else None)

    if not facts.divides(run, at(flat(ref), 0)):
        _unaligned(ctx, ref, run, span)
    if ref.storage.space == "shared":
        pad = ctx.kernel.buffers[ref.storage.name].pad
        if pad % run:
            ctx.refuse("O506", f"`pad({pad})` breaks the {run}-element accesses to `{ref.storage.name}`", span)
    if cond is not None:
        head, tail = at(cond, 0), at(cond, run - 1)
        for given, claim in ((head, tail), (tail, head)):
            trial = facts.copy()
            trial.assume(given)
            if trial.prove(claim) is not True:
                ctx.refuse(
                    "O506",
                    f"the predicate may hold for a part of the {run} elements that a thread moves at once",
                    span,
                    facts=trial.explain(claim),
                    help=f"demand it: `where N % {run} == 0` for the dim that the predicate compares with",
                )
    return run


def _by_tile(ctx: RoleContext, e: Expr) -> bool:
    """The predicate or index has an element of a register tile for each column."""
    tiles = [n for n in walk(e) if isinstance(n, Reg)]
    return any((n.cols[1] - n.cols[0] if n.cols is not None else ctx.tiles[n.name].cols) > 1 for n in tiles)


def _contiguous(ctx: RoleContext, ref: Reference) -> str | None:
    """The axis, "col" or "lin", along which the elements of a row follow each other in memory."""

    def uses_col(sub: x.Sub) -> bool:
        return isinstance(sub, x.Elem) and (_has_axis(sub.index, ("col", "lin")) or _by_tile(ctx, sub.index))

    last = ref.subs[-1]
    if not isinstance(last, x.Elem) or any(uses_col(sub) for sub in ref.subs[:-1]):
        return None
    axes = [axis for axis in ("row", "col", "lin") if _has_axis(last.index, (axis,))]
    if axes not in (["col"], ["row", "col"], ["lin"]):
        return None
    axis = axes[-1]
    here = rewrite(last.index, lambda n: Sym(name="%c") if isinstance(n, Axis) and n.axis == axis else None)
    nextc = Apply(op="+", args=(Sym(name="%c"), integer(1)), dtype="i32")
    there = rewrite(last.index, lambda n: nextc if isinstance(n, Axis) and n.axis == axis else None)
    return axis if ctx.facts.difference(there, here) == 1 else None


def _has_axis(e: Expr, axes: tuple[str, ...]) -> bool:
    return any(isinstance(n, Axis) and n.axis in axes for n in walk(e))


def _unaligned(ctx: RoleContext, ref: Reference, run: int, span: Span) -> None:
    dims = [show(n) for n in ref.storage.extents[1:] if not isinstance(n, Const)]
    need = f"`where {dims[-1]} % {run} == 0`" if dims else f"a start that is a multiple of {run}"
    ctx.refuse(
        "O506",
        f"a thread moves {run} elements of `{ref.storage.name}` at once, and their alignment is not provable",
        span,
        help=f"demand it: {need}; or choose a layout with shorter vectors",
    )


@function("store")
def store(ctx: Context, e: s.Call) -> None:
    """``store(ref, value[, where=])``."""
    bound = arguments(ctx, e, ("ref", "value"), ("where",))
    ctx = role_of(ctx, e)
    _write(ctx, e, bound, "store", {})


@function("atomic.add", "atomic.max", "atomic.min")
def atomic(ctx: Context, e: s.Call) -> None:
    """``atomic.add|max|min(ref, value[, where=])``."""
    bound = arguments(ctx, e, ("ref", "value"), ("where",))
    ctx = role_of(ctx, e)
    assert isinstance(e.func, s.Attribute)
    _write(ctx, e, bound, "atomic", {"function": e.func.name})


def _adds_vectors(ctx: RoleContext, ref: Reference, attrs: dict[str, x.Attribute]) -> bool:
    """Additions of f32 to global memory go by vectors, like stores (PTX ISA 9.7.13.6: `.vec_32_bit` of `red`, sm_90)."""
    return (
        attrs.get("function") == "add"
        and ref.storage.dtype == "f32"
        and ref.storage.space != "shared"
        and "red_vector" in ctx.kernel.target.features
    )


def _write(ctx: RoleContext, e: s.Call, bound: dict[str, s.Expr], op: str, attrs: dict[str, x.Attribute]) -> None:
    ref = reference(ctx, bound["ref"], f"the destination of `{op}`")
    if ref.storage.direction == "in":
        ctx.refuse("T013", f"`{ref.storage.name}` is an input", e.span, help="declare it `out` or `inout`")
    value = ex.typed(ctx, bound["value"])
    dtype = ref.storage.dtype
    if isinstance(value, Scalar):
        value = Scalar(ex.adapt(ctx, value, dtype, bound["value"].span))
    else:
        value = ex.as_tile(ctx, value, bound["value"].span)
        if value.dtype != dtype:
            ctx.refuse(
                "T005",
                f"{value.dtype} values into `{ref.storage.name}` of {dtype}",
                bound["value"].span,
                help=f"cast: `{dtype}(…)`",
            )
    if any(isinstance(sub, x.Range) for sub in ref.subs):
        ref = _view_elements(ctx, ref, value, e.span)
    cond, cond_domain = predicate(ctx, bound.get("where"))
    parts = [Tile(Axis(axis="row"), t) for t in (ref.domain, cond_domain) if t is not None]
    if isinstance(value, Tile):
        parts.append(value)
    joined = ex.broadcast(ctx, parts, e.span) if parts else ONE
    if ref.domain is not None and joined.shape != ref.domain.shape:
        ctx.refuse(
            "T006",
            f"a value or predicate of shape {list(joined.shape)} does not fit the {list(ref.domain.shape)} elements named",
            e.span,
        )
    if ref.domain is None and joined.shape != (1, 1):
        ctx.refuse(
            "T006", f"a tile of shape {list(joined.shape)} cannot go to one element", e.span, help="use index tiles"
        )
    domain = TileType(dtype=dtype, shape=joined.shape, layout=joined.layout)
    check_bounds(ctx, ref, cond, domain, e.span)
    note_generic(ctx, ref)
    if ctx.fill is not None:
        from cake.expand.pipelines import note_write

        note_write(ctx, ref, "store", e.span)
    if op == "store" or _adds_vectors(ctx, ref, attrs):
        attrs = {**attrs, "vector": vector(ctx, ref, cond, domain, e.span)}
    operands: dict[str, x.Ref | Expr] = {"dst": ref.ref, "value": value.expr}
    if cond is not None:
        operands["where"] = cond
    emit_op(ctx, x.Op(op=op, operands=operands, attrs=attrs, type=domain, span=e.span))


def _view_elements(ctx: RoleContext, ref: Reference, value: Scalar | Tile, span: Span) -> Reference:
    """A block view as index tiles over the value's elements."""
    if isinstance(value, Scalar):
        ctx.refuse("T006", "a scalar cannot fill a block", span, help="store a register tile")
    if ref.domain is not None:
        ctx.refuse("T013", "slices and index tiles do not mix in one element move", span)
    shape, rows, cols = ref.shape, value.type.rows, value.type.cols
    axes = ref.axes
    fitting: tuple[tuple[int, ...], tuple[str, ...]] = ((rows, cols), ("row", "col"))
    if len(shape) != 2:
        fitting = ((cols,), ("col",)) if rows == 1 else ((rows,), ("row",))
    if shape != fitting[0]:
        ctx.refuse("T006", f"a tile [{rows}, {cols}] does not fit a view of shape {list(shape)}", span)
    subs = list(ref.subs)
    for axis, name in zip(axes, fitting[1], strict=True):
        sub = subs[axis]
        assert isinstance(sub, x.Range)
        index: Expr = Axis(axis=name)  # type: ignore[arg-type]
        if sub.start != integer(0):
            index = Apply(op="+", args=(sub.start, index), dtype="i32")
        subs[axis] = x.Elem(index=index)
    kind = TileType(dtype="i32", shape=(rows, cols), layout=value.type.layout)
    return replace(ref, subs=tuple(subs), transposed=False, domain=kind)
