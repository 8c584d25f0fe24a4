"""One adversarial execution: real barriers, one schedule, explicit views."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np

from cake.verify.oracle.barriers import Mbarrier, Meeting, Named
from cake.verify.oracle.memory import Memory, Seen
from cake.verify.oracle.views import F, G, K, V, View
from cake.verify.search.lower import Launch
from cake.verify.search.steps import Agent, Slot, Step

CHANGES = 3
"""Change points of a priority schedule (docs/verification.md 1.1: few change points find what uniform choice misses)."""


@dataclass(eq=False)
class Flight:
    """An asynchronous operation. ``reader``: its read's number; ``writes``: atoms, versions once it is done."""

    step: Step
    issuers: list[Thread]
    order: View
    mine: int
    reader: int | None = None
    reads: list[int] = field(default_factory=list)
    writes: list[int] = field(default_factory=list)
    tag: object = None
    atomic: bool = False
    asynchronous: bool = True
    versions: list[int] = field(default_factory=list)
    reads_done: bool = False
    done: bool = False
    weight: int = 0
    after: list[Flight] = field(default_factory=list)
    priority: float = 0.0
    targets: dict[int, list[int]] = field(default_factory=dict)


@dataclass(eq=False)
class Thread:
    """An agent under way: its place, view, own reads and writes, group queues."""

    agent: Agent
    view: View
    at: int = 0
    mine: int = 0
    dirty: dict[int, int] = field(default_factory=dict)
    open: dict[str, list[Flight]] = field(default_factory=lambda: {"bulk": [], "cp_async": [], "wgmma": []})
    groups: dict[str, list[list[Flight]]] = field(default_factory=lambda: {"bulk": [], "cp_async": [], "wgmma": []})
    held: View | None = None
    came: object = None
    free: bool = False
    registers: int | None = None
    priority: float = 0.0

    @property
    def step(self) -> Step | None:
        """What it does next."""
        return self.agent.program[self.at] if self.at < len(self.agent.program) else None

    def text(self) -> str:
        """For a witness."""
        return f"{self.agent.name}: {self.step.text() if self.step else 'end'}"


class Run:
    """One execution with one seed."""

    def __init__(self, launch: Launch, seed: int) -> None:
        self.launch = launch
        self.rnd = random.Random(seed)
        regions = launch.regions
        self.memory = Memory([regions.cta_of(a) is not None for a in range(regions.atoms)])
        self.shared = np.array([regions.cta_of(a) is not None for a in range(regions.atoms)], dtype=bool)
        self.lists = [[int(a) for a in atoms] for atoms in regions.lists]
        self.threads = [
            Thread(a, View.fresh(regions.atoms), registers=launch.kernel.launch_registers) for a in launch.agents
        ]
        self.flights: list[Flight] = []
        self.all_flights: list[Flight] = []
        self.bars: dict[Slot, Mbarrier] = {}
        self.named: dict[tuple[int, int], Named] = {}
        self.clusters = [Meeting() for _ in launch.clusters]
        self.joins: dict[tuple[int, int], list[Thread]] = {}
        self.flags: dict[tuple[str, int], int] = {}
        self.messages: dict[tuple[str, int], View] = {}
        self.pool = [0] * launch.cta_count
        self.left: dict[int, View] = {}
        self.living = {c: sum(a.cta == c for a in launch.agents) for c in range(launch.cta_count)}
        self.peers: dict[tuple[int, tuple[int, ...]], list[Thread]] = {}
        self.teams: dict[int, list[Thread]] = {}
        self.last_wgmma: dict[int, Flight] = {}
        self.steps = 0
        self.lapses: list[str] = []
        for t in self.threads:
            self.peers.setdefault((id(t.agent.instance), t.agent.warps), []).append(t)
            self.teams.setdefault(id(t.agent.instance), []).append(t)
        for (tensor, at), agent in ((s.flag, a) for a in launch.agents for s in a.program if s.flag is not None):
            given = launch.kernel.tensor(tensor)
            start = launch.regions.bases[tensor]
            known = tensor in launch.arrays and given is not None and given.direction == "inout"
            self.flags[tensor, at] = int(launch.arrays[tensor].reshape(-1)[at - start]) if known else 0
            _ = agent

    # -- the schedule -------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """To the end; raises ``Seen`` for what is wrong."""
        from cake.verify.oracle.actions import advance, land

        rnd = self.rnd
        for t in self.threads:
            t.priority = rnd.random()
        total = sum(len(a.program) for a in self.launch.agents) + 1
        changes = sorted(rnd.randrange(total) for _ in range(CHANGES))
        live = sorted((t for t in self.threads), key=lambda t: -t.priority)
        for t in list(live):
            if t.step is None:
                self.leave(t)
        live = [t for t in live if t.step is not None]
        lowest = 0.0
        while live or self.flights:
            done: Thread | Flight | None = None
            flights = sorted(self.flights, key=lambda f: -f.priority)
            i = j = 0
            while done is None and (i < len(live) or j < len(flights)):
                if j >= len(flights) or (i < len(live) and live[i].priority >= flights[j].priority):
                    if advance(self, live[i]):
                        done = live[i]
                    i += 1
                else:
                    if land(self, flights[j]):
                        done = flights[j]
                    j += 1
            if done is None:
                stuck = "; ".join(t.text() for t in live)
                raise Seen("deadlock", f"nothing can go on: {stuck}")
            self.steps += 1
            if changes and self.steps >= changes[0]:
                changes.pop(0)
                lowest -= 1.0
                done.priority = lowest
                live.sort(key=lambda t: -t.priority)
            if any(t.step is None for t in live):
                for t in [t for t in live if t.step is None]:
                    self.leave(t)
                live = [t for t in live if t.step is not None]
        self.finish()

    # -- the end ------------------------------------------------------------------------------------------------------

    def leave(self, t: Thread) -> None:
        """A thread exits."""
        cta = t.agent.cta
        if cta in self.left:
            self.left[cta].join(t.view)
        else:
            self.left[cta] = t.view.copy()
        self.living[cta] -= 1
        self.cluster_check(t.agent.cluster)

    def cluster_check(self, cluster: int) -> None:
        """The cluster barrier waits for those that have not exited."""
        meeting = self.clusters[cluster]
        members = [t for t in self.threads if t.agent.cluster == cluster]
        if meeting.came and all(t in meeting.came or t.step is None for t in members):
            meeting.complete()

    def finish(self) -> None:
        """What is in flight when a CTA has ended touches memory that is no longer its own."""
        for flight in self.all_flights:
            for cta, atoms in flight.targets.items():
                known = self.left[cta]
                if flight.reader is not None and flight.reads and not known.operations >> flight.reader & 1:
                    raise Seen("leak", f"{flight.step.text()} may read shared memory when its CTA has ended")
                for at, version in zip(flight.writes, flight.versions, strict=True):
                    if at in atoms and known.bounds[K, at] < version:
                        raise Seen("leak", f"{flight.step.text()} may write shared memory when its CTA has ended")

    # -- helpers ------------------------------------------------------------------------------------------------------

    def bar(self, slot: Slot, step: Step) -> Mbarrier:
        """An initialised mbarrier."""
        found = self.bars.get(slot)
        if found is None:
            raise Seen("lifetime", f"{step.text()} uses a barrier before its initialisation")
        return found

    def publish(self, t: Thread) -> None:
        """fence.mbarrier_init: what this thread has initialised may be used by other CTAs, once that is known."""
        number = self.memory.reader()
        t.view.reads |= 1 << number
        for bar in self.bars.values():
            if bar.owner is t and bar.fenced is None:
                bar.fenced = number

    def wrote(self, t: Thread, atoms: list[int], versions: list[int]) -> None:
        """A thread sees its own writes; the async proxy not until a fence."""
        for at, version in zip(atoms, versions, strict=True):
            t.view.bounds[V, at] = t.view.bounds[K, at] = version
            t.dirty[at] = version

    def fence(self, t: Thread, *, shared: bool) -> None:
        """fence.proxy.async of one state space: the thread's own writes and reads so far, and (cumulative) all it has seen."""
        bounds, memory = t.view.bounds, self.memory
        for at, version in list(t.dirty.items()):
            if memory.atoms[at].shared == shared:
                bounds[F, at] = max(bounds[F, at], version)
                del t.dirty[at]
        where = self.shared if shared else ~self.shared
        bounds[G][where] = bounds[V][where]
        t.view.fenced |= t.mine & (memory.shared_reads if shared else ~memory.shared_reads)
        if t.held is not None:
            t.view.join(t.held)
