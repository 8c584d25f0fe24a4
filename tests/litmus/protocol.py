"""Litmus programs on counting: phases, laps, parities, generations, tails and restarts (30-37)."""

from __future__ import annotations

from cake.ir import expanded as x
from cake.ir.expr import Expr, Sym, integer
from tests.litmus import build as b
from tests.litmus.build import FENCE, R32, R64, SYNCWARP, Smem, at, box, cur, elements
from tests.litmus.registry import program

LINE = 128
INPUT: dict[str, tuple[tuple[int, int], b.DTypeName, str]] = {"src": ((1, 32), "f32", "in")}
IN_BOX = {"src": ((1, 32), 0)}
SRC = box("src", (0, 1), (0, 32))


def _fill(cursor: str = "f", width: int = 32) -> tuple[x.Stmt, ...]:
    """Acquire a slot, announce, copy."""
    slot, size = cur(cursor), 4 * width
    return (
        b.wait("empty", slot, ahead=-1, one=True),
        b.expect("full", slot, size),
        b.tma_load(box("x", (0, 1), (0, width), slot=slot), box("src", (0, 1), (0, width)), "full", slot, size),
        b.step(cursor),
    )


def _use(cursor: str = "c") -> tuple[x.Stmt, ...]:
    """Wait, read, release (one warp)."""
    slot = cur(cursor)
    return (
        b.wait("full", slot),
        b.read(elements("x", slot), 32),
        FENCE,
        SYNCWARP,
        b.arrive("empty", slot, executor="warp"),
        b.step(cursor),
    )


def _ring(slots: int) -> tuple[x.Ring, ...]:
    return (x.Ring(name="ring", slots=slots, kind="mbarrier", fields=("x",), full="full", empty="empty"),)


# ---- one warp releases for its sisters ------------------------------------------------------------------------------


def _leader(first: bool, second: bool) -> x.Kernel:
    """A role of two warps reads each fill with ordinary loads and one warp releases it. ``first``: a barrier of the
    role between wait and read; ``second``: between read and release."""
    load = b.role("load", b.loop("i", 2, *_fill(width=64)), solo=True, cursors={"f": 1})
    slot = cur("c")
    use = b.role(
        "use",
        b.loop(
            "j",
            2,
            b.wait("full", slot),
            *((b.sync("role"),) if first else ()),
            b.read(elements("x", slot), 64),
            FENCE,
            *((b.sync("role"),) if second else (SYNCWARP,)),
            b.arrive("empty", slot),
            b.step("c"),
        ),
        warps=2,
        cursors={"c": 1},
        tiles={"r": R64},
    )
    return b.kernel(
        "leader",
        (load, use),
        smem={"x": Smem((1, 64))},
        mbarriers={"full": (1, 1), "empty": (1, 1)},
        named=(x.NamedBarrier(name="role", id=1, threads=64),),
        tensors={"src": ((1, 64), "f32", "in")},
        boxes={"src": ((1, 64), 0)},
        rings=_ring(1),
    )


@program("30a_leader_release_no_collective")
def p30a() -> x.Kernel:
    return _leader(False, False)


@program("30b_leader_release_collective_before_the_read")
def p30b() -> x.Kernel:
    return _leader(True, False)


@program("31_leader_release_collective_after_the_read")
def p31() -> x.Kernel:
    return _leader(False, True)


# ---- announcements and generations ----------------------------------------------------------------------------------


@program("32_arrive_then_announce")
def p32() -> x.Kernel:
    """Two producers fill halves of a line; the second arrives before it announces its bytes."""
    left, right = box("x", (0, 1), (0, 32)), box("y", (0, 1), (0, 32))
    one = b.role("p", b.expect("full", at(), LINE), b.tma_load(left, SRC, "full", at(), LINE), solo=True)
    two = b.role(
        "q",
        b.arrive("full", at()),
        b.expect("full", at(), LINE, arrives=False),
        b.tma_load(right, SRC, "full", at(), LINE),
        solo=True,
    )
    use = b.role("use", b.wait("full", at()), b.read(elements("x"), 32), b.read(elements("y"), 32), tiles={"r": R32})
    smem = {"x": Smem((1, 32)), "y": Smem((1, 32))}
    return b.kernel("announced", (one, two, use), smem=smem, mbarriers={"full": (2, 1)}, tensors=INPUT, boxes=IN_BOX)


@program("33_two_named_barriers_on_one_id")
def p33() -> x.Kernel:
    """Two pairs of warps, each with a barrier of its own, both on hardware id 1."""
    names = (("p", "left"), ("q", "left"), ("r", "right"), ("s", "right"))
    roles = [b.role(name, b.sync(barrier)) for name, barrier in names]
    shared = tuple(x.NamedBarrier(name=n, id=1, threads=64) for n in ("left", "right"))
    return b.kernel("merged", roles, named=shared)


# ---- two consumers take turns on one ring ---------------------------------------------------------------------------


def _pingpong(turns: bool) -> x.Kernel:
    """Instances take alternate tiles of 4 slabs from one ring of 2 slots and skip the other's."""
    slabs, tiles = 4, 2
    load = b.role("load", b.loop("i", 2 * tiles * slabs, *_fill()), solo=True, cursors={"f": 2})
    me = Sym(name="math.w")
    other = b.i32("-", 1, me)
    enter: tuple[x.Stmt, ...] = (b.sync("turn", me),) if turns else ()
    leave: tuple[x.Stmt, ...] = (b.come("turn", other),) if turns else ()
    prime: tuple[x.Stmt, ...] = (b.when(b.test("==", me, 1), b.come("turn", integer(0))),) if turns else ()
    math = b.role(
        "math",
        *prime,
        b.when(b.test("==", me, 1), b.step("c", slabs)),
        b.loop("t", tiles, *enter, b.loop("k", slabs, *_use()), *leave, b.step("c", slabs)),
        instances=2,
        cursors={"c": 2},
        tiles={"r": R32},
    )
    return b.kernel(
        "pingpong",
        (load, math),
        smem={"x": Smem((1, 32), slots=2)},
        mbarriers={"full": (1, 2), "empty": (1, 2)},
        named=(x.NamedBarrier(name="turn", id=1, size=2, threads=64),),
        tensors=INPUT,
        boxes=IN_BOX,
        rings=_ring(2),
    )


@program("34a_pingpong_without_turns")
def p34a() -> x.Kernel:
    return _pingpong(False)


@program("34b_pingpong_with_turns")
def p34b() -> x.Kernel:
    return _pingpong(True)


# ---- tails and restarts ---------------------------------------------------------------------------------------------


@program("35_one_fill_too_many")
def p35() -> x.Kernel:
    load = b.role("load", b.loop("i", 3, *_fill()), solo=True, cursors={"f": 2})
    use = b.role("use", b.loop("j", 2, *_use()), cursors={"c": 2}, tiles={"r": R32})
    return b.kernel(
        "tail",
        (load, use),
        smem={"x": Smem((1, 32), slots=2)},
        mbarriers={"full": (1, 2), "empty": (1, 2)},
        tensors=INPUT,
        boxes=IN_BOX,
        rings=_ring(2),
    )


TILES, SLABS = Sym(name="tiles"), Sym(name="slabs")


def _tiled(
    fill: tuple[x.Stmt, ...], use: tuple[x.Stmt, ...], slots: int, cursors: dict[str, int], slabs: Expr
) -> x.Kernel:
    """``tiles`` tiles (a launch value): ``fill`` and ``use`` are what the two roles do for a tile."""
    load = b.role("load", b.loop("ti", TILES, *fill), solo=True, cursors={"f": slots})
    math = b.role("math", b.loop("tj", TILES, *use), cursors=cursors, tiles={"r": R32})
    return b.kernel(
        "tiled",
        (load, math),
        smem={"x": Smem((1, 32), slots=slots)},
        mbarriers={"full": (1, slots), "empty": (1, slots)},
        tensors=INPUT,
        boxes=IN_BOX,
        scalars=("tiles", "slabs") if slabs == SLABS else ("tiles",),
        rings=_ring(slots),
    )


@program("36_cursor_restarts_per_tile")
def p36() -> x.Kernel:
    """A ring of 2 slots whose cursors start from 0 in every tile of ``slabs`` slabs."""
    fill = (b.restart("f"), b.loop("i", SLABS, *_fill()))
    use = (b.restart("c"), b.loop("j", SLABS, *_use()))
    return _tiled(fill, use, 2, {"c": 2}, SLABS)


@program("37_tail_release_missing")
def p37() -> x.Kernel:
    """A ring of 4 slots, read with a lag of one; the release after the tile's last slab is missing. Releases are of the
    oldest stage held, so the cursor ``rel`` falls one further behind with every tile."""
    held, slabs = cur("c"), 2
    release = (FENCE, SYNCWARP, b.arrive("empty", cur("rel"), executor="warp"), b.step("rel"))
    use = b.loop(
        "k",
        slabs,
        b.wait("full", held),
        b.read(elements("x", held), 32),
        b.step("c"),
        b.when(b.test(">", Sym(name="k"), 0), *release),
    )
    return _tiled((b.loop("i", slabs, *_fill()),), (use,), 4, {"c": 4, "rel": 4}, integer(slabs))
