"""Partial-order reduction leaves the search's verdict as it is."""

from __future__ import annotations

import random

import pytest

from cake.verify.search import search
from cake.verify.search.lower import Launch
from cake.verify.search.model import Model
from cake.verify.search.persistent import Reduction
from cake.verify.search.transitions import Transitions
from tests.engines.test_litmus import CASES, TABLE
from tests.litmus.catalogue import kernel
from tests.litmus.test_litmus import arguments
from tests.mutation.classes import mutants
from tests.mutation.parents import synthetic


@pytest.mark.parametrize(("name", "size", "codes"), CASES)
def test_litmus(name: str, size: dict[str, int], codes: list[str]) -> None:
    k = kernel(name)
    values, ctas = {**arguments(k), **size}, TABLE[name].ctas
    for halves in (False, True) if not name.startswith("22_") else (False,):
        full = search(k, values, ctas=ctas, limit=20_000, halves=halves)
        reduced = search(k, values, ctas=ctas, limit=20_000, halves=halves, reduced=True)
        assert reduced.verdict == full.verdict, (full, reduced)
        assert reduced.states <= full.states or full.verdict == "broken"


def test_mutants() -> None:
    """Of rings, turns and exchanges, broken and whole ones."""
    rnd = random.Random(11)
    seen = set()
    for p in synthetic():
        if p.name not in (
            "tma_load_s2_l1_w1x2",
            "mixed_load_s2_l0_w2x1",
            "turns_s2_x2",
            "stores_s3_w2",
            "exchange_w2",
            "copies_k1",
        ):
            continue
        for m in rnd.sample(list(mutants(p.kernel)), 10):
            values = p.launches[-1]
            full = search(m.kernel, values, limit=5_000)
            if full.verdict != "unknown":
                assert search(m.kernel, values, reduced=True).verdict == full.verdict, (p.name, m.what)
                seen.add(full.verdict)
    assert seen == {"clean", "broken"}


def test_one_order_is_enough_for_a_ring() -> None:
    """The states that are left are as many as the moves: nothing is interleaved."""
    p = next(p for p in synthetic() if p.name == "tma_wgmma_s2_l1_w4x2")
    machine = Transitions(Model(Launch(p.kernel, p.launches[-1])))
    reduction = Reduction(machine)
    state, moves = machine.first(), 0
    while not machine.finished(state):
        following = list(reduction.successors(state))
        assert len(following) == 1
        state, moves = following[0][1], moves + 1
    assert moves > 50 and search(p.kernel, p.launches[-1]).states > 10 * moves
