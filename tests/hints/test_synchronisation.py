"""H951: statements that order nothing are found, statements that something needs are not, and what is said of them holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from cake.cli.outcome import blocking
from cake.compiler import decide_text, expand_file, expand_text
from cake.diagnostics import Diagnostic
from cake.diagnostics.fixes import apply_fixes
from cake.hints import hints_of
from cake.hints.synchronisation import candidates, synchronisation_hints, without
from cake.hints.watch import watch
from cake.ir import expanded as x
from cake.verify import verify
from cake.verify.launches import Family
from cake.verify.oracle import attack
from cake.verify.search import search

ROOT = Path(__file__).parents[2]

EXCHANGE = """\
kernel k(x: f32[M, 32], out y: f32[M, 32]) for sm_90a:
    tiles persistent:
        m in cdiv(M, 32)

    role group: warps {warps}

    smem block: f32[32, 32] pad(1)

    do group:
        v: f32[32, 32] spread(1)
        for t in tiles:
            r = t.m * 32 + rows(v)
            v = load(x[r, cols(v)], where=r < M)
            store(block[rows(v), cols(v)], v)
            {first}
            v = load(block[cols(v), 31 - rows(v)])
            {second}
            store(y[r, cols(v)], v, where=r < M)
"""

MIRROR = """\
kernel mirror(x: f32[M, 64], out y: f32[M, 64]) for sm_90a:
    tiles persistent:
        m in cdiv(M, 32)

    role group: warps 4

    smem block: f32[32, 64]

    do group:
        v: f32[32, 64] spread(4)
        for t in tiles:
            r = t.m * 32 + rows(v)
            v = load(x[r, cols(v)], where=r < M)
            store(block[:, :], v)
            fence.async()
            sync()
            tma.store(y[t.m * 32 : t.m * 32 + 32, :], block)
            tma.store.wait_read()
            sync()
"""


def hints(kernel: x.Kernel) -> list[Diagnostic]:
    seen = watch(kernel)
    assert seen is not None
    return synchronisation_hints(kernel, seen)


def exchange(first: str = "sync()", second: str = "sync()", warps: int = 4) -> x.Kernel:
    lines = {"first": first.replace("\n", "\n            "), "second": second.replace("\n", "\n            ")}
    return expand_text(EXCHANGE.format(warps=warps, **lines))


def test_needed_barriers_are_not_meant() -> None:
    assert hints(exchange()) == []
    assert hints(expand_text(MIRROR)) == []


def test_lanes_of_one_warp_that_exchange_need_their_barrier() -> None:
    """The order reading does not ask which lane wrote: the barrier of a single warp stays all the same."""
    assert hints(exchange(warps=1)) == []


@pytest.mark.parametrize(("first", "line"), [("sync()\nsync()", 15), ("sync()\nfence.async()", 16)])
def test_what_another_edge_implies_is_found(first: str, line: int) -> None:
    (d,) = hints(exchange(first))
    assert d.code == "H951" and d.severity == "hint" and d.span is not None and d.span.line == line
    assert any("is safe: proved for all trip counts" in fact for fact in d.facts)


def test_what_is_said_of_an_implied_barrier() -> None:
    """Of two barriers in a row the first goes; each order that it made is named, with the second and the slack."""
    (d,) = hints(exchange("sync()\nsync()"))
    facts = "\n".join(d.facts)
    assert (
        "the write of `block` (line 14) before the read of `block` (line 17): known since the barrier of line 16"
        in facts
    )
    assert "1 step before it is needed" in facts
    assert d.labels[0].span is not None and d.labels[0].span.line == 16


def test_a_group_wait_that_another_covers() -> None:
    text = (ROOT / "examples" / "gemm.cake").read_text(encoding="utf-8")
    assert hints(expand_text(text)) == []
    twice = text.replace("wgmma.wait(acc)\n", "wgmma.wait(acc)\n            wgmma.wait(keep=0)\n")
    (d,) = hints(expand_text(twice))
    assert d.span is not None and d.span.line == 51 and d.message.startswith("this wait is not needed")


def test_dependence_on_trips_and_tiles() -> None:
    """In one tile the barrier at the end orders nothing; with several it keeps the next tile's writes off this one's reads."""
    once = EXCHANGE.replace("persistent", "once").format(warps=4, first="sync()", second="sync()")
    (d,) = hints(expand_text(once))
    assert d.span is not None and d.span.line == 17
    assert hints(exchange()) == []


@pytest.mark.parametrize("name", ["gemm", "batched_gemm", "gemm_cluster", "gemm_pingpong", "softmax", "rmsnorm"])
def test_examples_have_none(name: str) -> None:
    kernel = expand_file(ROOT / "examples" / f"{name}.cake", kernel="softmax" if name == "softmax" else None)
    assert hints(kernel) == []


def test_fixes_hold_together_and_are_checked() -> None:
    text = EXCHANGE.format(warps=4, first="sync()\n            sync()\n            fence.async()", second="sync()")
    found, decided = decide_text(text, "k.cake", "quick")
    assert not blocking(found)
    advice = hints_of(decided, text, "k.cake")
    assert [d.code for d in advice] == ["H951", "H951"]
    assert all(d.fix is not None and d.fix.verified for d in advice)
    fixed, count = apply_fixes(text, advice)
    assert count == 2 and fixed == EXCHANGE.format(warps=4, first="sync()", second="sync()")


@pytest.mark.parametrize("first", ["sync()\nsync()", "sync()\nfence.async()"])
def test_engines_that_share_nothing_agree(first: str) -> None:
    """What is left without the statement is clean for the search and the oracle on small launches."""
    kernel = exchange(first)
    (d,) = hints(kernel)
    (paths,) = [c.paths for c in candidates(kernel) if c.node.span == d.span]
    bare = without(kernel, paths)
    assert verify(bare).status == "safe"
    launch = next(Family(bare).launches())
    assert search(bare, launch.arguments).verdict == "clean"
    assert attack(bare, launch.arguments, 12).verdict == "clean"
