"""What is known: assumed rows and equalities, and what follows from the meaning of an atom alone.

Equalities with a unit coefficient are kept solved (``K = 8*(K//8)``) and substituted into everything, which is how
congruences enter: afterwards divisibility can be read off the coefficients. Axioms (``n*(a//n) <= a``, ``max(a, b) >=
a``) are produced for the atoms a query touches; those that need a sign (division by a symbol, products) get it from
plain interval arithmetic, so no query starts another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from cake.facts.formula import Formula
from cake.facts.linear import Atom, Lin, atom, factors, multiply, number, of
from cake.facts.solver import Row, solve_for

Interval = tuple[int | None, int | None]
ANY: Interval = (None, None)
MAX_RELEVANT = 110
MAX_PRODUCTS = 24


@dataclass(frozen=True, slots=True)
class Fact:
    """An assumed row, ``lin >= 0`` or ``lin == 0``, with its text. The index in the store is its bit in a mask."""

    lin: Lin
    equal: bool
    text: str


class Relevant:
    """The rows connected with a query, the atoms met (nearest first), and the disjunctions among them."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.equalities: list[Row] = []
        self.atoms: dict[Atom, None] = {}
        self.choices: list[int] = []


class Knowledge:
    """The store behind ``Facts``."""

    def __init__(self) -> None:
        self.facts: list[Fact] = []
        self.choices: list[tuple[Formula, frozenset[Atom], str]] = []
        self.flags: dict[Atom, tuple[bool, int]] = {}
        self._solved: dict[Atom, tuple[Lin, int]] = {}
        self._reduced: list[tuple[Row, bool]] = []
        self._index: dict[Atom, list[int]] = {}
        self._bounds: dict[Atom, Interval] = {}
        self._intervals: dict[Atom, Interval] = {}
        self._axioms: dict[Atom, list[Row]] = {}

    def copy(self) -> Knowledge:
        """An independent copy; the entries are immutable and shared."""
        new = Knowledge()
        new.facts = list(self.facts)
        new.choices = list(self.choices)
        new.flags = dict(self.flags)
        new._solved = dict(self._solved)
        new._reduced = list(self._reduced)
        new._index = {a: list(i) for a, i in self._index.items()}
        new._bounds = dict(self._bounds)
        new._intervals = dict(self._intervals)
        new._axioms = dict(self._axioms)
        return new

    # Assuming

    def add(self, x: Lin, equal: bool, text: str) -> None:
        """Assume ``x >= 0`` or ``x == 0``."""
        bit = 1 << len(self.facts)
        self.facts.append(Fact(x, equal, text))
        self._intervals.clear()
        self._axioms.clear()
        self._bound(x, equal)
        row = self.reduce_row((x.terms, x.const, bit))
        self._bound(Lin(row[0], row[1]), equal)
        self._enter_or_solve(row, equal)
        for m in [a for a in self._bounds if a.kind == "mul"]:
            for x in self._positive_factors(m):
                self._bound(x, False)
                self._intervals.clear()

    def _enter_or_solve(self, row: Row, equal: bool) -> None:
        if equal:
            solved = solve_for(row[0], row[1])
            if solved is not None and not any(solved[0] in factors(a) for a in solved[1].terms):
                self._solve(solved[0], solved[1], row[2])
                return
        self._enter(row, equal)

    def _enter(self, row: Row, equal: bool) -> None:
        position = len(self._reduced)
        self._reduced.append((row, equal))
        for a in {p for t in row[0] for p in (t, *factors(t))}:
            self._index.setdefault(a, []).append(position)

    def _solve(self, victim: Atom, value: Lin, mask: int) -> None:
        self._solved[victim] = (value, mask)
        for a, (old, m) in list(self._solved.items()):
            if a is not victim:
                terms, const, new = self.reduce_row((old.terms, old.const, m))
                self._solved[a] = (Lin(terms, const), new)
        rows, self._reduced, self._index = self._reduced, [], {}
        for row, equal in rows:
            row = self.reduce_row(row)
            self._bound(Lin(row[0], row[1]), equal)
            self._enter(row, equal)

    def _bound(self, x: Lin, equal: bool) -> None:
        """Note the bounds of an atom that stands alone in a row."""
        if len(x.terms) != 1:
            return
        (a, c), *_ = x.terms.items()
        lo, hi = self._bounds.get(a, ANY)
        if c > 0 or equal:
            bound = -(x.const // c) if c > 0 else -(-x.const // -c)
            lo = bound if lo is None else max(lo, bound)
        if c < 0 or equal:
            bound = x.const // -c if c < 0 else -x.const // c
            hi = bound if hi is None else min(hi, bound)
        self._bounds[a] = (lo, hi)

    # Reducing

    def reduce(self, x: Lin) -> Lin:
        """The form with the solved equalities put in."""
        terms, const, _ = self.reduce_row((x.terms, x.const, 0))
        return x if terms is x.terms else Lin(terms, const)

    def rows(self) -> list[Row]:
        """Every assumed inequality, reduced."""
        return [row for row, equal in self._reduced if not equal]

    def reduce_row(self, row: Row) -> Row:
        """The row with the solved equalities put in, and their facts in its mask."""
        if not self._solved:
            return row
        hit = [t for t in row[0] if any(p in self._solved for p in factors(t))]
        if not hit:
            return row
        out = Lin({t: c for t, c in row[0].items() if t not in hit}, row[1])
        mask = row[2]
        for t in hit:
            product: Lin | None = number(row[0][t])
            used = 0
            for p in factors(t):
                value, m = self._solved.get(p, (None, 0))
                used |= m
                product = None if product is None else multiply(product, of(p) if value is None else value)
            if product is None:
                product, used = of(t).scale(row[0][t]), 0
            out, mask = out + product, mask | used
        return out.terms, out.const, mask

    # Intervals

    def interval(self, x: Lin) -> Interval:
        """Inclusive bounds by interval arithmetic: quick, not tight."""
        lo: int | None = x.const
        hi: int | None = x.const
        for a, c in x.terms.items():
            low, high = self.interval_of(a)
            if c < 0:
                low, high = high, low
            lo = None if lo is None or low is None else lo + c * low
            hi = None if hi is None or high is None else hi + c * high
            if lo is None and hi is None:
                return ANY
        return lo, hi

    def interval_of(self, a: Atom) -> Interval:
        """Inclusive bounds of an atom."""
        found = self._intervals.get(a)
        if found is None:
            low, high = self._bounds.get(a, ANY)
            lo, hi = self._meaning(a)
            found = self._intervals[a] = (_tighter(low, lo, max), _tighter(high, hi, min))
        return found

    def _meaning(self, a: Atom) -> Interval:
        if a.kind == "div":
            return _divide(self.interval(a.args[0]), self.interval(a.args[1]))
        if a.kind in ("min", "max"):
            parts = [self.interval(x) for x in a.args]
            lows = [p[0] for p in parts if p[0] is not None]
            highs = [p[1] for p in parts if p[1] is not None]
            full_low, full_high = len(lows) == len(parts), len(highs) == len(parts)
            if a.kind == "max":
                return max(lows, default=None), max(highs) if full_high else None
            return min(lows) if full_low else None, min(highs, default=None)
        if a.kind == "where":
            (p, q), (r, s) = self.interval(a.args[1]), self.interval(a.args[2])
            return None if p is None or r is None else min(p, r), None if q is None or s is None else max(q, s)
        if a.kind == "mul":
            out: Interval = (1, 1)
            for f in a.args:
                out = _times(out, self.interval_of(f))
            if len(set(a.args)) == 1 and len(a.args) % 2 == 0:
                out = (_tighter(out[0], 0, max), out[1])
            return out
        return ANY

    # Axioms

    def axioms(self, a: Atom) -> list[Row]:
        """Rows that hold by the meaning of an atom, reduced."""
        found = self._axioms.get(a)
        if found is None:
            found = self._axioms[a] = [
                self.reduce_row((x.terms, x.const, 0)) for x in self._axiom_forms(a) if x.terms or x.const < 0
            ]
        return found

    def _axiom_forms(self, a: Atom) -> Iterator[Lin]:
        me = of(a)
        if a.kind == "div":
            yield from self._division(me, a.args[0], a.args[1])
        elif a.kind == "max":
            yield from (me - x for x in a.args)
        elif a.kind == "min":
            yield from (x - me for x in a.args)
        elif a.kind == "where":
            x, y = a.args[1], a.args[2]
            lo, hi = self.interval(x - y)
            if lo is not None and lo >= 0:
                yield from (x - me, me - y)
            if hi is not None and hi <= 0:
                yield from (y - me, me - x)
        if a.kind in ("where", "mul"):
            yield from self._hull(a)
        if a.kind == "mul":
            yield from self._signs(a)

    def _hull(self, a: Atom) -> Iterator[Lin]:
        lo, hi = self.interval_of(a)
        if lo is not None:
            yield of(a).plus(-lo)
        if hi is not None:
            yield (-of(a)).plus(hi)

    def _division(self, q: Lin, a: Lin, b: Lin) -> Iterator[Lin]:
        if not b.terms:
            yield a - q.scale(b.const)
            yield q.scale(b.const).plus(b.const - 1) - a
            return
        lo, _ = self.interval(b)
        if lo is None or lo < 1:
            return
        product = multiply(b, q)
        if product is not None:
            yield a - product
            yield product + b.plus(-1) - a
        low, high = self.interval(a)
        if low is not None and low >= 0:
            yield q
            yield a - q
            if self._assumed(b - a.plus(1)):
                yield -q
        if high is not None and high < 0:
            yield (-q).plus(-1)
            yield q - a

    def _signs(self, a: Atom) -> Iterator[Lin]:
        """Bounds of the factors, which the product rules combine."""
        for f in dict.fromkeys(a.args):
            yield from self._hull(f)

    def _assumed(self, x: Lin) -> bool:
        """True if ``x >= 0`` by interval arithmetic or by one assumed row."""
        lo, _ = self.interval(x)
        if lo is not None and lo >= 0:
            return True
        terms, const, _ = self.reduce_row((x.terms, x.const, 0))
        positions = self._index.get(next(iter(terms), atom("opaque", "")), ())
        return any(self._reduced[i][0][0] == terms and self._reduced[i][0][1] <= const for i in positions)

    def _positive_factors(self, a: Atom) -> list[Lin]:
        """A positive product of nonnegative factors has positive factors."""
        lo, _ = self.interval_of(a)
        lows = [self.interval_of(f)[0] for f in a.args]
        if lo is None or lo < 1 or any(x is None or x < 0 for x in lows) or all(x is not None and x > 0 for x in lows):
            return []
        return [of(f).plus(-1) for f in dict.fromkeys(a.args)]

    # Relevance

    def relevant(self, goal: Sequence[Row], equalities: Iterable[Row] = ()) -> Relevant:
        """The goal with every row connected to it, nearest first, up to a cap (leaving rows out is sound)."""
        out = Relevant()
        out.rows, out.equalities = list(goal), list(equalities)
        seen: set[int] = set()
        queue: list[Atom] = []

        def visit(terms: Iterable[Atom]) -> None:
            for t in terms:
                for p in (t, *factors(t)):
                    if p not in out.atoms:
                        out.atoms[p] = None
                        queue.append(p)

        for row in (*out.rows, *out.equalities):
            visit(row[0])
        position = 0
        while position < len(queue) and len(out.rows) + len(out.equalities) < MAX_RELEVANT:
            a = queue[position]
            position += 1
            for i in self._index.get(a, ()):
                if i not in seen:
                    seen.add(i)
                    row, equal = self._reduced[i]
                    (out.equalities if equal else out.rows).append(row)
                    visit(row[0])
            for row in self.axioms(a):
                out.rows.append(row)
                visit(row[0])
        out.choices = [i for i, (_, atoms, _) in enumerate(self.choices) if not atoms.isdisjoint(out.atoms)]
        out.rows.extend(self._products(out, len(goal)))
        return out

    def _products(self, found: Relevant, goals: int) -> list[Row]:
        """Rows times a nonnegative factor. The goal's rows (the first ones) may bring in new monomials; the others
        count where every monomial of the result occurs already."""
        allowed = {t for t in found.atoms if t.kind == "mul"}
        pairs: list[tuple[Atom, Lin]] = []
        for m in allowed:
            if len(m.args) == 2:
                for u, v in (m.args, m.args[::-1]):
                    lo, _ = self.interval_of(v)
                    if lo is not None and lo >= 0:
                        pairs.append((u, of(v).plus(-lo)))
        pairs.sort(key=lambda p: (p[0].rank, [t.rank for t in p[1].terms]))
        out: list[Row] = []
        for position, (terms, const, mask) in enumerate(found.rows):
            if len(terms) > 4:
                continue
            for u, factor in pairs:
                if u not in terms:
                    continue
                product = multiply(Lin(terms, const), factor)
                if product is None:
                    continue
                new = [t for t in product.terms if t.kind == "mul" and t not in allowed]
                if new and position >= goals:
                    continue
                allowed.update(new)
                out.append((product.terms, product.const, mask))
                if len(out) >= MAX_PRODUCTS:
                    return out
        return out


def _tighter(x: int | None, y: int | None, pick: Callable[..., int]) -> int | None:
    if x is None or y is None:
        return y if x is None else x
    return pick(x, y)


def _times(x: Interval, y: Interval) -> Interval:
    if None not in x and None not in y:
        ends = [p * q for p in x for q in y]  # type: ignore[operator]
        return min(ends), max(ends)
    (a, b), (c, d) = x, y
    if a is not None and c is not None and a >= 0 and c >= 0:
        return a * c, None
    if b is not None and d is not None and b <= 0 and d <= 0:
        return b * d, None
    if a is not None and a >= 0 and d is not None and d <= 0:
        return None, a * d
    if c is not None and c >= 0 and b is not None and b <= 0:
        return None, b * c
    return ANY


def _divide(a: Interval, b: Interval) -> Interval:
    """Of a floor division; the divisor must be known positive."""
    n, m = b
    if n is None or n < 1:
        return ANY
    lo, hi = a
    low = high = None
    if lo is not None:
        low = lo // n if lo < 0 else (0 if m is None else lo // m)
    if hi is not None:
        high = hi // n if hi >= 0 else (-1 if m is None else hi // m)
    return low, high
