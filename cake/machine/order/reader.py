"""The order reading: an observer of one run that keeps the clocks of docs/verification.md 1.5 and checks D1-D10 with
them.

Edges implemented: E1-E11, E12 (both fence rules), E13 (D7), E14, E15 for wgmma, E17 for signal and wait_until, E20
(D9). E16 (tokens), E18 (grids), E19 (pools) have no nodes in the expanded IR yet. ``fence.thread`` adds no edge, which
refuses more, never less.

Conditions: D0 by the executor; D1, D3, D4, D5, D7 in ``phases`` and ``protocol``; D2 by the executor's counting,
named there; D6 follows from race freedom (what decides control is loaded, and no atomic returns a value); D8 by the
executor's meetings; D9 in ``leaving``; D10 and the races in ``races``; registers in ``registers``.

The clocks take the 31 lanes of R for one: order among them is asked in ``lanes`` (D216), of shared memory. In global memory two
accesses that all lanes of a warp make count as ordered by its program. Clusters of different batches are not ordered at all, as
they are on a device. Whether the CTA that a wait_until needs is there to signal (M403) is asked in ``cake.verify.grid``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cake.diagnostics import Diagnostic
from cake.ir import expanded as x
from cake.machine import events as ev
from cake.machine.order.clocks import (
    BITS,
    CONTROL_BITS,
    CONTROL_ROWS,
    DONE,
    FENCED,
    PUB,
    PUB_SEEN,
    READ,
    READS,
    SEEN,
    SEEN_S,
    SEEN_X,
    C,
    Clock,
    R,
    V,
    control,
)
from cake.machine.order.collectives import divergent
from cake.machine.order.conflicts import Profile
from cake.machine.order.flags import Flags, flag_tensors, word_of
from cake.machine.order.lanes import Lanes
from cake.machine.order.layout import Columns
from cake.machine.order.leaving import Leaving
from cake.machine.order.protocol import Protocol
from cake.machine.order.races import Races
from cake.machine.order.registers import Registers
from cake.machine.order.report import finding, of
from cake.machine.order.shadow import Access, Memory

SPACES = {"async_shared": "shared", "async_global": "global"}


class Order:
    """An observer. ``findings`` holds what has been found when the run has ended (``finish`` ends a run that was cut
    off)."""

    inputs = False
    """Loads from inputs conflict with nothing."""

    def __init__(
        self, profile: Profile = "conservative", *, tensors: bool = True, unset: bool = True, forgetful: bool = False
    ) -> None:
        """``tensors`` False leaves out the accesses to global memory; with ``unset`` False registers that nothing has set are
        no findings (``registers.unset`` has them); ``forgetful``: see ``PhaseLog.knows``."""
        self.profile = profile
        self.tensors = tensors
        self.unset = unset
        self.forgetful = forgetful
        self.findings: list[Diagnostic] = []
        self.running = False
        self.batches = 0
        self.memory = Memory(0, {})
        self.handlers: dict[str, Any] = {}

    # -- the observer's interface -------------------------------------------------------------------------------------

    def start(self, setup: ev.Setup) -> None:
        """A batch of clusters starts."""
        shapes = written_shapes(setup) if self.tensors else {}
        if not self.batches:
            self.findings += divergent(setup.kernel)
            self.flags = Flags(flag_tensors(setup.kernel), shapes)
        self.flags.batch = self.batches
        self.batches += 1
        self.running = True
        self.columns = Columns(setup)
        self.agents = setup.agents
        count = len(setup.agents)
        self.halves: dict[tuple[int, int], list[int]] = {}
        for c, agent in enumerate(setup.agents):
            self.halves.setdefault((agent.cta, agent.warp), []).append(c)
        self.clocks = [Clock.fresh(self.columns.count) for _ in range(count)]
        self.own = [clock.rows[0:5, column] for column, clock in enumerate(self.clocks)]
        self.numbers = [0] * count
        self.progress: list[list[int]] = [[] for _ in range(count)]
        kernel = setup.kernel
        self.solo = {r.name for r in kernel.roles if r.solo}
        self.protocol = Protocol(setup, self.columns, self.clocks, self.numbers)
        for log in self.protocol.logs.values():
            log.forgetful = self.forgetful
        self.memory = Memory(kernel.shared_bytes, shapes, self.memory.tensors())
        self.races = Races(self.memory, self.profile, self.progress, setup.agents)
        self.registers = Registers()
        self.lanes = Lanes()
        self.leaving = Leaving(self.columns)
        self.bits = 0
        self.ops: dict[int, tuple[dict[int, int], int]] = {}
        self.issued: dict[int, tuple[Clock, int]] = {}
        self.copies = [0] * count
        self.generic = 0
        self.released = [0] * count
        self.fenced: list[dict[str, int]] = [{} for _ in range(count)]
        self.held: list[Clock | None] = [None] * count
        self.idle: dict[tuple[ev.Agent, str], ev.GroupWait] = {}
        self.committers: set[tuple[ev.Agent, str]] = set()

    def event(self, event: ev.Event) -> None:
        """The next event."""
        handler = self.handlers.get(event.kind, self)
        if handler is self:
            handler = self.handlers[event.kind] = getattr(self, f"_{event.kind}", None)
        if handler is not None:
            handler(event)

    def end(self) -> None:
        """The batch has ended."""
        self.finish(complete=True)

    def finish(self, *, complete: bool) -> None:
        """Draw the conclusions. ``complete``: the run came to its end, so D9 can be asked."""
        if not self.running:
            return
        self.running = False
        self.protocol.finish()
        data = [*self.races.finish(), *self._crossed()]
        self.findings += self.protocol.findings
        self.findings += self._idle_waits()
        self.findings += [*data, *self.registers.findings.values(), *self.flags.finish()]
        if self.unset:
            self.findings += self.registers.unset.values()
        if not complete:
            self.findings += self.protocol.stuck()
        else:
            for cta, column, number, event in self.protocol.remote:
                self.leaving.remote.append((cta, column, number, event, "P117"))
            self.findings += self.leaving.finish()

    def _crossed(self) -> list[Diagnostic]:
        """D216, where the two accesses do not race anyway."""
        raced = {
            tuple(sorted(a.site.path if a.site is not None else "" for a in (p.earlier, p.later)))
            for p in self.races.pairs.values()
        }
        return [d for places, d in self.lanes.findings.items() if tuple(sorted(places)) not in raced]

    # -- agents -------------------------------------------------------------------------------------------------------

    def _tick(self, agent: ev.Agent, site: ev.Site | None) -> int:
        """The next event of an agent: its column."""
        column = agent.index - self.columns.offset
        number = self.numbers[column] + 1
        self.numbers[column] = number
        self.own[column].fill(number)
        self.progress[column].append(0 if site is None else site.place)
        return column

    def _begin(self, event: ev.Begin) -> None:
        self._tick(event.agent, event.site)

    def _exit(self, event: ev.Exit) -> None:
        column = self._tick(event.agent, event.site)
        self.leaving.exit(event.agent, self.clocks[column])

    # -- memory
    # ---------------------------------------------------------------------------------------------------------

    def _access(self, event: ev.Access) -> None:
        agent, site, effect = event.agent, event.site, event.effect
        column = self._tick(agent, site)
        number, clock, region = self.numbers[column], self.clocks[column], effect.region
        if isinstance(region, ev.RegisterRegion):
            self.registers.access(event, region, column, number, clock)
            return
        name = site.node.op if event.word is not None and site is not None and isinstance(site.node, x.Op) else ""
        if name == "wait_until":
            self._observe(self.flags.wait(word_of(region), event, column, number, clock), column)
        fenced = self.fenced[column]
        stale = bool(fenced) and fenced.get(region.space, 0) > self.released[column]
        lanes = site is not None and site.node.executor == "lanes" and site.role not in self.solo
        access = Access(agent, column, number, site, effect, self.batches, None, None, None, lanes, event.atomic, stale)
        if isinstance(region, ev.SharedRegion):
            if region.cta != agent.cta:
                self.leaving.reach(region.cta, column, number, event, clock, "D214")
            self.races.access(access, [clock], [])
            if effect.reach is not None and agent.half == "R":
                self.lanes.access(access)
            return
        self.races.access(access, [clock], [])
        if name == "signal":
            self.flags.signal(word_of(region), event, column, number, clock)
            self.released[column] = number
        elif effect.mode != "r":
            self._flag_written(event, effect, column)

    def _flag_written(self, event: ev.Access | ev.Issue, effect: ev.Effect, column: int) -> None:
        """Something other than a signal changes words that signals change or waits look at."""
        region = effect.region
        if isinstance(region, ev.GlobalRegion) and region.tensor in self.flags.tensors:
            words = [(region.tensor, n) for lo, hi in self.memory.numbers(region) for n in range(lo, hi)]
            self.flags.written(words, event, column, self.numbers[column], self.clocks[column])

    def _observe(self, message: Clock | None, column: int) -> None:
        """E17: C and V of the signal that was seen; F only once this thread fences too."""
        if message is None:
            return
        clock = self.clocks[column]
        bits = (READ, DONE, SEEN, SEEN_S, SEEN_X)
        clock.join_rows(message, range(5), bits)
        if self.held[column] is None:
            self.held[column] = message
        else:
            both = message.copy()
            both.join(self.held[column])  # type: ignore[arg-type]
            self.held[column] = both

    def _issue(self, event: ev.Issue) -> None:
        columns = [self._tick(agent, event.site) for agent in event.agents]
        column = columns[0]
        clocks = [self.clocks[c] for c in columns]
        ctas = [e.region.cta for e in event.effects if isinstance(e.region, ev.SharedRegion) and e.mode != "r"]
        bits = {cta: self.bits + i for i, cta in enumerate(dict.fromkeys(ctas))}
        bits[-1] = self.bits
        self.bits += max(1, len(bits) - 1)
        self.ops[event.op.id] = bits, column
        if event.barriers:
            self.issued[event.op.id] = control(clocks[0], column), self.numbers[column]
        if event.op.op == "cp_async":
            self.copies[column] |= 1 << bits[-1]
            self.generic |= 1 << bits[-1]
        self._effects(event, columns, clocks, bits)
        self.leaving.issue(event, bits)

    def _effects(self, event: ev.Issue, columns: list[int], clocks: list[Clock], bits: dict[int, int]) -> None:
        both = len(columns) > 1
        for effect in event.effects:
            region = effect.region
            if isinstance(region, ev.RegisterRegion):
                self.registers.issue(event, region, effect.mode, columns, bits[-1])
                continue
            bit = bits.get(region.cta, bits[-1]) if isinstance(region, ev.SharedRegion) else bits[-1]
            twins = [
                Access(
                    agent, c, self.numbers[c], event.site, effect, self.batches, event.op, bit, event.queue, lanes=both
                )
                for agent, c in zip(event.agents, columns, strict=True)
            ]
            for twin in twins:
                twin.atomic = effect.mode == "rw"
            if isinstance(region, ev.SharedRegion) and region.cta != event.agent.cta:
                number = self.numbers[columns[0]]
                self.leaving.reach(region.cta, columns[0], number, event, clocks[0], "D214")
                self.leaving.remote.pop()  # its end is asked of the operation, not of its issue
            self.races.access(twins[0], clocks, twins[1:])
            if effect.mode != "r":
                self._flag_written(event, effect, columns[0])

    def _unset(self, event: ev.Unset) -> None:
        self.registers.nothing(event)

    def _done(self, event: ev.Done) -> None:
        """Only those that learn of it change."""

    # -- groups
    # -----------------------------------------------------------------------------------------------------------

    def _commit(self, event: ev.Commit) -> None:
        self._tick(event.agent, event.site)
        self.committers.add((event.agent, event.queue))

    def _gwait(self, event: ev.GroupWait) -> None:
        column = self._tick(event.agent, event.site)
        clock = self.clocks[column]
        if event.committed == 0:
            self.idle.setdefault((event.agent, event.queue), event)
        for op in event.ops:
            bits, issuer = self.ops[op.id]
            mine = self.agents[issuer].warp == event.agent.warp
            for bit in bits.values():
                clock.bits[READ] |= 1 << bit
                if not event.read and mine:
                    for each in (DONE, SEEN, SEEN_S, SEEN_X):
                        clock.bits[each] |= 1 << bit
        if event.queue == "wgmma" and event.ops:
            where = event.agent.cta, event.agent.warp
            self.registers.waited(*where, [self.clocks[c] for c in self.halves[where]])

    def _idle_waits(self) -> list[Diagnostic]:
        """P120: a wait by a thread that never committed, where some access needed the operations of another thread's
        queue."""
        found: dict[str, Diagnostic] = {}
        waits = [wait for key, wait in self.idle.items() if key not in self.committers]
        for pair in self.races.pairs.values():
            needed = pair.earlier
            for wait in waits:
                if needed.queue != wait.queue or needed.agent.cta != wait.agent.cta:
                    continue
                path = wait.site.path if wait.site is not None else ""
                whose = "its operations are in no group" if needed.agent is wait.agent else f"{of(needed.agent)} does"
                message = f"{of(wait.agent)} waits for {wait.queue} groups but commits none: {whose}"
                help = "wait in the thread that issues and commits, then meet at a barrier"
                found.setdefault(path, finding("P120", message, wait.site, help=help))
        return list(found.values())

    # -- fences and meetings
    # ----------------------------------------------------------------------------------------------

    def _fence(self, event: ev.Fence) -> None:
        column = self._tick(event.agent, event.site)
        clock, number = self.clocks[column], self.numbers[column]
        if event.what == "mbarrier_init":
            self.protocol.init_fence(column)
        elif event.what == "wgmma":
            self.registers.fence(column, number)
        elif event.what in SPACES:
            space = SPACES[event.what]
            self.fenced[column][space] = number
            held = self.held[column]
            for rule in ("own", "seen"):
                row = FENCED[rule, space]
                for at in (row, row + READS) if rule == "own" else (row,):
                    if held is not None:
                        np.maximum(clock.rows[at], held.rows[at], out=clock.rows[at])
                    clock.rows[at, column] = number
            row = FENCED["seen", space]
            np.maximum(clock.rows[row], clock.rows[V], out=clock.rows[row])
            if space == "shared":  # where cp.async writes
                clock.bits[PUB] |= clock.bits[DONE] & self.copies[column]
                clock.bits[PUB_SEEN] |= (clock.bits[SEEN] & self.generic) | clock.bits[PUB]
            if held is not None:
                clock.bits[PUB] |= held.bits[PUB]
                clock.bits[PUB_SEEN] |= held.bits[PUB_SEEN]

    def _join(self, event: ev.Join) -> None:
        columns = [self._tick(agent, event.site) for agent in event.members]
        merged = self.clocks[columns[0]].copy()
        for column in columns[1:]:
            merged.join(self.clocks[column])
        for column in columns:
            if event.strength == "all":
                self.clocks[column].rows[:] = merged.rows
                self.clocks[column].bits[:] = merged.bits
                self.lanes.met(column)
                self.released[column] = self.numbers[column]
            else:
                self.clocks[column].join_rows(merged, (C,), CONTROL_BITS)

    # -- barriers
    # -----------------------------------------------------------------------------------------------------------

    def _init(self, event: ev.Init) -> None:
        self.protocol.init(event, self._tick(event.agent, event.site))

    def _contrib(self, event: ev.Contrib) -> None:
        if isinstance(event.by, ev.Agent):
            column = self._tick(event.by, event.site)
            self.protocol.contribution(event, column)
            self.released[column] = self.numbers[column]
            return
        bits, column = self.ops[event.by.id]
        issued, number = self.issued[event.by.id]
        bit = bits.get(event.barrier[0], bits[-1])
        effects = 1 << bit
        if event.form == "triggered":  # E8: and of the thread's copies before
            effects |= self.copies[column] & (effects - 1)
        self.protocol.landing(event, issued, column, number, bit, effects)

    def _phase(self, event: ev.Phase) -> None:
        self.protocol.phase(event)

    def _wait(self, event: ev.Wait) -> None:
        self.protocol.wait(event, self._tick(event.agent, event.site))

    def _pass(self, event: ev.Pass) -> None:
        column = self._tick(event.agent, event.site)
        if self.lanes.open.get(column):
            self.lanes.heard(column, self.protocol.told(event))
        self.protocol.passed(event, column)

    def _nb(self, event: ev.NamedArrive) -> None:
        column = self._tick(event.agent, event.site)
        self.protocol.named(event, column)
        self.released[column] = self.numbers[column]

    def _nb_gen(self, event: ev.NamedGeneration) -> None:
        self.protocol.named_generation(event)
        for agent in event.synced:
            self.lanes.met(self.columns.agent(agent))

    def _cl_arrive(self, event: ev.ClusterArrive) -> None:
        column = self._tick(event.agent, event.site)
        self.protocol.cluster_arrive(event, column)
        self.released[column] = self.numbers[column]

    def _cl_gen(self, event: ev.ClusterGeneration) -> None:
        self.protocol.cluster_generation(event)

    def _cl_wait(self, event: ev.ClusterWait) -> None:
        column = self._tick(event.agent, event.site)
        message = self.protocol.cluster_wait(event, column)
        self.lanes.heard(column, message)


def written_shapes(setup: ev.Setup) -> dict[str, tuple[int, ...]]:
    """The extents of the tensors that the kernel may write; only they can race."""
    from cake.ir.evaluate import evaluate

    return {
        t.name: tuple(int(evaluate(e, setup.values)) for e in t.shape)
        for t in setup.kernel.tensors
        if t.direction != "in"
    }


assert BITS == 7 and CONTROL_ROWS == (C, R)
