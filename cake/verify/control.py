"""What control depends on: every bound and condition of a kernel, with its scalar definitions substituted.

Condition F-a (docs/verification.md 1.3) asks that control and the operands of synchronisation depend only on launch values,
CTA coordinates, loop indices and read-only inputs. Substituting the definitions shows it: what remains are such leaves,
and names for what cannot be followed (a scalar read from memory that the kernel writes, one carried round a loop).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from cake.ir import expanded as x
from cake.ir.expr import Apply, Const, Expr, Sym, rewrite, walk

TAINT, LOAD, CARRIED = "taint:", "load:", "carried:"


@dataclass(frozen=True)
class Inner:
    """An enclosing loop: its variable, and whether its bounds are constants."""

    var: str
    node: x.For
    lo: Expr
    hi: Expr
    tiles: bool

    @property
    def constant(self) -> bool:
        """The number of iterations is known."""
        return isinstance(self.lo, Const) and isinstance(self.hi, Const)


@dataclass(frozen=True)
class Site:
    """A statement with its place: the role (None: the entry), the enclosing loops, its expressions substituted and the
    conditions it is under (False: in the other branch)."""

    role: x.Role | None
    node: x.Stmt
    loops: tuple[Inner, ...]
    exprs: tuple[Expr, ...]
    conditions: tuple[tuple[Expr, bool], ...] = ()

    @property
    def index_names(self) -> set[str]:
        """Variables of the enclosing loops over ranges."""
        return {loop.var for loop in self.loops if not loop.tiles}


def text(e: Expr) -> str:
    """A short unique text."""
    if isinstance(e, Const):
        return str(e.value)
    if isinstance(e, Sym):
        return e.name
    if isinstance(e, Apply):
        return f"{e.op}({', '.join(text(a) for a in e.args)})"
    return repr(e)


def assigned(body: tuple[x.Stmt, ...]) -> set[str]:
    """Scalars that some statement sets, with the loop variables."""
    names: set[str] = set()
    for node in body:
        if isinstance(node, x.For):
            names |= assigned(node.body) | {node.var}
        elif isinstance(node, x.If):
            names |= assigned(node.then) | assigned(node.orelse)
        elif isinstance(node, x.Let):
            names.add(node.name)
        elif isinstance(node, x.Op) and node.op == "load_scalar":
            names.add(node.sym("dst").name)
    return names


@dataclass
class Reader:
    """Walks a body in order. ``known``: what each scalar is now."""

    kernel: x.Kernel
    role: x.Role | None
    known: dict[str, Expr] = field(default_factory=dict)
    conditions: list[tuple[Expr, bool]] = field(default_factory=list)

    def expand(self, e: Expr) -> Expr:
        """``e`` with all definitions substituted."""
        return rewrite(e, lambda n: self.known.get(n.name) if isinstance(n, Sym) else None)

    def walk(self, body: tuple[x.Stmt, ...], loops: tuple[Inner, ...] = ()) -> Iterator[Site]:
        """Every statement but scalar definitions."""
        for node in body:
            if isinstance(node, x.Let):
                self.known[node.name] = self.expand(node.value)
            elif isinstance(node, x.For):
                yield from self._loop(node, loops)
            elif isinstance(node, x.If):
                yield self._site(node, loops, self.expand(node.cond))
                yield from self._branches(node, loops)
            else:
                yield self._site(node, loops, *self._flag(node))
                if isinstance(node, x.Op) and node.op == "load_scalar":
                    self._load(node)

    def _site(self, node: x.Stmt, loops: tuple[Inner, ...], *exprs: Expr) -> Site:
        return Site(self.role, node, loops, exprs, tuple(self.conditions))

    def _loop(self, node: x.For, loops: tuple[Inner, ...]) -> Iterator[Site]:
        lo, hi, step = (self.expand(e) for e in (node.lo, node.hi, node.step))
        here = (*loops, Inner(node.var, node, lo, hi, node.role == "tiles"))
        yield self._site(node, loops, lo, hi, step)
        names = assigned(node.body)
        for name in names:
            self.known[name] = Sym(name=CARRIED + name)
        self.known[node.var] = Sym(name=node.var)
        yield from self.walk(node.body, here)
        for name in names | {node.var}:
            self.known[name] = Sym(name=CARRIED + name)

    def _branches(self, node: x.If, loops: tuple[Inner, ...]) -> Iterator[Site]:
        before, cond = dict(self.known), self.expand(node.cond)
        self.conditions.append((cond, True))
        yield from self.walk(node.then, loops)
        after, self.known = self.known, before
        self.conditions[-1] = cond, False
        yield from self.walk(node.orelse, loops)
        self.conditions.pop()
        for name in {*after, *self.known}:
            if after.get(name) != self.known.get(name):
                self.known[name] = Sym(name=CARRIED + name)

    def _flag(self, node: x.Stmt) -> tuple[Expr, ...]:
        """Which word a flag operation means, and the value: operands of synchronisation."""
        if not isinstance(node, x.Op) or node.op not in ("signal", "wait_until"):
            return ()
        value = node.expr("value")
        points = [s.at for s in node.ref("flag").subs if isinstance(s, x.Point)]
        return tuple(self.expand(e) for e in (*points, *(() if value is None else (value,))))

    def _load(self, node: x.Op) -> None:
        src, dst = node.ref("src"), node.sym("dst")
        tensor = self.kernel.tensor(src.base)
        readonly = tensor is not None and tensor.direction == "in"
        subs = [self.expand(s.at if isinstance(s, x.Point) else Const(value=0, dtype="i32")) for s in src.subs]
        where = node.expr("where")
        parts = [text(s) for s in subs] + ([] if where is None else ["where " + text(self.expand(where))])
        prefix = LOAD if readonly else TAINT
        self.known[dst.name] = Sym(name=f"{prefix}{src.base}[{', '.join(parts)}]", dtype=dst.dtype)


def sites(kernel: x.Kernel) -> Iterator[Site]:
    """Every statement of the kernel."""
    yield from Reader(kernel, None).walk(kernel.entry)
    for role in kernel.roles:
        yield from Reader(kernel, role).walk(role.body)


def leaves(e: Expr) -> set[str]:
    """Names of the symbols that occur."""
    return {n.name for n in walk(e) if isinstance(n, Sym)}


Form = dict[Expr | None, int]
"""A linear form: the coefficient of each term; None is the constant."""


def linear(e: Expr) -> Form:
    """``e`` as a sum of terms with integer coefficients; whatever is not linear is a term."""
    if isinstance(e, Const):
        return {None: int(e.value)}
    if isinstance(e, Apply) and e.dtype in ("i32", "i64"):
        if e.op in ("+", "-"):
            return plus(linear(e.args[0]), linear(e.args[1]), 1 if e.op == "+" else -1)
        if e.op == "neg":
            return plus({}, linear(e.args[0]), -1)
        if e.op == "*":
            for a, b in (e.args, e.args[::-1]):
                if isinstance(a, Const):
                    return plus({}, linear(b), int(a.value))
        if e.op == "cast" and e.args[0].dtype in ("i32", "i64"):
            return linear(e.args[0])
    return {e: 1}


def plus(a: Form, b: Form, factor: int) -> Form:
    """a + factor * b."""
    result = dict(a)
    for term, coefficient in b.items():
        result[term] = result.get(term, 0) + factor * coefficient
    return {t: c for t, c in result.items() if c or t is None}


def bounds(e: Expr, known: dict[str, tuple[int | None, int | None]]) -> tuple[int | None, int | None]:
    """Least and greatest value that interval arithmetic finds; None: not known."""
    if isinstance(e, Const):
        return int(e.value), int(e.value)
    if isinstance(e, Sym):
        return known.get(e.name, (None, None))
    if not isinstance(e, Apply):
        return None, None
    args = [bounds(a, known) for a in e.args]
    if e.op in ("+", "-") and len(args) == 2:
        (a, b), (c, d) = args
        if e.op == "-":
            c, d = (None if d is None else -d), (None if c is None else -c)
        return (None if a is None or c is None else a + c), (None if b is None or d is None else b + d)
    if e.op == "max":
        lows = [low for low, _ in args if low is not None]
        highs = [high for _, high in args]
        return max(lows, default=None), None if None in highs else max(h for h in highs if h is not None)
    if e.op == "min":
        low_list = [low for low, _ in args]
        highs_known = [h for _, h in args if h is not None]
        return (None if None in low_list else min(v for v in low_list if v is not None)), min(highs_known, default=None)
    if e.op in ("cdiv", "//") and isinstance(e.args[1], Const) and int(e.args[1].value) > 0:
        g, (low, high) = int(e.args[1].value), args[0]
        up = e.op == "cdiv"

        def div(v: int | None) -> int | None:
            return None if v is None else -(-v // g) if up else v // g

        return div(low), div(high)
    if e.op == "*":
        (a, b), (c, d) = args
        if a is not None and c is not None and a >= 0 and c >= 0:
            return a * c, None if b is None or d is None else b * d
    return None, None
