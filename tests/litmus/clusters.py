"""Litmus programs on two CTAs of a cluster: the scope of an arrival, and what it may carry (20-22)."""

from __future__ import annotations

from cake.ir import expanded as x
from cake.ir.expr import integer
from tests.litmus import build as b
from tests.litmus.build import CLUSTER, FRAG, R32, RANK, Smem, at, box, cur, elements
from tests.litmus.registry import program


def _remote(scope: x.Scope) -> x.Kernel:
    """Rank 0 writes a line of rank 1's shared memory and arrives at rank 1's barrier; rank 1 waits and reads."""
    send = b.when(
        b.test("==", RANK, 0),
        b.write(elements("x", peer=integer(1)), 32),
        b.SYNCWARP,
        b.arrive("full", at(), executor="warp", scope=scope, peers=(1,)),
    )
    receive = b.when(b.test("==", RANK, 1), b.wait("full", at(), scope=scope), b.read(elements("x"), 32))
    use = b.role("use", send, receive, CLUSTER, tiles={"r": R32})
    return b.kernel("remote", (use,), smem={"x": Smem((1, 32))}, mbarriers={"full": (1, 1)}, cluster=2)


@program("20_remote_write_cta_scope")
def p20() -> x.Kernel:
    return _remote("cta")


@program("21_remote_write_cluster_scope")
def p21() -> x.Kernel:
    return _remote("cluster")


@program("22_remote_release_cta_scope_multicast_refill")
def p22() -> x.Kernel:
    """Rank 0 multicasts a tile to both CTAs, twice; each CTA's warpgroup reads it and arrives at rank 0 with CTA
    scope."""
    fill, held = cur("f"), cur("c")
    a, w = box("a", (0, 64), (0, 64), slot=fill), box("w", (0, 8), (0, 64), slot=fill)
    load = b.role(
        "load",
        b.loop(
            "i",
            2,
            # Rank 0 acquires the slot for both. Each CTA announces what lands in itself, rank 1 once its last fill has
            # come; bytes that come before the announcement are legal, since the announcing arrival is still pending.
            b.when(b.test("==", RANK, 0), b.wait("empty", fill, ahead=-1, one=True)),
            b.when(b.test("==", RANK, 1), b.wait("full", fill, ahead=-1, one=True)),
            b.expect("full", fill, 9216),
            b.when(
                b.test("==", RANK, 0),
                b.tma_load(a, box("ga", (0, 64), (0, 64)), "full", fill, 8192, multicast=3),
                b.tma_load(w, box("gw", (0, 8), (0, 64)), "full", fill, 1024, multicast=3),
            ),
            b.step("f"),
        ),
        CLUSTER,  # by whole warps: `barrier.cluster` is .aligned (PTX ISA 9.7.13.4), so the role is not solo
        cursors={"f": 1},
    )
    math = b.role(
        "math",
        b.loop(
            "j",
            2,
            b.wait("full", held),
            b.fence("wgmma"),
            b.wgmma(
                "acc", box("a", (0, 64), (0, 64), slot=held), box("w", (0, 8), (0, 64), slot=held, transposed=True)
            ),
            b.commit("wgmma", "lanes"),
            b.gwait("wgmma", executor="lanes", ready=("acc",)),
            b.SYNCWARP,
            b.arrive("empty", held, executor="warp", peers=(0,)),
            b.step("c"),
        ),
        CLUSTER,
        warps=4,
        cursors={"c": 1},
        tiles={"acc": b.TileType(dtype="f32", shape=(64, 8), layout=FRAG)},
    )
    return b.kernel(
        "multicast",
        (load, math),
        smem={"a": Smem((64, 64), "bf16", swizzle=128), "w": Smem((8, 64), "bf16", swizzle=128)},
        mbarriers={"full": (1, 1), "empty": (8, 1)},
        tensors={"ga": ((64, 64), "bf16", "in"), "gw": ((8, 64), "bf16", "in")},
        boxes={"ga": ((64, 64), 128), "gw": ((8, 64), 128)},
        rings=(x.Ring(name="ring", slots=1, kind="mbarrier", fields=("a", "w"), full="full", empty="empty"),),
        cluster=2,
    )
