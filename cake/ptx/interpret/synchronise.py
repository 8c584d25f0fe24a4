"""Instructions that synchronise: mbarriers, barriers of CTA, cluster and warp, fences (PTX ISA 9.7.13)."""

from __future__ import annotations

from cake.ptx.interpret.alu import LANES, Value, uniform
from cake.ptx.interpret.barriers import WIDE, MBarrier, Named
from cake.ptx.interpret.clocks import GLOBAL, SHARED, Clock, Knowledge, raise_to
from cake.ptx.interpret.cta import Cta
from cake.ptx.interpret.ends import settle_cluster
from cake.ptx.interpret.handlers import Handler
from cake.ptx.interpret.machine import Machine
from cake.ptx.interpret.outcome import Broken, Finding, Undecided
from cake.ptx.interpret.program import Step
from cake.ptx.interpret.regions import span
from cake.ptx.interpret.shadow import Access
from cake.ptx.interpret.warps import ALL, Fiber, Strand, Watched, lanes

SCOPES = ("cta", "cluster", "gpu", "sys")


def scope(s: Step, default: str = "cta") -> str:
    """Of an instruction."""
    return next((p for p in s.parts if p in SCOPES), default)


def relaxed(s: Step) -> bool:
    """Whether it has no release or acquire semantics."""
    return "relaxed" in s.parts


# ---- mbarriers (9.7.13.15) ----------------------------------------------------------------------------------------------


def mbarrier_at(m: Machine, fiber: Fiber, at: object, mask: int) -> tuple[Cta, MBarrier]:
    """The mbarrier of an operand, which all who use it must know to be initialised."""
    cta, address = m.cta_of(fiber, m.address(fiber, at, mask))
    if cta.done:
        raise Broken(Finding("peer", f"an mbarrier of CTA {cta.number} is used after that CTA has ended"))
    barrier = cta.barriers.get(address)
    if barrier is None:
        raise Broken(Finding("lifetime", f"there is no mbarrier at byte {address} of shared memory"))
    initialised(m, fiber, barrier, mask)
    return cta, barrier


def initialised(m: Machine, fiber: Fiber, barrier: MBarrier, mask: int) -> None:
    """Report a use that need not see the initialisation (9.7.13.15.9; across CTAs also the fence, 9.7.13.5)."""
    if any(k.visible[barrier.component] < 0 for k in m.know(fiber.strands(mask))):
        m.report("lifetime", f"the initialisation of {barrier.name} need not be seen here")
    if barrier.cta != fiber.warp.cta and not barrier.fenced:
        m.report("lifetime", f"{barrier.name} of another CTA is used, but no fence.mbarrier_init published it")


def _init(m: Machine, fiber: Fiber, s: Step, mask: int) -> None:
    cta, address = m.cta_of(fiber, m.address(fiber, s.args[0], mask))
    assert isinstance(s.args[1], int)
    count = m.one(fiber, s.args[1], mask, "a count")
    if address % 8:
        raise Broken(Finding("address", f"an mbarrier at byte {address} is not aligned"))
    if address in cta.barriers:
        m.report("lifetime", f"the mbarrier at byte {address} is initialised twice")
    (strand, *_) = fiber.strands(mask)
    line, place = m.place(s)
    access = Access(
        strand.component, strand.epoch, "an mbarrier", f"mbarrier {address}", True, barrier=True, line=line, place=place
    )
    cta.memory.write(span(address, 8, cta.memory.piece), access, m.know([strand]), m.report)
    name = f"the mbarrier at byte {address} of CTA {cta.number}"
    barrier = MBarrier(name, cta.number, address, count, m.component(), m.message(), m.message())
    cta.barriers[address] = barrier
    strand.knowledge.finished(barrier.component, 0)
    strand.inits.append(barrier)


def _invalidate(m: Machine, fiber: Fiber, s: Step, mask: int) -> None:
    cta, barrier = mbarrier_at(m, fiber, s.args[0], mask)
    del cta.barriers[barrier.address]
    (strand, *_) = fiber.strands(mask)
    access = Access(strand.component, strand.epoch, "mbarrier.inval", f"inval {barrier.address}", True)
    region = span(barrier.address, 8, cta.memory.piece)
    cta.memory.writer[region] = cta.memory.number(access)


def _release(m: Machine, s: Step, strand: Strand, barrier: MBarrier) -> None:
    """Tell the running phase what a strand knows."""
    wide = scope(s) in WIDE
    cta = strand.key[0]
    if relaxed(s):
        barrier.running.order(_promised(strand))
        if strand.fenced is not None:
            barrier.running.add(strand.fenced[1], cta, wide and strand.fenced[0] in WIDE)
    else:
        barrier.running.add(strand.settle(), cta, wide)


def _promised(strand: Strand) -> Clock:
    """What is before a relaxed arrival: not the strand's own accesses since its last fence (8.8)."""
    happened = strand.knowledge.happened.copy()
    happened[strand.component] = strand.released
    return happened


def _arrive(m: Machine, fiber: Fiber, s: Step, mask: int) -> None:
    """mbarrier.arrive and .arrive.expect_tx: by each lane for itself."""
    cta, barrier = mbarrier_at(m, fiber, s.args[1], mask)
    operand = s.args[2] if len(s.args) > 2 else None
    number = m.one(fiber, operand, mask, "a count") if isinstance(operand, int) else 1
    expects = "expect_tx" in s.parts
    for strand in fiber.strands(mask):
        phase = None
        for _ in lanes(strand.mask & mask):
            if phase != barrier.phase:
                _release(m, s, strand, barrier)
                if cta.number != fiber.warp.cta:  # which must not end before
                    epoch = strand.released if relaxed(s) else strand.epoch - 1
                    text = f"an arrival of warp {fiber.warp.number} at {barrier.name}"
                    cta.touches.append((strand.component, epoch, text))
                phase = barrier.phase
            if expects:
                barrier.transfer(number)
            barrier.arrive(1 if expects else number)


def _expect(m: Machine, fiber: Fiber, s: Step, mask: int) -> None:
    """mbarrier.expect_tx: announces bytes, publishes nothing."""
    _, barrier = mbarrier_at(m, fiber, s.args[0], mask)
    assert isinstance(s.args[1], int)
    size = m.one(fiber, s.args[1], mask, "a number of bytes")
    for strand in fiber.strands(mask):
        for _ in lanes(strand.mask & mask):
            barrier.transfer(size)


def _wait(m: Machine, fiber: Fiber, s: Step, mask: int) -> Watched | None:
    """try_wait.parity: may be false whenever it likes, so the second failure without anything between blocks."""
    predicate, at, parity_operand = s.args[:3]
    _, barrier = mbarrier_at(m, fiber, at, mask)
    assert isinstance(predicate, int) and isinstance(parity_operand, int)
    parity = m.one(fiber, parity_operand, mask, "a parity")
    if fiber.since is not None and barrier.phase - fiber.since >= 2:
        text = f"{barrier.name} has completed two phases while a thread waits for the first, {fiber.since}"
        m.report("overrun", text)
    if not barrier.complete(parity):
        here = (s.at, id(barrier), barrier.version)
        if fiber.polled == here:
            return barrier
        fiber.polled = here
        fiber.since = barrier.phase
        fiber.registers[predicate] = _some(fiber, fiber.registers[predicate], False, mask)
        return None
    fiber.polled = fiber.since = None
    fiber.registers[predicate] = _some(fiber, fiber.registers[predicate], True, mask)
    wide = scope(s) in WIDE
    for strand in fiber.strands(mask):
        k = strand.knowledge
        if relaxed(s):
            k.order(barrier.last.happened)
            part = Knowledge(m.size)
            barrier.last.give(part, fiber.warp.cta, True)
            part.finished(barrier.component, barrier.phase)
            strand.pending.append((scope(s), part))
        else:
            barrier.last.give(k, fiber.warp.cta, wide)
            strand.met(barrier.last.seen(strand.component, fiber.warp.cta, wide))
        k.finished(barrier.component, barrier.phase, visible=not relaxed(s))
        m.note(strand, s, ("phase", barrier.address, barrier.phase))
    return None


def _some(fiber: Fiber, old: Value, new: Value, mask: int) -> Value:
    """``new`` in the lanes of ``mask``."""
    if mask == fiber.mask:
        return new
    return uniform(tuple(new if mask >> n & 1 else old[n] if type(old) is tuple else old for n in range(LANES)))


# ---- barriers of a CTA (9.7.13.1), of a cluster (9.7.13.4), of a warp (9.7.13.2) ------------------------------------------


def _barrier(m: Machine, fiber: Fiber, s: Step, mask: int) -> Watched | None:
    if fiber.mask != ALL:
        raise Broken(
            Finding("divergence", f"{fiber.mask.bit_count()} lanes of a warp come to a barrier that needs all")
        )
    cta = m.ctas[fiber.warp.cta]
    number = m.one(fiber, s.args[0], mask, "a barrier's number") if s.args and isinstance(s.args[0], int) else 0
    expected = LANES * len(cta.warps)
    if len(s.args) > 1 and isinstance(s.args[1], int):
        expected = m.one(fiber, s.args[1], mask, "a number of threads")
    elif any(w.exited for w in cta.warps):
        raise Undecided("a barrier of all threads after some have left")
    if not 0 <= number < 16:
        raise Broken(Finding("barrier", f"there is no barrier {number}"))
    barrier = cta.named.get(number)
    if barrier is None:
        barrier = cta.named[number] = Named(number, cta.number, m.message())
    sync = "arrive" not in s.parts
    if fiber.joined is None:
        for strand in fiber.strands():
            barrier.running.add(strand.settle(), cta.number, False)
        fiber.joined = barrier.arrive(LANES, expected, fiber.warp.number, sync)
    if sync:
        if barrier.generation <= fiber.joined:
            return barrier
        for strand in fiber.strands():
            message = barrier.messages[fiber.joined]
            message.give(strand.knowledge, cta.number, False)
            strand.met(message.seen(strand.component, cta.number, False))
            m.note(strand, s, ("barrier", number, fiber.joined))
    fiber.joined = None
    return None


def _cluster(m: Machine, fiber: Fiber, s: Step, mask: int) -> Watched | None:
    cta = m.ctas[fiber.warp.cta]
    barrier = cta.cluster
    strands = fiber.strands(mask)
    if "arrive" in s.parts:
        for strand in strands:
            if strand.cluster_arrived is not None:
                m.report("barrier", "a thread arrives twice at the cluster barrier without waiting")
            strand.cluster_arrived = barrier.generation
            if relaxed(s):
                barrier.running.order(_promised(strand))
                barrier.running.add(strand.initialised, cta.number, True)
            else:
                barrier.running.add(strand.settle(), cta.number, True)
        barrier.arrived += mask.bit_count()
        settle_cluster(m, cta)
        return None
    for strand in strands:
        if strand.cluster_arrived is None:
            raise Broken(Finding("barrier", "a thread waits for the cluster barrier without having arrived"))
        if barrier.generation <= strand.cluster_arrived:
            return barrier
    for strand in strands:
        strand.cluster_arrived = None
        barrier.last.give(strand.knowledge, cta.number, True)
        strand.met(barrier.last.seen(strand.component, cta.number, True))
    return None


def _warp(m: Machine, fiber: Fiber, s: Step, mask: int) -> None:
    """bar.warp.sync: memory order among the lanes."""
    strands = fiber.strands()
    together = strands[0].settle().copy()
    for strand in strands[1:]:
        together.join(strand.settle())
    for strand in strands:
        strand.knowledge.join(together)
        strand.met(strand.epoch)


def met(fiber: Fiber) -> None:
    """A warp-wide instruction that orders no memory: nobody is behind it before all have come."""
    strands = fiber.strands()
    state = tuple((s.component, s.epoch, s.knowledge.version) for s in strands)
    if fiber.warp.met == state and not any(s.accesses for s in strands):
        return  # nothing new since the last time
    together = strands[0].knowledge.happened.copy()
    for strand in strands:
        strand.knowledge.happened[strand.component] = strand.epoch
        raise_to(together, strand.knowledge.happened)
    for strand in strands:
        strand.epoch += 1
        strand.accesses.clear()
        strand.knowledge.order(together)
    fiber.warp.met = tuple((s.component, s.epoch, s.knowledge.version) for s in strands)


# ---- fences (9.7.13.5) --------------------------------------------------------------------------------------------------


def _fence(m: Machine, fiber: Fiber, s: Step, mask: int) -> None:
    op = ".".join(s.parts)
    strands = fiber.strands(mask)
    if op.startswith("fence.mbarrier_init"):
        for strand in strands:
            for barrier in strand.inits:
                barrier.fenced = True
                strand.initialised.finished(barrier.component, 0)
            strand.inits = []
        return
    if op.startswith("fence.proxy.async"):
        spaces = (SHARED,) if "shared" in op else (GLOBAL,) if op.endswith("global") else (SHARED, GLOBAL)
        for strand in strands:
            k = strand.settle()
            for space in spaces:
                k.publish(strand.own(), space)
        return
    if not op.startswith(("fence.acq_rel", "fence.sc", "membar")):
        raise Undecided(f"the instruction {op}")
    wide = {"membar.cta": "cta", "membar.gl": "gpu", "membar.sys": "sys"}.get(op) or scope(s)
    for strand in strands:
        for found, part in strand.pending:
            if (found in WIDE and wide in WIDE) or found == wide:
                strand.knowledge.join(part)
        strand.pending = []
        strand.fenced = (wide, strand.settle().copy())
        strand.released = strand.epoch - 1


def _registers(m: Machine, fiber: Fiber, s: Step, mask: int) -> Watched | None:
    """setmaxnreg (9.7.20.5): an increase waits for registers that others gave back."""
    warp, cta = fiber.warp, m.ctas[fiber.warp.cta]
    if warp.registers is None:
        return None
    assert isinstance(s.args[0], int)
    wanted = m.one(fiber, s.args[0], mask, "a number of registers")
    more = (wanted - warp.registers) * LANES
    if more > cta.pool.free:
        return cta.pool
    cta.pool.free -= more
    if more < 0:
        cta.pool.changed()
    warp.registers = wanted
    return None


def _nothing(m: Machine, fiber: Fiber, s: Step, mask: int) -> None:
    """No effect that is followed."""


HANDLERS: dict[str, Handler] = {
    "mbarrier.init": Handler(_init),
    "mbarrier.inval": Handler(_invalidate),
    "mbarrier.arrive": Handler(_arrive, results=(0,)),
    "mbarrier.expect_tx": Handler(_expect),
    "mbarrier.try_wait.parity": Handler(_wait, results=(0,)),
    "mbarrier.test_wait.parity": Handler(_wait, results=(0,)),
    "barrier.cta": Handler(_barrier, collective=True),
    "barrier.cluster": Handler(_cluster, collective=True),
    "bar.sync": Handler(_barrier, collective=True),
    "bar.arrive": Handler(_barrier, collective=True),
    "bar.warp.sync": Handler(_warp, collective=True),
    "fence": Handler(_fence),
    "membar": Handler(_fence),
    "setmaxnreg": Handler(_registers, collective=True),
    "griddepcontrol": Handler(_nothing),
}
