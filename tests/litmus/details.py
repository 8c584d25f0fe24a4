"""Small programs, each of which hangs on one detail of the order reading: an effect of an operation, a condition, a row of the
clocks. ``test_details`` holds their codes; mutants of the checker must change one of them (``tests.mutation.checker``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from cake.ir import expanded as x
from cake.ir.expr import Axis, Const, Reg, Sym, integer
from tests.litmus import build as b
from tests.litmus.build import CLUSTER, CTA, FENCE, FRAG, R32, RANK, SYNCWARP, Smem, at, box, elements
from tests.machine.edit import edit

GLOBAL = b.fence("async_global")
PAIR = x.NamedBarrier(name="pair", id=1, threads=64)
F32, A16 = (b.TileType(dtype="f32", shape=(64, 8), layout=FRAG), b.TileType(dtype="bf16", shape=(64, 64), layout=FRAG))
COLUMN, LIST = (b.TileType(dtype="f32", shape=(64, n), layout=FRAG) for n in (1, 4))


@dataclass(frozen=True)
class Detail:
    """A program and the codes that it gives, in the practice profile too where they differ."""

    name: str
    kernel: x.Kernel
    codes: tuple[str, ...] = ()
    practice: tuple[str, ...] | None = None
    ctas: int = 1


DETAILS: list[Callable[[], Iterator[Detail]]] = []


def details(function: Callable[[], Iterator[Detail]]) -> Callable[[], Iterator[Detail]]:
    """Register some."""
    DETAILS.append(function)
    return function


def catalogue() -> list[Detail]:
    """All of them."""
    return [d for function in DETAILS for d in function()]


def _reg(name: str, dtype: Any = "f32") -> Reg:
    return Reg(name=name, dtype=dtype)


def _op(name: str, tile: b.TileType | None = None, **operands: Any) -> x.Op:
    attrs = {n[1:]: v for n, v in operands.items() if n.startswith("_")}
    kept = {n: v for n, v in operands.items() if not n.startswith("_")}
    return x.Op(op=name, operands=kept, attrs=attrs, type=tile)


# ---- registers of a wgmma in flight ---------------------------------------------------------------------------------


def _flight(touch: x.Op, *, early: bool = False) -> x.Kernel:
    """A wgmma whose left operand is in registers, and something done to registers before its group is waited for, or
    (``early``) between the fence and the wgmma. The wgmma reads ``a`` and updates ``acc``; nothing else is used."""
    w = box("w", (0, 8), (0, 64), transposed=True)
    product = x.Op(
        op="wgmma",
        operands={"d": _reg("acc"), "a": _reg("a", "bf16"), "b": w, "use_acc": b.boolean(False)},
        completion=x.ByGroup(queue="wgmma"),
    )
    load = b.role(
        "load",
        b.expect("full", at(), 1024),
        b.tma_load(box("w", (0, 8), (0, 64)), box("gw", (0, 8), (0, 64)), "full", at(), 1024),
        solo=True,
    )
    tiles = {"acc": F32, "a": A16, "v": F32, "v16": A16, "b16": b.TileType(dtype="bf16", shape=(8, 64), layout=FRAG)}
    tiles |= {"top": COLUMN, "at": COLUMN.model_copy(update={"dtype": "i32"})}
    tiles |= {
        "columns": A16.model_copy(update={"dtype": "i32"}),
        "best": LIST,
        "where": LIST.model_copy(update={"dtype": "i32"}),
    }
    begin = tuple(b.zero(name, tiles[name]) for name in ("acc", "a", "v", "v16", "b16", "best", "where", "columns"))
    math = b.role(
        "math",
        *begin,
        b.wait("full", at()),
        b.fence("wgmma"),
        *((touch,) if early else ()),
        product,
        b.commit("wgmma", "lanes"),
        *(() if early else (touch,)),
        b.gwait("wgmma", executor="lanes", ready=("acc",)),
        warps=4,
        tiles=tiles,
    )
    return b.kernel(
        "flight",
        (load, math),
        smem={"w": Smem((8, 64), "bf16", swizzle=128), "s": Smem((64, 64), "bf16", swizzle=128), "sums": Smem((64, 8))},
        mbarriers={"full": (1, 1)},
        tensors={"gw": ((8, 64), "bf16", "in"), "in16": ((64, 64), "bf16", "in"), "sums32": ((64, 8), "f32", "inout")},
        boxes={"gw": ((8, 64), 128)},
    )


@details
def registers() -> Iterator[Detail]:
    """What is read may be read; what is only read may not be written; an accumulator may not be touched."""
    a, v16, acc = _reg("a", "bf16"), _reg("v16", "bf16"), _reg("acc")
    best, where = _reg("best"), _reg("where", "i32")
    line = elements("in16")
    argmax: dict[str, Any] = {"_function": "argmax"}
    same: dict[str, Any] = {"_function": "max", "_axis": 1, "_scope": "warp"}
    writes = {
        "assign.dst": _op("assign", A16, dst=a, value=v16),
        "load.dst": _op(
            "load", A16, dst=a, src=x.Ref(base="in16", subs=(x.Elem(index=Axis(axis="row")), line.subs[-1]))
        ),
        "reduce.dst": _op("reduce", A16, dst=a, value=v16, **same),
        "argreduce.dst": _op(
            "argreduce", A16, dst=a, index=_reg("columns", "i32"), value=v16, _function="argmax", _scope="warp"
        ),
    }
    columns = _reg("columns", "i32")
    for op, more in (("track", argmax), ("topk", {})):
        writes[f"{op}.best"] = _op(op, A16, best=a, column=columns, value=v16, first=integer(0), _group=1, **more)
    for name, touch in writes.items():
        yield Detail(f"{name} in flight", _flight(touch), ("D206",))
    yield Detail("assign.value: an operand in flight may be read", _flight(_op("assign", A16, dst=v16, value=a)))
    reads = {
        "argreduce.value": _op(
            "argreduce", F32, dst=_reg("top"), index=_reg("at", "i32"), value=acc, _scope="warp", **argmax
        ),
        "track.value": _op("track", F32, best=best, column=where, value=acc, first=integer(0), _group=1, **argmax),
        "topk.value": _op("topk", F32, best=best, column=where, value=acc, first=integer(0), _group=1),
        "atomic.value": _op(
            "atomic",
            F32,
            dst=x.Ref(base="sums32", subs=(x.Elem(index=Axis(axis="row")), x.Elem(index=Axis(axis="col")))),
            value=acc,
            _function="add",
        ),
        "mma.d": _op("mma", d=acc, a=v16, b=_reg("b16", "bf16")),
    }
    for name, touch in reads.items():
        yield Detail(f"{name} in flight", _flight(touch), ("D206",))
    fragment = box("s", (0, 64), (0, 64))
    filled = _flight(_op("ldmatrix", dst=a, src=fragment))
    yield Detail("ldmatrix.dst in flight", _written(filled), ("D206",))
    pairs: dict[str, dict[str, Any]] = {"a": {"a": a, "b": _reg("b16", "bf16")}, "b": {"a": v16, "b": a}}
    for name, operands in pairs.items():
        whole = _reg("v") if name == "a" else _reg("square")
        k = _flight(_op("mma", d=whole, **operands), early=True)
        yield Detail(f"mma.{name} after the fence", _square(k), ("F306",))


@details
def unset() -> Iterator[Detail]:
    """Registers that nothing has set: of an operand each, in part, under a condition, and those that need not be set."""
    v, whole = _reg("v"), _reg("v16", "bf16")
    sums: dict[str, Any] = {"_function": "sum", "_axis": 1, "_scope": "warp"}
    best: dict[str, Any] = {"value": v, "first": integer(0), "_function": "argmax", "_group": 1}
    where = _reg("where", "i32")
    reads = {
        "assign.value": ("v", _op("assign", F32, dst=v, value=v)),
        "reduce.value": ("v", _op("reduce", F32, dst=_reg("top"), value=v, **sums)),
        "track.best": ("best", _op("track", F32, best=_reg("best"), column=where, **best)),
        "mma.d": ("v", _op("mma", d=v, a=whole, b=_reg("b16", "bf16"))),
        "store.value": ("v16", _op("stmatrix", A16, dst=box("s", (0, 64), (0, 64)), value=whole)),
    }
    for name, (tile, touch) in reads.items():
        yield Detail(f"{name}: nothing set it", _without(tile, _flight(touch, early=True)), ("D209",))
    nothing = _op("assign", F32, dst=v, value=v)
    yield Detail("accumulators that a product overwrites", _without("acc", _flight(nothing, early=True)))
    adds = edit(_without("acc", _flight(nothing, early=True)), _adds)
    yield Detail("accumulators that a product adds to", adds, ("D209",))
    yield Detail("wgmma.a: nothing set it", _without("a", _flight(nothing, early=True)), ("D209",))
    rows = _op("assign", F32, dst=v.model_copy(update={"cols": (0, 4)}), value=Const(value=0.0, dtype="f32"))
    rest = rows.model_copy(update={"operands": {**rows.operands, "dst": v.model_copy(update={"cols": (4, 8)})}})
    for name, parts, codes in (("half", (rows,), ("D209",)), ("both halves", (rows, rest), ())):
        k = _without("v", _flight(nothing, early=True))
        yield Detail(f"{name} of a tile", _begun(k, *parts), codes)
    for taken, codes in ((0, ("D209",)), (1, ())):
        init = b.when(b.test("==", CTA, 1 - taken), b.zero("v", F32))
        yield Detail(f"a tile set if {taken}", _begun(_without("v", _flight(nothing, early=True)), init), codes)


def _adds(node: x.Stmt) -> x.Stmt:
    wgmma = isinstance(node, x.Op) and node.op == "wgmma"
    return node.model_copy(update={"operands": {**node.operands, "use_acc": b.boolean(True)}}) if wgmma else node


def _without(tile: str, k: x.Kernel) -> x.Kernel:
    """Without its initialisation."""
    return edit(k, lambda n: None if isinstance(n, x.Op) and n.op == "assign" and _zeroes(n, tile) else n, "math")


def _zeroes(n: x.Op, tile: str) -> bool:
    return isinstance(n.operands["value"], Const) and n.reg("dst").name == tile


def _begun(k: x.Kernel, *more: x.Stmt) -> x.Kernel:
    """With more at the start of the consumer."""
    role = k.roles[1]
    return k.model_copy(update={"roles": (k.roles[0], role.model_copy(update={"body": (*more, *role.body)}))})


def _written(k: x.Kernel) -> x.Kernel:
    """With the shared tile ``s`` written by all warps first."""
    fill = _op("stmatrix", A16, dst=box("s", (0, 64), (0, 64)), value=_reg("v16", "bf16"))
    role = k.roles[1]
    at_wait = next(i for i, n in enumerate(role.body) if isinstance(n, x.Wait))
    body = (*role.body[:at_wait], fill, b.sync("four"), *role.body[at_wait:])
    named = (*k.named, x.NamedBarrier(name="four", id=2, threads=128))
    return k.model_copy(update={"roles": (k.roles[0], role.model_copy(update={"body": body})), "named": named})


def _square(k: x.Kernel) -> x.Kernel:
    """With a tile for the product of two 64 x 64 operands."""
    role = k.roles[1]
    square = b.TileType(dtype="f32", shape=(64, 64), layout=FRAG)
    body = (b.zero("square", square), *role.body)
    return k.model_copy(
        update={
            "roles": (k.roles[0], role.model_copy(update={"body": body, "tiles": {**role.tiles, "square": square}}))
        }
    )


# ---- memory of threads ----------------------------------------------------------------------------------------------


def _two(first: tuple[x.Stmt, ...], second: tuple[x.Stmt, ...], **more: Any) -> x.Kernel:
    """Two roles of a warp."""
    tiles = {"r": R32, "v16": b.TileType(dtype="bf16", shape=(16, 64), layout=FRAG)}
    roles = [b.role(n, *body, tiles=tiles) for n, body in (("p", first), ("q", second))]
    return b.kernel("two", roles, named=(PAIR,), **more)


def _ctas(name: str, first: tuple[x.Stmt, ...], second: tuple[x.Stmt, ...], **more: Any) -> x.Kernel:
    """A warp of each of two CTAs."""
    programs = [b.when(b.test("==", CTA, n), *body) for n, body in enumerate((first, second))]
    return b.kernel(name, (b.role("w", *programs, tiles={"r": R32}),), grid=2, **more)


ADD = _op("atomic", R32, dst=elements("out"), value=Const(value=1.0, dtype="f32"), _function="add")
OUT: dict[str, Any] = {"out": ((1, 32), "f32", "inout"), "count": ((1, 1), "i32", "inout")}
DRAW = x.Op(
    op="draw",
    executor="one",
    operands={"dst": Sym(name="n", dtype="i32"), "counter": b.first("count"), "last": integer(7)},
)


def _counted(executor: x.Executor = "one") -> x.Op:
    tile = b.TileType(dtype="i32", shape=(1, 1), layout=b.SPREAD)
    zero = Const(value=0, dtype="i32")
    return x.Op(op="store", executor=executor, operands={"dst": elements("count"), "value": zero}, type=tile)


@details
def threads() -> Iterator[Detail]:
    """Atomics, counters, flags, fragments: what conflicts with them, and that they go through the generic proxy."""
    read, write = b.read(elements("out"), 32), b.write(elements("out"), 32)
    meet = b.sync("pair")
    yield Detail("atomic against a load", _ctas("a", (ADD,), (read,), tensors=OUT), ("M401",), ctas=2)
    yield Detail("atomics together", _ctas("a", (ADD,), (ADD,), tensors=OUT), ctas=2)
    yield Detail("atomic after a store", _two((write, meet), (meet, ADD), tensors=OUT))
    yield Detail("draw against a store", _ctas("d", (DRAW,), (_counted(),), tensors=OUT), ("M401",), ctas=2)
    yield Detail(
        "draw against a load",
        _ctas("d", (DRAW,), (b.read_scalar(b.first("count"), "m"),), tensors=OUT),
        ("M401",),
        ctas=2,
    )
    yield Detail("draws together", _ctas("d", (DRAW,), (DRAW,), tensors=OUT), ctas=2)
    yield Detail("draw after a store", _two((_counted(), meet), (meet, DRAW), tensors=OUT))
    ask = b.read_scalar(b.first("count"), "m")
    yield Detail("signal against a load", _ctas("s", (b.signal("count", 1),), (ask,), tensors=OUT), ("M401",), ctas=2)
    tile = box("s", (0, 16), (0, 64))
    zero = b.zero("v16", b.TileType(dtype="bf16", shape=(16, 64), layout=FRAG))
    fill = _op("stmatrix", zero.type, dst=tile, value=_reg("v16", "bf16"))
    smem = {"s": Smem((16, 64), "bf16", swizzle=128)}
    yield Detail("stmatrix after stmatrix", _two((zero, fill, meet), (zero, meet, fill), smem=smem))
    copy = b.cp_async(box("s", (0, 1), (0, 32)), box("out", (0, 1), (0, 32)))
    wait = (b.commit("cp_async", "lanes"), b.gwait("cp_async", executor="lanes"))
    line: dict[str, Any] = {"smem": {"s": Smem((1, 32))}, "tensors": OUT}
    yield Detail("cp.async of data stored before", _two((write, meet), (meet, copy, *wait), **line))
    yield Detail("cp.async against a store", _two((write,), (copy, *wait), **line), ("D201",))


# ---- bulk copies ----------------------------------------------------------------------------------------------------


def _bulk(op: str, src: str = "s", base: str = "out") -> x.Op:
    operands: dict[str, Any] = {"dst": box(base, (0, 1), (0, 32)), "src": box(src, (0, 1), (0, 32))}
    attrs: dict[str, x.Attribute] = {"map": f"{base}.map"}
    if op == "tma.reduce":
        attrs["function"] = "add"
    return x.Op(op=op, executor="one", operands=operands, attrs=attrs, completion=x.ByGroup(queue="bulk"))


LINE: dict[str, Any] = {
    "smem": {"s": Smem((1, 32)), "t": Smem((1, 32))},
    "tensors": OUT,
    "boxes": {"out": ((1, 32), 0)},
}


def _staged(op: str, *after: x.Stmt, fence: tuple[x.Stmt, ...] = (FENCE,)) -> tuple[x.Stmt, ...]:
    """A line is written to shared memory, fenced, and handed to a bulk operation."""
    return b.write(elements("s"), 32), *fence, SYNCWARP, _bulk(op), b.commit("bulk"), *after


FULL = (b.gwait("bulk"), SYNCWARP)


@details
def bulk() -> Iterator[Detail]:
    """Sources and destinations of bulk stores and reductions."""
    add, read, again = "tma.reduce", b.read(elements("out"), 32), b.write(elements("s"), 32)
    k = b.kernel("r", (b.role("w", *_staged(add, again, *FULL)),), **LINE)
    yield Detail("reduction's source overwritten", k, ("D207",))
    k = b.kernel("r", (b.role("w", *_staged(add, *FULL, fence=())),), **LINE)
    yield Detail("reduction's source without a fence", k, ("F301",))
    two = _staged(add, *FULL)
    yield Detail("reduction against a load", _ctas("r", two, (read,), **LINE), ("M401",), ctas=2)
    yield Detail("reductions together", _ctas("r", two, two, **LINE), ctas=2)
    yield Detail("reduction against atomics", _ctas("r", two, (ADD,), **LINE), ("M404",), ctas=2)
    bars: dict[str, Any] = {"mbarriers": {"full": (1, 1)}}
    back = (
        b.expect("full", at(), 128, arrives=True),
        b.tma_load(box("t", (0, 1), (0, 32)), box("out", (0, 1), (0, 32)), "full", at(), 128),
        b.wait("full", at()),
    )
    k = b.kernel("r", (b.role("w", *_staged("tma.store", *FULL, *back)),), **LINE, **bars)
    yield Detail("what a bulk store wrote comes back by a bulk load", k)
    late = (*back[:2], SYNCWARP, b.write(elements("out"), 32), back[2])
    yield Detail("bulk load's source overwritten", b.kernel("r", (b.role("w", *late),), **LINE, **bars), ("D201",))
    half = (b.gwait("bulk", read=True), SYNCWARP, read, b.gwait("bulk"))
    k = b.kernel("r", (b.role("w", *_staged(add, *half), tiles={"r": R32}),), **LINE)
    yield Detail("reduction's destination read before its end", k, ("F310",))
    yield from _read_before()
    yield from _published()


def _read_before() -> Iterator[Detail]:
    """A global line is read by ordinary loads, then overwritten by a bulk store of another warp."""
    meet, read = b.sync("pair"), b.read(elements("out"), 32)
    store = (*_staged("tma.store", *FULL)[:-4], meet, *_staged("tma.store", *FULL)[-4:])
    yield Detail("read, fence, bulk store over it", _two((read, GLOBAL, meet), store, **LINE))
    yield Detail("read, bulk store over it", _two((read, meet), store, **LINE), ("F302",), practice=())


def _published() -> Iterator[Detail]:
    """A global line is written by one warp, fenced by a second that has seen it, and loaded by a third."""
    third = x.NamedBarrier(name="next", id=2, threads=64)
    write = b.write(elements("out"), 32)
    take = (
        b.expect("full", at(), 128),
        b.tma_load(box("t", (0, 1), (0, 32)), box("out", (0, 1), (0, 32)), "full", at(), 128),
        b.wait("full", at()),
    )
    roles = [
        b.role("p", write, b.sync("pair")),
        b.role("q", b.sync("pair"), GLOBAL, b.sync("next")),
        b.role("r", b.sync("next"), *take),
    ]
    k = b.kernel("relay", roles, named=(PAIR, third), mbarriers={"full": (1, 1)}, **LINE)
    yield Detail("fenced by a thread that has seen the write", k, ("F303",), practice=())


# ---- what scopes and semantics carry on -----------------------------------------------------------------------------


def _relay(scope: x.Scope, sem: x.Semantics, *, operation: bool) -> x.Kernel:
    """Rank 0: a warp writes a line of rank 1 (or of its own by cp.async, which rank 1 reads), meets a second warp, and that one
    arrives at rank 1's barrier. Rank 1 waits and reads."""
    line = elements("x", peer=integer(1))
    there: tuple[x.Stmt, ...] = (b.write(line, 32),)
    read: x.Op = b.read(elements("x"), 32)
    if operation:
        there = (
            b.cp_async(box("x", (0, 1), (0, 32)), box("src", (0, 1), (0, 32))),
            b.commit("cp_async", "lanes"),
            b.gwait("cp_async", executor="lanes"),
        )
        read = b.read(elements("x", peer=integer(0)), 32)
    zero, one = (b.test("==", RANK, n) for n in (0, 1))
    send = (b.sync("pair"), b.arrive("full", at(), executor="warp", scope=scope, sem=sem, peers=(1,)))
    receive = b.when(one, b.wait("full", at(), scope="cluster"), read)
    p = b.role("p", b.when(zero, *there, b.sync("pair")), CLUSTER, tiles={"r": R32})
    q = b.role("q", b.when(zero, *send), receive, CLUSTER, tiles={"r": R32})
    return b.kernel(
        "relay",
        (p, q),
        smem={"x": Smem((1, 32))},
        mbarriers={"full": (1, 1)},
        named=(PAIR,),
        tensors={"src": ((1, 32), "f32", "in")},
        cluster=2,
    )


@details
def scopes() -> Iterator[Detail]:
    """A write reaches the arriving warp through another one; then the arrival is too narrow, or relaxed."""
    for operation in (False, True):
        what = "copy" if operation else "store"
        yield Detail(f"relayed {what}, cluster scope", _relay("cluster", "release", operation=operation))
        yield Detail(f"relayed {what}, CTA scope", _relay("cta", "release", operation=operation), ("F304",))
        yield Detail(f"relayed {what}, relaxed", _relay("cluster", "relaxed", operation=operation), ("F305",))


# ---- phases ---------------------------------------------------------------------------------------------------------


@details
def phases() -> Iterator[Detail]:
    """Two warps write a line each and arrive, twice. The second arrival of the one may come in the first phase."""
    for ordered in (True, False):
        arrive = SYNCWARP, b.arrive("full", at(), executor="warp")
        again = SYNCWARP, b.arrive("full", at(1), executor="warp")
        until = (b.wait("free", at()),)
        p = b.role("p", b.write(elements("x"), 32), *arrive, *until, *again)
        q = b.role("q", b.write(elements("y"), 32), *arrive, *(until if ordered else ()), *again)
        use = b.role(
            "use",
            b.wait("full", at()),
            b.read(elements("x"), 32),
            b.read(elements("y"), 32),
            SYNCWARP,
            b.arrive("free", at(), executor="warp"),
            b.wait("full", at(1)),
            tiles={"r": R32},
        )
        smem = {"x": Smem((1, 32)), "y": Smem((1, 32))}
        k = b.kernel("phases", (p, q, use), smem=smem, mbarriers={"full": (2, 1), "free": (1, 1)})
        yield Detail(f"second arrivals {'in order' if ordered else 'early'}", k, () if ordered else ("P102",))


# ---- what the execution itself refuses ------------------------------------------------------------------------------


def _alone(name: str, *body: x.Stmt, **more: Any) -> x.Kernel:
    """One warp."""
    return b.kernel(name, (b.role("w", *body, tiles={"r": R32}),), **more)


@details
def execution() -> Iterator[Detail]:
    """Barriers with the wrong company, registers, bytes, places outside."""
    x32 = {"x": Smem((1, 32))}
    one: dict[str, Any] = {"mbarriers": {"full": (1, 1)}, "smem": x32}
    yield Detail("a wait that nothing satisfies", _alone("w", b.wait("full", at()), **one), ("P101",))
    lost = (b.expect("full", at(), 128), b.wait("full", at()))
    yield Detail("bytes that never come", _alone("w", *lost, **one), ("P104", "P101"))
    narrow = x.NamedBarrier(name="pair", id=1, threads=32)
    k = _two((b.sync("pair"),), (b.sync("pair"),)).model_copy(update={"named": (_two((), ()).named[0], narrow)})
    yield Detail("two warps at a barrier of one", k, ("P114",))
    wide = x.NamedBarrier(name="pair", id=1, threads=48)
    k = k.model_copy(update={"named": (k.named[0], wide)})
    yield Detail("two warps at a barrier of a warp and a half", k, ("P115",))
    twice_c = (x.Cluster(form="arrive"), x.Cluster(form="arrive"), x.Cluster(form="wait"))
    yield Detail("two arrivals at the cluster barrier", _alone("c", *twice_c, cluster=2), ("P116",), ctas=2)
    alone = (x.Cluster(form="wait"),)
    yield Detail("a wait for the cluster barrier alone", _alone("c", *alone, cluster=2), ("P116",), ctas=2)
    for count, form, codes in ((240, "inc", ("W702",)), (240, "dec", ("W703",)), (24, "dec", ())):
        change = x.SetMaxNReg(form=form, count=count)  # type: ignore[arg-type]
        k = b.kernel("r", (b.role("w", change, warps=4),)).model_copy(update={"launch_registers": 128})
        yield Detail(f"{form} to {count} registers of 128", k, codes)
    much = b.expect("full", at(), 1 << 20)
    yield Detail("more bytes than a barrier counts", _alone("w", much, **one), ("W710",))
    out = x.Ref(base="x", subs=(x.Point(at=integer(0)), x.Elem(index=b.i32("+", Axis(axis="col"), 1))))
    yield Detail("an element outside", _alone("o", b.write(out, 32), smem=x32), ("O503",))
    unset = b.when(b.test("==", Sym(name="n", dtype="i32"), 1))
    yield Detail("a scalar that nothing has set", _alone("u", unset), ("D209",))
    given = {"in": ((1, 32), "f32", "in")}
    yield Detail("a store to an input", _alone("i", b.write(elements("in"), 32), tensors=given), ("M405",))
    fence = b.fence("wgmma", "one")
    yield Detail("a collective by one lane", b.kernel("c", (b.role("w", fence, warps=4),)), ("C601",))


@details
def places() -> Iterator[Detail]:
    """Buffers on the same bytes, one after the other or at once."""
    smem = {"x": Smem((1, 32)), "y": Smem((1, 32), alias="x")}
    meet = b.sync("pair")
    write, read = b.write(elements("x"), 32), b.read(elements("y"), 32)
    yield Detail("two buffers on one place", _two((write,), (b.write(elements("y"), 32), read), smem=smem), ("D210",))
    ordered = _two((write, meet), (meet, b.write(elements("y"), 32), read), smem=smem)
    yield Detail("two buffers on one place, in turn", ordered)


@details
def words() -> Iterator[Detail]:
    """A word that a store writes publishes nothing."""
    tensors: dict[str, Any] = {"flag": ((1, 1), "i32", "inout")}
    tile = b.TileType(dtype="i32", shape=(1, 1), layout=b.SPREAD)
    one = Const(value=1, dtype="i32")
    store = x.Op(op="store", executor="one", operands={"dst": elements("flag"), "value": one}, type=tile)
    k = _ctas("s", (store,), (b.wait_until("flag", 1),), tensors=tensors)
    yield Detail("a wait for what a store writes", k, ("M401", "M402"), ctas=2)
    ones = (b.signal("flag", 1),)
    yield Detail(
        "two signals without an order", _ctas("s", ones, (b.signal("flag", 2),), tensors=tensors), ("M402",), ctas=2
    )
    first = (*ones, b.wait_until("flag", 2), *ones)
    second = (b.wait_until("flag", 1), b.signal("flag", 2))
    programs = [
        b.when(b.test("==", CTA, n), *body) for n, body in enumerate((first, second, (b.wait_until("flag", 1),)))
    ]
    k = b.kernel("again", (b.role("w", *programs),), grid=3, tensors=tensors)
    yield Detail("a wait that comes after a value's return, and may not", k, ("M402",), ctas=2)
