"""Mutators of waits, arrivals, counts, bytes and positions (classes 1-12)."""

from __future__ import annotations

from collections.abc import Iterator

from cake.ir import expanded as x
from cake.ir.expr import Sym
from tests.mutation.site import Site, mutator, sites, test, update

Found = Iterator[tuple[str, x.Kernel | None]]


def _releases(k: x.Kernel) -> Iterator[Site]:
    return (s for s in sites(k, x.Arrive) if s.node.form == "arrive")


@mutator(1, "drop a full wait")
def drop_wait(k: x.Kernel) -> Found:
    for s in sites(k, x.Wait):
        if s.node.ahead >= 0:
            yield s.name, s.drop()


@mutator(2, "drop an acquire")
def drop_acquire(k: x.Kernel) -> Found:
    for s in sites(k, x.Wait):
        if s.node.ahead < 0:
            yield s.name, s.drop()


@mutator(3, "drop a release")
def drop_release(k: x.Kernel) -> Found:
    for s in _releases(k):
        yield s.name, s.drop()
        for loop in s.loops[-1:]:
            yield f"{s.name} at the first", s.when(test(">", Sym(name=loop.var), loop.lo))


@mutator(4, "release earlier")
def earlier_release(k: x.Kernel) -> Found:
    for s in _releases(k):
        for by in (1, 2, 3, 4, 5):
            yield f"{s.name} by {by}", s.move(-by)


@mutator(5, "release of the wrong lag")
def release_lag(k: x.Kernel) -> Found:
    for s in _releases(k):
        for by in (-2, -1, 1, 2):
            slot = s.node.slot
            yield f"{s.name} {by:+}", s.update(slot=x.Slot(cursor=slot.cursor, back=slot.back + by))


@mutator(6, "leader-only release")
def leader(k: x.Kernel) -> Found:
    """One thread releases for all, and the count says so."""
    for barrier in k.barriers:
        mine = [
            s
            for s in _releases(k)
            if s.node.barrier == barrier.name and s.node.executor == "warp" and s.role is not None
        ]
        if not mine:
            continue
        warps = k.roles[mine[0].role or 0].warps
        body = k
        for s in mine:
            body = _again(body, s).update(executor="one")
        if warps > 1 and barrier.count % warps == 0:
            yield f"{barrier.name}", _count(body, barrier.name, barrier.count // warps)
        else:
            yield f"{barrier.name} as it was", body


def _again(k: x.Kernel, s: Site) -> Site:
    return next(t for t in sites(k) if t.role == s.role and t.path == s.path)


def _count(k: x.Kernel, name: str, count: int) -> x.Kernel:
    return update(k, barriers=tuple(update(b, count=count) if b.name == name else b for b in k.barriers))


@mutator(7, "barrier count")
def count(k: x.Kernel) -> Found:
    for b in k.barriers:
        for by in (-1, 1, 2, b.count):
            if b.count + by >= 1:
                yield f"{b.name} {by:+}", _count(k, b.name, b.count + by)


@mutator(8, "duplicate an arrival")
def duplicate(k: x.Kernel) -> Found:
    for s in sites(k, x.Arrive):
        yield s.name, s.put(s.node, s.node)
        yield f"{s.name} weight", s.update(weight=2)
        plain = update(s.node, form="arrive", bytes=0)
        if s.node.form != "arrive":
            yield f"{s.name} plain", s.put(s.node, plain)
        for loop in s.loops[-1:]:
            first = x.If(cond=test("==", Sym(name=loop.var), loop.lo), then=(plain,))
            yield f"{s.name} once a loop", s.put(s.node, first)


@mutator(9, "arrival by another")
def elsewhere(k: x.Kernel) -> Found:
    """By one instance for all, by another executor, or by another role at its end."""
    for s in sites(k, x.Arrive):
        role = k.roles[s.role] if s.role is not None else None
        if role is None:
            continue
        for executor in ("one", "warp", "lanes"):
            if executor != s.node.executor and not role.solo:
                yield f"{s.name} by {executor}", s.update(executor=executor)
        if role.var is not None:
            for w in (0, role.instances - 1):
                alone = update(s.node, weight=s.node.weight * role.instances)
                yield f"{s.name} by {w}", s.put(x.If(cond=test("==", Sym(name=role.var), w), then=(alone,)))
        for number, other in enumerate(k.roles):
            cursor = next(
                (
                    c
                    for c, n in other.cursors.items()
                    if s.node.slot.cursor and n == role.cursors.get(s.node.slot.cursor)
                ),
                None,
            )
            if number == s.role or cursor is None or s.node.form != "arrive":
                continue
            moved = update(s.node, slot=x.Slot(cursor=cursor, back=s.node.slot.back), weight=1)
            for t in sites(k, x.Cursor):
                if t.role == number and t.node.cursor == cursor and t.node.form == "advance":
                    yield f"{s.name} in {other.name}", _moved(s, t, moved)
                    break


def _moved(s: Site, t: Site, moved: x.Stmt) -> x.Kernel:
    added = t.put(t.node, moved)
    return _again(added, s).drop()


@mutator(10, "bytes and announcements")
def announcements(k: x.Kernel) -> Found:
    for s in sites(k, x.Arrive):
        n = s.node
        if n.form == "arrive":
            continue
        for size in (n.bytes - 16, n.bytes + 16, 2 * n.bytes, n.bytes // 2, 0):
            if size >= 0:
                yield f"{s.name} {size}", s.update(bytes=size)
        arrive, expect = update(n, form="arrive", bytes=0), update(n, form="expect")
        yield f"{s.name} does not arrive", s.put(expect)
        yield f"{s.name} arrives only", s.put(arrive)
        yield f"{s.name} arrives, then announces", s.put(arrive, expect)
        for by in (1, 2, 3):
            yield f"{s.name} later by {by}", s.move(by)
    for s in sites(k, x.Op):
        if s.node.op == "tma.load":
            yield f"{s.name} dropped", s.drop()
            yield f"{s.name} doubled", s.put(s.node, s.node)


@mutator(11, "wrong slot")
def slots(k: x.Kernel) -> Found:
    """Of a memory operand, of a completion, or another cursor."""
    for s in sites(k, x.Op):
        for name, ref in s.node.operands.items():
            if isinstance(ref, x.Ref) and ref.slot is not None:
                for by in (-1, 1):
                    slot = x.Slot(cursor=ref.slot.cursor, back=ref.slot.back + by)
                    yield (
                        f"{s.name} {name} {by:+}",
                        s.update(operands={**s.node.operands, name: update(ref, slot=slot)}),
                    )
        done = s.node.completion
        if isinstance(done, x.ByBarrier):
            for by in (-1, 1):
                slot = x.Slot(cursor=done.slot.cursor, back=done.slot.back + by)
                yield f"{s.name} signals {by:+}", s.update(completion=update(done, slot=slot))
            for other in k.barriers:
                if other.name != done.barrier:
                    yield f"{s.name} signals {other.name}", s.update(completion=update(done, barrier=other.name))
    for s in sites(k, x.Wait, x.Arrive):
        for other in k.barriers:
            if other.name != s.node.barrier:
                yield f"{s.name} on {other.name}", s.update(barrier=other.name)
        for by in (-1, 1):
            if isinstance(s.node, x.Wait):
                slot = x.Slot(cursor=s.node.slot.cursor, back=s.node.slot.back + by)
                yield f"{s.name} slot {by:+}", s.update(slot=slot)


@mutator(12, "wrong phase")
def phases(k: x.Kernel) -> Found:
    for s in sites(k, x.Wait):
        for by in (-1, 1):
            yield f"{s.name} {by:+}", s.update(ahead=s.node.ahead + by)
    for s in sites(k, x.For):
        if s.role is None:
            continue
        for cursor in k.roles[s.role].cursors:
            reset = x.Cursor(cursor=cursor, form="set", by=0)
            yield f"{s.name} restarts {cursor}", s.update(body=(reset, *s.node.body))
    for s in sites(k, x.Cursor):
        yield f"{s.name} dropped", s.drop()
        yield f"{s.name} doubled", s.put(s.node, s.node)
        if s.node.form == "advance":
            yield f"{s.name} by 2", s.update(by=s.node.by + 1)
            for by in (-2, -1, 1, 2):
                yield f"{s.name} moved {by:+}", s.move(by)
