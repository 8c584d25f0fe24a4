"""Barriers with the hardware's state: what is counted, not what is meant.

An mbarrier (PTX ISA 9.7.13.15) holds the phase in progress, its pending arrivals and its pending bytes (tx-count); a
phase completes when both are zero. A wait tests a parity only, so a wait ahead of its phase passes early and one that
is late is lapped, as on the device.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cake.ir import expanded as x
from cake.machine import events as ev
from cake.machine.faults import fail, fail_at, place

if TYPE_CHECKING:
    from cake.machine.agents import Runner
    from cake.machine.executor import Executor
    from cake.machine.tape import Step

TX_LIMIT = (1 << 20) - 1
"""The tx-count lies in -(2^20 - 1) .. 2^20 - 1 (PTX ISA 9.7.13.15.5)."""


class MBarrier:
    """One slot of an mbarrier declaration in one CTA. ``phase`` is the one in progress; it counts completed phases."""

    __slots__ = ("arrivals", "contributions", "count", "declared", "key", "live", "pending", "phase", "tx", "waiters")

    def __init__(self, key: ev.BarrierKey, declared: x.Barrier) -> None:
        self.key = key
        self.declared = declared
        self.count = declared.count
        self.live = False
        self.phase = 0
        self.pending = 0
        self.tx = 0
        self.waiters: list[Runner] = []
        self.contributions: list[int] = []
        self.arrivals: list[tuple[str, int]] = []

    @property
    def name(self) -> str:
        """``full[2]``, or ``full`` where there is one slot."""
        return f"{self.key[1]}[{self.key[2]}]" if self.declared.slots > 1 else self.key[1]

    def init(self, m: Executor, runner: Runner, step: Step) -> None:
        """mbarrier.init."""
        if self.live:
            fail_at("P113", f"{self.name} is initialised twice", step)
        self.live, self.phase, self.pending, self.tx = True, 0, self.count, 0
        if m.observer is not None:
            m.emit(ev.Init(m.event_id(), step.site, runner.agent, self.key, self.count))

    def require_live(self, step: Step) -> None:
        """Anything but init needs an initialised barrier."""
        if not self.live:
            fail_at("P113", f"{self.name} is used before it is initialised", step)

    def passed(self, phase: int) -> bool:
        """What try_wait.parity answers for ``phase``: true if the phase in progress has the other parity."""
        return (self.phase ^ phase) & 1 == 1

    def contribute(
        self,
        m: Executor,
        by: Runner | ev.AsyncOp,
        step: Step,
        form: str,
        *,
        weight: int = 0,
        tx: int = 0,
        sem: x.Semantics = "release",
        scope: x.Scope = "cta",
        intended: int | None = None,
    ) -> None:
        """Arrivals (``weight``), announced bytes (``tx`` > 0, form expect) or completed bytes (``tx`` < 0, form tx)."""
        self.require_live(step)
        if weight > self.pending:
            self._over(step, weight)
        self.pending -= weight
        self.tx += tx
        if weight:
            self.arrivals.append((place(step), weight))
        if abs(self.tx) > TX_LIMIT:
            fail_at("W710", f"the pending bytes of {self.name} leave the range of an mbarrier: {self.tx}", step)
        if m.observer is not None:
            who = by if isinstance(by, ev.AsyncOp) else by.agent
            number = m.event_id()
            self.contributions.append(number)
            bytes = abs(tx)
            m.emit(ev.Contrib(number, step.site, who, self.key, form, self.phase, weight, bytes, sem, scope, intended))  # type: ignore[arg-type]
        if self.pending == 0 and self.tx == 0:
            self._complete(m)

    def _over(self, step: Step, weight: int) -> None:
        fail_at(
            "P103",
            f"{weight} arrivals on {self.name}, but phase {self.phase} has room for {self.pending} of {self.count}",
            step,
            witness=tuple(f"{w} from {who}" for who, w in self.arrivals),
            help="the barrier's count must be the sum of the arrivals of one phase",
        )

    def _complete(self, m: Executor) -> None:
        if m.observer is not None:
            m.emit(ev.Phase(m.event_id(), None, self.key, self.phase, tuple(self.contributions)))
            self.contributions = []
        self.phase += 1
        self.pending = self.count
        self.arrivals = []
        waiters, self.waiters = self.waiters, []
        for runner in waiters:
            m.wake(runner)


@dataclass(eq=False)
class NamedBarrier:
    """One hardware barrier id of a CTA (PTX ISA 9.7.13.1): threads that have come, of the count they state."""

    key: ev.NamedKey
    generation: int = 0
    threads: int = 0
    count: int = 0
    synced: list[Runner] = field(default_factory=list)
    arrived: list[Runner] = field(default_factory=list)

    def arrive(self, m: Executor, runner: Runner, step: Step, form: str, count: int, threads: int) -> bool:
        """Threads come; true if that completes the generation."""
        if self.threads and self.count != count:
            fail_at(
                "P114",
                f"barrier {self.key[1]} is waited for with {count} threads while others wait with {self.count}",
                step,
            )
        if self.threads + threads > count:
            fail_at("P115", f"barrier {self.key[1]} is declared for {count} threads, but more come", step)
        self.count = count
        self.threads += threads
        (self.synced if form == "sync" else self.arrived).append(runner)
        if m.observer is not None:
            m.emit(
                ev.NamedArrive(
                    m.event_id(),
                    step.site,
                    runner.agent,
                    self.key,
                    "sync" if form == "sync" else "arrive",
                    count,
                    threads,
                    self.generation,
                )
            )
        if self.threads < count:
            return False
        synced, arrived = self.synced, self.arrived
        if m.observer is not None:
            m.emit(
                ev.NamedGeneration(
                    m.event_id(),
                    None,
                    self.key,
                    self.generation,
                    tuple(r.agent for r in synced),
                    tuple(r.agent for r in arrived),
                )
            )
        self.generation += 1
        self.threads, self.synced, self.arrived = 0, [], []
        for waiter in synced:
            if waiter is not runner:
                waiter.released = True
                m.wake(waiter)
        return True


@dataclass(eq=False)
class ClusterBarrier:
    """The barrier of a cluster (PTX ISA 9.7.13.4): every thread that has not exited arrives; arrive and wait
    alternate."""

    cluster: int
    total: int
    generation: int = 0
    arrived: int = 0
    exited: int = 0
    waiters: list[Runner] = field(default_factory=list)

    def arrive(self, m: Executor, runner: Runner, step: Step, sem: str) -> None:
        """One agent arrives."""
        if runner.cluster_arrived is not None:
            fail_at("P116", "a thread arrives at the cluster barrier twice without waiting", step)
        runner.cluster_arrived = self.generation
        self.arrived += 1
        if m.observer is not None:
            m.emit(ev.ClusterArrive(m.event_id(), step.site, runner.agent, self.generation, sem))  # type: ignore[arg-type]
        self._check(m)

    def exit(self, m: Executor) -> None:
        """One agent has left: it will not be waited for."""
        self.exited += 1
        self._check(m)

    def _check(self, m: Executor) -> None:
        if self.arrived == 0 or self.arrived + self.exited < self.total:
            return
        if m.observer is not None:
            m.emit(ev.ClusterGeneration(m.event_id(), None, self.cluster, self.generation))
        self.generation += 1
        self.arrived = 0
        waiters, self.waiters = self.waiters, []
        for runner in waiters:
            m.wake(runner)


@dataclass(eq=False)
class Pool:
    """The registers of a CTA that no warp holds (PTX ISA 9.7.20.5 setmaxnreg). ``held`` is a thread's count for each
    warp."""

    held: dict[int, int]
    free: int = 0
    waiters: list[Runner] = field(default_factory=list)

    def change(self, m: Executor, runner: Runner, step: Step, form: str, count: int) -> bool:
        """A warp gives registers back or takes them; false if the pool has too few."""
        warp = runner.agent.warp
        more = count - self.held[warp]
        if (more > 0 and form == "dec") or (more < 0 and form == "inc"):
            fail(
                "W703",
                f"setmaxnreg.{form} to {count} registers in a warp that holds {self.held[warp]}",
                step.code.node.span,
            )
        if 32 * more > self.free:
            return False
        self.free -= 32 * more
        self.held[warp] = count
        if m.observer is not None:
            m.emit(ev.Registers(m.event_id(), step.site, runner.agent, form, 32 * abs(more), self.free))  # type: ignore[arg-type]
        if more < 0:
            waiters, self.waiters = self.waiters, []
            for waiter in waiters:
                m.wake(waiter)
        return True
