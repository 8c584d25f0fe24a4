"""Causes that are named instead of their consequences, and warnings, which block nothing."""

from __future__ import annotations

import pytest

from cake.compiler import check_text, expand_text
from cake.diagnostics.codes import explain
from cake.diagnostics.fixes import apply_fix
from cake.ir import expanded as x
from cake.verify import verify
from tests.litmus.catalogue import kernel as litmus


@pytest.mark.parametrize("code", ["P111", "O508", "D210"])
def test_causes_come_with_a_fix(code: str) -> None:
    page = explain(code)
    assert page.fail is not None
    found = check_text(page.fail, verify="quick")
    assert [d.code for d in found] == [code], found
    d = found[0]
    assert d.contract and d.witness and d.span is not None
    assert d.fix is not None and d.fix.verified
    assert check_text(apply_fix(page.fail, d.fix), verify="quick") == []


def test_a_turn_that_is_not_passed() -> None:
    page = explain("P112")
    assert page.fail is not None
    (d,) = check_text(page.fail, verify="quick")
    assert d.code == "P112" and any("deadlock" in line for line in d.witness)


def test_trips_that_agree_in_a_launch_are_not_blamed() -> None:
    """A deadlock for another reason keeps its name."""
    page = explain("P111")
    assert page.good is not None
    broken = page.good.replace("                xs.release()\n", "")
    assert "P111" not in {d.code for d in check_text(broken, verify="quick")}


@pytest.mark.parametrize("code", ["N801", "N804", "N806"])
def test_warnings_block_nothing(code: str) -> None:
    page = explain(code)
    assert page.fail is not None
    verdict = verify(expand_text(page.fail), effort="quick")
    assert verdict.status == "safe" and verdict.codes == ()
    (d,) = verdict.diagnostics
    assert (d.code, d.severity, page.severity) == (code, "warning", "warning") and d.help and d.span is not None


def test_a_barrier_that_nobody_waits_for() -> None:
    k = litmus("01_store_fence_barrier_tma_store")
    assert [d.code for d in verify(k).diagnostics] == []
    dead = x.Barrier(name="dead", count=1, offset=k.shared_bytes)
    more = k.model_copy(update={"barriers": (*k.barriers, dead), "shared_bytes": k.shared_bytes + 8})
    verdict = verify(more)
    assert verdict.status == "safe" and [d.code for d in verdict.diagnostics] == ["P118"]


def test_warpgroups_begin_at_a_multiple_of_four() -> None:
    k = litmus("12_release_after_the_wgmma_wait")
    role = next(r for r in k.roles if r.name == "math")
    moved = role.model_copy(update={"first_warp": role.first_warp + 1})
    roles = tuple(moved if r is role else r for r in k.roles)
    verdict = verify(k.model_copy(update={"roles": roles, "threads": k.threads + 32}))
    assert verdict.codes == ("C605",)


def test_order_of_float_sums_is_a_note() -> None:
    text = """\
kernel columns(x: f32[M, 128], inout y: DTYPE[128]) for sm_90a:
    tiles once:
        r in M

    role row: warps 4

    do row:
        v: f32[1, 128] spread(1)
        for t in tiles:
            v = load(x[t.r, cols(v)])
            atomic.add(y[cols(v)], CAST(v))
"""
    floats = verify(expand_text(text.replace("DTYPE", "f32").replace("CAST", "")), effort="quick")
    integers = verify(expand_text(text.replace("DTYPE", "i32").replace("CAST", "i32")), effort="quick")
    assert floats.status == integers.status == "safe" and floats.diagnostics == ()
    assert any("N805" in note and "`y`" in note for note in floats.notes)
    assert not any("N805" in note for note in integers.notes)
