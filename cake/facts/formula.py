"""Conditions in negation normal form over two kinds of literal: ``linear form >= 0`` or ``== 0``, and opaque truths.

Python's True and False are the decided formulas. ``clauses`` gives the disjunctive form that the solver works through.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import gcd
from typing import TypeAlias

from cake.facts.linear import Atom, Lin

MAX_CLAUSES = 24


@dataclass(frozen=True, slots=True)
class Ge:
    """``lin >= 0``."""

    lin: Lin


@dataclass(frozen=True, slots=True)
class Eq:
    """``lin == 0``."""

    lin: Lin


@dataclass(frozen=True, slots=True)
class Flag:
    """An opaque truth value, or its negation."""

    atom: Atom
    positive: bool = True


@dataclass(frozen=True, slots=True)
class And:
    """All of them."""

    items: tuple[Formula, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """At least one of them."""

    items: tuple[Formula, ...]


Literal: TypeAlias = Ge | Eq | Flag
Formula: TypeAlias = bool | Ge | Eq | Flag | And | Or
Clause: TypeAlias = tuple[Literal, ...]


def at_least(x: Lin) -> Formula:
    """``x >= 0``, tightened to integers and decided where it is constant."""
    if not x.terms:
        return x.const >= 0
    g = gcd(*x.terms.values())
    return Ge(x if g == 1 else Lin({a: c // g for a, c in x.terms.items()}, x.const // g))


def equals(x: Lin) -> Formula:
    """``x == 0``, decided where it is constant or no integers solve it."""
    if not x.terms:
        return x.const == 0
    g = gcd(*x.terms.values())
    if x.const % g:
        return False
    return Eq(x if g == 1 else Lin({a: c // g for a, c in x.terms.items()}, x.const // g))


def every(items: Iterable[Formula]) -> Formula:
    """Conjunction."""
    out: list[Formula] = []
    for f in items:
        if f is False:
            return False
        if f is not True:
            out.extend(f.items if isinstance(f, And) else (f,))
    if not out:
        return True
    return out[0] if len(out) == 1 else And(tuple(dict.fromkeys(out)))


def some(items: Iterable[Formula]) -> Formula:
    """Disjunction."""
    out: list[Formula] = []
    for f in items:
        if f is True:
            return True
        if f is not False:
            out.extend(f.items if isinstance(f, Or) else (f,))
    if not out:
        return False
    return out[0] if len(out) == 1 else Or(tuple(dict.fromkeys(out)))


def negate(f: Formula) -> Formula:
    """The opposite, negations pushed to the literals (over the integers ``not x >= 0`` is ``-x - 1 >= 0``)."""
    if isinstance(f, bool):
        return not f
    if isinstance(f, Ge):
        return at_least((-f.lin).plus(-1))
    if isinstance(f, Eq):
        return some((at_least(f.lin.plus(-1)), at_least((-f.lin).plus(-1))))
    if isinstance(f, Flag):
        return Flag(f.atom, not f.positive)
    if isinstance(f, And):
        return some(negate(g) for g in f.items)
    return every(negate(g) for g in f.items)


def clauses(f: Formula) -> list[Clause] | None:
    """The disjunctive normal form: a list of conjunctions of literals; None where it would grow too large."""
    if f is True:
        return [()]
    if f is False:
        return []
    if isinstance(f, Or):
        out: list[Clause] = []
        for g in f.items:
            part = clauses(g)
            if part is None or len(out) + len(part) > MAX_CLAUSES:
                return None
            out.extend(part)
        return out
    if isinstance(f, And):
        out = [()]
        for g in f.items:
            part = clauses(g)
            if part is None or len(out) * len(part) > MAX_CLAUSES:
                return None
            out = [a + b for a in out for b in part]
        return out
    assert isinstance(f, Ge | Eq | Flag)
    return [(f,)]
