"""How speed is measured: two functions interleaved in alternating order, cold L2, outputs exchanged half-way (where a
buffer lies in L2 and memory matters), medians with a bootstrap interval, against the noise of one function measured as
if it were two; clocks are logged, never set, and times are given in SM cycles too.

Absolute times describe the day (the card is power-capped under dense load), so only the ratio within a run is a
result.
"""

from __future__ import annotations

import json
import platform
import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

FLUSH_BYTES = 256 << 20
"""Several times the L2: written before each timed call so that its inputs come from memory."""

PAIRS = 30
BOOTSTRAP = 2000


@dataclass(frozen=True)
class Interval:
    """A median with its 95% bootstrap interval."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class Comparison:
    """``ratio`` is peer over ours (above 1: ours is faster), of pairs that ran side by side; ``noise`` the same of
    ours against itself. A ratio within the noise interval says nothing. Times in microseconds."""

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


def interval(values: Sequence[float], *, seed: int = 0) -> Interval:
    """Median and percentile-bootstrap 95% interval."""
    rng = random.Random(seed)
    n = len(values)
    medians = sorted(statistics.median(rng.choices(values, k=n)) for _ in range(BOOTSTRAP))
    return Interval(statistics.median(values), medians[int(0.025 * BOOTSTRAP)], medians[int(0.975 * BOOTSTRAP)])


def geometric_mean(cells: Sequence[tuple[Sequence[float], Sequence[float]]], *, seed: int = 0) -> Interval:
    """The geometric mean over cells of the median ratio of pairs (peer over ours), with its 95% bootstrap interval: pairs are
    drawn anew within each cell, so that the interval is that of these shapes, not of shapes at large."""
    rng = random.Random(seed)
    ratios = [[y / x for x, y in zip(a, b, strict=True)] for a, b in cells]

    def mean(drawn: Sequence[Sequence[float]]) -> float:
        return statistics.geometric_mean(statistics.median(r) for r in drawn)

    means = sorted(mean([rng.choices(r, k=len(r)) for r in ratios]) for _ in range(BOOTSTRAP))
    return Interval(mean(ratios), means[int(0.025 * BOOTSTRAP)], means[int(0.975 * BOOTSTRAP)])


class Clocks:
    """Samples SM clock, power and temperature through NVML while a block runs; empty where NVML is missing."""

    def __init__(self, device: int = 0, period: float = 0.02) -> None:
        self._period = period
        self._samples: list[tuple[int, float, int]] = []
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        try:
            import pynvml

            pynvml.nvmlInit()
            self._nvml: Any = pynvml
            self._handle = pynvml.nvmlDeviceGetHandleByIndex(device)
        except Exception:  # no NVML: the result says that clocks are unknown
            self._nvml = None

    def _sample(self) -> None:
        n = self._nvml
        self._samples.append(
            (
                n.nvmlDeviceGetClockInfo(self._handle, n.NVML_CLOCK_SM),
                n.nvmlDeviceGetPowerUsage(self._handle) / 1000,
                n.nvmlDeviceGetTemperature(self._handle, n.NVML_TEMPERATURE_GPU),
            )
        )

    def _loop(self) -> None:
        while not self._stop.wait(self._period):
            try:
                self._sample()
            except Exception:
                return

    def __enter__(self) -> Clocks:
        if self._nvml is not None:
            self._samples.clear()
            self._stop.clear()
            self._thread = threading.Thread(target=self._loop, daemon=True)
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def summary(self) -> dict[str, Any]:
        """Minimum, median and maximum of what was sampled."""
        if not self._samples:
            return {"note": "no NVML samples"}
        sm = sorted(s[0] for s in self._samples)
        return {
            "sm_mhz": [sm[0], statistics.median(sm), sm[-1]],
            "power_w_max": max(s[1] for s in self._samples),
            "temperature_c_max": max(s[2] for s in self._samples),
            "samples": len(sm),
        }


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
    warmup: int = 3,
    device: int = 0,
    swap: Callable[[], None] | None = None,
) -> Comparison:
    """Ours against a peer. Both write outputs of their own, which ``swap`` exchanges, and read the same random inputs."""
    flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device=f"cuda:{device}")
    clocks = Clocks(device)
    with clocks:
        paired(torch, ours, peer, pairs=warmup, flush=flush)
        a, b = paired(torch, ours, peer, pairs=pairs, flush=flush, swap=swap)
        c, d = paired(torch, ours, ours, pairs=pairs, flush=flush)
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


def host_time(f: Callable[[], Any], synchronize: Callable[[], Any], *, calls: int = 200, rounds: int = 25) -> float:
    """Median host microseconds of one asynchronous call: bursts short enough never to fill the launch queue."""
    f()
    times = []
    for _ in range(rounds):
        synchronize()
        begin = time.perf_counter()
        for _ in range(calls):
            f()
        times.append((time.perf_counter() - begin) / calls * 1e6)
    synchronize()
    return statistics.median(times)


def environment(torch: Any, device: int = 0) -> dict[str, Any]:
    """What a result must be read with: device, driver, versions, command, commit."""
    out: dict[str, Any] = {
        "command": [Path(sys.executable).name, *sys.argv],
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "device": torch.cuda.get_device_name(device),
        "sms": torch.cuda.get_device_properties(device).multi_processor_count,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    for key, command in {
        "driver": ["nvidia-smi", "--query-gpu=driver_version,power.limit,clocks.max.sm", "--format=csv,noheader"],
        "commit": ["git", "rev-parse", "HEAD"],
    }.items():
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
            out[key] = done.stdout.strip().splitlines()[device if key == "driver" else 0]
        except (OSError, subprocess.TimeoutExpired, IndexError):
            out[key] = None
    return out


def write_json(path: Path, value: Any) -> None:
    """Write a result; dataclasses become objects."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=1, default=lambda o: asdict(o)) + "\n", encoding="utf-8")
