"""The GEMM of the language document expands to the program that was worked out by hand."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from cake.compiler import expand_file
from tests.expand.compare import skeleton
from tests.expanded.gemm import gemm

SOURCE = Path(__file__).parents[1] / "ir" / "examples" / "gemm.cake"


@pytest.mark.parametrize(("bn", "stages", "group"), [(256, 4, 16), (128, 6, 8), (192, 4, 4)])
def test_same_program(bn: int, stages: int, group: int) -> None:
    """Counts, bytes, order of synchronising statements, offsets, registers, maps."""
    ours = skeleton(expand_file(SOURCE, constants={"BN": bn, "STAGES": stages, "GROUP": group}))
    theirs = skeleton(gemm(bn=bn, stages=stages, group=group))
    assert ours.keys() == theirs.keys()
    for part, expected in theirs.items():
        assert ours[part] == expected, part


def test_offsets_are_disjoint() -> None:
    """The order of buffers is free, overlap is not, and nothing is wasted."""
    kernel = expand_file(SOURCE)
    ranges = sorted((b.offset, b.offset + b.slot_bytes * b.slots * b.instances) for b in kernel.buffers)
    assert ranges[0][0] == 0
    assert all(a[1] == b[0] for a, b in itertools.pairwise(ranges))
    assert kernel.barriers[0].offset == ranges[-1][1]
    assert all(b.offset % 1024 == 0 for b in kernel.buffers)
