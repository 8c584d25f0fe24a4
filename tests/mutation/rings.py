"""Small synthetic kernels that mutants are made of: rings with every kind of fill and reader, turns, and store rings.

All run ``tiles`` tiles of ``slabs`` slabs (launch values), so that truth can be asked over a grid of trip counts.
"""

from __future__ import annotations

from dataclasses import dataclass

from cake.ir import expanded as x
from cake.ir.expr import Expr, Sym, integer
from tests.litmus import build as b
from tests.litmus.build import FENCE, FRAG, SPREAD, SYNCWARP, Smem, box, cur, elements

TILES, SLABS = Sym(name="tiles"), Sym(name="slabs")
ROW = b.i32("+", b.i32("*", Sym(name="t"), 8), Sym(name="k"))
"""Each slab stores to a row of its own."""

Body = tuple[x.Stmt, ...]


@dataclass(frozen=True)
class Ring:
    """A ring of ``stages``, released ``lag`` slabs late. ``fill``: tma; mixed (a TMA line and a line of ordinary stores);
    stores. ``reader``: load, wgmma or store (handed on by TMA). ``producers``: roles that fill a part each. ``warps`` and
    ``instances`` of the consumer. ``split``: A and B have pipelines of their own."""

    stages: int = 2
    lag: int = 0
    fill: str = "tma"
    reader: str = "load"
    producers: int = 1
    warps: int = 1
    instances: int = 1
    split: bool = False

    @property
    def name(self) -> str:
        """Short and unique."""
        more = ("_split" if self.split else "") + (f"_p{self.producers}" if self.producers > 1 else "")
        return f"{self.fill}_{self.reader}_s{self.stages}_l{self.lag}_w{self.warps}x{self.instances}{more}"


def _guard(op: str, left: Expr | int, right: Expr | int, *then: x.Stmt) -> x.If:
    return b.when(b.test(op, left, right), *then)


def _fills(r: Ring, lines: list[str], width: int, full: str, empty: str, cursor: str, warps: int) -> Body:
    """One producer's fill of its lines."""
    slot = cur(cursor)
    size = 4 * width
    acquire = b.wait(empty, slot, ahead=-1, one=r.fill == "tma")
    copies = [
        b.tma_load(box(n, (0, 1), (0, width), slot=slot), box("src", (0, 1), (0, width)), full, slot, size)
        for n in lines
    ]
    if r.fill == "tma":
        return (acquire, b.expect(full, slot, size * len(lines)), *copies, b.step(cursor))
    stores = tuple(b.write(elements(n, slot), width) for n in lines[1 if r.fill == "mixed" else 0 :])
    leave: Body = (FENCE, SYNCWARP, b.arrive(full, slot, executor="warp"), b.step(cursor))
    if r.fill == "stores":
        return (acquire, *stores, *leave)
    announce = b.expect(full, slot, size, arrives=False)
    return (acquire, announce, copies[0], *stores, *leave)


def _reads(r: Ring, lines: list[str], width: int, slot: x.Slot) -> Body:
    if r.reader == "wgmma":
        a = box(lines[0], (0, 64), (0, 64), slot=slot)
        w = box(lines[1], (0, 8), (0, 64), slot=slot, transposed=True)
        return (
            b.fence("wgmma"),
            b.wgmma("acc", a, w),
            b.commit("wgmma", "lanes"),
            b.gwait("wgmma", r.lag, executor="lanes"),
        )
    if r.reader == "store":
        copies = [b.tma_store(box("out", (ROW, 1), (0, width)), box(n, (0, 1), (0, width), slot=slot)) for n in lines]
        return (*copies, b.commit("bulk"), b.gwait("bulk", r.lag, read=True))
    return tuple(b.read(elements(n, slot), width) for n in lines)


def _release(r: Ring, empties: list[tuple[str, str]], back: int) -> Body:
    fence = (FENCE,) if r.reader == "load" else ()
    if r.reader == "store":
        return tuple(b.arrive(e, cur(c, back)) for e, c in empties)
    return (*fence, SYNCWARP, *(b.arrive(e, cur(c, back), executor="warp") for e, c in empties))


def ring(r: Ring) -> x.Kernel:
    """The kernel of a ring."""
    wg = r.reader == "wgmma"
    width = 32 * (r.warps if not wg else 1)
    lines = ["a", "w"] if wg or r.split or r.producers == 2 or r.fill == "mixed" else ["a"]
    pipes = [([n], f"full.{n}", f"empty.{n}") for n in lines] if r.split else [(lines, "full", "empty")]
    shapes: dict[str, tuple[int, int]] = {"a": (64, 64), "w": (8, 64)} if wg else dict.fromkeys(lines, (1, width))
    producer_warps = 2 if r.fill != "tma" and r.warps > 1 else 1
    roles: list[x.Role] = []
    for p in range(r.producers):
        body: Body = ()
        cursors = {}
        for names, full, empty in pipes:
            mine = names if r.producers == 1 else [names[p]]
            cursor = f"f{p}.{full}"
            cursors[cursor] = r.stages
            body += (
                _matrix_fill(mine, full, empty, cursor)
                if wg
                else _fills(r, mine, width, full, empty, cursor, producer_warps)
            )
        loop = b.loop(f"t{p}", TILES, b.loop(f"i{p}", SLABS, *body))
        roles.append(
            b.role(
                f"load{p}", loop, solo=r.fill == "tma", warps=1 if r.fill == "tma" else producer_warps, cursors=cursors
            )
        )
    waits = tuple(b.wait(full, cur(f"c.{full}"), one=r.reader == "store") for _, full, _ in pipes)
    slots = {n: cur(f"c.{full}") for names, full, _ in pipes for n in names}
    reads = _reads(r, lines, width, slots[lines[0]]) if len(pipes) == 1 else _split_reads(r, lines, width, slots)
    steps = tuple(b.step(f"c.{full}") for _, full, _ in pipes)
    empties = [(empty, f"c.{full}") for _, full, empty in pipes]
    k = Sym(name="k")
    tail = tuple(_guard(">=", SLABS, j, *(_drain(r, j)), *_release(r, empties, j)) for j in range(r.lag, 0, -1))
    release = _release(r, empties, r.lag + 1)
    slab = (*waits, *reads, *steps, *((_guard(">=", k, r.lag, *release),) if r.lag else release))
    last: Body = (b.gwait("wgmma", executor="lanes", ready=("acc",)),) if wg and r.lag else ()
    math = b.role(
        "use",
        b.loop("t", TILES, b.loop("k", SLABS, *slab), *last, *tail),
        *((b.gwait("bulk", read=True),) if r.reader == "store" else ()),
        warps=r.warps,
        instances=r.instances,
        cursors={f"c.{full}": r.stages for _, full, _ in pipes},
        tiles={"acc": b.TileType(dtype="f32", shape=(64, 8), layout=FRAG)}
        if wg
        else {"r": b.TileType(dtype="f32", shape=(1, width), layout=SPREAD)},
    )
    roles.append(math)
    fills = r.producers if r.fill == "tma" else producer_warps
    releases = r.instances * (1 if r.reader == "store" else r.warps)
    dtype = "bf16" if wg else "f32"
    sources = {n: (shapes[n], dtype, "in") for n in ("a", "w")} if wg else {"src": ((1, width), "f32", "in")}
    tensors = {(f"g{n}" if wg else n): s for n, s in sources.items()}
    boxes = {n: (s[0], 128 if wg else 0) for n, s in tensors.items()}
    if r.reader == "store":
        tensors["out"] = ((64, width), "f32", "out")
        boxes["out"] = ((1, width), 0)
    smem = {n: Smem(shapes[n], dtype, swizzle=128 if wg else 0, slots=r.stages) for n in lines}  # type: ignore[arg-type]
    bars: dict[str, tuple[int, int]] = {}
    for _, full, empty in pipes:
        bars[full], bars[empty] = (fills, r.stages), (releases, r.stages)
    rings = tuple(
        x.Ring(name=f"ring.{full}", slots=r.stages, kind="mbarrier", fields=tuple(names), full=full, empty=empty)
        for names, full, empty in pipes
    )
    return b.kernel(
        r.name,
        roles,
        smem=smem,
        mbarriers=bars,
        tensors=tensors,  # type: ignore[arg-type]
        boxes=boxes,
        scalars=("tiles", "slabs"),
        rings=rings,
    )


def _drain(r: Ring, back: int) -> Body:
    return (b.gwait("bulk", back - 1, read=True),) if r.reader == "store" else ()


def _split_reads(r: Ring, lines: list[str], width: int, slots: dict[str, x.Slot]) -> Body:
    if r.reader == "wgmma":
        a = box("a", (0, 64), (0, 64), slot=slots["a"])
        w = box("w", (0, 8), (0, 64), slot=slots["w"], transposed=True)
        return (
            b.fence("wgmma"),
            b.wgmma("acc", a, w),
            b.commit("wgmma", "lanes"),
            b.gwait("wgmma", r.lag, executor="lanes"),
        )
    return tuple(b.read(elements(n, slots[n]), width) for n in lines)


def _matrix_fill(names: list[str], full: str, empty: str, cursor: str) -> Body:
    slot = cur(cursor)
    rows = {"a": 64, "w": 8}
    sizes = {n: rows[n] * 128 for n in names}
    return (
        b.wait(empty, slot, ahead=-1, one=True),
        b.expect(full, slot, sum(sizes.values())),
        *(
            b.tma_load(
                box(n, (0, rows[n]), (0, 64), slot=slot), box(f"g{n}", (0, rows[n]), (0, 64)), full, slot, sizes[n]
            )
            for n in names
        ),
        b.step(cursor),
    )


# ---- turns ----------------------------------------------------------------------------------------------------------


def turns(stages: int, instances: int) -> x.Kernel:
    """Instances share every fill and enter a section one after the other in each slab, as examples/attention.cake does."""
    me = Sym(name="use.w")
    following = b.i32("%", b.i32("+", me, 1), instances)
    slot = cur("c")
    fill = (
        b.wait("empty", cur("f"), ahead=-1, one=True),
        b.expect("full", cur("f"), 128),
        b.tma_load(box("a", (0, 1), (0, 32), slot=cur("f")), box("src", (0, 1), (0, 32)), "full", cur("f"), 128),
        b.step("f"),
    )
    slab = (
        b.sync("turn", me),
        b.wait("full", slot),
        b.read(elements("a", slot), 32),
        b.write(elements("s"), 32),
        b.come("turn", following),
        FENCE,
        SYNCWARP,
        b.arrive("empty", slot, executor="warp"),
        b.step("c"),
    )
    use = b.role(
        "use",
        b.when(b.test("==", me, instances - 1), b.come("turn", integer(0))),
        b.loop("t", TILES, b.loop("k", SLABS, *slab)),
        instances=instances,
        cursors={"c": stages},
        tiles={"r": b.R32},
    )
    load = b.role("load", b.loop("t0", TILES, b.loop("i", SLABS, *fill)), solo=True, cursors={"f": stages})
    return b.kernel(
        f"turns_s{stages}_x{instances}",
        (load, use),
        smem={"a": Smem((1, 32), slots=stages), "s": Smem((1, 32))},
        mbarriers={"full": (1, stages), "empty": (instances, stages)},
        named=(x.NamedBarrier(name="turn", id=1, size=instances, threads=64),),
        tensors={"src": ((1, 32), "f32", "in")},
        boxes={"src": ((1, 32), 0)},
        scalars=("tiles", "slabs"),
        rings=(x.Ring(name="ring", slots=stages, kind="mbarrier", fields=("a",), full="full", empty="empty"),),
    )


# ---- store rings ----------------------------------------------------------------------------------------------------


def stores(slots: int, warps: int) -> x.Kernel:
    """A role stages lines in a ring of bulk stores (docs/design: store ring): wait, barrier, write, fence, barrier, store."""
    width = 32 * warps
    slot = cur("o")
    meet = b.sync("role") if warps > 1 else SYNCWARP
    body = (
        b.gwait("bulk", slots - 1, read=True),
        meet,
        b.write(elements("o", slot), width),
        FENCE,
        meet,
        b.tma_store(box("out", (ROW, 1), (0, width)), box("o", (0, 1), (0, width), slot=slot)),
        b.commit("bulk"),
        b.step("o"),
    )
    use = b.role(
        "use",
        b.loop("t", TILES, b.loop("k", SLABS, *body)),
        b.gwait("bulk", read=True),
        warps=warps,
        cursors={"o": slots},
    )
    return b.kernel(
        f"stores_s{slots}_w{warps}",
        (use,),
        smem={"o": Smem((1, width), slots=slots)},
        named=(x.NamedBarrier(name="role", id=1, threads=32 * warps),),
        tensors={"out": ((64, width), "f32", "out")},
        boxes={"out": ((1, width), 0)},
        scalars=("tiles", "slabs"),
        rings=(x.Ring(name="ring", slots=slots, kind="store", fields=("o",)),),
    )


# ---- exchanges between warps ----------------------------------------------------------------------------------------


def exchange(warps: int) -> x.Kernel:
    """A reduction's scratch: each warp writes its part, all meet, all read all, two slots in turn (expanded.md 2)."""
    width = 32 * warps
    whole = b.TileType(dtype="f32", shape=(1, width), layout=b.Layout(kind="uniform"))
    slot = cur("s")
    read = x.Op(
        op="load",
        operands={"dst": b.Reg(name="all", dtype="f32"), "src": elements("part", slot)},
        type=whole,
    )
    body = (b.write(elements("part", slot), width), b.sync("role"), read, b.step("s"))
    use = b.role(
        "use", b.loop("t", TILES, b.loop("k", SLABS, *body)), warps=warps, cursors={"s": 2}, tiles={"all": whole}
    )
    return b.kernel(
        f"exchange_w{warps}",
        (use,),
        smem={"part": Smem((1, width), slots=2)},
        named=(x.NamedBarrier(name="role", id=1, threads=32 * warps),),
        scalars=("tiles", "slabs"),
    )


def copies(keep: int) -> x.Kernel:
    """cp.async by four warps into two buffers in turn, each group waited for, met and read (litmus 16)."""
    line = box("a", (0, 64), (0, 64), slot=cur("p"))
    body = (
        b.sync("role"),
        b.cp_async(line, box("ga", (0, 64), (0, 64))),
        b.commit("cp_async", "lanes"),
        b.gwait("cp_async", keep, executor="lanes"),
        b.sync("role"),
        b.ldmatrix("v", box("a", (0, 64), (0, 64), slot=cur("p", keep))),
        b.step("p"),
    )
    first = (
        b.cp_async(line, box("ga", (0, 64), (0, 64))),
        b.commit("cp_async", "lanes"),
        b.step("p"),
    )
    use = b.role(
        "use",
        *(first * keep),
        b.loop("t", TILES, b.loop("k", SLABS, *body)),
        b.gwait("cp_async", executor="lanes"),
        warps=4,
        cursors={"p": 2},
        tiles={"v": b.TileType(dtype="bf16", shape=(64, 64), layout=FRAG)},
    )
    return b.kernel(
        f"copies_k{keep}",
        (use,),
        smem={"a": Smem((64, 64), "bf16", swizzle=128, slots=2)},
        named=(x.NamedBarrier(name="role", id=1, threads=128),),
        tensors={"ga": ((64, 64), "bf16", "in")},
        scalars=("tiles", "slabs"),
    )
