"""A fixed sample of the mutation suite: every class that small parents have; the full run is ``python -m benchmarks.mutation``."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests.mutation.classes import CLASSES, LEFT_OUT, mutants
from tests.mutation.judge import names, unrolled, verdict
from tests.mutation.matrix import Matrix, judge
from tests.mutation.parents import Parent, programs, synthetic
from tests.mutation.site import Mutant

PARENTS = (
    "tma_load_s2_l1_w1x1",
    "tma_load_s2_l0_w1x1_p2",
    "mixed_load_s2_l0_w2x1",
    "tma_store_s2_l0_w1x1",
    "tma_wgmma_s3_l1_w4x1",
    "turns_s2_x2",
    "stores_s3_w2",
    "exchange_w2",
    "copies_k1",
    "21_remote_write_cluster_scope",
    "28_flag_after_full_wait",
)
EACH = 4
"""Mutants of a class."""


def sample() -> dict[str, list[Mutant]]:
    """``EACH`` mutants of every class, over the parents in turn."""
    rnd = random.Random(7)
    by_class: dict[int, list[tuple[str, Mutant]]] = {}
    for p in chosen():
        for m in mutants(p.kernel):
            by_class.setdefault(m.number, []).append((p.name, m))
    found: dict[str, list[Mutant]] = {}
    for number in sorted(by_class):
        for name, m in rnd.sample(by_class[number], min(EACH, len(by_class[number]))):
            found.setdefault(name, []).append(m)
    return found


def chosen() -> list[Parent]:
    """The parents of the sample."""
    known = {p.name: p for p in (*synthetic(), *programs())}
    return [known[n] for n in PARENTS]


def test_classes() -> None:
    """At least 30 of the 45 classes are expressed; those left out say why."""
    assert len(CLASSES) >= 30
    assert set(CLASSES) | set(LEFT_OUT) == set(range(1, 46))


@pytest.mark.parametrize("parent", [p for p in synthetic() if "wgmma" not in p.name], ids=lambda p: p.name)
def test_parents_are_accepted(parent: Parent) -> None:
    assert verdict(parent, parent.kernel).kind == "accepted"
    launches, said = unrolled(parent, parent.kernel)
    assert said is None and len(names(launches)) > 30


def test_sample() -> None:
    """No broken mutant is accepted, no harmless one refused, the engines decide all."""
    matrix, known = Matrix(), {p.name: p for p in chosen()}
    for name, found in sample().items():
        for result in judge(known[name], found):
            matrix.add(result)
    wrong = Counter(n["cell"] for n in matrix.notes)
    assert not wrong, matrix.notes
    assert matrix.total("broken rejected") > 60 and matrix.total("harmless accepted") > 15
