"""Litmus programs on proxies, scopes and lanes: what a wait makes visible, and to whom (1-10, 13, 23, 24, 29)."""

from __future__ import annotations

from cake.ir import expanded as x
from tests.litmus import build as b
from tests.litmus.build import FENCE, R32, Smem, at, box, cur, elements
from tests.litmus.registry import program

LINE = 128  # bytes of 32 f32 values
TENSORS: dict[str, tuple[tuple[int, int], b.DTypeName, str]] = {"out": ((1, 32), "f32", "out")}
INPUT: dict[str, tuple[tuple[int, int], b.DTypeName, str]] = {"src": ((1, 32), "f32", "in")}
OUT_BOX = {"out": ((1, 32), 0)}
IN_BOX = {"src": ((1, 32), 0)}
X = box("x", (0, 1), (0, 32))
SRC = box("src", (0, 1), (0, 32))
OUT = box("out", (0, 1), (0, 32))


# ---- generic writes read by the async proxy -------------------------------------------------------------------------


def _stored(before: tuple[x.Stmt, ...], after: tuple[x.Stmt, ...], issuer: tuple[x.Stmt, ...] = ()) -> x.Kernel:
    """Warp ``w`` writes a line and meets warp ``s`` at a barrier; ``s`` hands the line to the bulk-store engine."""
    writer = b.role("w", *before, b.write(elements("x"), 32), *after, b.sync("pair"))
    store = b.role(
        "s",
        b.sync("pair"),
        *issuer,
        b.tma_store(OUT, X),
        b.commit("bulk"),
        b.gwait("bulk", read=True),
    )
    pair = x.NamedBarrier(name="pair", id=1, threads=64)
    return b.kernel("stored", (writer, store), smem={"x": Smem((1, 32))}, named=(pair,), tensors=TENSORS, boxes=OUT_BOX)


@program("01_store_fence_barrier_tma_store")
def p01() -> x.Kernel:
    return _stored((), (FENCE,))


@program("02_no_fence")
def p02() -> x.Kernel:
    return _stored((), ())


@program("03_fence_by_issuer_only")
def p03() -> x.Kernel:
    return _stored((), (), (b.fence(executor="one"),))


@program("04_fence_before_the_write")
def p04() -> x.Kernel:
    return _stored((FENCE,), ())


# ---- async writes read by threads -----------------------------------------------------------------------------------


def _loaded(wait: tuple[x.Stmt, ...], end: tuple[x.Stmt, ...] = ()) -> x.Kernel:
    """One TMA load, and a warp that reads it after ``wait``. ``end`` keeps the copy from outliving the CTA."""
    load = b.role("load", b.expect("full", at(), LINE), b.tma_load(X, SRC, "full", at(), LINE), solo=True)
    use = b.role("use", *wait, b.read(elements("x"), 32), *end, tiles={"r": R32})
    return b.kernel(
        "loaded", (load, use), smem={"x": Smem((1, 32))}, mbarriers={"full": (1, 1)}, tensors=INPUT, boxes=IN_BOX
    )


@program("05_tma_load_wait_read")
def p05() -> x.Kernel:
    return _loaded((b.wait("full", at()),))


@program("06_tma_load_wait_wgmma")
def p06() -> x.Kernel:
    a, w = box("a", (0, 64), (0, 64)), box("w", (0, 8), (0, 64))
    load = b.role(
        "load",
        b.expect("full", at(), 9216),
        b.tma_load(a, box("ga", (0, 64), (0, 64)), "full", at(), 8192),
        b.tma_load(w, box("gw", (0, 8), (0, 64)), "full", at(), 1024),
        solo=True,
    )
    math = b.role(
        "math",
        b.wait("full", at()),
        b.fence("wgmma"),
        b.wgmma("acc", a, w.model_copy(update={"transposed": True})),
        b.commit("wgmma", "lanes"),
        b.gwait("wgmma", executor="lanes", ready=("acc",)),
        warps=4,
        tiles={"acc": b.TileType(dtype="f32", shape=(64, 8), layout=b.FRAG)},
    )
    return b.kernel(
        "loaded_wgmma",
        (load, math),
        smem={"a": Smem((64, 64), "bf16", swizzle=128), "w": Smem((8, 64), "bf16", swizzle=128)},
        mbarriers={"full": (1, 1)},
        tensors={"ga": ((64, 64), "bf16", "in"), "gw": ((8, 64), "bf16", "in")},
        boxes={"ga": ((64, 64), 128), "gw": ((8, 64), 128)},
    )


@program("07_no_wait")
def p07() -> x.Kernel:
    return _loaded((), (b.wait("full", at()),))


@program("08_relaxed_wait")
def p08() -> x.Kernel:
    return _loaded((b.wait("full", at(), sem="relaxed"),))


def _scalar(after: bool) -> x.Kernel:
    """The producer also stores a scalar, before or after the arrival that lets the consumer read it."""
    scalar = b.write(elements("y"), 1, 2.0, executor="one")
    announce = b.expect("full", at(), LINE)
    first, second = (announce, scalar) if after else (scalar, announce)
    load = b.role("load", first, second, b.tma_load(X, SRC, "full", at(), LINE), solo=True)
    use = b.role("use", b.wait("full", at()), b.read_scalar(b.first("y"), "v"))
    smem = {"x": Smem((1, 32)), "y": Smem((1, 1))}
    return b.kernel("scalar", (load, use), smem=smem, mbarriers={"full": (1, 1)}, tensors=INPUT, boxes=IN_BOX)


@program("09_scalar_after_the_arrival")
def p09() -> x.Kernel:
    return _scalar(True)


@program("10_scalar_before_the_arrival")
def p10() -> x.Kernel:
    return _scalar(False)


@program("23_elected_lane_waits")
def p23() -> x.Kernel:
    return _loaded((b.wait("full", at(), one=True),))


@program("24_elected_lane_waits_syncwarp")
def p24() -> x.Kernel:
    return _loaded((b.wait("full", at(), one=True), b.SYNCWARP))


# ---- generic reads, then an async refill ----------------------------------------------------------------------------


def _refilled(release: tuple[x.Stmt, ...]) -> x.Kernel:
    """A one-slot ring filled twice by TMA and read with ordinary loads; ``release`` is what follows each read."""
    fill, held = cur("f"), cur("c")
    load = b.role(
        "load",
        b.loop(
            "i",
            2,
            b.wait("empty", fill, ahead=-1, one=True),
            b.expect("full", fill, LINE),
            b.tma_load(box("x", (0, 1), (0, 32), slot=fill), SRC, "full", fill, LINE),
            b.step("f"),
        ),
        solo=True,
        cursors={"f": 1},
    )
    use = b.role(
        "use",
        b.loop("j", 2, b.wait("full", held), b.read(elements("x", held), 32), *release, b.step("c")),
        cursors={"c": 1},
        tiles={"r": R32},
    )
    ring = x.Ring(name="ring", slots=1, kind="mbarrier", fields=("x",), full="full", empty="empty")
    return b.kernel(
        "refilled",
        (load, use),
        smem={"x": Smem((1, 32))},
        mbarriers={"full": (1, 1), "empty": (1, 1)},
        tensors=INPUT,
        boxes=IN_BOX,
        rings=(ring,),
    )


@program("13_release_without_fence")
def p13() -> x.Kernel:
    return _refilled((b.SYNCWARP, b.arrive("empty", cur("c"), executor="warp")))


@program("13b_release_with_fence")
def p13b() -> x.Kernel:
    return _refilled((FENCE, b.SYNCWARP, b.arrive("empty", cur("c"), executor="warp")))


@program("29_relaxed_release")
def p29() -> x.Kernel:
    return _refilled((FENCE, b.SYNCWARP, b.arrive("empty", cur("c"), executor="warp", sem="relaxed")))
