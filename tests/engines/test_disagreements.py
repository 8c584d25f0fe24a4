"""Stored disagreements between engines are decided, and the engines still say what was written down."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engines.store import Disagreement, load
from tests.engines.verdicts import ENGINES, verdicts
from tests.ptx.compiled import needs_nvrtc

STORED = load()


@pytest.mark.parametrize("name", STORED)
def test_decided(name: str) -> None:
    """An unresolved one fails: say who is right, by the ISA or an axiom."""
    stored = STORED[name]
    assert stored.resolved, (
        f"{name}: `right`, and a `resolution` that cites `PTX ISA` with a section, or `axiom A1` to A10"
    )
    assert set(stored.then) == set(stored.now) == set(ENGINES)
    assert len(set(stored.then.values())) > 1, "no disagreement"


@needs_nvrtc
@pytest.mark.parametrize("name", STORED)
def test_still_said(name: str) -> None:
    stored = STORED[name]
    assert verdicts(stored.kernel(), stored.values(), stored.ctas) == stored.now


def test_what_counts_as_decided() -> None:
    """A bare opinion does not."""
    base: dict[str, Any] = {"title": "t", "program": "p", "then": {}, "now": {}}
    assert not Disagreement(**base).resolved
    assert not Disagreement(**base, right="ptx", resolution="fixed the oracle").resolved
    assert Disagreement(**base, right="ptx", resolution="PTX ISA 9.7.13.1").resolved
