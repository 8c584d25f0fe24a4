"""The table of elementwise operations: arity, types, and the accuracy the hardware promises.

The contract: ``+ - *`` of f32 round to nearest even and keep subnormals; narrower floats are computed in f32 and rounded
once more; the approximate functions flush subnormal operands and results where their instruction does (``ftz``); ``min`` and
``max`` propagate NaN and order zeros; a NaN has no payload.

The NumPy meaning is registered under the same names in ``cake.machine.elementwise`` and the CUDA emission in
``cake.codegen.elementwise``; a test holds the three key sets equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Result = Literal["same", "bool", "dtype"]


@dataclass(frozen=True)
class Elementwise:
    """One operation. ``operands``: which dtypes it takes ("number", "int", "float", "bool", "any"). ``result``: "same" as the
    operands, "bool", or given by the node's dtype (casts).

    The NumPy meaning and the CUDA one may differ by ``ulp`` units in the last place of f32, or by ``absolute``, whichever is
    more (both 0: bit for bit, except that a NaN has no payload), with the ``reason``. A narrower result is rounded once more,
    which leaves ``floor(ulp / 2**lost bits) + 1`` of its own units. ``ftz``: subnormal f32 operands and results count as zeros
    of their sign, in both meanings."""

    name: str
    arity: int
    operands: str
    result: Result
    ulp: float = 0
    reason: str = "exact"
    absolute: float = 0
    ftz: bool = False


_EXACT = (
    "IEEE 754 round to nearest even, subnormals kept; a multiply and an add may contract to one fma, which moves the sum by "
    "half an ulp of the product"
)
_ZEROS = "exact; NaN wins, and of two zeros min takes -0 and max +0 (min.NaN.f32, max.NaN.f32)"
_INTEGER = "exact where the result fits the type (else undefined)"

ELEMENTWISE: dict[str, Elementwise] = {
    e.name: e
    for e in (
        Elementwise("neg", 1, "number", "same", 0, _INTEGER),
        Elementwise("not", 1, "bool", "bool"),
        Elementwise("abs", 1, "number", "same", 0, _INTEGER),
        Elementwise("+", 2, "number", "same", 0, _EXACT),
        Elementwise("-", 2, "number", "same", 0, _EXACT),
        Elementwise("*", 2, "number", "same", 0, _EXACT),
        Elementwise(
            "/",
            2,
            "float",
            "same",
            3,
            "a * rcp.approx.ftz.f32(b), b scaled into its range: 1 ulp of the reciprocal is up to 2 of the quotient, and the "
            "product rounds",
        ),
        Elementwise("//", 2, "int", "same", 0, _INTEGER),
        Elementwise("%", 2, "int", "same", 0, _INTEGER),
        Elementwise("cdiv", 2, "int", "same", 0, _INTEGER),
        Elementwise("min", 2, "number", "same", 0, _ZEROS),
        Elementwise("max", 2, "number", "same", 0, _ZEROS),
        Elementwise("==", 2, "any", "bool"),
        Elementwise("!=", 2, "any", "bool"),
        Elementwise("<", 2, "number", "bool"),
        Elementwise("<=", 2, "number", "bool"),
        Elementwise(">", 2, "number", "bool"),
        Elementwise(">=", 2, "number", "bool"),
        Elementwise("and", 2, "bool", "bool"),
        Elementwise("or", 2, "bool", "bool"),
        Elementwise("where", 3, "any", "same"),
        Elementwise(
            "cast",
            1,
            "any",
            "dtype",
            0,
            "cvt.rn (integers through f32; tf32: cvt.rna; 8-bit floats: satfinite), cvt.rzi clamped for float to integer",
        ),
        Elementwise("exp2", 1, "float", "same", 3, "ex2.approx.ftz.f32: 2 ulp over the full range; NumPy: 1", ftz=True),
        Elementwise(
            "log2",
            1,
            "float",
            "same",
            4,
            "lg2.approx.ftz.f32: absolute error 2^-22 for operands in (0.5, 2), relative error 2^-22 elsewhere",
            2.0**-22,
            ftz=True,
        ),
        Elementwise(
            "exp",
            1,
            "float",
            "same",
            108,
            "ex2.approx.ftz of x * log2(e): the rounded product adds to ex2's error, 2 + 1.173 |x| ulp (CUDA C++ Programming "
            "Guide, __expf) for |x| up to 89; NumPy: 1",
            ftz=True,
        ),
        Elementwise(
            "log",
            1,
            "float",
            "same",
            6,
            "lg2.approx.ftz.f32 times ln(2): its bounds, and the rounding of the product",
            2.0**-22,
            ftz=True,
        ),
        Elementwise("rsqrt", 1, "float", "same", 3, "rsqrt.approx.ftz.f32: relative error 2^-22.9", ftz=True),
        Elementwise("sqrt", 1, "float", "same", 3, "sqrt.approx.ftz.f32: relative error 2^-23", ftz=True),
        Elementwise("tanh", 1, "float", "same", 8193, "tanh.approx.f32: relative error 2^-11; subnormals kept"),
        Elementwise(
            "erf",
            1,
            "float",
            "same",
            3,
            "CUDA math library erff: 2 ulp (CUDA C++ Programming Guide); the reference rounds",
        ),
    )
}
