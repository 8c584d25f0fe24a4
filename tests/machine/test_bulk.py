"""Copies by the copy engines: zero fill and clipping at edges, multicast, reductions, cp.async; and the tensor
cores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cake import machine
from cake.diagnostics import CakeError
from cake.ir import expanded as x
from cake.ir.expr import Reg, Sym, boolean, integer
from tests.machine import small as s
from tests.machine.test_moves import run, values

BULK = x.ByGroup(queue="bulk")


def tma_load(
    barrier: str, bytes: int, dst: x.Ref, src: x.Ref, multicast: int = 0, slot: x.Slot | None = None
) -> list[x.Stmt]:
    """Announce and copy."""
    at = slot or x.Slot()
    ranks = bin(multicast).count("1") or 1
    return [
        x.Arrive(executor="one", barrier=barrier, slot=at, form="arrive_expect", bytes=bytes * ranks),
        s.op(
            "tma.load",
            executor="one",
            completion=x.ByBarrier(barrier=barrier, slot=at, bytes=bytes),
            dst=dst,
            src=src,
            _map="m",
            _multicast=multicast,
        ),
    ]


def tma_store(dst: x.Ref, src: x.Ref, **more: Any) -> list[x.Stmt]:
    """Fence, barrier, store, drain."""
    name = "tma.reduce" if "_function" in more else "tma.store"
    return [
        x.Fence(what="async_shared"),
        x.Named(barrier="r"),
        s.op(name, executor="one", completion=BULK, dst=dst, src=src, _map="m", **more),
        x.Commit(executor="one", queue="bulk"),
        x.GroupWait(executor="one", queue="bulk", keep=0),
        x.Named(barrier="r"),
    ]


def through_shared(row: int, col: int, out_row: int, out_col: int) -> x.Kernel:
    """A 8 x 128 box from (row, col) of a[13, 150], to (out_row, out_col) of c[13, 150]."""
    body = [
        *tma_load("full", 2048, s.box("t", (0, 8), (0, 128)), s.box("a", (row, 8), (col, 128))),
        x.Wait(barrier="full"),
        *tma_store(s.box("c", (out_row, 8), (out_col, 128)), s.box("t", (0, 8), (0, 128))),
    ]
    return s.kernel(
        [s.tensor("a", "bf16", 13, 150), s.tensor("c", "bf16", 13, 150, inout=True)],
        body,
        buffers=[s.buffer("t", "bf16", 8, 128, swizzle=128)],
        barriers={"full": (1, 1)},
    )


@pytest.mark.parametrize("start", [(0, 0), (-3, 0), (9, 100), (-20, 5), (0, -140), (5, -7), (13, 150)])
def test_loads_fill_zeros_and_stores_clip(start: tuple[int, int]) -> None:
    row, col = start
    a = values(13, 150).astype(s.BF16)
    before = np.full((13, 150), 7, s.BF16)
    wide = np.zeros((13 + 60, 150 + 600), s.BF16)
    wide[30 : 30 + 13, 300 : 300 + 150] = a
    box = wide[30 + row : 38 + row, 300 + col : 428 + col]
    out = run(through_shared(row, col, 2, 10), a=a, c=before)["c"]
    expected = before.copy()
    expected[2:10, 10:138] = box
    assert np.array_equal(out, expected)
    if row < 0 or col < 0:  # which stores cannot
        with pytest.raises(CakeError) as caught:
            run(through_shared(0, 0, row, col), a=a, c=before)
        assert caught.value.diagnostics[0].code == "O503"
        return
    out = run(through_shared(0, 0, row, col), a=a, c=before)["c"]
    wide[...] = 7
    wide[30 + row : 38 + row, 300 + col : 428 + col] = a[:8, :128]
    assert np.array_equal(out, wide[30:43, 300:450])


@pytest.mark.parametrize(("function", "combine"), [("add", np.add), ("max", np.maximum), ("min", np.minimum)])
def test_bulk_reductions(function: str, combine: Any) -> None:
    body = [
        *tma_load("full", 512, s.box("t", (0, 4), (0, 32)), s.box("a", (0, 4), (0, 32))),
        x.Wait(barrier="full"),
        *tma_store(s.box("c", (1, 4), (3, 32)), s.box("t", (0, 4), (0, 32)), _function=function),
    ]
    kernel = s.kernel(
        [s.tensor("a", "f32", 4, 32), s.tensor("c", "f32", 4, 32, inout=True)],
        body,
        buffers=[s.buffer("t", "f32", 4, 32)],
        barriers={"full": (1, 1)},
    )
    a, c = values(4, 32), values(5, 33)[:4, :32]
    expected = c.copy()
    expected[1:, 3:] = combine(c[1:, 3:], a[:3, :29])
    assert np.array_equal(run(kernel, a=a, c=c)["c"], expected)


def test_multicast_reaches_every_rank() -> None:
    """Each of two CTAs loads its half and sends it to both."""
    t = s.tile("f32", 8, 16, s.spread(1))
    rank = Sym(name="%rank")
    half = s.i32("*", rank, 4)
    body = [
        *tma_load("full", 256, s.box("t", (half, 4), (0, 16)), s.box("a", (half, 4), (0, 16)), multicast=3),
        x.Wait(barrier="full", scope="cluster"),
        s.load("v", t, s.elements("t", s.ROW, s.COL)),
        s.store(s.elements("c", rank, s.ROW, s.COL), Reg(name="v", dtype="f32"), t),
        x.Cluster(),
    ]
    kernel = s.kernel(
        [s.tensor("a", "f32", 8, 16), s.tensor("c", "f32", 2, 8, 16, out=True)],
        body,
        tiles={"v": t},
        buffers=[s.buffer("t", "f32", 8, 16)],
        barriers={"full": (1, 1)},
        cluster=2,
    )
    a = values(8, 16)
    assert np.array_equal(run(kernel, seeds=12, a=a, c=s.empty("f32", 2, 8, 16))["c"], np.stack([a, a]))


def cp_async_kernel(by_barrier: bool, ordered: bool = True) -> x.Kernel:
    t = s.tile("f32", 16, 32, s.spread(4))
    completion: Any = x.ByBarrier(barrier="full") if by_barrier else x.ByGroup(queue="cp_async")
    body: list[x.Stmt] = [
        s.op("cp_async", completion=completion, dst=s.box("t", (0, 16), (0, 32)), src=s.box("a", (-2, 16), (8, 32)))
    ]
    if by_barrier:
        body.append(x.Wait(barrier="full"))
    else:
        body += [x.Commit(queue="cp_async"), x.GroupWait(queue="cp_async")]
        if ordered:
            body.append(x.Named(barrier="r"))
    turned = s.i32("%", s.i32("+", s.ROW, 8), 16)
    body += [
        s.load("v", t, s.elements("t", turned, s.COL)),
        s.store(s.elements("c", turned, s.COL), Reg(name="v", dtype="f32"), t),
    ]
    return s.kernel(
        [s.tensor("a", "f32", 20, 36), s.tensor("c", "f32", 16, 32, out=True)],
        body,
        tiles={"v": t},
        buffers=[s.buffer("t", "f32", 16, 32, pad=4)],
        barriers={"full": (128, 1)},
    )


@pytest.mark.parametrize("by_barrier", [False, True])
def test_cp_async(by_barrier: bool) -> None:
    a = values(20, 36)
    expected = np.zeros((16, 32), np.float32)
    expected[2:, :28] = a[:14, 8:]
    assert np.array_equal(run(cp_async_kernel(by_barrier), seeds=8, a=a, c=s.empty("f32", 16, 32))["c"], expected)


def test_cp_async_pieces_are_disjoint_and_complete() -> None:
    recorder = machine.Recorder()
    kernel = cp_async_kernel(False)
    machine.run(kernel, {"a": values(20, 36), "c": s.empty("f32", 16, 32)}, observer=recorder)
    seen: list[int] = []
    issues: Any = recorder.of("issue")
    for issue in issues:
        (dst,) = [e for e in issue.effects if e.operand == "dst"]
        seen += [n for lo, hi in dst.region.spans for n in range(lo, hi)]
        assert sum(hi - lo for lo, hi in dst.region.spans) == (16 if issue.agent.half == "L" else 31 * 16)
    rows = {row * 36 * 4 + b for row in range(16) for b in range(128)}
    assert len(seen) == len(set(seen)) == 16 * 128 and set(seen) == rows


def test_cp_async_without_barrier_shows() -> None:
    a = values(20, 36)
    results = set()
    for seed in range(12):
        out = machine.run(cp_async_kernel(False, ordered=False), {"a": a, "c": s.empty("f32", 16, 32)}, seed=seed)
        results.add(out.outputs["c"].tobytes())
    assert len(results) > 1


def test_mma_of_matrix_fragments() -> None:
    """One warp: ldmatrix (and its transposed form), mma, stmatrix (transposed)."""
    a_t, b_t = s.tile("bf16", 16, 32, s.FRAG), s.tile("bf16", 8, 32, s.FRAG)
    d_t, o_t = s.tile("f32", 16, 8, s.FRAG), s.tile("bf16", 16, 8, s.FRAG)
    a, b, d = (Reg(name=n, dtype=t.dtype) for n, t in (("a", a_t), ("b", b_t), ("d", d_t)))
    body = [
        *tma_load("full", 1024, s.box("sa", (0, 16), (0, 32)), s.box("x", (0, 16), (0, 32))),
        *tma_load("more", 512, s.box("sb", (0, 32), (0, 8)), s.box("y", (0, 32), (0, 8))),
        x.Wait(barrier="full"),
        x.Wait(barrier="more"),
        s.op("ldmatrix", dst=a, src=s.box("sa", (0, 16), (0, 32))),
        s.op("ldmatrix", dst=b, src=s.box("sb", (0, 32), (0, 8), transposed=True)),
        s.assign("d", d_t, s.f32(1.0)),
        s.op("mma", d=d, a=a, b=b),
        s.op("stmatrix", o_t, dst=s.box("so", (0, 8), (0, 16), transposed=True), value=s.cast(d, "bf16")),
        *tma_store(s.box("c", (0, 8), (0, 16)), s.box("so", (0, 8), (0, 16))),
    ]
    kernel = s.kernel(
        [s.tensor("x", "bf16", 16, 32), s.tensor("y", "bf16", 32, 8), s.tensor("c", "bf16", 8, 16, out=True)],
        body,
        warps=1,
        tiles={"a": a_t, "b": b_t, "d": d_t},
        buffers=[
            s.buffer("sa", "bf16", 16, 32, swizzle=64),
            s.buffer("sb", "bf16", 32, 8),
            s.buffer("so", "bf16", 8, 16),
        ],
        barriers={"full": (1, 1), "more": (1, 1)},
    )
    x_, y = values(16, 32).astype(s.BF16), values(32, 8).astype(s.BF16)
    out = run(kernel, x=x_, y=y, c=s.empty("bf16", 8, 16))["c"]
    exact = (1 + x_.astype(np.float32) @ y.astype(np.float32)).T
    np.testing.assert_allclose(out.astype(np.float32), exact, rtol=1 / 100, atol=1e-2)


def wgmma_kernel(wait: bool, register_a: bool = False) -> x.Kernel:
    """d = a b + a b: two groups on one accumulator, the second one added."""
    d_t, a_t = s.tile("f32", 64, 16, s.FRAG), s.tile("bf16", 64, 64, s.FRAG)
    d = Reg(name="d", dtype="f32")
    a: Any = Reg(name="a", dtype="bf16") if register_a else s.box("sa", (0, 64), (0, 64))
    multiply = [
        s.op(
            "wgmma",
            completion=x.ByGroup(queue="wgmma"),
            d=d,
            a=a,
            b=s.box("sb", (0, 64), (0, 16)),
            use_acc=boolean(again),
        )
        for again in (False, True)
    ]
    body = [
        *tma_load("full", 8192, s.box("sa", (0, 64), (0, 64)), s.box("x", (0, 64), (0, 64))),
        *tma_load("more", 2048, s.box("sb", (0, 64), (0, 16)), s.box("y", (0, 64), (0, 16))),
        x.Wait(barrier="full"),
        x.Wait(barrier="more"),
        *([s.op("ldmatrix", dst=a, src=s.box("sa", (0, 64), (0, 64)))] if register_a else []),
        x.Fence(what="wgmma"),
        multiply[0],
        x.Commit(queue="wgmma"),
        multiply[1],
        x.Commit(queue="wgmma"),
        *([x.GroupWait(queue="wgmma", keep=0, ready=("d",))] if wait else []),
        s.store(s.elements("c", s.ROW, s.COL), d, d_t),
    ]
    return s.kernel(
        [s.tensor("x", "bf16", 64, 64), s.tensor("y", "bf16", 64, 16), s.tensor("c", "f32", 64, 16, out=True)],
        body,
        tiles={"d": d_t, "a": a_t},
        buffers=[s.buffer("sa", "bf16", 64, 64, swizzle=128), s.buffer("sb", "bf16", 64, 16, swizzle=32)],
        barriers={"full": (1, 1), "more": (1, 1)},
    )


@pytest.mark.parametrize("register_a", [False, True])
def test_wgmma(register_a: bool) -> None:
    a, b = values(64, 64).astype(s.BF16), values(64, 16).astype(s.BF16)
    exact = 2 * (a.astype(np.float32) @ b.astype(np.float32))
    out = run(wgmma_kernel(True, register_a), seeds=8, x=a, y=b, c=s.empty("f32", 64, 16))["c"]
    np.testing.assert_allclose(out, exact, rtol=1e-5, atol=1e-5)
    early = machine.run(wgmma_kernel(False, register_a), {"x": a, "y": b, "c": s.empty("f32", 64, 16)}).outputs["c"]
    assert not np.allclose(early, exact)


def test_wgmma_reports_registers_and_operands() -> None:
    recorder = machine.Recorder()
    arguments = {"x": s.empty("bf16", 64, 64), "y": s.empty("bf16", 64, 16), "c": s.empty("f32", 64, 16)}
    machine.run(wgmma_kernel(True, True), arguments, observer=recorder)
    issues: Any = [i for i in recorder.of("issue") if i.op.op == "wgmma"]  # type: ignore[attr-defined]
    assert len(issues) == 8 and {i.agent.warp for i in issues} == {0, 1, 2, 3}
    first = {e.operand: e for e in issues[0].effects}
    assert first["a"].region.tile == "a" and first["a"].part == "reads"
    assert first["d"].mode == "w" and first["d"].part == "writes"
    assert first["b"].region.space == "shared" and first["b"].proxy == "async"
    assert {e.effect.region.tile for e in recorder.of("access") if e.effect.region.space == "register"} == {"a", "d"}  # type: ignore[attr-defined]


def test_block_moves_stay_inside_buffers() -> None:
    kernel = through_shared(0, 0, 0, 0)
    bad = s.kernel(
        [s.tensor("a", "bf16", 13, 150)],
        tma_load("full", 2048, s.box("t", (1, 8), (0, 128)), s.box("a", (0, 8), (0, 128))),
        buffers=[s.buffer("t", "bf16", 8, 128)],
        barriers={"full": (1, 1)},
    )
    with pytest.raises(CakeError) as caught:
        machine.run(bad, {"a": s.empty("bf16", 13, 150)})
    assert caught.value.diagnostics[0].code == "O503"
    small = kernel.model_copy(update={"shared_bytes": 1024})
    with pytest.raises(CakeError) as caught:
        machine.run(small, {"a": s.empty("bf16", 13, 150), "c": s.empty("bf16", 13, 150)})
    assert caught.value.diagnostics[0].code == "W701"


def test_vectors_and_points() -> None:
    """A fill from a tensor of more axes: points drop axes, and a buffer may be a vector."""
    t = s.tile("f32", 1, 40, s.spread(1))
    body = [
        *tma_load("full", 160, s.box("t", (0, 40)), s.box("a", (Sym(name="w"), 0), (2, 0), (integer(30), 40))),
        x.Wait(barrier="full"),
        s.load("v", t, s.elements("t", s.COL)),
        s.store(s.elements("c", s.COL), Reg(name="v", dtype="f32"), t),
    ]
    kernel = s.kernel(
        [s.tensor("a", "f32", 2, 3, 50), s.tensor("c", "f32", 40, out=True)],
        body,
        warps=1,
        tiles={"v": t},
        buffers=[s.buffer("t", "f32", 40)],
        barriers={"full": (1, 1)},
    )
    a = values(2, 3, 50)
    out = run(kernel, a=a, c=s.empty("f32", 40))["c"]
    assert np.array_equal(out, np.concatenate([a[0, 2, 30:], np.zeros(20, np.float32)]))
