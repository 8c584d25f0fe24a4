"""How far two results are apart: units in the last place of the type, or an absolute bound, element by element.

Works on raw bits with NumPy alone, so that the machine with the GPU needs neither the compiler nor ml_dtypes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

MANTISSA = {"f32": 23, "tf32": 23, "bf16": 7, "f16": 10, "e4m3": 3, "e5m2": 2}
_BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


@dataclass(frozen=True)
class Bound:
    """What may differ. An element is right if it is within ``ulp`` units of the type or within ``absolute`` (a number,
    or an array of the output's shape). ``ftz``: zero is next to the least normal number, because results below it are
    flushed. ``free``: elements that the language leaves unspecified. ``sign``: the sign of a zero is unspecified."""

    ulp: float = 0
    absolute: Any = 0.0
    ftz: bool = False
    sign: bool = False
    free: Any = None
    reason: str = "bit for bit"


EXACT = Bound()


@dataclass
class Difference:
    """The outcome for one output: the largest distance in ulp over all elements, and how many are outside the bound."""

    elements: int
    max_ulp: float
    mismatches: int
    examples: list[dict[str, Any]] = field(default_factory=list)


def raw(a: Array) -> Array:
    """The bits of an array as unsigned integers."""
    return np.ascontiguousarray(a).view(_BITS[a.dtype.itemsize])


def _nan(bits: Array, dtype: str) -> Array:
    width = 8 * bits.dtype.itemsize
    magnitude = bits & bits.dtype.type((1 << (width - 1)) - 1)
    if dtype == "e4m3":
        return np.asarray(magnitude == 0x7F)
    m = MANTISSA[dtype]
    infinity = ((1 << (width - 1 - m)) - 1) << m
    return np.asarray(magnitude > infinity)


def _order(bits: Array, dtype: str, ftz: bool) -> Array:
    """Floats as integers whose difference counts the representable numbers between them; both zeros are 0."""
    width = 8 * bits.dtype.itemsize
    magnitude = (bits & bits.dtype.type((1 << (width - 1)) - 1)).astype(np.int64)
    if ftz:
        magnitude = np.maximum(magnitude - ((1 << MANTISSA[dtype]) - 1), 0)
    return np.where(bits >> bits.dtype.type(width - 1) != 0, -magnitude, magnitude)


def to_float(bits: Array, dtype: str) -> Array:
    """The values of raw bits, in f64."""
    m, width = MANTISSA[dtype], 8 * bits.dtype.itemsize
    e_bits = width - 1 - m
    b = bits.astype(np.int64)
    exponent, mantissa = (b >> m) & ((1 << e_bits) - 1), b & ((1 << m) - 1)
    bias = (1 << (e_bits - 1)) - 1
    value = np.where(
        exponent == 0, np.ldexp(mantissa * 1.0, 1 - bias - m), np.ldexp(1.0 + mantissa / (1 << m), exponent - bias)
    )
    if dtype != "e4m3":
        top = exponent == (1 << e_bits) - 1
        value = np.where(top, np.where(mantissa == 0, np.inf, np.nan), value)
    else:
        value = np.where((b & 0x7F) == 0x7F, np.nan, value)
    return np.where(b >> (width - 1) != 0, -value, value)


def difference(got: Array, expected: Array, dtype: str, bound: Bound = EXACT) -> Difference:
    """Compare two arrays of raw bits or of their type. NaN equals NaN whatever its payload."""
    g, e = raw(got).ravel(), raw(expected).ravel()
    if dtype not in MANTISSA:
        distance = np.where(g == e, 0.0, np.inf)
        bad = g != e
    else:
        nan_g, nan_e = _nan(g, dtype), _nan(e, dtype)
        distance = np.abs(_order(g, dtype, bound.ftz) - _order(e, dtype, bound.ftz)).astype(np.float64)
        distance = np.where(nan_g & nan_e, 0.0, np.where(nan_g != nan_e, np.inf, distance))
        bad = distance > bound.ulp
        if not bound.sign and bound.ulp == 0:
            zeros = (distance == 0) & (g != e) & ~nan_g
            bad |= zeros
            distance = np.where(zeros, 1.0, distance)
        absolute = np.broadcast_to(np.asarray(bound.absolute, np.float64), got.shape).ravel()
        if np.any(bad) and np.any(absolute > 0):
            with np.errstate(all="ignore"):
                near = np.abs(to_float(g, dtype) - to_float(e, dtype)) <= absolute
            bad &= ~near
    if bound.free is not None:
        free = np.broadcast_to(np.asarray(bound.free), got.shape).ravel()
        bad &= ~free
        distance = np.where(free, 0.0, distance)
    out = Difference(int(g.size), float(distance.max(initial=0.0)), int(bad.sum()))
    for at in np.flatnonzero(bad)[:3]:
        place = [int(i) for i in np.unravel_index(at, got.shape)]
        entry: dict[str, Any] = {"at": place, "got": hex(int(g[at])), "expected": hex(int(e[at]))}
        if dtype in MANTISSA:
            entry["got_value"] = str(to_float(g[at : at + 1], dtype)[0])
            entry["expected_value"] = str(to_float(e[at : at + 1], dtype)[0])
        out.examples.append(entry)
    return out
