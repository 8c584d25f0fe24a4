"""The measuring protocol on a clock of our own: order, exchange of outputs, intervals. Nothing here measures time."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import protocol


class Event:
    """An event that records when it was made, on the fake's clock."""

    def __init__(self, torch: Torch) -> None:
        self.torch, self.at = torch, 0.0

    def record(self) -> None:
        self.at = self.torch.now

    def elapsed_time(self, later: Event) -> float:
        return later.at - self.at


class Torch:
    """What the protocol asks of torch, with functions that take the time they are told to."""

    uint8 = "uint8"

    def __init__(self) -> None:
        self.now = 0.0
        self.cuda = self

    def Event(self, enable_timing: bool) -> Event:
        return Event(self)

    def synchronize(self) -> None: ...

    def empty(self, *shape: Any, **kind: Any) -> Torch:
        return self

    def zero_(self) -> None: ...


def test_pairs_alternate_and_outputs_change_hands() -> None:
    torch, calls = Torch(), []
    buffers = ["x", "y"]

    def call(who: int, milliseconds: float) -> None:
        calls.append((who, buffers[who]))
        torch.now += milliseconds

    def swap() -> None:
        buffers.reverse()

    a, b = protocol.paired(torch, lambda: call(0, 1.0), lambda: call(1, 3.0), pairs=4, flush=torch, swap=swap)
    assert a == pytest.approx([1000.0] * 4) and b == pytest.approx([3000.0] * 4)
    assert [who for who, _ in calls] == [0, 1, 1, 0, 0, 1, 1, 0]
    assert set(calls[:4]) == {(0, "x"), (1, "y")} and set(calls[4:]) == {(0, "y"), (1, "x")}
    assert buffers == ["x", "y"]


def test_comparison() -> None:
    torch = Torch()

    def take(milliseconds: float) -> None:
        torch.now += milliseconds

    result = protocol.compare(torch, lambda: take(2.0), lambda: take(3.0), pairs=6)
    assert result.ratio.median == pytest.approx(1.5) and result.noise.median == pytest.approx(1.0)
    assert result.significant and len(result.samples["ours_us"]) == 6


def test_geometric_mean() -> None:
    cells = [([1.0] * 30, [2.0] * 30), ([1.0] * 30, [0.5] * 30)]
    mean = protocol.geometric_mean(cells)
    assert mean.median == pytest.approx(1.0) and mean.low == pytest.approx(1.0) == mean.high
    spread = protocol.geometric_mean([([1.0] * 30, [0.9 + 0.01 * i for i in range(30)])])
    assert spread.low < spread.median < spread.high
