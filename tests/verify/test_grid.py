"""CTAs that wait for each other: a chain of partial sums handed on in global memory, right in several forms, and each way to
get it wrong with its code, its place and (where there is one) its fix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from cake.compiler import check_text, expand_text
from cake.diagnostics.fixes import apply_fix
from cake.ir import expanded as x
from cake.verify import verify
from cake.verify.grid import Places
from tests.litmus import build as b
from tests.litmus.build import R32, elements
from tests.verify.chain import CHAIN

WAIT = "                wait_until(flags[t.r], t.z)\n"
SIGNAL = "            signal(flags[t.r], (t.z + 1) % S)\n"


def test_right() -> None:
    verdict = verify(expand_text(CHAIN))
    assert (verdict.status, verdict.codes) == ("safe", ()), verdict.diagnostics
    assert verdict.claim.startswith("checked up to")
    assert any("resident together" in note for note in verdict.notes)


RIGHT: Mapping[str, str] = {
    "splits first": CHAIN.replace("        r in R\n        z in S\n", "        z in S\n        r in R\n"),
    "reset by an own signal": CHAIN.replace("(t.z + 1) % S", "t.z + 1").replace(
        "            if t.z == S - 1:\n", "            if t.z == S - 1:\n                signal(flags[t.r], 0)\n"
    ),
    "a wait for what no one has changed": CHAIN.replace(
        "            if t.z > 0:\n",
        "            if t.z == 0:\n                wait_until(flags[t.r], 0)\n            if t.z > 0:\n",
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_other_right_forms(name: str) -> None:
    assert RIGHT[name] != CHAIN
    assert [d.message for d in check_text(RIGHT[name], verify="quick")] == []


@dataclass(frozen=True)
class Wrong:
    """A change of the chain: what is reported, on which line's text, and whether a fix is proposed."""

    old: str
    new: str
    code: str
    line: str
    fixed: bool = False


BACKWARDS = (
    CHAIN.replace("t.z > 0:", "t.z < S - 1:")
    .replace("wait_until(flags[t.r], t.z)", "wait_until(flags[t.r], S - 1 - t.z)")
    .replace("t.z < S - 1:\n                store", "t.z > 0:\n                store")
    .replace("(t.z + 1) % S", "(S - t.z) % S")
    .replace("t.z == S - 1", "t.z == 0")
)
WRONG: Mapping[str, Wrong] = {
    "signal before the warps are done": Wrong(
        "            sync()\n            signal", "            signal", "M401", "load(part", True
    ),
    "one thread waits for all": Wrong("t.z)\n                sync()\n", "t.z)\n", "M401", "load(part", True),
    "signal before the data": Wrong(
        "            if t.z < S - 1:\n                store(part[t.r, cols(v)], v)\n            sync()\n" + SIGNAL,
        "            sync()\n" + SIGNAL + "            if t.z < S - 1:\n                store(part[t.r, cols(v)], v)\n",
        "M401",
        "load(part",
    ),
    "no wait": Wrong(WAIT + "                sync()\n", "", "M401", "load(part"),
    "no signal": Wrong(SIGNAL, "", "P108", "wait_until"),
    "a value too high": Wrong(
        "wait_until(flags[t.r], t.z)", "wait_until(flags[t.r], t.z + 1)", "P108", "wait_until", True
    ),
    "a value that has passed": Wrong("wait_until(flags[t.r], t.z)", "wait_until(flags[t.r], 1)", "P101", "wait_until"),
    "one word for all rows": Wrong("flags[t.r]", "flags[0]", "M402", "signal"),
    "all splits signal the same": Wrong("(t.z + 1) % S", "t.z + 0 * S", "P108", "wait_until"),
    "not zero at the end": Wrong("(t.z + 1) % S", "t.z + 1", "M407", "signal"),
    "not zero at the beginning": Wrong("    assume zero(flags)\n", "", "M407", "wait_until", True),
    "CTAs that are not resident": Wrong("tiles persistent", "tiles once", "M403", "wait_until", True),
    "the later tile": Wrong(CHAIN, BACKWARDS, "M403", "wait_until"),
    "published by an atomic": Wrong(
        "signal(flags[t.r], (t.z + 1) % S)",
        "atomic.add(flags[t.r], where(t.z < S - 1, 1, 1 - S))",
        "M402",
        "wait_until",
    ),
    "the other rows' data": Wrong(
        "load(part[t.r, cols(v)])", "load(part[(t.r + 1) % R, cols(v)])", "M401", "load(part"
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong(name: str) -> None:
    wrong = WRONG[name]
    assert wrong.old in CHAIN
    text = CHAIN.replace(wrong.old, wrong.new)
    found = {d.code: d for d in reversed(check_text(text, verify="quick"))}
    assert wrong.code in found, list(found.values())
    d = found[wrong.code]
    assert d.span is not None and wrong.line in text.splitlines()[d.span.line - 1], d
    assert d.contract and (d.witness or d.help)
    assert (d.fix is not None and d.fix.verified) == wrong.fixed
    if d.fix is not None:
        assert [e.code for e in check_text(apply_fix(text, d.fix), verify="quick")] == []


def test_control_of_flags_by_data() -> None:
    """Which word is waited for is an operand of synchronisation."""
    text = CHAIN.replace("inout flags", "inout next: i32[R], inout flags").replace(
        "            if t.z > 0:\n", "            n = load(next[t.r])\n            if t.z > 0:\n"
    )
    verdict = verify(expand_text(text.replace("wait_until(flags[t.r]", "wait_until(flags[min(t.r, t.r + max(n, 0))]")))
    assert "U901" in verdict.codes, verdict.diagnostics


def test_wait_for_no_tile() -> None:
    text = CHAIN.replace("        for t in tiles:\n", "        wait_until(flags[0], 0)\n        for t in tiles:\n")
    verdict = verify(expand_text(text))
    assert "U905" in verdict.codes or verdict.status == "unsafe", verdict.diagnostics


def test_batches_are_not_ordered() -> None:
    """With `tiles once` no CTA follows another one, however far apart they are."""
    text = """\
kernel far(inout x: f32[M, 128]) for sm_90a:
    tiles once:
        i in M

    role row: warps 4

    do row:
        v: f32[1, 128] spread(1)
        for t in tiles:
            v = load(x[max(t.i - 4, 0), cols(v)])
            store(x[t.i, cols(v)], v)
"""
    assert "M401" in verify(expand_text(text)).codes
    assert verify(expand_text(text.replace("max(t.i - 4, 0)", "t.i"))).status == "safe"


def test_places() -> None:
    """Statements before, in and after a walk are told apart."""
    k = expand_text(CHAIN)
    (walk,) = Places(k).walks["row"]
    assert walk[1] == "t.pos" and walk[0].startswith("row.")
    assert Places(k).of(None) == (0, 0)


def test_few_ctas_are_resident() -> None:
    """A grid that every device holds at once needs no walk in order; a larger one does."""

    def program(grid: int) -> x.Kernel:
        writer = b.when(b.test("==", b.CTA, 1), b.write(elements("data"), 32), b.SYNCWARP, b.signal("flag", 1))
        reader = b.when(
            b.test("==", b.CTA, 0),
            b.wait_until("flag", 1),
            b.SYNCWARP,
            b.read(elements("data"), 32),
            b.signal("flag", 0),
        )
        return b.kernel(
            "pair",
            (b.role("w", writer, reader, tiles={"r": R32}),),
            tensors={"data": ((1, 32), "f32", "inout"), "flag": ((1, 1), "i32", "inout")},
            grid=grid,
        ).model_copy(update={"assumes": (x.Condition(text="zero(flag)", form="zero", tensor="flag"),)})

    few = verify(program(2), launches=None, ctas=2)
    assert set(few.codes) == {"U905"}, few.diagnostics
    assert "M403" in verify(program(64), ctas=2).codes
