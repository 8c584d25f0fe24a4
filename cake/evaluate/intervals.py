"""Medians with bootstrap intervals.

The percentile bootstrap (Efron and Tibshirani, An Introduction to the Bootstrap, chapter 13): the values are drawn anew with
replacement, and the interval has the middle 95% of the medians of what was drawn.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

BOOTSTRAP = 2000
"""Times that the values are drawn anew."""

LOW, HIGH = int(0.025 * BOOTSTRAP), int(0.975 * BOOTSTRAP)


@dataclass(frozen=True)
class Interval:
    """A median with its 95% bootstrap interval."""

    median: float
    low: float
    high: float


def interval(values: Sequence[float], *, seed: int = 0) -> Interval:
    """Median and percentile-bootstrap 95% interval."""
    rng = random.Random(seed)
    n = len(values)
    medians = sorted(statistics.median(rng.choices(values, k=n)) for _ in range(BOOTSTRAP))
    return Interval(statistics.median(values), medians[LOW], medians[HIGH])


def geometric_mean(cells: Sequence[tuple[Sequence[float], Sequence[float]]], *, seed: int = 0) -> Interval:
    """The geometric mean over cells of the median ratio of pairs (peer over ours), with its 95% bootstrap interval: pairs are
    drawn anew within each cell, so that the interval is that of these shapes, not of shapes at large."""
    rng = random.Random(seed)
    ratios = [[y / x for x, y in zip(a, b, strict=True)] for a, b in cells]

    def mean(drawn: Sequence[Sequence[float]]) -> float:
        return statistics.geometric_mean(statistics.median(r) for r in drawn)

    means = sorted(mean([rng.choices(r, k=len(r)) for r in ratios]) for _ in range(BOOTSTRAP))
    return Interval(mean(ratios), means[LOW], means[HIGH])
