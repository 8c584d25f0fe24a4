"""``tiles dynamic(role)``: one role draws, the others follow, and the counter ends as it began."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cake.codegen.build import build
from cake.compiler import expand_file, expand_text
from cake.ir import expanded as x
from cake.machine import run
from cake.machine.order import check as order
from cake.ptx.check import check as translated
from examples import attention
from tests.examples import EXAMPLES
from tests.expand.cases import Case, check, parametrised
from tests.expand.kernels import flat, ring, role

TILES = "tiles dynamic(load):\n    m in cdiv(M, 64)"


def example() -> x.Kernel:
    """Attention, whose tiles take unequal times and are drawn by its producer."""
    return expand_file(EXAMPLES / "attention.cake")


def given(kernel: x.Kernel) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arguments and reference."""
    constants = dict(kernel.constants)
    values = attention.inputs(attention.SIZES, constants, np.random.default_rng(0))
    expected = attention.reference(values, attention.SIZES, constants)
    return {**values, "y": np.zeros_like(values["q"])}, expected


def test_expansion() -> None:
    """The counter is the last parameter and assumed zero; positions go through a pipeline of two slots; loops step by what
    was drawn."""
    kernel = expand_text(ring(tiles=TILES))
    assert kernel.tensors[-1].name == "tile_counter" and [a.form for a in kernel.assumes] == ["zero"]
    assert (kernel.buffer("tiles.next").slots, kernel.barrier("tiles.empty").count) == (2, 4)
    for name in ("load", "math"):
        walk = next(n for n in flat(role(kernel, name).body) if n.kind == "for" and n.role == "tiles")
        assert walk.step.name == "t.step"
    assert [n.op for n in flat(role(kernel, "load").body) if n.kind == "op"] == ["tma.load", "draw", "store"]


@pytest.mark.parametrize("ctas", [1, 3])
def test_values_and_order(ctas: int) -> None:
    """Each tile is done once, by whichever CTA drew it; the counter is zero again."""
    kernel = example()
    arguments, expected = given(kernel)
    for seed in range(3):
        out = run(kernel, arguments, seed=seed, ctas=ctas).outputs
        assert np.abs(out["y"].astype(np.float64) - expected["y"]).max() < 2**-6
        assert out["tile_counter"].tolist() == [0]
    assert order(kernel, arguments, ctas=ctas) == []


def test_compiled() -> None:
    """No spills, and the compiled code draws, waits and hands on as the expanded kernel does."""
    artifact = build(example())
    assert not artifact.report.spills and artifact.report.registers <= 168
    assert translated(artifact.kernel, artifact.ptx) == []


def test_the_counter_starts_at_zero() -> None:
    from cake.diagnostics import CakeError

    kernel = example()
    arguments, _ = given(kernel)
    with pytest.raises(CakeError):
        run(kernel, {**arguments, "tile_counter": np.ones(1, np.int32)})


CASES = [
    Case("no role", "T022", ring(tiles=TILES.replace("(load)", "")), ("role",), alone=False),
    Case("unknown role", "T001", ring(tiles=TILES.replace("(load)", "(lode)")), ("load",), alone=False),
    Case("not one thread", "T022", ring(tiles=TILES.replace("(load)", "(math)")), ("one thread",), alone=False),
    Case("name taken", "T002", ring(tiles=TILES, params="tile_counter: i32, a: bf16[M, K], out c: bf16[M, 64]"), ("tile_counter",), alone=False),
]  # fmt: skip


@parametrised(CASES)
def test_misuse(case: Case) -> None:
    check(case)


def test_one_walk() -> None:
    text = ring(tiles=TILES)
    again = text.replace("do math:\n", "do math:\n        for t in tiles:\n            pass\n")
    assert again != text
    check(Case("two walks", "T022", again, ("once",), alone=False))
