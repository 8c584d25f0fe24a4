"""N802: what lies past the data takes part in no result. Each way to get it wrong, with the twin that is right."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from cake.compiler import check_text, expand_text
from cake.diagnostics.fixes import apply_fix
from cake.verify import verify
from tests.examples import EXAMPLES

SPECIFICATION = EXAMPLES.parent / "tests" / "ir" / "examples"

ROWS = """\
kernel rows(x: f32[M, N], out y: f32[M, 128]) for sm_90a:
    where N <= 128, N % 4 == 0

    tiles once:
        r in M

    role row: warps 4

    do row:
        v: f32[1, 128] spread(1)
        for t in tiles:
            v = load(x[t.r, cols(v)], where=cols(v) < N@@)
            store(y[t.r, cols(v)], v + 0.0 * v)
"""
"""One row a tile. ``@@``: the load's `other`; the store is replaced by what is done with the row."""
STORE = "            store(y[t.r, cols(v)], v + 0.0 * v)\n"
INSIDE = "where=cols(v) < N"


def rows(done: str, other: str = "") -> str:
    """A kernel that loads a ragged row and does something with it."""
    return ROWS.replace("@@", other and f", other={other}").replace(STORE, done)


def ends(expression: str) -> str:
    """The row's result in every column."""
    return f"            store(y[t.r, cols(v)], {expression} + 0.0 * f32(cols(v)))\n"


BLOCKS = """\
kernel blocks(x: bf16[M, K], w: bf16[N, K], out y: f32[M, N], out top: f32[M]) for sm_90a:
    where K % 8 == 0, N % 2 == 0

    tiles once:
        m in cdiv(M, 64)

    role load: warps 4
    role math: warps 4

    pipeline ab[2] load -> math:
        x: bf16[64, 64] swizzle(128)
        w: bf16[64, 64] swizzle(128)

    do load:
        for t in tiles:
            for n in range(cdiv(N, 64)):
                for k in range(cdiv(K, 64)):
                    with ab.fill() as s:
                        tma.load(s.x, x[t.m * 64 : t.m * 64 + 64, k * 64 : k * 64 + 64])
                        tma.load(s.w, w[n * 64 : n * 64 + 64, k * 64 : k * 64 + 64])

    do math:
        acc: f32[64, 64] frag
        best: f32[64, 1] frag
        for t in tiles:
            best = -1e30
            r = t.m * 64 + rows(best)
            for n in range(cdiv(N, 64)):
                for k in range(cdiv(K, 64)):
                    s = ab.wait()
                    wgmma(acc, s.x, s.w.T, use_acc=k > 0)
                    wgmma.wait(acc)
                    ab.release()
                q = n * 64 + cols(acc)
                store(y[t.m * 64 + rows(acc), q], acc, where=t.m * 64 + rows(acc) < M and q < N)
                MAXIMUM
            store(top[r], best, where=r < M)
"""
"""Scores of rows against rows, and the best of each. ``MAXIMUM``: how the best is kept."""


def blocks(maximum: str) -> str:
    """The kernel with a way to keep the maximum."""
    return BLOCKS.replace("MAXIMUM", maximum)


PAIRS = """\
kernel weigh(p: f32[M, K], x: bf16[T, 64], out y: f32[M, 64]) for sm_90a:
    where K <= 16, T >= 16, K % 2 == 0
    @@
    tiles once:
        m in cdiv(M, 16)

    role warp: warps 1

    smem xs: bf16[16, 64]

    do warp:
        a: f32[16, 16] frag
        d: f32[16, 64] frag
        b: bf16[16, 64] frag
        for t in tiles:
            r = t.m * 16 + rows(a)
            a = load(p[r, cols(a)], where=r < M and cols(a) < KOTHER)
            b = load(x[rows(b), cols(b)])
            store(xs[rows(b), cols(b)], b)
            sync()
            d = 0.0
            mma(d, bf16(a), xs)
            store(y[t.m * 16 + rows(d), cols(d)], d, where=t.m * 16 + rows(d) < M)
"""
"""Weights past K against whatever the other operand holds there."""


@dataclass(frozen=True)
class Case:
    """A program that takes padding in, its twin, and the line that is told. ``fixed``: a fix is proposed."""

    bad: str
    good: str
    line: str
    fixed: bool = False


CASES = {
    "zeros under a maximum": Case(
        rows(ends("max(v, axis=1)")), rows(ends("max(v, axis=1)"), "-inf"), "max(v", fixed=True
    ),
    "zeros under a minimum": Case(
        rows(ends("min(v, axis=1)")), rows(ends("min(v, axis=1)"), "inf"), "min(v", fixed=True
    ),
    "minus infinity under a sum": Case(
        rows(ends("sum(v, axis=1)"), "-inf"), rows(ends("sum(v, axis=1)")), "sum(v", fixed=True
    ),
    "a constant under a sum": Case(
        rows(ends("sum(v, axis=1)"), "1.0"), rows(ends("sum(v, axis=1)"), "0.0"), "sum(v", fixed=True
    ),
    "the wrong infinity": Case(
        rows(ends("max(v, axis=1)"), "inf"), rows(ends("max(v, axis=1)"), "-inf"), "max(v", fixed=True
    ),
    "a maximum of magnitudes": Case(
        rows(ends("max(-abs(v), axis=1)")), rows(ends("max(abs(v), axis=1)")), "max(-abs(v)", fixed=True
    ),
    "the second pass of a variance": Case(
        rows("            mean = sum(v, axis=1) / f32(N)\n            v = v - mean\n" + ends("sum(v * v, axis=1)")),
        rows(
            "            mean = sum(v, axis=1) / f32(N)\n"
            "            v = where(cols(v) < N, v - mean, 0.0)\n" + ends("sum(v * v, axis=1)")
        ),
        "sum(v * v",
    ),
    "exponentials of zeros": Case(
        rows(ends("sum(exp(v), axis=1)")), rows(ends("sum(exp(v), axis=1)"), "-inf"), "sum(exp(v)", fixed=True
    ),
    "a mask that is one short": Case(
        rows("            v = where(cols(v) <= N, v, -inf)\n" + ends("max(v, axis=1)")),
        rows("            v = where(cols(v) < N, v, -inf)\n" + ends("max(v, axis=1)")),
        "max(v",
        fixed=True,
    ),
    "padding that a condition counts": Case(
        rows(ends("sum(where(v <= 0.0, 1.0, 0.0), axis=1)")),
        rows(ends("sum(where(v <= 0.0 and cols(v) < N, 1.0, 0.0), axis=1)")),
        "sum(where(",
    ),
    "scores past the end": Case(
        blocks("best = max(best, max(acc, axis=1))"),
        blocks("best = max(best, max(where(q < N, acc, -inf), axis=1))"),
        "best = max",
    ),
    "0 times what lies there": Case(
        PAIRS.replace("@@", "").replace("OTHER", ""),
        PAIRS.replace("@@", "assume finite(x)\n").replace("OTHER", ""),
        "mma(d",
    ),
    "weights that are not zero": Case(
        PAIRS.replace("@@", "assume finite(x)\n").replace("OTHER", ", other=1.0"),
        PAIRS.replace("@@", "assume finite(x)\n").replace("OTHER", ", other=0.0"),
        "mma(d",
    ),
    "minus infinity from itself": Case(
        rows(
            "            v = where(cols(v) + t.r >= N, v, -inf)\n"
            "            top = max(v, axis=1)\n"
            "            store(y[t.r, cols(v)], exp(v - top))\n",
            "-inf",
        ),
        rows(
            "            v = where(cols(v) + t.r >= N, v, -inf)\n"
            "            top = max(max(v, axis=1), -1e30)\n"
            "            store(y[t.r, cols(v)], exp(v - top))\n",
            "-inf",
        ),
        "exp(v - top)",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_padding(name: str) -> None:
    case = CASES[name]
    assert [f"{d.code} {d.message}" for d in check_text(case.good, verify="quick")] == []
    found = check_text(case.bad, verify="quick")
    assert [d.code for d in found] == ["N802"], found
    d = found[0]
    assert d.span is not None and case.line in case.bad.splitlines()[d.span.line - 1], d
    assert d.contract and d.help and d.witness
    assert (d.fix is not None) == case.fixed, d
    if d.fix is not None:
        assert check_text(apply_fix(case.bad, d.fix), verify="quick") == []


def test_rows_that_are_not_stored() -> None:
    """Padding of whole rows goes where it likes: nothing of it is stored."""
    text = blocks("best = max(best, max(where(q < N, acc - 1.0, -inf), axis=1))")
    assert check_text(text, verify="quick") == []


def test_nearest_centroid_without_its_mask() -> None:
    """Fault 9: zeros of the centroids past the last one win over negative scores."""
    text = (EXAMPLES / "kmeans.cake").read_text()
    mask = "                    acc = where(k0 + cols(acc) < K, acc, -inf)\n"
    assert mask in text
    found = verify(expand_text(text.replace(mask, "                    pass\n"), kernel="assign"), effort="quick")
    assert found.codes == ("N802",) and "argmax" in found.diagnostics[0].message


def test_promises_about_memory() -> None:
    """KDA multiplies masked rows by what lies past a sequence: two promises about it."""
    text = (SPECIFICATION / "kda.cake").read_text()
    found = verify(expand_text(text.replace("    assume finite(attn), finite(kd)", "    #")), effort="quick")
    assert found.codes == ("N802",) and "attn" in str(found.diagnostics[0].help)
