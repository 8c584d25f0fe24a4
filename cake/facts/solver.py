"""The decision procedure: does a set of linear inequalities over the integers contradict itself?

Fourier-Motzkin elimination, each row divided by the greatest common divisor of its coefficients and its constant
rounded down. Sound: every derived row holds for all integer solutions. Incomplete: integer holes that rounding does not
show are missed, and beyond ``MAX_ROWS`` rows it gives up. Each row carries the set of facts it came from as a bit mask,
so a contradiction names its reasons.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd

from cake.facts.linear import Atom, Lin

MAX_ROWS = 160
MAX_COMBINATIONS = 700

Row = tuple[dict[Atom, int], int, int]


class Contradiction(Exception):
    """The rows cannot all hold; ``mask`` is the set of facts that clash."""

    def __init__(self, mask: int) -> None:
        super().__init__()
        self.mask = mask


class TooLarge(Exception):
    """The elimination grew beyond its cap."""


class System:
    """Rows ``terms + const >= 0``, at most one for each left side."""

    def __init__(self) -> None:
        self.rows: dict[frozenset[tuple[Atom, int]], Row] = {}

    def add(self, terms: dict[Atom, int], const: int, mask: int) -> None:
        """Add a row; raises Contradiction if it is false or clashes with its opposite."""
        if not terms:
            if const < 0:
                raise Contradiction(mask)
            return
        g = gcd(*terms.values())
        if g > 1:
            terms = {a: c // g for a, c in terms.items()}
            const //= g
        key = frozenset(terms.items())
        old = self.rows.get(key)
        if old is not None and old[1] <= const:
            return
        opposite = self.rows.get(frozenset((a, -c) for a, c in terms.items()))
        if opposite is not None and opposite[1] + const < 0:
            raise Contradiction(mask | opposite[2])
        if len(self.rows) > MAX_ROWS:
            raise TooLarge
        self.rows[key] = (terms, const, mask)

    def eliminate(self, keep: Atom | None = None) -> None:
        """Eliminate every atom but ``keep``, cheapest first."""
        combinations = 0
        while True:
            uses: dict[Atom, list[int]] = {}
            for terms, _, _ in self.rows.values():
                for a, c in terms.items():
                    count = uses.get(a)
                    if count is None:
                        count = uses[a] = [0, 0]
                    count[c > 0] += 1
            if keep is not None:
                uses.pop(keep, None)
            if not uses:
                return
            victim = min(uses, key=lambda a: (uses[a][0] * uses[a][1] - uses[a][0] - uses[a][1], a.rank))
            low: list[Row] = []
            high: list[Row] = []
            for key, row in list(self.rows.items()):
                sign = row[0].get(victim)
                if sign is not None:
                    del self.rows[key]
                    (low if sign > 0 else high).append(row)
            for p in low:
                for q in high:
                    combinations += 1
                    if combinations > MAX_COMBINATIONS:
                        raise TooLarge
                    self._resolve(p, q, victim)

    def _resolve(self, p: Row, q: Row, victim: Atom) -> None:
        a, b = p[0][victim], -q[0][victim]
        g = gcd(a, b)
        m, n = b // g, a // g
        terms = {t: c * m for t, c in p[0].items()}
        for t, c in q[0].items():
            new = terms.get(t, 0) + c * n
            if new:
                terms[t] = new
            else:
                terms.pop(t, None)
        self.add(terms, p[1] * m + q[1] * n, p[2] | q[2])


def substitute(row: Row, victim: Atom, value: Lin, mask: int) -> Row:
    """The row with an atom replaced by a form."""
    c = row[0].get(victim)
    if c is None:
        return row
    terms = dict(row[0])
    del terms[victim]
    for t, d in value.terms.items():
        new = terms.get(t, 0) + c * d
        if new:
            terms[t] = new
        else:
            del terms[t]
    return terms, row[1] + c * value.const, row[2] | mask


def solve_for(terms: dict[Atom, int], const: int) -> tuple[Atom, Lin] | None:
    """Solve ``terms + const == 0`` for an atom with coefficient 1 or -1, if there is one."""
    unit = [a for a, c in terms.items() if c in (1, -1)]
    if not unit:
        return None
    victim = min(unit, key=lambda a: (a.kind != "sym", a.rank))
    s = -terms[victim]
    return victim, Lin({a: c * s for a, c in terms.items() if a is not victim}, const * s)


def build(rows: Iterable[Row], equalities: Iterable[Row]) -> System:
    """A system from inequalities and equalities; equalities with a unit coefficient are substituted away."""
    left, todo = list(rows), list(equalities)
    loose: list[Row] = []
    while todo:
        terms, const, mask = todo.pop()
        if not terms:
            if const:
                raise Contradiction(mask)
            continue
        if const % gcd(*terms.values()):
            raise Contradiction(mask)
        solved = solve_for(terms, const)
        if solved is None:
            loose.append((terms, const, mask))
            continue
        victim, value = solved
        left = [substitute(r, victim, value, mask) for r in left]
        todo = [substitute(r, victim, value, mask) for r in [*todo, *loose]]
        loose = []
    system = System()
    for terms, const, mask in loose:
        system.add(terms, const, mask)
        system.add({a: -c for a, c in terms.items()}, -const, mask)
    for terms, const, mask in left:
        system.add(terms, const, mask)
    return system


def refute(rows: Iterable[Row], equalities: Iterable[Row]) -> int | None:
    """The facts that clash if the rows contradict one another; None if no contradiction was found."""
    try:
        build(rows, equalities).eliminate()
    except Contradiction as clash:
        return clash.mask
    except TooLarge:
        pass
    return None


def project(rows: Iterable[Row], equalities: Iterable[Row], target: Atom) -> tuple[int | None, int | None]:
    """Inclusive bounds of an atom that the rows imply (None: no bound found). ``target`` must not be substituted away,
    so equalities should not mention it. Raises Contradiction if the rows clash."""
    try:
        system = build(rows, equalities)
        system.eliminate(keep=target)
    except TooLarge:
        return None, None
    lo: int | None = None
    hi: int | None = None
    for terms, const, _ in system.rows.values():
        c = terms[target]
        if c > 0:
            bound = -(const // c)
            lo = bound if lo is None else max(lo, bound)
        else:
            bound = const // -c
            hi = bound if hi is None else min(hi, bound)
    return lo, hi
