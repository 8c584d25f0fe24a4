"""Element moves: load, store, atomic, and the flags between CTAs.

A load reads when the first agent arrives; a store writes a warp's elements when that warp has come, so that what one
warp reads of another without order shows. A warp sees its own stores (program order, or ``syncwarp`` among its lanes)
before its sisters have come to theirs: those are forwarded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cake.ir import expanded as x
from cake.ir.dtypes import numpy_dtype
from cake.ir.evaluate import convert, plain
from cake.ir.expr import is_scalar
from cake.ir.layout import WARP
from cake.machine import events as ev
from cake.machine import owners
from cake.machine.elementwise import Array, widened
from cake.machine.instance import Instance
from cake.machine.intervals import bounds
from cake.machine.meanings.base import Meaning, Unit, set_tile
from cake.machine.references import BlockReference, Box, ElementReference, Elements, element_like
from cake.machine.registers import TileFunction, zero
from cake.machine.tape import Step

if TYPE_CHECKING:
    from cake.machine.agents import Runner
    from cake.machine.executor import Executor


EVERYWHERE, NOWHERE = (1, 1), (0, 0)
"""Bounds of predicates."""


@dataclass(eq=False, slots=True)
class PendingStore:
    """A store that some warps have not come to: where its elements go, their values and the warps that store them."""

    space: object
    addresses: Array
    values: Array
    warps: Array
    written: set[int]


class Move(Meaning):
    """A memory operand reached by index tiles and points, or (a whole view) by slices."""

    memory = "src"

    def __init__(self, op: x.Op, unit: Unit) -> None:
        super().__init__(op, unit)
        ref = op.ref(self.memory)
        self.domain = op.type
        self.elements: ElementReference | None = None
        self.block: BlockReference | None = None
        if element_like(ref):
            self.elements = ElementReference(ref, op, unit.kernel, op.type, unit.warps)
        else:
            self.block = BlockReference(ref, op, unit.kernel)
        self.where = self.tile("where", op.type)
        predicate = op.expr("where")
        self.sure = None if predicate is None else bounds(predicate, op.type, unit.warps)
        self.shape = op.type.shape if op.type is not None else self.elements.shape if self.elements else ()
        self.nowhere = np.zeros(self.shape, dtype=bool)

    @property
    def reference(self) -> ElementReference | BlockReference:
        """The memory operand."""
        found = self.elements or self.block
        assert found is not None
        return found

    def mask(self, inst: Instance) -> Array | None:
        """Where the predicate is true; None for everywhere, ``nowhere`` for nowhere if that is easily seen."""
        if self.where is None:
            return None
        said = None if self.sure is None else self.sure(inst)
        if said == EVERYWHERE:
            return None
        return self.nowhere if said == NOWHERE else widened(self.where(inst), self.shape)

    def resolve(self, inst: Instance, where: Array | None) -> Elements | Box:
        """The memory meant now; in bounds where the predicate is true."""
        if self.elements is not None:
            return self.elements.elements(inst, where)
        assert self.block is not None
        box = self.block.box(inst)
        self.block.check_inside(inst, box)
        return box

    def numbers(self, inst: Instance, at: Elements | Box) -> Array:
        """Addresses of the elements in the domain's shape, unique within a space."""
        if isinstance(at, Elements):
            assert self.elements is not None
            return self.elements.flat(inst, at, None)
        assert self.block is not None
        index = np.ix_(*[np.arange(s, s + n) for s, n in zip(at.starts, at.sizes, strict=True)])
        if at.tile is None:
            numbers = np.ravel_multi_index(index, inst.machine.memory[self.block.ref.base].shape)
        else:
            numbers = self.block.layout(inst).addresses[index]
        numbers = np.asarray(numbers).reshape(self.block.shape)
        return numbers.swapaxes(-1, -2) if self.block.ref.transposed else numbers

    def space(self, at: Elements | Box) -> object:
        """What the addresses of ``numbers`` count in."""
        tile = at.tile
        return self.reference.ref.base if tile is None else (tile.cta.index, tile.name, tile.instance, tile.slot)

    def region(self, inst: Instance, at: Elements | Box, where: Array | None, warp: int, first_only: bool) -> ev.Region:
        """The exact region that ``warp`` accesses."""
        held = self.holders(self.domain, warp, first_only)
        mask = held if where is None else where if held is None else where & held
        if isinstance(at, Elements):
            assert self.elements is not None
            return self.elements.region(inst, at, mask, (warp, first_only) if where is None else None)
        assert self.block is not None
        key = (warp, first_only, str(self.domain)) if where is None else None
        return self.block.region(inst, at, None if mask is None else widened(mask, self.shape), key)


class Load(Move):
    """Load the elements that the index tiles name; ``other`` (0 if left out) where the predicate is false."""

    def __init__(self, op: x.Op, unit: Unit) -> None:
        super().__init__(op, unit)
        self.dst = op.reg("dst")
        self.other = self.tile("other", op.type)
        self.private = self.reference.ref.base in unit.untold
        self.kind = numpy_dtype(self.reference.dtype)

    def first(self, inst: Instance, step: Step) -> None:
        where = self.mask(inst)
        at = self.resolve(inst, where)
        if isinstance(at, Elements):
            assert self.elements is not None
            value = self.elements.read(inst, at)
        else:
            assert self.block is not None
            value = self.block.read(inst, at)
        if inst.pending:
            value = self._forward(inst, at, value)
        if where is not None:
            other: Any = zero(self.reference.dtype) if self.other is None else self.other(inst).astype(self.kind)
            value = np.where(where, value, other)
        step.result = (at, where)
        set_tile(inst, self.dst, value)

    def place(self, inst: Instance, step: Step) -> None:
        where = self.mask(inst)
        step.result = (self.resolve(inst, where), where)

    def _forward(self, inst: Instance, at: Elements | Box, value: Array) -> Array:
        domain = self.domain
        if domain is None or owners.replicated(domain.rows, domain.cols, domain.layout):
            return value
        space, numbers = self.space(at), widened(self.numbers(inst, at), self.shape)
        mine = owners.owner(domain.rows, domain.cols, domain.layout, inst.warps) // WARP
        value = np.array(value)
        for store in inst.pending:
            if store.space != space:
                continue
            order = np.argsort(store.addresses)
            found = np.searchsorted(store.addresses[order], numbers).clip(max=len(order) - 1)
            which = order[found]
            hit = (store.addresses[which] == numbers) & (store.warps[which] == mine)
            value = np.where(hit, store.values[which], value)
        return value

    def effects(self, inst: Instance, step: Step, warp: int) -> tuple[ev.Effect, ...]:
        at, where = step.result
        return (ev.Effect("src", "r", self.region(inst, at, where, warp, False), "generic"),)


class LoadScalar(Move):
    """Load one element as a uniform scalar."""

    def __init__(self, op: x.Op, unit: Unit) -> None:
        super().__init__(op, unit)
        self.dst = op.sym("dst")
        self.private = self.reference.ref.base in unit.untold

    def first(self, inst: Instance, step: Step) -> None:
        where = self.mask(inst)
        if where is not None and not bool(where):
            other = 0 if self.other_value(inst) is None else self.other_value(inst)
            inst.env[self.dst.name] = plain(other, self.dst.dtype)
            step.result = None
            return
        at = self.resolve(inst, where)
        assert self.elements is not None and isinstance(at, Elements)
        step.result = at
        inst.env[self.dst.name] = plain(self.elements.read(inst, at), self.dst.dtype)

    def place(self, inst: Instance, step: Step) -> None:
        self.first(inst, step)  # scalars always have their values

    def other_value(self, inst: Instance) -> Any:
        """The value where the predicate is false."""
        other = self.tile("other", None)
        return None if other is None else other(inst)

    def effects(self, inst: Instance, step: Step, warp: int) -> tuple[ev.Effect, ...]:
        if step.result is None:
            return ()
        return (ev.Effect("src", "r", self.region(inst, step.result, None, warp, False), "generic"),)


class Store(Move):
    """Store the elements of a tile where the predicate is true; a replicated value is stored by its first holder."""

    memory = "dst"
    writes = True

    def __init__(self, op: x.Op, unit: Unit) -> None:
        super().__init__(op, unit)
        value = self.tile("value", op.type)
        assert value is not None
        self.value: TileFunction = value
        self.warps: Array | None = None
        self.reference.require_writable(unit.kernel)
        self.kind = numpy_dtype(self.reference.dtype)

    def first(self, inst: Instance, step: Step) -> None:
        where = self.mask(inst)
        at = self.resolve(inst, where)
        value = np.empty(self.shape, dtype=self.kind)
        value[...] = self.value(inst)
        pending = None
        if self.domain is not None and self.op.executor == "lanes" and not inst.solo:
            if self.warps is None:
                domain = self.domain
                thread = owners.owner(domain.rows, domain.cols, domain.layout, inst.warps)
                self.warps = widened(thread // WARP, self.shape)
            chosen = ... if where is None else where
            numbers = widened(self.numbers(inst, at), self.shape)
            places, values, warps = (a[chosen].reshape(-1) for a in (numbers, value, self.warps))
            pending = PendingStore(self.space(at), places, values, warps, set())
            if pending.addresses.size:
                inst.pending.append(pending)
        step.result = (at, where, value, pending)

    def place(self, inst: Instance, step: Step) -> None:
        where = self.mask(inst)
        step.result = (self.resolve(inst, where), where, None, None)

    def warp(self, inst: Instance, step: Step, warp: int | None) -> None:
        at, where, value, pending = step.result
        held = self.holders(self.domain, warp, True)
        mask = held if where is None else where if held is None else where & held
        self.put(inst, at, value, mask)
        if pending is not None and warp is not None:
            pending.written.add(warp)
            if len(pending.written) == inst.warps and pending in inst.pending:
                inst.pending.remove(pending)
        inst.machine.touched(self.reference.ref.base)

    def put(self, inst: Instance, at: Elements | Box, value: Array, mask: Array | None) -> None:
        """Write the elements that ``mask`` selects."""
        tile = at.tile
        if isinstance(at, Box):
            assert self.block is not None
            if mask is not None:
                value = np.where(widened(mask, self.shape), value, self.block.read(inst, at))
            if tile is not None:
                self.block.write(inst, at, value)
            else:
                box = tuple(slice(s, s + n) for s, n in zip(at.starts, at.sizes, strict=True))
                if self.block.ref.transposed:
                    value = value.swapaxes(-1, -2)
                inst.machine.memory[self.block.ref.base][box] = value.reshape(at.sizes)
            return
        value = value if mask is None else value[widened(mask, value.shape)]
        if tile is None:
            assert self.elements is not None
            numbers = self.elements.flat(inst, at, mask)
            inst.machine.memory[self.reference.ref.base].reshape(-1)[numbers] = value
        else:
            tile.cta.shared.scatter(tile.name, tile.instance, tile.slot, self.selected(at, mask), value)

    def selected(self, at: Elements, mask: Array | None) -> tuple[Array, ...]:
        """The index arrays in the domain's shape, at the elements that ``mask`` selects."""
        index = [widened(i, self.shape) for i in at.index]
        if mask is None:
            return tuple(index)
        chosen = widened(mask, self.shape)
        return tuple(i[chosen] for i in index)

    def effects(self, inst: Instance, step: Step, warp: int) -> tuple[ev.Effect, ...]:
        at, where = step.result[:2]
        if where is self.nowhere:
            return ()
        region = self.region(inst, at, where, warp, True)
        if isinstance(region, ev.RegisterRegion) or region.spans == ():
            return ()
        return (ev.Effect("dst", self.row.effects[-1].mode, region, "generic"),)


class Atomic(Store):
    """Combine each element with memory (relaxed, gpu scope). The order of float additions is that of the schedule."""

    def __init__(self, op: x.Op, unit: Unit) -> None:
        super().__init__(op, unit)
        self.function = {"add": np.add, "max": np.maximum, "min": np.minimum}[str(op.attrs["function"])]

    def put(self, inst: Instance, at: Elements | Box, value: Array, mask: Array | None) -> None:
        assert isinstance(at, Elements), "atomics name their elements"
        index = self.selected(at, mask)
        value = value if mask is None else value[widened(mask, value.shape)]
        tile = at.tile
        if tile is None:
            self.function.at(inst.machine.memory[self.reference.ref.base], index, value)
            return
        whole = tuple(slice(0, n) for n in inst.machine.layouts[tile.name].buffer.shape)
        copy = tile.cta.shared.read(tile.name, tile.instance, tile.slot, whole)
        self.function.at(copy, index, value)
        tile.cta.shared.write(tile.name, tile.instance, tile.slot, whole, copy)


class Draw(Move):
    """Take a number from a counter that wraps (relaxed, gpu scope)."""

    memory = "counter"

    def __init__(self, op: x.Op, unit: Unit) -> None:
        super().__init__(op, unit)
        self.dst = op.sym("dst")
        last = self.tile("last", None)
        assert last is not None
        self.last: TileFunction = last
        self.reference.require_writable(unit.kernel)

    def first(self, inst: Instance, step: Step) -> None:
        at = self.resolve(inst, None)
        assert self.elements is not None and isinstance(at, Elements)
        step.result = at
        memory = inst.machine.memory[self.reference.ref.base]
        place = tuple(int(np.asarray(i).reshape(-1)[0]) for i in at.index)
        old = int(memory[place])
        memory[place] = 0 if old >= int(self.last(inst)) else old + 1
        inst.env[self.dst.name] = plain(np.asarray(old), self.dst.dtype)

    def place(self, inst: Instance, step: Step) -> None:
        self.first(inst, step)  # what is drawn decides control

    def effects(self, inst: Instance, step: Step, warp: int) -> tuple[ev.Effect, ...]:
        return (ev.Effect("counter", "rw", self.region(inst, step.result, None, warp, False), "generic"),)


class Signal(Move):
    """Publish a global word (release, gpu scope)."""

    memory = "flag"

    def __init__(self, op: x.Op, unit: Unit) -> None:
        super().__init__(op, unit)
        value = op.expr("value")
        assert value is not None and is_scalar(value)
        if self.row.effects[0].mode != "r":
            self.reference.require_writable(unit.kernel)
        self.value = self.tile("value", None)

    def prepare(self, inst: Instance) -> tuple[Elements, Any]:
        at = self.resolve(inst, None)
        assert isinstance(at, Elements) and self.value is not None
        return at, self.value(inst)

    def place(self, inst: Instance, step: Step) -> None:
        self.first(inst, step)  # flags decide control

    def first(self, inst: Instance, step: Step) -> None:
        at, value = step.data
        base = self.reference.ref.base
        inst.machine.memory[base][tuple(at.index)] = convert(value[()], self.reference.dtype)
        inst.machine.touched(base)

    def word(self, step: Step) -> int | None:
        return int(step.data[1])

    def effects(self, inst: Instance, step: Step, warp: int) -> tuple[ev.Effect, ...]:
        return (
            ev.Effect("flag", self.row.effects[0].mode, self.region(inst, step.data[0], None, warp, False), "generic"),
        )


class WaitUntil(Signal):
    """Spin on a global word until it equals the value (acquire, gpu scope)."""

    def ready(self, m: Executor, runner: Runner, step: Step) -> bool:
        at, value = step.data
        base = self.reference.ref.base
        if m.open_flags or m.memory[base][tuple(at.index)] == value:
            return True
        m.spinning.setdefault(base, []).append(runner)
        return False

    def first(self, inst: Instance, step: Step) -> None:
        """The value has been seen; nothing else happens."""
