"""Clusters: CTAs that are neighbours along one axis of the tiles, and boxes that they load for one another.

Each CTA of a cluster loads its share of a multicast box and sends it to all, itself included, at the same offsets (PTX
ISA, cp.async.bulk.tensor, ``.multicast::cluster``). So each announces every byte that lands in itself, a stage is free
for a CTA's next load only when the consumers of all CTAs have released it, and no CTA may start before the others'
barriers exist or leave while they may still signal it (docs/verification.md, H10, H14, H22, H26)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from cake.diagnostics import Span
from cake.expand import uniform
from cake.expand.context import KernelContext, RingInfo, RoleContext, TilesInfo
from cake.expand.prune import flatten
from cake.expand.values import Reference
from cake.ir import expanded as x
from cake.ir import surface as s
from cake.ir.dtypes import DTYPES
from cake.ir.expr import Apply, Const, Expr, Sym, integer

RANK = Sym(name="%rank")
ATOM_ROWS = 8
"""Rows of a swizzle atom: shares that start on one keep the pattern of the whole box."""
UNSWIZZLED = 128
"""Alignment in bytes of an unswizzled destination (PTX ISA, cp.async.bulk.tensor)."""

# ---- the axis -------------------------------------------------------------------------------------------------------


def along(ctx: KernelContext, extent: Expr, size: int, others: dict[str, int], span: Span) -> Expr:
    """How many clusters of ``size`` an axis has: the extent is rounded up, and what lies past it loads zeros and stores
    nothing."""
    target = ctx.target
    if "cluster" not in target.features:
        ctx.refuse(
            "W711", f"{target.name} has no clusters", span, help="write `cluster(1)`, or a target from sm_90a on"
        )
    if size > target.cluster_size:
        ctx.refuse("W706", f"a cluster has at most {target.cluster_size} CTAs on {target.name}, not {size}", span)
    if others:
        ctx.refuse("T099", "clusters along more than one axis are part of the language but not built yet", span)
    ctx.facts.declare(RANK.name, 0, size)
    if isinstance(extent, Const):
        return integer(-(-int(extent.value) // size))
    return Apply(op="cdiv", args=(extent, integer(size)), dtype="i32")


def bound(ctx: RoleContext, tiles: TilesInfo, axis: str) -> Expr:
    """What the values of an axis are below: its extent, rounded up to whole clusters."""
    extent = tiles.extents[axis]
    if axis != tiles.clustered or ctx.facts.divides(tiles.cluster, extent):
        return extent
    return Apply(op="*", args=(tiles.walked[axis], integer(tiles.cluster)), dtype="i32")


# ---- multicast ------------------------------------------------------------------------------------------------------


def receivers(ctx: KernelContext, ring: RingInfo, call: s.Call) -> set[str]:
    """The buffers that a `tma.load` fills in several CTAs of a cluster, from its text; none for a plain load."""
    named = [k.value for k in call.kwargs if k.name == "multicast"] or list(call.args[2:3])
    clustered = ctx.tiles.clustered if ctx.tiles is not None else None
    if clustered is None or not any(isinstance(e, s.Name) and e.name == clustered for e in named):
        return set()
    dst = next((k.value for k in call.kwargs if k.name == "dst"), call.args[0] if call.args else None)
    while isinstance(dst, s.Index):
        dst = dst.base
    if isinstance(dst, s.Attribute) and dst.name in ring.fields:
        return {ring.fields[dst.name]}
    return set(ring.fields.values())


def multicast(ctx: RoleContext, axis: s.Expr) -> int:
    """The CTAs that differ along the axis of ``multicast=``; along an axis without clusters the load is a plain one."""
    tiles = ctx.kernel.tiles
    assert tiles is not None
    if not isinstance(axis, s.Name) or axis.name not in tiles.extents:
        known = ", ".join(tiles.extents)
        ctx.refuse("T003", "`multicast=` names an axis of `tiles`", axis.span, help=f"one of {known}")
    return tiles.cluster if axis.name == tiles.clustered else 1


def share(
    ctx: RoleContext, shared: Reference, tensor: Reference, count: int, span: Span
) -> tuple[Reference, Reference]:
    """This CTA's part of both sides of a multicast load: an equal slice of the first axis, by rank (W707)."""
    sizes = [n for n in shared.shape if n > 1] or [1]
    part, left = divmod(sizes[0], count)
    rows = part
    for n in sizes[1:-1]:
        rows *= n
    if left or rows % ATOM_ROWS:
        ctx.refuse(
            "W707",
            f"{count} CTAs cannot load equal shares of {sizes[0]} rows, each a multiple of {ATOM_ROWS}",
            span,
            help=f"make the first extent of the box a multiple of {ATOM_ROWS * count}, or leave `multicast` out",
        )
    info = ctx.kernel.buffers[shared.storage.name]
    size = part * DTYPES[info.dtype].bytes
    for n in sizes[1:]:
        size *= n
    if not info.swizzle and size % UNSWIZZLED:
        ctx.refuse(
            "W707",
            f"a share of {size} bytes does not end on {UNSWIZZLED} bytes, where the next CTA's share starts",
            span,
            help="load more at once, or leave `multicast` out",
        )
    start = Apply(op="*", args=(RANK, integer(part)), dtype="i32")
    return _part(shared, start, part), _part(tensor, start, part)


def _part(ref: Reference, start: Expr, size: int) -> Reference:
    """The slice ``start : start + size`` of the first axis that is longer than one element."""
    subs = list(ref.subs)
    for i, sub in enumerate(subs):
        if isinstance(sub, x.Range) and (sub.size > 1 or all(n == 1 for n in ref.shape)):
            zero = isinstance(sub.start, Const) and sub.start.value == 0
            at = start if zero else Apply(op="+", args=(sub.start, start), dtype="i32")
            subs[i] = x.Range(start=at, size=size)
            break
    return replace(ref, subs=tuple(subs))


def writers(ctx: KernelContext, ring: RingInfo) -> tuple[int, ...] | None:
    """The ranks that write into a CTA's stages, to which releases go; None if only the CTA itself does."""
    if not ring.multicast or ctx.tiles is None:
        return None
    return tuple(range(ctx.tiles.cluster))


# ---- the whole kernel -----------------------------------------------------------------------------------------------


def signals(ctx: KernelContext) -> bool:
    """Whether CTAs of a cluster write into one another."""
    return any(r.multicast for r in ctx.rings.values())


def entry(ctx: KernelContext, statements: tuple[x.Stmt, ...]) -> tuple[x.Stmt, ...]:
    """The prologue, ended by a barrier of the cluster where peers use one another's mbarriers. The fence of the
    initialisation is the release that its arrival would be (PTX ISA, membar / fence, the example of
    ``fence.mbarrier_init``), so the arrival is relaxed."""
    if not signals(ctx):
        return statements
    return (*statements[:-1], x.Cluster(sem="relaxed", reason="prologue"))


def named(ctx: KernelContext, barriers: list[x.NamedBarrier]) -> list[x.NamedBarrier]:
    """The named barriers in use: the cluster's barrier takes the place of the CTA's."""
    return [b for b in barriers if b.name != "cta"] if signals(ctx) else barriers


def finish(ctx: KernelContext, roles: list[x.Role]) -> list[x.Role]:
    """Check that the CTAs of a cluster do alike, and let none of them leave before the others are done with it: roles
    that signal peers meet at the end. Others may leave at any time, as the barrier does not wait for threads that have
    (PTX ISA, barrier.cluster), and what they sent has arrived when its consumers have waited for it."""
    if ctx.tiles is None or ctx.tiles.cluster == 1:
        return roles
    uniform.check(ctx, roles)
    if not signals(ctx):
        return roles
    wide = {f"{r.name}.empty" for r in ctx.rings.values() if r.multicast & r.generic}
    out = []
    for role in roles:
        body = tuple(_each(n, lambda n: _widen(n, wide)) for n in role.body) if wide else role.body
        if any(isinstance(n, x.Arrive) and n.peers is not None for n in flatten(body)):
            end = x.Cluster(reason="cluster end", span=role.span)
            body = (*body[:-1], end, body[-1])
        out.append(role.model_copy(update={"body": body}))
    return out


def _widen(node: x.Stmt, barriers: set[str]) -> x.Stmt:
    """Releases after ordinary reads carry more than permission to a peer: they and the acquire take the cluster's scope
    (F304). Reads by wgmma are complete when they are released, so CTA scope, which costs no memory barrier, is enough
    for them (axiom A5)."""
    if isinstance(node, x.Wait | x.Arrive) and node.barrier in barriers:
        return node.model_copy(update={"scope": "cluster"})
    return node


def _each(node: x.Stmt, change: Callable[[x.Stmt], x.Stmt]) -> x.Stmt:
    if isinstance(node, x.For):
        return node.model_copy(update={"body": tuple(_each(n, change) for n in node.body)})
    if isinstance(node, x.If):
        then, orelse = (tuple(_each(n, change) for n in part) for part in (node.then, node.orelse))
        return node.model_copy(update={"then": then, "orelse": orelse})
    return change(node)
