"""Ping-pong GEMM: values and order over tile counts and ring positions; what happens without the turn and without the skips."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cake.codegen.build import build
from cake.compiler import expand_text
from cake.diagnostics import CakeError
from cake.ir import expanded as x
from cake.machine import run
from cake.machine.order import check
from cake.verify.engine import verify
from examples import gemm_pingpong
from tests.examples import EXAMPLES

TEXT = (EXAMPLES / "gemm_pingpong.cake").read_text()


def kernel(text: str = TEXT, **constants: Any) -> x.Kernel:
    """The kernel at a point of its search set."""
    return expand_text(text, constants=constants)


def given(m: int, n: int, k: int) -> dict[str, Any]:
    """Arguments of a product."""
    values = gemm_pingpong.inputs({"M": m, "N": n, "K": k}, {}, np.random.default_rng(m + n + k))
    return {**values, "c": np.zeros((m, n), values["a"].dtype)}


SHAPES = [
    (1, 8, 8, {}),  # one tile: the second warpgroup never works
    (130, 136, 64, {}),  # four tiles, one slab each
    (300, 264, 200, {}),  # nine tiles
    (257, 128, 712, {}),  # three tiles of twelve slabs: no multiple of the ring
    (200, 392, 328, {"BN": 192, "STAGES": 3}),
    (200, 520, 136, {"BM": 64, "BN": 256, "STAGES": 4}),
]


@pytest.mark.parametrize("ctas", [1, 2])
@pytest.mark.parametrize(("m", "n", "k", "constants"), SHAPES, ids=str)
def test_values(m: int, n: int, k: int, constants: dict[str, Any], ctas: int) -> None:
    arguments = given(m, n, k)
    expected = gemm_pingpong.reference(arguments, {}, {})["c"]
    for seed in (0, 1):
        out = run(kernel(**constants), arguments, seed=seed, ctas=ctas).outputs["c"].astype(np.float64)
        assert np.abs(out - expected).max() <= 2**-8 * np.abs(expected).max()


@pytest.mark.parametrize(("m", "n", "k"), [(1, 8, 8), (300, 264, 200), (257, 128, 712)])
def test_order(m: int, n: int, k: int) -> None:
    assert check(kernel(), given(m, n, k), ctas=1) == []


def test_counts() -> None:
    """A stage is given back by the four warps of the one warpgroup that took it."""
    k = kernel()
    assert (k.barrier("ab.full").count, k.barrier("ab.empty").count) == (1, 4)


@pytest.mark.parametrize("parts", [1, 2, 4])
def test_verified(parts: int) -> None:
    """Safe without split-K, and with it: each split waits for tiles before it in the list."""
    found = verify(kernel(SPLIT=parts), effort="quick")
    assert found.status == "safe", found.diagnostics
    assert found.claim.startswith("checked up to")


def test_compiled() -> None:
    report = build(kernel()).report
    assert report.registers <= 168 and not report.spills


WITHOUT_TURN = TEXT.replace("            with product:\n", "            if kt > 0:\n")
MUTANTS = [
    ("no turn", WITHOUT_TURN, {"P101", "P102", "P103", "P106", "P107", "D201", "D202", "D208"}),
    (
        "first skip",
        TEXT.replace("        ab.skip(w * kt)", "        ab.skip(0)"),
        {"P101", "P102", "P103", "D208", "P107"},
    ),
    (
        "skip of a tile",
        TEXT.replace("            ab.skip(kt) ", "            ab.skip(0) "),
        {"P101", "P102", "P103", "D208", "P107"},
    ),
    (
        "too far",
        TEXT.replace("            ab.skip(kt) ", "            ab.skip(kt + 1) "),
        {"P101", "P102", "P103", "D208", "P107"},
    ),
    ("all tiles", TEXT.replace("tiles[w::2]", "tiles"), {"P101", "P102", "P103", "D208", "O502", "P107"}),
]


@pytest.mark.parametrize(("text", "codes"), [m[1:] for m in MUTANTS], ids=[m[0] for m in MUTANTS])
def test_mutants_are_found(text: str, codes: set[str]) -> None:
    assert text != TEXT
    try:
        found = {d.code for d in check(kernel(text), given(300, 264, 200), ctas=1)}
    except CakeError as e:
        found = {d.code for d in e.diagnostics}
    assert found & codes, found


# ---- split-K --------------------------------------------------------------------------------------------------------


def split(m: int, n: int, k: int) -> dict[str, Any]:
    """Arguments with room for partial sums."""
    tiles = (-(-m // 128), -(-n // 128))
    return {**given(m, n, k), "part": np.zeros((*tiles, 128 * 128), np.float32), "flags": np.zeros(tiles, np.int32)}


@pytest.mark.parametrize(("parts", "k"), [(2, 712), (4, 712), (8, 200)])
@pytest.mark.parametrize("ctas", [1, 3])
def test_split(parts: int, k: int, ctas: int) -> None:
    """The same bits for every order of events; flags end at zero; some splits lie wholly past K."""
    arguments = split(200, 264, k)
    expected = gemm_pingpong.reference(arguments, {}, {})["c"]
    outs = [run(kernel(SPLIT=parts), arguments, seed=seed, ctas=ctas).outputs for seed in (0, 5)]
    assert np.abs(outs[0]["c"].astype(np.float64) - expected).max() <= 2**-8 * np.abs(expected).max()
    assert outs[0]["c"].tobytes() == outs[1]["c"].tobytes()
    assert not outs[0]["flags"].any()
    assert check(kernel(SPLIT=parts), arguments, ctas=ctas) == []


SPLIT_MUTANTS = [
    (
        "signal before the warps are done",
        "                sync()\n                signal",
        "                signal",
        "M401",
    ),
    ("only one thread has waited", "t.z)\n                    sync()", "t.z)", "M401"),
    ("no wait", "                    wait_until(flags[t.m, t.n], t.z)\n", "", "M401"),
    ("no signal", "                signal(flags[t.m, t.n], (t.z + 1) % SPLIT)\n", "", "P108"),
    ("not zero at the end", "(t.z + 1) % SPLIT)", "t.z + 1)", "M407"),
    ("nothing says that it is zero", "    assume zero(flags)\n", "", "M407"),
]


@pytest.mark.parametrize(("old", "new", "code"), [m[1:] for m in SPLIT_MUTANTS], ids=[m[0] for m in SPLIT_MUTANTS])
def test_split_mutants_are_found(old: str, new: str, code: str) -> None:
    assert TEXT.count(old) == 1
    found = verify(kernel(TEXT.replace(old, new), SPLIT=2), effort="quick")
    assert found.status == "unsafe" and code in found.codes, found.diagnostics


def test_split_compiled() -> None:
    report = build(kernel(SPLIT=4)).report
    assert report.registers <= 168 and not report.spills
