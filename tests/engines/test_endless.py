"""Rotation: with many trips the search closes after finitely many states, whatever their number; faults are still found."""

from __future__ import annotations

import pytest

from cake.verify.search import search
from tests.litmus.catalogue import kernel
from tests.litmus.test_litmus import arguments
from tests.mutation.parents import zeros
from tests.mutation.rings import Ring, ring, turns
from tests.mutation.site import sites

RINGS = (
    Ring(1),
    Ring(2),
    Ring(3, lag=1),
    Ring(2, warps=2),
    Ring(2, producers=2),
    Ring(2, fill="mixed"),
    Ring(3, reader="wgmma", warps=4, lag=1),
)
KERNELS = {k.name: k for k in (*map(ring, RINGS), turns(2, 2))}


@pytest.mark.parametrize("name", KERNELS)
def test_closes(name: str) -> None:
    k = KERNELS[name]
    found = [search(k, {**zeros(k), "tiles": 1, "slabs": n}, endless=True) for n in (24, 48)]
    assert all(f.verdict == "clean" and f.complete for f in found), found
    assert found[0].states == found[1].states
    plain = search(k, {**zeros(k), "tiles": 1, "slabs": 48})
    assert plain.verdict == "clean" and plain.states > 2 * found[0].states


def test_faults_stay() -> None:
    """A release too early by one slab, and a slot leaked in each tile (litmus 37)."""
    k = ring(Ring(3, lag=1, reader="wgmma", warps=4))
    release = next(s for s in sites(k) if s.node.kind == "arrive" and s.node.barrier == "empty")
    early = release.update(slot=release.node.slot.model_copy(update={"back": release.node.slot.back - 1}))
    assert search(early, {**zeros(k), "tiles": 1, "slabs": 24}, endless=True).broken
    leak = kernel("37_tail_release_missing")
    assert search(leak, {**arguments(leak), "tiles": 24}, endless=True).kind == "deadlock"


def test_what_does_not_repeat_is_explored_as_it_is() -> None:
    """Every slab of a store ring writes rows of its own: no rotation, and the outcome says that ends were reached."""
    k = ring(Ring(2, reader="store"))
    found = search(k, {**zeros(k), "tiles": 1, "slabs": 12}, endless=True)
    assert found.verdict == "clean" and not found.complete
