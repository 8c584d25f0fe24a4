"""What Theorem 1 says, tested: the verdict of a program does not depend on the schedule it was read from, and a program
without findings gives one result in every schedule."""

from __future__ import annotations

import random

import numpy as np
import pytest

from cake import machine
from cake.diagnostics import CakeError
from cake.machine.order import check
from tests.expanded.gemm import gemm
from tests.litmus.catalogue import kernel, verdicts
from tests.litmus.mutate import mutate
from tests.litmus.test_litmus import arguments
from tests.machine.small import BF16

TABLE = verdicts()


def schedules_agree(seed: int, count: int, schedules: int) -> None:
    rnd = random.Random(seed)
    names = list(TABLE)
    for _ in range(count):
        name = rnd.choice(names)
        k, what = mutate(kernel(name), rnd)
        size = {"tiles": rnd.randrange(1, 4), "slabs": rnd.randrange(1, 5)} if TABLE[name].sizes else {}
        size = {n: v for n, v in size.items() if n in {s.name for s in k.scalars}}
        values = {**arguments(k), **size}
        safe = [not check(k, values, ctas=TABLE[name].ctas, seed=s) for s in range(schedules)]
        assert len(set(safe)) == 1, (name, what, size, safe)


def one_result(seed: int, count: int, schedules: int) -> None:
    rnd, rng = random.Random(seed), np.random.default_rng(seed)
    m, n, k = 256, 64, 200
    values = {
        "a": rng.standard_normal((m, k)).astype(BF16),
        "b": rng.standard_normal((n, k)).astype(BF16),
        "c": np.zeros((m, n), BF16),
    }
    for _ in range(count):
        mutant, what = mutate(gemm(bn=64, stages=rnd.choice((2, 3))), rnd)
        if check(mutant, values, ctas=1):
            continue
        results = set()
        for s in range(schedules):
            try:
                results.add(machine.run(mutant, values, ctas=1, seed=s).outputs["c"].tobytes())
            except CakeError as error:
                pytest.fail(f"{what}: accepted, but schedule {s} gives {error}")
        assert len(results) == 1, what


def test_schedules_agree() -> None:
    schedules_agree(1, 80, 4)


def test_accepted_mutants_give_one_result() -> None:
    one_result(1, 60, 8)


@pytest.mark.slow
def test_schedules_agree_at_length() -> None:
    schedules_agree(2, 3000, 8)


@pytest.mark.slow
def test_accepted_mutants_give_one_result_at_length() -> None:
    one_result(2, 1500, 24)
