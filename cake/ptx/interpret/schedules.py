"""Schedules: who goes next. One that takes turns, and adversaries that starve or favour warps and hold copies back."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

from cake.ptx.interpret.handlers import Landing
from cake.ptx.interpret.warps import Fiber

EARLY, LATE, LAST = 2.0, 0.5, -1.0
"""When copies end, among ranks of warps: before everything, when nobody but starved warps can go, when nobody can."""


class Ranked:
    """Highest rank first, and of equals who has waited longest. ``ranks`` of (CTA, warp), 1 if not said; ``copies``:
    rank of copies, which end in the order of their issue, or the other way round; ``rest``: added to the rank of fibers
    without lane 0, ``slow``: to that of
    fibers that were waiting for an mbarrier."""

    def __init__(
        self,
        name: str,
        copies: float,
        ranks: dict[tuple[int, int], float] | None = None,
        rest: float = 0.0,
        slow: float = 0.0,
        backwards: bool = False,
    ) -> None:
        self.name, self.copies, self.ranks = name, copies, ranks or {}
        self.rest, self.slow, self.backwards = rest, slow, backwards

    def rank(self, f: Fiber) -> float:
        """Of a fiber."""
        rank = self.ranks.get((f.warp.cta, f.warp.number), 1.0)
        return rank + (0.0 if f.mask & 1 else self.rest) + (0.0 if f.since is None else self.slow)

    def pick(self, fibers: list[Fiber], landings: list[Landing]) -> Fiber | Landing:
        """Who goes next."""
        if fibers:
            best = max(fibers, key=lambda f: (self.rank(f), -f.last))
            if not landings or self.rank(best) > self.copies:
                return best
        return landings[-1 if self.backwards else 0]


class Shuffled:
    """Random ranks of warps and copies, and at random steps the leader falls to the end (priority schedules)."""

    def __init__(self, seed: int) -> None:
        self.name = f"random {seed}"
        self._random = random.Random(seed)
        self._ranks: dict[object, float] = {}
        self._floor = 0.0
        self._changes = {self._random.randrange(1, 400) for _ in range(6)}
        self._step = 0

    def _rank(self, key: object) -> float:
        if key not in self._ranks:
            self._ranks[key] = self._random.random()
        return self._ranks[key]

    def _key(self, x: Fiber | Landing) -> object:
        return (x.warp.cta, x.warp.number, x.mask & 1) if isinstance(x, Fiber) else x.number

    def pick(self, fibers: list[Fiber], landings: list[Landing]) -> Fiber | Landing:
        """Who goes next."""
        self._step += 1
        everyone: list[Fiber | Landing] = [*fibers, *landings]
        best = max(everyone, key=lambda x: self._rank(self._key(x)))
        if self._step in self._changes:
            self._floor -= 1.0
            self._ranks[self._key(best)] = self._floor
            best = max(everyone, key=lambda x: self._rank(self._key(x)))
        return best


def plain() -> list[Ranked]:
    """Taking turns, with copies that end at once and as late as can be; the second decides most."""
    return [Ranked("in turn, early copies", EARLY), Ranked("in turn, late copies", LAST)]


def adversaries(warps: Iterable[tuple[int, int]], seeds: int) -> Iterator[Ranked | Shuffled]:
    """``warps``: representatives that are starved and favoured one at a time."""
    yield Ranked("the rest of a warp first", LATE, rest=0.1)
    yield Ranked("the elected lane first, copies backwards", LAST, rest=-0.1, backwards=True)
    for cta, warp in warps:
        yield Ranked(f"starving warp {warp} of CTA {cta}", LATE, {(cta, warp): 0.0})
        yield Ranked(f"favouring warp {warp} of CTA {cta}", LATE, {(cta, warp): 3.0})
        yield Ranked(f"favouring warp {warp} of CTA {cta} until it waits", LATE, {(cta, warp): 3.0}, slow=-2.8)
    for seed in range(seeds):
        yield Shuffled(seed)
