"""Which scalars differ between the CTAs of a cluster, and what may not depend on them.

The CTAs of a cluster take part in one another's stages, so each must fill, take and release as many as its peers: a
condition or a loop bound around such an operation has the same value in all of them (C604; docs/verification.md, H25).
A multicast load sends one box to all, so its source and destination are the same in all of them too (C606).

A scalar differs if anything it is computed from does, the rank above all. Where it is a formula of the rank and of
scalars that do not differ, the facts may still show that its value is the same for every rank."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cake.diagnostics import Span
from cake.expand.context import KernelContext
from cake.facts import show
from cake.ir import expanded as x
from cake.ir.expr import Expr, Sym, integer, substitute, symbols

RANK = "%rank"


def check(ctx: KernelContext, roles: Sequence[x.Role]) -> None:
    """Report what the CTAs of a cluster would not do alike, each place once."""
    said: set[tuple[str, Span | None]] = set()
    rings = [r.name for r in ctx.rings.values() if r.multicast or r.across]
    barriers = {f"{name}.{end}" for name in rings for end in ("full", "empty")}
    for role in roles:
        differ = Differences(ctx, role.body)
        for code, message, span, help in _findings(ctx, differ, role.body, barriers):
            if (code, span) not in said:
                said.add((code, span))
                ctx.error(code, message, span or role.span, help=help)


Finding = tuple[str, str, Span | None, str]


def _findings(ctx: KernelContext, differ: Differences, body: Sequence[x.Stmt], barriers: set[str]) -> Iterator[Finding]:
    tiles = ctx.tiles
    assert tiles is not None
    for node in body:
        if isinstance(node, x.If) and node.reason == "tiles" and differ(node.cond):
            yield (
                "C604",
                f"`where {show(node.cond)}` depends on `{tiles.clustered}`: it may keep some CTAs of a cluster",
                node.span,
                "leave it out if it only cuts ragged tiles: block loads fill zeros, block stores clip; "
                "otherwise form no clusters along this axis",
            )
        elif isinstance(node, x.For | x.If) and _shared(node, barriers):
            what = [node.cond] if isinstance(node, x.If) else [node.lo, node.hi, node.step]
            if any(differ(e) for e in what):
                kind = "condition" if isinstance(node, x.If) else "loop"
                yield (
                    "C604",
                    f"a stage that the cluster fills together is used under a {kind} that may differ between its CTAs, "
                    f"which differ along `{tiles.clustered}`",
                    node.span,
                    f"make the {kind} independent of `{tiles.clustered}`, or give each CTA stages of its own",
                )
                continue
        if isinstance(node, x.Op) and node.attrs.get("multicast"):
            yield from _copies(tiles.clustered or "", differ, node)
        elif isinstance(node, x.For):
            yield from _findings(ctx, differ, node.body, barriers)
        elif isinstance(node, x.If):
            yield from _findings(ctx, differ, (*node.then, *node.orelse), barriers)


def _copies(axis: str, differ: Differences, node: x.Op) -> Iterator[Finding]:
    for name, what in (("src", "source"), ("dst", "destination")):
        for sub in node.ref(name).subs:
            start = sub.start if isinstance(sub, x.Range) else sub.at if isinstance(sub, x.Point) else sub.index
            if differ(substitute(start, {RANK: integer(0)})):  # its own share is what the rank adds
                yield (
                    "C606",
                    f"`multicast={axis}` sends one box to all CTAs along `{axis}`, and this {what} depends on it",
                    node.span,
                    "leave `multicast` out: each CTA needs a box of its own",
                )
                return


def _shared(node: x.Stmt, barriers: set[str]) -> bool:
    """Whether a statement contains an operation that peers count on."""
    match node:
        case x.For(body=body):
            return any(_shared(n, barriers) for n in body)
        case x.If(then=then, orelse=orelse):
            return any(_shared(n, barriers) for n in (*then, *orelse))
        case x.Wait(barrier=name) | x.Arrive(barrier=name):
            return name in barriers
        case x.Op():
            return bool(node.attrs.get("multicast"))
    return False


class Differences:
    """What of a role's scalars differs between the CTAs of a cluster. Each name counts as one for the whole role,
    whatever the order of its assignments, which refuses more, never less."""

    def __init__(self, ctx: KernelContext, body: Sequence[x.Stmt]) -> None:
        assert ctx.tiles is not None
        self.ctx = ctx
        self.size = ctx.tiles.cluster
        self.facts = ctx.facts.copy()
        self.values: dict[str, Expr | None] = {}
        assigned = list(self._assignments(body, ()))
        for name, value, _, _ in assigned:
            self.values[name] = value if self.values.get(name, value) == value else None
            if name.endswith(".cluster"):
                self.facts.declare(name, 0)
        self.names = {RANK}
        while True:
            more = {name for name, _, sources, opaque in assigned if opaque or any(self(e) for e in sources)}
            if more <= self.names:
                break
            self.names |= more

    def __call__(self, e: Expr) -> bool:
        """Whether the value may differ."""
        while found := symbols(e) & self.names - {RANK}:
            values = {n: v for n in found if (v := self.values.get(n)) is not None}
            if len(values) < len(found):
                return True
            e = substitute(e, values)
        if RANK not in symbols(e):
            return False
        first, *others = (substitute(e, {RANK: integer(rank)}) for rank in range(self.size))
        return not all(self.facts.equal(first, other) for other in others)

    def _assignments(
        self, body: Sequence[x.Stmt], around: tuple[Expr, ...]
    ) -> Iterator[tuple[str, Expr | None, tuple[Expr, ...], bool]]:
        """Each assignment of a scalar: its value where it is an expression, all it depends on, and whether it may read
        what the CTAs wrote differently."""
        for node in body:
            match node:
                case x.Let():
                    yield node.name, node.value, (node.value, *around), False
                case x.For():
                    yield node.var, None, (node.lo, node.step, *around), False
                    yield from self._assignments(node.body, (*around, node.lo, node.hi, node.step))
                case x.If():
                    # What a `where` of the tiles keeps has no use outside it, and it is judged by itself.
                    inside = around if node.reason == "tiles" else (*around, node.cond)
                    yield from self._assignments((*node.then, *node.orelse), inside)
                case x.Op() if isinstance(node.operands.get("dst"), Sym):
                    yield node.sym("dst").name, None, (*_reads(node), *around), not self._read_only(node)

    def _read_only(self, node: x.Op) -> bool:
        src = node.operands.get("src")
        tensor = next((t for t in self.ctx.tensors if isinstance(src, x.Ref) and t.name == src.base), None)
        return tensor is not None and tensor.direction == "in"


def _reads(node: x.Op) -> Iterator[Expr]:
    for value in node.operands.values():
        if isinstance(value, x.Ref):
            for sub in value.subs:
                yield sub.start if isinstance(sub, x.Range) else sub.at if isinstance(sub, x.Point) else sub.index
        elif not isinstance(value, Sym):
            yield value
