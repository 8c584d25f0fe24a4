"""The language document: its kernels check and run, what it calls not built says so, its tables are current."""

from __future__ import annotations

from pathlib import Path

import pytest

from cake import docs
from cake.compiler import check_text
from cake.expand.kernel import expand_kernel
from cake.ir.ops import OPS
from cake.ir.parser import parse
from tests.docs.support import Block, blocks, inputs, simulate, usual

LANGUAGE = Path(__file__).parents[2] / "docs" / "language.md"
BLOCKS = blocks(LANGUAGE)
BUILT = [b for b in BLOCKS if not b.mark]
REFUSED = [b for b in BLOCKS if b.mark]


@pytest.mark.parametrize("block", BUILT, ids=lambda b: b.name)
def test_clean(block: Block) -> None:
    assert [(d.code, d.message) for d in check_text(block.text, f"language.md:{block.line}")] == []


@pytest.mark.parametrize("block", BUILT, ids=lambda b: b.name)
def test_runs(block: Block) -> None:
    """Every kernel runs on the simulator over a small ragged shape, and gives the same in another order of events."""
    file = parse(block.text)
    for surface in file.kernels:
        kernel, _ = expand_kernel(file, surface)
        assert kernel is not None
        if usual(kernel):
            arguments = inputs(kernel)
            first, second = simulate(kernel, arguments), simulate(kernel, arguments, seed=7)
            for name, array in first.items():
                exact = "atomic" not in block.text and "tma.reduce" not in block.text
                assert not exact or array.tobytes() == second[name].tobytes()


@pytest.mark.parametrize("block", REFUSED, ids=lambda b: b.name)
def test_refused(block: Block) -> None:
    """A block marked with a code gives that code."""
    assert block.mark in {d.code for d in check_text(block.text)}


def test_tables_are_current() -> None:
    """Run ``python -m cake.docs`` after a change of the tables of operations."""
    text = LANGUAGE.read_text(encoding="utf-8")
    assert docs.updated(text) == text


def test_every_operation_is_shown() -> None:
    """Each operation that can be written occurs in an example."""
    text = "\n".join(b.text for b in BLOCKS)
    for row in OPS.values():
        head = row.surface.split("(")[0]
        if row.surface and "=" not in head:
            assert f"{head.split('|')[0]}(" in text, row.name
