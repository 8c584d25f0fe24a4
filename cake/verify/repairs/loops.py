"""Loops, conditions and walks: trips that roles count differently, conditions on one side only, turns, skipped stages."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cake.ir import surface as s
from cake.ir.printer import format_expr
from cake.verify.repairs.finding import Finding, cures
from cake.verify.repairs.text import Repair, Statement, Text

STUCK = ("P101", "P103", "P104", "P106", "P107", "P109", "P111", "P112", "D208", "D213", "O505")


@cures(*STUCK, "D201", "D209", "O503", "O501", "O508", "P110", "T010", "U904", "N803")
def bounds(text: Text, found: Finding) -> Iterator[Repair]:
    """The bound of one loop for that of another, or without what was added to it."""
    loops = [t for t in found.near(text.statements) if isinstance(t.node, s.For) and _range(t.node)]
    for loop in loops:
        bound = _range(loop.node)
        assert bound is not None
        if isinstance(bound, s.Binary) and bound.op in ("+", "-") and isinstance(bound.right, s.Number):
            yield text.put(bound, _source(text, bound.left), "count the trips as the other role does")
    for loop in loops:
        bound = _range(loop.node)
        for other in loops:
            theirs = _range(other.node)
            if bound is not None and theirs is not None and other.role != loop.role and bound != theirs:
                yield text.put(bound, _source(text, theirs), "count the trips as the other role does")


def _range(node: s.Stmt) -> s.Expr | None:
    if isinstance(node, s.For) and isinstance(node.iter, s.Call) and format_expr(node.iter.func) == "range":
        return node.iter.args[-1] if len(node.iter.args) < 3 else node.iter.args[1]
    return None


def _source(text: Text, node: s.Node) -> str:
    span = node.span
    if span.line != span.end_line:
        return format_expr(node)
    return text.lines[span.line - 1][span.column - 1 : span.end_column - 1]


@cures(*STUCK, "D201", "D209", "T001", "T010", "C604", "W713")
def conditions(text: Text, found: Finding) -> Iterator[Repair]:
    """A condition round a copy, a fill or a wait, taken away."""
    for branch in found.near(t for t in text.statements if isinstance(t.node, s.If)):
        assert isinstance(branch.node, s.If)
        body = branch.node.branches[0].body
        moves = any(_moves(node) for stmt in body for node in s.walk(stmt))
        if len(branch.node.branches) == 1 and not branch.node.orelse and moves:
            yield text.unwrap(branch, body, "do it under no condition, as the other side does")


def _moves(node: s.Node) -> bool:
    if isinstance(node, s.With):
        return True
    name = format_expr(node.func) if isinstance(node, s.Call) else ""
    return name.startswith(("tma.", "cp_async", "signal", "wait_until")) or name.endswith(
        (".wait", ".release", ".fill", ".skip")
    )


@cures(*STUCK, "P102", "P114", "P117", "T024", "D202", "M401", "O502", "O501", "U902")
def walks(text: Text, found: Finding) -> Iterator[Repair]:
    """Instances that share a walk: their part of the tiles, the stages that they skip, the turn in which they wait."""
    kernel = found.kernel(text)
    for pipeline in found.pipelines(text):
        if pipeline.one:
            yield from _skips(text, found, pipeline)
    for turn in kernel.turns if kernel is not None else ():
        taken = any(isinstance(t.node, s.With) and format_expr(t.node.expr) == turn.name for t in text.statements)
        if not taken:
            yield from _taken(text, turn)
    for loop in found.near(t for t in text.statements if isinstance(t.node, s.For)):
        assert isinstance(loop.node, s.For)
        role = next((r for r in loop.kernel.roles if r.name == loop.role), None)
        do = next((d for d in loop.kernel.dos if d.role == loop.role), None)
        if (
            format_expr(loop.node.iter) == "tiles"
            and role is not None
            and role.instances is not None
            and do is not None
            and do.var
        ):
            part = f"tiles[{do.var}::{format_expr(role.instances)}]"
            yield text.put(loop.node.iter, part, "let each instance walk its own tiles")


def _skips(text: Text, found: Finding, pipeline: s.Pipeline) -> Iterator[Repair]:
    """``skip`` of another number, or at all. The number of a tile is the trips of the producer's loops."""
    skips = found.near(t for t in text.statements if t.is_method(pipeline.name, "skip"))
    for skip in skips:
        assert skip.call is not None
        for count in skip.call.args[:1]:
            if isinstance(count, s.Binary) and count.op in ("+", "-") and isinstance(count.right, s.Number):
                yield text.put(count, _source(text, count.left), "skip the stages of the other instances' tiles")
    per = _stages_of_a_tile(text, pipeline)
    for walk in (t for t in text.statements if isinstance(t.node, s.For) and isinstance(t.node.iter, s.Index)):
        assert isinstance(walk.node, s.For) and isinstance(walk.node.iter, s.Index)
        sub = walk.node.iter.subs[0]
        if walk.role not in pipeline.consumers or not isinstance(sub, s.Slice) or sub.lo is None or sub.step is None:
            continue
        first, step = format_expr(sub.lo), format_expr(sub.step)
        rest = str(int(step) - 1) if step.isdigit() else f"({step} - 1)"
        if not any(t.block is walk.block for t in skips):
            begin = first if per == "1" else f"{first} * {per}"
            yield text.before(
                walk, f"{pipeline.name}.skip({begin})", "begin with the stages of the instance's own first tile"
            )
        inside = [t for t in skips if walk in t.outward()]
        if not inside:
            others = rest if per == "1" else per if rest == "1" else f"{rest} * {per}"
            words, message = f"{pipeline.name}.skip({others})", "skip the stages of the other instances' tiles"
            for at in _behind_stages(text, walk, pipeline):
                yield text.after(at, words, message)


def _stages_of_a_tile(text: Text, pipeline: s.Pipeline) -> str:
    for fill in text.statements:
        if isinstance(fill.node, s.With) and fill.is_method(pipeline.name, "fill"):
            loops = [t.node for t in fill.outward() if isinstance(t.node, s.For)]
            bounds = [b for b in map(_range, loops) if b is not None]
            return " * ".join(_source(text, b) for b in bounds) or "1"
    return "1"


def _behind_stages(text: Text, walk: Statement, pipeline: s.Pipeline) -> Iterator[Statement]:
    """Places in the body of a walk after which no stage is held, the last one first."""
    assert isinstance(walk.node, s.For)
    body = [t for t in text.statements if t.around is walk and t.block is walk.node.body]
    uses = [t for t in body if any(isinstance(n, s.Name) and n.name == pipeline.name for n in s.walk(t.node))]
    if uses:
        yield uses[-1]
    if body:
        yield body[-1]


def _taken(text: Text, turn: s.Turn) -> Iterator[Repair]:
    """The turn round a loop of waits and products, or round one wait (and the products that follow it)."""
    message = f"take the turn `{turn.name}`"
    mine = [t for t in text.statements if t.role == turn.role]
    for t in mine:
        if re.search(r"\.wait$", t.function) and t.function != "wgmma.wait":
            for around in t.outward():
                if isinstance(around.node, s.For) and not isinstance(around.node.iter, s.Index) and _range(around.node):
                    yield text.wrap(around, around, f"with {turn.name}:", message)
            end = t.index
            while end + 1 < len(t.block) and text.of(t, end + 1).function == "wgmma":
                end += 1
            yield text.wrap(t, text.of(t, end), f"with {turn.name}:", message)
            if end > t.index:
                yield text.wrap(t, t, f"with {turn.name}:", message)
