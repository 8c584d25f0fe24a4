"""Registers of operations in flight and registers that nothing has set: properties of one thread's program, whatever the schedule.

wgmma reads and writes registers until its group is waited for (PTX ISA 9.7.15.6.2: accessing them before is undefined).
``wgmma.fence`` is due before the first wgmma, and between an access to registers and a wgmma that takes them (9.7.15.6.1). These
instructions are .sync.aligned: one lane must not execute them alone. D of a wgmma is read unless scale-d is zero (9.7.15.5).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from cake.ir import expanded as x
from cake.ir.expr import Expr, Reg, walk
from cake.verify.search.steps import Agent, Step

WRITTEN = {"dst", "index", "d"}
UPDATED = {"best", "column"}
"""Operands of running extrema: read and written."""


def _registers(node: x.Op) -> Iterator[tuple[Reg, bool]]:
    """Register tiles that an operation names, and whether it writes them."""
    for name, value in node.operands.items():
        parts: list[Expr] = (
            [s.index for s in value.subs if isinstance(s, x.Elem)] if isinstance(value, x.Ref) else [value]
        )
        for part in parts:
            for e in walk(part):
                if isinstance(e, Reg):
                    yield e, name in WRITTEN


def unset(agent: Agent) -> str:
    """The first read of registers that nothing in the agent's program has written before; empty if there is none."""
    role = agent.instance.role
    if role is None:
        return ""
    written = {name: np.zeros(tile.shape, dtype=bool) for name, tile in role.tiles.items()}
    for step in agent.program:
        node = step.node
        if not isinstance(node, x.Op):
            continue
        for name, value in node.operands.items():
            if name in ("dst", "index") or (name == "d" and not step.adds):
                continue
            parts = [s.index for s in value.subs if isinstance(s, x.Elem)] if isinstance(value, x.Ref) else [value]
            for reg in (e for part in parts for e in walk(part) if isinstance(e, Reg)):
                if not _view(written[reg.name], reg).all():
                    return f"{step.text()} reads {reg.name}, which nothing has set"
        for name in node.operands.keys() & (WRITTEN | UPDATED):
            target = node.operands[name]
            if isinstance(target, Reg):
                _view(written[target.name], target)[...] = True
    return ""


def _view(tile: np.ndarray, reg: Reg) -> np.ndarray:
    """The part of a tile that is named."""
    where: tuple[Any, ...] = (*reg.lead, ..., slice(*(reg.rows or (None,))), slice(*(reg.cols or (None,))))
    return tile[where]


def _overlap(a: Reg, b: Reg) -> bool:
    if a.name != b.name or (a.lead and b.lead and a.lead != b.lead):
        return False
    for p, q in ((a.rows, b.rows), (a.cols, b.cols)):
        if p is not None and q is not None and (p[1] <= q[0] or q[1] <= p[0]):
            return False
    return True


def misuse(agent: Agent) -> str:
    """The first access to registers in flight, wgmma on unfenced ones, aligned instruction of one lane, or read of what nothing has
    set; empty if there is none."""
    open_ops: list[list[tuple[Reg, bool]]] = []
    groups: list[list[list[tuple[Reg, bool]]]] = []
    dirty: list[Reg] = []
    fenced = False
    for step in agent.program:
        node = step.node
        if _aligned(node) and (step.executor != "lanes" or step.alone):
            return f"{step.text()} is executed by one lane of its warp"
        if isinstance(node, x.Op):
            mine = list(_registers(node))
            text = _clash(step, mine, [r for g in (*groups, open_ops) for op in g for r in op], node.op == "wgmma")
            if text:
                return text
            if node.op == "wgmma":
                for reg, _ in mine:
                    if not fenced or any(_overlap(reg, d) for d in dirty):
                        return f"{step.text()}: no wgmma fence since {reg.name} was accessed"
                open_ops.append(mine)
            else:
                dirty += [reg for reg, _ in mine if reg not in dirty]
        elif isinstance(node, x.Fence) and node.what == "wgmma":
            dirty, fenced = [], True
        elif isinstance(node, x.Commit) and node.queue == "wgmma":
            groups.append(open_ops)
            open_ops = []
        elif isinstance(node, x.GroupWait) and node.queue == "wgmma":
            for group in groups[: max(0, len(groups) - node.keep)]:
                group.clear()
    return unset(agent)


def _aligned(node: x.Node) -> bool:
    """All threads of a warp must execute it together: groups and fences of wgmma (PTX ISA 9.7.15.6), and barriers, which are
    emitted as ``.aligned`` (9.7.13.1, 9.7.13.4)."""
    if isinstance(node, x.Commit | x.GroupWait):
        return node.queue == "wgmma"
    return isinstance(node, x.Named | x.Cluster) or (isinstance(node, x.Fence) and node.what == "wgmma")


def _clash(step: Step, mine: list[tuple[Reg, bool]], flying: list[tuple[Reg, bool]], wgmma: bool) -> str:
    for reg, writes in mine:
        for other, theirs in flying:
            if not (writes or theirs) or not _overlap(reg, other):
                continue
            if wgmma and writes and theirs:
                continue  # accumulators in sequence: wgmmas of one shape execute in order
            return f"{step.text()} touches {reg.name}, which a wgmma in flight uses"
    return ""
