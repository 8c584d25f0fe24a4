"""Scalar expressions of the expanded IR as far as they steer control: integers with Python's floor semantics."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from cake.ir.expr import Apply, Const, Expr, Sym, symbols, walk
from cake.ptx import values as v
from cake.ptx.builder import Builder
from cake.ptx.flow import Operand
from cake.ptx.values import Function, Least, Value

_COMPARE = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne"}


def _floor_divide(a: Value, b: Value) -> Value:
    if type(a) is int and type(b) is int and b != 0:
        return a // b
    return Least(a.bound // b) if isinstance(a, Least) and type(b) is int and b > 0 else None


def _floor_remainder(a: Value, b: Value) -> Value:
    return a % b if type(a) is int and type(b) is int and b != 0 else None


def _ceiling(a: Value, b: Value) -> Value:
    if type(a) is int and type(b) is int and b != 0:
        return -(-a // b)
    return Least(-(-a.bound // b)) if isinstance(a, Least) and type(b) is int and b > 0 else None


_FUNCTIONS: dict[str, Function] = {
    "+": v.add(),
    "-": v.sub(),
    "*": v.mul(),
    "//": _floor_divide,
    "%": _floor_remainder,
    "cdiv": _ceiling,
    "min": v.low,
    "max": v.high,
    "&": v.bitwise("and"),
    "|": v.bitwise("or"),
    "^": v.bitwise("xor"),
    "<<": v.shl(),
    ">>": v.shr(signed=True),
    "and": v.logical("and"),
    "or": v.logical("or"),
    "not": v.logical("not"),
    **{op: v.compare(name) for op, name in _COMPARE.items()},
}


_WIDE: dict[str, Function] = {
    **_FUNCTIONS,
    "+": v.add(64),
    "-": v.sub(64),
    "*": v.mul(64),
    "<<": v.shl(64),
    ">>": v.shr(64, signed=True),
}
"""The same on i64."""


def _narrow(a: Value) -> Value:
    """The low 32 bits."""
    return v.wrap(a, 32) if type(a) is int else a


FEW = 8
"""Values of a remainder that are told apart."""


def remainder_of_few(e: object) -> int:
    """The divisor, if the expression is a remainder with few values; else 0."""
    if isinstance(e, Apply) and e.op == "%" and isinstance(e.args[1], Const) and 1 < int(e.args[1].value) <= FEW:
        return int(e.args[1].value)
    return 0


def several(conditions: Iterable[Expr], names: Collection[str]) -> dict[str, int]:
    """Of names that conditions compare with several small constants the greatest of these. Such conditions exclude each other or
    agree, which compilers know."""
    constants: dict[str, set[int]] = {}
    for e in conditions:
        for node in walk(e):
            if isinstance(node, Apply) and node.op in _COMPARE:
                for a, b in (node.args, node.args[::-1]):
                    if isinstance(a, Sym) and a.name in names and isinstance(b, Const) and type(b.value) is int:
                        constants.setdefault(a.name, set()).add(b.value)
    return {n: max(seen) for n, seen in constants.items() if len(seen) > 1 and min(seen) >= 0 and max(seen) < FEW}


class Scalars:
    """Compiles expressions into a builder. ``fixed``: symbols with a known value. ``apart``: a symbol that is a remainder with
    few values has one of these, so that conditions on it agree; otherwise nothing is known of it."""

    def __init__(self, out: Builder, apart: bool = False) -> None:
        self.out = out
        self.apart = apart
        self.fixed: dict[str, int] = {}
        self._conditions: dict[Expr, Operand] = {}

    def name(self, symbol: str) -> str:
        """The register of a symbol."""
        return f"scalar {symbol}"

    def plus(self, a: Operand, b: Operand) -> Operand:
        """a + b."""
        return self.out.compute(v.add(), a, b, step=True) if b != 0 else a

    def less(self, a: Operand, b: Operand) -> Operand:
        """a < b."""
        return self.out.compute(v.compare("lt"), a, b, compares=True)

    def value(self, e: Expr) -> Operand:
        """An integer expression."""
        if isinstance(e, Const):
            return e.value if isinstance(e.value, bool | int) else self.out.constant(None)
        if isinstance(e, Sym):
            return self.fixed[e.name] if e.name in self.fixed else self.name(e.name)
        if isinstance(e, Apply):
            if e.dtype == "bool":
                return self.condition(e)
            if e.op == "cast" and e.dtype in ("i32", "i64") and e.args[0].dtype in ("i32", "i64"):
                inner = self.value(e.args[0])
                return self.out.compute(_narrow, inner) if e.dtype == "i32" and e.args[0].dtype == "i64" else inner
            if e.op == "where":
                condition, then, other = self.condition(e.args[0]), self.value(e.args[1]), self.value(e.args[2])
                return self.out.compute(v.select, then, other, condition)
            if e.op == "neg":
                return self.out.compute(v.mul(), self.value(e.args[0]), -1)
            if e.op in _FUNCTIONS and e.dtype in ("i32", "i64"):
                args = [self.value(a) for a in e.args]
                functions = _WIDE if e.dtype == "i64" else _FUNCTIONS
                return self.out.compute(functions[e.op], *args, step=e.op in ("+", "-"))
        return self.out.constant(None)

    def condition(self, e: Expr) -> Operand:
        """A predicate. A condition computed before, of symbols not set since, keeps its outcome."""
        if isinstance(e, Const):
            return bool(e.value)
        if isinstance(e, Sym):
            return self.name(e.name)
        if e in self._conditions:
            return self._conditions[e]
        if not isinstance(e, Apply) or e.op not in _FUNCTIONS:
            result = self.out.constant(None)
        else:
            of_bools = e.op in ("and", "or", "not") or e.args[0].dtype == "bool"
            args = [self.condition(a) if of_bools else self.value(a) for a in e.args]
            result = self.out.compute(_FUNCTIONS[e.op], *args, compares=e.op in _COMPARE)
        self._conditions[e] = result
        return result

    def define(self, symbol: str, value: Expr | Operand | None) -> None:
        """A symbol takes a value; None: nothing is known of it."""
        known = self.out.constant(None) if value is None else value
        result = known if isinstance(known, str | int) else self.value(known)
        self.forget({symbol})
        self.out.assign(self.name(symbol), result)
        few = remainder_of_few(value) if self.apart and isinstance(result, str) and not isinstance(value, str) else 0
        if few:
            self.split(symbol, tuple(range(few)))

    def split(self, symbol: str, values: Sequence[Value]) -> None:
        """Of a symbol whose value is not known the program goes on with each of ``values``."""
        name, last = self.name(symbol), values[-1]
        for n in values[:-1]:
            with self.out.when(self.out.compute(v.compare("eq"), name, n)):  # both ways where it is not known
                self.out.assign(name, n)
        self.out.assign(name, self.out.compute(lambda known: known if type(known) is int else last, name))

    def forget(self, symbols_set: set[str]) -> None:
        """Conditions of these symbols no longer stand."""
        self._conditions = {e: r for e, r in self._conditions.items() if not symbols(e) & symbols_set}

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Conditions computed inside hold inside only."""
        before = dict(self._conditions)
        yield
        self._conditions = before


def evaluate(e: Expr, known: Mapping[str, int]) -> Value:
    """The value of an expression over known symbols; None where it depends on others."""
    if isinstance(e, Const):
        return e.value if isinstance(e.value, bool | int) else None
    if isinstance(e, Sym):
        return known.get(e.name)
    if isinstance(e, Apply):
        args = [evaluate(a, known) for a in e.args]
        if e.op == "cast":
            return args[0] if e.args[0].dtype in ("i32", "i64") else None
        if e.op == "where":
            return v.select(args[1], args[2], args[0])
        return _WIDE[e.op](*args) if e.op in _WIDE else None
    return None
