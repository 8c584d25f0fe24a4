"""What an element stands for, beside its value: data, padding, or neither.

*Padding* is what a move brings for elements that are not there: zeros of a block load past the end of its tensor, and what
a load gives where its predicate is false. It stays padding through elementwise operations, also where a mask replaces its
value, since it still stands for no data. Constants, indices and scalars stand for *neither*.

Two more facts travel along: an element may be *wild*, infinite or not a number, if it comes from a tensor of which nothing
says that it is finite; and it may be known not to be *negative*.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cake.machine.elementwise import Array

NEITHER, DATA, PAD, MIXED = np.uint8(0), np.uint8(1), np.uint8(2), np.uint8(3)
"""In this order: of two operands the greater one wins."""

KIND = np.uint8(3)
WILD = np.uint8(4)
POSITIVE = np.uint8(8)

LOW = -1e20
"""A mask of at most this stands for minus infinity, as authors write it where the difference of two must be a number."""


def kind(state: Array) -> Array:
    """NEITHER, DATA, PAD or MIXED."""
    return state & KIND


def least(value: Array) -> Array:
    """Where a value is as good as minus infinity in its type."""
    if value.dtype.kind in "iu":
        return np.asarray(value <= max(np.iinfo(value.dtype).min, -(2**30)))
    wide = np.asarray(value, dtype=np.float64)
    return np.asarray(wide <= max(LOW, float(lowest(value.dtype))))


def lowest(dtype: Any) -> float:
    """The least finite value of a float type."""
    import ml_dtypes

    return float(ml_dtypes.finfo(dtype).min)


def neutral(function: str, value: Array) -> Array:
    """Where a value changes no result of a sum, maximum or minimum."""
    if function in ("sum", "add"):
        return np.asarray(value == 0)
    return least(value if function.removeprefix("arg") == "max" else -value)


def _floor(op: str, value: Array, other: Array) -> Array:
    """The maximum of something that is not negative and of 0 or less is the former."""
    return (np.asarray(value) <= 0) & ((other & POSITIVE) != 0) if op == "max" else np.zeros((), dtype=bool)


def positive(value: Array) -> Array:
    """The bit of values that are not negative."""
    return np.where(np.asarray(value) >= 0, POSITIVE, NEITHER).astype(np.uint8)


KEEPS_SIGN = frozenset({"+", "*", "/", "min", "//", "cdiv"})
NEVER_NEGATIVE = frozenset({"abs", "exp", "exp2", "sqrt", "rsqrt"})


def applied(op: str, values: tuple[Array, ...], states: tuple[Array, ...], same: bool) -> Array:
    """The state of an elementwise operation's result. ``same``: its two operands are one expression.

    What is neutral for the operation (0 added, minus infinity under max) leaves the other operand what it is.
    """
    if op == "where":
        return chosen(values[0], *states)
    result = states[0] & KIND
    wild, sure = states[0] & WILD, states[0] & POSITIVE
    for other in states[1:]:
        result = np.maximum(result, other & KIND)
        wild = wild | (other & WILD)
        sure = sure | (other & POSITIVE) if op == "max" else sure & other & POSITIVE
    if op in ("+", "max", "min") and len(values) == 2 and any((s & PAD).any() for s in states):
        function = "sum" if op == "+" else op
        for i in (0, 1):
            meets = (kind(states[i]) == PAD) & (kind(states[1 - i]) == DATA)
            harmless = neutral(function, values[i])
            result = np.where(meets & harmless, DATA, result)
            if op != "+":
                result = np.where(meets & ~harmless & ~_floor(op, values[i], states[1 - i]), MIXED, result)
    elif op == "-" and len(values) == 2:
        drops = (kind(states[1]) == PAD) & (np.asarray(values[1]) == 0) & (kind(states[0]) == DATA)
        result = np.where(drops, DATA, result)
    if op in NEVER_NEGATIVE or (op == "*" and same):
        sure = np.full_like(result, POSITIVE)
    elif op not in KEEPS_SIGN and op not in ("max", "cast"):
        sure = np.zeros_like(result)
    return np.asarray(result | wild | sure, dtype=np.uint8)


def chosen(condition: Array, of: Array, first: Array, second: Array) -> Array:
    """``where``: what is chosen. A constant in the place of padding, or chosen by padding, still stands for no data; one that
    data chose is data."""
    taken = np.where(condition, first, second)
    left = np.where(condition, second, first)
    constant = kind(taken) == NEITHER
    hides = constant & ((kind(left) == PAD) | (kind(of) >= PAD))
    found = np.where(hides, (taken & ~KIND) | PAD, taken)
    return np.asarray(np.where(constant & ~hides & (kind(of) == DATA), (taken & ~KIND) | DATA, found), dtype=np.uint8)


def gathered(states: Array, axis: int) -> Array:
    """What a combination of elements stands for: data if some of them are, padding if all of them are."""
    kinds = kind(states)
    some = (kinds == DATA).any(axis=axis)
    pads = (kinds >= PAD).all(axis=axis)
    wild = np.bitwise_or.reduce(states & WILD, axis=axis)
    sure = np.bitwise_and.reduce(states & POSITIVE, axis=axis)
    return np.asarray(np.where(some, DATA, np.where(pads, PAD, NEITHER)) | wild | sure, dtype=np.uint8)
