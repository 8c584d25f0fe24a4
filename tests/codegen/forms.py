"""One small kernel for each form of each operation: name -> (targets, builder)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cake.ir import expanded as x
from cake.ir.elementwise import ELEMENTWISE
from cake.ir.expr import Const, Expr, integer
from cake.ir.layout import Layout, TileType
from tests.codegen.build import (
    COL,
    PERWARP,
    ROW,
    ap,
    assign,
    box,
    buffer,
    cast,
    elems,
    kernel,
    let,
    load,
    reduce,
    reg,
    spread,
    store,
    sym,
    tensor,
    tile,
)

HOPPER, EVERY = ("sm_90a",), ("sm_80", "sm_90a")
Build = Callable[[str], x.Kernel]
FORMS: dict[str, tuple[tuple[str, ...], Build]] = {}


def form(name: str, targets: tuple[str, ...] = EVERY) -> Callable[[Build], Build]:
    """Register a builder."""

    def register(f: Build) -> Build:
        FORMS[name] = (targets, f)
        return f

    return register


def moved(target: str, dtype: str, t: TileType, body: Sequence[x.Node], **more: Any) -> x.Kernel:
    """Load v from x, run ``body``, store v to y."""
    v = reg("v", dtype)
    tensors = (tensor("x", dtype, t.rows, t.cols), tensor("y", dtype, t.rows, t.cols, out=True))
    statements = (
        load(v, x.Ref(base="x", subs=elems(ROW, COL))),
        *body,
        store(x.Ref(base="y", subs=elems(ROW, COL)), v, t),
    )
    more.setdefault("tiles", {})
    more["tiles"] = {"v": t, **more["tiles"]}
    return kernel("form", statements, tensors=tensors, target=target, **more)  # type: ignore[arg-type]


# ---- elementwise ----------------------------------------------------------------------------------------------------


def arguments(name: str, v: Expr) -> Expr:
    """The operation on a tile value of the kind it takes."""
    row = ELEMENTWISE[name]
    if name == "where":
        return ap("where", ap(">", v, v), v, v)
    if name == "cast":
        return cast(cast(v, "i32" if v.dtype != "i32" else "f32"), v.dtype)
    args = (v,) * row.arity
    if row.operands == "bool":
        compared = tuple(ap(">", a, a) for a in args)
        return ap("where", ap(name, *compared), v, v)
    result = ap(name, *args)
    return ap("where", result, v, v) if row.result == "bool" else result


for _name, _row in ELEMENTWISE.items():
    for _dtype in (
        ("i32",) if _row.operands == "int" else ("f32", "bf16", "f16") + (() if _row.operands == "float" else ("i32",))
    ):

        def _build(target: str, name: str = _name, dtype: str = _dtype) -> x.Kernel:
            return moved(
                target, dtype, tile(dtype, 64, 16), [assign(reg("v", dtype), arguments(name, reg("v", dtype)))]
            )

        form(f"elementwise {_name} {_dtype}")(_build)


def _cast_form(source: str, result: str) -> Build:
    def build(target: str) -> x.Kernel:
        s, r = tile(source, 1, 512, layout=spread(4)), tile(result, 1, 512, layout=spread(4))
        body = [
            load(reg("s", source), x.Ref(base="x", subs=elems(COL))),
            assign(reg("r", result), cast(reg("s", source), result)),
            store(x.Ref(base="y", subs=elems(COL)), reg("r", result), r),
        ]
        tensors = (tensor("x", source, 512), tensor("y", result, 512, out=True))
        return kernel("form", body, tensors=tensors, tiles={"s": s, "r": r}, warps=1, target=target)

    return build


_TYPES = ("f32", "bf16", "f16", "e4m3", "e5m2", "i32", "i64", "i8", "u8", "tf32")
for _source in _TYPES:
    for _result in _TYPES:
        if _source != _result:
            _narrow = any(t in ("e4m3", "e5m2") for t in (_source, _result))
            form(f"cast {_source} to {_result}", HOPPER if _narrow else EVERY)(_cast_form(_source, _result))


# ---- element moves --------------------------------------------------------------------------------------------------


@form("masked vectors of 16 bytes")
def _masked(target: str) -> x.Kernel:
    t, inside = tile("bf16", 1, 2048, layout=spread(8)), ap("<", COL, sym("N"))
    body = [
        load(
            reg("v", "bf16"),
            x.Ref(base="x", subs=elems(COL)),
            where=inside,
            other=Const(value=0.0, dtype="bf16"),
            vector=8,
        ),
        store(x.Ref(base="y", subs=elems(COL)), reg("v", "bf16"), t, where=inside, vector=8),
    ]
    tensors = (tensor("x", "bf16", "N"), tensor("y", "bf16", "N", out=True))
    return kernel("form", body, tensors=tensors, tiles={"v": t}, target=target)


@form("masked elements and strides")
def _strided(target: str) -> x.Kernel:
    t, inside = tile("bf16", 64, 16), ap("and", ap("<", ROW, sym("M")), ap("<", COL, sym("N")))
    body = [
        load(reg("v", "bf16"), x.Ref(base="x", subs=elems(ROW, COL)), where=inside),
        store(x.Ref(base="y", subs=elems(ROW, COL)), reg("v", "bf16"), t, where=inside),
    ]
    tensors = (tensor("x", "bf16", "M", "N", strided=True), tensor("y", "bf16", "M", "N", out=True))
    return kernel("form", body, tensors=tensors, tiles={"v": t}, target=target)


@form("gather and scatter by register indices")
def _gather(target: str) -> x.Kernel:
    t, ids = tile("f32", 64, 8), tile("i32", 64, 8)
    body = [
        load(reg("at", "i32"), x.Ref(base="ids", subs=elems(ROW, COL))),
        load(reg("v"), x.Ref(base="x", subs=elems(reg("at", "i32"), COL)), where=ap(">=", reg("at", "i32"), 0)),
        store(
            x.Ref(base="y", subs=elems(reg("at", "i32"), COL)), reg("v"), t, where=ap("<", reg("at", "i32"), sym("M"))
        ),
    ]
    tensors = (tensor("ids", "i32", 64, 8), tensor("x", "f32", "M", 8), tensor("y", "f32", "M", 8, out=True))
    return kernel("form", body, tensors=tensors, tiles={"v": t, "at": ids}, target=target)


@form("L2 hint")
def _hint(target: str) -> x.Kernel:
    t = tile("f32", 1, 512, layout=spread(4))
    body = [
        load(reg("v"), x.Ref(base="x", subs=elems(COL)), l2="evict_first"),
        store(x.Ref(base="y", subs=elems(COL)), reg("v"), t),
    ]
    tensors = (tensor("x", "f32", 512), tensor("y", "f32", 512, out=True))
    return kernel("form", body, tensors=tensors, tiles={"v": t}, target=target)


@form("scalars")
def _scalars(target: str) -> x.Kernel:
    n = sym("n")
    body = [
        x.Op(op="load_scalar", operands={"dst": n, "src": x.Ref(base="x", subs=elems(sym("%cta")))}),
        x.Op(
            op="load_scalar",
            operands={
                "dst": sym("h", "bf16"),
                "src": x.Ref(base="z", subs=elems(n)),
                "where": ap(">", n, 0),
                "other": Const(value=0.5, dtype="bf16"),
            },
        ),
        store(x.Ref(base="y", subs=elems(n)), cast(sym("h", "bf16"), "f32"), None),
        x.Op(
            op="atomic",
            operands={"dst": x.Ref(base="y", subs=elems(n)), "value": Const(value=1.0, dtype="f32")},
            attrs={"function": "add"},
            executor="one",
        ),
        x.If(
            cond=ap("==", ap("%", n, 3), 0),
            then=(let("q", ap("//", n, 7)), store(x.Ref(base="y", subs=elems(sym("q"))), cast(sym("q"), "f32"), None)),
            orelse=(x.SyncWarp(),),
        ),
    ]
    tensors = (tensor("x", "i32", "M"), tensor("z", "bf16", "M"), tensor("y", "f32", "M", out=True))
    return kernel("form", body, tensors=tensors, target=target)


@form("flags")
def _flags(target: str) -> x.Kernel:
    flag = x.Ref(base="f", subs=elems(sym("%cta")))
    body = [
        x.Op(op="wait_until", operands={"flag": flag, "value": sym("M")}, executor="one"),
        x.Op(op="signal", operands={"flag": flag, "value": ap("+", sym("M"), 1)}, executor="one"),
    ]
    return kernel("form", body, tensors=(tensor("f", "i32", "M", out=True),), target=target)


for _function in ("add", "min", "max"):
    for _dtype in ("f32", "i32"):
        for _where in ("global", "shared"):

            def _atomic(target: str, function: str = _function, dtype: str = _dtype, where: str = _where) -> x.Kernel:
                t = tile(dtype, 64, 1)
                body = [
                    assign(reg("v", dtype), cast(ROW, dtype) if dtype == "f32" else ROW),
                    x.Op(
                        op="atomic",
                        operands={
                            "dst": x.Ref(base="y" if where == "global" else "s", subs=elems(ROW)),
                            "value": reg("v", dtype),
                            "where": ap("<", ROW, sym("M")),
                        },
                        attrs={"function": function},
                        type=t,
                    ),
                ]
                buffers = (buffer("s", dtype, 64),)
                return kernel(
                    "form",
                    body,
                    tensors=(tensor("y", dtype, "M", out=True),),
                    tiles={"v": t},
                    buffers=buffers,
                    target=target,
                )

            form(f"atomic {_function} {_dtype} {_where}")(_atomic)


@form("elements of a peer's shared memory", HOPPER)
def _peer(target: str) -> x.Kernel:
    t = tile("f32", 64, 8)
    mine, other = (
        x.Ref(base="s", subs=elems(ROW, COL)),
        x.Ref(base="s", subs=elems(ROW, COL), peer=ap("-", 1, sym("%rank"))),
    )
    body = [
        assign(reg("v"), cast(ROW, "f32")),
        store(mine, reg("v"), t),
        x.Cluster(),
        load(reg("v"), other),
        store(other, reg("v"), t),
        x.Cluster(form="arrive", sem="relaxed"),
        x.Cluster(form="wait"),
    ]
    return kernel("form", body, tiles={"v": t}, buffers=(buffer("s", "f32", 64, 8),), target=target, cluster=2)


# ---- matrices -------------------------------------------------------------------------------------------------------


def _product(
    n: int, depth: int, dtype: str, rows: int = 64, swizzle: int = 128, a_t: bool = False, b_t: bool = True
) -> Build:
    def build(target: str) -> x.Kernel:
        a = buffer("a", dtype, *((depth, rows) if a_t else (rows, depth)), swizzle=swizzle, slots=2)
        b = buffer("b", dtype, *((n, depth) if b_t else (depth, n)), offset=2 * a.slot_bytes, swizzle=swizzle, slots=2)
        slot = x.Slot(cursor="c", back=1)
        a_ref = x.Ref(base="a", slot=slot, subs=box(*((0, e) for e in a.shape)), transposed=a_t)
        b_ref = x.Ref(base="b", slot=slot, subs=box(*((0, e) for e in b.shape)), transposed=b_t)
        body: list[x.Node] = [
            assign(reg("d"), 0.0),
            x.Fence(what="wgmma"),
            x.Op(op="wgmma", operands={"d": reg("d"), "a": a_ref, "b": b_ref}),
            x.Commit(queue="wgmma"),
            x.Cursor(cursor="c"),
            x.GroupWait(queue="wgmma", keep=0, ready=("d",)),
            store(x.Ref(base="y", subs=elems(ROW, COL)), reg("d"), tile("f32", rows, n)),
        ]
        tensors = (tensor("y", "f32", rows, n, out=True),)
        return kernel(
            "form",
            body,
            tensors=tensors,
            tiles={"d": tile("f32", rows, n)},
            buffers=(a, b),
            cursors={"c": 2},
            target=target,
        )

    return build


for _n in (8, 24, 80, 128, 176, 256):
    form(f"wgmma n{_n} bf16", HOPPER)(_product(_n, 64, "bf16"))
for _dtype in ("f16", "e4m3", "e5m2", "tf32"):
    form(f"wgmma {_dtype}", HOPPER)(_product(64, 128 if _dtype[0] == "e" else 64, _dtype))
form("wgmma 2 blocks, MN-major A and B", HOPPER)(_product(128, 64, "bf16", rows=128, a_t=True, b_t=False))
form("wgmma swizzle 32", HOPPER)(_product(32, 48, "bf16", swizzle=32))
form("wgmma f16 MN-major B, swizzle 64", HOPPER)(_product(96, 32, "f16", swizzle=64, b_t=False))


@form("wgmma A from registers", HOPPER)
def _rs(target: str) -> x.Kernel:
    b = buffer("b", "bf16", 128, 64, swizzle=128)
    body: list[x.Node] = [
        load(reg("p", "bf16", lead=(1,)), x.Ref(base="x", subs=elems(ROW, COL))),
        x.Fence(what="wgmma"),
        x.Op(
            op="wgmma",
            operands={
                "d": reg("d"),
                "a": reg("p", "bf16", lead=(1,)),
                "b": x.Ref(base="b", subs=box((0, 128), (0, 64)), transposed=True),
                "use_acc": Const(value=False, dtype="bool"),
            },
        ),
        x.Commit(queue="wgmma"),
        x.GroupWait(queue="wgmma", ready=("d",)),
        store(x.Ref(base="y", subs=elems(ROW, COL)), cast(reg("d"), "bf16"), tile("bf16", 64, 128)),
    ]
    tensors = (tensor("x", "bf16", 64, 64), tensor("y", "bf16", 64, 128, out=True))
    return kernel(
        "form",
        body,
        tensors=tensors,
        tiles={"p": tile("bf16", 2, 64, 64), "d": tile("f32", 64, 128)},
        buffers=(b,),
        target=target,
    )


for _dtype in ("bf16", "f16"):
    for _t in (False, True):

        def _mma(target: str, dtype: str = _dtype, transposed: bool = _t) -> x.Kernel:
            a, b = (
                buffer("a", dtype, 32, 64, swizzle=128),
                buffer("b", dtype, *((64, 24) if transposed else (24, 64)), offset=4096, pad=8),
            )
            b_ref = x.Ref(
                base="b", subs=box((0, 64), (0, 16)) if transposed else box((0, 16), (0, 64)), transposed=transposed
            )
            body: list[x.Node] = [
                assign(reg("d"), 0.0),
                x.Op(
                    op="ldmatrix", operands={"dst": reg("a", dtype), "src": x.Ref(base="a", subs=box((0, 32), (0, 64)))}
                ),
                x.Op(op="ldmatrix", operands={"dst": reg("b", dtype), "src": b_ref}),
                x.Op(op="mma", operands={"d": reg("d"), "a": reg("a", dtype), "b": reg("b", dtype)}),
                store(x.Ref(base="y", subs=elems(ROW, COL)), reg("d"), tile("f32", 32, 16)),
            ]
            tiles = {"a": tile(dtype, 32, 64), "b": tile(dtype, 16, 64), "d": tile("f32", 32, 16)}
            return kernel(
                "form",
                body,
                tensors=(tensor("y", "f32", 32, 16, out=True),),
                tiles=tiles,
                buffers=(a, b),
                warps=1,
                target=target,
            )

        form(f"mma {_dtype}{' B by columns' if _t else ''}")(_mma)


@form("stmatrix", HOPPER)
def _stmatrix(target: str) -> x.Kernel:
    t = tile("bf16", 64, 40)
    plain = x.Ref(base="s", subs=box((0, 64), (0, 40)))
    turned = x.Ref(base="t", subs=box((0, 40), (0, 64)), transposed=True)
    body = [
        assign(reg("v"), cast(COL, "f32")),
        *(
            x.Op(op="stmatrix", operands={"dst": dst, "value": cast(reg("v"), "bf16")}, type=t)
            for dst in (plain, turned)
        ),
    ]
    buffers = (buffer("s", "bf16", 64, 40, pad=8), buffer("t", "bf16", 40, 64, offset=8192, swizzle=128))
    return kernel("form", body, tiles={"v": tile("f32", 64, 40)}, buffers=buffers, target=target)


# ---- reductions -----------------------------------------------------------------------------------------------------

for _function in ("sum", "min", "max"):
    for _dtype in ("f32", "bf16", "i32"):

        def _reduction(target: str, function: str = _function, dtype: str = _dtype) -> x.Kernel:
            row = tile(dtype, 64, 1)
            body: list[x.Node] = [
                reduce(reg("r", dtype), reg("v", dtype), tile(dtype, 64, 32), function),
                assign(reg("v", dtype), ap("+", reg("v", dtype), reg("r", dtype))),
            ]
            return moved(target, dtype, tile(dtype, 64, 32), body, tiles={"r": row})

        form(f"reduce {_function} {_dtype}")(_reduction)


@form("reduce across warps")
def _across(target: str) -> x.Kernel:
    body: list[x.Node] = [
        reduce(reg("w"), cast(reg("v", "bf16"), "f32"), tile("f32", 1, 1024, layout=spread(8)), "max"),
        store(x.Ref(base="s", subs=elems(COL)), reg("w"), tile("f32", 1, 4, layout=PERWARP)),
    ]
    tiles = {"w": tile("f32", 1, 4, layout=PERWARP)}
    return moved(
        target, "bf16", tile("bf16", 1, 1024, layout=spread(8)), body, tiles=tiles, buffers=(buffer("s", "f32", 4),)
    )


for _dtype in ("f32", "i32", "bf16"):

    def _arg(target: str, dtype: str = _dtype) -> x.Kernel:
        body: list[x.Node] = [
            x.Op(
                op="argreduce",
                operands={"dst": reg("r", dtype), "index": reg("at", "i32"), "value": reg("v", dtype)},
                attrs={"function": "argmin", "scope": "warp"},
                type=tile(dtype, 64, 24),
            ),
            store(
                x.Ref(base="y", subs=elems(ROW, 0)),
                reg("r", dtype),
                tile(dtype, 64, 1),
                where=ap(">", reg("at", "i32"), 3),
            ),
        ]
        return moved(
            target, dtype, tile(dtype, 64, 24), body, tiles={"r": tile(dtype, 64, 1), "at": tile("i32", 64, 1)}
        )

    form(f"argreduce {_dtype}")(_arg)


@form("draw")
def _draw(target: str) -> x.Kernel:
    body: list[x.Node] = [
        x.Op(
            op="draw",
            executor="one",
            operands={
                "dst": sym("n"),
                "counter": x.Ref(base="y", subs=(x.Point(at=integer(0)), x.Point(at=integer(0)))),
                "last": integer(7),
            },
        ),
        x.Op(
            op="store",
            executor="one",
            operands={"dst": x.Ref(base="y", subs=(x.Point(at=integer(0)), x.Point(at=integer(1)))), "value": sym("n")},
            attrs={"vector": 1},
        ),
    ]
    return kernel("form", tuple(body), tensors=(tensor("y", "i32", 4, 4, out=True),), target=target, tiles={})


for _function, _group in (("argmax", 1), ("argmax", 2), ("argmax", 4), ("argmin", 8)):

    def _track(target: str, function: str = _function, group: int = _group) -> x.Kernel:
        part, columns = tile("f32", 64, 4), tile("i32", 64, 4)
        body: list[x.Node] = [
            assign(reg("best"), 0.0),
            assign(reg("at", "i32"), 0),
            x.Op(
                op="track",
                operands={"best": reg("best"), "column": reg("at", "i32"), "value": reg("v"), "first": sym("%cta")},
                attrs={"function": function, "group": group},
                type=tile("f32", 64, 64),
            ),
            store(x.Ref(base="y", subs=elems(ROW, COL)), reg("best"), part, where=ap(">", reg("at", "i32"), 3)),
        ]
        return moved(target, "f32", tile("f32", 64, 64), body, tiles={"best": part, "at": columns})

    form(f"track {_function} group {_group}")(_track)


for _entries, _group, _floor in ((1, 2, False), (5, 4, False), (8, 4, True), (32, 8, False)):

    def _lists(target: str, entries: int = _entries, group: int = _group, floor: bool = _floor) -> x.Kernel:
        quad = Layout(kind="quad")
        lists, columns = tile("f32", 64, entries, layout=quad), tile("i32", 64, entries, layout=quad)
        body: list[x.Node] = [
            assign(reg("best"), float("-inf")),
            assign(reg("at", "i32"), -1),
            *([reduce(reg("floor"), reg("v"), tile("f32", 64, 64), "min")] if floor else []),
            x.Op(
                op="topk",
                operands={
                    "best": reg("best"),
                    "column": reg("at", "i32"),
                    "value": ap("*", reg("v"), 2.0) if entries == 5 else reg("v"),
                    "first": sym("%cta"),
                    **({"floor": reg("floor")} if floor else {}),
                },
                attrs={"group": group},
                type=tile("f32", 64, 64),
            ),
            store(x.Ref(base="y", subs=elems(ROW, COL)), reg("best"), lists, where=ap(">", reg("at", "i32"), 3)),
        ]
        tiles = {"best": lists, "at": columns, **({"floor": tile("f32", 64, 1)} if floor else {})}
        return moved(target, "f32", tile("f32", 64, 64), body, tiles=tiles)

    form(f"topk {_entries} group {_group}{' above a floor' * _floor}")(_lists)


# ---- block moves ----------------------------------------------------------------------------------------------------

_BARRIERS = (
    x.Barrier(name="full", count=1, slots=3, offset=65536),
    x.Barrier(name="empty", count=4, slots=3, offset=65560),
)


def _copies(rank: int, hint: bool, multicast: bool) -> Build:
    def build(target: str) -> x.Kernel:
        slot = x.Slot(cursor="c")
        shape = (2,) * (rank - 2) + (64, 128) if rank > 1 else (128,)
        subs = tuple(x.Point(at=sym("%cta")) for _ in shape[:-2]) + (
            box((8, 64), (0, 128)) if rank > 1 else box((0, 128))
        )
        local = box((0, 64), (0, 128)) if rank > 1 else box((0, 128))
        attrs: dict[str, Any] = {"map": "x.map"} | ({"l2": "evict_last"} if hint else {})
        b = buffer(
            "s", "bf16", *(e.size for e in local if isinstance(e, x.Range)), slots=3, swizzle=128 if rank > 1 else 0
        )
        one: dict[str, Any] = {"executor": "one"}
        load_attrs = attrs | ({"multicast": 3} if multicast else {})
        shared, outside = x.Ref(base="s", slot=slot, subs=local), x.Ref(base="x", subs=subs)
        body: list[x.Node] = [
            x.Op(op="tma.prefetch", operands={"src": outside}, attrs={"map": "x.map"}, **one),
            x.Wait(barrier="empty", slot=slot, ahead=-1, **one),
            x.Arrive(barrier="full", slot=slot, form="expect", bytes=100, **one),
            x.Arrive(barrier="full", slot=slot, form="arrive_expect", bytes=16384, **one),
            x.Op(
                op="tma.load",
                operands={"dst": shared, "src": outside},
                attrs=load_attrs,
                completion=x.ByBarrier(barrier="full", slot=slot),
                **one,
            ),
            x.Wait(barrier="full", slot=slot),
            x.Cursor(cursor="c"),
            x.SyncWarp(),
            x.Arrive(barrier="empty", slot=x.Slot(cursor="c", back=1), executor="warp", weight=2),
            x.Arrive(barrier="empty", slot=x.Slot(cursor="c", back=1), executor="warp", peers=(0, 1))
            if multicast
            else x.SyncWarp(),
            x.Fence(what="async_shared"),
            x.Op(op="tma.store", operands={"dst": outside, "src": shared}, attrs=attrs, **one),
            x.Op(
                op="tma.reduce",
                operands={"dst": outside, "src": shared},
                attrs={"map": "x.map", "function": "add"},
                **one,
            ),
            x.Commit(queue="bulk", **one),
            x.GroupWait(queue="bulk", keep=1, read=True, **one),
            x.GroupWait(queue="bulk", keep=0, **one),
        ]
        box_ = (1,) * (rank - 2) + ((64, 64) if rank > 1 else (128,))
        maps = (x.TensorMap(name="x.map", tensor="x", box=box_, swizzle=128 if rank > 1 else 0),)
        return kernel(
            "form",
            body,
            tensors=(tensor("x", "bf16", *shape, out=True),),
            buffers=(b,),
            cursors={"c": 3},
            maps=maps,
            barriers=_BARRIERS,
            target=target,
            cluster=2 if multicast else 1,
        )

    return build


for _rank in range(1, 6):
    form(f"tma {_rank}d", HOPPER)(_copies(_rank, False, False))
form("tma with a hint", HOPPER)(_copies(3, True, False))
form("tma multicast", HOPPER)(_copies(2, False, True))
form("tma multicast with a hint", HOPPER)(_copies(2, True, True))


@form("cp_async on a barrier")
def _cp_async(target: str) -> x.Kernel:
    slot = x.Slot(cursor="c")
    copy = x.Op(
        op="cp_async",
        operands={
            "dst": x.Ref(base="s", slot=slot, subs=box((0, 24), (0, 40))),
            "src": x.Ref(base="x", subs=(x.Point(at=sym("%cta")), *box((-3, 24), (8, 40)))),
        },
        completion=x.ByBarrier(barrier="full", slot=slot),
    )
    body: list[x.Node] = [
        x.Init(barrier="full", executor="one"),
        x.Fence(what="mbarrier_init", executor="one"),
        x.Named(barrier="all"),
        copy,
        x.Arrive(barrier="full", slot=slot),
        x.Wait(barrier="full", slot=slot),
        x.Cursor(cursor="c", by=2),
        x.Commit(queue="cp_async"),
        x.GroupWait(queue="cp_async", keep=0),
        x.Fence(what="thread", scope="gpu"),
    ]
    return kernel(
        "form",
        body,
        tensors=(tensor("x", "bf16", "B", "M", "N", strided=True),),
        buffers=(buffer("s", "bf16", 24, 40, slots=3, pad=8),),
        barriers=_BARRIERS,
        cursors={"c": 3},
        named=(x.NamedBarrier(name="all", id=0, threads=128),),
        target=target,
    )


@form("registers between roles, named barriers by index", HOPPER)
def _setmaxnreg(target: str) -> x.Kernel:
    body: list[x.Node] = [
        x.SetMaxNReg(form="inc", count=160),
        x.Named(barrier="turn", index=sym("w"), form="sync"),
        x.Named(barrier="turn", index=ap("%", ap("+", sym("w"), 1), 2), form="arrive"),
    ]
    named = (x.NamedBarrier(name="turn", id=3, size=2, threads=256),)
    return kernel("form", body, instances=2, named=named, target=target, launch_registers=128)


def operation_names(k: x.Kernel) -> set[str]:
    """Operations that occur in a kernel."""
    from cake.codegen.scoping import statements

    return {node.op for role in k.roles for _, node in statements(role.body) if isinstance(node, x.Op)}
