"""Fault classes that the language can express: a failing source and its passing twin (docs/faults.md has the numbers)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """``good`` differs from ``bad`` only in what cures the fault; ``static``: found before any run."""

    number: int
    code: str
    bad: str
    good: str
    fixed: bool = False
    """Whether a fix is proposed."""


def _pair(number: int, code: str, text: str, bad: str, good: str, *, fixed: bool = False) -> Fault:
    assert text.count("@@") == 1
    return Fault(number, code, text.replace("@@", bad), text.replace("@@", good), fixed)


STORE = """\
kernel copy(x: bf16[M, 64], out y: bf16[M, 64]) for sm_90a:
    tiles persistent:
        m in cdiv(M, 64)
        r0 = m * 64

    role load: warps 1
    role math: warps 4

    pipeline xs[2] load -> math:
        x: bf16[64, 64] swizzle(128)

    smem s: bf16[64, 64] swizzle(128)

    do load:
        for t in tiles:
            with xs.fill() as f:
                tma.load(f.x, x[t.r0 : t.r0 + 64, :])

    do math:
        v: bf16[64, 64] frag
        for t in tiles:
            f = xs.wait()
            v = ldmatrix(f.x)
            xs.release()
@@
"""

_WHOLE = """\
            stmatrix(s, v)
            fence.async()
            sync()
            tma.store(y[t.r0 : t.r0 + 64, :], s)
            tma.store.wait_read()
            sync()"""

SWAP = """\
kernel swap(x: f32[M, 128], out y: f32[M, 128]) for sm_90a:
    tiles persistent:
        r in M

    role row: warps 4

    smem s: f32[1, 128]

    do row:
        v: f32[1, 128] spread(1)
        for t in tiles:
            v = load(x[t.r, cols(v)])
            @@store(s[rows(v), cols(v)], v)
            sync()
            v = load(s[rows(v), 127 - cols(v)])
            store(y[t.r, cols(v)], v)
"""

ROWS = """\
kernel rows(x: f32[M, 128], out y: f32[M, 128]) for sm_90a:
    tiles once:
        i in @@

    role row[2]: warps 4

    do row as w:
        v: f32[1, 128] spread(1)
        for t in tiles:
            r = t.i * 2 + w
            if r < M:
                v = load(x[r, cols(v)])
                store(y[r, cols(v)], v)
"""

OVERLAP = """\
kernel shift(x: f32[M, 128], out y: f32[M, 128]) for sm_90a:
    tiles once:
        i in M

    role row: warps 4

    do row:
        v: f32[1, 128] spread(1)
        for t in tiles:
            v = load(x[t.i, cols(v)])
            store(y[@@, cols(v)], v)
            store(y[t.i, cols(v)], v)
"""

RING = """\
kernel sums(x: f32[M, 128], out y: f32[128]) for sm_90a:
    tiles once:
        i in 1

    role load: warps 1
    role math: warps 4

    pipeline xs[1] load -> math:
        x: f32[1, 128]

    do load:
        for t in tiles:
            for k in range(M):
                with xs.fill() as f:
                    tma.load(f.x, x[k : k + 1, :])

    do math:
        v: f32[1, 128] spread(1)
        for t in tiles:
            v = 0.0
            for k in range(M):
                f = xs.wait()
                v = v + load(f.x[rows(v), cols(v)])
@@
            store(y[cols(v)], v)
"""

PACKED = """\
kernel pack(x: bf16[T, 64], cu: i32[B + 1], out y: bf16[T, 64]) for sm_90a:
    assume increasing(cu), cu[0] == 0, cu[B] == T

    tiles once:
        b in B
        r0 = load(cu[b])
        n = load(cu[b + 1]) - r0

    role load: warps 4
    role math: warps 4

    pipeline xs[2] load -> math:
        x: bf16[64, 64] swizzle(128)
    pipeline ys[2] math -> store:
        y: bf16[64, 64] swizzle(128)

    do load:
        for t in tiles:
            for i in range(cdiv(t.n, 64)):
                with xs.fill() as f:
                    tma.load(f.x, x[t.r0 + i * 64 : t.r0 + i * 64 + 64, :])

    do math:
        v: bf16[64, 64] frag
        for t in tiles:
            for i in range(cdiv(t.n, 64)):
                f = xs.wait()
                v = ldmatrix(f.x)
                xs.release()
@@
"""

_BLOCK = """\
                with ys.fill() as o:
                    stmatrix(o.y, v)
                tma.store(y[t.r0 + i * 64 : t.r0 + i * 64 + 64, :], o.y)"""
_LAST = """\
                left = t.n - i * 64
                if left >= 64:
                    with ys.fill() as o:
                        stmatrix(o.y, v)
                    tma.store(y[t.r0 + i * 64 : t.r0 + i * 64 + 64, :], o.y)
                else:
                    store(y[t.r0 + i * 64 + rows(v), cols(v)], v, where=rows(v) < left)"""

FAULTS = {
    "sequence": _pair(29, "O503", PACKED, _BLOCK, _LAST),
    "fence": _pair(10, "F301", STORE, _WHOLE.replace("            fence.async()\n", ""), _WHOLE, fixed=True),
    "buffer": _pair(
        16,
        "D207",
        STORE,
        _WHOLE.replace("            tma.store.wait_read()\n            sync()", "            pass"),
        _WHOLE,
        fixed=True,
    ),
    "fence_after": _pair(
        10,
        "F303",
        STORE,
        _WHOLE.replace(
            "            stmatrix(s, v)\n            fence.async()",
            "            fence.async()\n            stmatrix(s, v)",
        ),
        _WHOLE,
    ),
    "warps": _pair(13, "D204", SWAP, "", "sync()\n            ", fixed=True),
    "missed": _pair(0, "O501", ROWS.replace("@@", "cdiv(M, 2)").replace("r < M", "r < @@"), "M - 1", "M"),
    "rounded": _pair(0, "O508", ROWS, "M // 2", "cdiv(M, 2)", fixed=True),
    "twice": _pair(0, "O502", OVERLAP.replace("store(y[@@, cols(v)], v)", "@@"), "store(y[t.i, cols(v)], v)", "pass"),
    "shared": _pair(0, "M401", OVERLAP.replace("            store(y[t.i, cols(v)], v)\n", ""), "t.i // 2 * 2", "t.i"),
    "lag": _pair(
        11, "P110", RING, "                xs.release(keep=1)\n            xs.release()", "                xs.release()"
    ),
    "leak": _pair(
        12,
        "P109",
        RING.replace("xs[1]", "xs[2]"),
        "                xs.release(keep=1)",
        "                xs.release(keep=1)\n            xs.release()",
    ),
}
