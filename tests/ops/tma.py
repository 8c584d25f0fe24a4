"""Block moves by TMA: tensors of one to five axes, ragged boxes, negative starts, panels, inner points; reductions."""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np

from cake.ir.dtypes import DTYPES
from cake.ir.layout import Layout, RegisterMap
from cake.ir.ops import OPS
from tests.ops.compare import Bound
from tests.ops.form import Form, add
from tests.ops.values import Array, rounded, values, wide


def box(x: Array, starts: tuple[int, ...], sizes: tuple[int, ...]) -> Array:
    """A box of a tensor, zeros outside."""
    out = np.zeros(sizes, x.dtype)
    for index in np.ndindex(*sizes):
        at = tuple(s + i for s, i in zip(starts, index, strict=True))
        if all(0 <= a < n for a, n in zip(at, x.shape, strict=True)):
            out[index] = x[at]
    return out


def put(y: Array, starts: tuple[int, ...], value: Array) -> Array:
    """A box written to a tensor, clipped."""
    out = y.copy()
    for index in np.ndindex(*value.shape):
        at = tuple(s + i for s, i in zip(starts, index, strict=True))
        if all(0 <= a < n for a, n in zip(at, y.shape, strict=True)):
            out[at] = value[index]
    return out


def kernel(params: str, field: str, load: str, math: str, *, head: str = "", declare: str = "", store: str = "") -> str:
    """A ring ``p`` with a field ``a`` filled by one TMA load; ``store``: a store ring's field ``o``."""
    lines = [
        f"kernel k({params}) for sm_90a:",
        *([textwrap.indent(textwrap.dedent(head).strip(), "    ")] if head else []),
        "    tiles once:",
        "        i in 2",
        "    role load: warps 1",
        "    role work: warps 4",
        "    pipeline p[2] load -> work:",
        f"        a: {field}",
        *(["    pipeline q[2] work -> store:", f"        o: {store}"] if store else []),
        "    do load:",
        "        for t in tiles:",
        textwrap.indent(textwrap.dedent(load).strip(), " " * 12),
        "    do work:",
        *([textwrap.indent(textwrap.dedent(declare).strip(), " " * 8)] if declare else []),
        "        for t in tiles:",
        textwrap.indent(textwrap.dedent(math).strip(), " " * 12),
    ]
    return "\n".join(lines) + "\n"


FILL = "with p.fill() as s:\n    tma.load(s.a, x[{subs}])"


def _load(
    name: str, dtype: str, shape: tuple[int, ...], subs: str, rows: int, cols: int, attrs: str, place: Any
) -> None:
    """A box whose kept axes make [rows, cols]; ``place(t)`` gives starts and sizes of the box of tile t."""
    dims = ", ".join(map(str, shape))
    add(
        Form(
            f"tma.load {name}",
            kernel(
                f"x: {dtype}[{dims}], out y: {dtype}[2, {rows}, {cols}]",
                f"{dtype}[{rows}, {cols}] {attrs}",
                FILL.format(subs=subs),
                "s = p.wait()\nv = load(s.a[rows(v), cols(v)])\np.release()\nstore(y[t.i, rows(v), cols(v)], v)",
                declare=f"v: {dtype}[{rows}, {cols}] frag",
            ),
            lambda rng, kind: {"x": values(rng, kind, dtype, shape)},
            lambda x: {"y": np.stack([box(x, *place(t)).reshape(rows, cols) for t in range(2)])},
            classes=("random",) if dtype not in ("f32", "bf16") else ("random", "nan"),
        )
    )


_load("2d", "bf16", (128, 64), "64 * t.i : 64 * t.i + 64, :", 64, 64, "swizzle(128)", lambda t: ((64 * t, 0), (64, 64)))
_load(
    "2d ragged", "bf16", (100, 72), "64 * t.i : 64 * t.i + 64, 32 : 96", 64, 64, "swizzle(128)",
    lambda t: ((64 * t, 32), (64, 64)),
)  # fmt: skip
_load(
    "2d before the start", "f32", (100, 40), "50 * t.i - 7 : 50 * t.i + 57, -8 : 24", 64, 32, "swizzle(128)",
    lambda t: ((50 * t - 7, -8), (64, 32)),
)  # fmt: skip
_load(
    "2d panels", "bf16", (128, 256), "64 * t.i : 64 * t.i + 64, 0 : 256", 64, 256, "swizzle(128)",
    lambda t: ((64 * t, 0), (64, 256)),
)  # fmt: skip
_load(
    "2d panels of 32 bytes, ragged", "bf16", (70, 40), "64 * t.i : 64 * t.i + 64, 8 : 56", 64, 48, "swizzle(32)",
    lambda t: ((64 * t, 8), (64, 48)),
)  # fmt: skip
_load("2d plain", "f16", (128, 40), "64 * t.i : 64 * t.i + 64, :", 64, 40, "", lambda t: ((64 * t, 0), (64, 40)))
_load(
    "2d of 512 rows in boxes", "bf16", (600, 16), "44 * t.i : 44 * t.i + 512, :", 512, 16, "swizzle(32)",
    lambda t: ((44 * t, 0), (512, 16)),
)  # fmt: skip
_load(
    "2d i32", "i32", (128, 32), "64 * t.i : 64 * t.i + 64, :", 64, 32, "swizzle(128)", lambda t: ((64 * t, 0), (64, 32))
)
_load("2d u8", "u8", (128, 64), "64 * t.i : 64 * t.i + 64, :", 64, 64, "swizzle(64)", lambda t: ((64 * t, 0), (64, 64)))
_load(
    "2d e4m3",
    "e4m3",
    (128, 64),
    "64 * t.i : 64 * t.i + 64, :",
    64,
    64,
    "swizzle(64)",
    lambda t: ((64 * t, 0), (64, 64)),
)
_load(
    "3d point outside", "bf16", (3, 100, 64), "t.i + 1, 50 : 114, :", 64, 64, "swizzle(128)",
    lambda t: ((t + 1, 50, 0), (1, 64, 64)),
)  # fmt: skip
_load(
    "3d inner point", "bf16", (70, 3, 64), "64 * t.i - 2 : 64 * t.i + 62, t.i + 1, :", 64, 64, "swizzle(128)",
    lambda t: ((64 * t - 2, t + 1, 0), (64, 1, 64)),
)  # fmt: skip
_load(
    "4d", "bf16", (2, 3, 80, 64), "t.i, 2, 30 : 94, :", 64, 64, "swizzle(128)",
    lambda t: ((t, 2, 30, 0), (1, 1, 64, 64)),
)  # fmt: skip
_load(
    "4d points among slices, past the end", "f32", (2, 40, 3, 16), "t.i + 1, 0 : 64, 2, :", 64, 16, "swizzle(64)",
    lambda t: ((t + 1, 0, 2, 0), (1, 64, 1, 16)),
)  # fmt: skip
_load(
    "5d", "bf16", (2, 2, 3, 64, 32), "t.i, 1, 2 - t.i, :, :", 64, 32, "swizzle(64)",
    lambda t: ((t, 1, 2 - t, 0, 0), (1, 1, 1, 64, 32)),
)  # fmt: skip

add(
    Form(
        "tma.load 1d",
        kernel(
            "x: f32[200], out y: f32[2, 128]",
            "f32[128]",
            "with p.fill() as s:\n    tma.load(s.a, x[100 * t.i - 4 : 100 * t.i + 124], l2=evict_last)",
            "s = p.wait()\nv = load(s.a[cols(v)])\np.release()\nstore(y[t.i, cols(v)], v)",
            declare="v: f32[1, 128] spread(1)",
        ),
        lambda rng, kind: {"x": values(rng, kind, "f32", (200,))},
        lambda x: {"y": np.stack([box(x, (100 * t - 4,), (128,)) for t in range(2)])},
        classes=("random", "extreme", "nan"),
    )
)
add(
    Form(
        "tma.load 3d block of three axes",
        kernel(
            "x: f32[4, 8, 20], out y: f32[2, 2, 8, 32]",
            "f32[2, 8, 32] swizzle(128)",
            FILL.format(subs="2 * t.i + 1 : 2 * t.i + 3, :, 0 : 32"),
            "s = p.wait()\nfor u in unroll(2):\n    v = load(s.a[u, rows(v), cols(v)])\n"
            "    store(y[t.i, u, rows(v), cols(v)], v)\np.release()",
            declare="v: f32[8, 32] spread(2)",
        ),
        lambda rng, kind: {"x": values(rng, kind, "f32", (4, 8, 20))},
        lambda x: {"y": np.stack([box(x, (2 * t + 1, 0, 0), (2, 8, 32)) for t in range(2)])},
    )
)
add(
    Form(
        "tma.load 3d into a line",
        kernel(
            "x: f32[4, 8, 20], out y: f32[2, 256]",
            "f32[256]",
            FILL.format(subs="2 * t.i - 1 : 2 * t.i + 1, 2 : 10, 4 : 20"),
            "s = p.wait()\nv = load(s.a[cols(v)])\np.release()\nstore(y[t.i, cols(v)], v)",
            declare="v: f32[1, 256] spread(2)",
        ),
        lambda rng, kind: {"x": values(rng, kind, "f32", (4, 8, 20))},
        lambda x: {"y": np.stack([box(x, (2 * t - 1, 2, 4), (2, 8, 16)).reshape(256) for t in range(2)])},
    )
)
add(
    Form(
        "tma.prefetch",
        kernel(
            "x: bf16[M, 64], out y: bf16[2, 64, 64]",
            "bf16[64, 64] swizzle(128)",
            "tma.prefetch(x[64 * t.i : 64 * t.i + 64, 0 : 64])\n"
            + FILL.format(subs="64 * t.i : 64 * t.i + 64, 0 : 64"),
            "s = p.wait()\nv = ldmatrix(s.a)\np.release()\nstore(y[t.i, rows(v), cols(v)], v)",
            declare="v: bf16[64, 64] frag",
        ),
        lambda rng, kind: {"x": values(rng, kind, "bf16", (77, 64))},
        lambda x: {"y": np.stack([box(x, (64 * t, 0), (64, 64)) for t in range(2)])},
    )
)


# ---- stores ----------------------------------------------------------------------------------------------------------


def _store(
    name: str, op: str, dtype: str, shape: tuple[int, ...], subs: str, cols: int, attrs: str, place: Any
) -> None:
    """x [128, cols] by elements into a store ring, from there to (or onto) a box of y."""
    dims = ", ".join(map(str, shape))
    function = op.partition(" ")[2]
    call = f"tma.reduce(y[{subs}], s.o, {function})" if function else f"tma.store(y[{subs}], s.o)"
    source = kernel(
        f"x: {dtype}[128, {cols}], inout y: {dtype}[{dims}]",
        "f32[16]",
        "with p.fill() as s:\n    pass",
        f"v = load(x[64 * t.i + rows(v), cols(v)])\nwith q.fill() as s:\n    store(s.o[rows(v), cols(v)], v)\n{call}",
        declare=f"v: {dtype}[64, {cols}] frag",
        store=f"{dtype}[64, {cols}] {attrs}",
    )
    lines = source.splitlines()
    drop = {"    role load: warps 1", "    pipeline p[2] load -> work:", "        a: f32[16]"}
    at = lines.index("    do load:")
    end = lines.index("    do work:")
    source = "\n".join(line for n, line in enumerate(lines) if line not in drop and not at <= n < end) + "\n"

    def reference(x: Array, y: Array) -> dict[str, Array]:
        out = y
        for t in range(2):
            starts, sizes = place(t)
            part = x[64 * t : 64 * t + 64].reshape(sizes)
            old = box(out, starts, sizes)
            out = put(out, starts, _combine(old, part, function, dtype))
        return {"y": out}

    row = OPS["tma.reduce"]
    bounds = {"add": Bound(absolute=2.0**-126, sign=True, reason=row.reason), "": Bound()}
    add(
        Form(
            f"tma.{op} {name}",
            source,
            lambda rng, kind: {"x": values(rng, kind, dtype, (128, cols)), "y": values(rng, kind, dtype, shape)},
            reference,
            lambda x, y: {"y": bounds.get(function, Bound(sign=True, reason=row.reason))},
            ("random", "nan") if not function else ("random",),
        )
    )


def _combine(old: Array, new: Array, function: str, dtype: str) -> Array:
    if not function:
        return new
    if function in ("min", "max"):
        return (np.minimum if function == "min" else np.maximum)(old, new)
    if dtype == "i32":
        return old + new
    return rounded(wide(old) + wide(new), dtype)


def _rows(cols: int) -> Any:
    return lambda t: ((70 * t, 0), (64, cols))


for _dtype, _cols, _attrs in (
    ("bf16", 64, "swizzle(128)"),
    ("f32", 64, "swizzle(128)"),
    ("f16", 24, ""),
    ("i32", 16, "swizzle(64)"),
):
    _store(
        f"{_dtype} 2d",
        "store",
        _dtype,
        (120, _cols),
        f"70 * t.i : 70 * t.i + 64, 0 : {_cols}",
        _cols,
        _attrs,
        _rows(_cols),
    )
_store(
    "bf16 2d, columns clipped", "store", "bf16", (128, 104), "64 * t.i : 64 * t.i + 64, 48 : 176", 128, "swizzle(128)",
    lambda t: ((64 * t, 48), (64, 128)),
)  # fmt: skip
_store(
    "bf16 3d inner point", "store", "bf16", (100, 2, 64), "40 * t.i : 40 * t.i + 64, t.i, :", 64, "swizzle(128)",
    lambda t: ((40 * t, t, 0), (64, 1, 64)),
)  # fmt: skip
_store(
    "f32 4d", "store", "f32", (2, 2, 60, 32), "1 - t.i, t.i, 0 : 64, :", 32, "swizzle(128)",
    lambda t: ((1 - t, t, 0, 0), (1, 1, 64, 32)),
)  # fmt: skip
for _function, _types in (("add", ("f32", "bf16", "f16", "i32")), ("min", ("bf16", "i32")), ("max", ("f16", "i32"))):
    for _dtype in _types:
        _cols = 64 if DTYPES[_dtype].bytes == 2 else 32
        _store(
            f"{_dtype} 2d", f"reduce {_function}", _dtype, (120, _cols), f"70 * t.i : 70 * t.i + 64, 0 : {_cols}",
            _cols, "swizzle(128)", _rows(_cols),
        )  # fmt: skip

add(
    Form(
        "tma.reduce add from a line",
        """kernel k(x: f32[64, 64], inout y: f32[3, 20, 256]) for sm_90a:
    tiles once:
        i in 2
    role work: warps 4
    pipeline q[2] work -> store:
        o: f32[4096]
    do work:
        v: f32[64, 64] frag
        for t in tiles:
            v = load(x[rows(v), cols(v)])
            with q.fill() as s:
                store(s.o[lin(v)], v)
            tma.reduce(y[t.i + 1, 8 * t.i : 8 * t.i + 16, :], s.o, add)
""",
        lambda rng, kind: {"x": values(rng, kind, "f32", (64, 64)), "y": values(rng, kind, "f32", (3, 20, 256))},
        lambda x, y: {"y": _lines(x, y)},
        lambda x, y: {"y": Bound(absolute=2.0**-126, sign=True, reason=OPS["tma.reduce"].reason)},
    )
)


def _lines(x: Array, y: Array) -> Array:
    """``x`` as its threads park it, added to 16 lines of ``y`` for each tile; those past the end are clipped."""
    tile = RegisterMap(64, 64, Layout(kind="frag"), 128)
    line = np.zeros(4096, x.dtype)
    for thread in range(128):
        for register in range(tile.count):
            line[tile.lin(thread, register)] = x[tile.element(thread, register)]
    for t in range(2):
        starts = (t + 1, 8 * t, 0)
        y = put(y, starts, _combine(box(y, starts, (1, 16, 256)), line.reshape(1, 16, 256), "add", "f32"))
    return y
