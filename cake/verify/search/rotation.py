"""States up to rotation: for launches whose agents repeat themselves, so that any number of trips has finitely many states.

An agent's places are periodic if, some way in, the place ``p`` rounds later does the same on the same slots, only with later phases
and later fills. If one turn of all agents together advances every barrier and every ring by the same amounts, a state and the state
one turn later have the same futures; their keys are made equal by counting from the slowest agent's turn. (A turn of a ring of S
slots is S fills, so no slot has to be renamed.) What the exploration then covers is the start and every later turn without end; how
the launch *ends* is for launches with few trips (docs/verification.md 1.3, Theorem 3).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from math import lcm

from cake.verify.search.model import Part, Place
from cake.verify.search.state import Semantics, State
from cake.verify.search.steps import Slot, Tag

ROUNDS = 3
"""An agent must repeat at least so often to be called periodic."""


@dataclass
class Turn:
    """One agent's repetition: places ``start .. end`` repeat after ``length``; what one round adds to phases and fills."""

    start: int
    end: int
    length: int
    phases: dict[Slot, int] = field(default_factory=dict)
    fills: dict[str, int] = field(default_factory=dict)

    def advance(self) -> list[tuple[Hashable, int]]:
        """Both together."""
        return [*self.phases.items(), *self.fills.items()]


def signature(place: Place) -> Hashable:
    """What an agent does at a place, without phases and fills."""
    s = place.step
    step = (
        ()
        if s is None
        else (s.kind, s.path, s.barriers, s.form, s.weight, s.bytes, s.ident, s.count, s.queue, s.keep, s.read)
    )
    items = tuple((tuple(m for m, _ in i.reads), tuple(m for m, _ in i.writes)) for i in place.items)
    issued = tuple((p.foot, p.barriers, p.bytes) for p in place.issued)
    return step, items, place.seg, issued, place.flying, bool(place.wgmma)


def turn_of(places: list[Place]) -> Turn | None:
    """The longest repetition of an agent that reaches into its middle; None if there is none."""
    marks = [signature(p) for p in places]
    middle = len(marks) // 2
    for length in range(1, len(marks) // ROUNDS + 1):
        if middle + length >= len(marks) or marks[middle] != marks[middle + length]:
            continue
        start = end = middle
        while start > 0 and marks[start - 1] == marks[start - 1 + length]:
            start -= 1
        while end + length < len(marks) and marks[end] == marks[end + length]:
            end += 1
        if end - start >= (ROUNDS - 1) * length:
            turn = Turn(start, end + length, length)
            return turn if _measure(turn, places) else None
    return None


def _measure(turn: Turn, places: list[Place]) -> bool:
    """How much a round adds; False if that is not the same everywhere."""
    for i in range(turn.start, turn.end - turn.length):
        a, b = places[i], places[i + turn.length]
        if a.step is not None and b.step is not None and a.step.kind == "wait":
            later = b.step.phase - a.step.phase
            if turn.phases.setdefault(a.step.barriers[0], later) != later:
                return False
        for x, y in zip(a.items, b.items, strict=True):
            for (_, s), (_, t) in zip((*x.reads, *x.writes), (*y.reads, *y.writes), strict=True):
                if s is not None and t is not None and not _same(turn, s, t):
                    return False
        for p, q in zip(a.issued, b.issued, strict=True):
            for (_, s), (_, t) in zip(p.writes, q.writes, strict=True):
                if s is not None and t is not None and not _same(turn, s, t):
                    return False
    return True


def _same(turn: Turn, s: Tag, t: Tag) -> bool:
    return turn.fills.setdefault(s.base, t.position - s.position) == t.position - s.position


class Rotation:
    """Keys of states. ``usable``: all agents either repeat themselves in step, or never get past their start."""

    def __init__(self, machine: Semantics) -> None:
        self.machine = machine
        self.turns = [turn_of(places) for places in machine.tracks]
        self.usable = any(t is not None for t in self.turns) and self._aligned()
        self.issued = {p.number: (p.agent, i, n) for i, n, p in self._parts()}
        self.names = {n: t for t, n in machine.tags.items()}

    def _parts(self) -> Iterator[tuple[int, int, Part]]:
        for places in self.machine.tracks:
            for i, place in enumerate(places):
                for n, part in enumerate(place.issued):
                    yield i, n, part

    def _aligned(self) -> bool:
        """Give every agent as many rounds a turn as make phases and fills advance alike for all."""
        rates: dict[Hashable, int] = {}
        found = [t for t in self.turns if t is not None]
        for t in found:
            for what, by in t.advance():
                if by <= 0:
                    return False
                rates[what] = lcm(rates.get(what, 1), by)
        for _ in range(8):
            stable = True
            for t in found:
                advance = dict(t.advance())
                times = 1
                for what, by in advance.items():
                    times = lcm(times, rates[what] // by)
                for what, by in advance.items():
                    if rates[what] != by * times:
                        rates[what], stable = lcm(rates[what], by * times), False
                if times > 1:
                    t.length *= times
                    t.phases = {k: v * times for k, v in t.phases.items()}
                    t.fills = {k: v * times for k, v in t.fills.items()}
            if stable and all(rates[w] == by for t in found for w, by in t.advance()):
                self.rates = rates
                return all(t.end - t.start >= 2 * t.length for t in found)
        return False

    def key(self, state: State) -> Hashable:
        """The state, counted from the slowest agent's turn."""
        if not self.usable:
            return state
        turns = []
        for at, t in zip(state[0], self.turns, strict=True):
            if t is not None:
                if not t.start <= at < t.end - t.length:
                    return state
                turns.append((at - t.start) // t.length)
        k = min(turns, default=0)
        if not k:
            return state
        places = tuple(at - k * t.length if t is not None else at for at, t in zip(state[0], self.turns, strict=True))
        bars = tuple(
            None if bar is None else (bar[0] - k * self.rates.get(slot, 0), bar[1], bar[2])
            for bar, slot in zip(state[1], self.machine.bars, strict=True)
        )
        fills = tuple(self._fill(n, k) for n in state[6])
        flying = frozenset(self._flight(p.number, k) for p in self.machine.flying(state[5]))
        return (places, bars, state[2], state[3], state[4], flying, fills)

    def late(self, state: State) -> bool:
        """Some agent has come past its repetition."""
        return any(t is not None and at >= t.end - t.length for at, t in zip(state[0], self.turns, strict=True))

    def _fill(self, number: int, k: int) -> Hashable:
        if number < 2:
            return number
        if number not in self.names:
            self.names = {n: t for t, n in self.machine.tags.items()}
        tag = self.names[number]
        assert tag is not None
        return tag.base, tag.position - k * self.rates.get(tag.base, 0)

    def _flight(self, number: int, k: int) -> Hashable:
        agent, place, ordinal = self.issued[number]
        turn = self.turns[agent]
        return agent, place - (k * turn.length if turn is not None else 0), ordinal
