"""Where scalar variables live, which cursors need a phase, and which tiles were computed since the last issue or
wait."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cake.ir import expanded as x
from cake.ir.expr import Reg, Sym

Path = tuple[int, ...]

WRITTEN = ("dst", "index", "d", "best", "column")
"""Operands through which an operation writes register tiles."""


def leaves(value: Any) -> Iterator[Sym | Reg]:
    """Scalar symbols and register tiles that occur in a statement itself, not in the statements inside it."""
    if isinstance(value, Sym | Reg):
        yield value
    elif isinstance(value, x.Record):
        for name in type(value).model_fields:
            if name not in ("body", "then", "orelse", "span", "reason"):
                yield from leaves(getattr(value, name))
    elif isinstance(value, dict):
        for v in value.values():
            yield from leaves(v)
    elif isinstance(value, tuple):
        for v in value:
            yield from leaves(v)


def blocks(node: x.Node) -> tuple[tuple[x.Stmt, ...], ...]:
    """The statement lists inside a statement."""
    if isinstance(node, x.For):
        return (node.body,)
    if isinstance(node, x.If):
        return (node.then, node.orelse)
    return ()


def statements(body: tuple[x.Stmt, ...], path: Path = ()) -> Iterator[tuple[Path, x.Stmt]]:
    """Every statement with the path of the block that contains it, in program order."""
    for n, node in enumerate(body):
        yield path, node
        for k, inner in enumerate(blocks(node)):
            yield from statements(inner, (*path, n, k))


def assigned(node: x.Node) -> tuple[str, str] | None:
    """Name and dtype of the scalar variable that a statement sets."""
    if isinstance(node, x.Let):
        return node.name, node.dtype
    if isinstance(node, x.Op) and isinstance(node.operands.get("dst"), Sym):
        dst = node.sym("dst")
        return dst.name, dst.dtype
    return None


class Scalars:
    """``local``: variables set once whose uses all lie in the block that sets them; they become constants there. The
    others are declared at the top of the function (``top``, with their dtypes)."""

    def __init__(self, body: tuple[x.Stmt, ...], solo: bool) -> None:
        set_at: dict[str, list[tuple[Path, bool]]] = {}
        dtype: dict[str, str] = {}
        used: dict[str, list[Path]] = {}
        for path, node in statements(body):
            target = assigned(node)
            if target is not None:
                set_at.setdefault(target[0], []).append((path, solo or node.executor == "lanes"))
                dtype[target[0]] = target[1]
            for leaf in leaves(node):
                if isinstance(leaf, Sym):
                    used.setdefault(leaf.name, []).append(path)
        self.local = {
            name
            for name, places in set_at.items()
            if len(places) == 1
            and places[0][1]
            and all(path[: len(places[0][0])] == places[0][0] for path in used.get(name, []))
        }
        self.top = {name: dtype[name] for name in set_at if name not in self.local}


def waited(body: tuple[x.Stmt, ...]) -> set[str]:
    """Cursors whose phase is looked at, directly or through a copy."""
    names: set[str] = set()
    copies: list[tuple[str, str]] = []
    for _, node in statements(body):
        if isinstance(node, x.Wait) and node.slot.cursor is not None:
            names.add(node.slot.cursor)
        if isinstance(node, x.Cursor) and node.form == "copy" and node.source is not None:
            copies.append((node.cursor, node.source))
    while True:
        more = {source for handle, source in copies if handle in names} - names
        if not more:
            return names
        names |= more


def written(node: x.Node) -> set[str]:
    """Register tiles that a statement computes (not asynchronously)."""
    if not isinstance(node, x.Op) or node.op == "wgmma":
        return set()
    return {v.name for k, v in node.operands.items() if k in WRITTEN and isinstance(v, Reg)}


def pins_here(node: x.Node) -> bool:
    """True for the statements before which computed tiles are pinned: an issue of wgmma and a wait for it."""
    if isinstance(node, x.Fence):
        return node.what == "wgmma"
    if isinstance(node, x.GroupWait):
        return node.queue == "wgmma"
    return isinstance(node, x.Op) and node.op == "wgmma"


def computed(body: tuple[x.Stmt, ...], since: set[str]) -> set[str]:
    """Tiles computed since the last pin at the end of ``body``, with ``since`` at its start."""
    now = set(since)
    for node in body:
        if pins_here(node):
            now = set()
        now |= written(node)
        inner = blocks(node)
        if inner:
            ends = [computed(b, now) for b in inner]
            now = now.union(*ends) if isinstance(node, x.For) else set().union(*ends)
    return now
