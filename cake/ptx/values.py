"""Values of registers as far as they are known, and the integer instructions on them (PTX ISA 9.7.1, 9.7.5 - 9.7.9).

A value is an int (signed, of the instruction's width), a bool (predicate), ``Least`` (some integer not below a
bound), ``Peer`` (an address in another CTA's shared memory), a text (the address of a kernel parameter), ``Lanes``
(the thread's number in the CTA), or None: not known. Counting is taken not to overflow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

Value = Any
"""int | bool | Least | Peer | str | Lanes | None"""


class Least(NamedTuple):
    """Some integer that is at least ``bound``."""

    bound: int


class Peer(NamedTuple):
    """The same address in the CTA of that rank (``mapa``)."""

    rank: Value
    address: Value


class Lanes(NamedTuple):
    """The number in the CTA of a thread of ``warp``, where ``lane`` is what is known about its number in the warp."""

    warp: int
    lane: Value = None


Function = Callable[..., Value]


def wrap(value: int, bits: int) -> int:
    """The signed integer of ``bits`` with the same low bits."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def _is_int(*values: Value) -> bool:
    return all(type(v) is int for v in values)


def add(bits: int = 32) -> Function:
    """a + b."""

    def f(a: Value, b: Value) -> Value:
        if type(a) is int and type(b) is int:
            return wrap(a + b, bits)
        if a == 0 and type(a) is int:
            return b
        if b == 0 and type(b) is int:
            return a
        if isinstance(a, Least) and type(b) is int:
            return Least(a.bound + b)
        if isinstance(b, Least) and type(a) is int:
            return Least(b.bound + a)
        if isinstance(a, Least) and isinstance(b, Least):
            return Least(a.bound + b.bound)
        return None

    return f


def sub(bits: int = 32) -> Function:
    """a - b."""

    def f(a: Value, b: Value) -> Value:
        if type(a) is int and type(b) is int:
            return wrap(a - b, bits)
        if b == 0 and type(b) is int:
            return a
        if isinstance(a, Least) and type(b) is int:
            return Least(a.bound - b)
        return None

    return f


def mul(bits: int = 32) -> Function:
    """a * b, low bits."""

    def f(a: Value, b: Value) -> Value:
        if type(a) is int and type(b) is int:
            return wrap(a * b, bits)
        if (a == 0 and type(a) is int) or (b == 0 and type(b) is int):
            return 0
        if isinstance(b, Least):
            a, b = b, a
        if isinstance(a, Least) and type(b) is int and b > 0:
            return Least(a.bound * b)
        return None

    return f


def mul_wide(bits: int = 32) -> Function:
    """a * b of unsigned operands, all bits: a negative immediate is a large number."""
    mask, times = (1 << bits) - 1, mul(2 * bits)

    def f(a: Value, b: Value) -> Value:
        return times(a & mask if type(a) is int else a, b & mask if type(b) is int else b)

    return f


def mul_high(bits: int = 32, signed: bool = True) -> Function:
    """a * b, high bits."""
    mask = 0 if signed else (1 << bits) - 1

    def f(a: Value, b: Value) -> Value:
        if type(a) is not int or type(b) is not int:
            return None
        return wrap((a & mask) * (b & mask) >> bits if mask else a * b >> bits, bits)

    return f


def mad(bits: int = 32) -> Function:
    """a * b + c."""
    times, plus = mul(bits), add(bits)
    return lambda a, b, c: plus(times(a, b), c)


def shl(bits: int = 32) -> Function:
    """a << b."""
    times = mul(bits)
    return lambda a, b: times(a, 1 << b) if type(b) is int and 0 <= b < bits else None


def shr(bits: int = 32, signed: bool = False) -> Function:
    """a >> b; filled with zeros unless ``signed``."""

    def f(a: Value, b: Value) -> Value:
        if type(a) is int and type(b) is int:
            return a >> b if signed else wrap((a & ((1 << bits) - 1)) >> b, bits)
        if isinstance(a, Lanes) and type(b) is int and b >= 5:
            return a.warp >> (b - 5)
        if isinstance(a, Least) and type(b) is int and a.bound >= 0:
            return Least(a.bound >> b)
        return None

    return f


def bitwise(op: str, bits: int = 32) -> Function:
    """and, or, xor, not, of integers."""

    def f(a: Value, b: Value = -1) -> Value:
        if type(a) is int and type(b) is int:
            raw = {"and": a & b, "or": a | b, "xor": a ^ b, "not": ~a}[op]
            return wrap(raw, bits)
        if op == "and":
            if (type(a) is int and a == 0) or (type(b) is int and b == 0):
                return 0
            if isinstance(a, Lanes) and type(b) is int and b == 31:
                return a.lane
            if type(b) is int and b == -1:
                return a
        elif type(b) is int and b == 0:
            return a
        elif type(a) is int and a == 0:
            return b
        elif op == "or":
            bounds = [x.bound if isinstance(x, Least) else x if type(x) is int else -1 for x in (a, b)]
            return Least(max(bounds)) if min(bounds) >= 0 else None
        return None

    return f


def logical(op: str) -> Function:
    """and, or, xor, not, of predicates."""

    def f(a: Value, b: Value = None) -> Value:
        if op == "not":
            return None if a is None else not a
        if op == "and":
            return False if a is False or b is False else (True if a is True and b is True else None)
        if op == "or":
            return True if a is True or b is True else (False if a is False and b is False else None)
        return None if a is None or b is None else a is not b

    return f


def select(a: Value, b: Value, p: Value) -> Value:
    """selp: a where p, else b."""
    if p is True:
        return a
    if p is False:
        return b
    return a if a == b and type(a) is type(b) else None


def low(a: Value, b: Value) -> Value:
    """min, signed."""
    if _is_int(a, b):
        return min(a, b)
    least = [v.bound if isinstance(v, Least) else v for v in (a, b)]
    return Least(min(least)) if _is_int(*least) else None


def high(a: Value, b: Value) -> Value:
    """max, signed."""
    if _is_int(a, b):
        return max(a, b)
    known = [v.bound if isinstance(v, Least) else v for v in (a, b) if isinstance(v, Least) or type(v) is int]
    return Least(max(known)) if known else None


def divide(a: Value, b: Value) -> Value:
    """Quotient, rounded toward zero."""
    if _is_int(a, b) and b != 0:
        q = abs(a) // abs(b)
        return q if (a < 0) == (b < 0) else -q
    if isinstance(a, Lanes) and type(b) is int and b > 0 and b % 32 == 0:
        return a.warp // (b // 32)
    return None


def remainder(a: Value, b: Value) -> Value:
    """What ``divide`` leaves."""
    return a - divide(a, b) * b if _is_int(a, b) and b != 0 else None


def convert(bits: int, source_bits: int, source_signed: bool) -> Function:
    """cvt between integers."""

    def f(a: Value) -> Value:
        if type(a) is int:
            return wrap(a if source_signed else a & ((1 << source_bits) - 1), bits)
        return a if isinstance(a, Least | Lanes) or bits >= 32 else None

    return f


def compare(op: str, unsigned_bits: int = 0) -> Function:
    """setp; ``unsigned_bits`` is the width of an unsigned comparison."""
    op = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}.get(op, op)
    flipped = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}.get(op, op)
    mask = (1 << unsigned_bits) - 1

    def f(a: Value, b: Value) -> Value:
        if _is_int(a, b):
            if mask:
                a, b = a & mask, b & mask
            return {"eq": a == b, "ne": a != b, "lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b}.get(op)
        if isinstance(a, bool) and isinstance(b, bool):
            return {"eq": a == b, "ne": a != b}.get(op)
        if isinstance(a, Least) and type(b) is int:
            return _at_least(op, a.bound, b)
        if isinstance(b, Least) and type(a) is int:
            return _at_least(flipped, b.bound, a)
        return None

    return f


def _at_least(op: str, bound: int, other: int) -> bool | None:
    """Some x >= bound, compared with ``other``."""
    if bound > other:
        return op in ("gt", "ge", "ne")
    if bound == other and op in ("ge", "lt"):
        return op == "ge"
    return None


SPACE = 40
"""Bits of the offsets in a tensor of a sampled launch: tensor i starts at address ``i + 1 << SPACE``."""


def word(address: Value) -> Value:
    """What a 32-bit word of an input holds in a sampled launch: an increasing function of its index, as offsets of
    ragged rows are."""
    if type(address) is not int:
        return None
    index = (address & (1 << SPACE) - 1) // 4
    return wrap(200 * index + 8 * index * index, 32)


def same(a: Value) -> Value:
    """mov."""
    return a


def unknown(*_: Value) -> Value:
    """A result that nothing is known about."""
    return None
