"""Where the engines and the order reading would disagree on a frozen program, the neighbour that shows why it is refused."""

from __future__ import annotations

from functools import partial

import ml_dtypes
import numpy as np

from cake.compiler import expand_file
from cake.ir import expanded as x
from cake.machine.order import check
from cake.verify.oracle import attack
from cake.verify.search import search
from tests.examples import EXAMPLES
from tests.litmus import build as b
from tests.litmus.build import R32, Smem, elements
from tests.litmus.catalogue import kernel
from tests.litmus.test_litmus import arguments
from tests.machine.edit import edit
from tests.mutation.rings import Ring, ring, stores, turns


def mixed(ids: tuple[int, int]) -> x.Kernel:
    """Program 33 with something to hand over: p writes and q reads, r writes and s reads."""
    names = {"p": ("left", "x", True), "q": ("left", "x", False), "r": ("right", "y", True), "s": ("right", "y", False)}
    roles = []
    for name, (barrier, line, writes) in names.items():
        at = elements(line)
        body = (b.write(at, 32), b.sync(barrier)) if writes else (b.sync(barrier), b.read(at, 32))
        roles.append(b.role(name, *body, tiles={"r": R32}))
    pairs = tuple(x.NamedBarrier(name=n, id=i, threads=64) for n, i in zip(("left", "right"), ids, strict=True))
    return b.kernel("mixed", roles, smem={"x": Smem((1, 32)), "y": Smem((1, 32))}, named=pairs)


def test_mixed_generations() -> None:
    """P114 refuses program 33, which has no data: the engines find that its generations mix, and nothing that suffers. With
    data there is a read before the write (PTX ISA 9.7.13.1: whoever comes completes the generation)."""
    k = kernel("33_two_named_barriers_on_one_id")
    found = search(k, arguments(k))
    assert found.verdict == "clean" and any("meets others" in line for line in found.trace)
    assert attack(k, arguments(k), 16).verdict == "clean"
    for ids, bad in (((1, 1), True), ((1, 2), False)):
        k = mixed(ids)
        assert search(k, {}).broken == bad
        assert attack(k, {}, 16).broken == bad
        assert {d.code for d in check(k, {}, ctas=1)} == ({"P114"} if bad else set())


def test_limit() -> None:
    """An exploration that is cut off says so."""
    k = kernel("34b_pingpong_with_turns")
    found = search(k, arguments(k), limit=20)
    assert (found.verdict, found.kind) == ("unknown", "U906")


def by_elected_lane(kind: type[x.Node], node: x.Stmt) -> x.Stmt:
    return node.model_copy(update={"executor": "warp"}) if isinstance(node, kind) else node


def test_elected_lane_does_not_wait_for_a_warpgroup() -> None:
    """Found by mutation: the elected lane's wgmma wait, then a barrier. wait_group is .sync.aligned (PTX ISA 9.7.15.6.2), so its
    siblings' registers are still in flight; the order reading took the barrier for enough."""
    k = kernel("12_release_after_the_wgmma_wait")
    for kind in (x.GroupWait, x.Commit):
        one = edit(k, partial(by_elected_lane, kind), "math")
        assert "C601" in [d.code for d in check(one, arguments(one), ctas=1)]


def test_slot_under_another_buffer() -> None:
    """Found by mutation: turns order every access, so a scratch that lies on a ring's slot is no race; but what the next instance
    reads there is not its fill (D10). The order reading compared fills with fills only."""
    k = turns(1, 3)
    scratch = next(buffer for buffer in k.buffers if buffer.name == "s")
    moved = tuple(c.model_copy(update={"offset": scratch.offset}) if c.name == "a" else c for c in k.buffers)
    values = {**arguments(k), "tiles": 1, "slabs": 1}
    assert check(k, values, ctas=1) == [] and search(k, values).verdict == "clean"
    k = k.model_copy(update={"buffers": moved})
    assert "D208" in [d.code for d in check(k, values, ctas=1)]
    assert search(k, values).kind == attack(k, values, 8).kind == "stale"


def test_fence_of_the_other_space() -> None:
    """Found by mutation: fence.proxy.async.global after cp.async into shared memory. The fence is of one state space (PTX ISA
    9.7.13.5); the order reading published the copies by a fence of either."""
    k = kernel("19_cp_async_wgmma_fence")

    def other(node: x.Stmt) -> x.Stmt:
        wrong = isinstance(node, x.Fence) and node.what == "async_shared"
        return node.model_copy(update={"what": "async_global"}) if wrong else node

    wrong = edit(k, other)
    assert "F301" in [d.code for d in check(wrong, arguments(wrong), ctas=1)]
    assert attack(wrong, arguments(wrong), 4).kind == "fence"
    assert attack(k, arguments(k), 4).verdict == "clean" and check(k, arguments(k), ctas=1) == []


def test_relaxed_acquire_of_a_slot() -> None:
    """A relaxed wait before ordinary stores into a slot: permission travels (E6), since no store is performed before the wait
    that it depends on; what would be read after it does not (litmus 08)."""
    k = ring(Ring(1, fill="stores"))
    values = {**arguments(k), "tiles": 1, "slabs": 3}
    loose = edit(k, lambda n: n.model_copy(update={"sem": "relaxed"}) if isinstance(n, x.Wait) else n, "load0")
    assert check(loose, values, ctas=1) == [] and attack(loose, values, 8).verdict == "clean"
    loose = edit(k, lambda n: n.model_copy(update={"sem": "relaxed"}) if isinstance(n, x.Wait) else n, "use")
    assert check(loose, values, ctas=1) and attack(loose, values, 8).kind == "visibility"


def test_wait_that_keeps_more_groups_than_there_are() -> None:
    """Found by mutation: with fewer groups than are kept, nothing is waited for. The machine told the order reading of the first
    ones as finished, so that a store ring whose wait keeps one group too many was accepted (D207)."""
    k = stores(4, 1)
    values = {**arguments(k), "tiles": 3, "slabs": 2}
    assert check(k, values, ctas=1) == [] and search(k, values).verdict == "clean"

    def more(node: x.Stmt) -> x.Stmt:
        if isinstance(node, x.GroupWait) and node.keep:
            return node.model_copy(update={"keep": node.keep + 1})
        return node

    k = edit(k, more)
    assert [d.code for d in check(k, values, ctas=1)] == ["D207"]
    assert search(k, values).kind == attack(k, values, 8).kind == "race"


def test_arrival_at_a_peer_that_is_a_tile_behind() -> None:
    """CTA 1 gives the last slab of its tile back to CTA 0: a tile ahead, it completes a phase there that nobody has begun.
    CTA 0 waits for nothing later, so no wait asks about the phase in which this run counts the arrival."""
    point = {"MATH": 1, "BN": 32, "STAGES": 3, "SPLIT": 2}
    k = expand_file(EXAMPLES / "gemm_split.cake", constants=point)

    def misled(role: x.Role) -> x.Role:
        tiles = next(n for n in role.body if isinstance(n, x.For))
        body = tuple(
            n.model_copy(update={"peers": (0,)}) if isinstance(n, x.Arrive) and n.barrier == "ab.empty" else n
            for n in tiles.body
        )
        changed = tiles.model_copy(update={"body": body})
        return role.model_copy(update={"body": tuple(changed if n is tiles else n for n in role.body)})

    wrong = k.model_copy(update={"roles": tuple(misled(r) if r.name == "math" else r for r in k.roles)})
    zero = ml_dtypes.bfloat16
    values = {"a": np.zeros((70, 200), zero), "b": np.zeros((32, 200), zero), "c": np.zeros((70, 32), zero)}
    assert check(k, values, ctas=1) == []
    assert "P102" in {d.code for d in check(wrong, values, ctas=1)}
    assert search(wrong, values, ctas=1, reduced=True, limit=40_000).kind == "deadlock"
