"""Whole kernels expanded by hand, for what only ptxas decides: whether wgmma groups stay asynchronous, and
registers."""

from __future__ import annotations

from typing import Any

from cake.ir import expanded as x
from cake.ir.expr import Expr, Reg, integer
from tests.codegen.build import (
    COL,
    ROW,
    ap,
    assign,
    box,
    buffer,
    cast,
    elems,
    f32,
    let,
    load,
    reduce,
    reg,
    store,
    sym,
    tensor,
    tile,
)

ONE: dict[str, Any] = {"executor": "one"}


def fill(
    ring: str, fields: tuple[tuple[str, tuple[x.Sub, ...], str, tuple[x.Sub, ...]], ...], sizes: tuple[int, ...]
) -> tuple[x.Stmt, ...]:
    """Acquire, announce, copy, advance."""
    slot = x.Slot(cursor=f"{ring}.fill")
    copies = tuple(
        x.Op(
            op="tma.load",
            operands={
                "dst": x.Ref(base=f"{ring}.{field}", slot=slot, subs=dst),
                "src": x.Ref(base=source, subs=src),
            },
            attrs={"map": f"{source}.map"},
            completion=x.ByBarrier(barrier=f"{ring}.full", slot=slot, bytes=size),
            **ONE,
        )
        for (field, dst, source, src), size in zip(fields, sizes, strict=True)
    )
    return (
        x.Wait(barrier=f"{ring}.empty", slot=slot, ahead=-1, reason="acquire", **ONE),
        x.Arrive(barrier=f"{ring}.full", slot=slot, form="arrive_expect", bytes=sum(sizes), reason="announce", **ONE),
        *copies,
        x.Cursor(cursor=f"{ring}.fill", reason="advance"),
    )


def wait(ring: str, handle: str) -> tuple[x.Stmt, ...]:
    """Wait for the next stage and keep a handle."""
    return (
        x.Wait(barrier=f"{ring}.full", slot=x.Slot(cursor=f"{ring}.wait"), reason=f"{ring}.wait"),
        x.Cursor(cursor=handle, form="copy", source=f"{ring}.wait", reason="handle"),
        x.Cursor(cursor=f"{ring}.wait", reason="advance"),
    )


def release(ring: str, back: int = 1) -> tuple[x.Stmt, ...]:
    """Give a stage back, one arrival a warp."""
    slot = x.Slot(cursor=f"{ring}.wait", back=back)
    return (
        x.SyncWarp(reason="release"),
        x.Arrive(barrier=f"{ring}.empty", slot=slot, executor="warp", reason="release"),
    )


def wgmma(d: Reg, a: x.Ref | Reg, b: x.Ref, use_acc: Expr | None = None) -> tuple[x.Stmt, ...]:
    """One committed group."""
    operands: dict[str, Any] = {"d": d, "a": a, "b": b} | ({"use_acc": use_acc} if use_acc is not None else {})
    return (
        x.Fence(what="wgmma", reason="wgmma"),
        x.Op(op="wgmma", operands=operands, completion=x.ByGroup(queue="wgmma")),
        x.Commit(queue="wgmma", reason="wgmma"),
    )


def turn(name: str, body: tuple[x.Stmt, ...], instances: int) -> tuple[x.Stmt, ...]:
    """Enter in order of instances; leaving passes the turn on."""
    following = ap("%", ap("+", sym("w"), 1), instances)
    return (
        x.Named(barrier=name, index=sym("w"), reason="turn"),
        *body,
        x.Named(barrier=name, index=following, form="arrive", reason="turn"),
    )


def loop(var: str, lo: Expr | int, hi: Expr | int, body: tuple[x.Stmt, ...], piece: int | None = None) -> x.For:
    """A written range."""
    lo, hi = (integer(e) if isinstance(e, int) else e for e in (lo, hi))
    return x.For(var=var, lo=lo, hi=hi, step=integer(1), body=body, piece=piece)


def tiles(var: str, positions: Expr, body: tuple[x.Stmt, ...]) -> x.For:
    """The CTA's tiles."""
    return x.For(var=var, lo=sym("%cta"), hi=positions, step=sym("%grid"), role="tiles", body=body)


def rings(**counts: tuple[int, int]) -> tuple[x.Barrier, ...]:
    """Barriers at the end of shared memory: name -> (slots, consumer warps)."""
    out, at = [], 231000 // 1024 * 1024
    for name, (slots, consumers) in counts.items():
        out.append(x.Barrier(name=f"{name}.full", count=1, slots=slots, offset=at))
        out.append(x.Barrier(name=f"{name}.empty", count=consumers, slots=slots, offset=at + 8 * slots))
        at += 16 * slots
    return tuple(out)


def prologue(barriers: tuple[x.Barrier, ...]) -> tuple[x.Stmt, ...]:
    """Initialise and publish."""
    return (
        *(x.Init(barrier=b.name, reason="prologue", **ONE) for b in barriers),
        x.Fence(what="mbarrier_init", reason="prologue", **ONE),
        x.Named(barrier="cta", reason="prologue"),
    )


# ---- Flash-KMeans assign --------------------------------------------------------------------------------------------


def kmeans(wgs: int = 4, bn: int = 128, stages: int = 3, d: int = 128) -> x.Kernel:
    """ids = argmax of x . c + half: four warpgroups in turns, accumulators preloaded, argmax in groups of four."""
    bm, w, k0 = 64 * wgs, sym("w"), sym("k0")
    N, K, B = sym("N"), sym("K"), sym("B")
    per = ap("cdiv", N, bm)
    positions = ap("*", B, per)
    decode = (
        let("b", ap("//", sym("pos"), per)),
        let("n0", ap("*", ap("%", sym("pos"), per), bm)),
    )
    kt = ap("cdiv", K, bn)
    acc, v, best = reg("acc"), reg("v"), reg("best")
    c, ids = reg("c", "i32"), reg("ids", "i32")
    barriers = rings(points=(2, 4 * wgs), cents=(stages, 4 * wgs))
    load_role = x.Role(
        name="load",
        first_warp=0,
        warps=4,
        solo=True,
        cursors={"points.fill": 2, "cents.fill": stages},
        body=(
            tiles(
                "pos",
                positions,
                (
                    *decode,
                    *fill(
                        "points",
                        (("x", box((0, bm), (0, d)), "x", (x.Point(at=sym("b")), *box((sym("n0"), bm), (0, d)))),),
                        (bm * d * 2,),
                    ),
                    loop(
                        "j",
                        0,
                        kt,
                        (
                            let("k0", ap("*", sym("j"), bn)),
                            *fill(
                                "cents",
                                (
                                    ("c", box((0, bn), (0, d)), "c", (x.Point(at=sym("b")), *box((k0, bn), (0, d)))),
                                    ("h", box((0, bn)), "half", (x.Point(at=sym("b")), *box((k0, bn)))),
                                ),
                                (bn * d * 2, bn * 4),
                            ),
                        ),
                    ),
                ),
            ),
            x.Exit(reason="exit"),
        ),
    )
    held, point = x.Slot(cursor="s"), x.Slot(cursor="p")
    limit = ap("<", ap("+", k0, COL), K)
    part = tile("f32", 64, 4)
    math_body = (
        let("k0", ap("*", sym("j"), bn)),
        *wait("cents", "s"),
        load(acc, x.Ref(base="cents.h", slot=held, subs=elems(COL))),
        x.If(cond=ap(">=", sym("j"), ap("//", K, bn)), then=(assign(acc, ap("where", limit, acc, float("-inf"))),)),
        *turn(
            "turn",
            wgmma(
                acc,
                x.Ref(base="points.x", slot=point, subs=box((ap("*", 64, w), 64), (0, d))),
                x.Ref(base="cents.c", slot=held, subs=box((0, bn), (0, d)), transposed=True),
            ),
            wgs,
        ),
        x.GroupWait(queue="wgmma", keep=0, ready=("acc",)),
        *release("cents"),
        x.Op(
            op="argreduce",
            operands={"dst": v, "index": c, "value": acc},
            attrs={"function": "argmax", "scope": "thread"},
            type=tile("f32", 64, bn),
        ),
        assign(ids, ap("where", ap(">", v, best), ap("+", k0, c), ids)),
        assign(best, ap("where", ap(">", v, best), v, best)),
    )
    row = ap("+", ap("+", sym("n0"), ap("*", 64, w)), ROW)
    math = x.Role(
        name="math",
        first_warp=4,
        warps=4,
        instances=wgs,
        var="w",
        tiles={
            "acc": tile("f32", 64, bn),
            "v": part,
            "best": part,
            "c": tile("i32", 64, 4),
            "ids": tile("i32", 64, 4),
            "top": tile("f32", 64, 1),
            "id": tile("i32", 64, 1),
        },
        cursors={"points.wait": 2, "cents.wait": stages, "s": stages, "p": 2},
        body=(
            x.If(
                cond=ap("==", w, wgs - 1),
                then=(x.Named(barrier="turn", index=integer(0), form="arrive", reason="turn"),),
            ),
            tiles(
                "pos",
                positions,
                (
                    *decode,
                    *wait("points", "p"),
                    assign(best, float("-inf")),
                    assign(ids, 0),
                    loop("j", 0, kt, math_body),
                    *release("points"),
                    reduce(reg("top"), best, part, "max"),
                    assign(ids, ap("where", ap("==", best, reg("top")), ids, 2**31 - 1)),
                    reduce(reg("id", "i32"), ids, tile("i32", 64, 4), "min"),
                    store(
                        x.Ref(base="out", subs=elems(sym("b"), row)),
                        reg("id", "i32"),
                        tile("i32", 64, 1),
                        where=ap("<", row, N),
                    ),
                ),
            ),
            x.Exit(reason="exit"),
        ),
    )
    c_at = 2 * bm * d * 2
    h_at = c_at + stages * bn * d * 2
    return x.Kernel(
        name="kmeans",
        target="sm_90a",
        tensors=(
            tensor("x", "bf16", "B", "N", d),
            tensor("c", "bf16", "B", "K", d),
            tensor("half", "f32", "B", "K"),
            tensor("out", "i32", "B", "N", out=True),
        ),
        dims=(
            x.Dim(name="B", tensor="x", axis=0),
            x.Dim(name="N", tensor="x", axis=1),
            x.Dim(name="K", tensor="c", axis=1),
        ),
        positions=positions,
        grid=positions,
        threads=128 * (wgs + 1),
        shared_bytes=231000,
        buffers=(
            buffer("points.x", "bf16", bm, d, offset=0, slots=2, swizzle=128),
            buffer("cents.c", "bf16", bn, d, offset=c_at, slots=stages, swizzle=128),
            buffer("cents.h", "f32", bn, offset=h_at, slots=stages),
        ),
        barriers=barriers,
        named=(
            x.NamedBarrier(name="cta", id=0, threads=128 * (wgs + 1)),
            x.NamedBarrier(name="turn", id=1, size=wgs, threads=256),
        ),
        maps=(
            x.TensorMap(name="x.map", tensor="x", box=(1, bm, 64), swizzle=128),
            x.TensorMap(name="c.map", tensor="c", box=(1, bn, 64), swizzle=128),
            x.TensorMap(name="half.map", tensor="half", box=(1, bn)),
        ),
        entry=prologue(barriers),
        roles=(load_role, math),
    )


# ---- attention forward, not causal ----------------------------------------------------------------------------------


def attention(bn: int = 128, d: int = 128) -> x.Kernel:
    """The skewed loop of docs/language.md in three pieces (first, steady, last), two warpgroups in turns."""
    bm, w = 128, sym("w")
    blocks, n = sym("blocks"), sym("S")
    s, o, top, new, fade, den, rowsum, rowmax = (
        reg(q) for q in ("s", "o", "top", "new", "fade", "den", "rowsum", "rowmax")
    )
    p, scale = reg("p", "bf16"), sym("scale", "f32")
    per = ap("cdiv", n, bm)
    positions = ap("*", sym("H"), per)
    decode = (
        let("h", ap("//", sym("pos"), per)),
        let("m0", ap("*", ap("%", sym("pos"), per), bm)),
        let("blocks", ap("cdiv", n, bn)),
    )
    barriers = rings(qs=(1, 8), ks=(2, 8), vs=(2, 8))

    def rows(start: Expr, size: int) -> tuple[x.Sub, ...]:
        return (x.Point(at=sym("h")), *box((start, size), (0, d)))

    k_fill = fill("ks", (("k", box((0, bn), (0, d)), "k", rows(ap("*", sym("i"), bn), bn)),), (bn * d * 2,))
    v_fill = fill("vs", (("v", box((0, bn), (0, d)), "v", rows(ap("*", ap("-", sym("i"), 1), bn), bn)),), (bn * d * 2,))
    load_role = x.Role(
        name="load",
        first_warp=0,
        warps=4,
        solo=True,
        registers=24,
        cursors={"qs.fill": 1, "ks.fill": 2, "vs.fill": 2},
        body=(
            x.SetMaxNReg(form="dec", count=24, reason="registers"),
            tiles(
                "pos",
                positions,
                (
                    *decode,
                    *fill("qs", (("q", box((0, bm), (0, d)), "q", rows(sym("m0"), bm)),), (bm * d * 2,)),
                    loop(
                        "i",
                        0,
                        ap("+", blocks, 1),
                        (
                            x.If(cond=ap("<", sym("i"), blocks), then=k_fill),
                            x.If(cond=ap(">", sym("i"), 0), then=v_fill),
                        ),
                    ),
                ),
            ),
            x.Exit(reason="exit"),
        ),
    )
    q_ref = x.Ref(base="qs.q", slot=x.Slot(cursor="qt"), subs=box((ap("*", 64, w), 64), (0, d)))
    k_ref = x.Ref(base="ks.k", slot=x.Slot(cursor="kb"), subs=box((0, bn), (0, d)), transposed=True)
    v_ref = x.Ref(base="vs.v", slot=x.Slot(cursor="vb"), subs=box((0, bn), (0, d)))
    qk = (*wait("ks", "kb"), *wgmma(s, q_ref, k_ref, use_acc=ap("<", 0, 0)))
    pv = (*wait("vs", "vb"), *wgmma(o, p, v_ref))
    st, o_t = tile("f32", 64, bn), tile("f32", 64, d)

    def softmax(keep: int, second: bool, mask: bool = False) -> tuple[x.Stmt, ...]:
        column = ap("+", ap("*", sym("i"), bn), COL)
        return (
            x.GroupWait(queue="wgmma", keep=keep, ready=("s",)),
            *release("ks"),
            *((assign(s, ap("where", ap("<", column, n), s, float("-inf"))),) if mask else ()),
            reduce(rowmax, s, st, "max"),
            assign(new, ap("max", top, rowmax)),
            assign(fade, ap("exp2", ap("*", ap("-", top, new), scale))),
            assign(s, ap("exp2", ap("-", ap("*", s, scale), ap("*", new, scale)))),
            reduce(rowsum, s, st, "sum", scope="thread"),
            assign(den, ap("+", ap("*", den, fade), rowsum)),
            assign(top, new),
            *(
                (x.GroupWait(queue="wgmma", keep=0, ready=("o",)), *release("vs"), assign(o, ap("*", o, fade)))
                if second
                else ()
            ),
            assign(p, cast(s, "bf16")),
        )

    total = reg("total")
    row = ap("+", ap("+", sym("m0"), ap("*", 64, w)), ROW)
    math = x.Role(
        name="math",
        first_warp=4,
        warps=4,
        instances=2,
        var="w",
        registers=240,
        tiles={"s": st, "p": tile("bf16", 64, bn), "o": o_t}
        | {q: tile("f32", 64, 1) for q in ("top", "new", "fade", "rowmax", "total")}
        | {q: tile("f32", 64, 4) for q in ("den", "rowsum")},
        cursors={"qs.wait": 1, "qt": 1, "ks.wait": 2, "kb": 2, "vs.wait": 2, "vb": 2},
        body=(
            x.SetMaxNReg(form="inc", count=240, reason="registers"),
            x.If(cond=ap("==", w, 1), then=(x.Named(barrier="turn", index=integer(0), form="arrive", reason="turn"),)),
            tiles(
                "pos",
                positions,
                (
                    *decode,
                    assign(top, f32(-1e30)),
                    assign(den, 0.0),
                    assign(o, 0.0),
                    *wait("qs", "qt"),
                    loop("i", 0, 1, (*turn("turn", qk, 2), *softmax(0, False)), piece=0),
                    loop("i", 1, ap("-", blocks, 1), (*turn("turn", (*qk, *pv), 2), *softmax(1, True)), piece=1),
                    loop(
                        "i",
                        ap("-", blocks, 1),
                        blocks,
                        (*turn("turn", (*qk, *pv), 2), *softmax(1, True, True)),
                        piece=2,
                    ),
                    *turn("turn", pv, 2),
                    x.GroupWait(queue="wgmma", keep=0, ready=("o",)),
                    *release("vs"),
                    reduce(total, den, tile("f32", 64, 4), "sum"),
                    assign(o, ap("where", ap(">", total, 0.0), ap("/", o, total), 0.0)),
                    *release("qs"),
                    store(
                        x.Ref(base="y", subs=elems(sym("h"), row, COL)),
                        cast(o, "bf16"),
                        tile("bf16", 64, d),
                        where=ap("<", row, n),
                    ),
                ),
            ),
            x.Exit(reason="exit"),
        ),
    )
    size = bm * d * 2
    return x.Kernel(
        name="attention",
        target="sm_90a",
        tensors=(*(tensor(t, "bf16", "H", "S", d) for t in "qkv"), tensor("y", "bf16", "H", "S", d, out=True)),
        scalars=(x.ScalarParam(name="scale", dtype="f32"),),
        dims=(x.Dim(name="H", tensor="q", axis=0), x.Dim(name="S", tensor="q", axis=1)),
        positions=positions,
        grid=positions,
        threads=384,
        launch_registers=168,
        shared_bytes=231000,
        buffers=(
            buffer("qs.q", "bf16", bm, d, offset=0, swizzle=128),
            buffer("ks.k", "bf16", bn, d, offset=size, slots=2, swizzle=128),
            buffer("vs.v", "bf16", bn, d, offset=3 * size, slots=2, swizzle=128),
        ),
        barriers=barriers,
        named=(x.NamedBarrier(name="cta", id=0, threads=384), x.NamedBarrier(name="turn", id=1, size=2, threads=256)),
        maps=tuple(x.TensorMap(name=f"{t}.map", tensor=t, box=(1, 128, 64), swizzle=128) for t in "qkv"),
        entry=prologue(barriers),
        roles=(load_role, math),
    )


# ---- Ampere GEMM ----------------------------------------------------------------------------------------------------


def ampere(target: str = "sm_80", stages: int = 4) -> x.Kernel:
    """Multistage cp.async ring, eight warps of 64 x 32, ldmatrix and mma (the steady piece and its prologue)."""
    bm = bn = 128
    bk = 32
    w, kk, f = sym("w"), sym("k"), sym("f")
    M, N, K = sym("M"), sym("N"), sym("K")
    kt = sym("kt")
    r, wm, wn = ap("*", 16, w), ap("%", w, 2), ap("//", w, 2)
    fill_slot, held = x.Slot(cursor="ab.fill"), x.Slot(cursor="s")

    def copy(field: str, source: str, start: Expr) -> x.Op:
        return x.Op(
            op="cp_async",
            operands={
                "dst": x.Ref(base=f"ab.{field}", slot=fill_slot, subs=box((r, 16), (0, bk))),
                "src": x.Ref(base=source, subs=box((ap("+", start, r), 16), (ap("*", f, bk), bk))),
            },
            completion=x.ByGroup(queue="cp_async"),
        )

    filling = (
        copy("a", "a", sym("m0")),
        copy("b", "b", sym("n0")),
        x.Commit(queue="cp_async"),
        x.Cursor(cursor="ab.fill", reason="advance"),
    )
    xs, zs = reg("xa", "bf16"), reg("zb", "bf16")
    products: list[x.Stmt] = []
    for i in range(bk // 16):
        a_ref = x.Ref(base="ab.a", slot=held, subs=box((ap("*", 64, wm), 64), (16 * i, 16)))
        b_ref = x.Ref(base="ab.b", slot=held, subs=box((ap("*", 32, wn), 32), (16 * i, 16)))
        products += [
            x.Op(op="ldmatrix", operands={"dst": xs, "src": a_ref}, reason="mma"),
            x.Op(op="ldmatrix", operands={"dst": zs, "src": b_ref}, reason="mma"),
            x.Op(op="mma", operands={"d": reg("acc"), "a": xs, "b": zs}),
        ]
    steady = (
        x.GroupWait(queue="cp_async", keep=stages - 2, reason="ab.wait"),
        x.Cursor(cursor="s", form="copy", source="ab.wait", reason="handle"),
        x.Cursor(cursor="ab.wait", reason="advance"),
        x.Named(barrier="math", reason="sync"),
        let("f", ap("+", kk, stages - 1)),
        x.If(cond=ap("<", f, kt), then=filling, orelse=(x.Commit(queue="cp_async", reason="empty group"),)),
        *products,
    )
    acc_t = tile("f32", 64, 32)
    row = ap("+", ap("+", sym("m0"), ap("*", 64, wm)), ROW)
    col = ap("+", ap("+", sym("n0"), ap("*", 32, wn)), COL)
    inside = ap("and", ap("<", row, M), ap("<", col, N))
    tiles_n = ap("cdiv", N, bn)
    prologue_fills = loop(
        "q",
        0,
        stages - 1,
        (let("f", sym("q")), x.If(cond=ap("<", f, kt), then=filling, orelse=(x.Commit(queue="cp_async"),))),
    )
    positions = ap("*", ap("cdiv", M, bm), tiles_n)
    return x.Kernel(
        name="gemm_ampere",
        target=target,
        tensors=(tensor("a", "bf16", "M", "K"), tensor("b", "bf16", "N", "K"), tensor("c", "bf16", "M", "N", out=True)),
        dims=(
            x.Dim(name="M", tensor="a", axis=0),
            x.Dim(name="K", tensor="a", axis=1),
            x.Dim(name="N", tensor="b", axis=0),
        ),
        positions=positions,
        grid=positions,
        threads=256,
        shared_bytes=stages * 2 * bm * bk * 2,
        buffers=(
            buffer("ab.a", "bf16", bm, bk, offset=0, slots=stages, swizzle=64),
            buffer("ab.b", "bf16", bn, bk, offset=stages * bm * bk * 2, slots=stages, swizzle=64),
        ),
        named=(x.NamedBarrier(name="math", id=1, threads=256),),
        roles=(
            x.Role(
                name="math",
                first_warp=0,
                warps=1,
                instances=8,
                var="w",
                tiles={"acc": acc_t, "xa": tile("bf16", 64, 16), "zb": tile("bf16", 32, 16)},
                cursors={"ab.fill": stages, "ab.wait": stages, "s": stages},
                body=(
                    let("m0", ap("*", ap("//", sym("%cta"), tiles_n), bm)),
                    let("n0", ap("*", ap("%", sym("%cta"), tiles_n), bn)),
                    let("kt", ap("cdiv", K, bk)),
                    assign(reg("acc"), 0.0),
                    prologue_fills,
                    loop("k", 0, kt, steady),
                    store(
                        x.Ref(base="c", subs=elems(row, col)), cast(reg("acc"), "bf16"), acc_t, where=inside, vector=2
                    ),
                    x.Exit(reason="exit"),
                ),
            ),
        ),
    )
