"""Bootstrap intervals."""

from __future__ import annotations

import random

import pytest

from cake.evaluate.intervals import geometric_mean, interval


def test_intervals_cover_the_median() -> None:
    rng = random.Random(1)
    covered = 0
    for trial in range(40):
        i = interval([rng.gauss(1.0, 0.1) for _ in range(30)], seed=trial)
        assert i.low <= i.median <= i.high
        covered += i.low <= 1.0 <= i.high
    assert covered >= 34


def test_geometric_mean() -> None:
    cells = [([1.0] * 30, [2.0] * 30), ([1.0] * 30, [0.5] * 30)]
    mean = geometric_mean(cells)
    assert mean.median == pytest.approx(1.0) and mean.low == pytest.approx(1.0) == mean.high
    spread = geometric_mean([([1.0] * 30, [0.9 + 0.01 * i for i in range(30)])])
    assert spread.low < spread.median < spread.high
