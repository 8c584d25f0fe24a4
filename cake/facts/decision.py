"""Questions on normal forms: does a condition follow, what bounds has a form, what divides it.

A condition is proved by refuting its negation, clause by clause, together with the facts connected to it. Where the
rows alone do not clash, minima, maxima, choices and assumed disjunctions are split into cases, nearest first, within a
budget.
"""

from __future__ import annotations

from math import gcd

from cake.facts import formula as logic
from cake.facts.formula import Clause, Eq, Flag, Formula, equals, negate
from cake.facts.knowledge import Interval, Knowledge, Relevant
from cake.facts.linear import Atom, Lin, atom, floordiv, number, of
from cake.facts.solver import Contradiction, Row, project, refute

SPLIT_BUDGET = 20
SPLIT_DEPTH = 4
_TARGET = atom("opaque", "%target")


class Decision:
    """Answers from a store of facts, memoised; ``changed`` must follow every change of the store."""

    def __init__(self, known: Knowledge) -> None:
        self.known = known
        self._ranges: dict[Lin, Interval] = {}
        self._refuted: dict[Clause, tuple[int | None, int]] = {}

    def copy(self, known: Knowledge) -> Decision:
        """The same answers for a copy of the store."""
        new = Decision(known)
        new._ranges = dict(self._ranges)
        new._refuted = dict(self._refuted)
        return new

    def changed(self) -> None:
        """Facts were added: what was refuted stays so, the rest is asked again."""
        self._refuted = {c: m for c, m in self._refuted.items() if m[0] is not None}
        self._ranges.clear()

    def consistent(self) -> bool:
        """False if the assumed rows are found to contradict one another (no case splits)."""
        return self._refute_rows(self.known.rows()) is None

    def decide(self, f: Formula) -> bool | None:
        if isinstance(f, bool):
            return f
        opposite = negate(f)
        for depth in (0, SPLIT_DEPTH):  # both directions without case splits first: one of them is often easy
            if self.impossible(opposite, depth) is not None:
                return True
            if self.impossible(f, depth) is not None:
                return False
        return None

    def impossible(self, f: Formula, depth: int = SPLIT_DEPTH) -> int | None:
        """The mask of facts that rule a formula out, or None."""
        options = logic.clauses(f)
        if options is None:
            return None
        mask = 0
        for clause in options:
            clash = self._refute(clause, depth)
            if clash is None:
                return None
            mask |= clash
        return mask

    def _refute(self, clause: Clause, depth: int) -> int | None:
        found, tried = self._refuted.get(clause, (None, -1))
        if found is not None or tried >= depth:
            return found
        answer = self._refute_split(clause, frozenset(), [SPLIT_BUDGET], depth)
        self._refuted[clause] = (answer, depth)
        return answer

    def _refute_split(self, clause: Clause, done: frozenset[object], budget: list[int], depth: int) -> int | None:
        """Refute a conjunction of literals, splitting on minima, maxima, choices and assumed disjunctions."""
        budget[0] -= 1
        rows: list[Row] = []
        equalities: list[Row] = []
        truths: dict[Atom, bool] = {}
        for literal in clause:
            if isinstance(literal, Flag):
                if truths.setdefault(literal.atom, literal.positive) != literal.positive:
                    return 0
                positive, mask = self.known.flags.get(literal.atom, (literal.positive, 0))
                if positive != literal.positive:
                    return mask
                continue
            row = self.known.reduce_row((literal.lin.terms, literal.lin.const, 0))
            (equalities if isinstance(literal, Eq) else rows).append(row)
        found = self.known.relevant(rows, equalities)
        clash = refute(found.rows, found.equalities)
        if clash is not None or depth == 0:
            return clash
        split = self._next_split(found, done)
        if split is None:
            return None
        key, cases = split
        union = 0
        for case in cases:
            if budget[0] <= 0:
                return None
            part = self._refute_split(clause + case, done | {key}, budget, depth - 1)
            if part is None:
                return None
            union |= part
        return union

    def _refute_rows(self, rows: list[Row]) -> int | None:
        found = self.known.relevant(rows)
        return refute(found.rows, found.equalities)

    def _next_split(self, found: Relevant, done: frozenset[object]) -> tuple[object, list[Clause]] | None:
        """The nearest atom or disjunction not split on yet, with its cases."""
        for a in found.atoms:
            if a not in done and a.kind in ("min", "max", "where") and self._constrains(a, found):
                cases = _cases(a)
                if cases is not None:
                    return a, cases
        for i in found.choices:
            options = logic.clauses(self.known.choices[i][0])
            if i not in done and options is not None:
                return i, options
        return None

    def _constrains(self, a: Atom, found: Relevant) -> bool:
        """False if a split on the atom cannot help: a solution that has, say, a maximum above all its operands stays
        one when the maximum is lowered to the largest, unless some other row bounds it from below."""
        own = self.known.axioms(a)
        for row in found.rows:
            c = row[0].get(a, 0)
            useful = c > 0 if a.kind == "max" else c < 0 if a.kind == "min" else c != 0
            if useful and not any(row is r for r in own):
                return True
        return any(a in row[0] for row in found.equalities) or any(m.kind == "mul" and a in m.args for m in found.atoms)

    def range(self, x: Lin) -> Interval:
        if not x.terms:
            return x.const, x.const
        found = self._ranges.get(x)
        if found is None:
            target = of(_TARGET)
            up, down = target - x, x - target
            rows: list[Row] = [(up.terms, up.const, 0), (down.terms, down.const, 0)]
            relevant = self.known.relevant(rows)
            low, high = self.known.interval(x)
            try:
                lo, hi = project(relevant.rows, relevant.equalities, _TARGET)
            except Contradiction:
                lo, hi = low, high
            if lo is None or (low is not None and low > lo):
                lo = low
            if hi is None or (high is not None and high < hi):
                hi = high
            found = self._ranges[x] = (lo, hi)
        return found

    def divisor(self, x: Lin) -> int:
        """A number that divides every term (0 for zero)."""
        g = abs(x.const)
        for a, c in x.terms.items():
            g = gcd(g, c * self._atom_divisor(a))
            if g == 1:
                break
        return g

    def _atom_divisor(self, a: Atom) -> int:
        if a.kind in ("min", "max"):
            return gcd(*(self.divisor(self.known.reduce(x)) for x in a.args))
        if a.kind == "where":
            return gcd(*(self.divisor(self.known.reduce(x)) for x in a.args[1:]))
        if a.kind == "mul":
            out = 1
            for f in a.args:
                out *= self._atom_divisor(f)
            return out
        return 1

    def divides(self, n: int, x: Lin) -> bool:
        x = self.known.reduce(x)
        if self.divisor(x) % n == 0:
            return True
        rest = Lin({a: c for a, c in x.terms.items() if (c * self._atom_divisor(a)) % n}, x.const % n)
        lo, hi = self.known.interval(rest)
        if lo is not None and lo == hi:
            return lo % n == 0
        quotient = floordiv(rest, number(n))
        return quotient is not None and self.decide(equals(rest - quotient.scale(n))) is True


def _cases(a: Atom) -> list[Clause] | None:
    """The cases of a minimum, maximum or choice: which operand it equals."""
    me = of(a)
    if a.kind != "where":
        return [(Eq(me - x),) for x in a.args]
    cond, x, y = a.args
    yes, no = logic.clauses(cond), logic.clauses(negate(cond))
    if yes is None or no is None:
        return None
    return [(*c, Eq(me - x)) for c in yes] + [(*c, Eq(me - y)) for c in no]
