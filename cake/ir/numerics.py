"""What the floating-point instructions do beyond IEEE arithmetic, for arrays and scalars: flushed subnormals, and minima and
maxima that propagate NaN and order zeros."""

from __future__ import annotations

from typing import Any

import numpy as np

LEAST_NORMAL = np.float32(2.0**-126)


def flush(a: Any) -> Any:
    """Subnormal f32 as zeros of their sign (``.ftz``, PTX ISA 9.7.3)."""
    small = np.abs(a) < LEAST_NORMAL
    return np.where(small, np.copysign(np.float32(0), a), a) if np.any(small) else a


def maximum(a: Any, b: Any) -> Any:
    """The greater of two values; of floats NaN wins, and of two zeros +0 (PTX ISA 9.7.3, ``max.NaN``)."""
    result = np.maximum(a, b)
    if result.dtype.kind in "iub" or np.all(result):
        return result
    zero = np.where(a == b, a + b, np.where(a == 0, a, b))
    return np.where(result == 0, zero, result).astype(result.dtype)


def minimum(a: Any, b: Any) -> Any:
    """The lesser of two values; of floats NaN wins, and of two zeros -0 (``min.NaN``)."""
    result = np.minimum(a, b)
    if result.dtype.kind in "iub" or np.all(result):
        return result
    zero = np.where(a == b, -(-a + -b), np.where(a == 0, a, b))
    return np.where(result == 0, zero, result).astype(result.dtype)


def extremum(a: Any, axis: int, largest: bool) -> Any:
    """The maximum or minimum along an axis, by the same rules."""
    result = (np.maximum if largest else np.minimum).reduce(a, axis=axis)
    if result.dtype.kind in "iub" or np.all(result):
        return result
    zeros = np.signbit(a) != largest  # the zeros that win: +0 in a maximum, -0 in a minimum
    winner = np.any((a == 0) & zeros, axis=axis)
    sign = np.where(winner, 1.0 if largest else -1.0, -1.0 if largest else 1.0)
    return np.where(result == 0, np.copysign(np.zeros_like(sign), sign), result).astype(result.dtype)
