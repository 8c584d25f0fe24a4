"""Asynchronous copies: cp.async (PTX ISA 9.7.9.25.3) and the TMA (9.7.9.27), with their groups and completions.

A copy is noted when it is issued: it may read and write at any time until whoever depends on it has waited as
prescribed. Only completions that others can observe have a time: bytes and arrivals at an mbarrier.
"""

from __future__ import annotations

from dataclasses import dataclass

from cake.ptx.interpret.barriers import MBarrier
from cake.ptx.interpret.clocks import Clock
from cake.ptx.interpret.cta import Cta
from cake.ptx.interpret.handlers import Handler
from cake.ptx.interpret.lanes import spread
from cake.ptx.interpret.launch import RANK, SHARED, TensorMap
from cake.ptx.interpret.machine import Machine
from cake.ptx.interpret.memory import crossed
from cake.ptx.interpret.outcome import Broken, Finding, Undecided
from cake.ptx.interpret.program import At, Step
from cake.ptx.interpret.regions import Region, box, elements, span
from cake.ptx.interpret.shadow import Access
from cake.ptx.interpret.synchronise import initialised, mbarrier_at
from cake.ptx.interpret.warps import Fiber, Strand, Watched, lanes


@dataclass(eq=False)
class Delivery:
    """Bytes of a copy that arrive at a barrier, or (``weight``) arrivals that a cp.async triggers."""

    number: int
    barrier: MBarrier
    size: int
    accesses: list[Access]
    happened: Clock
    weight: int = 0

    def land(self, m: Machine) -> None:
        """They arrive: the accesses are covered by the phase in which they do."""
        b = self.barrier
        b.landing.remove(self)
        if m.ctas[b.cta].done:
            m.report("peer", f"a copy ends at {b.name}, whose CTA has ended")
            return
        for a in self.accesses:
            a.upto = b.phase + 1
        b.running.order(self.happened)
        if self.weight:
            for _ in range(self.weight):
                b.arrive(1)
        else:
            b.transfer(-self.size)
            b.settle()


def _deliver(m: Machine, delivery: Delivery) -> None:
    m.issued += 1
    delivery.number = m.issued
    delivery.barrier.landing.append(delivery)
    m.landings.append(delivery)


def _single(fiber: Fiber, mask: int) -> Strand:
    return fiber.strands(mask)[0]


def _order(strand: Strand) -> Clock:
    """What is before a copy that is issued now."""
    happened = strand.knowledge.happened.copy()
    happened[strand.component] = strand.epoch
    strand.epoch += 1
    strand.accesses.clear()
    return happened


def _map(m: Machine, fiber: Fiber, at: object, mask: int) -> tuple[TensorMap, tuple[int, ...]]:
    """A tensor map and the signed coordinates of a box."""
    assert isinstance(at, At)
    found = m.maps.get(m.one(fiber, at.register, mask, "a tensor map"))
    if found is None:
        raise Undecided("a tensor map that is no parameter")
    values = [m.one(fiber, c, mask, "a coordinate") & 0xFFFFFFFF for c in at.coordinates]
    return found, tuple(v - (1 << 32) if v >> 31 else v for v in values)


def _shared(m: Machine, cta: Cta, address: int, size: int, aligned: int) -> Region:
    if address % aligned:
        raise Broken(
            Finding(
                "address", f"a copy at byte {address - SHARED} of shared memory, which must be a multiple of {aligned}"
            )
        )
    if not SHARED <= address <= cta.memory.size - size:
        raise Broken(
            Finding("address", f"a copy of {size} bytes at byte {address - SHARED} of shared memory, outside of it")
        )
    return span(address, size, cta.memory.piece)


def _load(m: Machine, fiber: Fiber, s: Step, mask: int) -> None:
    """cp.async.bulk.tensor into shared memory (9.7.9.27.1.1)."""
    at, source, mbar = s.args[:3]
    tensor_map, coordinates = _map(m, fiber, source, mask)
    rest = list(s.args[3:])
    target = m.address(fiber, at, mask)
    own, address = m.cta_of(fiber, target)
    _, barrier = mbarrier_at(m, fiber, mbar, mask)
    destinations = [(own, barrier)]
    if "multicast::cluster" in s.parts:
        ranks = rest.pop(0)
        assert isinstance(ranks, int)
        bits = m.one(fiber, ranks, mask, "a multicast mask") & 0xFFFF
        destinations = [_peer(m, fiber, own, barrier, rank) for rank in lanes(bits)]
    strand = _single(fiber, mask)
    for _ in lanes(mask):
        deliveries = []
        for cta, there in destinations:
            if cta.done:
                raise Broken(Finding("peer", f"a copy goes to CTA {cta.number}, which has ended"))
            access = _access(m, s, strand, "the copy into shared memory", True, there.component, None)
            region = _shared(m, cta, address, tensor_map.bytes, 128)
            cta.memory.write(region, access, m.know([strand]), m.report)
            cta.flights[access] = None
            _forget(cta, address, tensor_map.bytes)
            deliveries.append((there, access))
        read = _box_read(m, s, strand, tensor_map, coordinates, barrier.component)
        happened = _order(strand)
        for there, access in deliveries:
            covered = [access, *read] if there is destinations[0][1] else [access]
            _deliver(m, Delivery(0, there, tensor_map.bytes, covered, happened))


def _peer(m: Machine, fiber: Fiber, own: Cta, barrier: MBarrier, rank: int) -> tuple[Cta, MBarrier]:
    """The same place of another CTA (multicast, 9.7.9.27.1.1)."""
    cta, address = m.cta_of(fiber, barrier.address & (1 << RANK) - 1 | rank + 1 << RANK)
    if cta.done:
        raise Broken(Finding("peer", f"a multicast copy goes to CTA {cta.number}, which has ended"))
    there = cta.barriers.get(address)
    if there is None:
        raise Broken(Finding("lifetime", f"there is no mbarrier at byte {address} of CTA {cta.number}"))
    initialised(m, fiber, there, fiber.mask)
    return cta, there


def _forget(cta: Cta, address: int, size: int) -> None:
    for word in [w for w in cta.words if address <= w < address + size]:
        del cta.words[word]


def _access(m: Machine, s: Step, strand: Strand, text: str, write: bool, component: int, upto: int | None) -> Access:
    line, place = m.place(s)
    name = (strand.key, strand.epoch, s.at)
    return Access(component, upto, text, name, write, proxy=True, line=line, place=place)


def _box_read(
    m: Machine, s: Step, strand: Strand, tensor_map: TensorMap, coordinates: tuple[int, ...], component: int
) -> list[Access]:
    """A load reads a box of a tensor that the launch may write; it has read it when its bytes have arrived."""
    memory = m.tensors[tensor_map.tensor]
    if m.launch.tensors[tensor_map.tensor].constant:
        return []
    access = _access(m, s, strand, f"the copy from {memory.what}", False, component, None)
    region = box(tensor_map, coordinates, memory.piece)
    m.note(strand, s, memory.read(region, access, m.know([strand]), m.report))
    return [access]


def _store(m: Machine, fiber: Fiber, s: Step, mask: int) -> None:
    """cp.async.bulk.tensor and cp.reduce.async.bulk.tensor out of shared memory."""
    target, source = s.args[:2]
    tensor_map, coordinates = _map(m, fiber, target, mask)
    cta, address = m.cta_of(fiber, m.address(fiber, source, mask))
    region = _shared(m, cta, address, tensor_map.bytes, 128)
    memory, tensor = m.tensors[tensor_map.tensor], m.launch.tensors[tensor_map.tensor]
    if tensor.constant:
        m.report("readonly", f"{tensor.name} is written, which the launch promises not to do")
    strand = _single(fiber, mask)
    reads, writes = m.queue(strand, "bulk.read"), m.queue(strand, "bulk")
    for _ in lanes(mask):
        knows = m.know([strand])
        access = _access(m, s, strand, "the copy out of shared memory", False, reads.component, reads.groups + 1)
        m.note(strand, s, cta.memory.read(region, access, knows, m.report))
        cta.flights[access] = None
        done = _access(m, s, strand, f"the copy to {tensor.name}", True, writes.component, writes.groups + 1)
        done.atomic = s.parts[1] == "reduce"
        memory.write(box(tensor_map, coordinates, memory.piece), done, knows, m.report)
        _order(strand)


def _commit(kinds: tuple[str, ...]) -> Handler:
    """Close a group: of each lane that executes it."""

    def run(m: Machine, fiber: Fiber, s: Step, mask: int) -> None:
        for strand in fiber.strands(mask):
            for kind in kinds:
                m.queue(strand, kind).groups += 1

    return Handler(run, sync=False)


def _wait(kinds: tuple[str, ...]) -> Handler:
    """Wait until at most so many of the newest groups of the executing thread are left (9.7.9.27.3.2)."""

    def run(m: Machine, fiber: Fiber, s: Step, mask: int) -> None:
        (keep,) = s.args if s.args else (None,)
        left = m.one(fiber, keep, mask, "a number of groups") if isinstance(keep, int) else 0
        for strand in fiber.strands(mask):
            for kind in kinds:
                queue = m.queue(strand, kind)
                upto = queue.groups - left
                strand.knowledge.finished(queue.component, upto, visible=kind != "bulk.read")
                queue.open = [a for a in queue.open if a.upto is None or a.upto > upto]
                if strand.apart is not None:  # each lane has waited for its own copies
                    for group, region, held in queue.spots:
                        if group <= upto:
                            strand.apart.write(region, held, strand.epoch)
                queue.spots = [spot for spot in queue.spots if spot[0] > upto]

    return Handler(run)


def _copy(m: Machine, fiber: Fiber, s: Step, mask: int) -> None:
    """cp.async: a write of the generic proxy that ends later; each lane copies 4, 8 or 16 bytes."""
    to, source, size_operand = s.args[:3]
    assert isinstance(size_operand, int)
    size = m.one(fiber, size_operand, mask, "a size")
    targets = m.addresses(fiber, to, mask)
    m.addresses(fiber, source, mask)
    for strand in fiber.strands(mask):
        mine = {n: a for n, a in targets.items() if strand.mask >> n & 1}
        queue = m.queue(strand, "copies")
        line, place = m.place(s)
        name = (strand.key, strand.epoch, s.at)
        access = Access(
            queue.component, queue.groups + 1, "a cp.async", name, True, copy=True, line=line, place=place,
            own=(queue.component, queue.groups + 1),
        )  # fmt: skip
        cta = m.ctas[fiber.warp.cta]
        for a in mine.values():
            _shared(m, cta, a, size, size)
            _forget(cta, a, size)
        spots = spread(list(mine.values()), list(mine), size, cta.memory.piece)
        crossed(m, fiber, strand, access, *spots)
        region = elements(tuple(mine.values()), size, cta.memory.piece)
        cta.memory.write(region, access, m.know([strand]), m.report)
        cta.flights[access] = None
        queue.open.append(access)
        queue.spots.append((queue.groups + 1, *spots))


def _commit_copies(m: Machine, fiber: Fiber, s: Step, mask: int) -> None:
    for strand in fiber.strands(mask):
        m.queue(strand, "copies").groups += 1


def _trigger(m: Machine, fiber: Fiber, s: Step, mask: int) -> None:
    """cp.async.mbarrier.arrive.noinc: an arrival of each lane once its copies so far have ended (9.7.13.15.17)."""
    if "noinc" not in s.parts:
        raise Undecided("cp.async.mbarrier.arrive that counts itself")
    _, barrier = mbarrier_at(m, fiber, s.args[0], mask)
    for strand in fiber.strands(mask):
        queue = m.queue(strand, "copies")
        accesses, queue.open, queue.spots = queue.open, [], []
        for a in accesses:
            a.component, a.upto = barrier.component, None
        weight = (strand.mask & mask).bit_count()
        _deliver(m, Delivery(0, barrier, 0, accesses, _order(strand), weight))


def _nothing(m: Machine, fiber: Fiber, s: Step, mask: int) -> Watched | None:
    return None


HANDLERS: dict[str, Handler] = {
    "cp.async.bulk.commit_group": _commit(("bulk", "bulk.read")),
    "cp.async.bulk.wait_group": _wait(("bulk", "bulk.read")),
    "cp.async.bulk.wait_group.read": _wait(("bulk.read",)),
    "cp.async.commit_group": Handler(_commit_copies, sync=False),
    "cp.async.wait_group": _wait(("copies",)),
    "cp.async.mbarrier.arrive": Handler(_trigger),
    "cp.async.ca.shared": Handler(_copy, sync=False),
    "cp.async.cg.shared": Handler(_copy, sync=False),
    "cp.async.bulk.prefetch": Handler(_nothing, sync=False),
    "prefetch": Handler(_nothing, sync=False),
    "createpolicy": Handler(_nothing, sync=False, results=(0,)),
}
for _rank in range(1, 6):
    HANDLERS[f"cp.async.bulk.tensor.{_rank}d.shared::cluster.global"] = Handler(_load)
    HANDLERS[f"cp.async.bulk.tensor.{_rank}d.shared::cta.global"] = Handler(_load)
    HANDLERS[f"cp.async.bulk.tensor.{_rank}d.global.shared::cta"] = Handler(_store)
    HANDLERS[f"cp.reduce.async.bulk.tensor.{_rank}d.global.shared::cta"] = Handler(_store)
