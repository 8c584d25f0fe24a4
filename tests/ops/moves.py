"""Element moves: layouts, masks, vectors, gathers, transposed stores, scalars, atomics."""

from __future__ import annotations

import numpy as np

from cake.ir.dtypes import DTYPES, numpy_dtype
from cake.ir.ops import OPS
from tests.ops.compare import Bound
from tests.ops.form import Form, add, simple
from tests.ops.reductions import extreme
from tests.ops.values import Array, values, wide

LAYOUTS = {
    "frag": ("frag", 4, 64, 40),
    "frag2": ("frag", 4, 128, 16),
    "warp": ("frag", 1, 32, 24),
    "spread1": ("spread(1)", 2, 1, 160),
    "spread2": ("spread(2)", 4, 6, 128),
    "spread4": ("spread(4)", 4, 2, 512),
    "spread8": ("spread(8)", 4, 1, 1536),
    "spread16": ("spread(16)", 1, 2, 512),
}


def _masked(dtype: str, layout: str) -> None:
    """Rows and columns past the tensor read `other` and are not written."""
    attr, warps, rows, cols = LAYOUTS[layout]
    step = int(attr[7:-1]) if attr.startswith("spread") else 2
    m, n = max(1, rows - 3), cols - 3 * step
    other = "-3" if DTYPES[dtype].kind == "int" and dtype != "u8" else "7" if dtype == "u8" else "-1.5"
    add(
        Form(
            f"load masked {dtype} {layout}",
            simple(
                f"x: {dtype}[M, N], inout y: {dtype}[M, N], out z: {dtype}[{rows}, {cols}]",
                f"a: {dtype}[{rows}, {cols}] {attr}\n",
                f"a = load(x[rows(a), cols(a)], where=rows(a) < M and cols(a) < N, other={other})\n"
                "store(y[rows(a), cols(a)], a, where=rows(a) < M and cols(a) < N)\nstore(z[rows(a), cols(a)], a)",
                warps=warps,
                head=f"where N % {step} == 0",
            ),
            lambda rng, kind: {"x": values(rng, kind, dtype, (m, n)), "y": values(rng, kind, dtype, (m, n))},
            lambda x, y: {"y": x, "z": np.pad(x, ((0, rows - m), (0, cols - n)), constant_values=float(other))},
            classes=("random",),
            slow=dtype in ("f16", "i64"),
        )
    )


for _dtype in ("f32", "bf16", "f16", "i32", "i64", "u8"):
    for _layout in LAYOUTS:
        if _dtype in ("f32", "bf16") or (_dtype, _layout) in {
            ("f16", "frag"), ("i32", "spread4"), ("i32", "warp"), ("i64", "spread2"), ("i64", "frag"),
            ("u8", "spread16"), ("u8", "frag"), ("u8", "spread8"),
        }:  # fmt: skip
            _masked(_dtype, _layout)


def _transposed(dtype: str) -> None:
    add(
        Form(
            f"store transposed {dtype}",
            simple(
                f"x: {dtype}[64, 24], inout y: {dtype}[24, 70]",
                f"a: {dtype}[64, 24] frag\n",
                "a = load(x[rows(a), cols(a)])\nstore(y[cols(a), rows(a) + 3], a, where=rows(a) % 3 != 0)",
            ),
            lambda rng, kind: {"x": values(rng, kind, dtype, (64, 24)), "y": values(rng, kind, dtype, (24, 70))},
            lambda x, y: {"y": _put(y, x)},
        )
    )


def _put(y: Array, x: Array) -> Array:
    out = y.copy()
    for r in range(x.shape[0]):
        if r % 3:
            out[:, r + 3] = x[r]
    return out


for _dtype in ("f32", "bf16"):
    _transposed(_dtype)

add(
    Form(
        "load gather and scatter",
        simple(
            "ids: i32[64, 8], x: f32[M, 8], inout y: f32[M, 8]",
            "at: i32[64, 8] frag\nv: f32[64, 8] frag\n",
            "at = load(ids[rows(at), cols(at)])\n"
            "v = load(x[at, cols(at)], where=at >= 0 and at < M, other=9.0)\n"
            "store(y[at, cols(at)], v, where=at >= 0 and at < M)",
        ),
        lambda rng, kind: {
            "ids": np.stack([rng.permutation(100)[:64] - 4 for _ in range(8)], axis=1).astype(np.int32),
            "x": values(rng, kind, "f32", (90, 8)),
            "y": values(rng, kind, "f32", (90, 8)),
        },
        lambda ids, x, y: {"y": _scatter(ids, x, y)},
    )
)


def _scatter(ids: Array, x: Array, y: Array) -> Array:
    out = y.copy()
    for (_, c), r in np.ndenumerate(ids):
        if 0 <= r < x.shape[0]:
            out[r, c] = x[r, c]
    return out


for _hint in ("evict_first", "evict_last", "evict_normal"):
    add(
        Form(
            f"load l2={_hint}",
            simple(
                "x: f32[2, 512], out y: f32[2, 512]",
                "a: f32[2, 512] spread(4)\n",
                f"a = load(x[rows(a), cols(a)], l2={_hint})\nstore(y[rows(a), cols(a)], a)",
            ),
            lambda rng, kind: {"x": values(rng, kind, "f32", (2, 512))},
            lambda x: {"y": x},
        )
    )


def _lin(attr: str, warps: int, rows: int, cols: int) -> None:
    """Spilled to memory in `lin` order and read back; `lin` itself is a numbering of all elements."""
    add(
        Form(
            f"load lin {attr} {rows}x{cols}",
            simple(
                f"x: f32[{rows}, {cols}], inout s: f32[{rows * cols}], out y: f32[{rows}, {cols}]",
                f"a: f32[{rows}, {cols}] {attr}\nb: f32[{rows}, {cols}] {attr}\n",
                "a = load(x[rows(a), cols(a)])\nstore(s[lin(a)], a)\n"
                "b = load(s[lin(a)])\nstore(y[rows(a), cols(a)], b)",
                warps=warps,
            ),
            lambda rng, kind: {"x": values(rng, kind, "f32", (rows, cols)), "s": np.zeros(rows * cols, np.float32)},
            lambda x, s: {"y": x, "s": _numbered(x, attr, warps)},
        )
    )


def _numbered(x: Array, attr: str, warps: int) -> Array:
    """Threads' registers in vectors of four, dealt round robin (docs/language.md, index tiles)."""
    rows, cols = x.shape
    if attr != "frag":
        return x.ravel()
    threads = 32 * warps
    per: list[list[float]] = [[] for _ in range(threads)]
    for block in range(0, rows, 16 * warps):
        for thread in range(threads):
            warp, lane = divmod(thread, 32)
            for group in range(0, cols, 8):
                for half in (0, 8):
                    r = block + 16 * warp + half + lane // 4
                    per[thread] += [x[r, group + lane % 4 * 2], x[r, group + lane % 4 * 2 + 1]]
    lines = np.array(per, np.float32).reshape(threads, -1, 4)
    return lines.transpose(1, 0, 2).ravel()


_lin("frag", 4, 64, 16)
_lin("frag", 4, 128, 24)
_lin("frag", 1, 16, 40)
_lin("spread(4)", 2, 2, 256)

add(
    Form(
        "load_scalar and store of scalars",
        simple(
            "x: i32[8], h: bf16[8], b: u8[8], inout y: f32[16], inout n: i32[4]",
            "v: i32[1, 32] spread(1)\n",
            "k = load(x[3])\n"
            "g = load(h[k], where=k >= 0 and k < 8, other=0.5)\n"
            "u = load(h[k + 8], where=k + 8 < 8 and k + 8 >= 0, other=-2.5)\n"
            "store(y[k], f32(g) * 2.0, where=k >= 0 and k < 16)\n"
            "store(y[8], f32(u))\n"
            "store(n[0], k // 3)\nstore(n[1], (k - 9) // 4)\nstore(n[2], (k - 9) % 4)\n"
            "store(n[3], i32(load(b[2])) + 1)",
        ),
        lambda rng, kind: {
            "x": np.array([0, 1, 2, 5, 4, 3, 6, 7], np.int32),
            "h": values(rng, kind, "bf16", (8,)),
            "b": np.array([1, 2, 255, 4, 5, 6, 7, 8], np.uint8),
            "y": np.zeros(16, np.float32),
            "n": np.zeros(4, np.int32),
        },
        lambda x, h, b, y, n: {
            "y": np.array([0.0] * 5 + [float(wide(h)[5]) * 2, 0, 0, -2.5] + [0.0] * 7, np.float32),
            "n": np.array([1, -1, 0, 256], np.int32),
        },
    )
)


# ---- atomics ---------------------------------------------------------------------------------------------------------


def _combined(y: Array, at: Array, x: Array, function: str, dtype: str) -> Array:
    out = y.copy()
    for cell in range(y.size):
        group = np.concatenate([y[cell : cell + 1], x[at == cell]])
        if function == "add":
            out[cell] = wide(group).sum() if dtype == "f32" else group.sum(dtype=np.int64)
        else:
            out[cell] = extreme(group, 0, function == "max")[0]
    return out


def _atomic_bound(y: Array, at: Array, x: Array, function: str, dtype: str) -> Bound:
    row = OPS["atomic"]
    if function != "add" or dtype != "f32":
        return Bound(sign=True, reason=row.notes[0])
    size = [np.abs(wide(np.concatenate([y[c : c + 1], x[at == c]]))) for c in range(y.size)]
    absolute = np.array([row.roundings * len(s) * 2.0**-23 * s.sum() + len(s) * 2.0**-126 for s in size])
    return Bound(absolute=absolute, sign=True, reason=row.reason)


def _atomic(function: str, dtype: str, space: str) -> None:
    at = ((np.arange(64)[:, None] * 3 + np.arange(16)[None]) % 24).ravel()
    where = ((np.arange(64)[:, None] + np.arange(16)[None]) % 5 != 0).ravel()
    index = "(rows(a) * 3 + cols(a)) % 24"
    mask = "(rows(a) + cols(a)) % 5 != 0"
    if space == "global":
        declare, body = "", f"atomic.{function}(y[{index}], a, where={mask})"
    else:
        declare = f"smem s: {dtype}[24]\nb: {dtype}[1, 32] spread(1)\n"
        body = (
            "b = load(y[cols(b)], where=cols(b) < 24)\nstore(s[cols(b)], b, where=cols(b) < 24)\nsync()\n"
            f"atomic.{function}(s[{index}], a, where={mask})\nsync()\n"
            "b = load(s[cols(b)], where=cols(b) < 24)\nstore(y[cols(b)], b, where=cols(b) < 24)"
        )

    def spread(x: Array) -> Array:
        return x.ravel()[where]

    add(
        Form(
            f"atomic {function} {dtype} {space}",
            simple(
                f"x: {dtype}[64, 16], inout y: {dtype}[24]",
                f"a: {dtype}[64, 16] frag\n" + declare,
                f"a = load(x[rows(a), cols(a)])\n{body}",
            ),
            lambda rng, kind: {
                "x": values(rng, kind, dtype, (64, 16))
                if function != "add" or kind == "random"
                else np.zeros((64, 16), numpy_dtype(dtype)),
                "y": values(rng, "random", dtype, (24,)),
            },
            lambda x, y: {"y": _combined(y, at[where], spread(x), function, dtype)},
            lambda x, y: {"y": _atomic_bound(y, at[where], spread(x), function, dtype)},
            ("random",) if function == "add" else ("random", "extreme"),
        )
    )


for _function in ("add", "max", "min"):
    for _dtype in ("f32", "i32"):
        for _space in ("global", "shared"):
            _atomic(_function, _dtype, _space)


def _atomic_vectors(layout: str, rows: int, index: str, at: Array) -> None:
    """Additions in vectors: what a thread holds side by side goes side by side. ``at``: the row of y for each row of x."""
    cols = np.arange(64)[None] + 64 * at[:, None]

    add(
        Form(
            f"atomic add f32 vectors {layout} {index}",
            simple(
                f"x: f32[{rows}, 64], at: i32[{rows}], inout y: f32[4, 64]",
                f"a: f32[{rows}, 64] {layout}",
                f"a = load(x[rows(a), cols(a)])\natomic.add(y[{index}, cols(a)], a)",
            ),
            lambda rng, kind: {
                "x": values(rng, "random", "f32", (rows, 64)),
                "at": at.astype(np.int32),
                "y": values(rng, "random", "f32", (4, 64)),
            },
            lambda x, at, y: {"y": _combined(y.ravel(), cols.ravel(), x.ravel(), "add", "f32").reshape(4, 64)},
            lambda x, at, y: {"y": _matrix_bound(y, cols, x)},
            ("random",),
        )
    )


def _matrix_bound(y: Array, at: Array, x: Array) -> Bound:
    flat = _atomic_bound(y.ravel(), at.ravel(), x.ravel(), "add", "f32")
    return Bound(absolute=np.asarray(flat.absolute).reshape(y.shape), sign=True, reason=flat.reason)


_atomic_vectors("spread(4)", 8, "rows(a) % 4", np.arange(8) % 4)
_atomic_vectors("spread(2)", 4, "rows(a)", np.arange(4))
_atomic_vectors("frag", 64, "rows(a) // 16", np.arange(64) // 16)

add(
    Form(
        "atomic of scalars",
        simple(
            "inout y: i32[4], inout z: f32[4]",
            "v: i32[1, 32] spread(1)\n",
            "atomic.add(y[1], 5)\natomic.max(y[2], 7)\natomic.min(y[3], -7)\natomic.add(z[0], 0.5)",
        ),
        lambda rng, kind: {"y": np.array([1, 2, 3, 4], np.int32), "z": np.array([1, 2, 3, 4], np.float32)},
        lambda y, z: {"y": np.array([1, 7, 7, -7], np.int32), "z": np.array([1.5, 2, 3, 4], np.float32)},
    )
)
