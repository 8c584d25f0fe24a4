"""mbarriers, named barriers and the cluster barrier, with the state that the hardware has (PTX ISA 9.7.13).

An mbarrier is a pending count, bytes outstanding and a phase of which only the parity can be asked; what its phases
were told (clocks) is kept beside. A barrier never knows what its users mean.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cake.ptx.interpret.clocks import Clock, Knowledge, nothing, raise_to
from cake.ptx.interpret.outcome import Broken, Finding
from cake.ptx.interpret.warps import Watched

COUNT = (1 << 20) - 1
"""Largest count, and bytes outstanding to either side (9.7.13.15.2)."""

WIDE = ("cluster", "gpu", "sys")


@dataclass
class Message:
    """What a phase or generation carries: order from everyone; knowledge by the CTA it comes from and whether its scope
    goes beyond a CTA."""

    happened: Clock
    parts: dict[tuple[int, bool], Knowledge] = field(default_factory=dict)

    @classmethod
    def empty(cls, size: int) -> Message:
        """Carries nothing; ``size`` components."""
        return cls(nothing(size))

    def add(self, k: Knowledge, cta: int, wide: bool) -> None:
        """A release."""
        raise_to(self.happened, k.happened)
        key = (cta, wide)
        if key in self.parts:
            self.parts[key].join(k)
        else:
            self.parts[key] = k.copy()

    def order(self, happened: Clock) -> None:
        """What carries order only."""
        raise_to(self.happened, happened)

    def seen(self, component: int, cta: int, wide: bool) -> int:
        """How far an acquire shows the accesses of a strand: to its own lanes, what they released themselves."""
        parts = (p for (source, far), p in self.parts.items() if source == cta or (wide and far))
        return max((int(p.visible[component]) for p in parts), default=-1)

    def give(self, k: Knowledge, cta: int, wide: bool) -> None:
        """An acquire by a thread of ``cta``: both scopes must include the other thread (8.7, morally strong)."""
        k.order(self.happened)
        for (source, source_wide), part in self.parts.items():
            if source == cta or (wide and source_wide):
                k.join(part)


@dataclass(eq=False)
class MBarrier(Watched):
    """``phase`` counts completed phases, as ``component`` does in the clocks of those who know (0: initialised);
    ``fenced``: its initialisation has been published to the cluster; ``landing``: bytes on their way; ``running`` and
    ``last``: what the running phase and the last completed one were told."""

    name: str
    cta: int
    address: int
    count: int
    component: int
    running: Message
    last: Message
    fenced: bool = False
    phase: int = 0
    pending: int = 0
    bytes: int = 0
    landing: list[object] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.pending = self.count

    def arrive(self, weight: int) -> None:
        """Arrivals; the count must not go below zero (9.7.13.15.13)."""
        if weight > self.pending:
            raise Broken(
                Finding(
                    "over-arrival",
                    f"{weight} arrivals at {self.name} in phase {self.phase}, which expects {self.pending} more",
                )
            )
        self.pending -= weight
        self.settle()

    def transfer(self, size: int) -> None:
        """Announce (``size`` > 0) or deliver bytes."""
        self.bytes += size
        if abs(self.bytes) > COUNT:
            raise Broken(Finding("bytes", f"{self.bytes} bytes are outstanding at {self.name}"))

    def settle(self) -> None:
        """Complete the phase if nothing is outstanding (9.7.13.15.5.3)."""
        if self.pending == 0 and self.bytes == 0:
            self.phase += 1
            self.pending = self.count
            self.last, self.running = self.running, Message.empty(len(self.running.happened))
            self.changed()

    def complete(self, parity: int) -> bool:
        """Whether the phase of this parity is the one that has just completed (9.7.13.15.16)."""
        return (self.phase - 1) & 1 == parity

    def state(self) -> str:
        """For messages."""
        return f"{self.name} is in phase {self.phase}: {self.pending} of {self.count} arrivals and {self.bytes} bytes outstanding"


@dataclass(eq=False)
class Named(Watched):
    """A barrier resource of a CTA (9.7.13.1). ``came``: warps of the running generation."""

    number: int
    cta: int
    running: Message
    generation: int = 0
    expected: int = 0
    arrived: int = 0
    came: list[tuple[int, bool]] = field(default_factory=list)
    messages: dict[int, Message] = field(default_factory=dict)

    def arrive(self, threads: int, expected: int, warp: int, sync: bool) -> int:
        """A warp comes; the generation that it came to."""
        if expected % 32 or not 0 < expected <= 1024:
            raise Broken(Finding("barrier", f"barrier {self.number} is told to expect {expected} threads"))
        if self.arrived and expected != self.expected:
            text = f"barrier {self.number} expects {self.expected} threads by one warp and {expected} by another"
            raise Broken(Finding("barrier", text))
        self.expected = expected
        self.arrived += threads
        self.came.append((warp, sync))
        if self.arrived > expected:
            text = f"{self.arrived} threads come to barrier {self.number}, which expects {expected}"
            raise Broken(Finding("barrier", text))
        generation = self.generation
        if self.arrived == expected:
            self.finish()
        return generation

    def finish(self) -> None:
        """All have come."""
        self.messages[self.generation] = self.running
        self.generation += 1
        self.arrived, self.came, self.running = 0, [], Message.empty(len(self.running.happened))
        self.changed()

    def state(self) -> str:
        """For messages."""
        warps = ", ".join(f"warp {w}" for w, _ in self.came) or "nobody"
        return f"barrier {self.number} has {self.arrived} of {self.expected} threads ({warps})"


@dataclass(eq=False)
class ClusterBarrier(Watched):
    """The barrier of a cluster: all threads that have not exited (9.7.13.4)."""

    running: Message
    last: Message
    generation: int = 0
    arrived: int = 0

    def check(self, alive: int) -> None:
        """Complete if all have come."""
        if self.arrived and self.arrived >= alive:
            self.generation += 1
            self.arrived = 0
            self.last, self.running = self.running, Message.empty(len(self.running.happened))
            self.changed()


@dataclass(eq=False)
class Pool(Watched):
    """Registers of a CTA that setmaxnreg moves (9.7.20.5)."""

    free: int = 0
