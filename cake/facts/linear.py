"""Linear normal forms: an integer expression as ``c0 + c1*a1 + c2*a2 + …`` over atoms.

An atom is anything that linear arithmetic cannot look into: a symbol, a product of atoms, a floor division, a minimum
or maximum, a choice, or an expression the engine does not read at all. Atoms are interned, so two equal expressions
have the same atoms and equality is identity. ``%`` and ``cdiv`` have no atoms of their own: ``a % b`` is ``a -
b*(a//b)`` and ``cdiv(a, n)`` is ``(a + n - 1)//n``, so that everything known about one is known about the others.

Integers are mathematical ones: that values fit their types is not this module's business.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from math import gcd
from typing import Any

MAX_DEGREE = 4
MAX_TERMS = 48


class Atom:
    """One opaque quantity. ``kind`` is "sym" (args: name), "mul" (atoms), "div" (dividend, divisor), "min" or "max"
    (operands), "where" (condition, two values), "opaque" (an expression or a key). ``rank`` is the order of
    creation."""

    __slots__ = ("args", "kind", "rank")

    def __init__(self, kind: str, args: tuple[Any, ...], rank: int) -> None:
        self.kind = kind
        self.args = args
        self.rank = rank

    def __repr__(self) -> str:
        return self.args[0] if self.kind == "sym" else f"{self.kind}{self.args!r}"


_ATOMS: dict[Hashable, Atom] = {}


def atom(kind: str, *args: Any) -> Atom:
    """The interned atom."""
    key = (kind, frozenset(args)) if kind in ("min", "max") else (kind, args)
    found = _ATOMS.get(key)
    if found is None:
        found = _ATOMS[key] = Atom(kind, args, len(_ATOMS))
    return found


class Lin:
    """An immutable linear form. ``terms`` maps atoms to non-zero coefficients and must not be changed."""

    __slots__ = ("_hash", "const", "terms")

    def __init__(self, terms: dict[Atom, int], const: int = 0) -> None:
        self.terms = terms
        self.const = const
        self._hash: int | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Lin) and self.const == other.const and self.terms == other.terms

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash((self.const, frozenset(self.terms.items())))
        return self._hash

    def __repr__(self) -> str:
        return " + ".join([f"{c}*{a!r}" for a, c in self.terms.items()] + [str(self.const)])

    def __add__(self, other: Lin) -> Lin:
        return combine(self, 1, other, 1)

    def __sub__(self, other: Lin) -> Lin:
        return combine(self, 1, other, -1)

    def __neg__(self) -> Lin:
        return self.scale(-1)

    def plus(self, n: int) -> Lin:
        """Add an integer."""
        return self if n == 0 else Lin(self.terms, self.const + n)

    def scale(self, n: int) -> Lin:
        """Multiply by an integer."""
        if n == 1:
            return self
        return ZERO if n == 0 else Lin({a: c * n for a, c in self.terms.items()}, self.const * n)

    @property
    def constant(self) -> int | None:
        """The value if there are no terms."""
        return None if self.terms else self.const

    def single(self) -> Atom | None:
        """The atom if the form is exactly one atom."""
        if self.const == 0 and len(self.terms) == 1:
            (a, c), *_ = self.terms.items()
            return a if c == 1 else None
        return None


ZERO = Lin({}, 0)
ONE = Lin({}, 1)


def number(n: int) -> Lin:
    """A constant form."""
    return Lin({}, n)


def of(a: Atom) -> Lin:
    """The form that is one atom."""
    return Lin({a: 1}, 0)


def symbol(name: str) -> Lin:
    """The form that is one symbol."""
    return of(atom("sym", name))


def combine(x: Lin, a: int, y: Lin, b: int) -> Lin:
    """``a*x + b*y``."""
    terms = dict(x.terms) if a == 1 else {t: c * a for t, c in x.terms.items()}
    for t, c in y.terms.items():
        new = terms.get(t, 0) + c * b
        if new:
            terms[t] = new
        else:
            del terms[t]
    return Lin(terms, a * x.const + b * y.const)


def factors(a: Atom) -> tuple[Atom, ...]:
    """The atoms a monomial multiplies."""
    return a.args if a.kind == "mul" else (a,)


def monomial(parts: Iterable[Atom]) -> Atom:
    """The product of atoms as an atom."""
    ordered = sorted(parts, key=lambda p: p.rank)
    return ordered[0] if len(ordered) == 1 else atom("mul", *ordered)


def multiply(x: Lin, y: Lin) -> Lin | None:
    """The product, distributed; None where it would grow too large (the caller then treats it as opaque)."""
    if not x.terms:
        return y.scale(x.const)
    if not y.terms:
        return x.scale(y.const)
    if len(x.terms) * len(y.terms) > MAX_TERMS:
        return None
    total = combine(x.scale(y.const), 1, y.scale(x.const), 1).plus(-x.const * y.const)
    out = dict(total.terms)
    for a, c in x.terms.items():
        for b, d in y.terms.items():
            parts = factors(a) + factors(b)
            if len(parts) > MAX_DEGREE:
                return None
            m = monomial(parts)
            out[m] = out.get(m, 0) + c * d
    return Lin({t: c for t, c in out.items() if c}, total.const)


def floordiv(a: Lin, n: Lin) -> Lin | None:
    """``a // n`` in normal form; None for a division by zero. By a positive constant, multiples of it are taken out,
    common factors cancelled and nested divisions merged; a symbolic divisor leaves an atom."""
    if n.terms:
        return _divide_by_symbol(a, n)
    d = n.const
    if d == 0:
        return None
    if d < 0:
        a, d = -a, -d
    if d == 1:
        return a
    whole = {t: c // d for t, c in a.terms.items() if c % d == 0}
    rest = {t: c for t, c in a.terms.items() if c % d}
    shift, const = divmod(a.const, d)
    if not rest:
        return Lin(whole, shift)
    g = gcd(d, *rest.values())
    if g > 1:
        rest = {t: c // g for t, c in rest.items()}
        d, const = d // g, const // g
    inner = Lin(rest, const)
    if len(rest) == 1:
        (t, c), *_ = rest.items()
        if c == 1 and t.kind == "div" and not t.args[1].terms:
            m = t.args[1].const
            nested = floordiv(t.args[0].plus(const * m), number(m * d))
            if nested is not None:
                return combine(Lin(whole, shift), 1, nested, 1)
    return combine(Lin(whole, shift), 1, of(atom("div", inner, number(d))), 1)


def _divide_by_symbol(a: Lin, n: Lin) -> Lin:
    """Multiples of a symbolic divisor are taken out (a division by zero has no value, so nothing is lost there)."""
    divisor = n.single()
    whole, rest = ZERO, a
    if divisor is not None:
        parts = factors(divisor)
        for t, c in a.terms.items():
            left = list(factors(t))
            if all(p in left for p in parts) and not any(left.count(p) < parts.count(p) for p in parts):
                for p in parts:
                    left.remove(p)
                whole = whole + (of(monomial(left)).scale(c) if left else number(c))
                rest = rest - of(t).scale(c)
        if rest == ZERO:
            return whole
    return whole + of(atom("div", rest, n))


def extremum(kind: str, operands: Iterable[Lin]) -> Lin:
    """The minimum or maximum in normal form: nested ones are flattened and operands that differ by a constant
    merged."""
    sign = 1 if kind == "max" else -1
    best: dict[Lin, int] = {}
    for x in operands:
        inner = x.single()
        for y in inner.args if inner is not None and inner.kind == kind else (x,):
            body = Lin(y.terms, 0)
            old = best.get(body)
            best[body] = y.const if old is None or (y.const - old) * sign > 0 else old
    kept = [body.plus(c) for body, c in best.items()]
    return kept[0] if len(kept) == 1 else of(atom(kind, *kept))


def names(x: Lin) -> set[str]:
    """Every symbol that occurs, also inside atoms."""
    out: set[str] = set()
    for a in x.terms:
        _names(a, out)
    return out


def _names(a: Atom, out: set[str]) -> None:
    if a.kind == "sym":
        out.add(a.args[0])
        return
    for part in a.args:
        if isinstance(part, Atom):
            _names(part, out)
        elif isinstance(part, Lin):
            out |= names(part)
