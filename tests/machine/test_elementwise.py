"""Each elementwise operation against a reference written another way, on extreme values, as scalars and as arrays."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from cake.ir.dtypes import DTYPES, numpy_dtype
from cake.ir.elementwise import ELEMENTWISE
from cake.ir.evaluate import evaluate
from cake.ir.expr import Apply, Sym
from cake.machine.elementwise import ELEMENTWISE_MEANINGS, cast, to_f32

FLOATS = [0.0, -0.0, 1.0, -1.5, 3.25, 1e-3, -7e4, 3e38, 1e-40, math.inf, -math.inf, math.nan]
INTS = [0, 1, -1, 7, -7, 100, -128, 127]
UNARY_MATH = {
    "exp2": lambda v: 2.0**v if v < 1e4 else math.inf,
    "log2": lambda v: math.log2(v) if v > 0 else -math.inf if v == 0 else math.nan,
    "exp": lambda v: math.exp(v) if v < 1e3 else math.inf,
    "log": lambda v: math.log(v) if v > 0 else -math.inf if v == 0 else math.nan,
    "rsqrt": lambda v: 1 / math.sqrt(v) if v > 0 else math.copysign(math.inf, v) if v == 0 else math.nan,
    "sqrt": lambda v: math.sqrt(v) if v >= 0 else math.nan,
    "tanh": math.tanh,
    "erf": math.erf,
}


def close(found: Any, expected: float, ulp: float) -> bool:
    a, b = float(found), float(np.float32(expected))
    if math.isnan(b) or math.isinf(b) or b == 0:
        return (math.isnan(a) and math.isnan(b)) or a == b
    return abs(a - b) <= ulp * float(np.spacing(np.float32(abs(b))))


@pytest.mark.parametrize("op", sorted(UNARY_MATH))
def test_transcendental(op: str) -> None:
    with np.errstate(all="ignore"):
        values = np.array([v for v in FLOATS if not math.isnan(v)], np.float32)
        found = ELEMENTWISE_MEANINGS[op]("f32")(values)
        assert found.dtype == np.float32
        for value, result in zip(values, found, strict=True):
            if ELEMENTWISE[op].ftz and abs(value) < 2.0**-126:
                value = np.copysign(np.float32(0), value)
            exact = UNARY_MATH[op](float(value))
            assert close(result, exact, max(1.0, ELEMENTWISE[op].ulp)), (op, value)
        assert np.isnan(ELEMENTWISE_MEANINGS[op]("f32")(np.array([math.nan], np.float32))).all()


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16", "i32"])
@pytest.mark.parametrize(
    "op", ["+", "-", "*", "/", "//", "%", "cdiv", "min", "max", "<", ">=", "==", "!=", "neg", "abs"]
)
def test_scalars_and_arrays_agree(op: str, dtype: str) -> None:
    """The closures for scalars and the functions on arrays are two implementations; they must be one meaning."""
    row = ELEMENTWISE[op]
    floating = DTYPES[dtype].kind == "float"
    if (row.operands == "int" and floating) or (row.operands == "float" and not floating):
        pytest.skip("not for this type")
    kind = numpy_dtype(dtype)
    with np.errstate(all="ignore"):
        values = [kind.type(v) for v in (FLOATS if floating else INTS)]
    result = "bool" if row.result == "bool" else dtype
    names = ("a", "b")[: row.arity]
    expr = Apply(op=op, args=tuple(Sym(name=n, dtype=dtype) for n in names), dtype=result)  # type: ignore[arg-type]
    with np.errstate(all="ignore"):
        for a in values:
            for b in values if row.arity == 2 else values[:1]:
                if not floating and op in ("//", "%", "cdiv") and b == 0:
                    continue
                env = {"a": a, "b": b} if floating else {"a": int(a), "b": int(b)}
                scalar = np.asarray(evaluate(expr, env)).astype(numpy_dtype(result))
                arrays = [np.array([v], kind) for v in (a, b)[: row.arity]]
                array = np.asarray(ELEMENTWISE_MEANINGS[op](result)(*arrays))[0]
                same = np.array_equal(np.float64(scalar), np.float64(array), equal_nan=True)
                if floating and scalar == 0:
                    same = same and bool(np.signbit(np.float64(scalar)) == np.signbit(np.float64(array)))
                assert same, f"{a} {op} {b}: {scalar} {array}"


def test_min_and_max_propagate_nan() -> None:
    for dtype in ("f32", "bf16", "f16"):
        kind = numpy_dtype(dtype)
        a, b = np.array([math.nan, 1.0], kind), np.array([1.0, math.nan], kind)
        for op in ("min", "max"):
            with np.errstate(all="ignore"):
                assert np.isnan(ELEMENTWISE_MEANINGS[op](dtype)(a, b).astype(np.float32)).all()


def test_floor_division() -> None:
    a = np.array([7, -7, 7, -7, 6, -6], np.int32)
    b = np.array([2, 2, -2, -2, 3, 3], np.int32)
    assert ELEMENTWISE_MEANINGS["//"]("i32")(a, b).tolist() == [3, -4, -4, 3, 2, -2]
    assert ELEMENTWISE_MEANINGS["%"]("i32")(a, b).tolist() == [1, 1, -1, -1, 0, 0]
    assert ELEMENTWISE_MEANINGS["cdiv"]("i32")(a, b).tolist() == [4, -3, -3, 4, 2, -2]


def test_rounding_to_bf16_is_to_nearest_even() -> None:
    bits = np.array([0x3F808000, 0x3F818000, 0x3F808001, 0x7F7FFFFF, 0x00000001], np.uint32).view(np.float32)
    assert cast(bits, "f32", "bf16").view(np.uint16).tolist() == [0x3F80, 0x3F82, 0x3F81, 0x7F80, 0x0000]
    everything = np.arange(1 << 16, dtype=np.uint16).view(ml_dtypes.bfloat16)
    assert np.array_equal(to_f32(everything), everything.astype(np.float32), equal_nan=True)


def test_casts_to_integers_truncate_and_saturate() -> None:
    values = np.array([2.7, -2.7, 3e9, -3e9, math.inf, -math.inf, math.nan, 2147483520.0], np.float32)
    expected = [2, -2, 2**31 - 1, -(2**31), 2**31 - 1, -(2**31), 0, 2147483520]
    assert cast(values, "f32", "i32").tolist() == expected
    assert cast(values, "f32", "u8").tolist() == [2, 0, 255, 0, 255, 0, 0, 255]
    scalars = [evaluate(Apply(op="cast", args=(Sym(name="a", dtype="f32"),), dtype="i32"), {"a": v}) for v in values]
    assert scalars == expected


def test_casts_to_8_bit_floats_saturate() -> None:
    values = np.array([448.0, 500.0, -1e6, math.inf, 0.0625, math.nan], np.float32)
    found = cast(values, "f32", "e4m3").astype(np.float32)
    assert found[:5].tolist() == [448.0, 448.0, -448.0, 448.0, 0.0625] and math.isnan(found[5])
    assert cast(values, "f32", "e5m2").astype(np.float32)[2] == -57344.0


def test_tf32_keeps_ten_bits() -> None:
    values = np.array([1 + 2**-11, 1 + 2**-10, 1 + 2**-12], np.float32)
    assert cast(values, "f32", "tf32").tolist() == [1 + 2**-10, 1 + 2**-10, 1.0]
