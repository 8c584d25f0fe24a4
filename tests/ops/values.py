"""Values of each element type: random, extreme and with NaN; and rounding to a type, written apart from the machine.

Rounding here works on f64 by scaling to the type's quantum, so that it shares nothing with the machine (bit shifts and
ml_dtypes) or the device (``cvt``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cake.ir.dtypes import numpy_dtype

Array = NDArray[Any]
Rng = np.random.Generator

CLASSES = ("random", "extreme", "nan")
FLOATS = ("f32", "bf16", "f16", "e4m3", "e5m2")


@dataclass(frozen=True)
class Format:
    """A binary floating-point format: stored mantissa bits, the exponent of its least normal number, its largest finite
    number, and what lies beyond that (the 8-bit formats saturate when converted to)."""

    mantissa: int
    least: int
    largest: float
    saturates: bool = False


FORMATS = {
    "f32": Format(23, -126, float(np.finfo(np.float32).max)),
    "bf16": Format(7, -126, float.fromhex("0x1.fep127")),
    "f16": Format(10, -14, 65504.0),
    "e4m3": Format(3, -6, 448.0, True),
    "e5m2": Format(2, -14, 57344.0, True),
}


def rounded(x: Array, dtype: str) -> Array:
    """f64 values to the nearest of a float type (ties to even), as an array of that type."""
    form = FORMATS[dtype]
    x = np.asarray(x, dtype=np.float64)
    with np.errstate(all="ignore"):
        exponent = np.frexp(np.where(np.isfinite(x), x, 0.0))[1] - 1
        quantum = np.ldexp(1.0, np.maximum(exponent, form.least) - form.mantissa)
        near = np.where(np.isfinite(x), np.rint(x / quantum) * quantum, x)
        near = np.copysign(near, x)
        over = np.abs(near) > form.largest
        beyond = form.largest if form.saturates else np.inf
        return np.where(over, np.copysign(beyond, near), near).astype(numpy_dtype(dtype))


def narrowed(x: Array, dtype: str) -> Array:
    """An f32 result as the language stores it: rounded once more where the type is narrower."""
    return rounded(rounded(x, "f32").astype(np.float64), dtype)


def flushed(x: Array) -> Array:
    """Subnormal f32 values as zeros of their sign (``.ftz``)."""
    return np.where(np.abs(x) < 2.0**-126, np.copysign(0.0, x), x)


def wide(x: Array) -> Array:
    """Exact values in f64."""
    return x.astype(np.float32).astype(np.float64) if x.dtype.itemsize < 4 else x.astype(np.float64)


def specials(dtype: str) -> list[float]:
    """Zeros, the ends of the subnormal and normal ranges, ones, infinities (where the type has them)."""
    form = FORMATS[dtype]
    tiny = 2.0 ** (form.least - form.mantissa)
    normal = 2.0**form.least
    some = [0.0, tiny, normal - tiny, normal, normal + tiny, 1.0, 1.5, 2.0, 3.0, form.largest, form.largest / 2]
    if dtype != "e4m3":
        some.append(np.inf)
    return [v for s in some for v in (s, -s)]


def floats(rng: Rng, kind: str, dtype: str, shape: tuple[int, ...], scale: float = 1.0) -> Array:
    """Float values of a class. Extreme values are specials and numbers of every exponent; NaN are a fifth of the last
    class, among specials and random values."""
    count = int(np.prod(shape))
    plain = rng.standard_normal(count) * scale
    if kind == "random":
        return rounded(plain, dtype).reshape(shape)
    form = FORMATS[dtype]
    top = int(np.floor(np.log2(form.largest)))
    powers = np.ldexp(rng.uniform(1, 2, count), rng.integers(form.least - form.mantissa, top, count))
    powers *= rng.choice([-1.0, 1.0], count)
    special = rng.choice(specials(dtype), count)
    values = np.where(rng.random(count) < 0.6, special, powers)
    if kind == "nan":
        values = np.where(rng.random(count) < 0.4, values, plain)
        values = np.where(rng.random(count) < 0.2, np.nan, values)
    return rounded(values, dtype).reshape(shape)


def integers(rng: Rng, kind: str, dtype: str, shape: tuple[int, ...], limit: int | None = None) -> Array:
    """Integers of a class; ``limit`` keeps them small."""
    info = np.iinfo(numpy_dtype(dtype))
    low, high = (info.min, info.max) if limit is None else (max(info.min, -limit), min(info.max, limit))
    if kind == "random":
        low, high = max(low, -1000), min(high, 1000)
        return rng.integers(low, high, shape, dtype=np.int64, endpoint=True).astype(numpy_dtype(dtype))
    edge = [v for v in (low, low + 1, -2, -1, 0, 1, 2, 3, high - 1, high) if low <= v <= high]
    near = rng.integers(low, high, shape, dtype=np.int64, endpoint=True)
    return np.where(rng.random(shape) < 0.6, rng.choice(np.array(edge, np.int64), shape), near).astype(
        numpy_dtype(dtype)
    )


def values(rng: Rng, kind: str, dtype: str, shape: tuple[int, ...], scale: float = 1.0) -> Array:
    """Values of any type; ``bool`` is random in every class."""
    if dtype == "bool":
        return rng.random(shape) < 0.5
    if dtype == "tf32":
        return floats(rng, kind, "f32", shape, scale)
    if dtype in FLOATS:
        return floats(rng, kind, dtype, shape, scale)
    return integers(rng, kind, dtype, shape)


def tame(rng: Rng, kind: str, dtype: str, shape: tuple[int, ...], limit: float = 2.0**30) -> Array:
    """Values to be added up: no sum of them overflows on the way in one order and not in another."""
    out = floats(rng, kind, dtype, shape)
    x = wide(out)
    keep = ~np.isfinite(x) | (np.abs(x) <= limit)
    return np.where(keep, out, rounded(np.copysign(1.0, x), dtype)).astype(out.dtype)
