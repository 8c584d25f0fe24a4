"""Mutators of fences, semantics, groups, registers in flight, aliases and flags (20-26, 28, 29, 39, 42)."""

from __future__ import annotations

from collections.abc import Iterator

from cake.ir import expanded as x
from cake.ir.expr import Apply, Const, Sym, boolean, integer, registers
from tests.mutation.site import Site, mutator, sites, test, update

Found = Iterator[tuple[str, x.Kernel | None]]


def _fences(k: x.Kernel) -> Iterator[Site]:
    return (s for s in sites(k, x.Fence) if s.node.what.startswith("async"))


@mutator(20, "drop a proxy fence")
def drop_fence(k: x.Kernel) -> Found:
    for s in _fences(k):
        yield s.name, s.drop()


@mutator(21, "misplace a proxy fence")
def misplaced(k: x.Kernel) -> Found:
    for s in _fences(k):
        for by in (-4, -3, -2, -1, 1, 2, 3, 4):
            yield f"{s.name} moved {by:+}", s.move(by)
        for executor in ("one", "warp"):
            if s.node.executor != executor:
                yield f"{s.name} by {executor}", s.update(executor=executor)
        yield f"{s.name} of global memory", s.update(what="async_global")


@mutator(22, "weaken semantics or scope")
def weaker(k: x.Kernel) -> Found:
    for s in sites(k, x.Arrive, x.Wait):
        yield f"{s.name} relaxed", s.update(sem="relaxed")
        if s.node.scope != "cta":
            yield f"{s.name} cta", s.update(scope="cta")


@mutator(23, "group wait keeps one more")
def keep(k: x.Kernel) -> Found:
    for s in sites(k, x.GroupWait):
        for by in (1, 2):
            yield f"{s.name} +{by}", s.update(keep=s.node.keep + by)
        yield f"{s.name} dropped", s.drop()


@mutator(24, "commit dropped, doubled or moved")
def commits(k: x.Kernel) -> Found:
    for s in sites(k, x.Commit):
        yield f"{s.name} dropped", s.drop()
        yield f"{s.name} doubled", s.put(s.node, s.node)
        for by in (-2, -1, 1, 2):
            yield f"{s.name} moved {by:+}", s.move(by)


@mutator(25, "group wait by another thread")
def other_thread(k: x.Kernel) -> Found:
    """By another role that meets this one at a named barrier, or by another executor of the same role."""
    for s in sites(k, x.GroupWait):
        if s.role is None:
            continue
        barriers = {t.node.barrier for t in sites(k, x.Named) if t.role == s.role}
        for t in sites(k, x.Named):
            if t.role != s.role and t.node.barrier in barriers:
                added = t.put(t.node, s.node)
                again = next(u for u in sites(added) if u.role == s.role and u.path == s.path)
                yield f"{s.name} in {t.name}", again.drop()
        if not k.roles[s.role].solo:
            for executor in ("one", "warp", "lanes"):
                if executor != s.node.executor:
                    yield f"{s.name} by {executor}", s.update(executor=executor)
        for by in (-3, -2, -1, 1, 2, 3):
            yield f"{s.name} moved {by:+}", s.move(by)


@mutator(26, ".read for full, full for .read")
def reads(k: x.Kernel) -> Found:
    for s in sites(k, x.GroupWait):
        if s.node.queue == "bulk":
            yield s.name, s.update(read=not s.node.read)


@mutator(28, "registers touched in flight")
def in_flight(k: x.Kernel) -> Found:
    for s in sites(k, x.GroupWait):
        if s.node.queue == "wgmma":
            for by in range(1, 8):
                yield f"{s.name} later by {by}", s.move(by)
            yield f"{s.name} dropped", s.drop()
    for s in sites(k, x.Fence):
        if s.node.what == "wgmma":
            yield f"{s.name} dropped", s.drop()
            for by in (-2, -1, 1, 2):
                yield f"{s.name} moved {by:+}", s.move(by)


@mutator(28, "registers touched in flight")
def unset(k: x.Kernel) -> Found:
    """Registers that are read before they are set: a first product that adds, or comes at odd tiles only, an initialisation that
    is gone."""
    for s in sites(k, x.Op):
        walks = [loop for loop in s.loops if loop.role == "tiles"]
        if "use_acc" in s.node.operands and s.node.operands["use_acc"] != boolean(True):
            yield f"{s.name} always adds", s.update(operands={**s.node.operands, "use_acc": boolean(True)})
        elif s.node.op != "assign" or registers(s.node.operands["value"]):
            continue
        yield f"{s.name} dropped", s.drop()
        for walk in walks[-1:]:
            odd = Apply(op="%", args=(Sym(name=walk.var), integer(2)), dtype="i32")
            yield f"{s.name} at odd tiles", s.when(test("==", odd, 1))


@mutator(29, "alias or shift a buffer")
def alias(k: x.Kernel) -> Found:
    for b in k.buffers:
        for other in k.buffers:
            if other.offset != b.offset:
                yield f"{b.name} on {other.name}", _buffer(k, b, offset=other.offset)
        if b.slots > 1:
            yield f"{b.name} one slot", _buffer(k, b, slot_bytes=0)
            yield f"{b.name} slots overlap", _buffer(k, b, slot_bytes=b.slot_bytes // 2)
        if b.instances > 1:
            yield f"{b.name} instances share", _buffer(k, b, instance_bytes=0)


def _buffer(k: x.Kernel, b: x.Buffer, **fields: object) -> x.Kernel:
    return update(k, buffers=tuple(update(c, **fields) if c is b else c for c in k.buffers))


@mutator(39, "flags between CTAs")
def flags(k: x.Kernel) -> Found:
    for s in sites(k, x.Op):
        if s.node.op in ("signal", "wait_until"):
            yield f"{s.name} dropped", s.drop()
            for by in (-4, -3, -2, -1, 1, 2):
                yield f"{s.name} moved {by:+}", s.move(by)
            value = s.node.operands["value"]
            if isinstance(value, Const):
                for by in (-1, 1):
                    other = {**s.node.operands, "value": integer(int(value.value) + by)}
                    yield f"{s.name} value {by:+}", s.update(operands=other)


@mutator(42, "cp.async: wait, barrier and lag")
def cp_async(k: x.Kernel) -> Found:
    for s in sites(k, x.GroupWait):
        if s.node.queue == "cp_async":
            for by in (-2, -1, 1, 2):
                yield f"{s.name} moved {by:+}", s.move(by)
            yield f"{s.name} keep", s.update(keep=s.node.keep + 1)
            yield f"{s.name} by one", s.update(executor="one")
    for s in sites(k, x.Op):
        if s.node.op == "cp_async":
            for by in (-1, 1, 2, 3):
                yield f"{s.name} moved {by:+}", s.move(by)
