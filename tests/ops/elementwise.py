"""Elementwise operations and casts, in frag and spread layouts, with bounds from the elementwise table."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from cake.ir.dtypes import DTYPES, numpy_dtype
from cake.ir.elementwise import ELEMENTWISE
from tests.ops.compare import Bound
from tests.ops.form import Form, Inputs, add, all_classes, simple
from tests.ops.values import FLOATS, FORMATS, Array, Rng, flushed, integers, narrowed, rounded, values, wide

LAYOUTS = {"frag": ("frag", 4, 64, 16), "spread": ("spread(4)", 4, 2, 512), "frag1": ("frag", 1, 16, 24)}


def bound(name: str, dtype: str) -> Bound:
    """The table's bound for a result of a type: f32 units, or what is left of them in a narrower type."""
    row = ELEMENTWISE[name]
    if dtype not in FLOATS or not (row.ulp or row.absolute):
        return Bound(reason=row.reason)
    lost = 23 - FORMATS[dtype].mantissa
    ulp = row.ulp if lost == 0 else math.floor(row.ulp / 2**lost) + 1
    absolute = row.absolute and row.absolute + (0 if lost == 0 else 2.0 ** -FORMATS[dtype].mantissa)
    return Bound(ulp=ulp, absolute=absolute, ftz=row.ftz and dtype != "f16", reason=row.reason)


# ---- references: f64, rounded once to f32 and once more to the type --------------------------------------------------


def _float_op(f: Callable[..., Array], ftz: bool = False) -> Callable[..., Array]:
    def reference(dtype: str, *args: Array) -> Array:
        a = [wide(v) for v in args]
        result = f(*(flushed(v) for v in a)) if ftz else f(*a)
        return narrowed(flushed(rounded(result, "f32").astype(np.float64)) if ftz else result, dtype)

    return reference


def _greater(a: Array, b: Array) -> Array:
    """The greater, NaN if there is one, and of two zeros +0."""
    first = (a > b) | (np.isnan(a)) | ((a == b) & ~np.signbit(a))
    return np.where(np.isnan(b), b, np.where(first, a, b))


def _less(a: Array, b: Array) -> Array:
    return -_greater(-a, -b)


_erf = np.vectorize(math.erf, otypes=[np.float64])
_FLOAT: dict[str, Callable[..., Array]] = {
    "neg": _float_op(lambda a: -a),
    "abs": _float_op(np.abs),
    "+": _float_op(lambda a, b: a + b),
    "-": _float_op(lambda a, b: a - b),
    "*": _float_op(lambda a, b: a * b),
    "/": _float_op(lambda a, b: a / b),
    "min": _float_op(_less),
    "max": _float_op(_greater),
    "exp2": _float_op(np.exp2, True),
    "log2": _float_op(np.log2, True),
    "exp": _float_op(np.exp, True),
    "log": _float_op(np.log, True),
    "rsqrt": _float_op(lambda a: 1 / np.sqrt(a), True),
    "sqrt": _float_op(np.sqrt, True),
    "tanh": _float_op(np.tanh),
    "erf": _float_op(_erf),
}
_INT: dict[str, Callable[..., Array]] = {
    "neg": lambda a: -a,
    "abs": np.abs,
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: np.floor(a / b).astype(np.int64),
    "%": lambda a, b: a - b * np.floor(a / b).astype(np.int64),
    "cdiv": lambda a, b: np.ceil(a / b).astype(np.int64),
    "min": np.minimum,
    "max": np.maximum,
}
_COMPARE: dict[str, Callable[..., Array]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "and": lambda a, b: (a < b) & (a != a),
    "or": lambda a, b: (a < b) | (a == b),
    "not": lambda a, b: ~(a < b),
}
_TEXT = {
    "neg": "-a",
    "not": "where(not (a < b), 1, 0)",
    "and": "where(a < b and a != a, 1, 0)",
    "or": "where(a < b or a == b, 1, 0)",
    "where": "where(a < b, a, b)",
}
LIMITS = {
    "*": 40000,
    "+": 2**30 - 1,
    "-": 2**30 - 1,
    "neg": 2**31 - 1,
    "abs": 2**31 - 1,
    "//": 2**20,
    "%": 2**20,
    "cdiv": 2**20,
}
"""Integer arithmetic is defined where the result fits."""


def text_of(name: str) -> str:
    """The operation on a and b in the surface language."""
    if name in _TEXT:
        return _TEXT[name]
    row = ELEMENTWISE[name]
    if row.arity == 1:
        return f"{name}(a)"
    body = f"{name}(a, b)" if name.isalpha() else f"a {name} b"
    return f"where({body}, 1, 0)" if row.result == "bool" else body


def _reference(name: str, dtype: str, a: Array, b: Array) -> Array:
    if name in _COMPARE:
        return np.asarray(_COMPARE[name](wide(a), wide(b))).astype(np.int32)
    if name == "where":
        return np.where(wide(a) < wide(b), a, b)
    args = (a, b)[: ELEMENTWISE[name].arity]
    if dtype in FLOATS:
        return _FLOAT[name](dtype, *args)
    return _INT[name](*(v.astype(np.int64) for v in args)).astype(numpy_dtype(dtype))


def _pair(rng: Rng, kind: str, dtype: str, shape: tuple[int, int], name: str) -> Inputs:
    if dtype in FLOATS:
        a, b = (values(rng, kind, dtype, shape, 3.0) for _ in range(2))
        if kind == "random" and name in ("log2", "log", "sqrt", "rsqrt"):
            a = np.abs(a)
        same = rng.random(shape) < 0.1
        return {"x": a, "y": np.where(same, a, b).astype(a.dtype)}
    limit = LIMITS.get(name)
    a, b = (integers(rng, kind, dtype, shape, limit) for _ in range(2))
    if name in ("//", "%", "cdiv"):
        b = np.where(b == 0, 7, b).astype(b.dtype)
    return {"x": a, "y": b}


def _binary(name: str, dtype: str, layout: str, slow: bool) -> None:
    attr, warps, rows, cols = LAYOUTS[layout]
    out = "i32" if name in _COMPARE else dtype
    type_ = f"[{rows}, {cols}]"
    source = simple(
        f"x: {dtype}{type_}, y: {dtype}{type_}, out z: {out}{type_}",
        f"a: {dtype}{type_} {attr}\nb: {dtype}{type_} {attr}\n",
        f"a = load(x[rows(a), cols(a)])\nb = load(y[rows(b), cols(b)])\nstore(z[rows(a), cols(a)], {text_of(name)})",
        warps=warps,
    )
    add(
        Form(
            f"elementwise {name} {dtype} {layout}",
            source,
            lambda rng, kind: _pair(rng, kind, dtype, (rows, cols), name),
            lambda x, y: {"z": _reference(name, dtype, x, y)},
            lambda **_: {"z": bound(name, out)},
            all_classes(dtype),
            slow,
        )
    )


def takes(name: str, dtype: str) -> bool:
    """Whether an operation takes operands of a type."""
    kind = ELEMENTWISE[name].operands
    return kind in ("any", "bool") or (kind == "number") or kind == DTYPES[dtype].kind


for _name in ELEMENTWISE:
    for _dtype in ("f32", "bf16", "f16", "i32"):
        for _layout in LAYOUTS:
            if _name != "cast" and takes(_name, _dtype) and not (_layout == "frag1" and _dtype in ("f16", "i32")):
                _binary(_name, _dtype, _layout, slow=_layout == "frag1" or (_dtype == "f16" and _layout == "spread"))


# ---- expressions -----------------------------------------------------------------------------------------------------


def _contraction(x: Array, y: Array, c: Array) -> dict[str, Array]:
    product = rounded(wide(x) * wide(y), "f32")
    return {"z": rounded(wide(product) + wide(c), "f32")}


def _contraction_bound(x: Array, y: Array, c: Array) -> dict[str, Bound]:
    with np.errstate(all="ignore"):
        half = np.ldexp(np.abs(wide(x) * wide(y)), -24)
    return {"z": Bound(ulp=1, absolute=half, reason="a fused multiply-add leaves the product unrounded: half its ulp")}


add(
    Form(
        "elementwise a*b+c f32 frag",
        simple(
            "x: f32[64, 16], y: f32[64, 16], c: f32[64, 16], out z: f32[64, 16]",
            "a: f32[64, 16] frag\n",
            "a = load(x[rows(a), cols(a)])\n"
            "store(z[rows(a), cols(a)], a * load(y[rows(a), cols(a)]) + load(c[rows(a), cols(a)]))",
        ),
        lambda rng, kind: {n: values(rng, kind, "f32", (64, 16)) for n in ("x", "y", "c")},
        _contraction,
        _contraction_bound,
        ("random",),
    )
)


def _broadcast(dtype: str) -> None:
    add(
        Form(
            f"elementwise broadcast {dtype} frag",
            simple(
                f"x: {dtype}[64, 24], r: {dtype}[64], q: {dtype}[24], s: {dtype}, out z: {dtype}[64, 24]",
                f"a: {dtype}[64, 24] frag\n",
                "a = load(x[rows(a), cols(a)])\n"
                "store(z[rows(a), cols(a)], max(max(a, load(r[rows(a)])), min(load(q[cols(a)]), s)))",
            ),
            lambda rng, kind: {
                "x": values(rng, kind, dtype, (64, 24)),
                "r": values(rng, kind, dtype, (64,)),
                "q": values(rng, kind, dtype, (24,)),
                "s": 0.25 if dtype == "f32" else 3,
            },
            lambda x, r, q, s: {
                "z": _greater(
                    _greater(wide(x), wide(r)[:, None]), _less(wide(q), np.asarray(s, np.float64))[None]
                ).astype(x.dtype)
                if dtype == "f32"
                else np.maximum(np.maximum(x, r[:, None]), np.minimum(q, s)[None]).astype(np.int32)
            },
            classes=all_classes(dtype),
        )
    )


for _dtype in ("f32", "i32"):
    _broadcast(_dtype)


# ---- casts -----------------------------------------------------------------------------------------------------------

TYPES = ("f32", "bf16", "f16", "e4m3", "e5m2", "tf32", "i64", "i32", "i8", "u8")


def converted(a: Array, source: str, target: str) -> Array:
    """The value in another type: floats to nearest; to integers towards zero, clamped, NaN as 0 (i64: the least);
    between integers the low bits; to tf32 half away from zero."""
    if target == "tf32":
        x = wide(rounded(wide(a), "f32"))
        exponent = np.maximum(np.frexp(np.where(np.isfinite(x), x, 0.0))[1] - 1, -126)
        quantum = np.ldexp(1.0, exponent - 10)
        away = np.copysign(np.floor(np.abs(x) / quantum + 0.5) * quantum, x)
        return np.where(np.isfinite(x), rounded(away, "f32"), rounded(x, "f32"))
    if target in FLOATS:
        if source in ("i32", "i64", "i8", "u8"):
            # the nearest f32 first, also of integers beyond 2**53
            single = a.astype(np.float32) if source != "i64" else _single(a)
            return rounded(single.astype(np.float64), target)
        return rounded(wide(a), target)
    if source in FLOATS or source == "tf32":
        info = np.iinfo(numpy_dtype(target))
        out = []
        for v in wide(a).ravel().tolist():
            if math.isnan(v):
                out.append(info.min if target == "i64" else 0)
            elif math.isinf(v):
                out.append(info.max if v > 0 else info.min)
            else:
                out.append(max(info.min, min(info.max, math.trunc(v))))
        return np.array(out, dtype=np.int64).reshape(a.shape).astype(numpy_dtype(target))
    bits = 8 * numpy_dtype(target).itemsize
    low = [v & ((1 << bits) - 1) for v in a.ravel().tolist()]
    signed = target != "u8"
    low = [v - (1 << bits) if signed and v >= 1 << (bits - 1) else v for v in low]
    return np.array(low, dtype=np.int64 if signed else np.uint8).reshape(a.shape).astype(numpy_dtype(target))


def _single(a: Array) -> Array:
    """i64 to the nearest f32 (f64 in between would round twice)."""
    out = []
    for v in a.ravel().tolist():
        shift = max(0, abs(v).bit_length() - 24)
        q, r = divmod(abs(v), 1 << shift)
        half = (1 << shift) >> 1
        q += shift > 0 and (r > half or (r == half and q & 1))
        out.append(math.copysign(q * 2.0**shift, v))
    return np.array(out).reshape(a.shape).astype(np.float32)


def _casts(source: str, layout: str) -> None:
    rows, cols = (16, 64) if layout == "frag" else (1, 1024)
    attr = "frag" if layout == "frag" else "spread(8)"
    targets = [t for t in TYPES if t != source]
    params = [f"x: {source}[{rows}, {cols}]", *(f"out y_{t}: {t}[{rows}, {cols}]" for t in targets)]
    body = ["a = load(x[rows(a), cols(a)])", *(f"store(y_{t}[rows(a), cols(a)], {t}(a))" for t in targets)]
    add(
        Form(
            f"cast {source} {layout}",
            simple(", ".join(params), f"a: {source}[{rows}, {cols}] {attr}\n", "\n".join(body), warps=1),
            lambda rng, kind: {"x": values(rng, kind, source, (rows, cols), 30.0)},
            lambda x: {f"y_{t}": converted(x, source, t) for t in targets},
            classes=all_classes(source),
        )
    )


for _source in TYPES:
    for _layout in ("frag", "spread"):
        _casts(_source, _layout)


def _bool_cast(dtype: str) -> None:
    out: Any = numpy_dtype(dtype)
    add(
        Form(
            f"cast bool {dtype}",
            simple(
                f"x: {dtype}[1, 256], out y: {dtype}[1, 256]",
                f"a: {dtype}[1, 256] spread(4)\n",
                f"a = load(x[rows(a), cols(a)])\nstore(y[rows(a), cols(a)], {dtype}(bool(a)))",
                warps=2,
            ),
            lambda rng, kind: {"x": values(rng, kind, dtype, (1, 256))},
            lambda x: {"y": (wide(x) != 0).astype(out)},
            classes=all_classes(dtype),
        )
    )


for _dtype in ("f32", "bf16", "i32", "u8"):
    _bool_cast(_dtype)
