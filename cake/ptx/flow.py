"""Programs reduced to what steers synchronisation: assignments of known functions, events, branches.

Both sides of the comparison are brought to this form: the PTX by ``lower``, the expanded kernel by ``check``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from cake.ptx.values import Function, Value

Operand = str | int | bool
"""A register by name, or a literal."""


@dataclass(slots=True)
class Set:
    """``dst = function(*args)``. ``step`` marks sums and moves: a register that goes around a loop through these alone
    counts without bound. ``compares``: a comparison."""

    dst: str
    function: Function
    args: tuple[Operand, ...]
    step: bool = False
    compares: bool = False


@dataclass(slots=True)
class Event:
    """A letter of the automaton: ``head`` and the values of ``args``. ``result``: the predicate that a try_wait sets.
    ``star``: any number of these in a row, also none. ``where``: how messages name the place. ``extra``: values that
    are compared in sampled launches only (coordinates of copies)."""

    head: tuple[Any, ...]
    args: tuple[Operand, ...] = ()
    result: str | None = None
    star: bool = False
    where: Any = None
    extra: tuple[Operand, ...] = ()


@dataclass(slots=True)
class Node:
    """A block: ``steps``, then a branch on ``predicate`` to ``then`` or ``other`` (None: to ``then``; ``then`` None:
    the thread has ended)."""

    steps: list[Set | Event] = field(default_factory=list)
    predicate: Operand | None = None
    then: int | None = None
    other: int | None = None

    def successors(self) -> tuple[int, ...]:
        """Blocks that may follow."""
        both = (self.then, self.other) if self.predicate is not None else (self.then,)
        return tuple(n for n in both if n is not None)


@dataclass(slots=True)
class Program:
    """Blocks; the first is the entry. ``inputs``: registers that have a value at the start, depending on the thread."""

    nodes: list[Node]
    inputs: dict[str, Value] = field(default_factory=dict)


def without_extras(program: Program) -> Program:
    """A copy whose events have no extra values."""
    nodes = []
    for node in program.nodes:
        steps = [replace(s, extra=()) if isinstance(s, Event) and s.extra else s for s in node.steps]
        nodes.append(Node(steps, node.predicate, node.then, node.other))
    return Program(nodes)


def live_in(program: Program) -> list[frozenset[str]]:
    """Registers that are read before they are set, for each block."""
    gen: list[set[str]] = []
    kill: list[set[str]] = []
    for node in program.nodes:
        g: set[str] = set()
        k: set[str] = set()
        for s in node.steps:
            args = s.args + s.extra if isinstance(s, Event) else s.args
            g |= {a for a in args if isinstance(a, str) and a not in k}
            dst = s.dst if isinstance(s, Set) else s.result
            if dst is not None:
                k.add(dst)
        if isinstance(node.predicate, str) and node.predicate not in k:
            g.add(node.predicate)
        gen.append(g)
        kill.append(k)
    before: list[list[int]] = [[] for _ in program.nodes]
    for n, node in enumerate(program.nodes):
        for m in node.successors():
            before[m].append(n)
    live = [set(g) for g in gen]
    work = list(range(len(program.nodes)))
    while work:
        m = work.pop()
        for n in before[m]:
            more = live[m] - kill[n] - live[n]
            if more:
                live[n] |= more
                work.append(n)
    return [frozenset(names) for names in live]


def headers(program: Program) -> dict[int, set[str]]:
    """Blocks that a backward branch enters (of a depth-first walk), each with the registers that its loops set."""
    found: dict[int, list[int]] = {}
    state: dict[int, int] = {0: 1}
    stack = [(0, iter(program.nodes[0].successors()))]
    while stack:
        n, rest = stack[-1]
        for m in rest:
            if m not in state:
                state[m] = 1
                stack.append((m, iter(program.nodes[m].successors())))
                break
            if state[m] == 1:
                found.setdefault(m, []).append(n)
        else:
            state[n] = 2
            stack.pop()
    before: list[list[int]] = [[] for _ in program.nodes]
    for n, node in enumerate(program.nodes):
        for m in node.successors():
            before[m].append(n)
    out: dict[int, set[str]] = {}
    for header, work in found.items():
        body = {header}
        while work:  # what reaches a backward branch without passing the header again
            n = work.pop()
            if n not in body:
                body.add(n)
                work += before[n]
        steps = [s for n in body for s in program.nodes[n].steps]
        out[header] = {name for s in steps if (name := s.dst if isinstance(s, Set) else s.result) is not None}
    return out


def counters(program: Program) -> dict[str, int]:
    """Registers that count without bound (around a loop through sums and moves alone), each with the largest constant
    that it is compared with."""
    edges: dict[str, set[str]] = {}
    for node in program.nodes:
        for s in node.steps:
            if isinstance(s, Set) and s.step:
                edges.setdefault(s.dst, set()).update(a for a in s.args if isinstance(a, str))
    groups = [g for g in _components(edges) if len(g) > 1 or any(n in edges.get(n, ()) for n in g)]
    member = {name: i for i, g in enumerate(groups) for name in g}
    limits = [0] * len(groups)
    constants: dict[str, int] = {}
    for node in program.nodes:
        for s in node.steps:
            if isinstance(s, Set) and not s.compares and len(s.args) == 1 and type(s.args[0]) is int:
                constants[s.dst] = s.args[0]
    for node in program.nodes:
        for s in node.steps:
            if not (isinstance(s, Set) and s.compares):
                continue
            literals = [constants.get(a, 0) if isinstance(a, str) else int(a) for a in s.args]
            for a in s.args:
                for name in [a, *edges.get(a, ())] if isinstance(a, str) else ():
                    if name in member:
                        limits[member[name]] = max(limits[member[name]], *literals)
    return {name: limits[i] for name, i in member.items()}


def _components(edges: dict[str, set[str]]) -> list[list[str]]:
    """Strongly connected components (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    on: set[str] = set()
    order: list[str] = []
    out: list[list[str]] = []
    for root in edges:
        if root in index:
            continue
        work = [(root, iter(edges.get(root, ())))]
        index[root] = low[root] = len(index)
        order.append(root)
        on.add(root)
        while work:
            n, rest = work[-1]
            for m in rest:
                if m not in index:
                    index[m] = low[m] = len(index)
                    order.append(m)
                    on.add(m)
                    work.append((m, iter(edges.get(m, ()))))
                    break
                if m in on:
                    low[n] = min(low[n], index[m])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[n])
                if low[n] == index[n]:
                    group = []
                    while True:
                        m = order.pop()
                        on.discard(m)
                        group.append(m)
                        if m == n:
                            break
                    out.append(group)
    return out
