"""Values of scalar expressions: what the host computes for guards and grids, and the machine for loop bounds and
subscripts.

Integers are Python integers (a value that leaves its type is the reader's affair), f32 values are ``numpy.float32``
so that each operation rounds as on the device; bf16 and the like are their ml_dtypes scalars. ``//`` and ``%`` floor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from cake.ir.dtypes import DTYPES, numpy_dtype
from cake.ir.expr import Apply, Const, Expr, Sym
from cake.ir.numerics import flush, maximum, minimum

Env = Mapping[str, Any]
Scalar = Callable[[Env], Any]

FINITE_MAX = {"e4m3": 448.0, "e5m2": 57344.0}
"""CUDA converts to the 8-bit floats with saturation (``__NV_SATFINITE``), except that NaN stays NaN."""


def convert(value: Any, dtype: str) -> Any:
    """``value`` as a scalar of ``dtype``, as the device's cvt does: to nearest even; floats to integers truncate,
    saturate and take NaN to 0, to i64 to the least value (PTX ISA 9.7.9.21 cvt); integers become floats through f32; tf32
    rounds half away from zero (cvt.rna)."""
    kind = DTYPES[dtype].kind
    if kind == "bool":
        return bool(value)
    if kind == "int":
        if not isinstance(value, int):
            number = float(value)
            info = np.iinfo(numpy_dtype(dtype))
            if math.isnan(number):
                return int(info.min) if dtype == "i64" else 0
            return int(min(max(number, info.min), info.max))
        bits = DTYPES[dtype].bits
        wrapped = int(value) & ((1 << bits) - 1)
        signed = dtype != "u8" and wrapped >> (bits - 1)
        return wrapped - (1 << bits) if signed else wrapped
    if isinstance(value, int):
        value = np.float32(np.int64(value))
    if dtype in FINITE_MAX:
        limit = FINITE_MAX[dtype]
        value = min(max(float(value), -limit), limit) if not math.isnan(value) else value
    if dtype == "tf32" and not math.isnan(value):
        return ((np.float32(value).view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)
    return numpy_dtype(dtype).type(value)


def plain(value: Any, dtype: str) -> Any:
    """A NumPy element as the scalar that expressions work with."""
    kind = DTYPES[dtype].kind
    return bool(value) if kind == "bool" else int(value) if kind == "int" else numpy_dtype(dtype).type(value)


def _cdiv(a: int, b: int) -> int:
    return -(-a // b)


def _unary(function: Callable[[Any], Any]) -> Callable[[str], Callable[[Any], Any]]:
    def typed(dtype: str) -> Callable[[Any], Any]:
        kind = numpy_dtype(dtype).type
        return lambda a: kind(function(np.float32(a)))

    return typed


_APPROXIMATE: dict[str, Callable[[str], Callable[[Any], Any]]] = {
    "exp2": _unary(lambda a: flush(np.exp2(a))),
    "log2": _unary(lambda a: np.log2(flush(a))),
    "exp": _unary(lambda a: flush(np.exp(a))),
    "log": _unary(lambda a: np.log(flush(a))),
    "rsqrt": _unary(lambda a: 1.0 / np.sqrt(np.float64(flush(a)))),
    "sqrt": _unary(lambda a: np.sqrt(flush(a))),
    "tanh": _unary(np.tanh),
    "erf": _unary(lambda a: np.float32(math.erf(float(a)))),
}

_INFIX = {"+", "-", "*", "/", "//", "%", "==", "!=", "<", "<=", ">", ">=", "and", "or"}


class _Source:
    """Collects the Python text of an expression and the objects it names."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {}

    def bind(self, value: Any) -> str:
        name = f"_{len(self.names)}"
        self.names[name] = value
        return name

    def text(self, e: Expr) -> str:
        if isinstance(e, Const):
            if DTYPES[e.dtype].kind == "float":
                return self.bind(convert(e.value, e.dtype))
            return repr(bool(e.value) if e.dtype == "bool" else int(e.value))
        if isinstance(e, Sym):
            return f"e[{e.name!r}]"
        if not isinstance(e, Apply):
            raise ValueError(f"{e.kind} is not a scalar expression")
        return self.apply(e)

    def apply(self, e: Apply) -> str:
        args = [self.text(a) for a in e.args]
        floating = DTYPES[e.args[0].dtype].kind == "float"
        op = e.op
        if op in _INFIX:
            return f"({args[0]} {op} {args[1]})"
        if op == "neg":
            return f"(-{args[0]})"
        if op == "not":
            return f"(not {args[0]})"
        if op == "abs":
            return f"abs({args[0]})"
        if op == "where":
            return f"({args[1]} if {args[0]} else {args[2]})"
        if op in ("min", "max"):
            if floating:
                kind, function = numpy_dtype(e.dtype).type, minimum if op == "min" else maximum
                return f"{self.bind(lambda a, b: kind(function(a, b)))}({args[0]}, {args[1]})"
            return f"{op}({args[0]}, {args[1]})"
        if op == "cdiv":
            return f"{self.bind(_cdiv)}({args[0]}, {args[1]})"
        if op == "cast":
            dtype = e.dtype
            return f"{self.bind(lambda v: convert(v, dtype))}({args[0]})"
        return f"{self.bind(_APPROXIMATE[op](e.dtype))}({args[0]})"


def compile_expr(expr: Expr) -> Scalar:
    """A function from the values of the symbols to the value of ``expr``."""
    if isinstance(expr, Const):
        value = convert(expr.value, expr.dtype)
        return lambda e: value
    source = _Source()
    text = source.text(expr)
    function: Scalar = eval(f"lambda e: {text}", source.names)
    return function


def evaluate(expr: Expr, env: Env) -> Any:
    """The value of ``expr`` where its symbols have the values of ``env``."""
    with np.errstate(all="ignore"):
        return compile_expr(expr)(env)
