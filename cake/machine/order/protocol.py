"""The protocol half of the order reading: barriers of all kinds, what they tell their waiters, and D1-D5, D7.

Named barriers (E10): a generation tells everything to those that synced on it; its separation (D1) is by *physical
id* (P114). The cluster barrier (E11) is separated by its own alternation, which the executor enforces (P116).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from cake.diagnostics import Diagnostic
from cake.ir import expanded as x
from cake.machine import events as ev
from cake.machine.order.clocks import DONE, READ, SEEN, SEEN_S, SEEN_X, C, Clock, control, unscoped
from cake.machine.order.layout import Columns, name
from cake.machine.order.phases import Passed, PhaseLog, Source, control_row
from cake.machine.order.report import finding, of, where
from cake.machine.program import statements


def executes(agent: ev.Agent, node: x.Node, role: x.Role) -> bool:
    """``agent`` is one of those that a statement of ``role`` names."""
    if agent.role != role.name or (agent.half == "R" and (node.executor != "lanes" or role.solo)):
        return False
    first = role.first_warp + agent.instance * role.warps
    return agent.warp == first or not (node.executor == "one" or role.solo)


@dataclass(slots=True)
class Suspect:
    """A contribution without the previous phase in its past, but with ``known``: a finding if a wait asks about a phase
    between them, in which it may then land."""

    log: PhaseLog
    phase: int
    event: ev.Contrib
    known: int


@dataclass(slots=True)
class Generation:
    """A generation of a named barrier in progress."""

    message: Clock
    members: list[tuple[int, int, ev.NamedArrive]] = field(default_factory=list)


class Protocol:
    """Barriers of one batch. ``clocks``: by agent column; ``numbers``: how many events each agent has had."""

    def __init__(self, setup: ev.Setup, columns: Columns, clocks: list[Clock], numbers: list[int]) -> None:
        self.kernel = setup.kernel
        self.agents = setup.agents
        self.columns = columns
        self.clocks = clocks
        self.numbers = numbers
        self.slots = {b.name: b.slots for b in setup.kernel.barriers}
        self.counts = {b.name: b.count for b in setup.kernel.barriers}
        self.clustered = setup.kernel.cluster > 1
        self.logs = {key: PhaseLog(key, column) for key, column in columns.barriers.items()}
        self.suspects: list[Suspect] = []
        self.findings: list[Diagnostic] = []
        self.said: set[object] = set()
        self.early: dict[int, bool] = {}
        self.parity: dict[int, Clock] = {}
        self.generations: dict[ev.NamedKey, Generation] = {}
        self.mixed: list[tuple[ev.NamedKey, int, int, ev.NamedArrive]] = []
        self.past: dict[ev.NamedKey, list[list[tuple[int, int, ev.NamedArrive]]]] = {}
        self.synced: dict[ev.NamedKey, int] = {}
        self.cluster: dict[int, Clock] = {}
        self.cluster_done: dict[tuple[int, int], Clock] = {}
        self.remote: list[tuple[int, int, int, ev.Contrib]] = []

    @property
    def last(self) -> dict[ev.NamedKey, list[tuple[int, int, ev.NamedArrive]]]:
        """Who came for the last generation of each named barrier."""
        return {key: generations[-1] for key, generations in self.past.items()}

    def text(self, key: ev.BarrierKey) -> str:
        """The name of a barrier slot."""
        return name(key, self.slots[key[1]])

    # -- mbarriers ----------------------------------------------------------------------------------------------------

    def init(self, event: ev.Init, column: int) -> None:
        """mbarrier.init: phase -1 is known to whoever knows this."""
        log = self.logs[event.barrier]
        log.count = event.count
        log.init = column, self.numbers[column]
        row = self.clocks[column].rows[C]
        row[log.column] = max(row[log.column], 1)

    def init_fence(self, column: int) -> None:
        """fence.mbarrier_init: what this thread initialised may be used by other CTAs once the fence is known."""
        for log in self.logs.values():
            if log.fenced is None and log.init is not None and log.init[0] == column:
                log.fenced = self.numbers[column]

    def _usable(self, log: PhaseLog, clock: Clock, cta: int, event: ev.Contrib | ev.Wait) -> None:
        if not log.initialised(clock.rows[C]):
            self._add(
                "P113", f"{self.text(log.key)} is used, but its initialisation is not known to come before", event
            )
        elif cta != log.key[0] and not log.fence_known(clock.rows[C]):
            self._add("F308", f"{self.text(log.key)} is used by another CTA without fence.mbarrier_init before", event)

    def contribution(self, event: ev.Contrib, column: int) -> None:
        """An arrival or announcement of a thread."""
        log, clock = self.logs[event.barrier], self.clocks[column]
        agent = event.by
        assert isinstance(agent, ev.Agent)
        self._usable(log, clock, agent.cta, event)
        source = Source(event, column, self.numbers[column], control_row(clock))
        if not log.add(source, clock):
            self.suspects.append(Suspect(log, event.phase, event, log.newest(clock)))
        alone = not self.clustered
        if event.weight:
            log.letter.add(agent, column, clock, event.sem, event.scope, alone=alone)
        if agent.cta != event.barrier[0]:
            self.remote.append((event.barrier[0], column, self.numbers[column], event))

    def landing(self, event: ev.Contrib, issued: Clock, column: int, number: int, bit: int, effects: int) -> None:
        """Bytes or a triggered arrival of an operation whose issuer knew ``issued``: its own effects, and control."""
        log = self.logs[event.barrier]
        source = Source(event, column, number, issued.rows[C], bit)
        if not log.add(source, issued):
            self.suspects.append(Suspect(log, event.phase, event, log.newest(issued)))
        message = control(issued, column)
        for each in (READ, DONE, SEEN, SEEN_S, SEEN_X):
            message.bits[each] |= effects
        log.letter.landed(message)

    def phase(self, event: ev.Phase) -> None:
        """A phase completes: D3 and D4."""
        log = self.logs[event.barrier]
        sources, past = log.complete()
        for late in log.late_announcements(sources):
            arrivals = [s.event for s in sources if s.event.weight]
            self._add(
                "P105",
                f"{self.text(log.key)} is told of {late.event.bytes} bytes by {of(late.event.by)} after that thread's "
                f"arrival, so phase {event.index} may complete without them",
                late.event,
                witness=[f"the arrivals of the phase: {', '.join(sorted({of(a.by) for a in arrivals}))}"],
                help="announce the bytes with the arrival",
            )
        for lap in log.lapped(event.index, past):
            ahead = [s.event for s in sources]
            self._add(
                "P106",
                f"{of(lap.event.agent)} waits for phase {event.index - 1} of {self.text(log.key)}, but phase "
                f"{event.index} can complete before that wait returns",
                lap.event,
                witness=[
                    f"slow: {where(lap.event)} at the wait for phase {event.index - 1}",
                    *sorted({f"ahead: {where(a)} {a.form} in phase {event.index}" for a in ahead}),
                ],
                help="let every warp that waits arrive (or meet the one that does), or deepen the ring",
            )

    def wait(self, event: ev.Wait, column: int) -> None:
        """A wait is issued: D5 asks what is known now."""
        log, clock = self.logs[event.barrier], self.clocks[column]
        self._usable(log, clock, event.agent.cta, event)
        if event.intended is not None:
            self.early[column] = event.intended > 0 and not log.knows(clock, event.intended - 1)
        else:
            self.parity[column] = clock.copy()

    def passed(self, event: ev.Pass, column: int) -> None:
        """A wait returns."""
        log, clock = self.logs[event.barrier], self.clocks[column]
        meant = event.found if event.intended is None else event.intended
        text = self.text(log.key)
        early = self.early.pop(column, False)
        if column in self.parity:
            known = self.parity.pop(column)
            early = meant > 0 and not log.knows(known, meant - 1)
        if event.found > meant:
            self._add(
                "P106",
                f"{of(event.agent)} waits for phase {meant} of {text} and returns only after phase {event.found}",
                event,
            )
        elif early or event.found < meant:
            self._add(
                "P107",
                f"{of(event.agent)} waits for phase {meant} of {text} before phase {meant - 1} is known to be "
                f"complete, so the parity of phase {meant - 2} lets it through",
                event,
                witness=[f"in this run it found phase {event.found}"],
                help="wait for each phase in turn, or order the wait after the earlier ones (a turn)",
            )
        log.last_waited = max(log.last_waited, meant, event.found)
        row = clock.rows[C]
        row[log.column] = max(row[log.column], event.found + 2)
        if event.found >= 0 and event.found == log.phase - 1:
            log.latest.deliver(clock, event.agent.cta, event.sem, event.scope)
        log.passes.setdefault(event.found, []).append(Passed(event, column, self.numbers[column]))

    def told(self, event: ev.Pass) -> Clock:
        """What the phase that a wait has found tells a thread that knows nothing."""
        log, message = self.logs[event.barrier], Clock.fresh(self.columns.count)
        if event.found >= 0 and event.found == log.phase - 1:
            log.latest.deliver(message, event.agent.cta, event.sem, event.scope)
        return message

    # -- named and cluster barriers -----------------------------------------------------------------------------------

    def named(self, event: ev.NamedArrive, column: int) -> None:
        """A thread comes to a named barrier."""
        key, clock = event.barrier, self.clocks[column]
        place = self.columns.named[key]
        generation = self.generations.get(key)
        if generation is None:
            generation = self.generations[key] = Generation(clock.copy())
        else:
            generation.message.join(clock)
        row = clock.rows[C]
        if event.generation and row[place] < event.generation:
            known = event.generation - 1
            while known >= row[place] and not all(row[c] >= n for c, n, _ in self.past[key][known]):
                known -= 1
            if known == event.generation - 1:
                row[place] = event.generation
            else:
                self.mixed.append((key, event.generation, known, event))
        generation.members.append((column, self.numbers[column], event))
        if event.form == "sync":
            self.synced[key] = event.generation

    def named_generation(self, event: ev.NamedGeneration) -> None:
        """A generation completes."""
        generation = self.generations.pop(event.barrier)
        self.past.setdefault(event.barrier, []).append(generation.members)
        place = self.columns.named[event.barrier]
        for agent in event.synced:
            clock = self.clocks[self.columns.agent(agent)]
            clock.join(generation.message)
            clock.rows[C][place] = event.generation + 1

    def cluster_arrive(self, event: ev.ClusterArrive, column: int) -> None:
        """A thread arrives at the cluster barrier; relaxed, it publishes nothing."""
        clock = self.clocks[column]
        message = clock if event.sem == "release_acquire" else unscoped(clock, column, semantics=False)
        held = self.cluster.get(event.agent.cluster)
        if held is None:
            self.cluster[event.agent.cluster] = message.copy()
        else:
            held.join(message)

    def cluster_generation(self, event: ev.ClusterGeneration) -> None:
        """All have arrived."""
        self.cluster_done[event.cluster, event.generation] = self.cluster.pop(event.cluster)

    def cluster_wait(self, event: ev.ClusterWait, column: int) -> Clock:
        """A wait for the cluster barrier returns: what it tells."""
        message = self.cluster_done[event.agent.cluster, event.generation]
        if event.sem != "release_acquire":
            message = unscoped(message, column, semantics=False)
        self.clocks[column].join(message)
        return message

    # -- what is known only at the end
    # ----------------------------------------------------------------------------------

    def finish(self) -> None:
        """Report the suspects that a wait asks about."""
        for suspect in self.suspects:
            asked = min(suspect.phase - 1, suspect.log.last_waited)
            if suspect.known < asked:
                self._separation(suspect, asked)
        for key, generation, known, event in self.mixed:
            asked = min(generation - 1, self.synced.get(key, -1))
            if known < asked:
                self._mixed(key, generation, asked, event)

    def stuck(self) -> list[Diagnostic]:
        """Of a run that stopped: a phase to which all that can arrive have arrived, and which lacks arrivals (P103)."""
        found = []
        for log in self.logs.values():
            arrived = {s.column for s in log.sources if s.event.weight and s.bit is None}
            got = sum(s.event.weight for s in log.sources)
            if log.sources and got < log.count and not self._arrivers(log.key) - arrived:
                text = self.text(log.key)
                whole = f"gets {got} arrivals from all that arrive there; its count is {log.count}"
                message = f"phase {log.phase} of {text} {whole}"
                events = [s.event for s in log.sources]
                witness = tuple(f"{e.weight} from {where(e)} ({e.form})" for e in events)
                found.append(finding("P103", message, events[-1].site, witness=witness))
        return found[:1]

    def _arrivers(self, key: ev.BarrierKey) -> set[int]:
        """The agents that a statement of the program makes arrive at a barrier."""
        found = set()
        for role in self.kernel.roles:
            for node in statements(role.body):
                if isinstance(node, x.Arrive) and node.barrier == key[1] and node.form != "expect":
                    found |= {self.columns.agent(a) for a in self.agents if executes(a, node, role)}
        return found

    def _separation(self, suspect: Suspect, before: int) -> None:
        log, event, phase = suspect.log, suspect.event, suspect.phase
        text = self.text(log.key)
        sums = Counter({p: sum(e.weight for e in events) for p, events in log.intended.items()})
        meant = event.intended
        if event.weight and meant is not None and meant <= log.last_waited and sums[meant] != log.count:
            got = [f"{e.weight} from {where(e)}" for e in log.intended[meant]]
            self._add(
                "P103",
                f"phase {meant} of {text} gets {sums[meant]} arrivals, its count is {log.count}",
                event,
                witness=got,
                help="the count must be the sum of the arrivals of one phase",
            )
            return
        previous = log.completed[before] if before >= 0 else []
        self._add(
            "P102",
            f"{of(event.by)} contributes to phase {phase} of {text} without phase {before} in its past: it may land "
            f"in phase {before}",
            event,
            witness=[f"phase {before} was completed by {', '.join(sorted({of(s.event.by) for s in previous}))}"],
            help="let the arriving thread wait for the earlier phase first, or use a second barrier",
        )

    def _mixed(self, key: ev.NamedKey, generation: int, asked: int, event: ev.NamedArrive) -> None:
        users = sorted({where(e) for _, _, e in self.past[key][asked]})
        self._add(
            "P114",
            f"barrier id {key[1]}: {of(event.agent)} comes for generation {generation} without knowing that generation "
            f"{asked} is complete, so the two can mix",
            event,
            witness=[f"generation {asked}: {', '.join(users)}", f"generation {generation}: {where(event)}"],
            help="give one of the two users another id, or order them",
        )

    def _add(
        self, code: str, message: str, event: ev.Event, witness: list[str] | None = None, help: str | None = None
    ) -> None:
        key = code, event.site.path if event.site is not None else "", getattr(event, "barrier", None)
        if key not in self.said:
            self.said.add(key)
            self.findings.append(finding(code, message, event.site, witness=tuple(witness or ()), help=help))
