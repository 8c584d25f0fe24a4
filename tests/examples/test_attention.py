"""attention over packed sequences on the simulator: lengths 0 and 1, rows that see no key, grouped heads, every width of head with
the tiles that suit it, tiles in order and drawn from a counter; the same bits under every schedule."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cake.compiler import expand_text
from cake.ir import expanded as x
from cake.machine import run
from examples import attention
from tests.examples import EXAMPLES

SEEDS = (0, 1)

POINTS: list[dict[str, Any]] = [
    {"D": 128, "BN": 160},
    {"D": 128, "BN": 176, "Q_STAGES": 1},
    {"D": 64, "WGS": 3, "KV_STAGES": 3},
    {"D": 64, "WGS": 3, "BN": 112},
    {"D": 64, "BN": 176, "HG": 1},
    {"D": 256, "BN": 80, "Q_STAGES": 1, "HG": 4},
    {"D": 256, "BN": 64, "Q_STAGES": 1},
]
LENGTHS: dict[str, tuple[list[int], list[int]]] = {
    "empty ones": ([0, 1, 130, 0, 65], [3, 0, 200, 0, 1]),
    "single tokens": ([1, 1, 1], [1, 1, 1]),
    "more queries than keys": ([200, 3], [70, 1]),
    "one query each": ([1, 1], [321, 64]),
}


def kernel(constants: dict[str, Any], ordered: bool) -> x.Kernel:
    """attention at a point, its tiles drawn or in order."""
    text = (EXAMPLES / "attention.cake").read_text(encoding="utf-8")
    schedule = ("tiles dynamic(load):", "tiles persistent:")
    assert schedule[0] in text
    return expand_text(text.replace(*schedule) if ordered else text, "attention.cake", constants=constants)


def packed(queries: list[int], keys: list[int], h: int, hk: int, constants: dict[str, Any]) -> dict[str, Any]:
    """Arguments of a call on sequences of these lengths."""
    dims = {"B": len(queries), "H": h, "HK": hk, "TQ": sum(queries), "TK": sum(keys)}
    values = attention.inputs(dims, constants, np.random.default_rng(sum(queries) + sum(keys)))
    values["cu_q"] = np.cumsum([0, *queries]).astype(np.int32)
    values["cu_k"] = np.cumsum([0, *keys]).astype(np.int32)
    values["max_q"] = max(queries)
    return values


def check(
    constants: dict[str, Any], lengths: tuple[list[int], list[int]], heads: tuple[int, int], ordered: bool = False
) -> None:
    """Run under two schedules and compare with float64: rows that see no key are zero with a sum whose logarithm is -inf."""
    k = kernel(constants | {"LSE": True}, ordered)
    values = packed(*lengths, *heads, dict(k.constants))
    want = attention.reference(values, {}, dict(k.constants))
    given = dict(values)
    given["y"] = np.zeros(values["q"].shape, values["q"].dtype)
    given["lse"] = np.zeros(want["lse"].shape, np.float32)
    if ordered:
        del given["tile_counter"]
    results = [run(k, given, seed=seed).outputs for seed in SEEDS]
    for name in results[0]:
        assert len({r[name].tobytes() for r in results}) == 1, f"{name} depends on the schedule"
    assert ordered or not results[0]["tile_counter"].any()
    y, lse = results[0]["y"].astype(np.float64), results[0]["lse"]
    blind = np.isneginf(want["lse"])
    assert np.array_equal(np.isneginf(lse), blind)
    assert not y.transpose(1, 0, 2)[blind].any()
    assert np.abs(y - want["y"]).max() <= attention.tolerance("y") * max(1.0, np.abs(want["y"]).max())
    assert np.abs(lse[~blind] - want["lse"][~blind]).max(initial=0.0) <= 1e-3


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
def test_lengths(lengths: tuple[list[int], list[int]], causal: bool) -> None:
    check({"D": 64, "CAUSAL": causal}, lengths, (2, 1))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("constants", POINTS, ids=str)
def test_points(constants: dict[str, Any], causal: bool) -> None:
    check(constants | {"CAUSAL": causal}, ([0, 1, 193, 66], [5, 1, 300, 40]), (2, 1))


@pytest.mark.parametrize("heads", [(1, 1), (4, 4), (6, 2), (5, 1)], ids=str)
def test_grouped_heads(heads: tuple[int, int]) -> None:
    check({"D": 64, "CAUSAL": True}, ([70, 0, 3], [70, 2, 90]), heads)


@pytest.mark.parametrize("causal", [False, True])
def test_tiles_in_order(causal: bool) -> None:
    check({"D": 64, "WGS": 3, "CAUSAL": causal}, ([400, 0, 1, 65], [300, 3, 1, 500]), (2, 1), True)
