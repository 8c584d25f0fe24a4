"""What of a program steers its events: assignments that reach an event's operands or a branch that decides between
events.

Every other branch is replaced by a jump to where its ways meet again (its immediate postdominator), which also passes
over loops without events; those are taken to end.
"""

from __future__ import annotations

from collections.abc import Iterable

from cake.ptx.flow import Event, Node, Program, Set
from cake.ptx.values import unknown


def slice_program(program: Program) -> None:
    """Reduce ``program`` in place."""
    nodes = program.nodes
    meets = postdominators(nodes)
    depends = _control_dependences(nodes, meets)
    makers: dict[str, list[tuple[int, Set]]] = {}
    for n, node in enumerate(nodes):
        for s in node.steps:
            if isinstance(s, Set):
                makers.setdefault(s.dst, []).append((n, s))
    needed: set[str] = set()
    branches: set[int] = set()
    controlled: set[int] = set()
    registers: list[str] = []
    blocks: list[int] = []
    for n, node in enumerate(nodes):
        events = [s for s in node.steps if isinstance(s, Event)]
        if events:
            blocks.append(n)
        registers += [a for s in events for a in s.args + s.extra if isinstance(a, str)]
        if node.predicate is not None and meets[n] is None:
            branches.add(n)
            blocks.append(n)
            registers += [node.predicate] if isinstance(node.predicate, str) else []
    while blocks or registers:
        if blocks:
            n = blocks.pop()
            if n in controlled:
                continue
            controlled.add(n)
            for b in depends.get(n, ()):
                if b not in branches:
                    branches.add(b)
                    blocks.append(b)
                    predicate = nodes[b].predicate
                    registers += [predicate] if isinstance(predicate, str) else []
            continue
        name = registers.pop()
        if name in needed:
            continue
        needed.add(name)
        made = makers.get(name, [])
        for n, s in made:
            registers += [a for a in s.args if isinstance(a, str)]
            if len(made) > 1:
                blocks.append(n)
    for n, node in enumerate(nodes):
        node.steps = [s for s in node.steps if isinstance(s, Event) or s.dst in needed]
        if node.predicate is not None and n not in branches:
            node.then, node.other, node.predicate = meets[n], None, None


def compact(program: Program) -> None:
    """Skip empty blocks and join blocks that always run one after the other."""
    nodes = program.nodes

    def onward(n: int | None) -> int | None:
        seen: set[int] = set()
        while n is not None and n not in seen and not nodes[n].steps and nodes[n].predicate is None:
            if nodes[n].then is None:
                break
            seen.add(n)
            n = nodes[n].then
        return n

    for node in nodes:
        node.then = onward(node.then)
        node.other = onward(node.other)
        if node.predicate is not None and node.then == node.other:
            node.predicate, node.other = None, None
    entries = [0] * len(nodes)
    reached, work = {0}, [0]
    while work:
        for m in nodes[work.pop()].successors():
            entries[m] += 1
            if m not in reached:
                reached.add(m)
                work.append(m)
    gone: set[int] = set()
    for n in sorted(reached):
        node = nodes[n]
        while n not in gone and node.predicate is None and node.then is not None:
            after = node.then
            if after in (0, n) or entries[after] != 1:
                break
            following = nodes[after]
            node.steps += following.steps
            node.predicate, node.then, node.other = following.predicate, following.then, following.other
            gone.add(after)


def drop_unknown(program: Program, known: Iterable[str]) -> None:
    """Drop assignments whose value is never known, given the registers that have a value at the start."""
    makers: dict[str, list[Set]] = {}
    results: set[str] = set(known)
    for node in program.nodes:
        for s in node.steps:
            if isinstance(s, Set):
                makers.setdefault(s.dst, []).append(s)
            elif s.result is not None:
                results.add(s.result)
        if isinstance(node.predicate, str):
            results.add(node.predicate)  # a branch makes it known
    never = {a for made in makers.values() for s in made for a in s.args if isinstance(a, str)} | set(makers)
    never -= results
    changed = True
    while changed:
        changed = False
        for name, made in makers.items():
            if name in never and any(_may_know(s, never) for s in made):
                never.discard(name)
                changed = True
    for node in program.nodes:
        node.steps = [s for s in node.steps if isinstance(s, Event) or s.dst not in never]


def _may_know(s: Set, never: set[str]) -> bool:
    """Whether an assignment may have a known value although some of its operands have none."""
    if s.function is unknown:
        return False
    registers = [a for a in s.args if isinstance(a, str)]
    if any(a not in never for a in registers):
        return True
    return s.function(*[None if isinstance(a, str) else a for a in s.args]) is not None


def postdominators(nodes: list[Node]) -> list[int | None]:
    """The immediate postdominator of each block; None where there is none, or where the block cannot reach an end."""
    end = len(nodes)
    before: list[list[int]] = [[] for _ in range(end + 1)]
    after = [node.successors() or (end,) for node in nodes]
    for n, successors in enumerate(after):
        for m in successors:
            before[m].append(n)
    order: list[int] = []
    seen = {end}
    stack = [(end, iter(before[end]))]
    while stack:
        n, rest = stack[-1]
        for m in rest:
            if m not in seen:
                seen.add(m)
                stack.append((m, iter(before[m])))
                break
        else:
            order.append(n)
            stack.pop()
    rank = {n: i for i, n in enumerate(order)}
    meet: dict[int, int] = {end: end}
    changed = True
    while changed:
        changed = False
        for n in reversed(order[:-1]):
            best: int | None = None
            for m in after[n]:
                if m not in meet:
                    continue
                if best is None:
                    best = m
                    continue
                a, b = best, m
                while a != b:
                    while rank[a] < rank[b]:
                        a = meet[a]
                    while rank[b] < rank[a]:
                        b = meet[b]
                best = a
            if best is not None and meet.get(n) != best:
                meet[n] = best
                changed = True
    return [None if meet.get(n, end) == end else meet[n] for n in range(end)]


def _control_dependences(nodes: list[Node], meets: list[int | None]) -> dict[int, set[int]]:
    """For each block the branches that decide whether it runs (Ferrante, Ottenstein, Warren)."""
    out: dict[int, set[int]] = {}
    for n, node in enumerate(nodes):
        if node.predicate is None:
            continue
        for m in node.successors():
            at: int | None = m
            while at is not None and at != meets[n]:
                depends = out.setdefault(at, set())
                if n in depends:
                    break
                depends.add(n)
                at = meets[at]
    return out
