"""Pipelines: fills, waits and releases, with what they derive (acquires, announcements, arrivals, fences, cursors).

The rules are those of docs/language.md, pipelines. Held counts are static: at each release the number of stages held is a
constant, except that a loop's first iteration may hold fewer (the releases in excess are then guarded).
"""

from __future__ import annotations

from cake.diagnostics import Label, Span
from cake.expand import clusters
from cake.expand import expressions as ex
from cake.expand.context import Abort, FillState, RingInfo, RoleContext
from cake.expand.functions import arguments
from cake.expand.order import instance_barrier
from cake.expand.values import Handle, Method, Poison, Reference, Unassigned, Value, describe
from cake.ir import expanded as x
from cake.ir import surface as s
from cake.ir.expr import Apply, Const, integer

GENERIC = ("store", "stmatrix")


def method(ctx: RoleContext, callee: Method, e: s.Call) -> Value | None:
    """``p.wait()``, ``p.release([keep=n])``; ``fill`` belongs to a `with`."""
    ring = ctx.kernel.rings[callee.ring]
    match callee.name:
        case "wait":
            arguments(ctx, e, ())
            return wait(ctx, ring, e.span)
        case "release":
            bound = arguments(ctx, e, (), ("keep",))
            keep = ex.constant_int(ctx, bound["keep"], "`keep`", low=0) if "keep" in bound else 0
            release(ctx, ring, keep, e.span)
            return None
        case "skip":
            skip(ctx, ring, e)
            return None
        case "fill":
            ctx.refuse("T019", "a fill is a block", e.span, help=f"write `with {ring.name}.fill() as s:`")
    ctx.refuse("T014", f"a pipeline has `fill`, `wait`, `release` and `skip`, not `{callee.name}`", e.span)


# ---- consumers ------------------------------------------------------------------------------------------------------


def _consumer(ctx: RoleContext, ring: RingInfo, what: str, span: Span) -> None:
    if ctx.role.name not in ring.consumers:
        ends = " + ".join(ring.consumers)
        ctx.refuse(
            "T024",
            f"role `{ctx.role.name}` {what} pipeline `{ring.name}`, whose consumer is {ends}",
            span,
            labels=(Label(span=ring.span, text="declared here"),),
        )


def wait(ctx: RoleContext, ring: RingInfo, span: Span) -> Handle:
    """Wait for the next full stage and hold it."""
    if ring.store:
        ctx.refuse("T024", f"`{ring.name}` is drained by the store engine: nobody waits for its stages", span)
    _consumer(ctx, ring, "waits on", span)
    held = ctx.state.held.get(ring.name, 0)
    if held >= ring.stages:
        if ring.name in ctx.broken:
            raise Abort
        ctx.refuse(
            "P110",
            f"role `{ctx.role.name}` waits for another stage of `{ring.name}` while it holds all {ring.stages}",
            span,
            labels=(Label(span=ring.span, text=f"{ring.stages} stages"), *where_held(ctx, ring.name)),
            facts=(f"{held} held before this wait",),
            help=f"raise the stages above {held}, or release earlier",
        )
    cursor = f"{ring.name}.wait"
    name = handle_cursor(ctx, ctx.hint, ring) if ctx.hint else ctx.fresh(ring.name)
    ctx.hint = None
    drop_stage(ctx, name)
    executor: x.Executor = "one" if ctx.solo else "lanes"
    ctx.emit(x.Wait(executor=executor, barrier=f"{ring.name}.full", slot=x.Slot(cursor=cursor), span=span))
    for slots in (ring.stages, *ring.longer):
        walked, kept = field_cursor(cursor, ring, slots), field_cursor(name, ring, slots)
        ctx.cursors[walked] = ctx.cursors[kept] = slots
        ctx.emit(
            x.Cursor(executor=executor, cursor=kept, form="copy", source=walked, reason="handle", span=span),
            x.Cursor(executor=executor, cursor=walked, reason="advance", span=span),
        )
    ctx.state.held[ring.name] = held + 1
    handle = Handle(name, ring.name, x.Slot(cursor=name), "wait", span=span)
    ctx.queues.setdefault(ring.name, []).append(handle)
    return handle


def handle_cursor(ctx: RoleContext, name: str, ring: RingInfo) -> str:
    """The cursor that keeps a handle's position: the handle's name, unless that walks a ring of other length elsewhere."""
    return name if ctx.cursors.get(name, ring.stages) == ring.stages else f"{name}.{ring.name}"


def skip(ctx: RoleContext, ring: RingInfo, e: s.Call) -> None:
    """``p.skip(n)``: move past n stages that other instances consume. The next wait must be ordered after their fills: only
    the parity of a barrier is seen, and an older phase has the same."""
    bound = arguments(ctx, e, ("n",))
    _consumer(ctx, ring, "skips stages of", e.span)
    if not ring.one:
        ctx.refuse(
            "T024",
            f"every instance of `{ctx.role.name}` consumes every stage of `{ring.name}`",
            e.span,
            labels=(Label(span=ring.span, text="declared here"),),
            help=f"give each stage to one instance: `{' + '.join(ring.producers)} -> one {ctx.role.name}`",
        )
    held = ctx.state.held.get(ring.name, 0)
    if held and ring.name not in ctx.broken:
        ctx.refuse("P109", f"{held} stages of `{ring.name}` are held here", e.span, help="release them before the skip")
    count = ex.int_expr(ctx, bound["n"], "as the number of stages")
    if ctx.facts.prove(Apply(op="<", args=(count, integer(0)), dtype="bool")) is True:
        ctx.refuse("T008", "a cursor does not move back", e.span)
    if count == integer(0):
        return
    cursor = f"{ring.name}.wait"
    for slots in (ring.stages, *ring.longer):
        walked = field_cursor(cursor, ring, slots)
        ctx.cursors[walked] = slots
        ctx.emit(
            x.Cursor(executor="one" if ctx.solo else "lanes", cursor=walked, count=count, reason="skip", span=e.span)
        )


def field_cursor(cursor: str, ring: RingInfo, slots: int) -> str:
    """The cursor through which fields of ``slots`` slots are reached: one of their own where they linger."""
    return cursor if slots == ring.stages else f"{cursor}.{slots}"


def drop_stage(ctx: RoleContext, cursor: str) -> None:
    """References to a stage lose their meaning when its cursor moves on."""
    for other, value in list(ctx.env.items()):
        if isinstance(value, Reference) and value.handle is not None and value.handle.slot.cursor == cursor:
            ctx.env[other] = Unassigned(other)


def release(ctx: RoleContext, ring: RingInfo, keep: int, span: Span) -> None:
    """Give back the oldest stages until ``keep`` are held."""
    _consumer(ctx, ring, "releases", span)
    if ring.name in ctx.broken:
        raise Abort
    held = ctx.state.held.get(ring.name, 0)
    count = max(0, held - keep)
    places = ctx.given_back.setdefault(ring.name, [])
    if span not in places:
        places.append(span)
    site = (span.line, span.column, ctx.path)
    if ctx.releases is not None:
        ctx.releases[site] = count
    ctx.counts[site] = count
    first = ctx.first_pass.get(site, count) if ctx.first_pass is not None else count
    if count == 0 and first == 0 and held == 0 and ctx.releases is None:
        ctx.refuse(
            "P109",
            f"no stage of `{ring.name}` is held here",
            span,
            help="release after a wait; `release(keep=n)` gives back all but the newest n",
        )
    if first > count:
        ctx.refuse(
            "P109",
            f"the first iteration would release {first} stages of `{ring.name}` here and later ones {count}",
            span,
            help="make the number of stages held the same in every iteration",
        )
    extra = count - first
    for i in range(count):
        step = _give_back(ctx, ring, held - i, span)
        if i >= count - extra and ctx.first_condition is not None:
            ctx.emit(x.If(cond=ctx.first_condition, then=step, reason="first iteration holds fewer", span=span))
        else:
            ctx.emit(*step)
    ctx.state.held[ring.name] = held - count
    known = ctx.queues.get(ring.name, [])
    unknown = max(0, held - len(known))
    for i in range(count):
        for handle in ctx.state.released:
            if handle.ring == ring.name:
                ctx.state.released[handle] += 1
        if i >= unknown and known:
            ctx.state.released[known.pop(0)] = 0


def where_held(ctx: RoleContext, ring: str) -> tuple[Label, ...]:
    """Where the newest stages that are held were waited for, and where some are given back."""
    waits = dict.fromkeys(h.span for h in reversed(ctx.queues.get(ring, [])) if h.span is not None)
    releases = reversed(ctx.given_back.get(ring, []))
    return (
        *(Label(span=span, text="waited for here") for span in [*waits][:2]),
        *(Label(span=span, text="given back here") for span in [*releases][:3]),
    )


def _give_back(ctx: RoleContext, ring: RingInfo, back: int, span: Span) -> tuple[x.Stmt, ...]:
    slot = x.Slot(cursor=f"{ring.name}.wait", back=back)
    barrier, peers = f"{ring.name}.empty", clusters.writers(ctx.kernel, ring)
    if ctx.solo:
        return (x.Arrive(executor="one", barrier=barrier, slot=slot, peers=peers, reason="release", span=span),)
    steps: list[x.Stmt] = []
    if ring.name in ctx.generic and ring.refilled_async:
        steps.append(x.Fence(what="async_shared", reason="release: read generically, refilled by TMA", span=span))
    steps.append(x.SyncWarp(reason="release", span=span))
    steps.append(x.Arrive(executor="warp", barrier=barrier, slot=slot, peers=peers, reason="release", span=span))
    return tuple(steps)


# ---- producers ------------------------------------------------------------------------------------------------------


def fill(ctx: RoleContext, ring: RingInfo, statement: s.With, call: s.Call) -> None:
    """``with p.fill() as s:``."""
    bound = arguments(ctx, call, (), ("when",))
    if "when" in bound:
        ctx.not_built("a conditional fill, which belongs to self-rings,", call.span)
    if ctx.fill is not None:
        ctx.refuse("T019", "fills do not nest", statement.span)
    if ctx.role.name not in ring.producers:
        ctx.refuse(
            "T024",
            f"role `{ctx.role.name}` fills pipeline `{ring.name}`, whose producer is {' + '.join(ring.producers)}",
            statement.span,
            labels=(Label(span=ring.span, text="declared here"),),
        )
    if statement.name:
        check_stage_name(ctx, statement.name, statement.span)
    if ring.store:
        _fill_store(ctx, ring, statement)
        return
    cursor = f"{ring.name}.fill"
    ctx.cursors[cursor] = ring.stages
    slot = x.Slot(cursor=cursor)
    handle = Handle(statement.name or cursor, ring.name, slot, "fill", span=statement.span)
    state = FillState(handle, ring, depth=len(ctx.control))
    by_tma = ring.mechanisms.get(ctx.role.name, set()) <= {"tma.load"} and bool(ring.fields)
    executor: x.Executor = "one" if by_tma or ctx.solo else "lanes"
    ctx.emit(
        x.Wait(
            executor=executor,
            barrier=f"{ring.name}.empty",
            slot=slot,
            ahead=-1,
            reason="acquire",
            span=statement.span,
        )
    )
    body = _body(ctx, state, statement)
    barrier, span = f"{ring.name}.full", statement.span
    peers = clusters.readers(ctx.kernel, ring)
    if ring.across and ring.refilled_async:
        ctx.refuse(
            "T015",
            f"stages of `{ring.name}` are filled across CTAs, which only ordinary stores tell one another",
            span,
            help="`store` or `stmatrix`; TMA fills a pipeline of the CTA's own",
        )
    if by_tma:
        ctx.emit(
            x.Arrive(
                executor="one",
                barrier=barrier,
                slot=slot,
                form="arrive_expect",
                bytes=state.bytes,
                reason="announce",
                span=span,
            ),
            *body,
        )
        arrivals = 1
    else:
        if state.bytes:
            ctx.emit(
                x.Arrive(
                    executor="one",
                    barrier=barrier,
                    slot=slot,
                    form="expect",
                    bytes=state.bytes,
                    reason="announce",
                    span=span,
                )
            )
        ctx.emit(*body)
        if ctx.solo:
            ctx.emit(x.Arrive(executor="one", barrier=barrier, slot=slot, peers=peers, reason="filled", span=span))
            arrivals = 1
        else:
            if state.kinds & set(GENERIC):
                ctx.emit(x.Fence(what="async_shared", reason="filled by ordinary stores", span=span))
            ctx.emit(
                x.SyncWarp(reason="filled", span=span),
                x.Arrive(executor="warp", barrier=barrier, slot=slot, peers=peers, reason="filled", span=span),
            )
            arrivals = ctx.role.warps
    ring.arrivals[ctx.role.name] = arrivals * ctx.role.instances
    for slots in (ring.stages, *ring.longer):
        walked = field_cursor(cursor, ring, slots)
        ctx.cursors[walked] = slots
        ctx.emit(x.Cursor(executor=executor, cursor=walked, reason="advance", span=span))
    drop_stage(ctx, cursor)
    _covered(ctx, state, statement)


def check_stage_name(ctx: RoleContext, name: str, span: Span) -> None:
    """`as name` gives a new name, or that of another stage."""
    from cake.expand.statements import check_name

    check_name(ctx, name, span)
    old = ctx.env.get(name)
    if old is not None and not isinstance(old, Handle | Unassigned | Poison):
        ctx.refuse("T020", f"`{name}` is {describe(old)} and cannot become a stage", span, help="use another name")


def _body(ctx: RoleContext, state: FillState, statement: s.With) -> list[x.Stmt]:
    from cake.expand.statements import run_block

    saved = ctx.env.get(statement.name) if statement.name else None
    if statement.name:
        ctx.env[statement.name] = state.handle
    ctx.fill = state
    try:
        with ctx.block() as body:
            run_block(ctx, statement.body)
    finally:
        ctx.fill = None
        if statement.name and state.handle.role == "fill":
            if saved is not None:
                ctx.env[statement.name] = saved
            else:
                ctx.env.pop(statement.name, None)
    return body


def _fill_store(ctx: RoleContext, ring: RingInfo, statement: s.With) -> None:
    if ring.name in ctx.unstored:
        ctx.refuse(
            "T019",
            f"the previous stage of `{ring.name}` was filled and never stored",
            statement.span,
            labels=(Label(span=ctx.unstored[ring.name].span, text="filled here"),),
            help="follow each fill with `tma.store(dst, s.field)`",
        )
    cursor, span = f"{ring.name}.fill", statement.span
    name = handle_cursor(ctx, statement.name, ring) if statement.name else ctx.fresh(ring.name)
    drop_stage(ctx, name)
    ctx.cursors[cursor] = ring.stages
    ctx.cursors[name] = ring.stages
    handle = Handle(name, ring.name, x.Slot(cursor=name), "store", span=span)
    why = "store ring"
    ctx.emit(
        x.GroupWait(executor="one", queue="bulk", keep=ring.stages - 1, read=True, reason=why, span=span),
        instance_barrier(ctx, why, span),
        x.Cursor(cursor=name, form="copy", source=cursor, reason="handle", span=span),
    )
    state = FillState(handle, ring, depth=len(ctx.control))
    ctx.emit(*_body(ctx, state, statement))
    ctx.emit(
        x.Fence(what="async_shared", reason=why, span=span),
        instance_barrier(ctx, why, span),
        x.Cursor(cursor=cursor, reason="advance", span=span),
    )
    ctx.unstored[ring.name] = handle
    ctx.bulk = True
    _covered(ctx, state, statement)


# ---- coverage -------------------------------------------------------------------------------------------------------


def note_write(ctx: RoleContext, ref: Reference, kind: str, span: Span) -> None:
    """Record a write to the stage being filled."""
    state = ctx.fill
    if state is None or ref.handle is not state.handle:
        return
    state.kinds.add(kind)
    if len(ctx.control) > state.depth:
        if kind == "tma.load":
            control = ctx.control[state.depth]
            ctx.refuse(
                "D209",
                f"a fill of `{state.ring.name}` writes a constant number of bytes, and this load depends on a {control}",
                span,
                help="unroll the loop"
                if control == "loop"
                else "load always: rows outside the tensor are filled with zeros",
            )
        state.symbolic = True
        return
    box: list[tuple[int, int]] = []
    for sub, extent in zip(ref.subs, ref.storage.extents, strict=True):
        if isinstance(sub, x.Range):
            start = ctx.facts.constant(sub.start)
            if start is None:
                state.symbolic = True
                return
            box.append((start, start + sub.size))
        elif isinstance(sub, x.Point):
            at = ctx.facts.constant(sub.at)
            if at is None:
                state.symbolic = True
                return
            box.append((at, at + 1))
        else:
            lo, hi = _span_of(ctx, sub, ref)
            if lo is None or hi is None:
                state.symbolic = True
                return
            assert isinstance(extent, Const)
            box.append((lo, hi + 1))
    state.boxes.append((ref.storage.name, tuple(box), span))


def _span_of(ctx: RoleContext, sub: x.Elem, ref: Reference) -> tuple[int | None, int | None]:
    from cake.expand.moves import element_facts

    return element_facts(ctx, ref.domain, None).range(sub.index)


def _covered(ctx: RoleContext, state: FillState, statement: s.With) -> None:
    """Every byte of every field is written exactly once (D209, D203), where the places are constants; the machine checks the
    others on each run."""
    if state.symbolic or len(state.ring.producers) > 1:
        return
    for field, buffer in state.ring.fields.items():
        boxes = [(box, span) for name, box, span in state.boxes if name == buffer]
        shape = ctx.kernel.buffers[buffer].shape
        volume = 0
        for i, (box, span) in enumerate(boxes):
            for other, first in boxes[:i]:
                if all(a[0] < b[1] and b[0] < a[1] for a, b in zip(box, other, strict=True)):
                    ctx.error(
                        "D203",
                        f"two moves of one fill write the same part of `{field}`",
                        span,
                        labels=(Label(span=first, text="written first here"),),
                        help="each byte of a stage is written once",
                    )
                    return
            size = 1
            for lo, hi in box:
                size *= hi - lo
            volume += size
        total = 1
        for n in shape:
            total *= n
        if volume < total and ctx.role.instances == 1:
            ctx.error(
                "D209",
                f"the fill of `{state.ring.name}` writes {volume} of the {total} elements of `{field}`",
                statement.span,
                help="write every element of every field, each once",
            )
