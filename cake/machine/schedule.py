"""Who runs next.

Seed 0 is the canonical order: warps in turn, and an asynchronous operation goes on only when no warp can. Any other
seed is a priority schedule: the runnable agent or operation of highest priority goes on; operations get random
priorities, warps random ones that change at random points (docs/verification.md 1.9: few change points find nearly
all order faults in a handful of seeds, where uniform choice needs hundreds).
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from typing import Protocol

from cake.machine.agents import Runner
from cake.machine.flights import Flight

Entity = Runner | Flight


class Scheduler(Protocol):
    """Holds what can run."""

    def add(self, entity: Entity) -> None:
        """``entity`` can run."""

    def next(self) -> Entity | None:
        """Take the one to run now; None if nothing can."""


class Canonical:
    """Warps round robin; operations, oldest first, when no warp can run."""

    def __init__(self) -> None:
        self.runners: deque[Runner] = deque()
        self.flights: deque[Flight] = deque()

    def add(self, entity: Entity) -> None:
        """``entity`` can run."""
        if isinstance(entity, Runner):
            self.runners.append(entity)
        else:
            self.flights.append(entity)

    def next(self) -> Entity | None:
        """Take the one to run now."""
        if self.runners:
            return self.runners.popleft()
        return self.flights.popleft() if self.flights else None


class Priorities:
    """A random priority schedule with change points."""

    RATES = (0.0, 0.0005, 0.005, 0.05)

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.rate = self.RATES[seed % len(self.RATES)]
        self.heap: list[tuple[float, int, Entity]] = []
        self.count = 0
        self.known: set[int] = set()

    def add(self, entity: Entity) -> None:
        """``entity`` can run."""
        draw = self.random.random
        if isinstance(entity, Flight):
            entity.priority = draw()
        elif entity.key not in self.known:
            self.known.add(entity.key)
            entity.priority = draw()
        elif self.rate and draw() < self.rate:
            entity.priority = draw()
        self.count += 1
        heapq.heappush(self.heap, (entity.priority, self.count, entity))

    def next(self) -> Entity | None:
        """Take the one to run now."""
        return heapq.heappop(self.heap)[2] if self.heap else None


def scheduler(seed: int) -> Scheduler:
    """The schedule of ``seed``."""
    return Canonical() if seed == 0 else Priorities(seed)
