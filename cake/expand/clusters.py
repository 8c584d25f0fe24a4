"""Clusters: CTAs that are neighbours along one axis of the tiles, boxes that they load for one another, and stages that
they fill together.

Each CTA of a cluster loads its share of a multicast box and sends it to all, itself included, at the same offsets (PTX
ISA, cp.async.bulk.tensor, ``.multicast::cluster``). So each announces every byte that lands in itself, a stage is free
for a CTA's next load only when the consumers of all CTAs have released it, and no CTA may start before the others'
barriers exist or leave while they may still signal it (docs/verification.md, H10, H14, H22, H26).

A pipeline ``across`` the axis has stages in every CTA. Each fills its own by ordinary stores, and tells all; so a stage
that is full is full in all of them, and what others put into theirs can be read (``field.of(p)``)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from cake.diagnostics import Span
from cake.expand import uniform
from cake.expand.context import KernelContext, RingInfo, RoleContext, TilesInfo
from cake.expand.prune import flatten
from cake.expand.values import Reference
from cake.facts import show
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


# ---- stages that CTAs fill together ---------------------------------------------------------------------------------


def together(ctx: KernelContext, p: s.Pipeline) -> bool:
    """Whether ``across(axis)`` makes the CTAs of a cluster share a pipeline: not along an axis without clusters."""
    tiles = ctx.tiles
    if tiles is None or p.across not in tiles.extents:
        known = ", ".join(tiles.extents) if tiles is not None else "none"
        ctx.refuse("T003", "`across` names an axis of `tiles`", p.span, help=f"one of {known}")
    if p.one or p.consumers == ("store",):
        ctx.refuse(
            "T015",
            "a stage that CTAs fill together goes to all instances of its consumers, and not to the store engine",
            p.span,
            help="leave `across` out, or `one`",
        )
    return p.across == tiles.clustered


def peer(ctx: RoleContext, ref: Reference, e: s.Call) -> Reference:
    """``field.of(p)``: the same field of a held stage in CTA p of the cluster, counted along its axis."""
    from cake.expand import expressions as ex
    from cake.expand.functions import arguments

    bound = arguments(ctx, e, ("p",))
    ring = ctx.kernel.rings[ref.handle.ring] if ref.handle is not None else None
    at = ex.int_expr(ctx, bound["p"], "as the number of a CTA")
    declared = next((p for p in ctx.kernel.kernel.pipelines if ring is not None and p.name == ring.name), None)
    if ring is None or declared is None or declared.across is None or ref.handle is None or ref.handle.role != "wait":
        ctx.refuse(
            "T014",
            f"`{ref.storage.name}` is not seen by other CTAs",
            e.span,
            help="fields of a held stage are, of a pipeline that is declared `across(axis)`",
        )
    size = ctx.kernel.tiles.cluster if ring.across and ctx.kernel.tiles is not None else 1
    for claim in (
        Apply(op="<=", args=(integer(0), at), dtype="bool"),
        Apply(op="<", args=(at, integer(size)), dtype="bool"),
    ):
        if ctx.facts.prove(claim) is not True:
            ctx.refuse(
                "O503",
                f"CTA {show(at)} may not be among the {size} of the cluster",
                e.span,
                facts=ctx.facts.explain(claim),
            )
    return replace(ref, peer=at) if ring.across else ref


def readers(ctx: KernelContext, ring: RingInfo) -> tuple[int, ...] | None:
    """The ranks that take part in a CTA's stages as it fills them, which are told; None if only the CTA itself does."""
    return tuple(range(ctx.tiles.cluster)) if ring.across and ctx.tiles is not None else None


def writers(ctx: KernelContext, ring: RingInfo) -> tuple[int, ...] | None:
    """The ranks that a release concerns: those that write into the CTA's stages, or that wait for it to have read theirs; None
    if only the CTA itself does."""
    return tuple(range(ctx.tiles.cluster)) if (ring.multicast or ring.across) and ctx.tiles is not None else None


# ---- the whole kernel -----------------------------------------------------------------------------------------------


def signals(ctx: KernelContext) -> bool:
    """Whether CTAs of a cluster use one another's barriers."""
    return any(r.multicast or r.across for r in ctx.rings.values())


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
    that signal peers meet at the end. That is an order of execution and carries no data, hence relaxed: what was read of
    peers was released before. Others may leave at any time, as the barrier does not wait for threads that have (PTX ISA,
    barrier.cluster), and what they sent has arrived when its consumers have waited for it."""
    if ctx.tiles is None or ctx.tiles.cluster == 1:
        return roles
    uniform.check(ctx, roles)
    if not signals(ctx):
        return roles
    wide = {f"{r.name}.empty" for r in ctx.rings.values() if r.multicast & r.generic}
    wide |= {f"{r.name}.{end}" for r in ctx.rings.values() if r.across for end in ("full", "empty")}
    out = []
    for role in roles:
        body = tuple(_each(n, lambda n: _widen(n, wide)) for n in role.body) if wide else role.body
        if any(isinstance(n, x.Arrive) and n.peers is not None for n in flatten(body)):
            end = x.Cluster(sem="relaxed", reason="cluster end", span=role.span)
            body = (*body[:-1], end, body[-1])
        out.append(role.model_copy(update={"body": body}))
    return out


def _widen(node: x.Stmt, barriers: set[str]) -> x.Stmt:
    """Arrivals that tell of ordinary stores, and releases after ordinary reads, carry more than permission to a peer: they and
    the waits take the cluster's scope (F304). Reads by wgmma are complete when they are released, so CTA scope, which
    costs no memory barrier, is enough for them (axiom A5)."""
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
