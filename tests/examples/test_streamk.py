"""Stream-K GEMM: values for any number of units, flags back at zero, the same bits under every schedule, and what is found when
the protocol between units is broken."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cake.compiler import expand_text
from cake.ir import expanded as x
from cake.machine import run
from cake.verify.engine import verify
from examples import gemm_streamk
from tests.examples import EXAMPLES

TEXT = (EXAMPLES / "gemm_streamk.cake").read_text()


def kernel(text: str = TEXT, **constants: Any) -> x.Kernel:
    """The kernel at a point of its search set."""
    return expand_text(text, constants=constants or {"BN": 64, "STAGES": 8})


def given(m: int, n: int, k: int, units: int, bn: int) -> dict[str, Any]:
    """Arguments of a product; the workspace holds NaN."""
    dims = {"M": m, "N": n, "K": k, "U": units}
    values = gemm_streamk.inputs(dims, {"BN": bn}, np.random.default_rng(m + n + k))
    return {**values, "c": np.zeros((m, n), values["a"].dtype)}


@pytest.mark.parametrize(
    ("m", "n", "k", "units"),
    [
        (1, 8, 8, 1),  # one slab
        (130, 72, 1000, 1),  # one unit walks everything
        (130, 72, 1000, 64),  # a unit a slab: sixteen parts a tile
        (130, 136, 200, 5),  # ends inside tiles
        (300, 136, 128, 9),  # three slabs a unit, two a tile
        (257, 64, 712, 7),  # units longer than tiles
    ],
)
def test_values(m: int, n: int, k: int, units: int) -> None:
    arguments = given(m, n, k, units, 64)
    expected = gemm_streamk.reference(arguments, {}, {})["c"]
    seen = set()
    for seed, ctas in ((0, 1), (1, 2), (2, 3)):
        outputs = run(kernel(), arguments, seed=seed, ctas=ctas).outputs
        out = outputs["c"].astype(np.float64)
        assert np.abs(out - expected).max() <= 2**-8 * np.abs(expected).max()
        assert not outputs["flags"].any()
        seen.add(outputs["c"].tobytes())
    assert len(seen) == 1


BROKEN = [
    (
        "sync()\n                    signal(flags[t.u, w], 1)",
        "signal(flags[t.u, w], 1)",
    ),  # tells before all have written
    ("wait_until(flags[p, w], 1)\n                        sync()", "sync()"),  # adds what may not be there
    (
        "wait_until(flags[p, w], 1)\n                        sync()",
        "wait_until(flags[p, w], 1)",
    ),  # one thread has waited
    ("                        signal(flags[p, w], 0)\n", ""),  # the next launch finds a one
    ("u = U - 1 - v", "u = v"),  # waits for units that no CTA may have taken
]


@pytest.mark.parametrize(("old", "new"), BROKEN, ids=["unsynced", "unwaited", "unshared", "left set", "forwards"])
def test_broken_protocols_are_found(old: str, new: str) -> None:
    assert TEXT.count(old) == 1
    verdict = verify(kernel(TEXT.replace(old, new)), effort="full")
    assert verdict.status == "unsafe", verdict.claim
