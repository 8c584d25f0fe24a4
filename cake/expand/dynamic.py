"""``tiles dynamic(role)``: positions drawn from a counter while the kernel runs.

Every CTA begins with the position of its own number. One role, a single thread, draws the next one from a counter in global
memory and hands it to the other roles through a pipeline of two slots, so that all walk the same list. The drawing
instruction wraps to zero after the last draw: the counter needs to be zero once, before the first launch ever.
"""

from __future__ import annotations

import difflib

from cake.expand.context import BufferInfo, KernelContext, RingInfo, RoleContext, TilesInfo
from cake.expand.declarations import declare_name
from cake.expand.emission import emit_op
from cake.expand.values import Storage
from cake.ir import expanded as x
from cake.ir import surface as s
from cake.ir.expr import Apply, Sym, integer

COUNTER = "tile_counter"
RING = "tiles"
NEXT = "tiles.next"
SLOTS = 2
WHY = "next tile"


def drawer(ctx: KernelContext, t: s.Tiles) -> str:
    """The role that ``dynamic(role)`` names, and the counter as the last parameter of the kernel."""
    args = t.schedule.args
    if len(args) != 1 or not isinstance(args[0], s.Name):
        ctx.refuse(
            "T022",
            "`dynamic` takes the role that draws the tiles",
            t.schedule.span,
            help="write `tiles dynamic(load):`",
        )
    shape = (integer(1),)
    storage = Storage(COUNTER, "i32", "global", shape, "inout", t.schedule.span)
    declare_name(ctx, COUNTER, storage, t.schedule.span)
    ctx.storages[COUNTER] = storage
    ctx.tensors.append(x.Tensor(name=COUNTER, dtype="i32", shape=shape, direction="inout", span=t.schedule.span))
    ctx.assumes.append(x.Condition(text=f"zero({COUNTER})", form="zero", tensor=COUNTER, span=t.schedule.span))
    return args[0].name


def bind(ctx: KernelContext) -> None:
    """The pipeline that hands positions on. The drawing role is one thread, so that no one else waits for the draw."""
    from cake.expand.kernel import is_solo

    tiles = ctx.tiles
    if tiles is None or tiles.drawer is None:
        return
    span, name = tiles.declaration.schedule.span, tiles.drawer
    if name not in ctx.roles:
        near = difflib.get_close_matches(name, list(ctx.roles), n=1)
        ctx.refuse("T001", f"there is no role `{name}`", span, help=f"did you mean `{near[0]}`?" if near else None)
    if ctx.roles[name].instances != 1 or not is_solo(ctx, name):
        ctx.refuse(
            "T022",
            f"role `{name}` cannot draw the tiles: one thread does that, in a role that only fills pipelines by TMA",
            span,
            help="name the role that loads",
        )
    if tiles.cluster > 1:
        ctx.refuse(
            "T099",
            "`tiles dynamic` over clusters is part of the language but not built yet",
            span,
            help="use persistent",
        )
    for do in ctx.kernel.dos:
        _one_walk(ctx, do)
    others = tuple(r for r in ctx.roles if r != name)
    if others:
        ctx.buffers[NEXT] = BufferInfo(NEXT, "i32", (1,), slots=SLOTS, span=span)
        ctx.storages[NEXT] = Storage(NEXT, "i32", "shared", (integer(1),), "inout", span)
        ring = RingInfo(
            RING, SLOTS, (name,), others, {"next": NEXT}, {name: {"store"}}, {name: 1}, derived=True, span=span
        )
        ctx.rings[RING] = ring


def _one_walk(ctx: KernelContext, do: s.Do) -> None:
    """Each role walks the tiles once: what is drawn is handed out once."""
    walks = [n for n in s.walk(do) if isinstance(n, s.For) and isinstance(n.iter, s.Name) and n.iter.name == "tiles"]
    if len(walks) != 1 or walks[0] not in do.body:
        ctx.refuse(
            "T022",
            f"role `{do.role}` must walk the tiles once, outside of every loop and condition, because they are drawn once",
            walks[1].span if len(walks) > 1 else do.span,
            help="use `tiles persistent`",
        )


def advance(ctx: RoleContext, tiles: TilesInfo, prefix: str, position: Sym) -> Sym:
    """At the end of a tile: get the next position. The loop steps by what lies between."""
    following, step = Sym(name=f"{prefix}.next"), Sym(name=f"{prefix}.step")
    span = tiles.declaration.schedule.span
    if ctx.role.name == tiles.drawer:
        _draw(ctx, tiles, prefix, following)
    else:
        _receive(ctx, following)
    gap = Apply(op="-", args=(following, position), dtype="i32")
    ctx.emit(x.Let(name=step.name, dtype="i32", value=gap, reason="tiles", span=span))
    return step


def _draw(ctx: RoleContext, tiles: TilesInfo, prefix: str, following: Sym) -> None:
    span, slot = tiles.declaration.schedule.span, x.Slot(cursor=f"{RING}.fill")
    drawn = Sym(name=f"{prefix}.drawn")
    last = Apply(op="-", args=(tiles.positions, integer(1)), dtype="i32")
    counter = x.Ref(base=COUNTER, subs=(x.Point(at=integer(0)),))
    emit_op(
        ctx,
        x.Op(
            op="draw", executor="one", operands={"dst": drawn, "counter": counter, "last": last}, reason=WHY, span=span
        ),
    )
    total = Apply(op="+", args=(Sym(name="%grid"), drawn), dtype="i32")
    ctx.emit(x.Let(name=following.name, dtype="i32", value=total, reason="tiles", span=span))
    if RING not in ctx.kernel.rings:
        return
    ctx.cursors[f"{RING}.fill"] = SLOTS
    place = x.Ref(base=NEXT, slot=slot, subs=(x.Point(at=integer(0)),))
    ctx.emit(
        x.Wait(executor="one", barrier=f"{RING}.empty", slot=slot, ahead=-1, reason=WHY, span=span),
        x.Op(
            op="store",
            executor="one",
            operands={"dst": place, "value": following},
            attrs={"vector": 1},
            reason=WHY,
            span=span,
        ),
        x.Arrive(executor="one", barrier=f"{RING}.full", slot=slot, reason=WHY, span=span),
        x.Cursor(executor="one", cursor=f"{RING}.fill", reason="advance", span=span),
    )


def _receive(ctx: RoleContext, following: Sym) -> None:
    tiles = ctx.kernel.tiles
    assert tiles is not None
    span, cursor = tiles.declaration.schedule.span, f"{RING}.wait"
    slot = x.Slot(cursor=cursor)
    ctx.cursors[cursor] = SLOTS
    executor: x.Executor = "one" if ctx.solo else "lanes"
    place = x.Ref(base=NEXT, slot=slot, subs=(x.Point(at=integer(0)),))
    ctx.emit(
        x.Wait(executor=executor, barrier=f"{RING}.full", slot=slot, reason=WHY, span=span),
        x.Op(op="load_scalar", executor=executor, operands={"dst": following, "src": place}, reason=WHY, span=span),
    )
    if not ctx.solo:
        ctx.emit(x.SyncWarp(reason=WHY, span=span))
    ctx.emit(
        x.Arrive(executor="one" if ctx.solo else "warp", barrier=f"{RING}.empty", slot=slot, reason=WHY, span=span),
        x.Cursor(executor=executor, cursor=cursor, reason="advance", span=span),
    )
