"""Reductions along an axis, and what they need when they cross warps: scratch, a barrier, a fixed order."""

from __future__ import annotations

from cake.diagnostics import Span
from cake.expand import expressions as ex
from cake.expand.context import BufferInfo, RoleContext
from cake.expand.emission import emit_op
from cake.expand.functions import Context, arguments, function
from cake.expand.moves import role_of
from cake.expand.values import Storage, Tile, Value
from cake.ir import expanded as x
from cake.ir import surface as s
from cake.ir.expr import Axis, Reg, integer
from cake.ir.layout import QUAD, Layout, TileType

SPREAD1 = Layout(kind="spread", vector=1)


@function("sum")
def total(ctx: Context, e: s.Call) -> Value:
    """``sum(x, axis=a[, to=P])``."""
    return reduction(ctx, e, "sum")


@function("max", "min")
def extremum(ctx: Context, e: s.Call) -> Value:
    """``max(x, axis=a)`` along an axis, or ``max(a, b)`` of two values."""
    assert isinstance(e.func, s.Name)
    if any(k.name in ("axis", "to", "dim") for k in e.kwargs) or len(e.args) == 1:
        return reduction(ctx, e, e.func.name)
    bound = arguments(ctx, e, ("a", "b"))
    value = ex.elementwise(ctx, e.func.name, (ex.typed(ctx, bound["a"]), ex.typed(ctx, bound["b"])), e.span)
    return value


def _axis(ctx: Context, e: s.Call, bound: dict[str, s.Expr]) -> int:
    axis = ex.constant(ctx, bound["axis"], "the axis of a reduction")
    if axis not in (0, 1) or isinstance(axis, bool):
        ctx.refuse("T017", f"a register tile has axes 0 (rows) and 1 (columns), not {axis}", e.span)
    return int(axis)


def reduction(ctx: Context, e: s.Call, name: str) -> Value:
    """Type a reduction and emit its steps."""
    bound = arguments(ctx, e, ("x", "axis"), ("to",))
    ctx = role_of(ctx, e)
    tile = ex.as_tile(ctx, ex.typed(ctx, bound["x"]), e.span)
    if tile.dtype == "bool":
        ctx.refuse("T005", f"`{name}` of bool", e.span, help="count with `sum(where(cond, 1, 0), axis=1)`")
    axis = _axis(ctx, e, bound)
    partial = ex.constant_int(ctx, bound["to"], "`to`") if "to" in bound else None
    return reduce_tile(ctx, tile, name, axis, partial, e.span)


def reduce_tile(ctx: RoleContext, tile: Tile, name: str, axis: int, partial: int | None, span: Span) -> Tile:
    """The steps of one reduction, by layout."""
    kind = tile.type
    rows, cols, layout = kind.rows, kind.cols, kind.layout
    if layout.kind == "quad":
        ctx.not_built("a reduction of a quad tile", span)
    if axis == 0:
        if layout.kind != "frag" or ctx.role.warps != 1:
            ctx.not_built(f"a reduction along the rows of a {layout} tile over {ctx.role.warps} warps", span)
        if partial is not None:
            ctx.refuse("T017", "`to=` stops a reduction along axis 1 at one value a thread", span)
        return _step(ctx, tile, name, axis, "warp", (1, cols), layout, span, "written")
    if layout.kind == "frag":
        if partial is not None:
            _expect_partial(ctx, partial, QUAD, "threads share a row of a frag tile", span)
            return _step(ctx, tile, name, axis, "thread", (rows, QUAD), layout, span, "written")
        return _step(ctx, tile, name, axis, "warp", (rows, 1), layout, span, "written")
    if layout.kind == "rowwise":
        if partial is not None:
            _expect_partial(ctx, partial, 1, "thread holds a row of a rowwise tile", span)
        return _step(ctx, tile, name, axis, "thread", (rows, 1), layout, span, "written")
    if rows != 1:
        ctx.not_built("a reduction of a spread tile with more than one row", span)
    if partial is not None:
        _expect_partial(ctx, partial, ctx.threads, "threads share the row", span)
        return _step(ctx, tile, name, axis, "thread", (1, ctx.threads), SPREAD1, span, "written")
    if cols == 1:
        return tile
    if ctx.role.warps == 1:
        return _step(ctx, tile, name, axis, "warp", (1, 1), SPREAD1, span, "written")
    return across_warps(ctx, tile, name, span)


def _expect_partial(ctx: RoleContext, got: int, want: int, why: str, span: Span) -> None:
    if got != want:
        ctx.refuse("T017", f"`to={got}`: {want} {why}", span, help=f"write `to={want}`")


def _step(
    ctx: RoleContext,
    tile: Tile,
    name: str,
    axis: int,
    scope: str,
    shape: tuple[int, int],
    layout: Layout,
    span: Span,
    reason: str,
) -> Tile:
    dst = ctx.fresh(name)
    result = TileType(dtype=tile.type.dtype, shape=shape, layout=layout)
    ctx.tiles[dst] = result
    reg = Reg(name=dst, dtype=tile.type.dtype)
    emit_op(
        ctx,
        x.Op(
            op="reduce",
            operands={"dst": reg, "value": tile.expr},
            attrs={"function": name, "axis": axis, "scope": scope},
            type=tile.type,
            reason=reason,
            span=span,
        ),
    )
    return Tile(reg, result)


def across_warps(ctx: RoleContext, tile: Tile, name: str, span: Span) -> Tile:
    """One value a warp to scratch, a barrier of the instance, and every thread combines them in warp order. The scratch has two
    slots used in turn, so that one barrier is enough: a slot is rewritten only after the next reduction's barrier."""
    warps = ctx.role.warps
    why = "reduction across warps"
    per_warp = _step(ctx, tile, name, 1, "warp", (1, warps), Layout(kind="perwarp"), span, why)
    dtype = tile.type.dtype
    scratch = f"{ctx.role.name}.scratch.{dtype}"
    cursor = f"{scratch}.turn"
    kernel = ctx.kernel
    if scratch not in kernel.buffers:
        kernel.buffers[scratch] = BufferInfo(
            scratch, dtype, (warps,), slots=2, instances=ctx.role.instances, span=ctx.role.span
        )
        kernel.storages[scratch] = Storage(scratch, dtype, "shared", (integer(warps),))
    ctx.cursors[cursor] = 2
    col = x.Elem(index=Axis(axis="col"))
    ref = x.Ref(base=scratch, slot=x.Slot(cursor=cursor), subs=(col,))
    emit_op(
        ctx,
        x.Op(
            op="store",
            operands={"dst": ref, "value": per_warp.expr},
            attrs={"vector": 1},
            type=per_warp.type,
            reason=why,
            span=span,
        ),
    )
    from cake.expand.order import instance_barrier

    ctx.emit(instance_barrier(ctx, why, span))
    gathered = TileType(dtype=dtype, shape=(1, warps), layout=Layout(kind="uniform"))
    name_all = ctx.fresh("warps")
    ctx.tiles[name_all] = gathered
    reg = Reg(name=name_all, dtype=dtype)
    emit_op(
        ctx,
        x.Op(
            op="load",
            operands={"dst": reg, "src": ref},
            attrs={"vector": _vector(warps, dtype)},
            type=gathered,
            reason=why,
            span=span,
        ),
    )
    ctx.emit(x.Cursor(cursor=cursor, reason=why, span=span))
    return _step(ctx, Tile(reg, gathered), name, 1, "thread", (1, 1), SPREAD1, span, why)


def _vector(warps: int, dtype: str) -> int:
    from cake.ir.dtypes import DTYPES

    most = 128 // DTYPES[dtype].bits
    return next(v for v in (4, 2, 1) if v <= most and warps % v == 0)


@function("argmax", "argmin")
def arg_extremum(ctx: Context, e: s.Call) -> Value:
    """``value, column = argmax(x, axis=1)``: used through a two-target assignment."""
    ctx.refuse(
        "T011", "`argmax` and `argmin` give two results", e.span, help="write `value, column = argmax(x, axis=1)`"
    )


def arg_pair(ctx: RoleContext, e: s.Call) -> tuple[Tile, Tile]:
    """The two results of argmax or argmin."""
    bound = arguments(ctx, e, ("x", "axis"))
    assert isinstance(e.func, s.Name)
    tile = ex.as_tile(ctx, ex.typed(ctx, bound["x"]), e.span)
    if _axis(ctx, e, bound) != 1:
        ctx.refuse("T017", f"`{e.func.name}` runs along axis 1", e.span)
    kind = tile.type
    if kind.layout.kind == "quad":
        ctx.not_built(f"`{e.func.name}` of a quad tile", e.span)
    if kind.layout.kind == "spread" and (kind.rows != 1 or ctx.role.warps != 1):
        ctx.not_built(f"`{e.func.name}` across warps", e.span)
    if kind.layout.kind == "spread":
        layout, scope = SPREAD1, "warp"
    else:
        layout, scope = kind.layout, "thread" if kind.layout.kind == "rowwise" else "warp"
    shape = (kind.rows, 1)
    results = []
    for dtype, hint in ((kind.dtype, e.func.name), ("i32", "column")):
        name = ctx.fresh(hint)
        ctx.tiles[name] = TileType(dtype=dtype, shape=shape, layout=layout)
        results.append(Tile(Reg(name=name, dtype=dtype), ctx.tiles[name]))
    emit_op(
        ctx,
        x.Op(
            op="argreduce",
            operands={"dst": results[0].expr, "index": results[1].expr, "value": tile.expr},
            attrs={"function": e.func.name[3:], "scope": scope},
            type=kind,
            span=e.span,
        ),
    )
    return results[0], results[1]
