"""The NumPy meaning of each elementwise operation on arrays.

Numerics (docs/language.md 1.9): f32 arithmetic rounds to nearest even after each operation (the device may contract a
multiply and an add to one fma; the table's bounds allow for it); 16-bit and 8-bit floats are computed in f32 and
rounded once, which ml_dtypes and NumPy do; subnormals are kept. ``min`` and ``max`` propagate NaN and order -0 before +0;
integer ``//`` and ``%`` floor. exp2, log2, exp, log, rsqrt and sqrt are computed in f32 and take subnormals, as operands
and results, for zeros of their sign (``.ftz``), as the instructions do that they compile to.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cake.ir.dtypes import DTYPES, numpy_dtype
from cake.ir.evaluate import FINITE_MAX
from cake.ir.numerics import flush, maximum, minimum

Array = NDArray[Any]
Meaning = Callable[..., Array]


SMALL = 1 << 14
"""Elements that are copied sooner than a view is made (``np.broadcast_to`` costs ten microseconds)."""


def widened(a: Array, shape: tuple[int, ...]) -> Array:
    """``a`` broadcast to ``shape``, not to be written to."""
    if a.shape == shape:
        return a
    if math.prod(shape) > SMALL:
        return np.broadcast_to(a, shape)
    wide = np.empty(shape, dtype=a.dtype)
    wide[...] = a
    return wide


def to_f32(a: Array) -> Array:
    """Exact widening to f32. bf16 is the upper half of an f32: shifting its bits is several times faster than
    astype."""
    if a.dtype == np.float32:
        return a
    if a.dtype == numpy_dtype("bf16"):
        return (np.ascontiguousarray(a).view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)
    return a.astype(np.float32)


def cast(a: Array, source: str, target: str) -> Array:
    """Convert as cvt does (PTX ISA 9.7.9.21): floats to nearest even; floats to integers truncate, saturate and take
    NaN to 0 (to i64: to the least value); to the 8-bit floats saturate (``__NV_SATFINITE``); tf32 rounds half away from
    zero (cvt.rna)."""
    if source == target:
        return a
    to, floating = DTYPES[target], DTYPES[source].kind == "float"
    if target == "tf32":
        single = a.astype(np.float32) if not floating else to_f32(a)
        bits = np.ascontiguousarray(single).view(np.uint32)
        near = ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)
        return np.where(np.isnan(single), single, near)
    if to.kind == "int" and floating:
        info = np.iinfo(numpy_dtype(target))
        nan = float(info.min) if target == "i64" else 0.0
        wide = np.nan_to_num(np.trunc(a.astype(np.float64)), nan=nan, posinf=np.inf, neginf=-np.inf)
        low, high = float(info.min), float(info.max)
        inside = np.clip(wide, low, high)
        result = np.where(inside >= high, info.max, np.where(inside < high, inside, 0).astype(np.int64))
        return result.astype(numpy_dtype(target))
    if target in FINITE_MAX:
        wide = to_f32(a) if floating else a.astype(np.float32)
        limit = np.float32(FINITE_MAX[target])
        return np.where(np.isnan(wide), wide, np.clip(wide, -limit, limit)).astype(numpy_dtype(target))
    if floating and target == "f32":
        return to_f32(a)
    return a.astype(numpy_dtype(target))


def _same(function: Callable[..., Any]) -> Callable[[str], Meaning]:
    return lambda dtype: function


def _through_f32(function: Callable[[Array], Array]) -> Callable[[str], Meaning]:
    def typed(dtype: str) -> Meaning:
        kind = numpy_dtype(dtype)
        if kind == np.float32:
            return function
        return lambda a: function(to_f32(np.asarray(a))).astype(kind)

    return typed


def _operands_flushed(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    return lambda a: function(flush(a))


def _results_flushed(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    return lambda a: flush(function(a))


def _rsqrt(a: Array) -> Array:
    return (1.0 / np.sqrt(a.astype(np.float64))).astype(np.float32)


_erf = np.frompyfunc(math.erf, 1, 1)


def _erf32(a: Array) -> Array:
    return np.asarray(_erf(a.astype(np.float64)), dtype=np.float64).astype(np.float32)


def _cdiv(a: Array, b: Array) -> Array:
    result: Array = -((-a) // b)
    return result


def _cast(dtype: str) -> Meaning:
    def convert(a: Array) -> Array:
        return cast(a, _name(a), dtype)

    return convert


def _name(a: Array) -> str:
    for name in DTYPES:
        if name != "tf32" and numpy_dtype(name) == a.dtype:
            return name
    raise TypeError(f"no element type is held as {a.dtype}")


ELEMENTWISE_MEANINGS: dict[str, Callable[[str], Meaning]] = {
    "neg": _same(np.negative),
    "not": _same(np.logical_not),
    "abs": _same(np.abs),
    "+": _same(np.add),
    "-": _same(np.subtract),
    "*": _same(np.multiply),
    "/": _same(np.divide),
    "//": _same(np.floor_divide),
    "%": _same(np.remainder),
    "cdiv": _same(_cdiv),
    "min": _same(minimum),
    "max": _same(maximum),
    "==": _same(np.equal),
    "!=": _same(np.not_equal),
    "<": _same(np.less),
    "<=": _same(np.less_equal),
    ">": _same(np.greater),
    ">=": _same(np.greater_equal),
    "and": _same(np.logical_and),
    "or": _same(np.logical_or),
    "where": _same(np.where),
    "cast": _cast,
    "exp2": _through_f32(_results_flushed(np.exp2)),
    "log2": _through_f32(_operands_flushed(np.log2)),
    "exp": _through_f32(_results_flushed(np.exp)),
    "log": _through_f32(_operands_flushed(np.log)),
    "rsqrt": _through_f32(_operands_flushed(_rsqrt)),
    "sqrt": _through_f32(_operands_flushed(np.sqrt)),
    "tanh": _through_f32(np.tanh),
    "erf": _through_f32(_erf32),
}
"""For each row of ``cake.ir.elementwise``: from the result's dtype to the function on arrays."""
