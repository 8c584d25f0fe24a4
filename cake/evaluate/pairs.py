"""How speed is measured: two functions interleaved in alternating order, cold L2, outputs exchanged half-way (where a
buffer lies in L2 and memory matters), medians with a bootstrap interval, against the noise of one function measured as
if it were two; clocks are logged, never set, and times are given in SM cycles too.

Absolute times describe the day (the card is power-capped under dense load), so only the ratio within a run is a
result.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from cake.evaluate.clocks import Clocks, bus_id
from cake.evaluate.intervals import Interval, interval

FLUSH_BYTES = 256 << 20
"""Several times the L2: written before each timed call so that its inputs come from memory."""

PAIRS = 30
WARMUP = 3
"""Pairs that are measured and thrown away."""


@dataclass(frozen=True)
class Comparison:
    """``ratio`` is peer over ours (above 1: ours is faster), of pairs that ran side by side; ``noise`` the same of
    ours against itself. A ratio within the noise interval says nothing. Times in microseconds; cycles are the median time
    times the median SM clock, None where the clock is not known. ``samples`` has every time that was taken."""

    ours_us: Interval
    peer_us: Interval
    ratio: Interval
    noise: Interval
    pairs: int
    clocks: dict[str, Any] = field(default_factory=dict)
    samples: dict[str, list[float]] = field(default_factory=dict)
    ours_cycles: float | None = None
    peer_cycles: float | None = None

    @property
    def significant(self) -> bool:
        """Whether the interval of the ratio lies outside that of the noise."""
        return self.ratio.low > self.noise.high or self.ratio.high < self.noise.low


def timed(torch: Any, functions: Sequence[Callable[[], Any]], flush: Any) -> list[float]:
    """One call of each, in order, each from a cold L2; microseconds."""
    events = []
    for f in functions:
        flush.zero_()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        f()
        end.record()
        events.append((begin, end))
    torch.cuda.synchronize()
    return [1000 * b.elapsed_time(e) for b, e in events]


def paired(
    torch: Any,
    ours: Callable[[], Any],
    peer: Callable[[], Any],
    *,
    pairs: int,
    flush: Any,
    swap: Callable[[], None] | None = None,
) -> tuple[list[float], list[float]]:
    """Times of ``pairs`` pairs; which goes first alternates. ``swap`` exchanges the two functions' outputs: called before the
    second half and after it."""
    left, right = [], []
    for i in range(pairs):
        if swap is not None and i == pairs // 2:
            swap()
        first = timed(torch, (ours, peer) if i % 2 == 0 else (peer, ours), flush)
        a, b = first if i % 2 == 0 else first[::-1]
        left.append(a)
        right.append(b)
    if swap is not None and pairs:
        swap()
    return left, right


def compare(
    torch: Any,
    ours: Callable[[], Any],
    peer: Callable[[], Any],
    *,
    pairs: int = PAIRS,
    warmup: int = WARMUP,
    device: int = 0,
    swap: Callable[[], None] | None = None,
    twin: Callable[[], Any] | None = None,
) -> Comparison:
    """Ours against a peer. Both write outputs of their own, which ``swap`` exchanges, and read the same random inputs.
    ``twin`` is ours in the peer's place, writing the peer's outputs: the noise is that of ours against it, and of ours against
    the very same call where it is not given."""
    flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device=f"cuda:{device}")
    clocks = Clocks(bus_id(device))
    with clocks:
        paired(torch, ours, peer, pairs=warmup, flush=flush)
        a, b = paired(torch, ours, peer, pairs=pairs, flush=flush, swap=swap)
        c, d = paired(torch, ours, twin or ours, pairs=pairs, flush=flush, swap=swap if twin else None)
    summary = clocks.summary()
    mhz = summary["sm_mhz"][1] if "sm_mhz" in summary else None
    return Comparison(
        ours_us=interval(a),
        peer_us=interval(b),
        ours_cycles=statistics.median(a) * mhz if mhz else None,
        peer_cycles=statistics.median(b) * mhz if mhz else None,
        ratio=interval([y / x for x, y in zip(a, b, strict=True)]),
        noise=interval([y / x for x, y in zip(c, d, strict=True)]),
        pairs=pairs,
        clocks=summary,
        samples={"ours_us": a, "peer_us": b, "ours_first_us": c, "ours_second_us": d},
    )
