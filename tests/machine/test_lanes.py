"""Lanes of a warp that cross in shared memory (D216): lane by lane, against executions in which each lane has its own view."""

from __future__ import annotations

import random

import numpy as np
import pytest

from cake.ir import expanded as x
from cake.ir.dtypes import numpy_dtype
from cake.ir.expr import Apply, Axis, Const, Expr, Reg, Sym, integer
from cake.ir.layout import Layout, TileType
from cake.machine.order import check
from cake.verify.oracle import attack
from tests.litmus import build as b

COL, ROW = Axis(axis="col"), Axis(axis="row")
COLUMN = TileType(dtype="f32", shape=(16, 1), layout=b.FRAG)
TILE = TileType(dtype="f32", shape=(16, 8), layout=b.FRAG)
WIDE = TileType(dtype="f32", shape=(1, 64), layout=Layout(kind="spread", vector=2))
HALF = TileType(dtype="bf16", shape=(16, 16), layout=b.FRAG)
BYTES = TileType(dtype="u8", shape=(1, 128), layout=Layout(kind="spread", vector=4))
REGISTERS = {"r": b.R32, "w": WIDE, "f": TILE, "c": COLUMN, "h": HALF, "t": HALF, "y": BYTES}


def place(col: Expr, row: Expr = ROW, base: str = "s") -> x.Ref:
    return x.Ref(base=base, subs=(x.Elem(index=row), x.Elem(index=col)))


def store(dst: x.Ref, tile: str = "r") -> x.Op:
    kind = REGISTERS[tile]
    value = Const(value=1 if kind.dtype == "u8" else 1.0, dtype=kind.dtype)
    return x.Op(op="store", operands={"dst": dst, "value": value}, type=kind)


def load(src: x.Ref, tile: str = "r") -> x.Op:
    kind = REGISTERS[tile]
    return x.Op(op="load", operands={"dst": Reg(name=tile, dtype=kind.dtype), "src": src}, type=kind)


def combine(dst: x.Ref) -> x.Op:
    operands: dict[str, x.Ref | Expr] = {"dst": dst, "value": Const(value=1.0, dtype="f32")}
    return x.Op(op="atomic", operands=operands, attrs={"function": "add"}, type=b.R32)


def kernel(
    *body: x.Stmt, shape: tuple[int, int] = (1, 64), warps: int = 1, more: dict[str, b.Smem] | None = None
) -> x.Kernel:
    smem = {"s": b.Smem(shape), **(more or {})}
    role = b.role("math", *body, warps=warps, tiles=REGISTERS)
    named = (x.NamedBarrier(name="all", id=1, threads=32 * warps),)
    return b.kernel("lanes", [role], smem=smem, named=named, mbarriers={"b": (32 * warps, 1)})


def codes(k: x.Kernel) -> list[str]:
    shapes = {t.name: tuple(int(e.value) for e in t.shape if isinstance(e, Const)) for t in k.tensors}
    given = {t.name: np.zeros(shapes[t.name], numpy_dtype(t.dtype)) for t in k.tensors}
    return sorted({d.code for d in check(k, given)})


def test_the_witness_names_lanes_and_bytes() -> None:
    (found,) = check(kernel(store(place(COL)), load(place(b.i32("%", b.i32("+", COL, 1), 32)))), {})
    assert found.code == "D216"
    assert (
        found.message
        == "lane 31 reads `s`[0] where lane 0 writes it before, and nothing orders the two lanes of math warp 0"
    )
    assert found.witness == (
        "lane 0 writes `s`",
        "lane 31 reads `s`",
        "both touch bytes 0 .. 3 of the CTA's shared memory",
    )


def test_vectors() -> None:
    """Two elements side by side are one lane's in one layout, and two lanes' in another."""
    assert codes(kernel(store(place(COL), "w"), load(place(COL), "w"))) == []
    assert codes(kernel(store(place(COL), "w"), load(place(COL)))) == ["D216"]


def test_scalars() -> None:
    """One thread stores a scalar, all read it."""
    put = x.Op(op="store", operands={"dst": b.first("s"), "value": Const(value=1.0, dtype="f32")})
    get = b.read_scalar(b.first("s"), "v")
    assert codes(kernel(put, get)) == ["D216"]
    assert codes(kernel(put, b.SYNCWARP, get, b.SYNCWARP, put)) == []


def test_updates() -> None:
    """Atomic updates need no order among themselves, but with plain accesses."""
    turned = place(b.i32("-", integer(31), COL))
    assert codes(kernel(store(place(COL)), combine(place(COL)), combine(place(COL)))) == []
    assert codes(kernel(store(place(COL)), b.SYNCWARP, combine(place(COL)), combine(turned))) == []
    assert codes(kernel(store(place(COL)), combine(turned))) == ["D216"]
    assert codes(kernel(store(place(COL)), b.SYNCWARP, combine(turned), load(place(COL)))) == ["D216"]


def test_a_column_is_stored_by_one_of_four_lanes_and_read_by_all() -> None:
    write, read = store(place(COL), "c"), load(place(COL), "c")
    assert codes(kernel(write, write, shape=(16, 8))) == []
    assert codes(kernel(write, read, shape=(16, 8))) == ["D216"]
    assert codes(kernel(write, b.SYNCWARP, read, shape=(16, 8))) == []
    assert codes(kernel(b.SYNCWARP, store(place(COL), "f"), load(place(COL), "f"), shape=(16, 8))) == []


def test_matrices() -> None:
    """In one layout each row has the same lanes both times; through an ordinary access it has not."""
    tile = b.box("s", (0, 16), (0, 16))
    half = {"s": b.Smem((16, 16), "bf16")}
    begin, put, get = b.zero("h", HALF), b.stmatrix(tile, "h", (16, 16)), b.ldmatrix("t", tile)
    assert codes(kernel(begin, put, get, put, more=half)) == []
    turned = b.ldmatrix("t", tile.model_copy(update={"transposed": True}))
    assert codes(kernel(begin, put, turned, more=half)) == ["D216"]
    plain = load(place(COL), "h")
    assert codes(kernel(begin, put, plain, more=half)) == ["D216"]
    assert codes(kernel(begin, put, b.SYNCWARP, plain, more=half)) == []


def test_other_names_of_the_same_bytes() -> None:
    bytes_ = {"y": b.Smem((1, 128), "u8", alias="s")}
    own, other = place(COL, base="y"), place(b.i32("-", integer(127), COL), base="y")
    assert "D216" not in codes(kernel(store(place(COL)), load(own, "y"), more=bytes_))
    assert "D216" in codes(kernel(store(place(COL)), load(other, "y"), more=bytes_))


def test_copies() -> None:
    """cp.async: each lane waits for its own pieces only. The elected lane has copies of its own, so the clocks tell (D205)."""

    def made(*between: x.Stmt) -> x.Kernel:
        copy = b.cp_async(b.box("s", (0, 32), (0, 4)), b.box("g", (0, 32), (0, 4)))
        parts = b.commit("cp_async", "lanes"), b.gwait("cp_async", executor="lanes")
        k = kernel(copy, *parts, *between, load(place(integer(1), COL)), shape=(32, 4))
        return k.model_copy(update={"tensors": (x.Tensor(name="g", dtype="f32", shape=(integer(32), integer(4))),)})

    assert codes(made()) == ["D205"]
    assert codes(made(b.SYNCWARP)) == []


@pytest.mark.parametrize("warps", [1, 4])
def test_warps_and_barriers(warps: int) -> None:
    """A barrier of the instance orders the lanes of each warp too."""
    turn = place(b.i32("-", integer(31), COL))
    assert codes(kernel(store(place(COL)), b.sync("all"), load(turn), warps=warps)) == []


def test_accesses_pile_up_only_as_far_as_they_differ() -> None:
    """A loop without any meeting: what repeats is kept once, and an exchange between its turns is found."""
    shift = b.i32("%", b.i32("+", COL, b.i32("//", Sym(name="k"), 39)), 32)
    assert codes(kernel(b.loop("k", 40, store(place(COL)), load(place(COL))))) == []
    assert codes(kernel(b.loop("k", 40, store(place(COL)), load(place(shift))))) == ["D216"]


# ---- against executions of single lanes --------------------------------------------------------------------------------


def _index(rnd: random.Random) -> Expr:
    """Its own element, a neighbour's, or, of two lanes, each other's."""
    kind = rnd.randrange(4)
    if kind == 0:
        return b.i32("%", b.i32("+", COL, rnd.choice((1, 7))), 32)
    if kind == 1:
        i, j = rnd.sample(range(1, 32), 2)
        inner = Apply(op="where", args=(b.test("==", COL, j), integer(i), COL), dtype="i32")
        return Apply(op="where", args=(b.test("==", COL, i), integer(j), inner), dtype="i32")
    return COL


def _program(seed: int) -> x.Kernel:
    rnd = random.Random(seed)
    body: list[x.Stmt] = [store(place(COL)), b.SYNCWARP]
    position = 0
    arrived = False
    for _ in range(rnd.randrange(2, 6)):
        body.append(rnd.choice((store, load))(place(_index(rnd))))
        what = rnd.randrange(5)
        if what == 0:
            body.append(b.SYNCWARP)
        elif what == 1 and not arrived:
            body.append(b.arrive("b", b.at(position), executor="lanes"))
            arrived = True
        elif arrived:
            body.append(b.wait("b", b.at(position), sem=rnd.choice(("acquire", "relaxed"))))
            position, arrived = position + 1, False
    return kernel(*body)


def test_as_single_lanes_execute_it() -> None:
    """The rule refuses what some execution of 32 threads with views of their own gets wrong, and nothing else."""
    said = {}
    for seed in range(60):
        k = _program(seed)
        found = codes(k)
        assert set(found) <= {"D216"}
        seen = attack(k, {}, 6, lanes=True)
        assert (seen.verdict == "broken") == bool(found), (seed, found, seen)
        said[seed] = bool(found)
    assert 15 < sum(said.values()) < 45, "both verdicts occur often"
