"""The table of elementwise operations: arity, types, and the accuracy the hardware promises.

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
    operands, "bool", or given by the node's dtype (casts). ``ulp`` bounds the difference between the NumPy meaning and the
    CUDA one in units in the last place of f32 (0: bit for bit), with the ``reason``."""

    name: str
    arity: int
    operands: str
    result: Result
    ulp: float = 0
    reason: str = "exact"


_EXACT = "IEEE 754 round to nearest even; a multiply and an add may contract to one fma"
_APPROX = "PTX ISA .approx.ftz.f32, maximum error as tabulated there"

ELEMENTWISE: dict[str, Elementwise] = {
    e.name: e
    for e in (
        Elementwise("neg", 1, "number", "same"),
        Elementwise("not", 1, "bool", "bool"),
        Elementwise("abs", 1, "number", "same"),
        Elementwise("+", 2, "number", "same", 1, _EXACT),
        Elementwise("-", 2, "number", "same", 1, _EXACT),
        Elementwise("*", 2, "number", "same", 1, _EXACT),
        Elementwise("/", 2, "float", "same", 2, "div.full.f32: PTX ISA bounds it by 2 ulp"),
        Elementwise("//", 2, "int", "same"),
        Elementwise("%", 2, "int", "same"),
        Elementwise("cdiv", 2, "int", "same"),
        Elementwise("min", 2, "number", "same"),
        Elementwise("max", 2, "number", "same"),
        Elementwise("==", 2, "any", "bool"),
        Elementwise("!=", 2, "any", "bool"),
        Elementwise("<", 2, "number", "bool"),
        Elementwise("<=", 2, "number", "bool"),
        Elementwise(">", 2, "number", "bool"),
        Elementwise(">=", 2, "number", "bool"),
        Elementwise("and", 2, "bool", "bool"),
        Elementwise("or", 2, "bool", "bool"),
        Elementwise("where", 3, "any", "same"),
        Elementwise("cast", 1, "any", "dtype"),
        Elementwise("exp2", 1, "float", "same", 2, "ex2.approx.ftz.f32: 2 ulp over the full range"),
        Elementwise("log2", 1, "float", "same", 4, _APPROX),
        Elementwise("exp", 1, "float", "same", 4, "ex2.approx of x*log2(e): the product's rounding adds to ex2's error"),
        Elementwise("log", 1, "float", "same", 4, _APPROX),
        Elementwise("rsqrt", 1, "float", "same", 2, _APPROX),
        Elementwise("sqrt", 1, "float", "same", 2, _APPROX),
        Elementwise("tanh", 1, "float", "same", 4096, "tanh.approx.f32: relative error 2^-11"),
        Elementwise("erf", 1, "float", "same", 4, "CUDA math library erff: 2 ulp, plus the double-precision reference's cast"),
    )
}
