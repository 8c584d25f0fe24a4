"""Fault classes that no source text can express: expanded programs, a failing one and its passing twin.

Those that the litmus suite has (docs/verification.md 1.6) are taken from there.
"""

from __future__ import annotations

from collections.abc import Callable

from cake.ir import expanded as x
from cake.ir.expr import Apply, Const, Reg, Sym
from cake.ir.layout import TileType
from tests.litmus import build as b
from tests.litmus.build import FENCE, FRAG, R32, SYNCWARP, Smem, at, box, cur, elements
from tests.litmus.catalogue import kernel as litmus
from tests.verify.loops import Loops

LINE = 128
SRC = box("src", (0, 1), (0, 32))
ACC = TileType(dtype="f32", shape=(64, 64), layout=FRAG)
TENSORS: dict[str, tuple[tuple[int, int], b.DTypeName, str]] = {"src": ((1, 32), "f32", "in")}


def _copy(*announce: x.Stmt, count: int = 1) -> x.Kernel:
    """One copy, announced as told, and its reader."""
    load = b.role("load", *announce, b.tma_load(box("x", (0, 1), (0, 32)), SRC, "full", at(), LINE), solo=True)
    use = b.role("use", b.wait("full", at()), b.read(elements("x"), 32), tiles={"r": R32})
    return b.kernel(
        "copy",
        (load, use),
        smem={"x": Smem((1, 32))},
        mbarriers={"full": (count, 1)},
        tensors=TENSORS,
        boxes={"src": ((1, 32), 0)},
    )


def under_arrival(arrives: bool) -> x.Kernel:
    """2: bytes are announced, and nobody arrives."""
    return _copy(b.expect("full", at(), LINE, arrives=arrives))


def participants(count: int) -> x.Kernel:
    """4: the barrier counts another number of arrivals than come."""
    return _copy(b.expect("full", at(), LINE), count=count)


def accumulator(waits: bool) -> x.Kernel:
    """5: the accumulator is read while the wgmma runs."""
    operands = box("a", (0, 64), (0, 64)), box("b", (0, 64), (0, 64))
    acc = Reg(name="acc", dtype="f32")
    twice = Apply(op="+", args=(acc, acc), dtype="f32")
    half = TileType(dtype="bf16", shape=(64, 64), layout=FRAG)
    math = b.role(
        "math",
        b.zero("v", half),
        *(b.stmatrix(ref, "v", (64, 64)) for ref in operands),
        FENCE,
        b.sync("math"),
        b.fence("wgmma"),
        b.wgmma("acc", *operands),
        b.commit("wgmma", "lanes"),
        *((b.gwait("wgmma", executor="lanes", ready=("acc",)),) if waits else ()),
        x.Op(op="assign", operands={"dst": Reg(name="r", dtype="f32"), "value": twice}, type=ACC),
        b.gwait("wgmma", executor="lanes"),
        warps=4,
        tiles={"acc": ACC, "r": ACC, "v": half},
    )
    buffer = Smem((64, 64), "bf16", swizzle=128)
    return b.kernel(
        "accumulator",
        (math,),
        smem={"a": buffer, "b": buffer},
        named=(x.NamedBarrier(name="math", id=1, threads=128),),
    )


def store_ring(keep: int) -> x.Kernel:
    """16: a ring of two store buffers that is reused while ``keep`` groups may still read it."""
    slot = cur("o")
    fill = (
        b.gwait("bulk", keep, read=True),
        SYNCWARP,
        b.write(elements("x", slot), 32),
        FENCE,
        SYNCWARP,
        b.tma_store(box("dst", (Sym(name="i"), 1), (0, 32)), box("x", (0, 1), (0, 32), slot=slot)),
        b.commit("bulk"),
        b.step("o"),
    )
    out: dict[str, tuple[tuple[int, int], b.DTypeName, str]] = {"dst": ((4, 32), "f32", "inout")}
    math = b.role("math", b.loop("i", 4, *fill), b.gwait("bulk", read=True), cursors={"o": 2})
    return b.kernel(
        "stores",
        (math,),
        smem={"x": Smem((1, 32), slots=2)},
        tensors=out,
        boxes={"dst": ((1, 32), 0)},
        rings=(x.Ring(name="ring", slots=2, kind="store", fields=("x",)),),
    )


def skipped_fence(always: bool) -> x.Kernel:
    """19: the only fence is on a path that an empty input skips."""
    fence: tuple[x.Stmt, ...] = (FENCE,) if always else (x.If(cond=b.test(">", Sym(name="n"), 1), then=(FENCE,)),)
    out: dict[str, tuple[tuple[int, int], b.DTypeName, str]] = {"dst": ((1, 32), "f32", "out")}
    math = b.role(
        "math",
        b.write(elements("x"), 32),
        *fence,
        SYNCWARP,
        b.tma_store(box("dst", (0, 1), (0, 32)), box("x", (0, 1), (0, 32))),
        b.commit("bulk"),
        b.gwait("bulk", read=True),
    )
    return b.kernel(
        "path", (math,), smem={"x": Smem((1, 32))}, tensors=out, boxes={"dst": ((1, 32), 0)}, scalars=("n",)
    )


def remote_exit(syncs: bool) -> x.Kernel:
    """23: a CTA leaves while its peer may still arrive at its barrier."""
    other = b.when(b.test("==", b.RANK, 0), b.arrive("done", at(), peers=(1,), scope="cluster"))
    end: tuple[x.Stmt, ...] = (b.CLUSTER,) if syncs else ()
    return b.kernel("leaving", (b.role("r", other, *end),), mbarriers={"done": (1, 1)}, cluster=2)


def two_proxies(same: bool) -> x.Kernel:
    """26: one element is combined by an ordinary atomic and by a TMA reduction."""
    atomic = x.Op(
        op="atomic",
        operands={"dst": elements("dst"), "value": Const(value=1.0, dtype="f32")},
        attrs={"function": "add"},
        type=R32,
    )
    reduce = b.tma_store(box("dst", (0, 1), (0, 32)), box("x", (0, 1), (0, 32)))
    reduce = reduce.model_copy(update={"op": "tma.reduce", "attrs": {**reduce.attrs, "function": "add"}})
    other = (
        b.write(elements("x"), 32),
        FENCE,
        SYNCWARP,
        reduce,
        b.commit("bulk"),
        b.gwait("bulk"),
    )
    roles = (b.role("p", atomic), b.role("q", atomic) if same else b.role("q", *other))
    return b.kernel(
        "proxies",
        roles,
        smem={"x": Smem((1, 32))},
        tensors={"dst": ((1, 32), "f32", "inout")},
        boxes={"dst": ((1, 32), 0)},
    )


def swizzled(offset: int) -> x.Kernel:
    """6: a tile of the wgmma program lies between two patterns of its swizzle."""
    k = litmus("06_tma_load_wait_wgmma")
    moved = [b.model_copy(update={"offset": b.offset + offset}) if b.swizzle else b for b in k.buffers]
    return k.model_copy(update={"buffers": tuple(moved), "shared_bytes": k.shared_bytes + 1024})


def predicated(alike: bool) -> x.Kernel:
    """7: a copy under a condition; its bytes and its wait are under it, too, or they are not."""
    some = b.test(">", Sym(name="n"), 1)
    copy = b.tma_load(box("x", (0, 1), (0, 32)), SRC, "full", at(), LINE)
    take = b.wait("full", at()), b.read(elements("x"), 32)
    fill: tuple[x.Stmt, ...] = (b.expect("full", at(), LINE), b.when(some, copy))
    if alike:
        fill, take = (b.when(some, b.expect("full", at(), LINE), copy),), (b.when(some, *take),)  # type: ignore[assignment]
    roles = (b.role("load", *fill, solo=True), b.role("use", *take, tiles={"r": R32}))
    return b.kernel(
        "predicated",
        roles,
        smem={"x": Smem((1, 32))},
        mbarriers={"full": (1, 1)},
        tensors=TENSORS,
        boxes={"src": ((1, 32), 0)},
        scalars=("n",),
    )


def budgets(math: int) -> x.Kernel:
    """8: two roles of four warps share what the launch gave them, 128 registers a thread."""

    def change(form: str, count: int) -> x.SetMaxNReg:
        return x.SetMaxNReg.model_validate({"form": form, "count": count})

    roles = (b.role("load", change("dec", 40), warps=4), b.role("math", change("inc", math), warps=4))
    return b.kernel("budgets", roles).model_copy(update={"launch_registers": 128})


def self_ring(taken: int) -> x.Kernel:
    """31: a warp fills two stages of its own ring in each tile, and takes one or both back out."""
    fill = (
        b.wait("empty", cur("f"), ahead=-1, one=True),
        b.expect("full", cur("f"), LINE),
        b.tma_load(box("x", (0, 1), (0, 32), slot=cur("f")), SRC, "full", cur("f"), LINE),
        b.step("f"),
    )
    take = (
        b.wait("full", cur("c")),
        b.read(elements("x", cur("c")), 32),
        FENCE,
        SYNCWARP,
        b.arrive("empty", cur("c")),
        b.step("c"),
    )
    body = b.loop("t", Sym(name="tiles"), *fill, *fill, *(node for _ in range(taken) for node in take))
    return b.kernel(
        "own",
        (b.role("r", body, cursors={"f": 3, "c": 3}, tiles={"r": R32}),),
        smem={"x": Smem((1, 32), slots=3)},
        mbarriers={"full": (1, 3), "empty": (1, 3)},
        tensors=TENSORS,
        boxes={"src": ((1, 32), 0)},
        rings=(x.Ring(name="ring", slots=3, kind="mbarrier", fields=("x",), full="full", empty="empty"),),
        scalars=("tiles",),
    )


def _litmus(name: str) -> Callable[[], x.Kernel]:
    return lambda: litmus(name)


FAULTS: dict[int, tuple[str, Callable[[], x.Kernel], Callable[[], x.Kernel]]] = {
    1: ("D202", _litmus("11_release_before_the_wgmma_wait"), _litmus("12_release_after_the_wgmma_wait")),
    2: ("P103", lambda: under_arrival(False), lambda: under_arrival(True)),
    4: ("P103", lambda: participants(2), lambda: participants(1)),
    5: ("D206", lambda: accumulator(False), lambda: accumulator(True)),
    6: ("W708", lambda: swizzled(512), lambda: swizzled(1024)),
    7: ("O505", lambda: predicated(False), lambda: predicated(True)),
    8: ("W702", lambda: budgets(224), lambda: budgets(216)),
    10: ("F301", _litmus("02_no_fence"), _litmus("01_store_fence_barrier_tma_store")),
    13: ("P106", _litmus("30a_leader_release_no_collective"), _litmus("31_leader_release_collective_after_the_read")),
    14: ("P105", _litmus("32_arrive_then_announce"), lambda: under_arrival(True)),
    15: ("P114", _litmus("33_two_named_barriers_on_one_id"), _litmus("34b_pingpong_with_turns")),
    16: ("D207", lambda: store_ring(2), lambda: store_ring(1)),
    17: ("P120", _litmus("14_bulk_wait_by_another_thread"), _litmus("15_bulk_wait_by_the_issuer")),
    18: ("F302", _litmus("13_release_without_fence"), _litmus("13b_release_with_fence")),
    19: ("F301", lambda: skipped_fence(False), lambda: skipped_fence(True)),
    20: ("P103", lambda: Loops(slots=2, restart=True).kernel(), lambda: Loops(slots=2).kernel()),
    21: ("P101", lambda: Loops(slots=4, lag=1, tail=False).kernel(), lambda: Loops(slots=4, lag=1).kernel()),
    22: ("D213", _litmus("35_one_fill_too_many"), lambda: Loops().kernel()),
    23: ("P117", lambda: remote_exit(False), lambda: remote_exit(True)),
    25: ("F310", _litmus("27_flag_after_read_wait"), _litmus("15_bulk_wait_by_the_issuer")),
    26: ("M404", lambda: two_proxies(False), lambda: two_proxies(True)),
    31: ("D213", lambda: self_ring(1), lambda: self_ring(2)),
    34: ("D216", _litmus("45_a_shuffle_between"), _litmus("41b_neighbours_exchange_syncwarp")),
    28: ("P107", _litmus("34a_pingpong_without_turns"), _litmus("34b_pingpong_with_turns")),
}
"""By their numbers: the code, a failing program, a passing one. 20 fails in several ways; the least launch gives P103."""
