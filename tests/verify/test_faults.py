"""The fault classes of docs/faults.md: each failing program is refused with its code, and its twin is accepted."""

from __future__ import annotations

import pytest

from cake.compiler import check_text
from cake.diagnostics.fixes import apply_fix
from cake.verify import verify
from tests.verify.faults import expanded, surface

SAFE = {25: 2, 23: 1}
"""Clusters simulated together, where one is not enough."""


@pytest.mark.parametrize("number", expanded.FAULTS)
def test_expanded(number: int) -> None:
    code, bad, good = expanded.FAULTS[number]
    verdict = verify(bad(), ctas=SAFE.get(number, 1))
    assert verdict.status == "unsafe" and code in verdict.codes, (verdict.codes, verdict.diagnostics)
    assert len(verdict.diagnostics) <= 3 and all(d.contract for d in verdict.diagnostics)
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
