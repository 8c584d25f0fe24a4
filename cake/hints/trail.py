"""The order reading with some edges left out, and with a record of what each order rests on.

``Trail`` reads a recorded run as ``cake.machine.order`` does. The edges of the places in ``removed`` carry nothing: what is still
ordered needs none of them. Beside that it keeps every *need* that the run meets (two accesses that must be ordered, and
the conditions D1, D4 and D5 of docs/verification.md 1.3), and a copy of an agent's clocks wherever it learns something, so that
one can ask when the agent knew enough.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from cake.hints.crossings import Crossings, Meetings
from cake.hints.watch import Watch
from cake.machine import events as ev
from cake.machine.order.clocks import DONE, C, Clock
from cake.machine.order.conflicts import compared, problem
from cake.machine.order.layout import name
from cake.machine.order.phases import PhaseLog, Source
from cake.machine.order.races import Races
from cake.machine.order.reader import Order
from cake.machine.order.shadow import Access

RECENT, TRIES = 64, 200
"""Marks among which the edge is looked for that brought a need about, and how often it is looked for between two places."""

SAME = 3
"""Needs that are kept of one kind between two places; the others are met alike."""


@dataclass(frozen=True)
class Need:
    """Something that the agent of ``column`` must know at its event ``number``. ``met``: whether clocks know it. ``first`` and
    ``then``: the places it stands between; ``key`` tells it from other needs of the same run."""

    key: tuple[object, ...]
    text: str
    first: ev.Site | None
    then: ev.Site | None
    column: int
    number: int
    met: Callable[[Clock], bool]


@dataclass(frozen=True)
class Lesson:
    """An agent has learned something at its event ``number``, in the step at ``site``."""

    number: int
    event: ev.Event
    site: ev.Site | None
    clock: Clock


@dataclass(frozen=True)
class Mark:
    """An edge of a watched place: what its agent knew before and after."""

    column: int
    number: int
    before: Clock
    after: Clock


@dataclass
class Record:
    """What one reading has noted."""

    lessons: dict[int, list[Lesson]] = field(default_factory=dict)
    marks: list[Mark] = field(default_factory=list)
    across: dict[tuple[object, ...], Need] = field(default_factory=dict)
    counts: Counter[tuple[object, ...]] = field(default_factory=Counter)
    tries: Counter[tuple[object, ...]] = field(default_factory=Counter)


class Trail(Order):
    """``removed``: places whose edges carry nothing. ``watched``: places whose edges are marked; then needs that such an edge
    brought about are kept in ``record``."""

    def __init__(self, removed: frozenset[str], watched: frozenset[str] = frozenset(), *, noting: bool = False) -> None:
        super().__init__()
        self.removed = removed
        self.watched = watched
        self.noting = noting
        self.records: list[Record] = []
        self.skipped: Counter[ev.NamedKey] = Counter()
        self.meeting: dict[ev.NamedKey, ev.Site | None] = {}

    def start(self, setup: ev.Setup) -> None:
        """A batch of clusters starts."""
        super().start(setup)
        self.records.append(Record())
        self.meetings = Meetings()
        if self.noting:
            self.races = _Noting(self.memory, self.profile, self.progress, setup.agents, self._pair)
        elif self.removed:
            self.races = crossings = Crossings(self.memory, self.profile, self.progress, setup.agents)
            crossings.meetings = self.meetings

    @property
    def record(self) -> Record:
        """Of the batch being read."""
        return self.records[-1]

    @property
    def wrong(self) -> bool:
        """Something is not as it must be, as far as has been read."""
        found = self.races.pairs or self.races.stale or self.protocol.findings or self.findings
        return bool(found or self.registers.findings or self.lanes.findings) or getattr(self.races, "crossed", False)

    def event(self, event: ev.Event) -> None:
        """The next event."""
        site = event.site
        if isinstance(event, ev.NamedArrive):
            self.meeting[event.barrier] = site
        elif isinstance(event, ev.NamedGeneration):
            site = self.meeting.get(event.barrier)
        path = site.path if site is not None else ""
        removed = path in self.removed and event.kind in _EDGES
        if removed:
            for agent in self._walkers(event):
                self._tick(agent, event.site)
        if isinstance(event, ev.Join | ev.NamedGeneration):
            self._meet(event, removed=removed)
        if isinstance(event, ev.NamedGeneration) and (removed or event.barrier not in self.protocol.generations):
            self.skipped[event.barrier] += 1
        elif not removed:
            self._read(event, site)

    def _meet(self, event: ev.Join | ev.NamedGeneration, *, removed: bool) -> None:
        """The lanes of warps come together, in a way that orders their memory (PTX ISA 9.7.13.1, 9.7.13.2)."""
        if isinstance(event, ev.Join) and event.strength != "all":
            return
        for agent in event.members if isinstance(event, ev.Join) else event.synced:
            column = self.columns.agent(agent)
            self.meetings.add(column, self.numbers[column], removed=removed)

    def _read(self, event: ev.Event, site: ev.Site | None) -> None:
        if isinstance(event, ev.NamedArrive | ev.NamedGeneration) and self.skipped[event.barrier]:
            event = replace(event, generation=event.generation - self.skipped[event.barrier])
        if not self.noting:
            super().event(event)
            return
        self._obligations(event)
        columns = [self.columns.agent(a) for a in self._learners(event)]
        watched = site is not None and site.path in self.watched
        before = [self.clocks[c].copy() for c in columns] if watched else []
        super().event(event)
        for i, column in enumerate(columns):
            clock = self.clocks[column].copy()
            self.record.lessons.setdefault(column, []).append(Lesson(self.numbers[column], event, site, clock))
            if before:
                self.record.marks.append(Mark(column, self.numbers[column], before[i], clock))

    def _walkers(self, event: ev.Event) -> Iterable[ev.Agent]:
        if isinstance(event, ev.Join):
            return event.members
        return () if isinstance(event, ev.NamedGeneration) else (event.agent,)  # type: ignore[attr-defined]

    def _learners(self, event: ev.Event) -> tuple[ev.Agent, ...]:
        if isinstance(event, ev.Join):
            return event.members
        if isinstance(event, ev.NamedGeneration):
            return event.synced
        if isinstance(event, ev.Pass | ev.GroupWait | ev.Fence | ev.ClusterWait):
            return (event.agent,)
        return (event.agent,) if isinstance(event, ev.Access) and event.word is not None else ()

    # -- needs --------------------------------------------------------------------------------------------------------

    def _note(self, need: Need, clock: Clock) -> None:
        """Keep a need that a watched edge brought about."""
        record = self.record
        places = need.key[0], need.first and need.first.path, need.then and need.then.path
        if not record.marks or record.counts[places] >= SAME or record.tries[places] >= TRIES:
            return
        record.tries[places] += 1
        for mark in reversed(record.marks[-RECENT:]):
            if clock.knows(mark.column, mark.number) and need.met(mark.after) and not need.met(mark.before):
                record.counts[places] += 1
                record.across[need.key] = need
                return

    def _pair(self, earlier: Access, later: Access, clock: Clock) -> None:
        text = f"{_does(earlier)} before {_does(later)}"
        profile = self.profile

        def met(known: Clock) -> bool:
            return problem(earlier, later, known, profile) is None

        key = ("data", text, earlier.column, earlier.number, later.column, later.number)
        self._note(Need(key, text, earlier.site, later.site, later.column, later.number, met), clock)

    def _obligations(self, event: ev.Event) -> None:
        """D1 and D5 when they are asked, D4 when the later phase completes."""
        if isinstance(event, ev.Contrib) and isinstance(event.by, ev.Agent):
            self._separated("D1", event, event.by, event.phase - 1)
        elif isinstance(event, ev.Wait) and event.intended is not None:
            self._separated("D5", event, event.agent, event.intended - 1)
        elif isinstance(event, ev.Phase):
            log = self.protocol.logs[event.barrier]
            for passed in log.passes.get(event.index - 1, ()):
                for source in log.sources:
                    if source.bit is None and source.past[passed.column] >= passed.number:
                        self._unlapped(log, event.index, passed.event, passed.column, passed.number, source)
                        break

    def _separated(self, kind: str, event: ev.Contrib | ev.Wait, agent: ev.Agent, phase: int) -> None:
        log = self.protocol.logs[event.barrier]
        if phase < 0 or phase >= len(log.completed):
            return
        sources = log.completed[phase]

        def met(known: Clock) -> bool:
            row = known.rows[C]
            return all(row[s.column] >= s.number if s.bit is None else known.has(s.bit, DONE) for s in sources)

        column = self.columns.agent(agent)
        then = "the arrival for" if kind == "D1" else "a wait for"
        text = f"phase {phase} of `{self._slot(log)}` complete before {then} phase {phase + 1}{_line(event.site)}"
        first = sources[-1].event.site if sources else None
        key = (kind, text, column, self.numbers[column] + 1)
        self._note(Need(key, text, first, event.site, column, self.numbers[column] + 1, met), self.clocks[column])

    def _unlapped(self, log: PhaseLog, index: int, event: ev.Pass, column: int, number: int, source: Source) -> None:
        def met(known: Clock) -> bool:
            return known.knows(column, number)

        text = f"the wait for phase {index - 1} of `{self._slot(log)}` over before phase {index} completes"
        key = ("D4", text, column, number, source.column, source.number)
        need = Need(key, text, event.site, source.event.site, source.column, source.number, met)
        self._note(need, self.clocks[source.column])

    def _slot(self, log: PhaseLog) -> str:
        return name(log.key, self.protocol.slots[log.key[1]])


_EDGES = frozenset({"nb", "nb_gen", "join", "fence", "gwait", "wait", "pass"})
"""Events that a removed place no longer has."""


class _Noting(Races):
    """Races that also tell of pairs in order."""

    def __init__(
        self,
        memory: object,
        profile: object,
        progress: list[list[int]],
        agents: tuple[ev.Agent, ...],
        note: Callable[[Access, Access, Clock], None],
    ) -> None:
        super().__init__(memory, profile, progress, agents)  # type: ignore[arg-type]
        self.note = note

    def access(self, access: Access, clocks: list[Clock], others: list[Access]) -> None:
        for cell in self.memory.cells(access.effect.region):
            for rival in cell.rivals(access):
                for twin, clock in zip((access, *others), clocks, strict=True):
                    if compared(rival, twin) and problem(rival, twin, clock, self.profile) is None:
                        self.note(rival, twin, clock)
        super().access(access, clocks, others)


def _does(access: Access) -> str:
    verb = {"r": "read", "w": "write", "rw": "update"}[access.effect.mode]
    region = access.effect.region
    what = region.buffer if isinstance(region, ev.SharedRegion) else getattr(region, "tensor", "")
    by = f" by {access.op.op}" if access.op is not None else ""
    return f"the {verb} of `{what}`{by}{_line(access.site)}"


def _line(site: ev.Site | None) -> str:
    return f" (line {site.span.line})" if site is not None and site.span is not None else ""


def read(watch: Watch, trail: Trail, *, stop: bool = False) -> bool:
    """Read a recorded run; True if nothing is wrong. ``stop``: end at the first thing that is."""
    for setup, events in watch.batches():
        trail.start(setup)
        for event in events:
            trail.event(event)
            if stop and trail.wrong:
                return False
        trail.end()
    return not trail.wrong
