"""Verdicts on all trip counts: what is right is proved, what fails at some count is found, whatever the count."""

from __future__ import annotations

import pytest

from cake.machine.order import check
from cake.verify import verify
from cake.verify.verdict import PROVED
from tests.litmus.test_litmus import arguments
from tests.verify.loops import Loops, at, beyond, residue


@pytest.mark.parametrize("slots", [1, 2, 3, 4])
@pytest.mark.parametrize("lag", [0, 1, 2])
def test_right_ones_are_proved(slots: int, lag: int) -> None:
    if lag >= slots:
        return
    verdict = verify(Loops(slots, lag).kernel())
    assert verdict.status == "safe" and verdict.claim == PROVED, verdict


@pytest.mark.parametrize(
    ("program", "first"),
    [
        (Loops(skips=at(17)), {"tiles": 1, "slabs": 21}),  # a lost slot shows when the ring comes round to it
        (Loops(skips=residue(7, 6)), {"tiles": 1, "slabs": 10}),
        (Loops(slots=4, lag=1, tail=False), {"tiles": 5, "slabs": 1}),
        (Loops(slots=3, lag=2, tail=False), {"tiles": 2, "slabs": 2}),
        (Loops(slots=2, lag=2), {"tiles": 1, "slabs": 3}),
    ],
)
def test_failures_at_some_count(program: Loops, first: dict[str, int]) -> None:
    """The least launch that fails is known; the verdict does not depend on guessing it."""
    kernel = program.kernel()
    assert check(kernel, {**arguments(kernel), **first}, ctas=1)
    verdict = verify(kernel)
    assert verdict.status == "unsafe", verdict
    assert verdict.diagnostics[0].witness[-1].startswith("launch: ")


def test_cursors_restarted_per_tile() -> None:
    """Right only where the slabs of a tile are a multiple of twice the depth, which no proof for all counts can accept."""
    kernel = Loops(slots=2, restart=True).kernel()
    assert check(kernel, {**arguments(kernel), "tiles": 3, "slabs": 4}, ctas=1) == []
    assert verify(kernel).status == "unsafe"


def test_a_guard_beyond_what_is_looked_at() -> None:
    """A constant that no launch reaches within the budget: the claim says how far was looked, and is no proof."""
    verdict = verify(Loops(skips=at(100_000)).kernel())
    assert verdict.status == "safe" and verdict.claim.startswith("checked up to")
    assert any("no proof for all trip counts" in note for note in verdict.notes)


def test_guards_outside_the_fragment() -> None:
    verdict = verify(Loops(skips=beyond(30)).kernel())
    assert verdict.status != "safe"
    assert verdict.status == "unsafe" or verdict.codes == ("U903",)
    verdict = verify(Loops(skips=beyond(10**8)).kernel())
    assert (verdict.status, verdict.codes) == ("unknown", ("U903",))


def test_loops_that_are_no_walk_over_tiles() -> None:
    """Two counts that vary independently: launches only, and the claim says so."""
    verdict = verify(Loops(tiled=False).kernel())
    assert verdict.status == "safe" and verdict.claim.startswith("checked up to")
    assert verify(Loops(slots=4, lag=1, tail=False, tiled=False).kernel()).status == "unsafe"
