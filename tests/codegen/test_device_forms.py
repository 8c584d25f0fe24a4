"""Forms on which an H200 once gave something else than the simulator: their generated code, run on the CPU."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

from cake.codegen import emit
from cake.compiler import expand_text
from tests.codegen.emulator import run
from tests.ops.compare import difference, raw
from tests.ops.table import FORMS

EXTREMA = [
    f"{function} {dtype} {shape}"
    for function in ("argmax", "argmin")
    for dtype in ("f32", "bf16", "i32")
    for shape in ("frag 64x40", "frag 16x8", "spread(1) 1x96")
]
SUMS = [f"reduce {f} {dtype} warp partial round" for f in ("sum", "max", "min") for dtype in ("f32", "bf16", "i32")]
PRODUCTS = ["mma bf16 16x24x32 A shared B rows pad(8)", "mma bf16 16x8x16 A registers B rows pad(8)"]


@pytest.mark.parametrize("name", [*EXTREMA, *SUMS, *PRODUCTS, "argmax f32 spread(4) 1x256", "argmin f32 frag 128x64"])
def test_emulated(name: str) -> None:
    form = FORMS[name]
    dtypes = {t.name: t.dtype for t in form.kernel.tensors}
    for kind in form.classes if not name.startswith("mma") else ("random",):
        case = form.case(kind)
        flat = {n: _words(np.asarray(a), dtypes[n]).ravel().copy() for n, a in case.arguments().items()}
        with np.errstate(all="ignore"):
            run(form.kernel, flat)
        for n, expected in case.outputs.items():
            got = flat[n].view(raw(expected).dtype).reshape(expected.shape)
            found = difference(got, raw(expected), dtypes[n], case.bounds[n])
            assert not found.mismatches, (kind, n, found)


def _words(a: np.ndarray, dtype: str) -> np.ndarray:
    """Values as the emulator keeps them: 16-bit floats as their bits."""
    return a.view(np.uint16) if a.dtype in (ml_dtypes.bfloat16, np.float16) else a


@pytest.mark.parametrize("function", ["argmax", "argmin"])
def test_nothing_but_nan(function: str) -> None:
    """The neutral element, and column 0."""
    form = FORMS[f"{function} f32 frag 16x8"]
    y = {"x": np.full(128, np.nan, np.float32), "z": np.zeros(16, np.float32), "at": np.full(16, 9, np.int32)}
    with np.errstate(all="ignore"):
        run(form.kernel, y)
    assert (y["z"] == (-np.inf if function == "argmax" else np.inf)).all() and (y["at"] == 0).all()


def test_warps_of_no_role_run_none() -> None:
    """A gap between roles is not the last role's."""
    text = emit(FORMS["pipeline several producers and consumers"].kernel)
    calls = re.findall(r"(?:if \((.*)\)|else)\n\s*role_(\w+)\(p,", text)
    assert [name for _, name in calls] == ["load", "half", "left", "right"]
    taken = []
    for warp in range(12):
        for test, name in calls:
            if eval(test.replace("&&", "and") or "True", {"warp_id": warp}):
                taken.append(name)
                break
        else:
            taken.append("")
    assert taken == ["load", "half", "half", "", *["left"] * 4, *["right"] * 4]


def test_no_gap_no_test() -> None:
    """The last of adjacent roles takes what is left without a test."""
    text = emit(expand_text(FORMS["turn of 3"].source, "t.cake"))
    assert "warp_id <" not in text and "warp_id >=" not in text
