"""The GEMM of docs/language.md, expanded by hand: what the expander must produce, and a fixture for machine and emitter."""

from __future__ import annotations

from cake.ir import expanded as x
from cake.ir.expr import Apply, Expr, Reg, Sym, integer
from cake.ir.layout import Layout, TileType

FRAG = Layout(kind="frag")


def _i(op: str, *args: Expr | int) -> Expr:
    return Apply(op=op, args=tuple(integer(a) if isinstance(a, int) else a for a in args), dtype="i32")


def _box(*subs: tuple[Expr | int, int]) -> tuple[x.Sub, ...]:
    return tuple(x.Range(start=integer(s) if isinstance(s, int) else s, size=n) for s, n in subs)


def gemm(bm: int = 128, bn: int = 256, bk: int = 64, stages: int = 4, group: int = 16) -> x.Kernel:
    """C[M, N] = A[M, K] @ B[N, K].T in bf16; two math instances of 64 rows; ``bm`` must be 128."""
    m, n, k, m0, n0, kk, k0, pos = (Sym(name=s) for s in ("t.m", "t.n", "K", "t.m0", "t.n0", "k", "k0", "t.pos"))
    M, N = Sym(name="M"), Sym(name="N")
    tiles_m, tiles_n = _i("cdiv", M, bm), _i("cdiv", N, bn)
    positions = _i("*", tiles_m, tiles_n)
    kt = _i("cdiv", k, bk)
    first = Sym(name="t.first")
    width = _i("*", tiles_n, group)
    decode: tuple[x.Stmt, ...] = tuple(
        x.Let(name=name, dtype="i32", value=value, reason="tiles")
        for name, value in (
            ("t.first", _i("*", _i("//", pos, width), group)),
            ("t.span", _i("min", _i("-", tiles_m, first), group)),
            ("t.m", _i("+", first, _i("%", _i("%", pos, width), Sym(name="t.span")))),
            ("t.n", _i("//", _i("%", pos, width), Sym(name="t.span"))),
            ("t.m0", _i("*", m, bm)),
            ("t.n0", _i("*", n, bn)),
        )
    )

    def tiles(body: tuple[x.Stmt, ...]) -> x.For:
        return x.For(
            var="t.pos", lo=Sym(name="%cta"), hi=positions, step=Sym(name="%grid"), role="tiles", body=decode + body
        )

    a_bytes, b_bytes = bm * bk * 2, bn * bk * 2
    fill = x.Slot(cursor="ab.fill")
    load_body: tuple[x.Stmt, ...] = (
        x.Let(name="k0", dtype="i32", value=_i("*", kk, bk)),
        x.Wait(executor="one", barrier="ab.empty", slot=fill, ahead=-1, reason="acquire"),
        x.Arrive(
            executor="one",
            barrier="ab.full",
            slot=fill,
            form="arrive_expect",
            bytes=a_bytes + b_bytes,
            reason="announce",
        ),
        x.Op(
            executor="one",
            op="tma.load",
            operands={
                "dst": x.Ref(base="ab.a", slot=fill, subs=_box((0, bm), (0, bk))),
                "src": x.Ref(base="a", subs=_box((m0, bm), (k0, bk))),
            },
            attrs={"map": "a.map"},
            completion=x.ByBarrier(barrier="ab.full", slot=fill, bytes=a_bytes),
        ),
        x.Op(
            executor="one",
            op="tma.load",
            operands={
                "dst": x.Ref(base="ab.b", slot=fill, subs=_box((0, bn), (0, bk))),
                "src": x.Ref(base="b", subs=_box((n0, bn), (k0, bk))),
            },
            attrs={"map": "b.map"},
            completion=x.ByBarrier(barrier="ab.full", slot=fill, bytes=b_bytes),
        ),
        x.Cursor(cursor="ab.fill", reason="advance"),
    )
    load = x.Role(
        name="load",
        first_warp=0,
        warps=4,
        solo=True,
        registers=40,
        cursors={"ab.fill": stages},
        body=(
            x.SetMaxNReg(form="dec", count=40, reason="registers"),
            tiles((x.For(var="k", lo=integer(0), hi=kt, step=integer(1), body=load_body),)),
            x.Exit(reason="exit"),
        ),
    )
    w = Sym(name="w")
    held = x.Slot(cursor="s")
    release: tuple[x.Stmt, ...] = (
        x.SyncWarp(reason="release"),
        x.Arrive(executor="warp", barrier="ab.empty", slot=x.Slot(cursor="ab.wait", back=2), reason="release"),
    )
    math_body: tuple[x.Stmt, ...] = (
        x.Wait(barrier="ab.full", slot=x.Slot(cursor="ab.wait"), reason="ab.wait"),
        x.Cursor(cursor="s", form="copy", source="ab.wait", reason="handle"),
        x.Cursor(cursor="ab.wait", reason="advance"),
        x.Fence(what="wgmma", reason="wgmma"),
        x.Op(
            op="wgmma",
            operands={
                "d": Reg(name="acc", dtype="f32"),
                "a": x.Ref(base="ab.a", slot=held, subs=_box((_i("*", 64, w), 64), (0, bk))),
                "b": x.Ref(base="ab.b", slot=held, subs=_box((0, bn), (0, bk)), transposed=True),
                "use_acc": Apply(op=">", args=(kk, integer(0)), dtype="bool"),
            },
            completion=x.ByGroup(queue="wgmma"),
        ),
        x.Commit(queue="wgmma", reason="wgmma"),
        x.GroupWait(queue="wgmma", keep=1),
        x.If(cond=Apply(op=">", args=(kk, integer(0)), dtype="bool"), then=release, reason="release"),
    )
    store_slot = x.Slot(cursor="cs.fill")
    chunks: list[x.Stmt] = []
    for i in range(bn // 64):
        chunks += [
            x.GroupWait(executor="one", queue="bulk", keep=1, read=True, reason="store ring"),
            x.Named(barrier="math", reason="store ring"),
            x.Op(
                op="stmatrix",
                operands={
                    "dst": x.Ref(base="cs.c", slot=store_slot, subs=_box((0, 64), (0, 64))),
                    "value": Apply(
                        op="cast", args=(Reg(name="acc", dtype="f32", cols=(64 * i, 64 * i + 64)),), dtype="bf16"
                    ),
                },
                type=TileType(dtype="bf16", shape=(64, 64), layout=FRAG),
            ),
            x.Fence(what="async_shared", reason="store ring"),
            x.Named(barrier="math", reason="store ring"),
            x.Op(
                executor="one",
                op="tma.store",
                operands={
                    "dst": x.Ref(base="c", subs=_box((Sym(name="r0"), 64), (_i("+", n0, 64 * i), 64))),
                    "src": x.Ref(base="cs.c", slot=store_slot, subs=_box((0, 64), (0, 64))),
                },
                attrs={"map": "c.map"},
                completion=x.ByGroup(queue="bulk"),
            ),
            x.Commit(executor="one", queue="bulk", reason="store ring"),
            x.Cursor(cursor="cs.fill", reason="advance"),
        ]
    math = x.Role(
        name="math",
        first_warp=4,
        warps=4,
        instances=2,
        var="w",
        registers=232,
        tiles={"acc": TileType(dtype="f32", shape=(64, bn), layout=FRAG)},
        cursors={"ab.wait": stages, "s": stages, "cs.fill": 2},
        body=(
            x.SetMaxNReg(form="inc", count=232, reason="registers"),
            tiles(
                (
                    x.For(var="k", lo=integer(0), hi=kt, step=integer(1), body=math_body),
                    x.GroupWait(queue="wgmma", keep=0, ready=("acc",)),
                    x.SyncWarp(reason="release"),
                    x.Arrive(
                        executor="warp", barrier="ab.empty", slot=x.Slot(cursor="ab.wait", back=1), reason="release"
                    ),
                    x.Let(name="r0", dtype="i32", value=_i("+", m0, _i("*", 64, w))),
                    *chunks,
                )
            ),
            x.GroupWait(executor="one", queue="bulk", keep=0, read=True, reason="drain"),
            x.Exit(reason="exit"),
        ),
    )
    b_at = stages * a_bytes
    c_at = b_at + stages * b_bytes
    bar_at = c_at + 2 * 2 * 8192
    div8 = [
        x.Condition(
            text=f"{s} % 8 == 0",
            expr=Apply(op="==", args=(_i("%", Sym(name=s), 8), integer(0)), dtype="bool"),
        )
        for s in ("K", "N")
    ]
    return x.Kernel(
        name="gemm",
        target="sm_90a",
        constants={"BM": bm, "BN": bn, "BK": bk, "STAGES": stages, "GROUP": group},
        tensors=(
            x.Tensor(name="a", dtype="bf16", shape=(M, k)),
            x.Tensor(name="b", dtype="bf16", shape=(N, k)),
            x.Tensor(name="c", dtype="bf16", shape=(M, N), direction="out"),
        ),
        dims=(
            x.Dim(name="M", tensor="a", axis=0),
            x.Dim(name="K", tensor="a", axis=1),
            x.Dim(name="N", tensor="b", axis=0),
        ),
        guards=tuple(div8),
        schedule="persistent",
        positions=positions,
        grid=_i("min", positions, _i("*", Sym(name="%sms"), Sym(name="%resident"))),
        threads=384,
        launch_registers=168,
        shared_bytes=bar_at + 2 * stages * 8,
        buffers=(
            x.Buffer(
                name="ab.a",
                dtype="bf16",
                shape=(bm, bk),
                swizzle=128,
                slots=stages,
                offset=0,
                slot_bytes=a_bytes,
                instance_bytes=0,
            ),
            x.Buffer(
                name="ab.b",
                dtype="bf16",
                shape=(bn, bk),
                swizzle=128,
                slots=stages,
                offset=b_at,
                slot_bytes=b_bytes,
                instance_bytes=0,
            ),
            x.Buffer(
                name="cs.c",
                dtype="bf16",
                shape=(64, 64),
                swizzle=128,
                slots=2,
                instances=2,
                offset=c_at,
                slot_bytes=8192,
                instance_bytes=16384,
            ),
        ),
        barriers=(
            x.Barrier(name="ab.full", count=1, slots=stages, offset=bar_at),
            x.Barrier(name="ab.empty", count=8, slots=stages, offset=bar_at + 8 * stages),
        ),
        named=(
            x.NamedBarrier(name="cta", id=0, threads=384),
            x.NamedBarrier(name="math", id=1, size=2, threads=128, per_instance=True),
        ),
        rings=(
            x.Ring(name="ab", slots=stages, kind="mbarrier", fields=("ab.a", "ab.b"), full="ab.full", empty="ab.empty"),
            x.Ring(name="cs", slots=2, kind="store", fields=("cs.c",)),
        ),
        maps=(
            x.TensorMap(name="a.map", tensor="a", box=(bm, bk), swizzle=128),
            x.TensorMap(name="b.map", tensor="b", box=(bn, bk), swizzle=128),
            x.TensorMap(name="c.map", tensor="c", box=(64, 64), swizzle=128),
        ),
        entry=(
            x.Init(executor="one", barrier="ab.full", reason="prologue"),
            x.Init(executor="one", barrier="ab.empty", reason="prologue"),
            x.Fence(executor="one", what="mbarrier_init", reason="prologue"),
            x.Named(barrier="cta", reason="prologue"),
        ),
        roles=(load, math),
    )
