"""Cursors that skip as many stages as a loop has iterations: how their positions in a run follow from the count.

Where tiles are divided among instances, an instance passes over the stages of the others' tiles (`skip`), which nobody
has filled yet. Compare the run of a tile with n iterations and the one with n + 1, in which one iteration of each loop
is done twice (``closure``). A cursor is then *shifted*: by the iterations that it made itself, or by those that it
skipped. So is the ring: by the iterations that were done twice so far. Both runs go on alike exactly as long as every
cursor that is used is shifted as much as its ring. A cursor that is ahead is shifted more, until the others have come
there; what it is until then does not matter.
"""

from __future__ import annotations

from cake.ir import expanded as x
from cake.ir.evaluate import compile_expr
from cake.machine.instance import Instance
from cake.machine.program import statements
from cake.machine.tape import Action
from cake.verify.rings import Rings

Key = tuple[str, int, str]
"""A cursor: role, instance, name."""


class Shifts:
    """What the cursors of a run and its rings are shifted by when the count called ``name`` is greater by ``granule``.
    ``astray``: a cursor was used that its ring was not shifted with."""

    def __init__(self, rings: Rings, name: str, granule: int) -> None:
        self.rings, self.name, self.granule = rings, name, granule
        self.cursors: dict[Key, int] = {}
        self.groups: dict[int, int] = {}
        self.astray = False

    def group(self, role: str, cursor: str, instance: int) -> int | None:
        """The number of a cursor's ring; of rings that every instance has for itself each counts."""
        found = self.rings.of_cursor.get((role, cursor))
        if found is None:
            return None
        return self.rings.groups.index(found) * 64 + (instance if found.each else 0)

    def ahead(self, role: str, instance: int, cursor: str) -> int:
        """By how much more than its ring a cursor is shifted."""
        group = self.group(role, cursor, instance)
        return 0 if group is None else self.cursors.get((role, instance, cursor), 0) - self.groups.get(group, 0)

    def moved(self, changes: dict[Key, int]) -> None:
        """An iteration that moves cursors so far is done twice. A ring moves with those that are not ahead."""
        rings: dict[int, int] = {}
        for (role, instance, cursor), by in changes.items():
            group = self.group(role, cursor, instance)
            if group is not None and by and self.ahead(role, instance, cursor) == 0:
                rings[group] = by
        for key, by in changes.items():
            self.cursors[key] = self.cursors.get(key, 0) + by
        for group, by in rings.items():
            self.groups[group] = self.groups.get(group, 0) + by

    def skipped(self, inst: Instance, node: x.Cursor, more: int) -> None:
        """A cursor has moved by ``more`` than it would with the count as it is, or takes another one's place."""
        key = inst.role_name, inst.index, node.cursor
        if node.form == "copy" and node.source is not None:
            self.cursors[key] = self.cursors.get((inst.role_name, inst.index, node.source), 0)
        elif more:
            self.cursors[key] = self.cursors.get(key, 0) + more


def watched(action: Action) -> Action:
    """The action of a cursor, noted down."""
    node = action.node
    if not isinstance(node, x.Cursor) or (node.form == "advance" and node.count is None):
        return action
    count = None if node.count is None else compile_expr(node.count)

    def act(inst: Instance) -> None:
        shifts: Shifts = inst.machine.shifts  # type: ignore[attr-defined]
        more = 0
        if count is not None and shifts.name in inst.env:
            greater = {**inst.env, shifts.name: inst.env[shifts.name] + shifts.granule}
            more = int(count(greater)) - int(count(inst.env))
        action.act(inst)
        shifts.skipped(inst, node, more)

    return Action(act, node)


class Watched(Instance):
    """An instance whose uses of cursors are noted down."""

    __slots__ = ()

    def position(self, slot: x.Slot) -> int:
        """As always."""
        shifts: Shifts = self.machine.shifts  # type: ignore[attr-defined]
        if slot.cursor is not None and shifts.ahead(self.role_name, self.index, slot.cursor):
            shifts.astray = True
        return super().position(slot)


def skips(kernel: x.Kernel) -> bool:
    """Some cursor skips a number of stages that is computed."""
    return any(
        isinstance(n, x.Cursor) and n.count is not None and n.count.kind != "const"
        for role in kernel.roles
        for n in statements(role.body)
    )
