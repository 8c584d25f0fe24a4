"""Statements: control flow, scalars, cursors, and the grouping of statements under elected lanes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from cake.codegen.chaos import delay, sides
from cake.codegen.context import RoleContext
from cake.codegen.elementwise import SUM
from cake.codegen.names import VALUE
from cake.codegen.ops import OPS
from cake.codegen.scoping import computed, pins_here, written
from cake.codegen.sync import SYNC
from cake.ir import expanded as x
from cake.ir.expr import Const, Expr, Sym


def emit_body(role: RoleContext, body: tuple[x.Stmt, ...]) -> None:
    """A statement list. Neighbours that the same elected lane executes share one ``if``."""
    for executor, nodes in _runs(role, body):
        if executor is None:
            for node in nodes:
                _statement(role, node)
            continue
        _comment(role, nodes[0])
        with _elected(role, executor):
            for node in nodes:
                _statement(role, node)


def _runs(role: RoleContext, body: Iterable[x.Stmt]) -> list[tuple[str | None, list[x.Stmt]]]:
    runs: list[tuple[str | None, list[x.Stmt]]] = []
    for node in body:
        executor = None if node.executor == "lanes" or role.guard in ("one", node.executor) else node.executor
        if runs and runs[-1][0] == executor:
            runs[-1][1].append(node)
        else:
            runs.append((executor, [node]))
    return runs


@contextmanager
def _elected(role: RoleContext, executor: str) -> Iterator[None]:
    """Select one lane of the instance, or of each warp."""
    outer, outer_span = role.guard, role.writer.span
    role.guard = executor
    condition = role.need("one") if executor == "one" else role.need("elected")
    with role.writer.block(f"if ({condition})"):
        yield
    role.guard, role.writer.span = outer, outer_span


def _comment(role: RoleContext, node: x.Stmt) -> None:
    """Why a derived statement is there, once for its neighbours of the same reason."""
    quiet = ("advance", "handle", "exit", "tiles")
    if node.reason != role.reason and node.reason not in quiet:
        role.reason = node.reason
        if node.reason != "written":
            role.line(f"// {node.reason}")


def _statement(role: RoleContext, node: x.Stmt) -> None:
    role.writer.span = node.span
    _comment(role, node)
    if pins_here(node):
        _pin(role, role.live.needed(node))
    before, after = sides(node) if role.unit.chaos else (False, False)
    if before:
        delay(role)
    if isinstance(node, x.For):
        _for(role, node)
    elif isinstance(node, x.If):
        _if(role, node)
    elif isinstance(node, x.Let):
        role.define(node.name, node.value)
        role.assign_scalar(node.name, node.dtype, role.expr(node.value))
    elif isinstance(node, x.Cursor):
        _cursor(role, node)
    elif isinstance(node, x.Op):
        with role.operation():
            OPS[node.op](role, node)
        role.computed |= written(node)
    else:
        SYNC[node.kind](role, node)
    if after:
        delay(role)


def _pin(role: RoleContext, live: frozenset[str]) -> None:
    """Keep what was computed since the last issue or wait before this one: otherwise ptxas sinks it past the wgmma
    (C7511) or serialises the group (C7514, C7517)."""
    for name in role.tiles:
        if name in role.computed and name in live and role.tiles[name].word != "bool":
            role.line(f"pin({role.tiles[name].name});")
    role.computed = set()


def _bound(role: RoleContext, e: Expr, hint: str) -> str:
    """A loop bound, evaluated once."""
    if isinstance(e, Const) or (isinstance(e, Sym) and e.name.startswith("%")):
        return role.expr(e, SUM)
    name = role.names.fresh(hint)
    role.line(f"const int {name} = {role.expr(e)};")
    return name


def _for(role: RoleContext, node: x.For) -> None:
    """A run-time loop; never unrolled, so that synchronising instructions stay as written."""
    var = role.names.get("sym", node.var)
    hi = _bound(role, node.hi, f"{var}_end")
    lo = role.expr(node.lo)
    step = role.expr(node.step)
    role.define_loop(node)
    advance = f"++{var}" if step == "1" else f"{var} += {step}"
    role.computed |= computed(node.body, role.computed)
    role.loops.append(var)
    with role.writer.block(f"ROLLED for (int {var} = {lo}; {var} < {hi}; {advance})"):
        emit_body(role, node.body)
        role.writer.span = None if node.span is None else role.writer.span
    role.loops.pop()


def _if(role: RoleContext, node: x.If) -> None:
    before = set(role.computed)
    with role.writer.block(f"if ({role.expr(node.cond)})"):
        emit_body(role, node.then)
    after = role.computed
    if node.orelse:
        role.computed = before
        with role.writer.block("else"):
            emit_body(role, node.orelse)
        before = role.computed
    role.computed = after | before


def _cursor(role: RoleContext, node: x.Cursor) -> None:
    name, stages = role.names.get("cursor", node.cursor), role.cursors[node.cursor]
    phased = node.cursor in role.phased
    if stages == 1 and not phased:
        return
    if node.form == "advance" and node.count is not None:
        role.line(f"advance<{stages}>({name}, {role.expr(node.count)});")
    elif node.form == "advance":
        role.line(f"advance<{stages}>({name});" if node.by == 1 else f"advance<{stages}>({name}, {node.by});")
    elif node.form == "set":
        slot, phase = node.by % stages, node.by // stages & 1
        role.line(f"{name} = {{{slot}, {phase}}};" if phased else f"{name} = {slot};")
    else:
        assert node.source is not None
        back = x.Slot(cursor=node.source, back=node.back)
        slot_text = role.slot(back, stages).text
        if phased:
            role.line(f"{name} = {{{slot_text}, {role.parity(back, stages, 0)}}};")
        else:
            role.line(f"{name} = {slot_text};")


def declare(role: RoleContext) -> None:
    """Declarations at the top of a role's function: scalars that outlive their block, tiles, cursors."""
    for name, dtype in role.scalars.top.items():
        role.line(f"{VALUE[dtype]} {role.names.get('sym', name)};")
    for storage in role.tiles.values():
        role.line(f"{storage.word} {storage.name}[{storage.words}];  // {storage.type}")
    for name, stages in role.cursors.items():
        if name in role.phased:
            role.line(f"Cursor {role.names.get('cursor', name)};")
        elif stages > 1:
            role.line(f"uint32_t {role.names.get('cursor', name)} = 0;")
