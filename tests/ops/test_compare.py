"""The comparison itself, and forms that no hardware has."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from cake.compiler import expand_text
from cake.diagnostics import CakeError
from cake.ir.dtypes import numpy_dtype
from cake.ir.elementwise import ELEMENTWISE
from tests.ops.compare import Bound, difference, raw, to_float
from tests.ops.elementwise import converted
from tests.ops.table import FORMS
from tests.ops.values import FLOATS, rounded, values


@pytest.mark.parametrize("dtype", FLOATS)
def test_rounding_agrees_with_the_types(dtype: str) -> None:
    """The reference's own rounding against NumPy and ml_dtypes, on every exponent, ties included."""
    rng = np.random.default_rng(0)
    x = values(rng, "extreme", "f32", (4000,)).astype(np.float64)
    x = np.concatenate([x, values(rng, "random", "f32", (2000,), 100.0), np.arange(-300, 300) / 64.0])
    largest = 448.0 if dtype == "e4m3" else 57344.0
    clipped = np.clip(x, -largest, largest) if dtype in ("e4m3", "e5m2") else x
    with np.errstate(all="ignore"):
        want = clipped.astype(np.float32).astype(numpy_dtype(dtype))
    assert (raw(rounded(x, dtype)) == raw(want)).all()
    assert np.array_equal(to_float(raw(want), dtype), want.astype(np.float64), equal_nan=True)


def test_integers_become_floats_through_f32() -> None:
    a = np.array([2**24 + 1, 2**30 + 2**22 + 1, -(2**31), 65519], np.int32)
    assert (converted(a, "i32", "bf16") == a.astype(np.float32).astype(ml_dtypes.bfloat16)).all()


def test_distances() -> None:
    one = np.float32(1.0)
    near = np.nextafter(one, np.float32(2))
    pairs = [(one, near, 1.0), (np.float32(0.0), np.float32(-0.0), 1.0), (np.float32("nan"), one, np.inf)]
    for a, b, distance in pairs:
        found = difference(np.array([a]), np.array([b]), "f32")
        assert (found.max_ulp, found.mismatches) == (distance, 1)
    quiet, odd = np.array([0x7FC00000], np.uint32), np.array([0xFFFFFFFF], np.uint32)
    assert difference(quiet, odd, "f32").mismatches == 0
    tiny, normal = np.array([0.0], np.float32), np.array([2.0**-126], np.float32)
    assert difference(tiny, normal, "f32", Bound(ulp=1, ftz=True)).mismatches == 0
    assert difference(tiny, normal, "f32", Bound(ulp=1)).mismatches == 1
    assert difference(np.array([one]), np.array([near]), "f32", Bound(absolute=1e-6)).mismatches == 0
    both = np.array([1, 2], np.int32), np.array([1, 3], np.int32)
    assert difference(*both, "i32").mismatches == 1
    assert difference(*both, "i32", Bound(free=np.array([False, True]))).mismatches == 0


def test_every_elementwise_row_has_forms() -> None:
    named = {name.split()[1] for name in FORMS if name.startswith("elementwise")} | {"cast"}
    assert named >= ELEMENTWISE.keys()


@pytest.mark.parametrize(("function", "dtype"), [("min", "f32"), ("max", "f32"), ("add", "u8"), ("add", "e4m3")])
def test_bulk_reductions_that_do_not_exist(function: str, dtype: str) -> None:
    form = FORMS["tma.reduce add bf16 2d"]
    text = form.source.replace("bf16", dtype).replace("s.o, add", f"s.o, {function}")
    if dtype != "f32":
        text = text.replace("swizzle(128)", "swizzle(64)")
    with pytest.raises(CakeError) as error:
        expand_text(text, "x.cake")
    assert error.value.diagnostics[0].code == "T005" and "tma.reduce" in error.value.diagnostics[0].message
