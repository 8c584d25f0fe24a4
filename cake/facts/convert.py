"""From expressions to normal forms: ``Expr`` to ``Lin`` and to ``Formula``.

A ``Reader`` decides what a name stands for. The plain one takes names as they are; the one of ``Facts`` puts
definitions in their place. What the engine cannot read (loads, float comparisons, narrow integer arithmetic) becomes an
opaque atom.
"""

from __future__ import annotations

from cake.facts.formula import Flag, Formula, at_least, equals, every, negate, some
from cake.facts.linear import Atom, Lin, atom, extremum, floordiv, multiply, number, of, symbol
from cake.ir.expr import Apply, Axis, Const, Expr, Reg, Sym, rewrite

INTEGERS = frozenset({"i32", "i64", "i8", "u8"})
_WIDE = frozenset({"i32", "i64"})
_BITS = {"i8": 8, "u8": 8, "i32": 32, "i64": 64}
COMPARISONS = frozenset({"==", "!=", "<", "<=", ">", ">="})


def is_integer(e: Expr) -> bool:
    """True if the value is an integer (not a bool)."""
    return e.dtype in INTEGERS


class Reader:
    """Memoised conversion. Subclasses override ``name``, ``flag`` and ``rename``."""

    def __init__(self) -> None:
        self._lins: dict[Expr, Lin] = {}
        self._formulas: dict[Expr, Formula] = {}

    def name(self, name: str) -> Lin:
        """What an integer symbol stands for."""
        return symbol(name)

    def flag(self, name: str) -> Formula:
        """What a boolean symbol stands for."""
        return Flag(atom("sym", name))

    def rename(self, name: str) -> str:
        """The name under which a symbol inside an opaque expression is known."""
        return name

    def opaque(self, e: Expr) -> Atom:
        """The atom of an expression that is not read."""

        def leaf(n: Expr) -> Expr | None:
            if isinstance(n, Sym | Reg):
                new = self.rename(n.name)
                return n if new == n.name else n.model_copy(update={"name": new})
            return None

        return atom("opaque", rewrite(e, leaf))

    def lin(self, e: Expr) -> Lin:
        """The normal form of an integer expression."""
        found = self._lins.get(e)
        if found is None:
            found = self._lins[e] = self._lin(e)
        return found

    def _lin(self, e: Expr) -> Lin:
        if isinstance(e, Const):
            return number(int(e.value))
        if isinstance(e, Sym):
            return self.name(e.name)
        if isinstance(e, Axis):
            return self.name("%" + e.axis)
        result = self._apply(e) if isinstance(e, Apply) and e.dtype in _WIDE else None
        return of(self.opaque(e)) if result is None else result

    def _apply(self, e: Apply) -> Lin | None:
        op, args = e.op, e.args
        if op == "cast":
            (x,) = args
            if x.dtype == "bool":
                return self._choice(self.formula(x), number(1), number(0))
            return self.lin(x) if is_integer(x) and _BITS[x.dtype] <= _BITS[e.dtype] else None
        if op == "where":
            return self._choice(self.formula(args[0]), self.lin(args[1]), self.lin(args[2]))
        if not all(is_integer(x) for x in args):
            return None
        if op in ("neg", "abs"):
            inner = self.lin(args[0])
            if op == "neg":
                return -inner
            return number(abs(inner.const)) if not inner.terms else extremum("max", (inner, -inner))
        if len(args) != 2:
            return None
        a, b = self.lin(args[0]), self.lin(args[1])
        if op == "+":
            return a + b
        if op == "-":
            return a - b
        if op == "*":
            return multiply(a, b)
        if op in ("min", "max"):
            return extremum(op, (a, b))
        if op == "//":
            return floordiv(a, b)
        if op == "cdiv":
            if not b.terms and b.const > 0:
                return floordiv(a.plus(b.const - 1), b)
            down = floordiv(-a, b)
            return None if down is None else -down
        if op == "%":
            quotient = floordiv(a, b)
            product = None if quotient is None else multiply(b, quotient)
            return None if product is None else a - product
        return None

    def _choice(self, cond: Formula, a: Lin, b: Lin) -> Lin:
        if cond is True or a == b:
            return a
        return b if cond is False else of(atom("where", cond, a, b))

    def formula(self, e: Expr) -> Formula:
        """The normal form of a boolean expression."""
        found = self._formulas.get(e)
        if found is None:
            found = self._formulas[e] = self._formula(e)
        return found

    def _formula(self, e: Expr) -> Formula:
        if isinstance(e, Const):
            return bool(e.value)
        if isinstance(e, Sym):
            return self.flag(e.name)
        if isinstance(e, Apply):
            args = e.args
            if e.op == "and":
                return every(self.formula(x) for x in args)
            if e.op == "or":
                return some(self.formula(x) for x in args)
            if e.op == "not":
                return negate(self.formula(args[0]))
            if e.op == "where":
                c, a, b = (self.formula(x) for x in args)
                return some((every((c, a)), every((negate(c), b))))
            if e.op in COMPARISONS:
                compared = self._compare(e.op, args)
                if compared is not None:
                    return compared
        return Flag(self.opaque(e))

    def _compare(self, op: str, args: tuple[Expr, ...]) -> Formula | None:
        x, y = args
        if x.dtype == "bool" and y.dtype == "bool" and op in ("==", "!="):
            p, q = self.formula(x), self.formula(y)
            same = some((every((p, q)), every((negate(p), negate(q)))))
            return same if op == "==" else negate(same)
        if not (is_integer(x) and is_integer(y)):
            return None
        d = self.lin(x) - self.lin(y)
        if op == "==":
            return equals(d)
        if op == "!=":
            return negate(equals(d))
        if op == ">=":
            return at_least(d)
        if op == ">":
            return at_least(d.plus(-1))
        return at_least(-d) if op == "<=" else at_least((-d).plus(-1))
