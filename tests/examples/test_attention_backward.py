"""attention_backward over packed sequences on the simulator: lengths 0 and 1, rows that see no key, grouped heads, both widths; the
same bits under every schedule where no two tiles add to one block."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cake.codegen.build import build
from cake.compiler import expand_file
from cake.expand.sequences import expand_sequence
from cake.ir.dtypes import numpy_dtype
from cake.ir.parser import parse
from cake.ir.sequences import Sequence
from cake.machine.sequences import run_sequence
from examples import attention_backward
from tests.examples import EXAMPLES

SOURCE = EXAMPLES / "attention_backward.cake"
BF16 = numpy_dtype("bf16")

LENGTHS: dict[str, tuple[list[int], list[int]]] = {
    "empty ones, single tokens, more queries than keys": ([0, 1, 130, 0, 200, 1, 3], [3, 0, 200, 0, 70, 1, 1]),
    "whole tiles, one query": ([128, 256, 1, 65], [128, 256, 321, 1]),
}


def sequence(constants: dict[str, Any]) -> Sequence:
    """The three launches at a point."""
    file = parse(SOURCE.read_text(encoding="utf-8"), str(SOURCE))
    expanded, found = expand_sequence(file, file.sequences[0], constants)
    assert expanded is not None, [d.message for d in found]
    return expanded


def gradients(
    constants: dict[str, Any], lengths: tuple[list[int], list[int]], heads: tuple[int, int], seed: int = 0
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a call computes, and what it should."""
    made = sequence(constants)
    cu_q, cu_k = (np.cumsum([0, *n]).astype(np.int32) for n in lengths)
    rng = np.random.default_rng(sum(lengths[0]) + sum(lengths[1]))
    values = attention_backward.packed(cu_q, cu_k, *heads, dict(made.constants), rng)
    want = attention_backward.reference(values, {}, dict(made.constants))
    given = values | {name: np.zeros(array.shape, BF16) for name, array in want.items()}
    return run_sequence(made, given, seed=seed).outputs, want


def check(found: dict[str, Any], want: dict[str, Any]) -> None:
    for name, expected in want.items():
        off = np.abs(found[name].astype(np.float64) - expected).max()
        assert off <= attention_backward.tolerance(name) * max(1e-3, np.abs(expected).max()), (name, off)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("d", [64, 128])
def test_lengths(d: int, lengths: tuple[list[int], list[int]], causal: bool) -> None:
    check(*gradients({"D": d, "CAUSAL": causal}, lengths, (2, 1)))


@pytest.mark.parametrize(("heads", "seed"), [((1, 1), 0), ((4, 4), 1), ((6, 2), 2), ((5, 1), 3)], ids=str)
def test_grouped_heads(heads: tuple[int, int], seed: int) -> None:
    """An odd number of blocks a head: the halves of the buffer between the warpgroups go on alternating from head to head."""
    check(*gradients({"D": 64, "BM": 64, "CAUSAL": False}, ([130, 0, 3], [70, 2, 90]), heads, seed))


@pytest.mark.parametrize(
    "constants", [{"LATE": True, "HG": 1}, {"D": 64, "BM": 64, "STAGES": 1, "LATE": False}], ids=str
)
def test_points(constants: dict[str, Any]) -> None:
    check(*gradients(constants, ([0, 1, 193, 66], [5, 1, 300, 40]), (2, 1)))


def test_one_tile_of_keys_gives_the_same_bits() -> None:
    """Sums of dQ then have one addend."""
    runs = [gradients({"CAUSAL": True}, ([100, 3], [120, 128]), (2, 2), seed)[0] for seed in range(2)]
    for name in ("dq", "dk", "dv"):
        assert len({r[name].tobytes() for r in runs}) == 1


@pytest.mark.parametrize("constants", [{"D": 128}, {"D": 64}], ids=str)
def test_compiled(constants: dict[str, Any]) -> None:
    """No spills, and no wgmma is serialised (the build would refuse)."""
    for name in ("prepare", "backward", "finish"):
        known = constants if name != "backward" else constants | {"CAUSAL": True}
        report = build(expand_file(SOURCE, kernel=name, constants=known)).report
        assert not report.spills
        assert name != "backward" or report.registers <= 168
