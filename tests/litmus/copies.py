"""Litmus programs on completion: wgmma groups, bulk groups, cp.async groups, and buffers used through two proxies
(11, 12, 14-19, 25-28)."""

from __future__ import annotations

from cake.ir import expanded as x
from tests.litmus import build as b
from tests.litmus.build import FENCE, FRAG, R32, Smem, at, box, cur, elements
from tests.litmus.registry import program

ACC = b.TileType(dtype="f32", shape=(64, 8), layout=FRAG)
A = {"a": Smem((64, 64), "bf16", swizzle=128), "w": Smem((8, 64), "bf16", swizzle=128)}
GA: dict[str, tuple[tuple[int, int], b.DTypeName, str]] = {
    "ga": ((64, 64), "bf16", "in"),
    "gw": ((8, 64), "bf16", "in"),
}
MAPS = {"ga": ((64, 64), 128), "gw": ((8, 64), 128)}
OUT: dict[str, tuple[tuple[int, int], b.DTypeName, str]] = {"out": ((1, 32), "f32", "out")}


def _matmul(slot: x.Slot | None = None) -> tuple[x.Stmt, ...]:
    a = box("a", (0, 64), (0, 64), slot=slot)
    w = box("w", (0, 8), (0, 64), slot=slot, transposed=True)
    return b.fence("wgmma"), b.wgmma("acc", a, w), b.commit("wgmma", "lanes")


# ---- wgmma reads its operands until its group is waited for ---------------------------------------------------------


def _released(early: bool) -> x.Kernel:
    fill, held = cur("f"), cur("c")
    load = b.role(
        "load",
        b.loop(
            "i",
            2,
            b.wait("empty", fill, ahead=-1, one=True),
            b.expect("full", fill, 9216),
            b.tma_load(box("a", (0, 64), (0, 64), slot=fill), box("ga", (0, 64), (0, 64)), "full", fill, 8192),
            b.tma_load(box("w", (0, 8), (0, 64), slot=fill), box("gw", (0, 8), (0, 64)), "full", fill, 1024),
            b.step("f"),
        ),
        solo=True,
        cursors={"f": 1},
    )
    done = b.gwait("wgmma", executor="lanes", ready=("acc",))
    release = (b.SYNCWARP, b.arrive("empty", held, executor="warp"))
    tail = (*release, done) if early else (done, *release)
    math = b.role(
        "math",
        b.loop("j", 2, b.wait("full", held), *_matmul(held), *tail, b.step("c")),
        warps=4,
        cursors={"c": 1},
        tiles={"acc": ACC},
    )
    ring = x.Ring(name="ring", slots=1, kind="mbarrier", fields=("a", "w"), full="full", empty="empty")
    bars = {"full": (1, 1), "empty": (4, 1)}
    return b.kernel("released", (load, math), smem=A, mbarriers=bars, tensors=GA, boxes=MAPS, rings=(ring,))


@program("11_release_before_the_wgmma_wait")
def p11() -> x.Kernel:
    return _released(True)


@program("12_release_after_the_wgmma_wait")
def p12() -> x.Kernel:
    return _released(False)


# ---- bulk stores ----------------------------------------------------------------------------------------------------


def _rewritten(by_issuer: bool) -> x.Kernel:
    """Warp ``s`` stores a line by TMA; warp ``t`` then rewrites the line. The group wait is in one or the other."""
    drain = b.gwait("bulk", read=True)
    line, out = box("x", (0, 1), (0, 32)), box("out", (0, 1), (0, 32))
    s = b.role(
        "s",
        b.write(elements("x"), 32),
        FENCE,
        b.SYNCWARP,
        b.tma_store(out, line),
        b.commit("bulk"),
        *((drain,) if by_issuer else ()),
        b.sync("pair"),
        drain,  # not needed for the rewrite: nothing may be in flight at the end
    )
    t = b.role("t", b.sync("pair"), *(() if by_issuer else (drain, b.SYNCWARP)), b.write(elements("x"), 32, 2.0))
    pair = x.NamedBarrier(name="pair", id=1, threads=64)
    boxes = {"out": ((1, 32), 0)}
    return b.kernel("rewritten", (s, t), smem={"x": Smem((1, 32))}, named=(pair,), tensors=OUT, boxes=boxes)


@program("14_bulk_wait_by_another_thread")
def p14() -> x.Kernel:
    return _rewritten(False)


@program("15_bulk_wait_by_the_issuer")
def p15() -> x.Kernel:
    return _rewritten(True)


# ---- cp.async: a generic write that completes later -----------------------------------------------------------------


def _copied(barrier_last: bool) -> x.Kernel:
    line = box("a", (0, 64), (0, 64))
    wait, meet = b.gwait("cp_async", executor="lanes"), b.sync("role")
    tail = (wait, meet) if barrier_last else (meet, wait)
    use = b.role(
        "use",
        b.cp_async(line, box("ga", (0, 64), (0, 64))),
        b.commit("cp_async", "lanes"),
        *tail,
        b.ldmatrix("v", line),
        warps=4,
        tiles={"v": b.TileType(dtype="bf16", shape=(64, 64), layout=FRAG)},
    )
    role = x.NamedBarrier(name="role", id=1, threads=128)
    return b.kernel(
        "copied",
        (use,),
        smem={"a": Smem((64, 64), "bf16", swizzle=128)},
        named=(role,),
        tensors={"ga": ((64, 64), "bf16", "in")},
        target="sm_80",
    )


@program("16_cp_async_wait_then_barrier")
def p16() -> x.Kernel:
    return _copied(True)


@program("17_cp_async_barrier_then_wait")
def p17() -> x.Kernel:
    return _copied(False)


def _copied_wgmma(fenced: bool) -> x.Kernel:
    use = b.role(
        "use",
        b.cp_async(box("a", (0, 64), (0, 64)), box("ga", (0, 64), (0, 64))),
        b.cp_async(box("w", (0, 8), (0, 64)), box("gw", (0, 8), (0, 64))),
        b.commit("cp_async", "lanes"),
        b.gwait("cp_async", executor="lanes"),
        *((FENCE,) if fenced else ()),
        b.sync("role"),
        *_matmul(),
        b.gwait("wgmma", executor="lanes", ready=("acc",)),
        warps=4,
        tiles={"acc": ACC},
    )
    role = x.NamedBarrier(name="role", id=1, threads=128)
    return b.kernel("copied_wgmma", (use,), smem=A, named=(role,), tensors=GA)


@program("18_cp_async_wgmma_no_fence")
def p18() -> x.Kernel:
    return _copied_wgmma(False)


@program("19_cp_async_wgmma_fence")
def p19() -> x.Kernel:
    return _copied_wgmma(True)


# ---- one buffer, two proxies ----------------------------------------------------------------------------------------


def _reused(fenced: bool, waited: bool) -> x.Kernel:
    """A tile is staged for a bulk store; then the same bytes are a slot that TMA fills and a warp reads."""
    tile, out, ring = box("o", (0, 16), (0, 64)), box("out", (0, 16), (0, 64)), box("r", (0, 16), (0, 64))
    kind = b.TileType(dtype="bf16", shape=(16, 64), layout=FRAG)
    drain = b.gwait("bulk", read=True)
    use = b.role(
        "use",
        b.zero("v", kind),
        b.stmatrix(tile, "v", (16, 64)),
        *((FENCE,) if fenced else ()),
        b.SYNCWARP,
        b.tma_store(out, tile),
        b.commit("bulk"),
        *((drain,) if waited else ()),
        b.expect("full", at(), 2048),
        b.tma_load(ring, box("src", (0, 16), (0, 64)), "full", at(), 2048),
        b.wait("full", at()),
        b.ldmatrix("v", ring),
        *(() if waited else (drain,)),
        tiles={"v": kind},
    )
    return b.kernel(
        "reused",
        (use,),
        smem={"o": Smem((16, 64), "bf16", swizzle=128), "r": Smem((16, 64), "bf16", swizzle=128, alias="o")},
        mbarriers={"full": (1, 1)},
        tensors={"src": ((16, 64), "bf16", "in"), "out": ((16, 64), "bf16", "out")},
        boxes={"src": ((16, 64), 128), "out": ((16, 64), 128)},
    )


@program("25a_reuse_without_fence")
def p25a() -> x.Kernel:
    return _reused(False, True)


@program("25b_reuse_while_the_store_reads")
def p25b() -> x.Kernel:
    return _reused(True, False)


@program("26_reuse_fence_and_read_wait")
def p26() -> x.Kernel:
    return _reused(True, True)


# ---- global data ----------------------------------------------------------------------------------------------------


def _published(read_only: bool) -> x.Kernel:
    """CTA 0 stores a line by TMA, waits and raises a flag; CTA 1 waits for the flag and reads the line."""
    writer = b.when(
        b.test("==", b.CTA, 0),
        b.write(elements("x"), 32),
        FENCE,
        b.SYNCWARP,
        b.tma_store(box("data", (0, 1), (0, 32)), box("x", (0, 1), (0, 32))),
        b.commit("bulk"),
        b.gwait("bulk", read=read_only),
        b.signal("flag", 1),
    )
    reader = b.when(b.test("==", b.CTA, 1), b.wait_until("flag", 1), b.SYNCWARP, b.read(elements("data"), 32))
    return b.kernel(
        "published",
        (b.role("w", writer, reader, tiles={"r": R32}),),
        smem={"x": Smem((1, 32))},
        tensors={"data": ((1, 32), "f32", "inout"), "flag": ((1, 1), "i32", "inout")},
        boxes={"data": ((1, 32), 0)},
        grid=2,
    )


@program("27_flag_after_read_wait")
def p27() -> x.Kernel:
    return _published(True)


@program("28_flag_after_full_wait")
def p28() -> x.Kernel:
    return _published(False)
