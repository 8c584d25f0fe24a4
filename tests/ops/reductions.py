"""Reductions: within a thread, a quad, a warp, along rows, across warps; and arg-extrema."""

from __future__ import annotations

import math

import numpy as np

from cake.ir.dtypes import numpy_dtype
from cake.ir.ops import OPS
from tests.ops.compare import Bound
from tests.ops.elementwise import _greater
from tests.ops.form import Form, add, all_classes, simple
from tests.ops.values import FLOATS, Array, Rng, narrowed, tame, values, wide


def sum_bound(x: Array, axis: int, dtype: str, op: str = "reduce", count: int = 0) -> Bound:
    """The table's bound for a sum of the elements of ``x`` along an axis."""
    row = OPS[op]
    if dtype not in FLOATS:
        return Bound(reason=row.reason)
    magnitudes = np.abs(np.where(np.isfinite(wide(x)), wide(x), 0.0)).sum(axis=axis, keepdims=True)
    size = row.roundings * (count or x.shape[axis]) * 2.0**-23 * magnitudes
    return Bound(ulp=0 if dtype == "f32" else 1, absolute=size, sign=True, reason=row.reason)


def total(x: Array, axis: int, dtype: str) -> Array:
    """The sum along an axis, rounded once."""
    if dtype not in FLOATS:
        return x.sum(axis=axis, keepdims=True, dtype=np.int64).astype(numpy_dtype(dtype))
    moved = np.moveaxis(wide(x), axis, -1)
    out = [_fsum(line) for line in moved.reshape(-1, moved.shape[-1])]
    return narrowed(np.expand_dims(np.array(out).reshape(moved.shape[:-1]), axis), dtype)


def _fsum(line: Array) -> float:
    if np.isnan(line).any() or (np.isposinf(line).any() and np.isneginf(line).any()):
        return math.nan
    return math.fsum(line.tolist())


def extreme(x: Array, axis: int, largest: bool) -> Array:
    """The maximum or minimum; NaN wins, +0 above -0."""
    moved = np.moveaxis(x, axis, 0)
    if x.dtype.kind in "iu":
        return np.expand_dims(moved.max(0) if largest else moved.min(0), axis)
    a = wide(moved) if largest else -wide(moved)
    best = a[0]
    for v in a[1:]:
        best = _greater(best, v)
    return np.expand_dims(best if largest else -best, axis).astype(x.dtype)


def reduced(x: Array, axis: int, function: str, dtype: str) -> Array:
    """Any of the three."""
    return total(x, axis, dtype) if function == "sum" else extreme(x, axis, function == "max")


def _inputs(dtype: str, shape: tuple[int, int], function: str):  # type: ignore[no-untyped-def]
    def make(rng: Rng, kind: str) -> dict[str, Array]:
        if function == "sum" and dtype in FLOATS:
            return {"x": tame(rng, kind, dtype, shape, 2.0**10 if dtype == "f16" else 2.0**60)}
        if function == "sum":
            return {"x": rng.integers(-(10**6), 10**6, shape).astype(np.int32)}
        return {"x": values(rng, kind, dtype, shape)}

    return make


def _plain(
    name: str, dtype: str, attr: str, warps: int, shape: tuple[int, int], axis: int, function: str, slow: bool
) -> None:
    rows, cols = shape
    out = (rows, 1) if axis == 1 else (1, cols)
    add(
        Form(
            f"reduce {function} {dtype} {name}",
            simple(
                f"x: {dtype}[{rows}, {cols}], out z: {dtype}[{out[0]}, {out[1]}]",
                f"a: {dtype}[{rows}, {cols}] {attr}\n",
                f"a = load(x[rows(a), cols(a)])\nr = {function}(a, axis={axis})\nstore(z[rows(r), cols(r)], r)",
                warps=warps,
            ),
            _inputs(dtype, shape, function),
            lambda x: {"z": reduced(x, axis, function, dtype)},
            lambda x: {"z": sum_bound(x, axis, dtype)} if function == "sum" else {},
            all_classes(dtype),
            slow,
        )
    )


SHAPES = [
    ("warpgroup rows", "frag", 4, (64, 32), 1),
    ("warpgroup 2 blocks", "frag", 4, (128, 24), 1),
    ("warp rows", "frag", 1, (32, 8), 1),
    ("warp columns", "frag", 1, (32, 24), 0),
    ("warp spread(1)", "spread(1)", 1, (1, 96), 1),
    ("warp spread(8)", "spread(8)", 1, (1, 512), 1),
    ("warp partial round", "spread(4)", 1, (1, 320), 1),
    ("across 4 warps", "spread(4)", 4, (1, 1024), 1),
    ("across 8 warps", "spread(2)", 8, (1, 512), 1),
    ("across 2 warps", "spread(1)", 2, (1, 160), 1),
]
for _i, (_name, _attr, _warps, _shape, _axis) in enumerate(SHAPES):
    for _function in ("sum", "max", "min"):
        for _dtype in ("f32", "bf16", "f16", "i32"):
            if _dtype == "f16" and _i % 3:
                continue
            _plain(_name, _dtype, _attr, _warps, _shape, _axis, _function, slow=_dtype == "f16" or _i in (2, 8))


def _partial(dtype: str, function: str) -> None:
    """Partial values of the four threads that share a row, stored as they are, and reduced."""

    def reference(x: Array) -> dict[str, Array]:
        quads = x.reshape(64, 6, 4, 2).transpose(0, 2, 1, 3).reshape(64, 4, 12)
        parts = reduced(quads, 2, function, dtype)[..., 0]
        return {"p": parts, "z": reduced(parts, 1, function, dtype)}

    def bounds(x: Array) -> dict[str, Bound]:
        if function != "sum" or dtype == "i32":
            return {}
        quads = x.reshape(64, 6, 4, 2).transpose(0, 2, 1, 3).reshape(64, 4, 12)
        part = sum_bound(quads, 2, dtype)
        whole = sum_bound(x, 1, dtype)
        slack = 0.0 if dtype == "f32" else np.asarray(whole.absolute) * 2.0**15  # the parts are rounded to the type
        return {
            "p": Bound(part.ulp, np.asarray(part.absolute)[..., 0], sign=True, reason=part.reason),
            "z": Bound(whole.ulp, whole.absolute + slack, sign=True, reason=whole.reason),
        }

    add(
        Form(
            f"reduce {function} {dtype} to=4",
            simple(
                f"x: {dtype}[64, 48], out p: {dtype}[64, 4], out z: {dtype}[64, 1]",
                f"a: {dtype}[64, 48] frag\nq: {dtype}[64, 4] frag\n",
                f"a = load(x[rows(a), cols(a)])\nq = {function}(a, axis=1, to=4)\nstore(p[rows(q), cols(q)], q)\n"
                f"r = {function}(q, axis=1)\nstore(z[rows(r), cols(r)], r)",
            ),
            _inputs(dtype, (64, 48), function),
            reference,
            bounds,
            all_classes(dtype),
        )
    )


for _dtype in ("f32", "bf16", "i32"):
    for _function in ("sum", "max"):
        _partial(_dtype, _function)


def _threads(warps: int) -> None:
    """One partial value a thread of a spread tile, then all of them."""
    t = 32 * warps

    def reference(x: Array) -> dict[str, Array]:
        parts = x.reshape(4, t, 4).transpose(1, 0, 2).reshape(t, 16)
        p = total(parts, 1, "f32").reshape(1, t)
        return {"p": p, "z": total(p, 1, "f32")}

    add(
        Form(
            f"reduce sum f32 to={t}",
            simple(
                f"x: f32[1, {16 * t}], out p: f32[1, {t}], out z: f32[1, 1]",
                f"a: f32[1, {16 * t}] spread(4)\nq: f32[1, {t}] spread(1)\n",
                f"a = load(x[rows(a), cols(a)])\nq = sum(a, axis=1, to={t})\nstore(p[rows(q), cols(q)], q)\n"
                "r = sum(q, axis=1)\nstore(z[rows(r), cols(r)], r)",
                warps=warps,
            ),
            lambda rng, kind: {"x": tame(rng, kind, "f32", (1, 16 * t))},
            reference,
            lambda x: {"p": sum_bound(x, 1, "f32", count=16), "z": sum_bound(x, 1, "f32")},
            all_classes("f32"),
        )
    )


for _warps in (1, 4):
    _threads(_warps)


# ---- arg-extrema -----------------------------------------------------------------------------------------------------


def _arg(dtype: str, function: str, attr: str, warps: int, shape: tuple[int, int]) -> None:
    rows, cols = shape
    sign = 1.0 if function == "argmax" else -1.0

    def reference(x: Array) -> dict[str, Array]:
        v = wide(x) * sign
        v = np.where(np.isnan(v), -np.inf, v)
        at = v.argmax(axis=1)[:, None]
        best = np.take_along_axis(v, at, 1) * sign
        return {"z": best.astype(x.dtype), "at": at.astype(np.int32)}

    def bounds(x: Array) -> dict[str, Bound]:
        v = wide(x) * sign
        nothing = (np.isnan(v).any(1) & (np.where(np.isnan(v), -np.inf, v).max(1) == -np.inf))[:, None]
        reason = OPS["argreduce"].reason
        return {"z": Bound(sign=True, reason=reason), "at": Bound(free=nothing, reason=OPS["argreduce"].notes[0])}

    def make(rng: Rng, kind: str) -> dict[str, Array]:
        x = values(rng, kind, dtype, shape)
        if kind == "random":
            x = np.round(wide(x) * (4 if dtype != "i32" else 0.01)).astype(x.dtype)  # with ties
        if kind == "nan" and rows > 1:
            x[rows // 2] = np.nan
        return {"x": x}

    add(
        Form(
            f"{function} {dtype} {attr} {rows}x{cols}",
            simple(
                f"x: {dtype}[{rows}, {cols}], out z: {dtype}[{rows}, 1], out at: i32[{rows}, 1]",
                f"a: {dtype}[{rows}, {cols}] {attr}\n",
                f"a = load(x[rows(a), cols(a)])\nv, c = {function}(a, axis=1)\n"
                "store(z[rows(v), cols(v)], v)\nstore(at[rows(c), cols(c)], c)",
                warps=warps,
            ),
            make,
            reference,
            bounds,
            all_classes(dtype),
        )
    )


for _dtype in ("f32", "bf16", "i32"):
    for _function in ("argmax", "argmin"):
        _arg(_dtype, _function, "frag", 4, (64, 40))
        _arg(_dtype, _function, "frag", 1, (16, 8))
        _arg(_dtype, _function, "spread(1)", 1, (1, 96))
_arg("f32", "argmax", "spread(4)", 1, (1, 256))
_arg("f32", "argmin", "frag", 4, (128, 64))


# ---- lists of the best -----------------------------------------------------------------------------------------------


def _best(entries: int, group: int, warps: int, shape: tuple[int, int], tile: int, floor: bool = False) -> None:
    rows, cols = shape

    def reference(x: Array) -> dict[str, Array]:
        """What a sort gives that keeps the order of equals; NaN is no candidate, nor is -inf, nor what is below the floor, which is
        the last column."""
        best = np.full((rows, entries), -np.inf, np.float32)
        at = np.full((rows, entries), -1, np.int32)
        for r, row in enumerate(x):
            columns = [c for c in range(cols) if row[c] > -np.inf and not (floor and row[c] < row[-1])]
            for n, c in enumerate(sorted(columns, key=lambda c: -row[c])[:entries]):
                best[r, n], at[r, n] = row[c], c
        return {"z": best, "at": at, "narrow": narrowed(best, "bf16")}

    def make(rng: Rng, kind: str) -> dict[str, Array]:
        x = values(rng, kind, "f32", shape)
        if kind == "random":
            x = np.round(x * 4).astype(x.dtype)  # with ties
            x[0], x[1], x[2] = -np.inf, np.arange(cols), -np.arange(cols)
            x[3], x[4, cols // 8 :] = 1.0, -np.inf
        if kind == "nan":
            x[rows // 2], x[rows // 2 + 1, ::2] = np.nan, np.nan
        return {"x": x}

    add(
        Form(
            f"topk {entries} group({group}) {rows}x{cols} by {tile}{' above a floor' * floor}",
            simple(
                f"x: f32[{rows}, {cols}], out z: f32[{rows}, {entries}], out at: i32[{rows}, {entries}], "
                f"out narrow: bf16[{rows}, {entries}]",
                f"a: f32[{rows}, {tile}] frag\nlow: f32[{rows}, 1] frag\nbest: topk[{rows}, {entries}] frag group({group})\n",
                f"low = load(x[rows(low), {cols - 1}])\nbest.clear()\nfor j in range({cols // tile}):\n"
                f"    a = load(x[rows(a), {tile} * j + cols(a)])\n    best.add(a, {tile} * j{', floor=low' * floor})\n"
                "v, c = best.take()\nstore(z[rows(v), cols(v)], v)\nstore(at[rows(c), cols(c)], c)\n"
                "store(narrow[rows(v), cols(v)], bf16(v))",
                warps=warps,
            ),
            make,
            reference,
            classes=all_classes("f32"),
        )
    )


_best(1, 2, 4, (64, 256), 64)
_best(5, 4, 4, (64, 256), 64)
_best(8, 4, 4, (64, 512), 128)
_best(10, 2, 1, (16, 96), 24)
_best(16, 8, 4, (128, 256), 64)
_best(32, 4, 4, (64, 512), 128)
_best(8, 4, 4, (64, 256), 64, floor=True)
