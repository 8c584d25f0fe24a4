"""The measuring protocol on a clock of our own: order, exchange of outputs, what a comparison says. Nothing here measures time."""

from __future__ import annotations

import pytest

from cake.evaluate import clocks, pairs
from cake.evaluate.intervals import Interval
from tests.evaluate.fakes import Nvml, Torch

pytest.importorskip("torch")


def test_pairs_alternate_and_outputs_change_hands() -> None:
    torch, calls = Torch(), []
    buffers = ["x", "y"]
    flush = torch.zeros(1)

    def call(who: int, milliseconds: float) -> None:
        calls.append((who, buffers[who]))
        torch.now += milliseconds

    def swap() -> None:
        buffers.reverse()

    a, b = pairs.paired(torch, lambda: call(0, 1.0), lambda: call(1, 3.0), pairs=4, flush=flush, swap=swap)
    assert a == pytest.approx([1000.0] * 4) and b == pytest.approx([3000.0] * 4)
    assert [who for who, _ in calls] == [0, 1, 1, 0, 0, 1, 1, 0]
    assert set(calls[:4]) == {(0, "x"), (1, "y")} and set(calls[4:]) == {(0, "y"), (1, "x")}
    assert buffers == ["x", "y"]


def test_the_cache_is_cleared_before_each_call_and_not_timed() -> None:
    torch, order = Torch(), []

    class Flush:
        def zero_(self) -> None:
            torch.now += 100.0
            order.append("flush")

    def call() -> None:
        torch.now += 1.0
        order.append("call")

    assert pairs.timed(torch, [call, call], Flush()) == pytest.approx([1000.0, 1000.0])
    assert order == ["flush", "call"] * 2


def test_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = Torch()
    monkeypatch.setattr(clocks, "nvml", lambda: Nvml([1500] * 10_000))
    monkeypatch.setattr(pairs, "bus_id", lambda device: "0000:1b:00.0")

    def take(milliseconds: float) -> None:
        torch.now += milliseconds

    result = pairs.compare(torch, lambda: take(2.0), lambda: take(3.0), pairs=6)
    assert result.ratio.median == pytest.approx(1.5) and result.noise.median == pytest.approx(1.0)
    assert result.significant and {len(v) for v in result.samples.values()} == {6} and len(result.samples) == 4
    assert result.clocks["sm_mhz"] == [1500, 1500, 1500] and result.clocks["samples"] >= 1
    assert result.ours_cycles == pytest.approx(2000 * 1500) and result.peer_cycles == pytest.approx(3000 * 1500)


def test_noise_is_that_of_ours_in_both_places() -> None:
    torch = Torch()

    def take(milliseconds: float) -> None:
        torch.now += milliseconds

    swaps: list[int] = []
    result = pairs.compare(
        torch, lambda: take(2.0), lambda: take(3.0), pairs=6, swap=lambda: swaps.append(1), twin=lambda: take(2.2)
    )
    assert result.noise.median == pytest.approx(1.1) and len(swaps) == 4
    assert result.ours_cycles is None and "note" in result.clocks


def test_significance_needs_separate_intervals() -> None:
    one, noise = Interval(1, 1, 1), Interval(1, 0.98, 1.02)
    assert pairs.Comparison(one, one, ratio=Interval(1.1, 1.05, 1.2), noise=noise, pairs=30).significant
    assert not pairs.Comparison(one, one, ratio=Interval(1.02, 1.01, 1.05), noise=noise, pairs=30).significant
