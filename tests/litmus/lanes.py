"""Litmus programs of lanes of one warp that exchange through shared memory (41 to 45)."""

from __future__ import annotations

from cake.ir import expanded as x
from cake.ir.expr import Apply, Axis, Expr, Reg, integer
from cake.ir.layout import TileType
from tests.litmus.build import (
    FRAG,
    R32,
    SYNCWARP,
    Smem,
    arrive,
    at,
    box,
    elements,
    i32,
    kernel,
    ldmatrix,
    read,
    role,
    stmatrix,
    test,
    wait,
    write,
    zero,
)
from tests.litmus.registry import program

COL = Axis(axis="col")
HALF = TileType(dtype="bf16", shape=(16, 16), layout=FRAG)
SUM = TileType(dtype="f32", shape=(1, 1), layout=R32.layout)


def _at(index: Expr) -> x.Ref:
    return x.Ref(base="s", subs=(x.Elem(index=Axis(axis="row")), x.Elem(index=index)))


NEXT = _at(i32("%", i32("+", COL, 1), 32))
"""The element of the next lane."""


def _swapped() -> x.Ref:
    """Lanes 2 and 3 take each other's element, all others their own."""
    other = Apply(op="where", args=(test("==", COL, 3), integer(2), COL), dtype="i32")
    return _at(Apply(op="where", args=(test("==", COL, 2), integer(3), other), dtype="i32"))


def _shuffle() -> x.Op:
    """A sum over the warp: a collective instruction, which orders no memory."""
    operands: dict[str, x.Ref | Expr] = {"dst": Reg(name="total", dtype="f32"), "value": Reg(name="r", dtype="f32")}
    return x.Op(op="reduce", operands=operands, attrs={"function": "sum", "axis": 1, "scope": "warp"}, type=R32)


def _warp(name: str, *body: x.Stmt, barrier: bool = False) -> x.Kernel:
    one = role("math", *body, tiles={"r": R32, "total": SUM})
    return kernel(name, [one], smem={"s": Smem((1, 32))}, mbarriers={"b": (32, 1)} if barrier else None)


@program("41a_neighbours_exchange")
def neighbours() -> x.Kernel:
    """Each lane stores its element and loads that of the next lane."""
    return _warp("neighbours", write(elements("s"), 32), read(NEXT, 32))


@program("41b_neighbours_exchange_syncwarp")
def neighbours_meet() -> x.Kernel:
    """The same with a meeting between the two."""
    return _warp("neighbours_meet", write(elements("s"), 32), SYNCWARP, read(NEXT, 32))


@program("41c_each_lane_its_own")
def alone() -> x.Kernel:
    """Each lane loads what it has stored itself: program order."""
    return _warp("alone", write(elements("s"), 32), read(elements("s"), 32), write(elements("s"), 32))


@program("42a_overwritten_while_a_neighbour_reads")
def overwritten() -> x.Kernel:
    """Each lane overwrites what the lane before it may still load."""
    return _warp("overwritten", write(elements("s"), 32), SYNCWARP, read(NEXT, 32), write(elements("s"), 32))


@program("42b_overwritten_after_a_meeting")
def overwritten_after() -> x.Kernel:
    """The same with a meeting between load and store."""
    body = (write(elements("s"), 32), SYNCWARP, read(NEXT, 32), SYNCWARP, write(elements("s"), 32))
    return _warp("overwritten_after", *body)


def _turned(name: str, *between: x.Stmt) -> x.Kernel:
    tile, turned = box("s", (0, 16), (0, 16)), box("s", (0, 16), (0, 16), transposed=True)
    body = (zero("h", HALF), stmatrix(tile, "h", (16, 16)), *between, ldmatrix("t", turned))
    return kernel(name, [role("math", *body, tiles={"h": HALF, "t": HALF})], smem={"s": Smem((16, 16), "bf16")})


@program("43a_transposed_through_memory")
def turned() -> x.Kernel:
    """stmatrix, then ldmatrix of the transposed tile: collective instructions on both sides, and no meeting."""
    return _turned("turned")


@program("43b_transposed_through_memory_syncwarp")
def turned_meet() -> x.Kernel:
    """The same with a meeting between the two."""
    return _turned("turned_meet", SYNCWARP)


@program("44a_arrivals_before_the_store")
def arrived_early() -> x.Kernel:
    """All lanes arrive, store, wait for the phase and load: the phase says nothing of the stores."""
    all_arrive, all_wait = arrive("b", at(), executor="lanes"), wait("b", at())
    return _warp("arrived_early", all_arrive, write(elements("s"), 32), all_wait, read(NEXT, 32), barrier=True)


@program("44b_arrivals_after_the_store")
def arrived() -> x.Kernel:
    """All lanes store, arrive, wait for the phase and load: each release reaches each lane."""
    all_arrive, all_wait = arrive("b", at(), executor="lanes"), wait("b", at())
    return _warp("arrived", write(elements("s"), 32), all_arrive, all_wait, read(NEXT, 32), barrier=True)


@program("45_a_shuffle_between")
def shuffled() -> x.Kernel:
    """Two lanes exchange across a warp reduction, which brings lanes together and orders no memory."""
    body = (zero("r", R32), write(elements("s"), 32), _shuffle(), read(_swapped(), 32))
    return _warp("shuffled", *body)
