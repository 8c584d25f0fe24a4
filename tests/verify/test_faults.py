"""The fault classes of docs/faults.md: each failing program is refused with its code, and its twin is accepted."""

from __future__ import annotations

import pytest

from cake.compiler import check_text
from cake.diagnostics.codes import explain
from cake.diagnostics.fixes import apply_fix
from cake.verify import verify
from tests.verify.faults import expanded, surface

PAGES = {6: "W708", 8: "W702", 9: "N802", 11: "P110", 12: "P109", 24: "C604", 30: "N802", 33: "W713"}
"""Fault classes whose pair is that of the code's page (``tests/diagnostics`` and ``test_pages_of_the_verifier`` run them)."""

UNSAYABLE = {
    3: "tensor maps are kernel parameters: nothing can write them",
    27: "no launch depends on another one before it has ended: `pdl.wait` is not built",
    32: "tensor memory is not built",
}

SAFE = {25: 2, 23: 1}
"""Clusters simulated together, where one is not enough."""


@pytest.mark.parametrize("number", expanded.FAULTS)
def test_expanded(number: int) -> None:
    code, bad, good = expanded.FAULTS[number]
    verdict = verify(bad(), ctas=SAFE.get(number, 1))
    assert verdict.status == "unsafe" and code in verdict.codes, (verdict.codes, verdict.diagnostics)
    errors = [d for d in verdict.diagnostics if d.severity == "error"]
    assert len(errors) <= 3 and all(d.contract for d in errors)
    verdict = verify(good(), ctas=SAFE.get(number, 1))
    assert verdict.status == "safe", (verdict.codes, verdict.diagnostics)


@pytest.mark.parametrize("name", surface.FAULTS)
def test_surface(name: str) -> None:
    fault = surface.FAULTS[name]
    assert [d.message for d in check_text(fault.good, verify="quick")] == []
    found = check_text(fault.bad, verify="quick")
    assert fault.code in {d.code for d in found}, found
    first = next(d for d in found if d.code == fault.code)
    assert first.span is not None
    if fault.fixed:
        assert first.fix is not None and first.fix.verified
        assert check_text(apply_fix(fault.bad, first.fix), verify="quick") == []


def test_every_class_has_its_programs() -> None:
    """34 classes: programs under ``faults``, a page with both, or the reason why nothing can say it."""
    shown = set(expanded.FAULTS) | {f.number for f in surface.FAULTS.values() if f.number} | set(PAGES)
    assert set(range(1, 35)) == shown | set(UNSAYABLE)
    assert not shown & set(UNSAYABLE)
    for code in PAGES.values():
        page = explain(code)
        assert page.fail is not None and page.good is not None
