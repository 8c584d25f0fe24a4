"""Warps as they run: fibers execute, strands know.

A fiber is a set of lanes with one program counter. A branch whose lanes disagree splits it; fibers of a warp meet again
only at an instruction that needs them all (``.sync``, ``.aligned``; PTX ISA 9.7.13.2), since nothing else is
promised. A strand is a set of lanes that have synchronised alike and so know the same; lane 0, which ``elect.sync``
elects, is one from the start.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from cake.ptx.interpret.alu import LANES, Value, uniform
from cake.ptx.interpret.clocks import Knowledge
from cake.ptx.interpret.lanes import Apart, Lanes
from cake.ptx.interpret.regions import Region
from cake.ptx.interpret.shadow import Access

ALL = (1 << LANES) - 1


@lru_cache(maxsize=1024)
def lanes(mask: int) -> tuple[int, ...]:
    """Lanes of a mask, lowest first."""
    return tuple(n for n in range(LANES) if mask >> n & 1)


class Watched:
    """Something that fibers wait for; ``version`` changes when what they wait for may have happened."""

    version = 0

    def changed(self) -> None:
        """Let those who wait look again."""
        self.version += 1


@dataclass(eq=False)
class Queue:
    """Groups of asynchronous operations of a thread (``groups`` closed so far). ``open``: accesses not waited
    for; ``spots``: of cp.async, the group, the pieces and the lanes that copy them."""

    component: int
    groups: int = 0
    open: list[Access] = field(default_factory=list)
    spots: list[tuple[int, Region, Lanes]] = field(default_factory=list)

    def fork(self) -> Queue:
        """Of lanes that go their own way."""
        return Queue(self.component, self.groups, list(self.open), list(self.spots))


@dataclass(eq=False)
class Strand:
    """Lanes that know the same. ``key``: CTA, warp, lowest lane; ``epoch`` counts their releases and fences;
    ``released``: the last one before a fence of threads, up to which relaxed arrivals publish; ``fenced``: what that
    fence published, with its scope;
    ``pending``: what relaxed waits have found, for such a fence. ``inits``: mbarriers initialised and not yet fenced,
    ``initialised``: those fenced since, which a relaxed arrival at the cluster barrier publishes (example of 9.7.13.5);
    ``cluster_arrived``: the generation of the cluster barrier that it came to. ``accesses``: records of this epoch;
    ``apart``: what its lanes have done in shared memory since they met."""

    mask: int
    component: int
    key: tuple[int, int, int]
    knowledge: Knowledge
    initialised: Knowledge
    epoch: int = 1
    released: int = 0
    queues: dict[str, Queue] = field(default_factory=dict)
    fenced: tuple[str, Knowledge] | None = None
    pending: list[tuple[str, Knowledge]] = field(default_factory=list)
    accesses: dict[object, Access] = field(default_factory=dict)
    apart: Apart | None = None
    inits: list[Any] = field(default_factory=list)
    cluster_arrived: int | None = None

    def __str__(self) -> str:
        return f"warp {self.key[1]} of CTA {self.key[0]}"

    def settle(self) -> Knowledge:
        """What it knows, its own past included; later accesses are of a new epoch."""
        k = self.knowledge
        k.happened[self.component] = k.visible[self.component] = self.epoch
        self.epoch += 1
        self.accesses.clear()
        return k

    def met(self, epoch: int) -> None:
        """Its lanes know what all of them had done up to an epoch."""
        if self.apart is not None:
            self.apart.heard(epoch)

    def own(self) -> tuple[int, ...]:
        """Components whose accesses are this thread's."""
        return (self.component, *(q.component for name, q in self.queues.items() if name == "copies"))


@dataclass(eq=False)
class Fiber:
    """Lanes that run together. ``waits``: what it is blocked on and its version then; ``polled``: the place, object and
    version of a wait that failed, so that the same again can block; ``gathers``: waits for the rest of its warp;
    ``since``: the phase of an mbarrier when a wait for it began; ``joined``: the generation of a barrier it came to."""

    warp: Warp
    mask: int
    pc: int
    registers: list[Value]
    waits: tuple[Watched, int] | None = None
    polled: tuple[int, int, int] | None = None
    gathers: int | None = None
    since: int | None = None
    joined: int | None = None
    last: int = 0

    @property
    def ready(self) -> bool:
        """Whether it may be able to go on."""
        return self.waits is None or self.waits[0].version != self.waits[1]

    def strands(self, mask: int | None = None) -> list[Strand]:
        """Those with lanes in ``mask`` (default: its own)."""
        m = self.mask if mask is None else mask
        return [s for s in self.warp.strands if s.mask & m]


@dataclass(eq=False)
class Warp(Watched):
    """32 threads of a CTA. ``component`` gives a new component of the clocks. Of wgmma: ``groups`` committed,
    ``products`` issued, ``fences`` so far, registers ``busy`` in operations in flight, with their group, and ``loose``,
    touched since the last fence. ``met``: what its strands knew when they met last. ``registers``: of each thread,
    where setmaxnreg is followed."""

    cta: int
    number: int
    component: Callable[[], int]
    fibers: list[Fiber] = field(default_factory=list)
    strands: list[Strand] = field(default_factory=list)
    exited: int = 0
    groups: int = 0
    products: int = 0
    fences: int = 0
    busy: dict[str, int] = field(default_factory=dict)
    loose: frozenset[str] = frozenset()
    met: tuple[tuple[int, int, int], ...] = ()
    registers: int | None = None

    @property
    def alive(self) -> int:
        """Lanes that have not exited."""
        return ALL & ~self.exited

    def split(self, fiber: Fiber, mask: int, pc: int) -> Fiber:
        """The lanes of ``mask`` leave ``fiber`` and go on at ``pc``."""
        fiber.mask &= ~mask
        other = Fiber(self, mask, pc, list(fiber.registers), last=fiber.last)
        self.fibers.append(other)
        for s in list(self.strands):
            both = s.mask & mask
            if both and both != s.mask:
                self._part(s, both)
        return other

    def _part(self, s: Strand, mask: int) -> None:
        """Lanes of a strand become one of their own."""
        rest = s.mask & ~mask
        first, second = (mask, rest) if mask & -mask < rest & -rest else (rest, mask)
        low = lanes(second)[0]
        k = s.settle()
        queues = {name: q.fork() for name, q in s.queues.items()}
        other = Strand(second, self.component(), (self.cta, self.number, low), k.copy(), s.initialised.copy())
        other.queues, other.fenced, other.pending = queues, s.fenced, list(s.pending)
        other.cluster_arrived = s.cluster_arrived
        other.apart = s.apart.copy() if s.apart is not None else None
        s.mask = first
        self.strands.append(other)

    def merge(self, fibers: list[Fiber], live: tuple[int, ...]) -> Fiber:
        """Fibers at one place, where the registers ``live`` matter, become one."""
        first, *rest = fibers
        registers = first.registers
        for other in rest:
            for r in live:
                a, b = registers[r], other.registers[r]
                if a is b or (type(a) is type(b) and a == b):
                    continue
                registers[r] = _mix(a, b, other.mask)
            first.mask |= other.mask
            self.fibers.remove(other)
        first.waits = first.gathers = first.polled = None
        return first


def _mix(a: Value, b: Value, mask: int) -> Value:
    """``b`` in the lanes of ``mask``, else ``a``."""
    out = list(a) if type(a) is tuple else [a] * LANES
    for n in lanes(mask):
        out[n] = b[n] if type(b) is tuple else b
    return uniform(tuple(out))
