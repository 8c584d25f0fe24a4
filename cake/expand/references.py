"""Subscripts: references to memory, and parts of register tiles."""

from __future__ import annotations

from dataclasses import replace

from cake.diagnostics import Span
from cake.expand import expressions as ex
from cake.expand.context import KernelContext, RoleContext
from cake.expand.values import Reference, Scalar, Storage, Tile, TileVar, Value, describe
from cake.facts import show
from cake.ir import expanded as x
from cake.ir import surface as s
from cake.ir.dtypes import DTYPES
from cake.ir.expr import Apply, Const, Expr, Reg, integer
from cake.ir.layout import TileType

Context = KernelContext | RoleContext


def subscript(ctx: Context, base: Value, e: s.Index) -> Value:
    """``base[subs]``."""
    if isinstance(base, Storage):
        return _memory(ctx, ex.whole(base), e)
    if isinstance(base, Reference):
        if base.transposed or base.domain is not None:
            ctx.refuse("T013", "subscripts go before `.T`", e.span)
        if any(not _untouched(sub, n) for sub, n in zip(base.subs, base.storage.extents, strict=True)):
            ctx.refuse("T013", "a reference takes one set of subscripts", e.span)
        return _memory(ctx, base, e)
    if isinstance(base, TileVar | Tile):
        return _register(ctx, base, e)
    ctx.refuse("T013", f"{describe(base)} cannot be subscripted", e.span)


def _untouched(sub: x.Sub, extent: Expr) -> bool:
    return isinstance(sub, x.Range) and sub.start == integer(0)


def _memory(ctx: Context, base: Reference, e: s.Index) -> Reference:
    storage = base.storage
    if len(e.subs) > len(storage.extents):
        ctx.refuse(
            "T013",
            f"`{storage.name}` has {len(storage.extents)} axes, not {len(e.subs)}",
            e.span,
        )
    subs: list[x.Sub] = []
    domain: Tile | None = None
    for axis, extent in enumerate(storage.extents):
        sub = e.subs[axis] if axis < len(e.subs) else s.Slice(span=e.span)
        if isinstance(sub, s.Slice):
            subs.append(_slice(ctx, storage, axis, extent, sub))
            continue
        value = ex.typed(ctx, sub)
        if isinstance(value, Scalar):
            if DTYPES[value.dtype].kind != "int":
                ctx.refuse("T005", f"a subscript must be an integer, not {value.dtype}", sub.span)
            subs.append(x.Point(at=ex.fold(ctx, value.expr)))
            continue
        tile = ex.as_tile(ctx, value, sub.span)
        if DTYPES[tile.dtype].kind != "int":
            ctx.refuse("T005", f"an index tile must be of integers, not {tile.dtype}", sub.span)
        merged = ex.broadcast(ctx, [domain, tile], sub.span) if domain else tile.type
        domain = Tile(tile.expr, merged)
        subs.append(x.Elem(index=tile.expr))
    return replace(base, subs=tuple(subs), domain=domain.type if domain else None)


def _slice(ctx: Context, storage: Storage, axis: int, extent: Expr, sub: s.Slice) -> x.Range:
    if sub.step is not None:
        ctx.refuse("T013", "slices have no step", sub.span)
    lo = ex.int_expr(ctx, sub.lo, "as a bound") if sub.lo is not None else integer(0)
    hi = ex.int_expr(ctx, sub.hi, "as a bound") if sub.hi is not None else extent
    size = ctx.facts.difference(hi, lo)
    if size is None:
        if sub.lo is None and sub.hi is None:
            ctx.refuse(
                "T013",
                f"`:` on axis {axis} of `{storage.name}`, whose extent {show(extent)} is not a constant",
                sub.span,
                help="give bounds a constant apart, such as `i : i + 64`",
            )
        ctx.refuse(
            "T013",
            f"the extent {show(hi)} - ({show(lo)}) of the slice does not reduce to a constant",
            sub.span,
            help="write the upper bound as the lower bound plus a constant",
        )
    if size < 1:
        ctx.refuse("T013", f"the slice has {size} elements", sub.span)
    if storage.space == "shared" and isinstance(extent, Const):
        inside = ctx.facts.prove(_and(_le(integer(0), lo), _le(_add(lo, size), extent)))
        if inside is not True:
            ctx.refuse(
                "O503",
                f"the slice {show(lo)} : {show(hi)} may leave axis {axis} of `{storage.name}`, which has {show(extent)} elements",
                sub.span,
                facts=ctx.facts.explain(_le(_add(lo, size), extent)),
            )
    return x.Range(start=lo, size=size)


def _le(a: Expr, b: Expr) -> Expr:
    return Apply(op="<=", args=(a, b), dtype="bool")


def _and(a: Expr, b: Expr) -> Expr:
    return Apply(op="and", args=(a, b), dtype="bool")


def _add(a: Expr, n: int) -> Expr:
    return Apply(op="+", args=(a, integer(n)), dtype="i32")


def _register(ctx: Context, base: TileVar | Tile, e: s.Index) -> Value:
    if isinstance(base, Tile) and not isinstance(base.expr, Reg):
        ctx.refuse("T013", "only a named register tile can be subscripted", e.span, help="assign it to a name first")
    subs = list(e.subs)
    if isinstance(base, TileVar):
        lead = list(base.lead)
        while subs and len(lead) < len(base.type.lead):
            sub = subs.pop(0)
            if isinstance(sub, s.Slice):
                ctx.refuse("T016", "a leading axis takes a constant index", sub.span)
            at = ex.constant_int(ctx, sub, "an index of a leading axis", low=0)
            if at >= base.type.lead[len(lead)]:
                ctx.refuse("T016", f"index {at} is past the leading axis of {base.type}", sub.span)
            lead.append(at)
        base = replace(base, lead=tuple(lead))
        if not subs:
            return base
    tile = ex.as_tile(ctx, base, e.span)
    if len(subs) > 2:
        ctx.refuse("T013", f"{tile.type} has two axes, not {len(subs)}", e.span)
    reg = tile.expr
    assert isinstance(reg, Reg)
    if reg.rows is not None or reg.cols is not None:
        ctx.refuse("T013", "a register tile takes one set of subscripts", e.span)
    rows = _part(ctx, tile.type, 0, subs[0], e.span)
    cols = _part(ctx, tile.type, 1, subs[1], e.span) if len(subs) > 1 else None
    shape = (
        rows[1] - rows[0] if rows else tile.type.rows,
        cols[1] - cols[0] if cols else tile.type.cols,
    )
    part = Reg(name=reg.name, dtype=reg.dtype, lead=reg.lead, rows=rows, cols=cols)
    return Tile(part, TileType(dtype=tile.type.dtype, shape=shape, layout=tile.type.layout))


def _part(ctx: Context, kind: TileType, axis: int, sub: s.Sub, span: Span) -> tuple[int, int] | None:
    extent = kind.shape[axis]
    if not isinstance(sub, s.Slice):
        ctx.refuse(
            "T016",
            "registers have no run-time or single-element index",
            sub.span,
            help="slice with constant bounds, or reduce with `where(cols(x) == i, x, 0)`",
        )
    if sub.lo is None and sub.hi is None:
        return None
    lo = ex.constant_int(ctx, sub.lo, "a bound of a register slice", low=0) if sub.lo is not None else 0
    hi = ex.constant_int(ctx, sub.hi, "a bound of a register slice", low=0) if sub.hi is not None else extent
    if not 0 <= lo < hi <= extent:
        ctx.refuse("T016", f"the slice {lo} : {hi} is not inside 0 : {extent}", sub.span)
    warps = ctx.role.warps if isinstance(ctx, RoleContext) else 1
    round_ = 32 * warps * kind.layout.vector  # elements of a spread tile that all threads hold in one vector each
    dealt = round_ if round_ and kind.shape[1] % round_ == 0 else 0
    steps = {"frag": (16 * warps, 8), "rowwise": (128, 1), "spread": (1, dealt), "quad": (0, 0)}
    step = steps.get(kind.layout.kind, (1, 1))[axis]
    if extent == 1 or (lo, hi) == (0, extent):
        return None
    if step == 0:
        which = ("rows", "columns")[axis]
        rounds = f", in rounds of {round_} elements" if kind.layout.kind == "spread" else ""
        ctx.refuse(
            "T016", f"a {kind.layout} tile is not sliced along its {which}: they are dealt to threads{rounds}", sub.span
        )
    if lo % step or hi % step:
        ctx.refuse("T016", f"bounds of a {kind.layout} slice along axis {axis} must be multiples of {step}", sub.span)
    return lo, hi
