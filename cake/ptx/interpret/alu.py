"""Integer, bit and predicate arithmetic of PTX (9.7.1, 9.7.5, 9.7.6, 9.7.8), exact, on one warp's registers.

A register holds an unsigned integer of its width, a bool, ``None`` (not known: every float, and what is made of
floats), or a tuple of 32 of these where lanes differ.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

Value = Any
"""int, bool, None, or a tuple of 32 of them."""
Scalar = Callable[..., Value]
Compute = Callable[[list[Value]], None]
"""Executes one instruction on a list of registers."""

LANES = 32
_WIDTH = re.compile(r"[subf](8|16|32|64)$")
_FLOATS = ("f16", "f32", "f64", "bf16", "f16x2", "bf16x2", "tf32", "e4m3", "e5m2", "e4m3x2", "e5m2x2")


def width(kind: str) -> int:
    """Bits of a type."""
    found = _WIDTH.match(kind)
    return int(found[1]) if found else 1 if kind == "pred" else 32


def signed(v: int, bits: int) -> int:
    """The signed reading of an unsigned value."""
    return v - (1 << bits) if v >> (bits - 1) else v


def lift(f: Scalar) -> Scalar:
    """``f``, which takes known scalars, on values: unknown where an argument is, by lanes where lanes differ."""

    def strict(*args: Value) -> Value:
        return None if None in args else f(*args)

    return each(strict)


def each(f: Scalar) -> Scalar:
    """``f``, which takes scalars, on values."""

    def apply(*args: Value) -> Value:
        for a in args:
            if type(a) is tuple:
                break
        else:
            return f(*args)
        return uniform(tuple(f(*[a[i] if type(a) is tuple else a for a in args]) for i in range(LANES)))

    return apply


def uniform(v: tuple[Value, ...]) -> Value:
    """One value where all lanes agree."""
    first = v[0]
    for x in v:
        if x != first or type(x) is not type(first):
            return v
    return first


def _signed_args(f: Scalar, bits: int, mask: int) -> Scalar:
    return lambda *args: f(*[signed(a, bits) for a in args]) & mask


def _divide(a: int, b: int) -> int:
    """Rounded toward zero; the result of a division by zero is not specified (9.7.1.10)."""
    if b == 0:
        return -1
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


def _rest(a: int, b: int) -> int:
    return a - _divide(a, b) * b if b else -1


_PLAIN: dict[str, Scalar] = {
    "min": min,
    "max": max,
    "div": _divide,
    "rem": _rest,
    "neg": lambda a: -a,
    "abs": abs,
}
"""What depends on the sign."""


def _and(a: Value, b: Value) -> Value:
    if a is False or b is False or (a == 0 and type(a) is int) or (b == 0 and type(b) is int):
        return False if isinstance(a, bool) or isinstance(b, bool) else 0
    return None if a is None or b is None else a & b


def _or(a: Value, b: Value) -> Value:
    if a is True or b is True:
        return True
    return None if a is None or b is None else a | b


_BITS: dict[str, Scalar] = {
    "and": each(_and),
    "or": each(_or),
    "xor": lift(lambda a, b: a ^ b),
}


def _select(a: Value, b: Value, p: Value) -> Value:
    if p is None:
        return a if a == b else None
    return a if p else b


_COMPARE: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "lo": lambda a, b: a < b,
    "ls": lambda a, b: a <= b,
    "hi": lambda a, b: a > b,
    "hs": lambda a, b: a >= b,
}


def _bfi(bits: int) -> Scalar:
    def f(a: int, b: int, at: int, count: int) -> int:
        at, count = at & 255, count & 255
        field = (1 << count) - 1 << at & (1 << bits) - 1
        return b & ~field | a << at & field

    return f


def _bfe(bits: int, is_signed: bool) -> Scalar:
    def f(a: int, at: int, count: int) -> int:
        at, count = at & 255, count & 255
        found = (signed(a, bits) if is_signed else a) >> min(at, bits) & (1 << count) - 1
        top = min(at + count - 1, bits - 1)
        if is_signed and count and a >> top & 1:
            found |= -1 << count
        return found & (1 << bits) - 1

    return f


def _prmt(a: int, b: int, selector: int) -> int:
    both, out = b << 32 | a, 0
    for i in range(4):
        s = selector >> 4 * i & 15
        byte = both >> 8 * (s & 7) & 255
        if s & 8:
            byte = 255 if byte >> 7 else 0
        out |= byte << 8 * i
    return out


def _set_predicate(parts: list[str]) -> Scalar | None:
    compare = _COMPARE.get(parts[1])
    if compare is None:
        return None
    kind = parts[-1]
    bits, is_signed = width(kind), kind.startswith("s")

    def test(a: int, b: int) -> bool:
        return compare(signed(a, bits), signed(b, bits)) if is_signed else compare(a, b)

    plain = lift(test)
    if len(parts) == 3:
        return plain
    combine = {"and": _BITS["and"], "or": _BITS["or"], "xor": _BITS["xor"]}.get(parts[2])
    return None if combine is None else lambda a, b, c: combine(plain(a, b), c)


def function(opcode: str) -> Scalar | None:
    """The meaning of an instruction on values; None: its result is not known (floats)."""
    parts = [
        p for p in opcode.split(".") if p not in ("rn", "rz", "rm", "rp", "rni", "rzi", "rmi", "rpi", "sat", "uni")
    ]
    op, kind = parts[0], parts[-1]
    if op == "selp":
        return each(_select)
    if kind in _FLOATS or (op == "cvt" and parts[-2] in _FLOATS):
        return None
    bits = width(kind)
    mask = (1 << bits) - 1
    if op in ("mov", "cvta"):
        return lambda a: a
    if op in _BITS:
        return _BITS[op]
    if op == "not":
        return lift(lambda a: not a) if kind == "pred" else lift(lambda a: ~a & mask)
    if op == "setp":
        return _set_predicate(parts)
    if op == "cvt":
        source, to = parts[-1], width(parts[-2])
        n, out = width(source), (1 << to) - 1
        if source.startswith("s"):
            return lift(lambda a: signed(a & (1 << n) - 1, n) & out)
        return lift(lambda a: a & (1 << n) - 1 & out)
    if op in ("add", "sub") and len(parts) == 2:
        return lift((lambda a, b: a + b & mask) if op == "add" else (lambda a, b: a - b & mask))
    if op in ("mul", "mad"):
        return _product(op, parts, bits)
    if op in _PLAIN:
        f = _PLAIN[op]
        return lift(_signed_args(f, bits, mask) if kind.startswith("s") else lambda *a: f(*a) & mask)
    if op == "shl":
        return lift(lambda a, b: a << min(b, bits) & mask)
    if op == "shr":
        if kind.startswith("s"):
            return lift(lambda a, b: signed(a, bits) >> min(b, bits) & mask)
        return lift(lambda a, b: a >> min(b, bits))
    if op == "bfi":
        return lift(_bfi(bits))
    if op == "bfe":
        return lift(_bfe(bits, kind.startswith("s")))
    if op == "prmt" and len(parts) == 2:
        return lift(_prmt)
    if op == "popc":
        return lift(lambda a: a.bit_count())
    if op == "clz":
        return lift(lambda a: bits - a.bit_length())
    if op == "lop3":
        return lift(_lop3)
    return None


def _lop3(a: int, b: int, c: int, table: int) -> int:
    out = 0
    for i in range(8):
        if table >> i & 1:
            out |= (a if i & 4 else ~a) & (b if i & 2 else ~b) & (c if i & 1 else ~c)
    return out & 0xFFFFFFFF


def _product(op: str, parts: list[str], bits: int) -> Scalar | None:
    """mul and mad: .lo, .hi, .wide."""
    form, is_signed = parts[1], parts[-1].startswith("s")
    result = 2 * bits if form == "wide" else bits
    mask = (1 << result) - 1

    def times(a: int, b: int) -> int:
        a, b = a & (1 << bits) - 1, b & (1 << bits) - 1
        product = signed(a, bits) * signed(b, bits) if is_signed else a * b
        return (product >> bits if form == "hi" else product) & mask

    if form not in ("lo", "hi", "wide"):
        return None
    return lift(times) if op == "mul" else lift(lambda a, b, c: times(a, b) + c & mask)
