"""Shared memory: swizzles, padding, aliases, leading axes, changes of layout; ldmatrix and stmatrix; mma."""

from __future__ import annotations

import numpy as np

from cake.ir.dtypes import DTYPES
from cake.ir.ops import OPS
from tests.ops.compare import Bound
from tests.ops.form import Form, add, simple
from tests.ops.values import Array, Rng, rounded, tame, values, wide


def product_bound(a: Array, b: Array, op: str, old: Array | None = None, start: int = 0) -> Bound:
    """The table's bound for a [M, K] @ b [K, N] (+ old)."""
    row = OPS[op]
    each = row.narrow_roundings if a.dtype.itemsize == 1 else row.roundings
    x, y = (np.abs(np.where(np.isfinite(wide(v)), wide(v), 0.0)) for v in (a, b))
    magnitudes = x @ y + (0 if old is None else np.abs(np.nan_to_num(wide(old))))
    return Bound(absolute=each * (a.shape[1] + 1) * 2.0**-23 * magnitudes, sign=True, reason=row.reason)


def product(a: Array, b: Array, old: Array | float = 0.0) -> Array:
    """a @ b + old, in f64 and rounded once."""
    return rounded(wide(a) @ wide(b) + (wide(old) if isinstance(old, np.ndarray) else old), "f32")


def factors(rng: Rng, kind: str, dtype: str, *shapes: tuple[int, int]) -> list[Array]:
    """Factors of products that no order of addition overflows."""
    limit = {"f16": 2.0**15, "e4m3": 448.0, "e5m2": 2.0**15}.get(dtype, 2.0**50)
    if kind == "random":
        return [values(rng, kind, dtype, shape) for shape in shapes]
    out = []
    for shape in shapes:
        x = tame(rng, kind, dtype, shape, limit)
        # few infinities and NaN, so that most results are numbers
        calm = ~np.isfinite(wide(x)) & (rng.random(shape) < 0.97)
        out.append(np.where(calm, rounded(np.ones(shape), dtype), x).astype(x.dtype))
    return out


# ---- a change of layout through a buffer -----------------------------------------------------------------------------


def _through(dtype: str, attrs: str, rows: int, cols: int, lead: bool = False) -> None:
    shape = f"2, {rows}, {cols}" if lead else f"{rows}, {cols}"
    sub = "t.i, " if lead else ""
    vector = 16 // DTYPES[dtype].bytes
    add(
        Form(
            f"shared {dtype} {rows}x{cols} {attrs or 'plain'}{' lead' if lead else ''}",
            simple(
                f"x: {dtype}[{rows}, {cols}], out y: {dtype}[{rows}, {cols}]",
                f"a: {dtype}[{rows}, {cols}] frag\nb: {dtype}[{rows}, {cols}] spread({vector})\n"
                f"smem s: {dtype}[{shape}] {attrs}",
                f"a = load(x[rows(a), cols(a)])\nstore(s[{sub}rows(a), cols(a)], a)\nsync()\n"
                f"b = load(s[{sub}rows(b), cols(b)])\nstore(y[rows(b), cols(b)], b)",
            ),
            lambda rng, kind: {"x": values(rng, kind, dtype, (rows, cols))},
            lambda x: {"y": x},
        )
    )


for _dtype in ("f32", "bf16"):
    _size = DTYPES[_dtype].bytes
    for _swizzle in (32, 64, 128):
        _through(_dtype, f"swizzle({_swizzle})", 64, _swizzle // _size)
        _through(_dtype, f"swizzle({_swizzle})", 64, 3 * _swizzle // _size)
    _through(_dtype, "", 64, 64)
    _through(_dtype, "pad(8)", 64, 64)
    _through(_dtype, "swizzle(128)", 64, 64, lead=True)
_through("i32", "swizzle(64)", 64, 16)
_through("f16", "pad(8)", 128, 40)

add(
    Form(
        "shared alias",
        simple(
            "x: f32[64, 32], out y: f32[64, 32]",
            "a: f32[64, 32] frag\nb: f32[64, 32] spread(4)\nc: bf16[64, 32] frag\nd: bf16[64, 32] spread(8)\n"
            "smem s: f32[64, 32] swizzle(128)\nsmem u: bf16[64, 32] pad(8) alias(s)",
            "a = load(x[rows(a), cols(a)])\nstore(s[rows(a), cols(a)], a)\nsync()\n"
            "b = load(s[rows(b), cols(b)])\nsync()\n"
            "store(u[rows(c), cols(c)], bf16(a))\nsync()\n"
            "d = load(u[rows(d), cols(d)])\nstore(y[rows(b), cols(b)], b)\nsync()\n"
            "store(y[rows(d), cols(d)], f32(d), where=rows(d) >= 32)",
        ),
        lambda rng, kind: {"x": values(rng, kind, "f32", (64, 32))},
        lambda x: {"y": np.concatenate([x[:32], wide(rounded(wide(x[32:]), "bf16")).astype(np.float32)])},
    )
)

add(
    Form(
        "shared whole view stored",
        simple(
            "x: f32[16, 32], out y: f32[4, 16, 32]",
            "a: f32[16, 32] frag\nb: f32[16, 32] spread(4)\nsmem s: f32[4, 16, 32]",
            "a = load(x[rows(a), cols(a)])\n"
            "for u in unroll(4):\n    store(s[u], a * f32(u + 1))\nsync()\n"
            "for u in range(4):\n    b = load(s[u, rows(b), cols(b)])\n    store(y[u, rows(b), cols(b)], b)",
            warps=1,
        ),
        lambda rng, kind: {"x": values(rng, kind, "f32", (16, 32))},
        lambda x: {"y": np.stack([x * np.float32(u + 1) for u in range(4)])},
    )
)


# ---- ldmatrix and stmatrix -------------------------------------------------------------------------------------------


def _matrix(op: str, dtype: str, warps: int, rows: int, cols: int, attrs: str, turned: bool) -> None:
    """One side by ldmatrix or stmatrix, the other by elements; ``turned``: the buffer holds the transpose."""
    stored = (cols, rows) if turned else (rows, cols)
    sub = "cols(a), rows(a)" if turned else "rows(a), cols(a)"
    ref = "s.T" if turned else "s"
    write = f"stmatrix({ref}, a)" if op == "stmatrix" else f"store(s[{sub}], a)"
    read = f"ldmatrix({ref})" if op == "ldmatrix" else f"load(s[{sub}])"
    body = f"a = load(x[rows(a), cols(a)])\n{write}\nsync()\nb = {read}\nstore(y[rows(b), cols(b)], b)"
    add(
        Form(
            f"{op} {dtype} {rows}x{cols} by {warps} {attrs}{' .T' if turned else ''}",
            simple(
                f"x: {dtype}[{rows}, {cols}], out y: {dtype}[{rows}, {cols}]",
                f"a: {dtype}[{rows}, {cols}] frag\nb: {dtype}[{rows}, {cols}] frag\n"
                f"smem s: {dtype}[{stored[0]}, {stored[1]}] {attrs}",
                body,
                warps=warps,
            ),
            lambda rng, kind: {"x": values(rng, kind, dtype, (rows, cols))},
            lambda x: {"y": x},
        )
    )


for _op in ("ldmatrix", "stmatrix"):
    for _turned in (False, True):
        _matrix(_op, "bf16", 4, 64, 64, "swizzle(128)", _turned)
        _matrix(_op, "bf16", 4, 128, 128, "swizzle(128)", _turned)
        _matrix(_op, "f16", 1, 32, 32, "swizzle(64)", _turned)
        _matrix(_op, "bf16", 1, 16, 16, "swizzle(32)", _turned)
        _matrix(_op, "bf16", 1, 16, 24, "pad(8)", _turned)
        _matrix(_op, "f16", 4, 64, 24, "pad(8)", _turned)


# ---- mma -------------------------------------------------------------------------------------------------------------


def _mma(dtype: str, m: int, n: int, k: int, a_form: str, b_form: str, attrs: str) -> None:
    """``a_form``: shared (rows of A), turned (A stored [K, M]), registers; ``b_form``: rows ([N, K]), columns."""
    a_shape = (k, m) if a_form == "turned" else (m, k)
    b_shape = (n, k) if b_form == "rows" else (k, n)
    # Buffers are filled by elements of one warp, 16 rows at a time.
    declare = [f"p: {dtype}[{m}, {k}] frag", f"acc: f32[{m}, {n}] frag", f"e: {dtype}[1, {a_shape[1]}] spread(2)"]
    declare += [f"f: {dtype}[1, {b_shape[1]}] spread(2)"]
    declare += [
        f"smem sa: {dtype}[{a_shape[0]}, {a_shape[1]}] {attrs}",
        f"smem sb: {dtype}[{b_shape[0]}, {b_shape[1]}] {attrs}",
    ]
    body = [
        f"for r in range({a_shape[0]}):\n    e = load(x[r, cols(e)])\n    store(sa[r, cols(e)], e)",
        f"for r in range({b_shape[0]}):\n    f = load(y[r, cols(f)])\n    store(sb[r, cols(f)], f)",
        "sync()",
        "acc = load(c[rows(acc), cols(acc)])",
    ]
    a = {"shared": "sa", "turned": "sa.T", "registers": "p"}[a_form]
    if a_form == "registers":
        body.append("p = load(x[rows(p), cols(p)])")
    else:
        declare[0] = ""
    body += [f"mma(acc, {a}, {'sb.T' if b_form == 'rows' else 'sb'})", "store(z[rows(acc), cols(acc)], acc)"]

    def sides(x: Array, y: Array) -> tuple[Array, Array]:
        return (x.T if a_form == "turned" else x), (y.T if b_form == "rows" else y)

    add(
        Form(
            f"mma {dtype} {m}x{n}x{k} A {a_form} B {b_form} {attrs}",
            simple(
                f"x: {dtype}[{a_shape[0]}, {a_shape[1]}], y: {dtype}[{b_shape[0]}, {b_shape[1]}], c: f32[{m}, {n}], "
                f"out z: f32[{m}, {n}]",
                "\n".join(line for line in declare if line) + "\n",
                "\n".join(body),
                warps=1,
            ),
            lambda rng, kind: {
                **dict(zip("xy", factors(rng, kind, dtype, a_shape, b_shape), strict=True)),
                "c": values(rng, "random", "f32", (m, n)),
            },
            lambda x, y, c: {"z": product(*sides(x, y), c)},
            lambda x, y, c: {"z": product_bound(*sides(x, y), "mma", c)},
            ("random", "extreme", "nan"),
        )
    )


for _dtype in ("bf16", "f16"):
    for _a in ("shared", "turned", "registers"):
        for _b in ("rows", "columns"):
            _mma(_dtype, 32, 64, 64, _a, _b, "swizzle(64)")
    _mma(_dtype, 16, 24, 32, "shared", "rows", "pad(8)")
    _mma(_dtype, 16, 8, 16, "registers", "rows", "pad(8)")
