"""Stored disagreements between engines are decided, and the engines still say what was written down."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cake.expand.prune import flatten
from cake.ir import expanded as x
from tests.engines import store
from tests.engines.store import Disagreement, load
from tests.engines.verdicts import ENGINES, verdicts
from tests.litmus.catalogue import kernel
from tests.litmus.test_litmus import arguments
from tests.ptx.compiled import needs_nvrtc

STORED = load()


@pytest.mark.parametrize("name", STORED)
def test_decided(name: str) -> None:
    """An unresolved one fails: say who is right, by the ISA or an axiom."""
    stored = STORED[name]
    assert stored.resolved, (
        f"{name}: `right`, and a `resolution` that cites `PTX ISA` with a section, or `axiom A1` to A10"
    )
    assert set(stored.now) <= set(stored.then) == set(ENGINES) and stored.now
    assert len(set(stored.then.values())) > 1, "no disagreement"


@needs_nvrtc
@pytest.mark.parametrize("name", STORED)
def test_still_said(name: str) -> None:
    stored = STORED[name]
    said = verdicts(stored.kernel(), stored.values(), stored.ctas)
    assert {engine: said[engine] for engine in stored.now} == stored.now


def test_what_counts_as_decided() -> None:
    """A bare opinion does not."""
    base: dict[str, Any] = {"title": "t", "program": "p", "then": {}, "now": {}}
    assert not Disagreement(**base).resolved
    assert not Disagreement(**base, right="ptx", resolution="fixed the oracle").resolved
    assert Disagreement(**base, right="ptx", resolution="PTX ISA 9.7.13.1").resolved


def test_a_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the benchmark files is as small as the difference allows, can be read again, and is not decided."""

    def has_copy(k: x.Kernel) -> bool:
        return any(isinstance(n, x.Op) and n.op == "tma.load" for role in k.roles for n in flatten(role.body))

    k = kernel("05_tma_load_wait_read")
    small = store.shrink(k, has_copy)
    assert [n.kind for role in small.roles for n in flatten(role.body)] == ["op", "exit", "exit"]
    monkeypatch.setattr(store, "HERE", tmp_path)
    said = dict.fromkeys(ENGINES, "clean") | {"ptx": "broken"}
    store.write("new", "a copy", small, {**arguments(k), "n": 3}, 1, said)
    found = store.load()["new"]
    assert found.kernel() == small and found.values()["n"] == 3 and found.then == found.now == said
    assert not found.resolved
