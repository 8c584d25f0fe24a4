"""Every code that checking and expansion can give has a page, whose examples give it and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cake.diagnostics.codes import all_codes, explain
from tests.expand.kernels import codes

ROOT = Path(__file__).parents[2]


def used() -> list[str]:
    """Codes that stand as literals in the checker; those of syntax and of the command line have tests of their own."""
    found: set[str] = set()
    for path in [*(ROOT / "cake" / "expand").glob("*.py"), ROOT / "cake" / "compiler.py"]:
        found.update(re.findall(r'"([A-Z]\d{3})"', path.read_text(encoding="utf-8")))
    return sorted(code for code in found if code[0] not in "SX")


@pytest.mark.parametrize("code", used())
def test_page(code: str) -> None:
    assert code in all_codes()
    page = explain(code)
    if page.fail is None or page.good is None:
        assert page.source != "text"
        return
    assert set(codes(page.fail)) == {code}
    assert codes(page.good) == []
