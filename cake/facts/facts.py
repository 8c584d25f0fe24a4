"""The facts engine: what is known about integer scalars, and the questions the compiler asks of it.

One engine serves slice extents, folding of loop pieces, bounds, masks, alignment and host guards, so that the same
question never gets two answers. Every positive answer holds for all integers that satisfy what was assumed (integers
are mathematical: overflow is checked elsewhere). It is incomplete: products of symbols are handled by a few rules, and
each question has a budget, after which the answer is "not known".

Names are versioned: ``forget`` leaves older facts true of the older value.
"""

from __future__ import annotations

from cake.facts.convert import COMPARISONS, Reader, is_integer
from cake.facts.decision import Decision
from cake.facts.emit import Writer
from cake.facts.formula import And, Eq, Flag, Formula, Ge, at_least, equals, every, negate, some
from cake.facts.knowledge import Knowledge
from cake.facts.linear import Atom, Lin, names, number, of
from cake.facts.names import Versioned
from cake.facts.show import show
from cake.ir.expr import Apply, Axis, Const, Expr, Reg, Sym, boolean, integer, walk


class Facts:
    """A set of facts; ``copy`` opens a scope."""

    def __init__(self) -> None:
        self._reader = Versioned()
        self._plain = Reader()
        self._known = Knowledge()
        self._decision = Decision(self._known)
        self._memo: dict[Expr, bool | None] = {}
        self._simple: dict[Expr, Expr] = {}

    def copy(self) -> Facts:
        """An independent copy, with everything found so far."""
        new = Facts.__new__(Facts)
        new._reader = self._reader.copy()
        new._plain = self._plain
        new._known = self._known.copy()
        new._decision = self._decision.copy(new._known)
        new._memo = dict(self._memo)
        new._simple = dict(self._simple)
        return new

    # What is known

    def declare(self, name: str, lo: Expr | int | None = None, hi: Expr | int | None = None) -> None:
        """``lo <= name < hi``; a bound left out is not known."""
        x = self._reader.name(name)
        low = integer(lo) if isinstance(lo, int) else lo
        high = integer(hi) if isinstance(hi, int) else hi
        text = (f"{show(low)} <= " if low is not None else "") + name + (f" < {show(high)}" if high is not None else "")
        self._reader.used.add(self._reader.rename(name))
        if low is not None:
            self._assume(at_least(x - self._reader.lin(low)), text)
        if high is not None:
            self._assume(at_least(self._reader.lin(high) - x.plus(1)), text)

    def define(self, name: str, value: Expr) -> None:
        """``name == value``. The value is read with what names mean now; a name that already has facts keeps them."""
        text = f"{name} = {show(value)}"
        known = self._reader.rename(name)
        fresh = known not in self._reader.used and known not in self._reader.texts
        mentioned = frozenset(n.name for n in walk(value) if isinstance(n, Sym))
        if value.dtype == "bool":
            truth = self._reader.formula(value)
            if fresh and name not in mentioned:
                self._reader.truths[known] = truth
                self._reader.texts[known] = (text, mentioned)
                self._changed(meaning=True)
            else:
                old = self._reader.flag(name)
                both, neither = every((old, truth)), every((negate(old), negate(truth)))
                self._assume(some((both, neither)), text)
            return
        if not is_integer(value):
            return
        x = self._reader.lin(value)
        if fresh and name not in mentioned:
            self._use(x)
            self._reader.defined[known] = x
            self._reader.texts[known] = (text, mentioned)
            self._changed(meaning=True)
        else:
            self._assume(equals(self._reader.name(name) - x), text)

    def assign(self, name: str, value: Expr) -> None:
        """``name = value`` as a statement: the value is read first (it may use the old ``name``), then the name
        rebound."""
        x: Lin | None = self._reader.lin(value) if is_integer(value) else None
        f: Formula | None = self._reader.formula(value) if value.dtype == "bool" else None
        self.forget(name)
        known = self._reader.rename(name)
        if x is not None:
            self._use(x)
            self._reader.defined[known] = x
        elif f is not None:
            self._reader.truths[known] = f
        mentioned = frozenset(n.name for n in walk(value) if isinstance(n, Sym))
        self._reader.texts[known] = (f"{name} = {show(value)}", mentioned - {name})

    def assume(self, cond: Expr) -> None:
        """Take a condition as true. Disjunctions are kept and tried case by case; a float comparison is kept as it
        stands."""
        self._assume(self._reader.formula(cond), show(cond))

    def forget(self, name: str) -> None:
        """The name gets a new, unknown value. Works for scalars and for register tiles."""
        self._reader.versions[name] = self._reader.versions.get(name, 0) + 1
        self._changed(meaning=True)
        self._simple.clear()

    def _use(self, x: Lin) -> None:
        self._reader.used |= names(x)

    def _changed(self, meaning: bool = False) -> None:
        if meaning:
            self._reader.reset()
            self._memo.clear()
        else:
            self._memo = {e: r for e, r in self._memo.items() if r is not None}
        self._decision.changed()
        self._simple.clear()

    def _assume(self, f: Formula, text: str) -> None:
        for g in f.items if isinstance(f, And) else (f,):
            self._assume_one(g, text)
        self._changed()

    def _assume_one(self, g: Formula, text: str) -> None:
        known = self._known
        if g is True:
            return
        if g is False:
            known.add(number(-1), False, text)
        elif isinstance(g, Ge | Eq):
            self._use(g.lin)
            known.add(g.lin, isinstance(g, Eq), text)
        elif isinstance(g, Flag):
            if g.atom in known.flags and known.flags[g.atom][0] != g.positive:
                known.add(number(-1), False, text)
            else:
                known.add(number(0), False, text)
                known.flags[g.atom] = (g.positive, 1 << (len(known.facts) - 1))
        else:
            atoms: set[Atom] = set()
            _atoms(g, atoms)
            self._reader.used |= {n for a in atoms for n in names(of(a))}
            known.choices.append((g, frozenset(atoms), text))

    # Questions

    def prove(self, cond: Expr) -> bool | None:
        """True if the condition follows, False if its negation does, None if neither was found to."""
        if cond in self._memo:
            return self._memo[cond]
        answer = self._decision.decide(self._reader.formula(cond))
        self._memo[cond] = answer
        return answer

    def consistent(self) -> bool:
        """False if the facts are found to contradict one another (a piece or branch that never runs)."""
        return self._decision.consistent()

    def constant(self, e: Expr) -> int | None:
        """The value if it is one integer."""
        if not is_integer(e):
            return None
        x = self._known.reduce(self._reader.lin(e))
        if not x.terms:
            return x.const
        lo, hi = self._decision.range(x)
        return lo if lo is not None and lo == hi else None

    def difference(self, a: Expr, b: Expr) -> int | None:
        """``a - b`` if it is one integer."""
        x = self._known.reduce(self._reader.lin(a) - self._reader.lin(b))
        if not x.terms:
            return x.const
        lo, hi = self._decision.range(x)
        return lo if lo is not None and lo == hi else None

    def range(self, e: Expr) -> tuple[int | None, int | None]:
        """Inclusive bounds, None where there is none. Contradictory facts may give an empty range."""
        return self._decision.range(self._known.reduce(self._reader.lin(e)))

    def equal(self, a: Expr, b: Expr) -> bool:
        """True if provably equal."""
        if a == b:
            return True
        if is_integer(a) and is_integer(b):
            return self._decision.decide(equals(self._reader.lin(a) - self._reader.lin(b))) is True
        if a.dtype == "bool" and b.dtype == "bool":
            p, q = self._reader.formula(a), self._reader.formula(b)
            return p == q or self._decision.decide(some((every((p, q)), every((negate(p), negate(q)))))) is True
        return False

    def divides(self, n: int, e: Expr) -> bool:
        """True if ``n`` provably divides the value."""
        return n != 0 and self._decision.divides(abs(n), self._reader.lin(e))

    def alignment(self, e: Expr, cap: int = 1 << 20) -> int:
        """The largest power of two up to ``cap`` that provably divides the value."""
        x = self._known.reduce(self._reader.lin(e))
        best = 1
        g = self._decision.divisor(x)
        while best * 2 <= cap and (g == 0 or g % (best * 2) == 0):
            best *= 2
        while best * 2 <= cap and self._decision.divides(best * 2, x):
            best *= 2
        return best

    # Rewriting

    def simplify(self, e: Expr) -> Expr:
        """An equal expression: integer parts in normal form where that is no longer, decided conditions folded."""
        found = self._simple.get(e)
        if found is None:
            found = self._simple[e] = self._simplify(e)
        return found

    def _simplify(self, e: Expr) -> Expr:
        if isinstance(e, Const | Axis | Reg):
            return e
        if e.dtype == "bool":
            return self._simplify_condition(e)
        if isinstance(e, Sym):
            if is_integer(e):
                x = self._known.reduce(self._reader.lin(e))
                if not x.terms:
                    return Const(value=x.const, dtype=e.dtype)
            return e
        if e.op == "where":
            decided = self.prove(e.args[0])
            if decided is not None:
                return self.simplify(e.args[1] if decided else e.args[2])
        args = tuple(self.simplify(a) for a in e.args)
        if e.op in ("min", "max") and is_integer(e):
            d = self._reader.lin(args[0]) - self._reader.lin(args[1])
            larger, smaller = (args[0], args[1]) if e.op == "max" else (args[1], args[0])
            if self._decision.decide(at_least(d)) is True:
                return larger
            if self._decision.decide(at_least(-d)) is True:
                return smaller
        rebuilt = e if args == e.args else Apply(op=e.op, args=args, dtype=e.dtype)
        if not is_integer(e):
            return rebuilt
        known = self._known.reduce(self._reader.lin(rebuilt))
        if not known.terms:
            return Const(value=known.const, dtype=e.dtype)
        if e.dtype not in ("i32", "i64"):
            return rebuilt
        plain = self._fold_divisions(self._plain.lin(rebuilt))
        leaves: dict[str, Expr] = {}
        for n in walk(rebuilt):
            if isinstance(n, Sym):
                leaves[n.name] = n
            elif isinstance(n, Axis):
                leaves["%" + n.axis] = n
        written = Writer(leaves, e.dtype).lin(plain)
        return written if _size(written) <= _size(rebuilt) else rebuilt

    def _fold_divisions(self, x: Lin) -> Lin:
        """Replace divisions that have one value under the facts (``(16*w + r)//64`` with a small numerator)."""
        out = x
        for a, c in x.terms.items():
            if a.kind != "div" or a.args[1].terms:
                continue
            deep = self._known.reduce(self._deepen(a))
            lo, hi = self._decision.range(deep)
            if lo is not None and lo == hi:
                out = out - of(a).scale(c) + number(lo * c)
        return out

    def _deepen(self, a: Atom) -> Lin:
        """A plain atom read under the facts."""
        return self._reader.lin(Writer().atom(a))

    def _simplify_condition(self, e: Expr) -> Expr:
        decided = self.prove(e)
        if decided is not None:
            return boolean(decided)
        if not isinstance(e, Apply):
            return e
        if e.op in ("and", "or"):
            p, q = (self.simplify(a) for a in e.args)
            for x, y in ((p, q), (q, p)):
                if isinstance(x, Const):
                    return y if bool(x.value) is (e.op == "and") else x
            return Apply(op=e.op, args=(p, q), dtype="bool")
        args = tuple(self.simplify(a) for a in e.args)
        if e.op in COMPARISONS and all(is_integer(a) for a in args):
            d = self._plain.lin(args[0]) - self._plain.lin(args[1])
            if not d.terms:
                return self.simplify(Apply(op=e.op, args=(integer(d.const), integer(0)), dtype="bool"))
        return Apply(op=e.op, args=args, dtype="bool")

    # Explaining

    def explain(self, cond: Expr) -> tuple[str, ...]:
        """The definitions and facts that a proof (or refutation) of the condition rests on; without one, those
        nearest."""
        lines: dict[str, None] = {}
        self._definitions({n.name for n in walk(cond) if isinstance(n, Sym)}, lines, set())
        f = self._reader.formula(cond)
        mask = self._decision.impossible(negate(f))
        if mask is None:
            mask = self._decision.impossible(f)
        if mask is not None:
            for i, fact in enumerate(self._known.facts):
                if mask >> i & 1:
                    lines[fact.text] = None
        else:
            near: set[Atom] = set()
            _atoms(f, near)
            near_names = {n for a in near for n in names(of(a))}
            for fact in self._known.facts:
                if len(lines) < 12 and not names(fact.lin).isdisjoint(near_names):
                    lines[fact.text] = None
        return tuple(lines)

    def _definitions(self, wanted: set[str], lines: dict[str, None], seen: set[str]) -> None:
        for name in sorted(wanted - seen):
            seen.add(name)
            found = self._reader.texts.get(self._reader.rename(name))
            if found is not None:
                lines[found[0]] = None
                self._definitions(set(found[1]), lines, seen)


def _size(e: Expr) -> int:
    return sum(1 for _ in walk(e))


def _atoms(f: Formula, out: set[Atom]) -> None:
    if isinstance(f, Ge | Eq):
        out.update(f.lin.terms)
    elif isinstance(f, Flag):
        out.add(f.atom)
    elif not isinstance(f, bool):
        for g in f.items:
            _atoms(g, out)
