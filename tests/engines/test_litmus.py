"""Both independent engines give the frozen verdicts of the litmus programs, as far as each can decide them.

The search knows protocol and execution order; what only fences, scopes, semantics or the lanes of a warp decide is the
oracle's. Program 33 is the one on which neither finds a bad execution: see ``test_mixed_generations``.
"""

from __future__ import annotations

import pytest

from cake.verify.oracle import attack
from cake.verify.search import search
from tests.litmus.catalogue import kernel, verdicts
from tests.litmus.test_litmus import arguments

TABLE = verdicts()
CASES = [(name, size, codes) for name, row in TABLE.items() for size, codes in row.expected()]

VISIBILITY = {
    "02_no_fence": "fence",
    "03_fence_by_issuer_only": "misplaced",
    "04_fence_before_the_write": "fence",
    "08_relaxed_wait": "visibility",
    "13_release_without_fence": "refill",
    "18_cp_async_wgmma_no_fence": "fence",
    "20_remote_write_cta_scope": "visibility",
    "25a_reuse_without_fence": "fence",
    "29_relaxed_release": "race",
    "43a_transposed_through_memory": "visibility",
}
"""What the search cannot see, and what the oracle calls it. (29: the read may come after the relaxed arrival.)"""

LANES = {
    "23_elected_lane_waits",
    "41a_neighbours_exchange",
    "42a_overwritten_while_a_neighbour_reads",
    "44a_arrivals_before_the_store",
}
"""What the search sees only if the elected lane and the rest of a warp are apart."""

APART = "45_a_shuffle_between"
"""Two lanes, neither the elected one, exchange: only with each lane apart is it seen."""

MIXED = "33_two_named_barriers_on_one_id"

POLICY = {"03_fence_by_issuer_only", "13_release_without_fence"}
"""Refused by axiom A4 only (verdict ``refused``)."""


@pytest.mark.parametrize(("name", "size", "codes"), CASES)
def test_search(name: str, size: dict[str, int], codes: list[str]) -> None:
    k = kernel(name)
    values = {**arguments(k), **size}
    found = search(k, values, ctas=TABLE[name].ctas, limit=20_000)
    unseen = name in VISIBILITY or name in LANES or name in (MIXED, APART)
    assert found.verdict == ("broken" if codes and not unseen else "clean"), found
    if name.startswith("22_"):
        return  # 24 agents of two CTAs: too many interleavings with lanes apart
    found = search(k, values, ctas=TABLE[name].ctas, limit=20_000, halves=True)
    unseen = name in VISIBILITY or name in (MIXED, APART)
    assert found.verdict == ("broken" if codes and not unseen else "clean"), found


@pytest.mark.parametrize(("name", "size", "codes"), CASES)
def test_oracle(name: str, size: dict[str, int], codes: list[str]) -> None:
    k = kernel(name)
    found = attack(k, {**arguments(k), **size}, 64, ctas=TABLE[name].ctas, lanes=name == APART)
    bad = bool(codes) and name != MIXED
    assert found.verdict == ("broken" if bad else "clean"), found
    assert found.policy == (name in POLICY)
    assert (TABLE[name].verdict == "refused") == (name in POLICY)
    if name in VISIBILITY:
        assert found.kind == VISIBILITY[name]


SCHEDULED = "40a_a_value_missed"
"""Whether a value is missed is up to the schedule alone: the spinning CTA comes too late or it does not."""


def test_oracle_does_not_need_luck() -> None:
    """Views, not schedules, show most of it: each unsafe program but one is caught by nearly every single seed."""
    missed = {}
    for name, size, codes in CASES:
        if codes and name != MIXED:
            k = kernel(name)
            values = {**arguments(k), **size}
            lanes = name == APART
            ways = [attack(k, values, (seed,), ctas=TABLE[name].ctas, lanes=lanes).verdict for seed in range(8)]
            if ways.count("clean") > (7 if name == SCHEDULED else 4):
                missed[name, str(size)] = ways.count("clean")
    assert missed == {}


def test_lanes_apart_change_no_verdict() -> None:
    """Each lane an agent of its own: programs that are right stay so."""
    for name, size, codes in CASES:
        k = kernel(name)
        if not codes and k.threads <= 64 and k.cluster == 1:
            found = attack(k, {**arguments(k), **size}, (0,), ctas=TABLE[name].ctas, lanes=True)
            assert found.verdict == "clean", (name, found)
