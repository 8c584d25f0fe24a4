"""Careless changes of the examples: the expander gives a kernel, or a diagnostic with a place, never anything else."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cake.expand.kernel import expand_kernel
from cake.expand.wellformed import problems
from cake.ir import surface as s
from cake.ir.parser import parse
from tests.expand.mutate import mutated

EXAMPLES = sorted((Path(__file__).parents[1] / "ir" / "examples").glob("*.cake"))


@cache
def kernels() -> list[tuple[s.File, s.Kernel]]:
    """Each kernel of each example."""
    files = []
    for path in EXAMPLES:
        text = path.read_text(encoding="utf-8").replace("tiles dynamic(load)", "tiles persistent")
        files.append(parse(text, path.name))
    return [(file, kernel) for file in files for kernel in file.kernels]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(which=st.integers(0, 10**6), seed=st.integers(0, 2**32), times=st.integers(1, 4))
def test_changed_examples(which: int, seed: int, times: int) -> None:
    file, kernel = kernels()[which % len(kernels())]
    changed = mutated(kernel, random.Random(seed), times)
    result, found = expand_kernel(file, changed)
    errors = [d for d in found if d.severity == "error"]
    assert (result is None) == bool(errors)
    assert all(d.span is not None and d.message and d.code for d in errors)
    if result is not None:
        assert problems(result) == []
