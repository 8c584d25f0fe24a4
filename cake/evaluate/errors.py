"""How far an output is from its float64 reference, in pieces of bounded size, and beside another's.

Two measures (Higham, Accuracy and Stability of Numerical Algorithms, section 1.2, for tensors): *normwise*, ||y - r|| / ||r|| in the
Euclidean norm of all elements, and *worst element*, max |y - r| / max |r|, where one wrong element cannot hide among many.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

BLOCK = 1 << 25
"""Elements compared at once: a few float64 copies of them take about 1 GiB."""


@dataclass(frozen=True)
class Error:
    """The error of one output. ``worst`` is the largest error over ``largest``, the reference's largest element (over 1 where that is
    zero), at ``index``, where ``got`` stands instead of ``expected``. ``not_finite``: elements with a NaN or an infinity where the
    reference has none, or another one; then both errors are infinite. ``compared`` of ``elements`` were compared.
    ``differing``: elements that are not the reference's, for outputs that are no floats (None for those)."""

    normwise: float
    worst: float
    largest: float
    index: tuple[int, ...] | None
    got: float | None
    expected: float | None
    not_finite: int
    compared: int
    elements: int
    differing: int | None = None

    def within(self, tolerance: float) -> bool:
        """Whether the largest error is at most ``tolerance``: of the largest element for floats, as it is for others."""
        unit = self.largest or 1.0
        return self.worst <= tolerance if self.differing is None else self.worst * unit <= tolerance


class Measure:
    """Adds up the error of one output, a tensor, piece by piece."""

    def __init__(self, torch: Any, tensor: Any) -> None:
        self._torch = torch
        self._tensor = tensor
        self._error = self._norm = 0.0  # sums of squares
        self._worst, self._largest = -1.0, 0.0
        self._at: tuple[Any, int] | None = None
        self._got = self._expected = 0.0
        self._not_finite = self._compared = self._differing = 0

    def add(self, index: Any, expected: Any) -> None:
        """Compare ``tensor[index]`` with its reference, a tensor of the same shape and device. ValueError for another shape."""
        actual = self._tensor[index]
        if tuple(actual.shape) != tuple(expected.shape):
            raise ValueError(f"the reference is {list(expected.shape)} where the output is {list(actual.shape)}")
        if not actual.numel():
            return
        if not actual.dim():
            actual, expected = actual[None], expected[None]
        row = actual[0].numel()
        step = max(1, BLOCK // row)
        for first in range(0, len(actual), step):
            block = slice(first, first + step)
            self._block(actual[block], expected[block], index, first * row)

    def _block(self, actual: Any, expected: Any, index: Any, offset: int) -> None:
        torch = self._torch
        y, r = actual.double(), expected.double()
        if actual.dtype.is_floating_point or expected.dtype.is_floating_point:
            alike = (y == r) | (y.isnan() & r.isnan())
        else:
            alike = actual == expected  # float64 does not hold every i64
        off = torch.where(alike, 0.0, (y - r).abs())
        bad = ~off.isfinite()
        off = torch.where(bad, torch.inf, off)
        self._differing += int((~alike).sum())
        self._not_finite += int(bad.sum())
        self._compared += actual.numel()
        self._error += float(torch.where(bad, 0.0, off).square().sum())
        size = torch.where(r.isfinite(), r, 0.0)
        self._norm += float(size.square().sum())
        self._largest = max(self._largest, float(size.abs().max()))
        at = int(off.argmax())
        worst = float(off.flatten()[at])
        if worst > self._worst:
            self._worst, self._at = worst, (index, offset + at)
            self._got, self._expected = float(y.flatten()[at]), float(r.flatten()[at])

    def result(self) -> Error:
        """What was added so far."""
        infinite = math.inf if self._not_finite else None
        worst = max(self._worst, 0.0)
        return Error(
            normwise=infinite or math.sqrt(self._error) / (math.sqrt(self._norm) or 1.0),
            worst=infinite or worst / (self._largest or 1.0),
            largest=self._largest,
            index=self._index(),
            got=self._got if self._at else None,
            expected=self._expected if self._at else None,
            not_finite=self._not_finite,
            compared=self._compared,
            elements=self._tensor.numel(),
            differing=None if self._tensor.dtype.is_floating_point else self._differing,
        )

    def _index(self) -> tuple[int, ...] | None:
        """Where the worst element is in the whole tensor: a piece may be any indexing of it."""
        if self._at is None:
            return None
        index, local = self._at
        shape = self._tensor.shape
        numbers = self._torch.arange(self._tensor.numel(), device=self._tensor.device).view(shape)
        flat = int(numbers[index].flatten()[local])
        place = []
        for extent in reversed(shape):
            flat, rest = divmod(flat, extent)
            place.append(rest)
        return tuple(reversed(place))


def measure(torch: Any, actual: Any, expected: Any) -> Error:
    """The error of a whole output."""
    sum_ = Measure(torch, actual)
    sum_.add(..., expected)
    return sum_.result()


def quotient(ours: float, peer: float) -> float | None:
    """Ours over the peer's: 1 where both are exact, infinite where only the peer is, None where the peer's is not finite."""
    if not math.isfinite(peer):
        return None
    return ours / peer if peer else math.inf if ours else 1.0


def beside(ours: Error, peer: Error | None) -> dict[str, Any]:
    """The errors of the same output, ours and the peer's, and ours over the peer's."""
    return {
        "kernel": asdict(ours),
        "peer": asdict(peer) if peer else None,
        "ratio": {
            "normwise": quotient(ours.normwise, peer.normwise) if peer else None,
            "worst": quotient(ours.worst, peer.worst) if peer else None,
        },
    }
