"""Mutants of source texts: one operation of a kernel is left out, doubled, moved, or told something else.

They ask about diagnostics, not about verdicts: does a finding name the operation, and does its fix give an accepted kernel back?
Edits are made in the text, so lines stay as their author wrote them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from cake.ir import surface as s
from cake.ir.parser import parse
from cake.ir.printer import format_expr


@dataclass(frozen=True)
class Mutant:
    """A changed text. ``places``: the lines of ``text`` that name the changed operation; of one that is gone, those of the
    statements round the gap, or the head of its block where there is none."""

    source: str
    kind: str
    what: str
    text: str
    places: frozenset[int]


@dataclass
class Place:
    """A statement, its block, the head of the block (a line), and the loops round it."""

    node: s.Stmt
    block: tuple[s.Stmt, ...]
    index: int
    head: int
    loops: tuple[s.For, ...] = ()
    role: str = ""

    @property
    def call(self) -> s.Call | None:
        """The call that it consists of, or whose result it names."""
        node = self.node
        value = node.expr if isinstance(node, s.ExprStmt) else node.value if isinstance(node, s.Assign) else None
        return value if isinstance(value, s.Call) else None

    @property
    def name(self) -> str:
        """What is called: the last part of the name, or all of it for operations."""
        return format_expr(self.call.func) if self.call is not None else ""


@dataclass
class Source:
    """A text with its statements."""

    name: str
    text: str
    lines: list[str] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lines = self.text.split("\n")
        self.file = parse(self.text, self.name)
        for kernel in self.file.kernels:
            for do in kernel.dos:
                self._walk(do.body, do.span.line, (), do.role)

    def _walk(self, body: tuple[s.Stmt, ...], head: int, loops: tuple[s.For, ...], role: str) -> None:
        for i, node in enumerate(body):
            self.places.append(Place(node, body, i, head, loops, role))
            if isinstance(node, s.For):
                self._walk(node.body, node.span.line, (*loops, node), role)
            elif isinstance(node, s.With):
                self._walk(node.body, node.span.line, loops, role)
            elif isinstance(node, s.If):
                for branch in node.branches:
                    self._walk(branch.body, branch.span.line, loops, role)
                self._walk(node.orelse, node.span.line, loops, role)

    # -- edits --------------------------------------------------------------------------------------------------------

    def extent(self, node: s.Node) -> tuple[int, int]:
        """First line and the line after the last one, counted from 0."""
        last = node.span.end_line - (1 if node.span.end_column == 1 else 0)
        return node.span.line - 1, last

    def _indent(self, line: int) -> str:
        return re.match(r" *", self.lines[line])[0]  # type: ignore[index]

    def drop(self, p: Place) -> tuple[str, frozenset[int]]:
        """Without a statement."""
        first, last = self.extent(p.node)
        kept = [f"{self._indent(first)}pass"] if len(p.block) == 1 else []
        text = "\n".join([*self.lines[:first], *kept, *self.lines[last:]])
        near = {p.head} if p.index == 0 or len(p.block) == 1 else set()
        if p.index:
            a, b = self.extent(p.block[p.index - 1])
            near |= set(range(a + 1, b + 1))
        if p.index + 1 < len(p.block):
            near |= {first + 1}
        return text, frozenset(near)

    def double(self, p: Place) -> tuple[str, frozenset[int]]:
        """With a statement twice."""
        first, last = self.extent(p.node)
        text = "\n".join([*self.lines[:last], *self.lines[first:]])
        return text, frozenset(range(first + 1, last + 1 + last - first))

    def swap(self, p: Place) -> tuple[str, frozenset[int]]:
        """A statement behind the next one of its block."""
        first, last = self.extent(p.node)
        a, b = self.extent(p.block[p.index + 1])
        between = self.lines[last:a]
        text = "\n".join([*self.lines[:first], *self.lines[a:b], *between, *self.lines[first:last], *self.lines[b:]])
        return text, frozenset(range(first + 1, b + 1))

    def put(self, node: s.Node, new: str) -> tuple[str, frozenset[int]]:
        """With other words for an expression on one line."""
        span = node.span
        line = self.lines[span.line - 1]
        lines = list(self.lines)
        lines[span.line - 1] = line[: span.column - 1] + new + line[span.end_column - 1 :]
        return "\n".join(lines), frozenset({span.line})

    def unwrap(self, p: Place) -> tuple[str, frozenset[int]]:
        """The body of a ``with`` without it."""
        first, last = self.extent(p.node)
        body = [line[4:] if line.startswith("    ") else line for line in self.lines[first + 1 : last]]
        return "\n".join([*self.lines[:first], *body, *self.lines[last:]]), frozenset(range(first, last))

    def under(self, p: Place, condition: str) -> tuple[str, frozenset[int]]:
        """A statement under a condition."""
        first, last = self.extent(p.node)
        indent = self._indent(first)
        body = [f"    {line}" for line in self.lines[first:last]]
        lines = [*self.lines[:first], f"{indent}if {condition}:", *body, *self.lines[last:]]
        return "\n".join(lines), frozenset(range(first + 1, last + 2))


Change = tuple[str, tuple[str, frozenset[int]]]
Kind = Callable[[Source, Place], Iterator[Change]]
KINDS: dict[str, Kind] = {}


def kind(title: str) -> Callable[[Kind], Kind]:
    """Register a kind of mutant."""

    def add(function: Kind) -> Kind:
        KINDS[title] = function
        return function

    return add


def mutants(source: Source) -> Iterator[Mutant]:
    """All mutants of a text, each once."""
    seen = {source.text}
    for title, function in KINDS.items():
        for p in source.places:
            for what, (text, places) in function(source, p):
                if text not in seen:
                    seen.add(text)
                    yield Mutant(source.name, title, f"{p.node.span.line}: {what}", text, places)


def _method(p: Place, *names: str) -> bool:
    return p.name.rpartition(".")[2] in names


def _keep(p: Place) -> tuple[s.Kwarg | None, int]:
    assert p.call is not None
    found = next((k for k in p.call.kwargs if k.name == "keep"), None)
    value = found.value.value if found is not None and isinstance(found.value, s.Number) else 0
    return found, int(value)


# ---- kinds ----------------------------------------------------------------------------------------------------------


@kind("release dropped")
def _release(source: Source, p: Place) -> Iterator[Change]:
    if _method(p, "release"):
        yield "no release", source.drop(p)


@kind("release doubled")
def _release_twice(source: Source, p: Place) -> Iterator[Change]:
    if _method(p, "release"):
        yield "released twice", source.double(p)


@kind("release keeps another number")
def _release_keep(source: Source, p: Place) -> Iterator[Change]:
    if _method(p, "release") and p.call is not None:
        _, keep = _keep(p)
        base = format_expr(p.call.func)
        for new in (keep + 1, keep - 1):
            if new >= 0:
                yield f"keep {new} for {keep}", source.put(p.call, f"{base}(keep={new})" if new else f"{base}()")


@kind("release earlier")
def _release_early(source: Source, p: Place) -> Iterator[Change]:
    following = p.block[p.index + 1 : p.index + 2]
    if following and _method(Place(following[0], p.block, p.index + 1, p.head), "release"):
        yield "release first", source.swap(p)


@kind("matrix wait dropped")
def _wait(source: Source, p: Place) -> Iterator[Change]:
    if p.name == "wgmma.wait":
        yield "no wgmma.wait", source.drop(p)


@kind("matrix wait keeps more")
def _wait_keep(source: Source, p: Place) -> Iterator[Change]:
    if p.name == "wgmma.wait" and p.call is not None:
        _, keep = _keep(p)
        yield f"keep {keep + 1}", source.put(p.call, f"wgmma.wait(keep={keep + 1})")


@kind("matrix wait later")
def _wait_late(source: Source, p: Place) -> Iterator[Change]:
    if p.name == "wgmma.wait" and p.index + 1 < len(p.block):
        yield "wait after the next statement", source.swap(p)


@kind("stage wait moved")
def _stage_wait(source: Source, p: Place) -> Iterator[Change]:
    if isinstance(p.node, s.Assign) and _method(p, "wait") and p.index + 1 < len(p.block):
        yield "stage wait after the next statement", source.swap(p)
        yield "stage wait twice", source.double(p)


@kind("barrier dropped")
def _sync(source: Source, p: Place) -> Iterator[Change]:
    if p.name == "sync":
        yield "no sync", source.drop(p)


@kind("barrier moved")
def _sync_moved(source: Source, p: Place) -> Iterator[Change]:
    if p.name == "sync" and p.index + 1 < len(p.block):
        yield "sync after the next statement", source.swap(p)
    elif p.index + 1 < len(p.block) and Place(p.block[p.index + 1], p.block, p.index + 1, p.head).name == "sync":
        yield "sync before the last statement", source.swap(p)


@kind("fence dropped")
def _fence(source: Source, p: Place) -> Iterator[Change]:
    if p.name.startswith("fence."):
        yield "no fence", source.drop(p)


@kind("fence misplaced")
def _fence_moved(source: Source, p: Place) -> Iterator[Change]:
    if p.index + 1 < len(p.block):
        following = Place(p.block[p.index + 1], p.block, p.index + 1, p.head)
        if p.name.startswith("fence.") or following.name.startswith("fence."):
            yield "fence on the other side", source.swap(p)


@kind("store wait dropped")
def _store_wait(source: Source, p: Place) -> Iterator[Change]:
    if p.name.startswith(("tma.store.wait", "cp_async.wait")):
        yield f"no {p.name}", source.drop(p)


@kind("skip dropped or wrong")
def _skip(source: Source, p: Place) -> Iterator[Change]:
    if _method(p, "skip") and p.call is not None and p.call.args:
        yield "no skip", source.drop(p)
        count = p.call.args[0]
        yield "skip one more", source.put(count, f"{format_expr(count)} + 1")


@kind("turn dropped")
def _turn(source: Source, p: Place) -> Iterator[Change]:
    if isinstance(p.node, s.With) and p.node.name is None:
        yield "no turn", source.unwrap(p)


@kind("walk of other tiles")
def _walk(source: Source, p: Place) -> Iterator[Change]:
    if isinstance(p.node, s.For) and isinstance(p.node.iter, s.Index):
        base = format_expr(p.node.iter.base)
        for sub in p.node.iter.subs:
            if isinstance(sub, s.Slice) and sub.step is not None:
                yield "all tiles", source.put(p.node.iter, base)


@kind("trips of one role")
def _trips(source: Source, p: Place) -> Iterator[Change]:
    node = p.node
    if isinstance(node, s.For) and isinstance(node.iter, s.Call) and format_expr(node.iter.func) == "range":
        last = node.iter.args[-1]
        yield "a trip less", source.put(last, f"{format_expr(last)} - 1")
        yield "a trip more", source.put(last, f"{format_expr(last)} + 1")


@kind("copy dropped")
def _copy(source: Source, p: Place) -> Iterator[Change]:
    if p.name in ("tma.load", "cp_async"):
        yield "no copy", source.drop(p)


@kind("copy doubled")
def _copy_twice(source: Source, p: Place) -> Iterator[Change]:
    if p.name in ("tma.load", "cp_async"):
        yield "copied twice", source.double(p)


@kind("copy under a condition")
def _copy_some(source: Source, p: Place) -> Iterator[Change]:
    if p.name == "tma.load" or (isinstance(p.node, s.With) and p.node.name is not None):
        for loop in p.loops[1:]:
            yield "not in the first trip", source.under(p, f"{loop.var} > 0")


@kind("another field")
def _field(source: Source, p: Place) -> Iterator[Change]:
    if p.call is None:
        return
    stages = {
        f.name: [g.name for g in pipe.fields] for k in source.file.kernels for pipe in k.pipelines for f in pipe.fields
    }
    for node in s.walk(p.call):
        if isinstance(node, s.Attribute) and isinstance(node.base, s.Name) and len(stages.get(node.name, ())) > 1:
            other = next(f for f in stages[node.name] if f != node.name)
            yield f"{other} for {node.name}", source.put(node, f"{node.base.name}.{other}")


@kind("bulk store moved or dropped")
def _store(source: Source, p: Place) -> Iterator[Change]:
    if p.name == "tma.store":
        yield "no store", source.drop(p)
        if p.index + 1 < len(p.block):
            yield "store after the next statement", source.swap(p)


@kind("signal or flag")
def _flag(source: Source, p: Place) -> Iterator[Change]:
    if p.name in ("signal", "wait_until") and p.call is not None:
        yield f"no {p.name}", source.drop(p)
        value = p.call.args[1]
        yield "another value", source.put(value, f"{format_expr(value)} + 1")
        if p.index + 1 < len(p.block):
            yield f"{p.name} after the next statement", source.swap(p)


@kind("predicate dropped")
def _predicate(source: Source, p: Place) -> Iterator[Change]:
    if p.call is None:
        return
    for call in s.walk(p.call):
        for kwarg in call.kwargs if isinstance(call, s.Call) else ():
            if kwarg.name in ("where", "other"):
                text = format_expr(call)
                words = f", {kwarg.name}={format_expr(kwarg.value)}"
                if words in text and call.span.line == call.span.end_line:
                    yield f"no {kwarg.name}=", source.put(call, text.replace(words, ""))


@kind("result stored elsewhere")
def _elsewhere(source: Source, p: Place) -> Iterator[Change]:
    if p.name in ("tma.store", "store") and p.call is not None and isinstance(p.call.args[0], s.Index):
        target = p.call.args[0]
        for sub in target.subs:
            for node in s.walk(sub):
                if isinstance(node, s.Binary) and node.op == "*" and node.span.line == node.span.end_line:
                    yield "index without its factor", source.put(node, format_expr(node.left))
