"""mbarriers as the order reading sees them: messages of each phase, and the conditions D1, D3, D4, D5 and D7.

- D1 (P102) each contribution to phase p has the completion of p - 1 in its past; bytes of a copy: at the copy's
  issue. Past the last phase that anything waits for, it is that one's completion that must be there: an arrival meant for
  a later phase could otherwise complete it early.
- D2 (P103, P104) the executor counts; here contributions that land in another phase than the one their ring position
  means are told apart: too many or too few arrivals (P103), or arrivals that change places (P102).
- D3 (P105) each announcement is in the past of (or is) an arrival of its phase.
- D4 (P106) each wait for p returns before p + 1 completes.  D5 (P107) each wait for p is issued after p - 1 completed.
- D7 (P113, F308) initialisation is known to every user; to one in another CTA with the mbarrier-init fence.

Messages (edges E5-E8): a release carries all clocks to the waiters that its scope includes, and control order only to
others; the bytes of a copy carry that copy's own writes and control order.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from cake.machine import events as ev
from cake.machine.order.clocks import (
    CONTROL_BITS,
    CONTROL_ROWS,
    DONE,
    SEEN_S,
    SEEN_X,
    C,
    Clock,
    S,
    X,
    unscoped,
)


@dataclass(slots=True)
class Source:
    """A contribution of the phase in progress: its event, and the place of the agent (bytes: of the copy's issue) in
    time."""

    event: ev.Contrib
    column: int
    number: int
    past: np.ndarray
    bit: int | None = None


@dataclass(slots=True)
class Letter:
    """What the contributions of one phase tell its waiters. ``narrow`` and ``wide``: releases of CTA scope and of
    wider scope, by CTA; ``bytes``: completed copies; ``loose``: what even the wrong scope or semantics carry."""

    narrow: dict[int, Clock] = field(default_factory=dict)
    wide: dict[int, Clock] = field(default_factory=dict)
    bytes: Clock | None = None
    loose: Clock | None = None

    def add(self, agent: ev.Agent, column: int, clock: Clock, sem: str, scope: str, *, alone: bool) -> None:
        """A thread's arrival. ``alone``: no other CTA can wait for it."""
        if sem == "release":
            part = self.narrow if scope == "cta" else self.wide
            if agent.cta in part:
                part[agent.cta].join(clock)
            else:
                part[agent.cta] = clock.copy()
        if sem != "release" or not alone:
            self._loosely(unscoped(clock, column, semantics=sem == "release"))

    def _loosely(self, message: Clock) -> None:
        if self.loose is None:
            self.loose = message
        else:
            self.loose.join(message)

    def landed(self, message: Clock) -> None:
        """The bytes of a copy."""
        if self.bytes is None:
            self.bytes = message
        else:
            self.bytes.join(message)

    def deliver(self, clock: Clock, cta: int, sem: str, scope: str) -> None:
        """A waiter of ``cta`` passes."""
        parts = [(self.narrow, False), (self.wide, True)]
        for part, far in parts:
            for source, message in part.items():
                if sem == "acquire" and (source == cta or (far and scope != "cta")):
                    clock.join(message)
                elif source == cta:
                    clock.join_rows(message, (*CONTROL_ROWS, X), (*CONTROL_BITS, SEEN_X))
        if self.bytes is not None:
            if sem == "acquire":
                clock.join(self.bytes)
            else:
                clock.join_rows(self.bytes, (*CONTROL_ROWS, X), (*CONTROL_BITS, SEEN_X))
        if self.loose is not None:
            if sem == "acquire":
                clock.join_rows(self.loose, (*CONTROL_ROWS, S, X), (*CONTROL_BITS, SEEN_S, SEEN_X))
            else:
                clock.join_rows(self.loose, (*CONTROL_ROWS, X), (*CONTROL_BITS, SEEN_X))


@dataclass(slots=True)
class Passed:
    """A wait that returned: where, and whether the previous phase was known when it was issued."""

    event: ev.Pass
    column: int
    number: int


class PhaseLog:
    """One mbarrier slot. ``column``: where the clocks keep what is known of its phases (phase p: p + 2)."""

    def __init__(self, key: ev.BarrierKey, column: int) -> None:
        self.key = key
        self.column = column
        self.count = 0
        self.sources: list[Source] = []
        self.completed: list[list[Source]] = []
        self.letter = Letter()
        self.latest = Letter()
        self.passes: dict[int, list[Passed]] = {}
        self.init: tuple[int, int] | None = None
        self.fenced: int | None = None
        self.last_waited = -2
        self.intended: dict[int, list[ev.Contrib]] = {}
        self.forgetful = False

    @property
    def phase(self) -> int:
        """The phase in progress."""
        return len(self.completed)

    def knows(self, clock: Clock, phase: int) -> bool:
        """The completion of ``phase`` is in the past that ``clock`` describes, or all contributions to it are (where
        ``forgetful``, only those of the last phase are remembered, which refuses more, never less)."""
        row = clock.rows[C]
        if row[self.column] >= phase + 2:
            return True
        if phase < 0 or phase >= len(self.completed) or (self.forgetful and phase < len(self.completed) - 1):
            return False
        known = all(
            row[s.column] >= s.number if s.bit is None else clock.has(s.bit, DONE) for s in self.completed[phase]
        )
        if known:
            row[self.column] = phase + 2
        return known

    def initialised(self, rows: np.ndarray) -> bool:
        """The initialisation is known."""
        return bool(rows[self.column] >= 1)

    def fence_known(self, rows: np.ndarray) -> bool:
        """The fence after the initialisation is known."""
        return self.init is not None and self.fenced is not None and bool(rows[self.init[0]] >= self.fenced)

    def newest(self, clock: Clock) -> int:
        """The newest phase before the one in progress whose completion is in the past that ``clock`` describes."""
        return next((p for p in range(self.phase - 1, -2, -1) if self.knows(clock, p)), -2)

    def add(self, source: Source, clock: Clock) -> bool:
        """A contribution to the phase in progress; False if the previous phase is not known to come before it (D1).
        ``clock``: what its agent knows (bytes: knew at the copy's issue)."""
        separated = self.knows(clock, self.phase - 1)
        self.sources.append(source)
        if source.event.intended is not None and source.event.weight:
            self.intended.setdefault(source.event.intended, []).append(source.event)
        return separated

    def complete(self) -> tuple[list[Source], np.ndarray]:
        """The phase in progress ends: its contributions, and the union of their pasts."""
        sources, self.sources = self.sources, []
        self.completed.append(sources)
        self.latest, self.letter = self.letter, Letter()
        return sources, np.maximum.reduce([s.past for s in sources])

    def late_announcements(self, sources: list[Source]) -> list[Source]:
        """Announcements that no arrival of the phase has in its past (D3)."""
        arrivals = [s for s in sources if s.event.weight]
        return [
            s
            for s in sources
            if s.event.form == "expect"
            and not s.event.weight
            and not any(a.past[s.column] >= s.number for a in arrivals)
        ]

    def lapped(self, index: int, past: np.ndarray) -> list[Passed]:
        """Waits for the phase before ``index`` that did not return before ``index`` completed (D4)."""
        return [p for p in self.passes.pop(index - 1, []) if past[p.column] < p.number]


def control_row(clock: Clock) -> np.ndarray:
    """The control row, as a copy that stays as it is now."""
    return np.array(clock.rows[C])
