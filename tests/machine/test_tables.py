"""The registries agree with the tables, and the layout arrays with the register maps."""

from __future__ import annotations

import numpy as np
import pytest

from cake.ir.elementwise import ELEMENTWISE
from cake.ir.layout import Layout, RegisterMap
from cake.ir.ops import OPS, SYNC
from cake.machine import owners
from cake.machine.elementwise import ELEMENTWISE_MEANINGS
from cake.machine.meanings import MEANINGS
from cake.machine.synchronise import SIMPLE


def test_every_row_has_a_meaning() -> None:
    assert set(MEANINGS) == set(OPS)
    assert set(ELEMENTWISE_MEANINGS) == set(ELEMENTWISE)
    kinds = {cls.model_fields["kind"].default for cls in SIMPLE} | {"named"}
    assert kinds == set(SYNC)


CASES = [
    (64, 64, Layout(kind="frag"), 4),
    (128, 8, Layout(kind="frag"), 4),
    (32, 16, Layout(kind="frag"), 1),
    (64, 1, Layout(kind="frag"), 4),
    (64, 4, Layout(kind="frag"), 4),
    (1, 32, Layout(kind="frag"), 4),
    (64, 8, Layout(kind="quad"), 4),
    (128, 5, Layout(kind="quad"), 4),
    (16, 32, Layout(kind="quad"), 1),
    (64, 1, Layout(kind="quad"), 4),
    (1, 10, Layout(kind="quad"), 4),
    (256, 12, Layout(kind="rowwise"), 4),
    (128, 1, Layout(kind="rowwise"), 4),
    (1, 12, Layout(kind="rowwise"), 4),
    (3, 40, Layout(kind="spread", vector=4), 2),
    (1, 200, Layout(kind="spread", vector=1), 4),
    (1, 128, Layout(kind="spread", vector=1), 4),
    (1, 1, Layout(kind="spread", vector=1), 4),
    (1, 4, Layout(kind="perwarp"), 4),
    (2, 6, Layout(kind="uniform"), 2),
]


@pytest.mark.parametrize(("rows", "cols", "layout", "warps"), CASES, ids=str)
def test_owners_are_those_of_the_register_map(rows: int, cols: int, layout: Layout, warps: int) -> None:
    registers = RegisterMap(rows, cols, layout, 32 * warps)
    first: dict[tuple[int, int], int] = {}
    holders: dict[tuple[int, int], set[int]] = {}
    for thread in range(32 * warps):
        for register in range(registers.count):
            at = registers.element(thread, register)
            if at is not None:
                first.setdefault(at, thread)
                holders.setdefault(at, set()).add(thread // 32)
    assert len(first) == rows * cols
    owner = owners.owner(rows, cols, layout, warps)
    assert {at: int(owner[at]) for at in first} == first
    for warp in range(warps):
        held = owners.held_by(rows, cols, layout, warps, warp, False)
        for at, who in holders.items():
            assert (warp in who) == (held is None or bool(held[at]))


@pytest.mark.parametrize(("rows", "cols", "layout", "warps"), CASES, ids=str)
def test_lin_numbers_every_element_once(rows: int, cols: int, layout: Layout, warps: int) -> None:
    if owners.replicated(rows, cols, layout) or cols in (1, 4):
        pytest.skip("a replicated tile has no numbering of its own")
    numbers = owners.lin(rows, cols, layout, warps)
    assert sorted(numbers.reshape(-1).tolist()) == list(range(rows * cols))
    registers = RegisterMap(rows, cols, layout, 32 * warps)
    for thread in (0, 1, 32 * warps - 1):
        for register in range(registers.count):
            at = registers.element(thread, register)
            if at is not None:
                assert numbers[at] == registers.lin(thread, register)
    assert np.issubdtype(numbers.dtype, np.integer)
