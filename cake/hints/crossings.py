"""Lanes of one warp that exchange through memory.

The order reading refuses lanes that cross in shared memory (D216). In global memory it takes two accesses that all lanes of a warp
make as ordered by its program; which lane wrote what another lane reads it does not ask there. A thread's own program does not
order that (a store and a later load of another address may change places), a barrier or `syncwarp` between them does. So a
barrier counts as needed where it alone stands between two accesses of the same bytes or elements, whichever lanes make them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict

from cake.machine.order.clocks import Clock
from cake.machine.order.races import Races
from cake.machine.order.shadow import Access, same_warp


class Meetings:
    """Where each half warp met the other lanes: event numbers by column of the clocks, those left out among them and not."""

    def __init__(self) -> None:
        self.all: defaultdict[int, list[int]] = defaultdict(list)
        self.kept: defaultdict[int, list[int]] = defaultdict(list)

    def add(self, column: int, number: int, *, removed: bool) -> None:
        """The half warp of ``column`` met the others at its event ``number``."""
        self.all[column].append(number)
        if not removed:
            self.kept[column].append(number)

    def only_removed(self, earlier: Access, later: Access) -> bool:
        """The lanes met between two accesses, but at no place that is left."""
        return _between(self.all, earlier, later) and not _between(self.kept, earlier, later)


def _between(meetings: defaultdict[int, list[int]], earlier: Access, later: Access) -> bool:
    before = bisect_left(meetings[earlier.column], earlier.number)
    return before != bisect_left(meetings[later.column], later.number)


class Crossings(Races):
    """Races that also look for accesses of one warp which only a removed meeting keeps apart."""

    meetings: Meetings
    crossed = False

    def access(self, access: Access, clocks: list[Clock], others: list[Access]) -> None:
        """Check an access, and remember it."""
        if access.lanes and access.op is None and not self.crossed:
            for cell in self.memory.cells(access.effect.region):
                for rival in cell.rivals(access):
                    plain = rival.lanes and rival.op is None and (rival.writes or access.writes)
                    if plain and same_warp(rival, access) and self.meetings.only_removed(rival, access):
                        self.crossed = True
        super().access(access, clocks, others)
