"""Loads, stores, reductions and index tiles in every layout, by small kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cake import machine
from cake.diagnostics import CakeError
from cake.ir import expanded as x
from cake.ir.expr import Apply, Expr, Reg, Sym, integer
from cake.ir.layout import Layout, TileType
from tests.machine import small as s

LAYOUTS = [
    (s.FRAG, 64, 24, 4),
    (s.FRAG, 16, 8, 1),
    (s.ROWWISE, 128, 6, 4),
    (s.spread(4), 3, 40, 4),
    (s.spread(1), 1, 200, 2),
    (s.UNIFORM, 2, 5, 4),
]


def values(*shape: int) -> Any:
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


def run(kernel: x.Kernel, seeds: int = 4, **arguments: Any) -> dict[str, Any]:
    """Run over schedules, observed and not; all agree."""
    first = machine.run(kernel, arguments).outputs
    for seed in range(1, seeds):
        again = machine.run(kernel, arguments, seed=seed, observer=machine.Recorder()).outputs
        for name, array in first.items():
            assert np.array_equal(array.view(np.uint8), again[name].view(np.uint8)), (name, seed)
    return first


@pytest.mark.parametrize(("layout", "rows", "cols", "warps"), LAYOUTS, ids=str)
def test_copy_through_registers(layout: Layout, rows: int, cols: int, warps: int) -> None:
    t = s.tile("f32", rows, cols, layout)
    kernel = s.kernel(
        [s.tensor("a", "f32", rows, cols), s.tensor("c", "f32", rows, cols, out=True)],
        [
            s.load("v", t, s.elements("a", s.ROW, s.COL)),
            s.store(s.elements("c", s.ROW, s.COL), Reg(name="v", dtype="f32"), t),
        ],
        warps=warps,
        tiles={"v": t},
    )
    a = values(rows, cols)
    assert np.array_equal(run(kernel, a=a, c=np.zeros_like(a))["c"], a)


@pytest.mark.parametrize(("layout", "rows", "cols", "warps"), LAYOUTS, ids=str)
def test_each_warp_reports_its_own_elements(layout: Layout, rows: int, cols: int, warps: int) -> None:
    t = s.tile("f32", rows, cols, layout)
    kernel = s.kernel(
        [s.tensor("c", "f32", rows, cols, out=True)],
        [s.assign("v", t, s.f32(1.0)), s.store(s.elements("c", s.ROW, s.COL), Reg(name="v", dtype="f32"), t)],
        warps=warps,
        tiles={"v": t},
    )
    recorder = machine.Recorder()
    machine.run(kernel, {"c": s.empty("f32", rows, cols)}, observer=recorder)
    by_warp: dict[int, set[int]] = {}
    accesses: Any = recorder.of("access")
    for e in accesses:
        numbers = {n for lo, hi in e.effect.region.spans for n in range(lo, hi)}
        assert by_warp.setdefault(e.agent.warp, numbers) == numbers
    everything = sorted(n for numbers in by_warp.values() for n in numbers)
    assert everything == list(range(rows * cols))


@pytest.mark.parametrize(("layout", "rows", "cols", "warps"), LAYOUTS[:5], ids=str)
@pytest.mark.parametrize("pad", [0, 4])
def test_spill_and_read_back_by_lin(layout: Layout, rows: int, cols: int, warps: int, pad: int) -> None:
    """A thread reads back what it stored itself, so no order is needed, whatever its sisters do."""
    t = s.tile("f32", rows, cols, layout)
    v = Reg(name="v", dtype="f32")
    kernel = s.kernel(
        [s.tensor("a", "f32", rows, cols), s.tensor("c", "f32", rows, cols, out=True)],
        [
            s.load("v", t, s.elements("a", s.ROW, s.COL)),
            s.store(s.elements("keep", 0, s.LIN), v, t),
            s.assign("v", t, s.f32(0.0)),
            s.load("v", t, s.elements("keep", 0, s.LIN)),
            s.store(s.elements("c", s.ROW, s.COL), v, t),
        ],
        warps=warps,
        tiles={"v": t},
        buffers=[s.buffer("keep", "f32", 1, rows * cols, pad=pad)],
    )
    a = values(rows, cols)
    assert np.array_equal(run(kernel, seeds=12, a=a, c=np.zeros_like(a))["c"], a)


def exchange(ordered: bool) -> x.Kernel:
    """Rows are stored by one warp and read by another."""
    t = s.tile("f32", 64, 8, s.FRAG)
    v = Reg(name="v", dtype="f32")
    other = s.i32("%", s.i32("+", s.ROW, 16), 64)
    body: list[x.Stmt] = [
        s.load("v", t, s.elements("a", s.ROW, s.COL)),
        s.store(s.elements("x", s.ROW, s.COL), v, t),
        s.load("v", t, s.elements("x", other, s.COL)),
        s.store(s.elements("c", s.ROW, s.COL), v, t),
    ]
    if ordered:
        body.insert(2, x.Named(barrier="r"))
    return s.kernel(
        [s.tensor("a", "f32", 64, 8), s.tensor("c", "f32", 64, 8, out=True)],
        body,
        tiles={"v": t},
        buffers=[s.buffer("x", "f32", 64, 8, pad=4)],
    )


def test_warps_need_a_barrier() -> None:
    a = values(64, 8)
    assert np.array_equal(run(exchange(True), seeds=8, a=a, c=np.zeros_like(a))["c"], np.roll(a, -16, axis=0))
    wrong = 0
    for seed in range(8):
        c = machine.run(exchange(False), {"a": a, "c": np.zeros_like(a)}, seed=seed).outputs["c"]
        wrong += not np.array_equal(c, np.roll(a, -16, axis=0))
    assert wrong >= 6


def test_masked_load_and_store() -> None:
    t = s.tile("f32", 1, 128, s.spread(1))
    inside = s.test("<", s.COL, Sym(name="n"))
    kernel = s.kernel(
        [
            x.Tensor(name="a", dtype="f32", shape=(Sym(name="n"),)),
            x.Tensor(name="c", dtype="f32", shape=(Sym(name="n"),), direction="out"),
            s.tensor("whole", "f32", 128, out=True),
        ],
        [
            s.load("v", t, s.elements("a", s.COL), where=inside, other=s.f32(-5.0)),
            s.store(s.elements("c", s.COL), Reg(name="v", dtype="f32"), t, where=inside),
            s.store(s.elements("whole", s.COL), Reg(name="v", dtype="f32"), t),
        ],
        warps=2,
        tiles={"v": t},
        dims=(x.Dim(name="n", tensor="a", axis=0),),
    )
    a = values(77)
    out = run(kernel, a=a, c=np.zeros_like(a), whole=np.zeros(128, np.float32))
    assert np.array_equal(out["c"], a)
    assert np.array_equal(out["whole"], np.concatenate([a, np.full(51, -5, np.float32)]))


@pytest.mark.parametrize("shift", [-1, 1])
def test_element_moves_outside_are_refused(shift: int) -> None:
    t = s.tile("f32", 1, 64, s.spread(1))
    kernel = s.kernel(
        [s.tensor("a", "f32", 64)],
        [s.load("v", t, s.elements("a", s.i32("+", s.COL, shift)))],
        warps=1,
        tiles={"v": t},
    )
    with pytest.raises(CakeError) as caught:
        machine.run(kernel, {"a": values(64)})
    found = caught.value.diagnostics[0]
    assert found.code == "O503" and f"index {-1 if shift < 0 else 64} on axis 0" in found.message


def test_shared_buffers_start_poisoned() -> None:
    t = s.tile("f32", 1, 32, s.spread(1))
    kernel = s.kernel(
        [s.tensor("c", "f32", 32, out=True)],
        [
            s.load("v", t, s.elements("x", s.COL)),
            s.store(s.elements("c", s.COL), Reg(name="v", dtype="f32"), t),
        ],
        warps=1,
        tiles={"v": t},
        buffers=[s.buffer("x", "f32", 32)],
    )
    assert np.isnan(run(kernel, c=np.zeros(32, np.float32))["c"]).all()


def test_unwritten_outputs_are_poisoned() -> None:
    kernel = s.kernel([s.tensor("c", "f32", 4, out=True), s.tensor("d", "i32", 4, out=True)], [x.Exit()], warps=1)
    out = machine.run(kernel, {"c": np.zeros(4, np.float32), "d": np.zeros(4, np.int32)}).outputs
    assert np.isnan(out["c"]).all() and (out["d"] > 1 << 29).all()


def test_panels_and_aliases() -> None:
    """A wide swizzled row lies in panels; a buffer over the same bytes sees them one after another."""
    wide, flat = s.tile("bf16", 8, 128, s.spread(8)), s.tile("bf16", 1, 1024, s.spread(8))
    kernel = s.kernel(
        [
            s.tensor("a", "bf16", 8, 128),
            s.tensor("c", "bf16", 1, 1024, out=True),
            s.tensor("d", "bf16", 8, 128, out=True),
        ],
        [
            s.load("v", wide, s.elements("a", s.ROW, s.COL)),
            s.store(s.elements("p", s.ROW, s.COL), Reg(name="v", dtype="bf16"), wide),
            x.Named(barrier="r"),
            s.load("u", flat, s.elements("q", s.ROW, s.COL)),
            s.store(s.elements("c", s.ROW, s.COL), Reg(name="u", dtype="bf16"), flat),
            s.load("v", wide, s.box("p", (0, 8), (0, 128))),
            s.store(s.elements("d", s.ROW, s.COL), Reg(name="v", dtype="bf16"), wide),
        ],
        tiles={"v": wide, "u": flat},
        buffers=[
            s.buffer("p", "bf16", 8, 128, swizzle=128, offset=0),
            s.buffer("q", "bf16", 1, 1024, offset=0, alias="p"),
        ],
    )
    a = values(8, 128).astype(s.BF16)
    out = run(kernel, a=a, c=s.empty("bf16", 1, 1024), d=s.empty("bf16", 8, 128))
    panels = a.reshape(8, 2, 64).transpose(1, 0, 2).reshape(1, 1024)
    assert np.array_equal(out["c"], panels) and np.array_equal(out["d"], a)


def reduction(
    domain: TileType,
    result: TileType,
    function: str,
    axis: int,
    scope: str,
    warps: int,
    more: list[x.Stmt] | None = None,
) -> x.Kernel:
    body: list[x.Stmt] = [
        s.load("v", domain, s.elements("a", s.ROW, s.COL)),
        s.op(
            "reduce",
            domain,
            dst=Reg(name="r", dtype=result.dtype),
            value=Reg(name="v", dtype=domain.dtype),
            _function=function,
            _axis=axis,
            _scope=scope,
        ),
        s.store(s.elements("c", s.ROW, s.COL), Reg(name="r", dtype=result.dtype), result),
    ]
    shape = (domain.rows, domain.cols)
    return s.kernel(
        [s.tensor("a", domain.dtype, *shape), s.tensor("c", result.dtype, result.rows, result.cols, out=True)],
        body,
        warps=warps,
        tiles={"v": domain, "r": result},
    )


@pytest.mark.parametrize("function", ["sum", "max", "min"])
def test_reductions_along_frag_rows(function: str) -> None:
    t = s.tile("f32", 64, 32, s.FRAG)
    a = values(64, 32)
    a[5, 7] = np.nan
    whole = getattr(np, function)(a, axis=1, keepdims=True)
    out = run(reduction(t, s.tile("f32", 64, 1, s.FRAG), function, 1, "warp", 4), a=a, c=s.empty("f32", 64, 1))["c"]
    np.testing.assert_allclose(out, whole, rtol=1e-5, atol=1e-6)
    parts = run(reduction(t, s.tile("f32", 64, 4, s.FRAG), function, 1, "thread", 4), a=a, c=s.empty("f32", 64, 4))["c"]
    by_lane = getattr(np, function)(a.reshape(64, 4, 4, 2), axis=(1, 3))
    np.testing.assert_allclose(parts, by_lane, rtol=1e-5, atol=1e-6)


def test_partial_sums_of_spread() -> None:
    t = s.tile("f32", 1, 512, s.spread(2))
    a = values(1, 512)
    threads = run(
        reduction(t, s.tile("f32", 1, 128, s.spread(1)), "sum", 1, "thread", 4), a=a, c=s.empty("f32", 1, 128)
    )
    np.testing.assert_allclose(threads["c"][0], a.reshape(2, 128, 2).sum(axis=(0, 2)), rtol=1e-5, atol=1e-6)
    warps = run(reduction(t, s.tile("f32", 1, 4, s.PERWARP), "sum", 1, "warp", 4), a=a, c=s.empty("f32", 1, 4))
    np.testing.assert_allclose(warps["c"][0], a.reshape(2, 4, 64).sum(axis=(0, 2)), rtol=1e-5, atol=1e-6)


def test_reduction_with_an_uneven_last_round() -> None:
    t = s.tile("f32", 1, 100, s.spread(1))
    a = -np.abs(values(1, 100)) - 1
    out = run(reduction(t, s.tile("f32", 1, 64, s.spread(1)), "max", 1, "thread", 2), a=a, c=s.empty("f32", 1, 64))["c"]
    expected = a[0, :64].copy()
    expected[:36] = np.maximum(expected[:36], a[0, 64:])
    assert np.array_equal(out[0], expected)


def test_reduction_along_columns() -> None:
    t = s.tile("f32", 16, 24, s.FRAG)
    a = values(16, 24)
    out = run(reduction(t, s.tile("f32", 1, 24, s.FRAG), "max", 0, "warp", 1), a=a, c=s.empty("f32", 1, 24))["c"]
    assert np.array_equal(out, a.max(axis=0, keepdims=True))


def test_uniform_reduction() -> None:
    t = s.tile("i32", 1, 8, s.UNIFORM)
    a = np.arange(8, dtype=np.int32)[None]
    out = run(reduction(t, s.tile("i32", 1, 1, s.UNIFORM), "sum", 1, "thread", 4), a=a, c=s.empty("i32", 1, 1))["c"]
    assert out.tolist() == [[28]]


@pytest.mark.parametrize("function", ["max", "min"])
def test_argreduce(function: str) -> None:
    t, best = s.tile("f32", 64, 16, s.FRAG), s.tile("f32", 64, 1, s.FRAG)
    index = s.tile("i32", 64, 1, s.FRAG)
    kernel = s.kernel(
        [s.tensor("a", "f32", 64, 16), s.tensor("c", "f32", 64, 1, out=True), s.tensor("i", "i32", 64, 1, out=True)],
        [
            s.load("v", t, s.elements("a", s.ROW, s.COL)),
            s.op(
                "argreduce",
                t,
                dst=Reg(name="r", dtype="f32"),
                index=Reg(name="n", dtype="i32"),
                value=Reg(name="v", dtype="f32"),
                _function=function,
                _scope="warp",
            ),
            s.store(s.elements("c", s.ROW, 0), Reg(name="r", dtype="f32"), best),
            s.store(s.elements("i", s.ROW, 0), Reg(name="n", dtype="i32"), index),
        ],
        tiles={"v": t, "r": best, "n": index},
    )
    a = np.round(values(64, 16))
    a[3] = np.nan
    a[4, 2] = np.nan
    out = run(kernel, a=a, c=s.empty("f32", 64, 1), i=s.empty("i32", 64, 1))
    worst = np.float32(-np.inf if function == "max" else np.inf)
    clean = np.where(np.isnan(a), worst, a)
    assert np.array_equal(out["c"][:, 0], getattr(clean, function)(axis=1))
    assert np.array_equal(out["i"][:, 0], getattr(clean, "arg" + function)(axis=1))


def test_scalars_from_memory_control_the_program() -> None:
    t = s.tile("i32", 1, 1, s.UNIFORM)
    count: Expr = Reg(name="v", dtype="i32")
    body: list[x.Stmt] = [
        s.assign("v", t, integer(0)),
        s.op("load_scalar", dst=Sym(name="n"), src=s.elements("a", 1)),
        x.For(
            var="i",
            lo=integer(0),
            hi=Sym(name="n"),
            step=integer(1),
            body=(s.assign("v", t, Apply(op="+", args=(count, Sym(name="i")), dtype="i32")),),
        ),
        s.store(s.elements("c", 0), Sym(name="n"), None, executor="one"),  # type: ignore[arg-type]
        s.store(s.elements("c", s.i32("+", s.COL, 1)), count, t),
    ]
    kernel = s.kernel([s.tensor("a", "i32", 2), s.tensor("c", "i32", 2, out=True)], body, tiles={"v": t})
    out = run(kernel, a=np.array([9, 5], np.int32), c=s.empty("i32", 2))
    assert out["c"].tolist() == [5, 10]


def test_atomics_accumulate() -> None:
    t = s.tile("f32", 1, 128, s.spread(1))
    kernel = s.kernel(
        [s.tensor("c", "f32", 2, inout=True)],
        [
            s.assign("v", t, s.f32(1.0)),
            s.op(
                "atomic",
                t,
                dst=s.elements("c", s.i32("%", s.COL, 2)),
                value=Reg(name="v", dtype="f32"),
                where=s.test("<", s.COL, 100),
                _function="add",
            ),
        ],
        tiles={"v": t},
    )
    assert run(kernel, c=np.array([1, 2], np.float32))["c"].tolist() == [51, 52]


def test_variables_that_overflow_are_refused() -> None:
    kernel = s.kernel(
        [s.tensor("c", "f32", 1, out=True)],
        [x.Let(name="n", dtype="i32", value=s.i32("*", 1 << 20, 1 << 12))],
        warps=1,
    )
    with pytest.raises(CakeError) as caught:
        machine.run(kernel, {"c": np.zeros(1, np.float32)})
    assert caught.value.diagnostics[0].code == "N803"


def test_variables_without_a_value_are_refused() -> None:
    body = [
        x.If(cond=s.test("<", Sym(name="%cta"), 0), then=(x.Let(name="n", dtype="i32", value=integer(1)),)),
        x.Let(name="m", dtype="i32", value=s.i32("+", Sym(name="n"), 1)),
    ]
    with pytest.raises(CakeError) as caught:
        machine.run(s.kernel([s.tensor("c", "f32", 1, out=True)], body, warps=1), {"c": np.zeros(1, np.float32)})
    assert caught.value.diagnostics[0].code == "D209"


def test_inputs_are_read_only() -> None:
    t = s.tile("f32", 1, 32, s.spread(1))
    body = [s.assign("v", t, s.f32(0.0)), s.store(s.elements("a", s.COL), Reg(name="v", dtype="f32"), t)]
    kernel = s.kernel([s.tensor("a", "f32", 32), s.tensor("c", "f32", 1, out=True)], body, warps=1, tiles={"v": t})
    with pytest.raises(CakeError) as caught:
        machine.run(kernel, {"a": values(32), "c": np.zeros(1, np.float32)})
    assert caught.value.diagnostics[0].code == "M405"
