"""Who wrote and who read each piece of memory last, and whether two accesses are ordered as their kinds need.

Pieces are the smallest access that the code makes. A write leaves a record, reads since then a set of records;
records say by whom (a component of the clocks and its epoch) or, for asynchronous operations, what completes them.
Orders needed (PTX ISA 8.6, 8.9, 9.7.9.27.1.2): an ordinary access sees earlier writes by ``visible``; an access of the
async proxy sees ordinary writes by ``fenced``; what overwrites a read needs it to have ``happened``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from cake.ptx.interpret.clocks import Clock, Knowledge

Region = npt.NDArray[np.int64]
"""Numbers of pieces."""


@dataclass(eq=False, slots=True)
class Access:
    """A record. ``component`` and ``upto``: the clock value that covers it; ``upto`` of an operation in flight that is
    not known yet is None. ``proxy``: by an operation of the async proxy; ``copy``: cp.async, an asynchronous operation
    of the generic proxy; ``atomic``: a morally strong or combining access. ``name`` identifies it in every
    schedule."""

    component: int
    upto: int | None
    text: str
    name: object
    write: bool
    proxy: bool = False
    copy: bool = False
    atomic: bool = False
    barrier: bool = False
    line: int = 0
    place: str = ""
    own: tuple[int, int] | None = None
    """Of a cp.async: its group in the queue of the thread that issued it, whose fence publishes it."""


Report = Callable[[str, str, bool], None]
"""Takes kind, text, policy."""


def _known(clock: Clock, r: Access) -> bool:
    return r.upto is not None and bool(clock[r.component] >= r.upto)


class Order:
    """The rules: a new access by someone who knows ``k``, after an old one."""

    def __init__(self, space: int) -> None:
        self.space = space

    def problem(self, old: Access, new: Access, k: Knowledge) -> tuple[str, bool] | None:
        """What is wrong between them: a kind, and whether only axiom A4 says so."""
        if old.atomic and new.atomic:
            return ("proxies", False) if old.proxy != new.proxy else None
        if not old.write and not new.write:
            return None
        if new.proxy:
            return self._by_async(old, new, k)
        if not old.write:
            return None if _known(k.happened, old) else ("race", False)
        if _known(k.visible, old):
            return None
        return ("visibility" if _known(k.happened, old) else "race"), False

    def _by_async(self, old: Access, new: Access, k: Knowledge) -> tuple[str, bool] | None:
        if not _known(k.happened, old):
            return "race", False
        if old.proxy:
            if not old.write or new.write:
                return None
            return None if _known(k.visible, old) else ("visibility", False)
        assert old.upto is not None
        component, upto = (old.component, old.upto) if old.own is None else old.own
        if k.fenced(self.space)[component] >= upto:
            return None
        if not old.write:
            return "refill", True
        if not _known(k.visible, old):
            return "visibility", False
        by_another = k.cumulative(self.space)[old.component] >= old.upto
        return ("misplaced", True) if by_another else ("fence", False)


@dataclass
class Readers:
    """Sets of reading records, by number; 0 is the empty set."""

    sets: list[tuple[Access, ...]] = field(default_factory=lambda: [()])
    numbers: dict[tuple[int, int], int] = field(default_factory=dict)

    def plus(self, number: int, record: int, access: Access) -> int:
        """The set with one more. A later read by the same component with the same needs replaces the earlier."""
        key = (number, record)
        found = self.numbers.get(key)
        if found is None:
            old = self.sets[number]
            if access in old:
                found = number
            else:
                same = (access.component, access.proxy, access.atomic)
                rest = tuple(r for r in old if (r.component, r.proxy, r.atomic) != same or r.upto is None)
                self.sets.append((*rest, access))
                found = len(self.sets) - 1
            self.numbers[key] = found
        return found


class Memory:
    """One state space of one CTA, or one tensor."""

    def __init__(self, size: int, piece: int, space: int, what: str) -> None:
        self.size, self.piece, self.what = size, piece, what
        self.shared = space == 0
        self.order = Order(space)
        count = -(-size // piece)
        self.writer = np.zeros(count, np.int32)
        self.reads = np.zeros(count, np.int32)
        self.records: list[Access | None] = [None]
        self.readers = Readers()
        self._numbers: dict[int, int] = {}

    def number(self, access: Access) -> int:
        """Of a record, giving it one."""
        found = self._numbers.get(id(access))
        if found is None:
            self.records.append(access)
            found = self._numbers[id(access)] = len(self.records) - 1
        return found

    def read(self, region: Region, access: Access, knows: Iterable[Knowledge], report: Report) -> frozenset[Any]:
        """Check a read and note it; the names of the writers that it found."""
        writers = _distinct(self.writer[region])
        found = []
        for w in writers:
            old = self.records[w]
            if old is None:
                if self.shared:
                    report("uninitialised", f"{access.text} reads {self.what} that nothing has written", False)
                continue
            found.append(old.name)
            if old.barrier:
                report("lifetime", f"{access.text} touches an mbarrier", False)
                continue
            self._compare(old, access, knows, report)
        number = self.number(access)
        sets = self.reads[region]
        kinds = _distinct(sets)
        if len(kinds) == 1:
            plus = self.readers.plus(kinds[0], number, access)
            if plus != kinds[0]:
                self.reads[region] = plus
        else:
            for kind in kinds:
                self.reads[region[sets == kind]] = self.readers.plus(kind, number, access)
        return frozenset(found)

    def write(self, region: Region, access: Access, knows: Iterable[Knowledge], report: Report) -> None:
        """Check a write and note it."""
        for w in _distinct(self.writer[region]):
            old = self.records[w]
            if old is None or old is access:
                continue
            if old.barrier:
                report("lifetime", f"{access.text} overwrites an mbarrier", False)
            else:
                self._compare(old, access, knows, report)
        for r in _distinct(self.reads[region]):
            for old in self.readers.sets[r]:
                self._compare(old, access, knows, report)
        self.writer[region] = self.number(access)
        self.reads[region] = 0

    def _compare(self, old: Access, new: Access, knows: Iterable[Knowledge], report: Report) -> None:
        for k in knows:
            wrong = self.order.problem(old, new, k)
            if wrong is not None:
                kind, policy = wrong
                at = f", {old.place or f'line {old.line}'}" if old.line else ""
                report(kind, f"{new.text} {_SAYS[kind]} {old.text}{at} ({self.what})", policy)
                return


_SAYS = {
    "race": "is not ordered after",
    "visibility": "comes after, but need not see,",
    "fence": "has no proxy fence after",
    "misplaced": "has a proxy fence of another thread only after",
    "refill": "has no proxy fence after",
    "proxies": "combines through another proxy what was combined by",
}


def _distinct(values: npt.NDArray[np.int32]) -> list[int]:
    """Each value once."""
    if values.size == 0:
        return []
    first = values[0]
    if (values == first).all():
        return [int(first)]
    return [int(v) for v in np.unique(values)]
