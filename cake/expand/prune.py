"""Removal of derived scalars that nothing reads: each role decodes only the tile fields and definitions it uses."""

from __future__ import annotations

from cake.ir import expanded as x
from cake.ir.expr import Expr, Reg, Sym, walk

REMOVABLE = ("tiles", "define", "loop bound")


def prune(body: tuple[x.Stmt, ...]) -> tuple[x.Stmt, ...]:
    """Drop unread derived scalars until nothing changes."""
    while True:
        used: set[str] = set()
        _uses(body, used)
        new = _drop(body, used)
        if new == body:
            return body
        body = new


def used_tiles(body: tuple[x.Stmt, ...]) -> set[str]:
    """Names of the register tiles that occur."""
    found: set[str] = set()
    _tiles(body, found)
    return found


def used_cursors(body: tuple[x.Stmt, ...]) -> set[str]:
    """Names of the cursors that occur."""
    found: set[str] = set()
    for node in flatten(body):
        match node:
            case x.Cursor():
                found.update(n for n in (node.cursor, node.source) if n)
            case x.Wait() | x.Arrive() if node.slot.cursor:
                found.add(node.slot.cursor)
            case x.Op():
                found.update(
                    o.slot.cursor for o in node.operands.values() if isinstance(o, x.Ref) and o.slot and o.slot.cursor
                )
    return found


def flatten(body: tuple[x.Stmt, ...]) -> list[x.Stmt]:
    """Every statement, blocks included."""
    out: list[x.Stmt] = []
    for node in body:
        out.append(node)
        if isinstance(node, x.For):
            out.extend(flatten(node.body))
        elif isinstance(node, x.If):
            out.extend(flatten(node.then))
            out.extend(flatten(node.orelse))
    return out


def expressions(node: x.Stmt) -> list[Expr]:
    """The expressions a statement itself reads (not those of its blocks)."""
    match node:
        case x.For():
            return [node.lo, node.hi, node.step]
        case x.If():
            return [node.cond]
        case x.Let():
            return [node.value]
        case x.Named() if node.index is not None:
            return [node.index]
        case x.Cursor() if node.count is not None:
            return [node.count]
        case x.Op():
            out: list[Expr] = []
            for name, operand in node.operands.items():
                if isinstance(operand, x.Ref):
                    out.extend(_subs(operand))
                elif not (name == "dst" and isinstance(operand, Sym)):
                    out.append(operand)
            return out
    return []


def _subs(ref: x.Ref) -> list[Expr]:
    return [s.at if isinstance(s, x.Point) else s.index if isinstance(s, x.Elem) else s.start for s in ref.subs]


def _uses(body: tuple[x.Stmt, ...], used: set[str]) -> None:
    for node in flatten(body):
        for e in expressions(node):
            used.update(n.name for n in walk(e) if isinstance(n, Sym))


def _tiles(body: tuple[x.Stmt, ...], found: set[str]) -> None:
    for node in flatten(body):
        for e in expressions(node):
            found.update(n.name for n in walk(e) if isinstance(n, Reg))


def _drop(body: tuple[x.Stmt, ...], used: set[str]) -> tuple[x.Stmt, ...]:
    out: list[x.Stmt] = []
    for node in body:
        match node:
            case x.Let() if node.name not in used and node.reason in REMOVABLE:
                continue
            case x.Op(op="load_scalar") if node.sym("dst").name not in used:
                continue
            case x.For():
                inner = _drop(node.body, used)
                out.append(node if inner == node.body else node.model_copy(update={"body": inner}))
            case x.If():
                then, other = _drop(node.then, used), _drop(node.orelse, used)
                if not then and not other:
                    continue
                same = then == node.then and other == node.orelse
                out.append(node if same else node.model_copy(update={"then": then, "orelse": other}))
            case _:
                out.append(node)
    return tuple(out)
