"""From normal forms back to expressions.

Terms come out in a fixed order (names, then compound terms, then tile indices, then the constant), so that equal forms
give equal text on every run. ``a - n*(a//n)`` comes out as ``a % n`` and ``(a + n - 1)//n`` as ``cdiv(a, n)``.
"""

from __future__ import annotations

from cake.facts.formula import And, Eq, Flag, Formula, Ge, Or
from cake.facts.linear import Atom, Lin, number
from cake.facts.show import show
from cake.ir.dtypes import DTypeName
from cake.ir.expr import Apply, Axis, Const, Expr, Reg, Sym, boolean

_AXES = {"%row": "row", "%col": "col", "%lin": "lin"}


class Writer:
    """Writes normal forms at one integer type; ``leaves`` gives the expression of each name (its type, mainly)."""

    def __init__(self, leaves: dict[str, Expr] | None = None, dtype: DTypeName = "i32") -> None:
        self._leaves = leaves or {}
        self._dtype: DTypeName = dtype

    def lin(self, x: Lin) -> Expr:
        """The expression of a form."""
        parts, const = self._remainders(x)
        parts.sort(key=lambda p: self._order(p[0]))
        out: Expr | None = None
        for positive in (True, False):
            for e, c in parts:
                if (c > 0) is positive:
                    out = self._append(out, e, c)
        if out is None:
            return self._const(const)
        if const:
            op = "+" if const > 0 else "-"
            out = Apply(op=op, args=(out, self._const(abs(const))), dtype=self._dtype)
        return out

    def _append(self, out: Expr | None, e: Expr, c: int) -> Expr:
        if out is None:
            if c == -1:
                return Apply(op="neg", args=(e,), dtype=self._dtype)
            return self._times(e, c)
        return Apply(op="+" if c > 0 else "-", args=(out, self._times(e, abs(c))), dtype=self._dtype)

    def _times(self, e: Expr, c: int) -> Expr:
        return e if c == 1 else Apply(op="*", args=(e, self._const(c)), dtype=self._dtype)

    def _const(self, value: int) -> Expr:
        return Const(value=value, dtype=self._dtype)

    @staticmethod
    def _order(e: Expr) -> tuple[int, str]:
        rank = 0 if isinstance(e, Sym) else 2 if isinstance(e, Axis | Reg) else 1
        return rank, show(e)

    def _remainders(self, x: Lin) -> tuple[list[tuple[Expr, int]], int]:
        """The terms and the constant, with ``k*a - k*n*(a//n)`` gathered into ``k*(a % n)`` where all terms of ``a``
        are present."""
        terms, const = dict(x.terms), x.const
        out: list[tuple[Expr, int]] = []
        for t in x.terms:
            if t.kind != "div" or t not in terms or t.args[1].terms:
                continue
            body, n = t.args[0], t.args[1].const
            k, extra = divmod(-terms[t], n)
            if extra or any(terms.get(a) != c * k for a, c in body.terms.items()):
                continue
            for a in (*body.terms, t):
                del terms[a]
            const -= k * body.const
            out.append((Apply(op="%", args=(self.lin(body), self._const(n)), dtype=self._dtype), k))
        return out + [(self.atom(a), c) for a, c in terms.items()], const

    def atom(self, a: Atom) -> Expr:
        """The expression of an atom, cast to the type written at."""
        e = self._atom(a)
        return e if e.dtype == self._dtype else Apply(op="cast", args=(e,), dtype=self._dtype)

    def _atom(self, a: Atom) -> Expr:
        if a.kind == "sym":
            (name,) = a.args
            if name in self._leaves:
                return self._leaves[name]
            return Axis(axis=_AXES[name]) if name in _AXES else Sym(name=name)  # type: ignore[arg-type]
        if a.kind == "mul":
            parts = sorted((self.atom(p) for p in a.args), key=self._order)
            out = parts[0]
            for p in parts[1:]:
                out = Apply(op="*", args=(out, p), dtype=self._dtype)
            return out
        if a.kind == "div":
            return self._division(*a.args)
        if a.kind in ("min", "max"):
            items = sorted((self.lin(x) for x in a.args), key=lambda e: (not isinstance(e, Const), show(e)))
            out = items[0]
            for e in items[1:]:
                out = Apply(op=a.kind, args=(out, e), dtype=self._dtype)
            return out
        if a.kind == "where":
            cond, x, y = a.args
            return Apply(op="where", args=(self.formula(cond), self.lin(x), self.lin(y)), dtype=self._dtype)
        (inner,) = a.args
        return inner if isinstance(inner, Apply | Reg | Sym | Const | Axis) else Sym(name=str(inner))

    def _division(self, a: Lin, n: Lin) -> Expr:
        if not n.terms and n.const > 1 and a.const == n.const - 1:
            return Apply(op="cdiv", args=(self.lin(a.plus(-a.const)), self._const(n.const)), dtype=self._dtype)
        return Apply(op="//", args=(self.lin(a), self.lin(n)), dtype=self._dtype)

    def formula(self, f: Formula) -> Expr:
        """The expression of a condition."""
        if isinstance(f, bool):
            return boolean(f)
        if isinstance(f, Ge | Eq):
            return self._comparison(f)
        if isinstance(f, Flag):
            (inner,) = f.atom.args
            e: Expr = Sym(name=inner, dtype="bool") if isinstance(inner, str) else inner
            return e if f.positive else Apply(op="not", args=(e,), dtype="bool")
        items = [self.formula(g) for g in f.items]
        out = items[0]
        for e in items[1:]:
            out = Apply(op="and" if isinstance(f, And) else "or", args=(out, e), dtype="bool")
        assert isinstance(f, And | Or)
        return out

    def _comparison(self, f: Ge | Eq) -> Expr:
        """``left < right`` or so, with every term on the side where it is positive."""
        left = Lin({a: c for a, c in f.lin.terms.items() if c > 0})
        right = Lin({a: -c for a, c in f.lin.terms.items() if c < 0})
        const = f.lin.const
        op = "==" if isinstance(f, Eq) else ">="
        if op == ">=" and not left.terms:
            left, right, op, const = right, left, "<=", -const
        if op == ">=" and const == -1:
            op, const = ">", 0
        elif op == "<=" and const == 1:
            op, const = "<", 0
        if not right.terms:
            right, const = number(-const), 0
        elif const > 0:
            left = left.plus(const)
        else:
            right = right.plus(-const)
        return Apply(op=op, args=(self.lin(left), self.lin(right)), dtype="bool")
