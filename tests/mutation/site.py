"""Places of statements in a kernel, and kernels with one place changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from cake.ir import expanded as x
from cake.ir.expr import Apply, Expr, boolean, integer
from tests.litmus.mutate import Body, Path, at, put

__all__ = [
    "MUTATORS",
    "Body",
    "Mutant",
    "Mutator",
    "Path",
    "Site",
    "at",
    "changed",
    "mutator",
    "sites",
    "test",
    "update",
]


@dataclass(frozen=True)
class Mutant:
    """A kernel with one change (class 45: two). ``number``: its class in docs/verification.md 2.2."""

    number: int
    what: str
    kernel: x.Kernel


@dataclass(frozen=True)
class Site:
    """A statement of role ``role`` (None: the entry); ``siblings``: the block it is in, ``index`` its place there."""

    kernel: x.Kernel
    role: int | None
    path: Path
    node: Any
    siblings: Body
    index: int
    loops: tuple[x.For, ...]

    @property
    def name(self) -> str:
        """For the report."""
        role = "entry" if self.role is None else self.kernel.roles[self.role].name
        return f"{role} {'.'.join(map(str, self.path))} {self.node.kind}"

    def put(self, *new: x.Stmt) -> x.Kernel:
        """The kernel with other statements here."""
        return changed(self.kernel, self.role, put(_body(self.kernel, self.role), self.path, list(new)))

    def drop(self) -> x.Kernel:
        """Without this statement."""
        return self.put()

    def update(self, **fields: Any) -> x.Kernel:
        """With other fields."""
        return self.put(update(self.node, **fields))

    def move(self, by: int) -> x.Kernel | None:
        """Past ``by`` neighbours; None if there are not so many, or past the end of the program."""
        to = self.index + by
        if not 0 <= to < len(self.siblings) or (by > 0 and isinstance(self.siblings[to], x.Exit)):
            return None
        order = list(self.siblings)
        order.insert(to, order.pop(self.index))
        return self.block(tuple(order))

    def block(self, block: Body) -> x.Kernel:
        """With another block around."""
        body = _body(self.kernel, self.role)
        if len(self.path) == 1:
            return changed(self.kernel, self.role, block)
        parent, name = self.path[:-2], str(self.path[-2])
        return changed(self.kernel, self.role, put(body, parent, [at(body, parent).model_copy(update={name: block})]))

    def when(self, cond: Expr) -> x.Kernel:
        """Under a condition."""
        return self.put(x.If(cond=cond, then=(self.node,)))


def update(node: Any, **fields: Any) -> Any:
    """A copy with other fields."""
    return node.model_copy(update=fields)


def test(op: str, left: Expr | int, right: Expr | int) -> Expr:
    """A comparison."""
    args = tuple(integer(a) if isinstance(a, int) else a for a in (left, right))
    return Apply(op=op, args=args, dtype="bool") if op else boolean(True)


def _body(kernel: x.Kernel, role: int | None) -> Body:
    return kernel.entry if role is None else kernel.roles[role].body


def changed(kernel: x.Kernel, role: int | None, body: Body) -> x.Kernel:
    """``kernel`` with another program."""
    if role is None:
        return kernel.model_copy(update={"entry": body})
    roles = list(kernel.roles)
    roles[role] = roles[role].model_copy(update={"body": body})
    return kernel.model_copy(update={"roles": tuple(roles)})


def sites(kernel: x.Kernel, *kinds: type[x.Node], entry: bool = False) -> Iterator[Site]:
    """All statements of some kinds (of the roles; ``entry``: of the entry too)."""
    numbers: list[int | None] = [*range(len(kernel.roles)), *([None] if entry else [])]
    for role in numbers:
        body = _body(kernel, role)
        yield from (s for s in _walk(kernel, role, body, (), ()) if not kinds or isinstance(s.node, kinds))


def _walk(kernel: x.Kernel, role: int | None, body: Body, before: Path, loops: tuple[x.For, ...]) -> Iterator[Site]:
    for i, node in enumerate(body):
        path: Path = (*before, i)
        yield Site(kernel, role, path, node, body, i, loops)
        if isinstance(node, x.For):
            yield from _walk(kernel, role, node.body, (*path, "body"), (*loops, node))
        elif isinstance(node, x.If):
            yield from _walk(kernel, role, node.then, (*path, "then"), loops)
            yield from _walk(kernel, role, node.orelse, (*path, "orelse"), loops)


Mutator = Callable[[x.Kernel], Iterator[tuple[str, x.Kernel | None]]]
MUTATORS: dict[int, list[Mutator]] = {}
CLASSES: dict[int, str] = {}


def mutator(number: int, title: str) -> Callable[[Mutator], Mutator]:
    """Register a mutator of a class."""

    def add(function: Mutator) -> Mutator:
        MUTATORS.setdefault(number, []).append(function)
        CLASSES.setdefault(number, title)
        return function

    return add
