"""Which names turn together: the buffers, barriers and cursors of one ring, and the position that counts as its slot 0.

A state of a ring is the same wherever its cursor is, if slots are reached through cursors alone (docs/verification.md 1.3,
Theorem 3, rotation). Where a slot is named by a constant, or slots differ (an alias of one, a stride that does not keep the
swizzle), positions are only taken modulo two rounds, which changes neither a slot nor a parity.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from cake.ir import expanded as x
from cake.machine.executor import Executor
from cake.machine.program import statements


@dataclass
class Group:
    """Names that turn together, by ``slots``. ``cursors``: (role, cursor). ``each``: one ring an instance."""

    slots: int = 1
    buffers: set[str] = field(default_factory=set)
    barriers: set[str] = field(default_factory=set)
    cursors: set[tuple[str, str]] = field(default_factory=set)
    fixed: bool = False
    each: bool = False


class Rings:
    """The groups of a kernel."""

    def __init__(self, kernel: x.Kernel) -> None:
        self.kernel = kernel
        self.parent: dict[tuple[str, ...], tuple[str, ...]] = {}
        self.constant: set[tuple[str, ...]] = set()
        for role in kernel.roles:
            for node in statements(role.body):
                self._node(role, node)
        self.dead = {(role.name, name) for role in kernel.roles for name in handles(role.body)}
        self.groups = self._collect()
        self.of_buffer = {name: g for g in self.groups for name in g.buffers}
        self.of_barrier = {name: g for g in self.groups for name in g.barriers}
        self.of_cursor = {key: g for g in self.groups for key in g.cursors}

    def _root(self, key: tuple[str, ...]) -> tuple[str, ...]:
        while (up := self.parent.setdefault(key, key)) != key:
            key = up
        return key

    def _join(self, a: tuple[str, ...], b: tuple[str, ...]) -> None:
        self.parent[self._root(a)] = self._root(b)

    def _slot(self, role: x.Role, key: tuple[str, ...], slot: x.Slot, slots: int) -> None:
        if slot.cursor is not None:
            self._join(key, ("cursor", role.name, slot.cursor))
        elif slots > 1:
            self._root(key)
            self.constant.add(key)

    def _node(self, role: x.Role, node: x.Stmt) -> None:
        if isinstance(node, x.Wait | x.Arrive):
            self._slot(role, ("barrier", node.barrier), node.slot, self.kernel.barrier(node.barrier).slots)
        elif isinstance(node, x.Cursor) and node.source is not None:
            self._join(("cursor", role.name, node.cursor), ("cursor", role.name, node.source))
        elif isinstance(node, x.Op):
            if isinstance(node.completion, x.ByBarrier):
                name = node.completion.barrier
                self._slot(role, ("barrier", name), node.completion.slot, self.kernel.barrier(name).slots)
            for value in node.operands.values():
                if isinstance(value, x.Ref) and value.slot is not None:
                    self._slot(role, ("buffer", value.base), value.slot, self.kernel.buffer(value.base).slots)

    def _collect(self) -> list[Group]:
        for ring in self.kernel.rings:
            names = [("buffer", f) for f in ring.fields]
            names += [("barrier", b) for b in (ring.full, ring.empty) if b is not None]
            for name in names[1:]:
                self._join(names[0], name)
        found: dict[tuple[str, ...], Group] = {}
        for key in list(self.parent):
            group = found.setdefault(self._root(key), Group())
            group.fixed = group.fixed or key in self.constant
            if key[0] == "buffer":
                group.buffers.add(key[1])
            elif key[0] == "barrier":
                group.barriers.add(key[1])
            else:
                group.cursors.add((key[1], key[2]))
        for group in found.values():
            self._measure(group)
        return list(found.values())

    def _measure(self, group: Group) -> None:
        buffers = [self.kernel.buffer(b) for b in group.buffers]
        counts = {b.slots for b in buffers} | {self.kernel.barrier(b).slots for b in group.barriers}
        counts |= {r.cursors[c] for r in self.kernel.roles for name, c in group.cursors if name == r.name}
        group.slots = max(counts, default=1)
        group.each = bool(buffers) and not group.barriers and all(b.instances > 1 for b in buffers)
        aliased = {b.alias for b in self.kernel.buffers if b.alias}
        odd = any(
            b.alias or b.name in aliased or (b.swizzle and (b.slot_bytes % 1024 or b.instance_bytes % 1024))
            for b in buffers
        )
        group.fixed = group.fixed or odd or len(counts) > 1

    def bases(self, m: Executor, ahead: Collection[tuple[str, int, str]] = ()) -> dict[tuple[int, int], int]:
        """The position of slot 0 for each group (and instance), as of now; cursors that are ``ahead`` do not count, and handles
        that hold nothing."""
        lows: dict[tuple[int, int], int] = {}
        numbers = {id(g): i for i, g in enumerate(self.groups)}
        seen: set[int] = set()
        for runner in m.runners:
            inst = runner.instance
            if inst is None or inst.role is None or id(inst) in seen:
                continue
            seen.add(id(inst))
            for name, value in inst.cursors.items():
                group = self.of_cursor.get((inst.role.name, name))
                here = inst.role.name, inst.index, name
                if group is not None and here not in ahead and (inst.role.name, name) not in self.dead:
                    key = (numbers[id(group)], inst.index if group.each else 0)
                    lows[key] = min(value, lows.get(key, value))
        for number, group in enumerate(self.groups):
            if group.fixed:
                round_trip = 2 * _common(group, self.kernel)
                for key in lows:
                    if key[0] == number:
                        lows[key] -= lows[key] % round_trip
        return lows

    def base(self, bases: dict[tuple[int, int], int], group: Group | None, instance: int) -> int:
        """The base of a group."""
        if group is None:
            return 0
        return bases.get((self.groups.index(group), instance if group.each else 0), 0)


def _common(group: Group, kernel: x.Kernel) -> int:
    from math import lcm

    counts = {kernel.buffer(b).slots for b in group.buffers} | {kernel.barrier(b).slots for b in group.barriers}
    return lcm(*counts) if counts else group.slots


def handles(body: tuple[x.Stmt, ...]) -> set[str]:
    """Handles that hold nothing at the heads of loops: every use comes after the copy that sets it in the same iteration of
    the same loop, with no loop and no named barrier (where cuts may be) in between."""
    copied: set[str] = set()
    used: set[str] = set()
    _flow(body, set(), copied, used)
    return copied - used


def _flow(body: tuple[x.Stmt, ...], known: set[str], copied: set[str], used: set[str]) -> None:
    for node in body:
        if isinstance(node, x.For):
            _flow(node.body, set(), copied, used)
            known.clear()
        elif isinstance(node, x.If):
            for side in (node.then, node.orelse):
                inner = set(known)
                _flow(side, inner, copied, used)
                if any(isinstance(n, x.For) for n in statements(side)):
                    known.clear()
        elif isinstance(node, x.Named):
            known.clear()
        elif isinstance(node, x.Cursor) and node.form == "copy":
            used |= {n for n in (node.source,) if n is not None} - known
            known.add(node.cursor)
            copied.add(node.cursor)
        elif isinstance(node, x.Cursor):
            used |= {node.cursor} - known
        else:
            used |= {n for n in _cursors(node) if n not in known}


def _cursors(node: Any) -> set[str]:
    """Cursors that a statement names a slot by."""
    slots = [getattr(node, "slot", None), getattr(getattr(node, "completion", None), "slot", None)]
    if isinstance(node, x.Op):
        slots += [v.slot for v in node.operands.values() if isinstance(v, x.Ref)]
    return {s.cursor for s in slots if s is not None and s.cursor is not None}
