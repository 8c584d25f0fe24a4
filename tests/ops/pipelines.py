"""Pipelines: how stages fill and drain, several producers and consumers, kept handles, store rings, turns, barriers."""

from __future__ import annotations

import textwrap

import numpy as np

from tests.ops.form import Form, add
from tests.ops.values import Array, Rng, values, wide


def kernel(params: str, declare: str, **roles: str) -> str:
    """Declarations, then the bodies of roles by name (``name_w`` for an instance variable w)."""
    lines = [f"kernel k({params}) for sm_90a:", textwrap.indent(textwrap.dedent(declare).strip(), "    ")]
    for name, body in roles.items():
        role, _, var = name.partition("_")
        lines.append(f"    do {role}{' as ' + var if var else ''}:")
        lines.append(textwrap.indent(textwrap.dedent(body).strip(), "        "))
    return "\n".join(lines) + "\n"


STAGED = (1, 2, 3)


def _blocks(rng: Rng, kind: str) -> dict[str, Array]:
    return {"x": values(rng, kind, "f32", (8 * 64, 32))}


def _tma(stages: int, keep: int) -> None:
    """A TMA ring walked by one consumer that keeps the newest stages; each output block is the sum of what it holds."""

    def reference(x: Array) -> dict[str, Array]:
        b = x.reshape(8, 64, 32)
        out = [b[i] + b[i - 1] if keep and i else b[i] for i in range(8)]
        return {"y": np.stack(out).reshape(x.shape)}

    body = """
        v: f32[64, 32] frag
        u: f32[64, 32] frag
        for t in tiles:
            for i in range(8):
                s = p.wait()
                v = load(s.a[rows(v), cols(v)])
    """
    if keep:
        body += """
                if i > 0:
                    v = v + u
                u = load(s.a[rows(v), cols(v)])
                p.release(keep=1)
                store(y[64 * i + rows(v), cols(v)], v)
            p.release()
        """
    else:
        body += """
                p.release()
                store(y[64 * i + rows(v), cols(v)], v)
        """
    text = textwrap.dedent(body.replace("    \n", "\n"))
    add(
        Form(
            f"pipeline tma {stages} stages keep={keep}",
            kernel(
                "x: f32[512, 32], out y: f32[512, 32]",
                f"""
                tiles once:
                    i in 1
                role load: warps 1
                role work: warps 4
                pipeline p[{stages}] load -> work:
                    a: f32[64, 32] swizzle(128)
                """,
                load="""
                for t in tiles:
                    for i in range(8):
                        with p.fill() as s:
                            tma.load(s.a, x[64 * i : 64 * i + 64, :])
                """,
                work=text,
            ),
            _blocks,
            reference,
        )
    )


def _dedent_all() -> None:
    for stages in (1, 2, 4):
        _tma(stages, 0)
    for stages in (2, 3):
        _tma(stages, 1)


_dedent_all()

add(
    Form(
        "pipeline kept handle",
        kernel(
            "x: f32[512, 32], out y: f32[512, 32]",
            """
            tiles once:
                i in 1
            role load: warps 1
            role work: warps 4
            pipeline p[3] load -> work:
                a: f32[64, 32] swizzle(128)
            """,
            load="""
            for t in tiles:
                for i in range(8):
                    with p.fill() as s:
                        tma.load(s.a, x[64 * i : 64 * i + 64, :])
            """,
            work="""
            v: f32[64, 32] frag
            for t in tiles:
                prev = p.wait()
                for i in range(7):
                    s = p.wait()
                    v = load(s.a[rows(v), cols(v)]) - load(prev.a[rows(v), cols(v)])
                    store(y[64 * i + rows(v), cols(v)], v)
                    p.release(keep=1)
                    prev = s
                store(y[448 + rows(v), cols(v)], load(prev.a[rows(v), cols(v)]))
                p.release()
            """,
        ),
        _blocks,
        lambda x: {"y": np.concatenate([x[64:] - x[:-64], x[-64:]])},
    )
)

add(
    Form(
        "pipeline filled by stores",
        kernel(
            "x: bf16[512, 64], out y: f32[512, 64]",
            """
            tiles persistent:
                i in 8
            role make: warps 4
            role work: warps 4
            pipeline p[2] make -> work:
                a: bf16[64, 64] swizzle(128)
                b: f32[64]
            """,
            make="""
            v: bf16[64, 64] frag
            r: f32[64, 1] frag
            for t in tiles:
                v = load(x[64 * t.i + rows(v), cols(v)])
                r = max(f32(v), axis=1)
                with p.fill() as s:
                    stmatrix(s.a, v)
                    store(s.b[rows(r)], r)
            """,
            work="""
            u: bf16[64, 64] frag
            for t in tiles:
                s = p.wait()
                u = ldmatrix(s.a)
                store(y[64 * t.i + rows(u), cols(u)], f32(u) + load(s.b[rows(u)]))
                p.release()
            """,
        ),
        lambda rng, kind: {"x": values(rng, kind, "bf16", (512, 64))},
        lambda x: {"y": (wide(x) + wide(x).max(1, keepdims=True)).astype(np.float32)},
    )
)

add(
    Form(
        "pipeline mixed fill",
        kernel(
            "x: f32[512, 32], out y: f32[512, 32]",
            """
            tiles persistent:
                i in 8
            role make: warps 4
            role work[2]: warps 4
            pipeline p[2] make -> work:
                a: f32[64, 32] swizzle(128)
                b: f32[64]
            """,
            make="""
            r: f32[64, 1] frag
            for t in tiles:
                with p.fill() as s:
                    tma.load(s.a, x[64 * t.i : 64 * t.i + 64, :])
                    store(s.b[rows(r)], f32(t.i) + f32(rows(r)))
            """,
            work_w="""
            u: f32[64, 32] frag
            for t in tiles:
                s = p.wait()
                u = load(s.a[rows(u), cols(u)]) + load(s.b[rows(u)])
                store(y[64 * t.i + rows(u), cols(u)], u, where=cols(u) // 16 == w)
                p.release()
            """,
        ),
        _blocks,
        lambda x: {"y": (wide(x) + (np.arange(512) // 64 + np.arange(512) % 64)[:, None]).astype(np.float32)},
    )
)

add(
    Form(
        "pipeline several producers and consumers",
        kernel(
            "x: f32[512, 32], h: f32[8, 64], out y: f32[512, 32], out z: f32[512, 32]",
            """
            tiles persistent:
                i in 8
            role load: warps 1
            role half: warps 2
            role left: warps 4
            role right: warps 4
            pipeline p[2] load + half -> left + right:
                a: f32[64, 32] swizzle(128)
                b: f32[64]
            """,
            load="""
            for t in tiles:
                with p.fill() as s:
                    tma.load(s.a, x[64 * t.i : 64 * t.i + 64, :])
            """,
            half="""
            v: f32[1, 64] spread(1)
            for t in tiles:
                v = load(h[t.i, cols(v)])
                with p.fill() as s:
                    store(s.b[cols(v)], v * 0.5)
            """,
            left="""
            u: f32[64, 32] frag
            for t in tiles:
                s = p.wait()
                u = load(s.a[rows(u), cols(u)])
                p.release()
                store(y[64 * t.i + rows(u), cols(u)], u)
            """,
            right="""
            u: f32[64, 32] frag
            for t in tiles:
                s = p.wait()
                u = load(s.a[rows(u), cols(u)]) * load(s.b[rows(u)])
                p.release()
                store(z[64 * t.i + rows(u), cols(u)], u)
            """,
        ),
        lambda rng, kind: _blocks(rng, kind) | {"h": values(rng, kind, "f32", (8, 64))},
        lambda x, h: {"y": x, "z": x * (h.reshape(512, 1) * np.float32(0.5))},
    )
)

add(
    Form(
        "pipeline without fields",
        kernel(
            "x: f32[512, 32], inout s: f32[512, 32], out y: f32[512, 32]",
            """
            tiles persistent:
                i in 8
            smem b: f32[2, 64, 32]
            role left: warps 4
            role right: warps 4
            pipeline full[1] left -> right
            pipeline done[1] right -> left
            """,
            left="""
            u: f32[64, 32] frag
            for t in tiles:
                u = load(x[64 * t.i + rows(u), cols(u)])
                store(b[0, rows(u), cols(u)], u)
                with full.fill():
                    pass
                done.wait()
                done.release()
            """,
            right="""
            u: f32[64, 32] frag
            for t in tiles:
                full.wait()
                u = load(b[0, rows(u), cols(u)])
                full.release()
                store(y[64 * t.i + rows(u), cols(u)], u * 2.0)
                with done.fill():
                    pass
            """,
        ),
        lambda rng, kind: _blocks(rng, kind) | {"s": np.zeros((512, 32), np.float32)},
        lambda x, s: {"y": x * np.float32(2), "s": s},
    )
)


def _store_ring(stages: int, instances: int) -> None:
    """Each instance has a ring of its own and stores twice a tile."""
    add(
        Form(
            f"pipeline store ring {stages} stages by {instances}",
            kernel(
                f"x: bf16[M, {64 * instances}], out y: bf16[M, {64 * instances}]",
                f"""
                tiles persistent:
                    i in cdiv(M, 128)
                role work[{instances}]: warps 4
                pipeline q[{stages}] work -> store:
                    o: bf16[64, 64] swizzle(128)
                """,
                work_w="""
                v: bf16[64, 64] frag
                for t in tiles:
                    for u in unroll(2):
                        r = t.i * 128 + 64 * u
                        v = load(x[r + rows(v), 64 * w + cols(v)], where=r + rows(v) < M)
                        with q.fill() as s:
                            stmatrix(s.o, -v)
                        tma.store(y[r : r + 64, 64 * w : 64 * w + 64], s.o)
                """,
            ),
            lambda rng, kind: {"x": values(rng, kind, "bf16", (300, 64 * instances))},
            lambda x: {"y": -x},
        )
    )


for _stages in STAGED:
    _store_ring(_stages, 1 if _stages == 1 else 2)

add(
    Form(
        "pipeline stage overwritten by its holder",
        kernel(
            "x: bf16[256, 64], out y: bf16[256, 64]",
            """
            tiles persistent:
                i in 2
            role load: warps 1
            role work[2]: warps 4
            pipeline p[1] load -> work:
                a: bf16[128, 64] swizzle(128)
            """,
            load="""
            for t in tiles:
                with p.fill() as s:
                    tma.load(s.a, x[128 * t.i : 128 * t.i + 128, :])
            """,
            work_w="""
            for t in tiles:
                s = p.wait()
                v = ldmatrix(s.a[64 * w : 64 * w + 64])
                stmatrix(s.a[64 * w : 64 * w + 64], v * 2.0)
                fence.async()
                sync()
                tma.store(y[128 * t.i + 64 * w : 128 * t.i + 64 * w + 64, :], s.a[64 * w : 64 * w + 64])
                tma.store.wait_read()
                sync()
                p.release()
            """,
        ),
        lambda rng, kind: {"x": values(rng, kind, "bf16", (256, 64))},
        lambda x: {"y": (wide(x) * 2).astype(x.dtype)},
    )
)


def _turn(instances: int) -> None:
    """In their turn, instances move one running value on: order shows in the result."""
    add(
        Form(
            f"turn of {instances}",
            kernel(
                f"x: f32[{4 * instances}, 32], out y: f32[{4 * instances}, 32]",
                f"""
                tiles once:
                    i in 1
                role work[{instances}]: warps 1
                turn order: work
                smem total: f32[32]
                """,
                work_w=f"""
                v: f32[1, 32] spread(1)
                u: f32[1, 32] spread(1)
                for t in tiles:
                    if w == 0:
                        u = 0.0
                        store(total[cols(u)], u)
                    sync(work)
                    for k in range(4):
                        v = load(x[k * {instances} + w, cols(v)])
                        with order:
                            u = load(total[cols(u)]) * 0.5 + v
                            store(total[cols(u)], u)
                        store(y[k * {instances} + w, cols(u)], u)
                """,
            ),
            lambda rng, kind: {"x": np.round(values(rng, kind, "f32", (4 * instances, 32)) * 16)},
            lambda x: {"y": _running(x)},
        )
    )


def _running(x: Array) -> Array:
    out, total = [], np.zeros(32, np.float32)
    for row in x:
        total = (total * np.float32(0.5) + row).astype(np.float32)
        out.append(total)
    return np.stack(out)


for _instances in (2, 3, 4):
    _turn(_instances)

add(
    Form(
        "sync of a role",
        kernel(
            "x: f32[4, 128], out y: f32[4, 128]",
            """
            tiles persistent:
                i in 2
            role work[4]: warps 1
            smem s: f32[4, 128]
            """,
            work_w="""
            v: f32[1, 128] spread(4)
            for t in tiles:
                v = load(x[w, cols(v)]) * f32(t.i + 1)
                store(s[w, cols(v)], v)
                sync(work)
                v = load(s[3 - w, cols(v)])
                sync(work)
                store(y[w, cols(v)], v, where=cols(v) // 64 == t.i)
            """,
        ),
        lambda rng, kind: {"x": values(rng, kind, "f32", (4, 128))},
        lambda x: {"y": x[::-1] * np.repeat([1, 2], 64).astype(np.float32)},
    )
)
