"""What a strand of threads knows of the past, as vector clocks over components.

A component is a strand (its epochs), an mbarrier (phases completed), a queue of groups of a strand or warpgroup (groups
finished). Clocks, after the causality order of the PTX ISA (8.9) and its proxies (8.6):

- ``happened``: is before, whatever is visible. A copy counts from its completion.
- ``visible``: its writes are seen by ordinary accesses.
- ``fenced``, of shared and of global memory: accesses published to the async proxy by a proxy fence of the thread that
  made them.
- ``cumulative``, likewise: the same, where the fence of any thread that saw the access counts: what is refused by axiom
  A4 only is in here.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Clock = npt.NDArray[np.int32]
"""For each component how far it is known; -1: not at all."""
SHARED, GLOBAL = 0, 1
_ROWS = 6


def nothing(size: int) -> Clock:
    """A clock of ``size`` components that knows nothing."""
    return np.full(size, -1, np.int32)


def raise_to(clock: Clock, other: Clock) -> None:
    """The later of both, in place."""
    np.maximum(clock, other, out=clock)


class Knowledge:
    """The clocks as rows: happened, visible, fenced and cumulative of each state space. ``version`` changes whenever
    something is learnt."""

    __slots__ = ("happened", "rows", "version", "visible")

    def __init__(self, size: int, rows: npt.NDArray[np.int32] | None = None) -> None:
        self.rows = np.full((_ROWS, size), -1, np.int32) if rows is None else rows
        self.happened: Clock = self.rows[0]
        self.visible: Clock = self.rows[1]
        self.version = 0

    def copy(self) -> Knowledge:
        """Another that is equal."""
        return Knowledge(0, self.rows.copy())

    def fenced(self, space: int) -> Clock:
        """Published to the async proxy, as axiom A4 reads it."""
        row: Clock = self.rows[2 + space]
        return row

    def cumulative(self, space: int) -> Clock:
        """Published to the async proxy, as the cumulative profile reads it."""
        row: Clock = self.rows[4 + space]
        return row

    def join(self, other: Knowledge) -> None:
        """Learn all that ``other`` knows."""
        self.version += 1
        np.maximum(self.rows, other.rows, out=self.rows)

    def order(self, happened: Clock) -> None:
        """Come after all that had happened to another."""
        self.version += 1
        raise_to(self.happened, happened)

    def finished(self, component: int, upto: int, *, visible: bool = True) -> None:
        """Operations of a component have completed up to ``upto``, as seen by a wait."""
        self.version += 1
        for clock in (self.happened, self.visible) if visible else (self.happened,):
            clock[component] = max(clock[component], upto)

    def publish(self, own: tuple[int, ...], space: int) -> None:
        """A proxy fence of one state space by the strand whose components are ``own``."""
        self.version += 1
        fenced = self.fenced(space)
        for component in own:
            fenced[component] = self.visible[component]
        raise_to(self.cumulative(space), self.visible)
