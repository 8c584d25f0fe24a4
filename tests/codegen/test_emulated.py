"""The generated code, run on the CPU: addresses, registers, predicates and shuffles against NumPy."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

from cake.ir import expanded as x
from cake.ir.expr import Const, Expr
from cake.ir.layout import Layout
from tests.codegen.build import (
    COL,
    FRAG,
    LIN,
    PERWARP,
    ROW,
    ROWWISE,
    UNIFORM,
    ap,
    assign,
    box,
    buffer,
    cast,
    elems,
    kernel,
    let,
    load,
    reduce,
    reg,
    spread,
    store,
    sym,
    tensor,
    tile,
)
from tests.codegen.emulator import run


def bits(values: np.ndarray, dtype: str) -> np.ndarray:
    """Values as they lie in memory."""
    if dtype == "f32":
        return values.astype(np.float32)
    if dtype == "i32":
        return values.astype(np.int32)
    return values.astype({"bf16": ml_dtypes.bfloat16, "f16": np.float16}[dtype]).view(np.uint16)


def coordinates(rows: int, cols: int) -> np.ndarray:
    """A different value, exact in bf16 where the tile is small enough, for each element."""
    return (np.arange(rows * cols).reshape(rows, cols) % 251).astype(np.float32)


def number(cols: int) -> Expr:
    """The same, computed by a tile expression."""
    return cast(ap("%", ap("+", ap("*", ROW, cols), COL), 251), "f32")


def place(b: x.Buffer, row: int, col: int) -> int:
    """Byte offset of an element in a tile: the rules of docs/language.md and PTX ISA 5.5, written the slow way."""
    size = b.slot_bytes // (int(np.prod(b.shape[:-1])) * (b.shape[-1] + b.pad))
    if not b.swizzle:
        return (row * (b.shape[-1] + b.pad) + col) * size
    at, rows = col * size, int(np.prod(b.shape[:-1]))
    chunk = at % b.swizzle // 16 ^ {128: row % 8, 64: row // 2 % 4, 32: row // 4 % 2}[b.swizzle]
    return at // b.swizzle * rows * b.swizzle + row * b.swizzle + chunk * 16 + at % 16


def fill(b: x.Buffer, values: np.ndarray, dtype: str, shared_bytes: int) -> np.ndarray:
    """Shared memory with a tile in place."""
    out = np.full(shared_bytes, 0xEE, np.uint8)
    raw = bits(values, dtype)
    for r, c in itertools.product(range(values.shape[0]), range(values.shape[1])):
        at = b.offset + place(b, r, c)
        out[at : at + raw.itemsize] = np.frombuffer(raw[r, c].tobytes(), np.uint8)
    return out


LAYOUTS: list[tuple[Layout, int, int, int]] = [
    (FRAG, 4, 64, 64),
    (FRAG, 4, 128, 24),
    (FRAG, 1, 16, 16),
    (FRAG, 1, 32, 40),
    (ROWWISE, 4, 128, 16),
    (spread(8), 4, 1, 2048),
    (spread(4), 1, 1, 384),
    (spread(1), 2, 1, 96),
    (spread(4), 2, 16, 64),
    (spread(2), 1, 6, 128),
    (spread(2), 4, 8, 24),
]


@pytest.mark.parametrize("dtype", ["f32", "bf16", "i32"])
@pytest.mark.parametrize(("layout", "warps", "rows", "cols"), LAYOUTS)
def test_store_to_global(layout: Layout, warps: int, rows: int, cols: int, dtype: str) -> None:
    t = tile(dtype, rows, cols, layout=layout)
    value = number(cols) if dtype == "f32" else cast(number(cols), dtype)
    body = [assign(reg("v", dtype), value), store(x.Ref(base="y", subs=elems(ROW, COL)), reg("v", dtype), t)]
    k = kernel("k", body, tensors=(tensor("y", dtype, rows, cols, out=True),), tiles={"v": t}, warps=warps)
    out = np.zeros(rows * cols, bits(np.zeros(1), dtype).dtype)
    run(k, {"y": out})
    assert (out.reshape(rows, cols) == bits(coordinates(rows, cols), dtype)).all()


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize(("layout", "warps", "rows", "cols"), LAYOUTS)
def test_ragged_load_and_store(layout: Layout, warps: int, rows: int, cols: int, dtype: str) -> None:
    t = tile(dtype, rows, cols, layout=layout)
    inside = ap("and", ap("<", ROW, sym("M")), ap("<", COL, sym("N")))
    other = Const(value=-7.0, dtype=dtype)  # type: ignore[arg-type]
    body = [
        load(reg("v", dtype), x.Ref(base="x", subs=elems(ROW, COL)), where=inside, other=other),
        store(x.Ref(base="y", subs=elems(ROW, COL)), reg("v", dtype), t, where=inside),
        store(x.Ref(base="z", subs=elems(ROW, COL)), reg("v", dtype), t),
    ]
    m, n = max(1, rows - 3), (cols - 5) // 2 * 2
    shapes = (
        tensor("x", dtype, "M", "N"),
        tensor("y", dtype, "M", "N", out=True),
        tensor("z", dtype, rows, cols, out=True),
    )
    k = kernel("k", body, tensors=shapes, tiles={"v": t}, warps=warps)
    source = bits(coordinates(m, n), dtype)
    y, z = np.zeros(m * n, source.dtype), np.zeros(rows * cols, source.dtype)
    run(k, {"x": source.ravel(), "y": y, "z": z}, M=m, N=n)
    assert (y.reshape(m, n) == source).all()
    want = np.full((rows, cols), bits(np.array([-7.0]), dtype)[0])
    want[:m, :n] = source
    assert (z.reshape(rows, cols) == want).all()


@pytest.mark.parametrize(("layout", "warps", "rows", "cols"), LAYOUTS)
def test_lin_round_trip(layout: Layout, warps: int, rows: int, cols: int) -> None:
    t = tile("f32", rows, cols, layout=layout)
    body = [
        assign(reg("v"), number(cols)),
        store(x.Ref(base="s", subs=elems(LIN)), reg("v"), t),
        load(reg("u"), x.Ref(base="s", subs=elems(LIN))),
        store(x.Ref(base="y", subs=elems(ROW, COL)), reg("u"), t),
    ]
    # Not declared as an input: written by the launch.
    shapes = (tensor("s", "f32", rows * cols, out=True), tensor("y", "f32", rows, cols, out=True))
    k = kernel("k", body, tensors=shapes, tiles={"v": t, "u": t}, warps=warps)
    s, y = np.zeros(rows * cols, np.float32), np.zeros(rows * cols, np.float32)
    run(k, {"s": s, "y": y})
    assert (y.reshape(rows, cols) == coordinates(rows, cols)).all()


SHARED = [(64, 64, 128), (64, 256, 128), (32, 128, 64), (64, 16, 32), (128, 96, 64), (64, 64, 0), (16, 72, 0)]


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize(("rows", "cols", "swizzle"), SHARED)
@pytest.mark.parametrize("layout", [FRAG, spread(4)])
def test_shared_elements(rows: int, cols: int, swizzle: int, layout: Layout, dtype: str) -> None:
    warps = 4 if rows % 64 == 0 else 1
    if layout.kind == "spread" and cols % 4:
        pytest.skip("no such tile")
    t = tile(dtype, rows, cols, layout=layout)
    b = buffer("s", dtype, rows, cols, offset=2048, swizzle=swizzle, pad=0 if swizzle else 8)
    value = number(cols) if dtype == "f32" else cast(number(cols), dtype)
    body = [
        assign(reg("v", dtype), value),
        store(x.Ref(base="s", subs=elems(ROW, COL)), reg("v", dtype), t),
        load(reg("u", dtype), x.Ref(base="s", subs=elems(ROW, COL))),
        store(x.Ref(base="y", subs=elems(ROW, COL)), reg("u", dtype), t),
    ]
    k = kernel(
        "k",
        body,
        tensors=(tensor("y", dtype, rows, cols, out=True),),
        tiles={"v": t, "u": t},
        warps=warps,
        buffers=(b,),
    )
    y = np.zeros(rows * cols, bits(np.zeros(1), dtype).dtype)
    machine = run(k, {"y": y})
    want = fill(b, coordinates(rows, cols), dtype, k.shared_bytes)
    assert (machine.shared[machine.touched] == want[machine.touched]).all()
    assert machine.touched.sum() == rows * cols * y.itemsize
    assert (y.reshape(rows, cols) == bits(coordinates(rows, cols), dtype)).all()


MATRICES = [
    (4, 64, 64, 128),
    (4, 64, 128, 128),
    (4, 128, 64, 128),
    (1, 16, 128, 128),
    (1, 32, 32, 64),
    (1, 16, 24, 0),
    (1, 16, 16, 32),
    (4, 64, 32, 64),
]


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("warps", "rows", "cols", "swizzle"), MATRICES)
@pytest.mark.parametrize("op", ["ldmatrix", "stmatrix"])
def test_matrices(op: str, warps: int, rows: int, cols: int, swizzle: int, transposed: bool) -> None:
    stored = (cols, rows) if transposed else (rows, cols)
    if swizzle and stored[1] * 2 % swizzle:
        pytest.skip("rows are whole panels")
    t = tile("bf16", rows, cols)
    b = buffer("s", "bf16", *stored, offset=1024, swizzle=swizzle)
    view = x.Ref(base="s", subs=box((0, stored[0]), (0, stored[1])), transposed=transposed)
    values = coordinates(rows, cols)
    tensors = (tensor("y", "bf16", rows, cols, out=True),)
    y = np.zeros(rows * cols, np.uint16)
    if op == "ldmatrix":
        body = [
            x.Op(op="ldmatrix", operands={"dst": reg("v", "bf16"), "src": view}),
            store(x.Ref(base="y", subs=elems(ROW, COL)), reg("v", "bf16"), t),
        ]
    else:
        body = [x.Op(op="stmatrix", operands={"dst": view, "value": cast(number(cols), "bf16")}, type=t)]
    k = kernel("k", body, tensors=tensors, tiles={"v": t}, warps=warps, buffers=(b,))
    memory = fill(b, values.T if transposed else values, "bf16", k.shared_bytes)
    machine = run(k, {"y": y}, shared=memory if op == "ldmatrix" else None)
    if op == "ldmatrix":
        assert (y.reshape(rows, cols) == bits(values, "bf16")).all()
    else:
        assert (machine.shared[1024:] == memory[1024:]).all()


@pytest.mark.parametrize("transposed", [False, True])
def test_matrix_inside_a_tile(transposed: bool) -> None:
    """A slice at run-time rows and a panel picked by the instance."""
    t = tile("bf16", 64, 64)
    b = buffer("s", "bf16", 64, 128, swizzle=128)
    view = x.Ref(base="s", subs=box((0, 64), (ap("*", 64, sym("w")), 64)), transposed=transposed)
    body = [
        x.Op(op="ldmatrix", operands={"dst": reg("v", "bf16"), "src": view}),
        store(x.Ref(base="y", subs=elems(sym("w"), ROW, COL)), reg("v", "bf16"), t),
    ]
    k = kernel(
        "k", body, tensors=(tensor("y", "bf16", 2, 64, 64, out=True),), tiles={"v": t}, buffers=(b,), instances=2
    )
    values, y = coordinates(64, 128), np.zeros(2 * 64 * 64, np.uint16)
    run(k, {"y": y}, shared=fill(b, values, "bf16", k.shared_bytes))
    parts = values.reshape(64, 2, 64).transpose(1, 2, 0) if transposed else values.reshape(64, 2, 64).transpose(1, 0, 2)
    assert (y.reshape(2, 64, 64) == bits(parts, "bf16")).all()


@pytest.mark.parametrize("function", ["sum", "max", "min"])
@pytest.mark.parametrize(
    ("layout", "warps", "rows", "cols", "axis", "result"),
    [
        (FRAG, 4, 64, 64, 1, (64, 1)),
        (FRAG, 4, 128, 24, 1, (128, 1)),
        (FRAG, 1, 32, 40, 1, (32, 1)),
        (FRAG, 1, 32, 40, 0, (1, 40)),
        (FRAG, 1, 16, 8, 1, (16, 1)),
        (FRAG, 1, 16, 8, 0, (1, 8)),
        (ROWWISE, 4, 128, 16, 1, (128, 1)),
        (spread(8), 1, 1, 512, 1, (1, 1)),
        (spread(2), 1, 1, 96, 1, (1, 1)),
    ],
)
def test_reductions(
    layout: Layout, warps: int, rows: int, cols: int, axis: int, result: tuple[int, int], function: str
) -> None:
    t, r = tile("f32", rows, cols, layout=layout), tile("f32", *result, layout=layout)
    value = ap("*", cast(ap("%", ap("+", ap("*", ROW, 7), ap("*", COL, 5)), 31), "f32"), -1.0)
    body = [
        assign(reg("v"), value),
        reduce(reg("r"), reg("v"), t, function, axis),
        store(x.Ref(base="y", subs=elems(ROW, COL)), reg("r"), r),
    ]
    k = kernel("k", body, tensors=(tensor("y", "f32", *result, out=True),), tiles={"v": t, "r": r}, warps=warps)
    y = np.full(result[0] * result[1], np.nan, np.float32)
    run(k, {"y": y})
    values = -((np.arange(rows)[:, None] * 7 + np.arange(cols)[None] * 5) % 31).astype(np.float32)
    assert (y.reshape(result) == getattr(values, function)(axis=axis, keepdims=True)).all()


def test_partial_sums_and_cross_warp() -> None:
    """sum(to=4), then over the quad; a maximum over the warps of an instance through scratch."""
    t, part, one = tile("f32", 64, 32), tile("f32", 64, 4), tile("f32", 64, 1)
    row, per, every, total = (
        tile("f32", 1, 1024, layout=spread(8)),
        tile("f32", 1, 4, layout=PERWARP),
        tile("f32", 1, 4, layout=UNIFORM),
        tile("f32", 1, 1, layout=spread(1)),
    )
    body = [
        assign(reg("v"), number(32)),
        reduce(reg("part"), reg("v"), t, scope="thread"),
        reduce(reg("r"), reg("part"), part),
        store(x.Ref(base="y", subs=elems(ROW)), reg("r"), one),
        load(reg("u"), x.Ref(base="x", subs=elems(COL))),
        reduce(reg("per"), reg("u"), row, "max"),
        store(x.Ref(base="s", subs=elems(1, COL)), reg("per"), per),
        load(reg("every"), x.Ref(base="s", subs=elems(1, COL))),
        reduce(reg("total"), reg("every"), every, "max", scope="thread"),
        store(x.Ref(base="z", subs=elems(0)), reg("total"), total),
    ]
    k = kernel(
        "k",
        body,
        tensors=(tensor("y", "f32", 64, out=True), tensor("x", "f32", 1024), tensor("z", "f32", 1, out=True)),
        tiles={"v": t, "part": part, "r": one, "u": row, "per": per, "every": every, "total": total},
        buffers=(buffer("s", "f32", 2, 4),),
    )
    values = np.random.default_rng(0).standard_normal(1024).astype(np.float32)
    y, z = np.zeros(64, np.float32), np.zeros(1, np.float32)
    run(k, {"y": y, "x": values, "z": z})
    assert (y == coordinates(64, 32).sum(1)).all()
    assert z[0] == values.max()


@pytest.mark.parametrize("function", ["argmax", "argmin"])
@pytest.mark.parametrize(
    ("layout", "warps", "rows", "cols"), [(FRAG, 4, 64, 64), (FRAG, 1, 16, 24), (spread(1), 1, 1, 80)]
)
def test_arg_extremum(layout: Layout, warps: int, rows: int, cols: int, function: str) -> None:
    """Ties go to the lowest column."""
    t, r = tile("f32", rows, cols, layout=layout), tile("f32", rows, 1, layout=layout)
    ids = tile("i32", rows, 1, layout=layout)
    body = [
        load(reg("v"), x.Ref(base="x", subs=elems(ROW, COL))),
        x.Op(
            op="argreduce",
            operands={"dst": reg("r"), "index": reg("at", "i32"), "value": reg("v")},
            attrs={"function": function, "scope": "warp"},
            type=t,
        ),
        store(x.Ref(base="y", subs=elems(ROW)), reg("r"), r),
        store(x.Ref(base="z", subs=elems(ROW)), reg("at", "i32"), ids),
    ]
    shapes = (tensor("x", "f32", rows, cols), tensor("y", "f32", rows, out=True), tensor("z", "i32", rows, out=True))
    k = kernel("k", body, tensors=shapes, tiles={"v": t, "r": r, "at": ids}, warps=warps)
    values = np.random.default_rng(1).integers(-9, 9, (rows, cols)).astype(np.float32)
    y, z = np.zeros(rows, np.float32), np.zeros(rows, np.int32)
    run(k, {"x": values.ravel(), "y": y, "z": z})
    assert (z == getattr(values, function)(axis=1)).all()
    assert (y == (values.max(1) if function == "argmax" else values.min(1))).all()


def test_slices_and_broadcasts() -> None:
    """Column slices, row and column vectors against a tile, a shifted copy inside a tile."""
    t, half = tile("f32", 128, 64), tile("f32", 128, 32)
    body = [
        assign(reg("v"), number(64)),
        assign(reg("row"), cast(ROW, "f32")),
        assign(reg("col"), cast(COL, "f32")),
        assign(reg("h"), ap("+", reg("v", cols=(32, 64)), ap("*", reg("row"), 1000.0))),
        assign(reg("v", cols=(0, 32)), ap("-", reg("v", cols=(32, 64)), reg("v", cols=(0, 32)))),
        assign(reg("v"), ap("+", reg("v"), reg("col"))),
        store(x.Ref(base="y", subs=elems(ROW, COL)), reg("v"), t),
        store(x.Ref(base="z", subs=elems(ROW, COL)), reg("h"), half),
    ]
    k = kernel(
        "k",
        body,
        tensors=(tensor("y", "f32", 128, 64, out=True), tensor("z", "f32", 128, 32, out=True)),
        tiles={"v": t, "h": half, "row": tile("f32", 128, 1), "col": tile("f32", 1, 64)},
    )
    y, z = np.zeros(128 * 64, np.float32), np.zeros(128 * 32, np.float32)
    run(k, {"y": y, "z": z})
    v = coordinates(128, 64)
    h = v[:, 32:] + np.arange(128)[:, None] * 1000
    v[:, :32] = v[:, 32:] - v[:, :32]
    assert (y.reshape(128, 64) == v + np.arange(64)).all()
    assert (z.reshape(128, 32) == h).all()


def test_rounds_of_a_spread_tile() -> None:
    """Columns of a spread tile in rounds of all its threads: read, written, and stored where they belong."""
    t, part = tile("f32", 1, 1024, layout=spread(4)), tile("f32", 1, 512, layout=spread(4))
    body = [
        assign(reg("v"), cast(COL, "f32")),
        assign(reg("h"), ap("*", reg("v", cols=(512, 1024)), 2.0)),
        assign(reg("v", cols=(0, 512)), ap("-", reg("h"), reg("v", cols=(0, 512)))),
        store(x.Ref(base="y", subs=elems(ROW, COL)), reg("v"), t),
        store(x.Ref(base="z", subs=elems(ROW, ap("+", COL, 512))), reg("h"), part),
    ]
    tensors = (tensor("y", "f32", 1, 1024, out=True), tensor("z", "f32", 1, 1024, out=True))
    k = kernel("k", body, tensors=tensors, tiles={"v": t, "h": part})
    y, z = np.zeros(1024, np.float32), np.zeros(1024, np.float32)
    run(k, {"y": y, "z": z})
    low, high = np.arange(512), np.arange(512, 1024)
    assert (y == np.concatenate([2 * high - low, high])).all()
    assert (z == np.concatenate([0 * low, 2 * high])).all()


@pytest.mark.parametrize("symbol", ["<", ">=", "<=", ">", "=="])
@pytest.mark.parametrize("vector", [1, 4, 8])
def test_comparison_with_a_multiple(symbol: str, vector: int) -> None:
    """A mask over a dim that the host holds to multiples of 8 is the same mask, however few comparisons are made."""
    t = tile("f32", 1, 1024, layout=spread(vector))
    guard = x.Condition(text="N % 8 == 0", expr=ap("==", ap("%", sym("N"), 8), 0))
    body = [
        assign(reg("v"), ap("where", ap(symbol, COL, sym("N")), 1.0, 2.0)),
        store(x.Ref(base="y", subs=elems(ROW, COL)), reg("v"), t),
    ]
    tensors = (tensor("x", "f32", "N"), tensor("y", "f32", 1, 1024, out=True))
    k = kernel("k", body, tensors=tensors, tiles={"v": t}, guards=(guard,))
    for n in (8, 504, 1024):
        y = np.zeros(1024, np.float32)
        run(k, {"x": np.zeros(n, np.float32), "y": y}, N=n)
        col = np.arange(1024)
        truth = {"<": col < n, ">=": col >= n, "<=": col <= n, ">": col > n, "==": col == n}[symbol]
        assert (y == np.where(truth, 1.0, 2.0)).all()


def test_mma() -> None:
    """d += a @ b.T for a 32 x 24 result over 48."""
    a_t, b_t, d_t = tile("bf16", 32, 48), tile("bf16", 32, 48), tile("f32", 32, 24)
    body = [
        load(reg("a", "bf16"), x.Ref(base="a", subs=elems(ROW, COL))),
        load(reg("b", "bf16"), x.Ref(base="b", subs=elems(ROW, COL))),
        assign(reg("d"), 1.0),
        x.Op(op="mma", operands={"d": reg("d"), "a": reg("a", "bf16"), "b": reg("b", "bf16")}),
        store(x.Ref(base="y", subs=elems(ROW, COL)), reg("d"), d_t),
    ]
    tensors = (tensor("a", "bf16", 32, 48), tensor("b", "bf16", 32, 48), tensor("y", "f32", 32, 24, out=True))
    k = kernel("k", body, tensors=tensors, tiles={"a": a_t, "b": b_t, "d": d_t}, warps=1)
    rng = np.random.default_rng(2)
    a, b = rng.integers(-4, 5, (32, 48)).astype(np.float32), rng.integers(-4, 5, (32, 48)).astype(np.float32)
    y = np.zeros(32 * 24, np.float32)
    run(k, {"a": bits(a, "bf16").ravel(), "b": bits(b, "bf16").ravel(), "y": y})
    assert (y.reshape(32, 24) == 1 + a @ b[:24].T).all()


@pytest.mark.parametrize(
    ("rows", "cols", "warps", "swizzle", "dtype"),
    [(16, 32, 1, 64, "bf16"), (32, 64, 2, 128, "bf16"), (24, 24, 1, 0, "f32")],
)
def test_cp_async(rows: int, cols: int, warps: int, swizzle: int, dtype: str) -> None:
    """A box that hangs over every edge reads zeros outside."""
    b = buffer("s", dtype, rows, cols, offset=1024, swizzle=swizzle)
    body = [
        let("r0", -2),
        x.Op(
            op="cp_async",
            operands={
                "dst": x.Ref(base="s", subs=box((0, rows), (0, cols))),
                "src": x.Ref(base="x", subs=box((sym("r0"), rows), (8, cols))),
            },
            completion=x.ByGroup(queue="cp_async"),
        ),
    ]
    k = kernel("k", body, tensors=(tensor("x", dtype, "M", "N"),), buffers=(b,), warps=warps)
    m, n = rows - 5, cols
    source = coordinates(m, n)
    machine = run(k, {"x": bits(source, dtype).ravel()}, M=m, N=n)
    want = np.zeros((rows, cols), np.float32)
    want[2 : 2 + m, : n - 8] = source[:, 8:]
    assert (machine.shared[1024:] == fill(b, want, dtype, k.shared_bytes)[1024:]).all()


@pytest.mark.parametrize("transposed", [False, True])
def test_transposed_store(transposed: bool) -> None:
    """Rows of the tile along the last axis of the tensor: accesses by element."""
    t = tile("bf16", 64, 32)
    subs = elems(COL, ROW) if transposed else elems(ROW, COL)
    shape = (32, 64) if transposed else (64, 32)
    body = [store(x.Ref(base="y", subs=subs), cast(number(32), "bf16"), t)]
    k = kernel("k", body, tensors=(tensor("y", "bf16", *shape, out=True),))
    y = np.zeros(64 * 32, np.uint16)
    run(k, {"y": y})
    want = coordinates(64, 32).T if transposed else coordinates(64, 32)
    assert (y.reshape(shape) == bits(want, "bf16")).all()


@pytest.mark.parametrize(
    ("rows", "cols", "depth", "a_form", "a_swizzle", "b_t", "b_swizzle"),
    [
        (64, 64, 64, "k", 128, True, 128),
        (128, 256, 128, "k", 128, True, 128),  # two blocks of 64 rows, two panels of k
        (64, 24, 128, "k", 64, True, 32),
        (64, 128, 64, "k", 128, False, 128),  # B is [K, N] by rows: panels along N
        (64, 96, 32, "k", 64, False, 64),
        (64, 64, 128, "mn", 128, True, 128),  # A is [K, M] by rows
        (128, 32, 64, "mn", 64, False, 64),
        (64, 128, 64, "reg", 0, True, 128),
        (128, 64, 128, "reg", 0, False, 128),
    ],
)
def test_wgmma(rows: int, cols: int, depth: int, a_form: str, a_swizzle: int, b_t: bool, b_swizzle: int) -> None:
    """Descriptors, steps along k, panels and blocks, against the canonical layouts of the PTX ISA."""
    rng = np.random.default_rng(3)
    left = rng.integers(-4, 5, (rows, depth)).astype(np.float32)
    right = rng.integers(-4, 5, (cols, depth)).astype(np.float32)
    a_shape = (depth, rows) if a_form == "mn" else (rows, depth)
    a = buffer("a", "bf16", *a_shape, swizzle=a_swizzle or 128)
    b = buffer("b", "bf16", *((cols, depth) if b_t else (depth, cols)), offset=a.slot_bytes, swizzle=b_swizzle)
    a_ref = x.Ref(base="a", subs=box(*((0, n) for n in a_shape)), transposed=a_form == "mn")
    b_ref = x.Ref(base="b", subs=box(*((0, n) for n in b.shape)), transposed=b_t)
    body: list[x.Node] = [assign(reg("d"), 3.0)]
    if a_form == "reg":
        body.append(load(reg("p", "bf16"), x.Ref(base="x", subs=elems(ROW, COL))))
    operand = reg("p", "bf16") if a_form == "reg" else a_ref
    body += [
        x.Fence(what="wgmma"),
        x.Op(op="wgmma", operands={"d": reg("d"), "a": operand, "b": b_ref, "use_acc": ap("<", 0, sym("acc"))}),
        x.Commit(queue="wgmma"),
        x.GroupWait(queue="wgmma", keep=0, ready=("d",)),
        store(x.Ref(base="y", subs=elems(ROW, COL)), reg("d"), tile("f32", rows, cols)),
    ]
    k = kernel(
        "k",
        body,
        tensors=(tensor("x", "bf16", rows, depth), tensor("y", "f32", rows, cols, out=True)),
        tiles={"d": tile("f32", rows, cols), "p": tile("bf16", rows, depth)},
        buffers=(a, b),
        scalars=(x.ScalarParam(name="acc", dtype="i32"),),
    )
    memory = fill(a, left.T if a_form == "mn" else left, "bf16", k.shared_bytes)
    memory[b.offset :] = fill(b, right if b_t else right.T, "bf16", k.shared_bytes)[b.offset :]
    for accumulate in (0, 1):
        y = np.zeros(rows * cols, np.float32)
        run(k, {"x": bits(left, "bf16").ravel(), "y": y}, shared=memory, acc=accumulate)
        assert (y.reshape(rows, cols) == left @ right.T + 3 * accumulate).all()
