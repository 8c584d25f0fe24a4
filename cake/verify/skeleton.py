"""The skeleton of a kernel: its synchronisation and shared memory, with every count and condition free.

Control depends on launch values and read-only inputs through a few *counts* (trip counts: an integer form and the
granule it is divided by) and *flags* (conditions without a loop index). The skeleton has them as free variables, drops
definitions and tensor accesses, and keeps everything else. Its runs include the runs of every launch, whatever its shapes
and data, so what holds for it holds for all of them. It also has runs that no launch has (a flag that is never true,
two flags that exclude each other): a failure of the skeleton is therefore only a reason not to claim a proof.

``Unfit`` says why a kernel has no skeleton that the closure can explore.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cake.ir import expanded as x
from cake.ir.expr import Apply, Const, Expr, Reg, Sym, boolean, integer, registers
from cake.ir.layout import TileType
from cake.verify.control import CARRIED, TAINT, Form, Inner, Reader, assigned, bounds, leaves, linear, plus, text

Key = frozenset[tuple[Expr, int]]
COMPARISONS = {"<", "<=", ">", ">=", "==", "!="}
SINK = "%sink"


class Unfit(Exception):
    """Why there is no proof for all trip counts, in a sentence."""


@dataclass
class Count:
    """A trip count: ``granule * q`` (``ragged``: also one more) for every q, as far as that is at least ``least``.
    ``launch``: it is the same for all tiles of a launch; ``leaf``: the dim or scalar that it is."""

    name: str
    granule: int
    least: int
    ragged: bool = False
    launch: bool = False
    leaf: str | None = None


@dataclass
class Plan:
    """A skeleton and its free variables. ``flags``: name to the number of instances it differs between (0: the same for
    all). ``fixed``: those that are the same for all tiles of a launch. ``reach``: how far guards on loop indices look, in
    iterations; ``moduli``: of those that test a residue. ``outside``: flags used outside the walk over tiles."""

    kernel: x.Kernel
    counts: list[Count] = field(default_factory=list)
    flags: dict[str, int] = field(default_factory=dict)
    fixed: set[str] = field(default_factory=set)
    reach: int = 2
    moduli: set[int] = field(default_factory=set)
    outside: set[str] = field(default_factory=set)
    round: int = 1


def plan(kernel: x.Kernel) -> Plan:
    """The skeleton of ``kernel``; Unfit if it has none."""
    if kernel.cluster > 1:
        raise Unfit("the CTAs of a cluster are explored by launches only")
    return _Builder(kernel).build()


class _Builder:
    def __init__(self, kernel: x.Kernel) -> None:
        self.kernel = kernel
        self.plan = Plan(kernel)
        self.keys: dict[Key, Count] = {}
        self.named: dict[str, str] = {}
        self.known: dict[str, tuple[int | None, int | None]] = {d.name: (1, None) for d in kernel.dims}
        self.known["%grid"], self.known["%cta"] = (1, None), (0, None)
        self.tensors = {t.name for t in kernel.tensors}
        self.launch = {d.name for d in kernel.dims} | {s.name for s in kernel.scalars} | {"%grid"}

    def build(self) -> Plan:
        for role in self.kernel.roles:
            reader = Reader(self.kernel, role)
            for site in reader.walk(role.body):
                if isinstance(site.node, x.For) and site.node.role != "tiles":
                    for e in site.exprs[:2]:
                        self._bound(e, site.loops)
        roles = []
        for role in self.kernel.roles:
            self.role = role
            self.reader = Reader(self.kernel, role)
            self.tiles = dict(role.tiles)
            body = self._body(role.body, ())
            if role.solo and _leading(body) != _leading(role.body):
                raise Unfit(f"only the elected lane of {role.name} changes its registers")
            if sum(isinstance(n, x.For) and n.role == "tiles" for n in body) > 1:
                raise Unfit(f"{role.name} walks the tiles more than once")
            roles.append(role.model_copy(update={"body": body, "tiles": self.tiles}))
        if self.plan.round > 1 and (
            set(self.plan.flags) - self.plan.fixed or any(not c.launch for c in self.plan.counts)
        ):
            raise Unfit("tiles that are divided among instances differ in counts or conditions")
        self.plan.kernel = self.kernel.model_copy(update={"roles": tuple(roles)})
        return self.plan

    # -- variables ----------------------------------------------------------------------------------------------------

    def _bound(self, e: Expr, loops: tuple[Inner, ...]) -> None:
        """Note the count in a loop bound."""
        form = linear(e)
        terms = [t for t in form if t is not None]
        closed = [t for t in terms if not self._indices(t, loops)]
        if len(closed) > 1 and all(form[t] in (1, -1) for t in closed):
            self._count({t: form[t] for t in closed}, 1, e)
        elif len(closed) == 1 and form[closed[0]] == 1:
            term = closed[0]
            if isinstance(term, Apply) and term.op in ("cdiv", "//") and isinstance(term.args[1], Const):
                inner = linear(term.args[0])
                inner.pop(None, None)
                if inner:
                    self._count(inner, int(term.args[1].value), term.args[0])
                    return
            self._count({term: 1}, 1, term)
        elif closed:
            raise Unfit(f"the loop bound {text(e)[:60]} is no plain count")

    def _count(self, form: Form, granule: int, e: Expr) -> Count:
        self._plain(e)
        key = frozenset((t, c) for t, c in form.items() if t is not None)
        found = self.keys.get(key)
        if found is None:
            low = bounds(e, self.known)[0]
            found = self.keys[key] = Count(
                f"%v{len(self.keys)}", granule, max(0, low or 0), launch=leaves(e) <= self.launch
            )
            if found.launch and isinstance(e, Sym):
                found.leaf = e.name
            self.plan.counts.append(found)
        if found.granule != granule:
            raise Unfit(f"{text(e)[:60]} is counted in steps of {found.granule} and of {granule}")
        return found

    def _indices(self, e: Expr, loops: tuple[Inner, ...]) -> set[str]:
        names = {loop.var for loop in loops if not loop.tiles}
        return leaves(e) & names

    def _instance(self, e: Expr) -> bool:
        return self.role.var is not None and self.role.var in leaves(e)

    def _plain(self, e: Expr) -> None:
        for name in leaves(e):
            if name.startswith(CARRIED):
                raise Unfit(f"control depends on `{name[len(CARRIED) :]}`, which changes as the program runs")
            if name.startswith(TAINT):
                raise Unfit(f"control depends on {name[len(TAINT) :]}, which the kernel may write")

    # -- control ------------------------------------------------------------------------------------------------------

    def _condition(self, e: Expr, loops: tuple[Inner, ...]) -> Expr:
        """A condition over counts, flags, loop indices and the instance."""
        if isinstance(e, Const):
            return e
        if isinstance(e, Apply) and e.op in ("and", "or", "not"):
            return Apply(op=e.op, args=tuple(self._condition(a, loops) for a in e.args), dtype="bool")
        if leaves(e) <= ({self.role.var} if self.role.var else set()):
            return e
        compared = isinstance(e, Apply) and e.op in COMPARISONS and e.args[0].dtype in ("i32", "i64")
        if not self._indices(e, loops):
            known = self._compare(e, loops) if compared else None
            return known if known is not None else self._flag(e, loops)
        if not compared:
            raise Unfit(f"the condition {text(e)[:60]} on a loop index is no comparison")
        found = self._compare(e, loops)
        if found is None:
            raise Unfit(f"the condition {text(e)[:60]} on a loop index has none of the forms that repeat")
        return found

    def _flag(self, e: Expr, loops: tuple[Inner, ...]) -> Expr:
        self._plain(e)
        own = self._instance(e)
        name = self.named.setdefault(text(e) + (f" in {self.role.name}" if own else ""), f"%b{len(self.named)}")
        self.plan.flags[name] = self.role.instances if own else 0
        if leaves(e) - {self.role.var or ""} <= self.launch:
            self.plan.fixed.add(name)
        if not any(loop.tiles for loop in loops):
            self.plan.outside.add(name)
        return Sym(name=name, dtype="bool")

    def _compare(self, e: Expr, loops: tuple[Inner, ...]) -> Expr | None:
        """A comparison with at most one count; None if it has another form."""
        assert isinstance(e, Apply)
        form = plus(linear(e.args[0]), linear(e.args[1]), -1)
        constant = form.pop(None, 0)
        index: dict[Expr, int] = {}
        closed: dict[Expr, int] = {}
        for term, c in form.items():
            assert term is not None
            if self._indices(term, loops):
                if isinstance(term, Apply) and term.op == "%" and isinstance(term.args[1], Const):
                    if not isinstance(term.args[0], Sym):
                        return None
                    self.plan.moduli.add(int(term.args[1].value))
                elif not isinstance(term, Sym):
                    return None
                index[term] = c
            elif isinstance(term, Sym) and term.name == self.role.var:
                index[term] = c
            else:
                closed[term] = c
        value: Expr = integer(constant)
        quotient = self._quotient(closed)
        if quotient is not None:
            value, closed = _add(value, *quotient), {}
            self.plan.reach = max(self.plan.reach, 2 + abs(constant))
        if closed:
            count, sign = self._find(closed)
            if count is None:
                if not self._indices(e, loops):
                    return None
                whole: Form = {t: c for t, c in closed.items()}  # noqa: C416  (a dict of optional terms)
                count, sign = self._count(whole, abs(next(iter(index.values()))), _sum(closed)), 1
            g = count.granule
            if any(c % g for c in index.values()) or constant % g:
                return None
            count.ragged = count.ragged or g > 1
            value = _add(value, Sym(name=count.name), sign)
            self.plan.reach = max(self.plan.reach, 2 + abs(constant) // g)
        elif self._indices(e, loops):
            self.plan.reach = max(self.plan.reach, 2 + abs(constant))
        for term, c in index.items():
            value = _add(value, term, c)
        return Apply(op=e.op, args=(value, integer(0)), dtype="bool")

    def _quotient(self, closed: dict[Expr, int]) -> tuple[Expr, int] | None:
        """A single term that divides a count by its granule (the number of whole or of begun iterations)."""
        if len(closed) != 1:
            return None
        ((term, factor),) = closed.items()
        if not (isinstance(term, Apply) and term.op in ("cdiv", "//") and isinstance(term.args[1], Const)):
            return None
        inner = linear(term.args[0])
        constant, granule = inner.pop(None, 0), int(term.args[1].value)
        count, sign = self._find({t: c for t, c in inner.items() if t is not None})
        if count is None or count.granule != granule or constant % granule:
            return None
        count.ragged = True
        whole = _add(integer(constant), Sym(name=count.name), sign)
        return Apply(op=term.op, args=(whole, term.args[1]), dtype="i32"), factor

    def _find(self, closed: dict[Expr, int]) -> tuple[Count | None, int]:
        for sign in (1, -1):
            found = self.keys.get(frozenset((t, sign * c) for t, c in closed.items()))
            if found is not None:
                return found, sign
        return None, 1

    def _loop_bound(self, e: Expr, loops: tuple[Inner, ...]) -> Expr:
        form = linear(e)
        value: Expr = integer(form.pop(None, 0))
        rest = {t: c for t, c in form.items() if t is not None}
        closed = {t: c for t, c in rest.items() if not self._indices(t, loops)}
        found, sign = self._find(closed) if closed else (None, 1)
        if found is not None and found.granule == 1:
            value, rest = _add(value, Sym(name=found.name), sign), {t: c for t, c in rest.items() if t not in closed}
        for term, c in rest.items():
            if term in closed:
                assert isinstance(term, Apply), text(term)
                inner = linear(term.args[0])
                constant = inner.pop(None, 0)
                count, sign = self._find({t: k for t, k in inner.items() if t is not None})
                assert count is not None
                whole = _add(integer(constant), Sym(name=count.name), sign)
                if constant % count.granule:
                    raise Unfit(f"the loop bound {text(e)[:60]} is no plain count")
                term = Apply(op=term.op, args=(whole, term.args[1]), dtype="i32")
            value = _add(value, term, c)
        return value

    # -- statements ---------------------------------------------------------------------------------------------------

    def _body(self, body: tuple[x.Stmt, ...], loops: tuple[Inner, ...]) -> tuple[x.Stmt, ...]:
        return tuple(new for node in body for new in self._statement(node, loops))

    def _statement(self, node: x.Stmt, loops: tuple[Inner, ...]) -> list[x.Stmt]:
        reader = self.reader
        if isinstance(node, x.Let):
            list(reader.walk((node,)))
            return []
        if isinstance(node, x.For):
            return [self._for(node, loops)]
        if isinstance(node, x.If):
            cond = self._condition(reader.expand(node.cond), loops)
            before = dict(reader.known)
            then = self._body(node.then, loops)
            after, reader.known = reader.known, before
            orelse = self._body(node.orelse, loops)
            for name in {*after, *reader.known}:
                if after.get(name) != reader.known.get(name):
                    reader.known[name] = Sym(name=CARRIED + name)
            return [node.model_copy(update={"cond": cond, "then": then, "orelse": orelse})]
        if isinstance(node, x.Cursor):
            if node.form == "set":
                raise Unfit(f"the cursor {node.cursor} is set back")
            if node.count is not None:
                return [node.model_copy(update={"count": self._skip(reader.expand(node.count), loops)})]
            return [node]
        if isinstance(node, x.Named) and node.index is not None:
            return [node.model_copy(update={"index": self._fixed(node.index, loops, "a barrier's number")})]
        if isinstance(node, x.Op):
            return self._op(node, loops)
        return [node]

    def _for(self, node: x.For, loops: tuple[Inner, ...]) -> x.For:
        reader = self.reader
        lo, hi, step = (reader.expand(e) for e in (node.lo, node.hi, node.step))
        tiles = node.role == "tiles"
        if tiles:
            if loops:
                raise Unfit("the walk over tiles is inside another loop")
            lo, hi, step = integer(0), integer(1), integer(self._dealt(node))
        else:
            if not (isinstance(step, Const) and step.value == 1):
                raise Unfit("a loop steps by more than 1")
            lo, hi = self._loop_bound(lo, loops), self._loop_bound(hi, loops)
        here = (*loops, Inner(node.var, node, lo, hi, tiles))
        names = assigned(node.body)
        for name in names:
            reader.known[name] = Sym(name=CARRIED + name)
        reader.known[node.var] = Sym(name=node.var)
        body = self._body(node.body, here)
        for name in names | {node.var}:
            reader.known[name] = Sym(name=CARRIED + name)
        return node.model_copy(update={"lo": lo, "hi": hi, "step": step, "body": body})

    def _dealt(self, node: x.For) -> int:
        """Among how many instances the tiles are divided: in turn, beginning with the first; 1: every instance has all."""
        lo, step, grid, own = linear(node.lo), linear(node.step), Sym(name="%grid"), self.role.var
        count = step.get(grid, 0)
        if set(step) != {grid}:
            raise Unfit("tiles that are drawn are explored by launches only")
        if count == 1:
            return 1
        first = {Sym(name="%cta"): 1}
        turns = [
            Apply(op="*", args=pair, dtype="i32") for pair in ((Sym(name=own or ""), grid), (grid, Sym(name=own or "")))
        ]
        if count != self.role.instances or lo not in [{**first, t: 1} for t in turns]:
            raise Unfit("tiles that are divided among other than all instances in turn are explored by launches only")
        if self.plan.round not in (1, count):
            raise Unfit("roles divide the tiles among different numbers of instances")
        self.plan.round = count
        return count

    def _skip(self, e: Expr, loops: tuple[Inner, ...]) -> Expr:
        """How many stages a cursor skips: counts, the instance's number and constants, added and multiplied."""
        if isinstance(e, Const) or (isinstance(e, Sym) and e.name == self.role.var):
            return e
        form = {t: c for t, c in linear(e).items() if t is not None}
        if len(form) == 1 and e in form:
            count, _ = self._find(form)
            inner = e.args[0] if isinstance(e, Apply) and e.op in ("cdiv", "//") else None
            if count is None and inner is not None and isinstance(e, Apply) and isinstance(e.args[1], Const):
                count, _ = self._find({t: c for t, c in linear(inner).items() if t is not None})
                count = count if count is not None and count.granule == e.args[1].value else None
            if count is not None and count.launch:
                return self._loop_bound(e, loops)
        if isinstance(e, Apply) and e.op in ("+", "-", "*"):
            return e.model_copy(update={"args": tuple(self._skip(a, loops) for a in e.args)})
        raise Unfit(f"a cursor skips {text(e)[:60]} stages, which no loop of all tiles counts")

    def _fixed(self, e: Expr, loops: tuple[Inner, ...], what: str) -> Expr:
        """An expression that says which shared memory or barrier is meant: the same in every tile and iteration."""
        new = self.reader.expand(e)
        allowed = {loop.var for loop in loops if loop.constant and not loop.tiles} | {self.role.var}
        if not leaves(new) <= allowed:
            raise Unfit(f"{what} depends on {', '.join(sorted(leaves(new) - allowed))[:60]}")
        return new

    def _op(self, node: x.Op, loops: tuple[Inner, ...]) -> list[x.Stmt]:
        if node.op in ("wait_until", "signal"):
            raise Unfit("CTAs wait for each other through global memory")
        if node.op == "load_scalar":
            list(self.reader.walk((node,)))
            return [self._shared(node, loops)] if node.ref("src").base not in self.tensors else []
        if node.completion is None and any(
            isinstance(v, x.Ref) and v.base in self.tensors for v in node.operands.values()
        ):
            return self._registers_only(node)
        return [self._shared(node, loops)]

    def _shared(self, node: x.Op, loops: tuple[Inner, ...]) -> x.Op:
        operands: dict[str, x.Ref | Expr] = {}
        for name, value in node.operands.items():
            if isinstance(value, x.Ref):
                operands[name] = self._reference(value, loops)
            elif name == "where":
                if registers(value):
                    raise Unfit("a mask of a shared access is computed at run time")
                operands[name] = self._fixed(value, loops, "a mask of a shared access")
            elif name == "use_acc" and not leaves(value) <= {loop.var for loop in loops if not loop.tiles}:
                operands[name] = boolean(True)
            else:
                operands[name] = value
        return node.model_copy(update={"operands": operands})

    def _reference(self, ref: x.Ref, loops: tuple[Inner, ...]) -> x.Ref:
        tensor = ref.base in self.tensors
        subs: list[x.Sub] = []
        for sub in ref.subs:
            if isinstance(sub, x.Elem):
                if registers(sub.index):
                    raise Unfit(f"an index into `{ref.base}` is computed at run time")
                subs.append(x.Elem(index=self._fixed(sub.index, loops, f"an index into `{ref.base}`")))
                continue
            e = sub.at if isinstance(sub, x.Point) else sub.start
            fixed = integer(0) if tensor else self._fixed(e, loops, f"an index into `{ref.base}`")
            subs.append(x.Point(at=fixed) if isinstance(sub, x.Point) else x.Range(start=fixed, size=sub.size))
        return ref.model_copy(update={"subs": tuple(subs)})

    def _registers_only(self, node: x.Op) -> list[x.Stmt]:
        """What a move between registers and a tensor does to registers."""
        if node.type is None:
            return []
        dst = node.operands.get("dst")
        value = node.operands.get("value")
        if isinstance(dst, Reg):
            zero = Const(value=0, dtype=dst.dtype)
            operands: dict[str, x.Ref | Expr] = {"dst": dst, "value": zero}
        elif value is not None and not isinstance(value, x.Ref) and registers(value):
            kind = TileType(dtype=value.dtype, shape=node.type.shape, layout=node.type.layout)
            sink = f"{SINK}{len(self.tiles)}"
            self.tiles[sink] = kind
            operands = {"dst": Reg(name=sink, dtype=value.dtype), "value": value}
        else:
            return []
        return [x.Op(op="assign", operands=operands, type=node.type, executor=node.executor, span=node.span)]


def _leading(body: tuple[x.Stmt, ...]) -> int:
    """How many register moves the whole of a solo role makes: those that its program begins with."""
    return next((i for i, n in enumerate(body) if not isinstance(n, x.SetMaxNReg)), len(body))


def _add(value: Expr, term: Expr, factor: int) -> Expr:
    if factor not in (1, -1):
        term = Apply(op="*", args=(term, integer(factor)), dtype="i32")
        factor = 1
    if isinstance(value, Const) and value.value == 0 and factor == 1:
        return term
    return Apply(op="+" if factor == 1 else "-", args=(value, term), dtype="i32")


def _sum(form: dict[Expr, int]) -> Expr:
    value: Expr = integer(0)
    for term, c in form.items():
        value = _add(value, term, c)
    return value


__all__ = ["Count", "Plan", "Unfit", "plan"]
