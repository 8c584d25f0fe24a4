"""Register computation: assign, reduce, argreduce, track, topk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cake.ir import expanded as x
from cake.ir.expr import Reg
from cake.ir.layout import QUAD, WARP, TileType
from cake.ir.numerics import extremum
from cake.machine import owners
from cake.machine.elementwise import Array, widened
from cake.machine.faults import fail
from cake.machine.instance import Instance
from cake.machine.meanings.base import Meaning, Unit, set_tile
from cake.machine.registers import compile_tile
from cake.machine.tape import Step


class Assign(Meaning):
    """An elementwise expression into a register tile."""

    private = True

    def __init__(self, op: x.Op, unit: Unit) -> None:
        super().__init__(op, unit)
        self.dst = op.reg("dst")
        domain = op.type if op.type is not None else self.reg_type(self.dst)
        value = op.expr("value")
        assert value is not None
        self.value = compile_tile(value, domain, unit.warps)

    def first(self, inst: Instance, step: Step) -> None:
        set_tile(inst, self.dst, self.value(inst))


class Groups:
    """How a reduction groups the elements of its domain: the result's element (i, j) combines those of group (i, j).

    The result's shape decides. One row or one column: the whole axis. Otherwise one partial value a thread ([R, 4] in
    frag: the columns of a quad's lane; [1, T] in spread(1): those of a thread) or a warp ([1, W] perwarp; [W, C]
    along rows).
    """

    def __init__(self, domain: TileType, result: TileType, axis: int, warps: int, node: x.Op) -> None:
        rows, cols = domain.rows, domain.cols
        self.axis = axis
        length = cols if axis == 1 else rows
        groups = result.cols if axis == 1 else result.rows
        self.count = groups
        number = self._numbers(domain, result, axis, warps, node, groups, length)
        members = [np.flatnonzero(number == g) for g in range(groups)]
        width = max((len(m) for m in members), default=0)
        index = np.zeros((groups, width), dtype=np.int64)
        valid = np.zeros((groups, width), dtype=bool)
        for g, member in enumerate(members):
            index[g, : len(member)] = member
            valid[g, : len(member)] = True
        self.index, self.valid = index, valid

    @staticmethod
    def _numbers(
        domain: TileType, result: TileType, axis: int, warps: int, node: x.Op, groups: int, length: int
    ) -> Array:
        """For each place along the axis, the group it belongs to."""
        at = np.arange(length)
        if groups == 1:
            return np.zeros(length, dtype=np.int64)
        if groups == length:
            return at
        kind = domain.layout.kind
        if axis == 1 and kind == "frag" and groups == QUAD:
            return (at // 2) % QUAD
        owner = owners.owner(domain.rows, domain.cols, domain.layout, warps)
        if axis == 1 and domain.rows == 1 and groups == WARP * warps:
            return owner[0]
        if axis == 1 and domain.rows == 1 and groups == warps:
            return owner[0] // WARP
        if axis == 0 and groups == warps:
            return owner[:, 0] // WARP
        fail("T000", f"{node.op}: a {domain} cannot be reduced along axis {axis} to {result}", node.span)

    def gather(self, value: Array, neutral: Any) -> Array:
        """[rows, groups, members] (axis 1) or [groups, members, cols] (axis 0), padded with ``neutral``."""
        if self.axis == 1:
            taken = value[..., self.index]
            return taken if self.valid.all() else np.where(self.valid, taken, neutral)
        taken = value[..., self.index, :]
        return taken if self.valid.all() else np.where(self.valid[:, :, None], taken, neutral)


def neutral(function: str, dtype: Any) -> Any:
    """The neutral element of a reduction."""
    if function == "sum":
        return dtype.type(0)
    low = function == "max"
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return dtype.type(info.min if low else info.max)
    return dtype.type(-np.inf if low else np.inf)


def _total(value: Array, axis: int) -> Array:
    """The sum: of integers in the type itself, of floats in f32 (NumPy's pairwise order), rounded to the type at the end."""
    kind = value.dtype if value.dtype.kind in "iu" else np.float32
    result: Array = np.add.reduce(value, axis=axis, dtype=kind)
    return result.astype(value.dtype)


REDUCTIONS: dict[str, Callable[[Array, int], Array]] = {
    "sum": _total,
    "max": lambda a, axis: extremum(a, axis, True),
    "min": lambda a, axis: extremum(a, axis, False),
}


class Reduce(Meaning):
    """Sum, minimum or maximum along one axis; min and max propagate NaN."""

    private = True

    def __init__(self, op: x.Op, unit: Unit) -> None:
        super().__init__(op, unit)
        self.dst = op.reg("dst")
        value = op.expr("value")
        assert value is not None
        domain = op.type
        if domain is None:
            assert isinstance(value, Reg)
            domain = self.reg_type(value)
        self.domain = domain
        self.value = compile_tile(value, domain, unit.warps)
        self.axis = int(op.attrs["axis"])
        self.function = str(op.attrs["function"])
        self.groups = Groups(domain, self.reg_type(self.dst), self.axis, unit.warps, op)

    def first(self, inst: Instance, step: Step) -> None:
        value = widened(self.value(inst), self.domain.shape)
        taken = self.groups.gather(value, neutral(self.function, value.dtype))
        set_tile(inst, self.dst, REDUCTIONS[self.function](taken, -1 if self.axis == 1 else -2))


class ArgReduce(Meaning):
    """The extremum along the columns and the lowest column that attains it. NaN never wins; a row of NaN gives the
    neutral element and its first column."""

    private = True

    def __init__(self, op: x.Op, unit: Unit) -> None:
        super().__init__(op, unit)
        self.dst, self.index = op.reg("dst"), op.reg("index")
        value = op.expr("value")
        assert value is not None
        domain = op.type
        if domain is None:
            assert isinstance(value, Reg)
            domain = self.reg_type(value)
        self.domain = domain
        self.value = compile_tile(value, domain, unit.warps)
        function = str(op.attrs["function"])
        self.function = function.removeprefix("arg")
        self.groups = Groups(domain, self.reg_type(self.dst), 1, unit.warps, op)

    def first(self, inst: Instance, step: Step) -> None:
        value = widened(self.value(inst), self.domain.shape)
        worst = neutral(self.function, value.dtype)
        if value.dtype.kind not in "iub":
            value = np.where(np.isnan(value), worst, value)
        taken = self.groups.gather(value, worst)
        at = (np.argmax if self.function == "max" else np.argmin)(taken, axis=-1)
        best = np.take_along_axis(taken, at[..., None], axis=-1)[..., 0]
        columns = np.take_along_axis(widened(self.groups.index, taken.shape), at[..., None], axis=-1)[..., 0]
        set_tile(inst, self.dst, best)
        set_tile(inst, self.index, columns)


class Track(Meaning):
    """A running extremum: the columns of a thread in increasing order, each kept where it is strictly better than what was
    best so far. So is the best of them, the lowest of equals; NaN never is."""

    private = True

    def __init__(self, op: x.Op, unit: Unit) -> None:
        super().__init__(op, unit)
        self.best, self.column = op.reg("best"), op.reg("column")
        value, first = op.expr("value"), op.expr("first")
        assert value is not None and first is not None and op.type is not None
        self.domain = op.type
        self.value = compile_tile(value, op.type, unit.warps)
        self.start = compile_tile(first, None, unit.warps)
        self.largest = str(op.attrs["function"]) == "argmax"
        self.groups = Groups(op.type, self.reg_type(self.best), 1, unit.warps, op)

    def first(self, inst: Instance, step: Step) -> None:
        value = widened(self.value(inst), self.domain.shape)
        worst = neutral("max" if self.largest else "min", value.dtype)
        taken = self.groups.gather(np.where(np.isnan(value), worst, value), worst)
        at = (np.argmax if self.largest else np.argmin)(taken, axis=-1)[..., None]
        found = np.take_along_axis(taken, at, axis=-1)[..., 0]
        columns = np.take_along_axis(widened(self.groups.index, taken.shape), at, axis=-1)[..., 0]
        best, column = inst.tiles[self.best.name], inst.tiles[self.column.name]
        better = found > best if self.largest else found < best
        set_tile(inst, self.best, np.where(better, found, best))
        set_tile(inst, self.column, np.where(better, columns + self.start(inst), column))


class TopK(Meaning):
    """Running lists of the best: of what a row's list holds and what its columns hold the greatest, in a stable order, so that
    of equals those in the list come first and then the lower columns. NaN counts as -inf, which never replaces anything, and
    so does what is less than the row's floor."""

    private = True

    def __init__(self, op: x.Op, unit: Unit) -> None:
        super().__init__(op, unit)
        self.best, self.column = op.reg("best"), op.reg("column")
        value, first = op.expr("value"), op.expr("first")
        assert value is not None and first is not None and op.type is not None
        self.domain = op.type
        self.value = compile_tile(value, op.type, unit.warps)
        self.start = compile_tile(first, None, unit.warps)
        floor = op.expr("floor")
        self.floor = compile_tile(floor, op.type, unit.warps) if floor is not None else None

    def first(self, inst: Instance, step: Step) -> None:
        value = widened(self.value(inst), self.domain.shape)
        if self.floor is not None:
            value = np.where(value < self.floor(inst), np.float32(-np.inf), value)
        best, column = inst.tiles[self.best.name], inst.tiles[self.column.name]
        numbers = widened(np.arange(value.shape[-1]) + self.start(inst), value.shape).astype(column.dtype)
        candidates = np.concatenate([best, np.where(np.isnan(value), -np.inf, value)], axis=-1)
        order = np.argsort(-candidates, axis=-1, kind="stable")[..., : best.shape[-1]]
        set_tile(inst, self.best, np.take_along_axis(candidates, order, axis=-1).astype(best.dtype))
        set_tile(inst, self.column, np.take_along_axis(np.concatenate([column, numbers], axis=-1), order, axis=-1))
