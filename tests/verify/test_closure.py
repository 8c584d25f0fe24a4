"""The closure against launches: nothing is proved that fails at some launch, and what it explores is what it says."""

from __future__ import annotations

import random

import pytest

from cake.compiler import expand_file
from cake.ir import expanded as x
from cake.ir.expr import integer
from cake.machine.order import check
from cake.verify.closure import explore
from cake.verify.rings import Rings
from cake.verify.skeleton import Unfit, plan
from tests.litmus import build as b
from tests.litmus.build import cur
from tests.litmus.mutate import mutate
from tests.litmus.test_litmus import arguments
from tests.machine.edit import edit
from tests.verify.divided import SLABS, Divided
from tests.verify.loops import Loops, at, residue
from tests.verify.test_verdicts import EXAMPLES, SPECIFICATION

PARENTS = [Loops(2), Loops(3, 1), Loops(4, 2), Loops(3, skips=at(2)), Loops(2, 1)]
GRID = [(tiles, slabs) for tiles in (1, 2, 3, 6) for slabs in (1, 2, 3, 4, 7, 8)]


@pytest.mark.parametrize("seed", range(5))
def test_what_is_proved_holds_on_a_grid(seed: int) -> None:
    """Mutants of right rings: one that the closure accepts has no finding at any of these launches."""
    rnd = random.Random(seed)
    parent = PARENTS[seed].kernel()
    proved = 0
    for _ in range(25):
        mutant, what = mutate(parent, rnd)
        try:
            closed = explore(plan(mutant), max_steps=60_000, seconds=3.0)
        except Unfit:
            continue
        if closed.findings:
            continue
        proved += 1
        for tiles, slabs in GRID:
            launch = {**arguments(mutant), "tiles": tiles, "slabs": slabs}
            found = check(mutant, launch, ctas=1, values=False)
            assert found == [], (what, tiles, slabs)
    assert proved or seed == 3


def three_loops(slots: int) -> x.Kernel:
    """Over one count: a loop that does nothing, one that fills the ring and reads it, and one that gives its stages back."""

    def loops(node: x.Stmt) -> x.Stmt | list[x.Stmt]:
        if not isinstance(node, x.For) or node.role == "tiles":
            return node
        back = [n for n in node.body if isinstance(n, x.Arrive) and n.barrier == "empty"]
        rest = tuple(n for n in node.body if n not in back)
        later = [n.model_copy(update={"slot": cur("e")}) for n in back]
        bodies = ((b.SYNCWARP,), rest, (b.SYNCWARP, *later, *([b.step("e")] if back else [])))
        return [node.model_copy(update={"var": f"{node.var}{i}", "body": body}) for i, body in enumerate(bodies)]

    k = edit(Loops(slots).kernel(), loops)
    roles = tuple(r.model_copy(update={"cursors": {**r.cursors, "e": slots}}) for r in k.roles)
    return k.model_copy(update={"roles": roles})


def test_every_loop_over_the_count_has_to_repeat() -> None:
    """The first loop repeats at once, the second one deadlocks as soon as there are more trips than stages."""
    k = three_loops(8)
    for slabs, codes in ((8, []), (9, ["P101"])):
        assert [d.code for d in check(k, {**arguments(k), "tiles": 1, "slabs": slabs}, ctas=1, values=False)] == codes
    closed = explore(plan(k), max_steps=100_000, seconds=20.0)
    assert "P101" in {d.code for d in closed.findings} and closed.failing == {"%v0": 9}


def test_plans_of_the_examples() -> None:
    gemm = plan(expand_file(EXAMPLES / "gemm.cake"))
    ((count,), reach) = gemm.counts, gemm.reach
    assert (count.granule, count.least, count.launch, count.leaf, gemm.flags) == (64, 1, True, "K", {})
    assert reach == 2
    kda = plan(expand_file(SPECIFICATION / "kda.cake"))
    assert [(c.granule, c.ragged, c.launch) for c in kda.counts] == [(64, True, False)]  # left >= C needs the remainder
    rows = plan(expand_file(EXAMPLES / "rmsnorm.cake"))
    assert rows.counts == [] and list(rows.flags.values()) == [2]  # a condition for each of two instances


def test_residues_and_reach() -> None:
    assert plan(Loops(skips=residue(7, 6)).kernel()).moduli == {7}
    assert plan(Loops(skips=at(17)).kernel()).reach >= 18


def test_rings_turn_together() -> None:
    rings = Rings(expand_file(EXAMPLES / "gemm.cake"))
    ring = rings.of_buffer["ab.a"]
    assert ring.barriers == {"ab.full", "ab.empty"} and ring.buffers == {"ab.a", "ab.b"}
    assert ("load", "ab.fill") in ring.cursors and ("math", "s") in ring.cursors
    assert ring.slots == 4 and not ring.fixed and not ring.each
    assert rings.of_buffer["cs.c"].each  # every instance has its own


def test_cursors_set_back_have_no_skeleton() -> None:
    with pytest.raises(Unfit):
        plan(Loops(restart=True).kernel())


DIVIDED: dict[str, tuple[Divided, bool]] = {
    "two teams": (Divided(2, 2), True),
    "stages that do not divide": (Divided(3, 2), True),
    "three teams": (Divided(2, 3), True),
    "given back late": (Divided(3, 2, lag=1), True),
    "no turns": (Divided(3, 2, turn=False), False),
    "one stage too few": (Divided(3, 2, skip=b.i32("-", SLABS, 1)), False),
    "two rounds of the ring too many": (Divided(3, 2, skip=b.i32("+", SLABS, 6)), False),
    "what is right for three slabs": (Divided(3, 2, skip=integer(3)), False),
    "all begin with the first": (Divided(3, 2, first=integer(0)), False),
    "one of two others": (Divided(2, 3, skip=SLABS), False),
}


@pytest.mark.parametrize("name", DIVIDED)
def test_tiles_divided_among_instances(name: str) -> None:
    """Proved for all tiles and slabs where each instance skips what the others take; not where it skips something else."""
    program, right = DIVIDED[name]
    k = program.kernel()
    try:
        closed = explore(plan(k), max_steps=60_000, seconds=20.0)
    except Unfit:
        assert not right
    else:
        assert (closed.findings == []) == right
    launches = [{**arguments(k), "tiles": t, "slabs": s} for t, s in ((1, 2), (3, 1), (4, 4), (7, 3))]
    assert any(check(k, launch, ctas=1, values=False) for launch in launches) != right


@pytest.mark.parametrize("seed", range(3))
def test_what_is_proved_of_divided_tiles_holds_on_a_grid(seed: int) -> None:
    rnd = random.Random(seed)
    parent = (Divided(2, 2), Divided(3, 2, lag=1), Divided(2, 3))[seed].kernel()
    for _ in range(6):
        mutant, what = mutate(parent, rnd)
        try:
            closed = explore(plan(mutant), max_steps=20_000, seconds=3.0)
        except Unfit:
            continue
        for tiles, slabs in () if closed.findings else ((1, 1), (2, 3), (5, 2), (6, 5), (3, 8)):
            launch = {**arguments(mutant), "tiles": tiles, "slabs": slabs}
            assert check(mutant, launch, ctas=1, values=False) == [], (what, tiles, slabs)
