"""Sampled launches: dims and block numbers for which both sides run to the end, and what they do is compared in full.

The comparison of automata takes unknown conditions both ways and leaves coordinates out. A run with known parameters
decides the conditions and knows the coordinates, for those parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cake.ptx.compare import Difference
from cake.ptx.explore import Automaton, Letter
from cake.ptx.values import SPACE, Value

LIMIT = 6000
"""States of one run."""


_SAMPLES = (
    ((264, 252, 240, 228, 216, 204), 0, 3),
    ((520, 444, 96, 212, 24, 36), 1, 2),
    ((4200, 40, 520, 24, 8, 12), 17, 3),
)
"""Values of the scalar parameters in turn, with the cluster that is followed and how many tiles it meets (or one more).
Neither side knows the guards of the host, so the values need not satisfy them."""


@dataclass(frozen=True)
class Launch:
    """Values of the scalar parameters by name, and which cluster of how many is looked at."""

    scalars: dict[str, int]
    cta: int
    grid: int

    def parameters(self, tensors: int, scalars: list[str], known: Mapping[str, int]) -> dict[str, Value]:
        """The PTX's parameters: tensors, then scalars and dims."""
        out: dict[str, Value] = {f"parameter {i}": (i + 1) << SPACE for i in range(tensors)}
        for i, name in enumerate(scalars):
            out[f"parameter {tensors + i}"] = known.get(name)
        return out

    def blocks(self, cluster: int) -> dict[str, Value]:
        """The PTX's special registers of the first CTA of the cluster."""
        return {"%ctaid.x": self.cta * cluster, "%nctaid.x": self.grid * cluster, "%cluster_ctarank": 0}


def launches(names: list[str], positions: Callable[[Mapping[str, int]], Value]) -> Iterator[Launch]:
    """A few launches in which a cluster walks over two or three tiles."""
    for values, cta, tiles in _SAMPLES:
        scalars = {name: values[i % len(values)] for i, name in enumerate(names)}
        count = positions(scalars)
        if type(count) is int and count > 0:
            yield Launch(scalars, min(cta, count - 1), max(min(cta, count - 1) + 1, count // tiles))


def trace(automaton: Automaton) -> tuple[list[tuple[Letter, bool, Any]], bool]:
    """The letters up to the end, or up to where an unknown condition forks; whether it ended."""
    out: list[tuple[Letter, bool, Any]] = []
    at, seen = 0, {0}
    while True:
        state = automaton.states[at]
        out += state.letters
        if len(state.after) != 1:
            return out, not state.after
        at = state.after[0]
        if at in seen:
            return out, False
        seen.add(at)


def first_difference(left: Automaton, right: Automaton) -> Difference | None:
    """Where the runs of two sides part; values that one side does not know are not compared."""
    (one, one_ends), (two, two_ends) = trace(left), trace(right)
    one, two = ([t for t in side if not t[1]] for side in (one, two))
    for n, (a, b) in enumerate(zip(one, two, strict=False)):
        if not _agree(a[0], b[0]):
            before = (two[n - 1][0], two[n - 1][2]) if n else None
            mine, theirs = ((a[0], a[2]),), ((b[0], b[2]),)
            return Difference(before, mine, theirs, mine, theirs, n)
    n = min(len(one), len(two))
    if (len(one) > n and two_ends) or (len(two) > n and one_ends):
        before = (two[n - 1][0], two[n - 1][2]) if n else None
        rest = [tuple((t[0], t[2]) for t in side[n : n + 1]) for side in (one, two)]
        return Difference(before, rest[0], rest[1], rest[0], rest[1], n)
    return None


def _agree(a: Letter, b: Letter) -> bool:
    return len(a) == len(b) and all(x is None or y is None or x == y for x, y in zip(a, b, strict=True))
