"""References compiled: from a node's subscripts to boxes and index arrays in a memory, for one instance at one step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cake.ir import expanded as x
from cake.ir.evaluate import Scalar, compile_expr
from cake.ir.layout import TileType
from cake.machine import events as ev
from cake.machine.elementwise import Array, widened
from cake.machine.faults import fail
from cake.machine.intervals import shifted
from cake.machine.memory import BufferLayout, merged, read_box
from cake.machine.registers import TileFunction, compile_tile

if TYPE_CHECKING:
    from cake.machine.instance import Cta, Instance


KNOWN = 8192
"""Regions of a reference that are remembered."""


@dataclass(slots=True)
class Tile:
    """Which tile of a buffer is meant."""

    cta: Cta
    name: str
    instance: int
    slot: int
    position: int | None


@dataclass(slots=True)
class Box:
    """A block of a buffer (``tile``) or of a tensor: a start and a size an axis."""

    tile: Tile | None
    starts: tuple[int, ...]
    sizes: tuple[int, ...]


class Elements:
    """Elements of a buffer or tensor. ``base``: for each axis the index, or a number that is added to the ``fixed`` part of it,
    which a reference has in common with all its steps; ``numbers``: where they are, once that has been asked."""

    __slots__ = ("_index", "base", "fixed", "numbers", "tile")

    def __init__(self, tile: Tile | None, base: tuple[int | Array, ...], fixed: tuple[Array | None, ...]) -> None:
        self.tile = tile
        self.base = base
        self.fixed = fixed
        self.numbers: Array | None = None
        self._index: tuple[Array, ...] | None = None

    @property
    def index(self) -> tuple[Array, ...]:
        """One index array an axis, broadcasting to the domain."""
        if self._index is None:
            self._index = tuple([_array(at, part) for at, part in zip(self.base, self.fixed, strict=True)])
        return self._index


def _array(at: int | Array, fixed: Array | None) -> Array:
    if fixed is None:
        return np.asarray(at, dtype=np.int64) if isinstance(at, int) else at
    return fixed + at


class Reference:
    """What every compiled reference knows. ``kept``: the axes that stay."""

    def __init__(self, ref: x.Ref, node: x.Node, kernel: x.Kernel) -> None:
        self.ref = ref
        self.node = node
        tensor = kernel.tensor(ref.base)
        self.buffer = None if tensor is not None else kernel.buffer(ref.base)
        self.dtype = tensor.dtype if tensor is not None else kernel.buffer(ref.base).dtype
        self.peer = compile_expr(ref.peer) if ref.peer is not None else None
        axes = len(tensor.shape) if tensor is not None else len(kernel.buffer(ref.base).shape)
        if len(ref.subs) != axes:
            fail("T000", f"`{ref.base}` has {axes} axes but {len(ref.subs)} subscripts", node.span)
        ring = next((r for r in kernel.rings if ref.base in r.fields), None)
        self.ring = ring is not None

    def tile(self, inst: Instance) -> Tile | None:
        """The tile meant now, None for tensors."""
        if self.buffer is None:
            return None
        position = None if self.ref.slot is None else inst.position(self.ref.slot)
        slot = 0 if position is None else position % self.buffer.slots
        cta = inst.cta
        if self.peer is not None:
            cta = cta.cluster.ctas[self.peer(inst.env)]
        number = inst.number(self.ref.slot) if self.ring and self.ref.slot is not None else None
        return Tile(cta, self.buffer.name, inst.index, slot, number)

    def layout(self, inst: Instance) -> BufferLayout:
        """Where the buffer's elements lie."""
        assert self.buffer is not None
        return inst.machine.layouts[self.buffer.name]

    def require_writable(self, kernel: x.Kernel) -> None:
        """Inputs are read-only for the launch."""
        tensor = kernel.tensor(self.ref.base)
        if tensor is not None and tensor.direction == "in":
            fail("M405", f"`{self.ref.base}` is an input, and the kernel writes to it", self.node.span)

    def outside(self, axis: int, index: object, extent: int) -> None:
        """Refuse an index outside."""
        fail(
            "O503",
            f"`{self.ref.base}` is accessed outside: index {index} on axis {axis}, whose extent is {extent}",
            self.node.span,
        )


class BlockReference(Reference):
    """Points and ranges."""

    def __init__(self, ref: x.Ref, node: x.Node, kernel: x.Kernel) -> None:
        super().__init__(ref, node, kernel)
        self.starts: list[Scalar] = []
        self.kept: list[int] = []
        sizes: list[int] = []
        for axis, sub in enumerate(ref.subs):
            if isinstance(sub, x.Elem):
                fail("T000", f"`{ref.base}`: a block move takes slices, not index tiles", node.span)
            self.starts.append(compile_expr(sub.at if isinstance(sub, x.Point) else sub.start))
            sizes.append(1 if isinstance(sub, x.Point) else sub.size)
            if isinstance(sub, x.Range):
                self.kept.append(axis)
        self.sizes = tuple(sizes)
        self.shape = tuple(sizes[axis] for axis in self.kept)

    def box(self, inst: Instance) -> Box:
        """The box meant now; inside the buffer if it is one."""
        env = inst.env
        starts = tuple([start(env) for start in self.starts])
        if self.buffer is not None:
            for axis, (start, size, extent) in enumerate(zip(starts, self.sizes, self.buffer.shape, strict=True)):
                if start < 0 or start + size > extent:
                    self.outside(axis, f"{start} : {start + size}", extent)
        return Box(self.tile(inst), starts, self.sizes)

    def check_inside(self, inst: Instance, box: Box) -> None:
        """Element moves of whole views may not leave a tensor."""
        if box.tile is None:
            shape = inst.machine.memory[self.ref.base].shape
            for axis, (start, size, extent) in enumerate(zip(box.starts, box.sizes, shape, strict=True)):
                if start < 0 or start + size > extent:
                    self.outside(axis, f"{start} : {start + size}", extent)

    def read(self, inst: Instance, box: Box) -> Array:
        """The block's values (zeros outside a tensor) in the shape of the kept axes."""
        if box.tile is None:
            value = read_box(inst.machine.memory[self.ref.base], box.starts, box.sizes)
        else:
            index = tuple([slice(s, s + n) for s, n in zip(box.starts, box.sizes, strict=True)])
            value = box.tile.cta.shared.read(box.tile.name, box.tile.instance, box.tile.slot, index)
        value = value.reshape(self.shape)
        return value.swapaxes(-1, -2) if self.ref.transposed else value

    def write(self, inst: Instance, box: Box, value: Array) -> None:
        """Fill a block of a buffer."""
        assert box.tile is not None
        if self.ref.transposed:
            value = value.swapaxes(-1, -2)
        index = tuple([slice(s, s + n) for s, n in zip(box.starts, box.sizes, strict=True)])
        box.tile.cta.shared.write(box.tile.name, box.tile.instance, box.tile.slot, index, value.reshape(self.sizes))

    def region(
        self, inst: Instance, box: Box, mask: Array | None = None, key: object = None, cta: Cta | None = None
    ) -> ev.Region:
        """The exact region; ``mask`` selects elements of the kept axes (after transposition), and ``key`` names it so
        that the region of an equal box is computed once. ``cta``: a multicast destination."""
        if box.tile is None:
            shape = inst.machine.memory[self.ref.base].shape
            clipped = tuple((max(0, s), min(n, s + z)) for s, z, n in zip(box.starts, box.sizes, shape, strict=True))
            if mask is None:
                return ev.GlobalRegion(self.ref.base, box=clipped)
            numbers = np.ravel_multi_index(
                np.ix_(*[np.arange(s, s + z) for s, z in zip(box.starts, box.sizes, strict=True)]), shape
            ).reshape(self.shape)
            return ev.GlobalRegion(self.ref.base, spans=number_spans(self._turned(numbers)[mask]))
        layout = self.layout(inst)
        tile = box.tile
        spans = None
        name = (tile.instance, tile.slot, box.starts, box.sizes, self.ref.transposed, key)
        if mask is None or key is not None:
            spans = layout.known.get(name)
        if spans is None:
            index = tuple(slice(s, s + n) for s, n in zip(box.starts, box.sizes, strict=True))
            addresses = layout.addresses[index]
            if mask is not None:
                addresses = self._turned(addresses.reshape(self.shape))[mask]
            spans = layout.spans(layout.start(tile.instance, tile.slot), addresses)
            if mask is None or key is not None:
                layout.known[name] = spans
        return ev.SharedRegion((cta or tile.cta).index, spans, tile.name, tile.slot, tile.position)

    def _turned(self, a: Array) -> Array:
        return a.swapaxes(-1, -2) if self.ref.transposed else a


class ElementReference(Reference):
    """Points and index tiles: the elements that a domain's index tiles name."""

    def __init__(self, ref: x.Ref, node: x.Node, kernel: x.Kernel, domain: TileType | None, warps: int) -> None:
        super().__init__(ref, node, kernel)
        self.indices: list[Scalar | None] = []
        self.tiles: list[TileFunction | None] = []
        fixed: list[Array | None] = []
        self.domain = domain
        self.shape = domain.shape if domain is not None else ()
        self.single = math.prod(self.shape) == 1
        for sub in ref.subs:
            if isinstance(sub, x.Range):
                fail("T000", f"`{ref.base}`: an element move takes points and index tiles, not slices", node.span)
            split = shifted(sub.index if isinstance(sub, x.Elem) else sub.at)
            if split is None:
                assert isinstance(sub, x.Elem)
                self.indices.append(None)
                self.tiles.append(compile_tile(sub.index, domain, warps))
                fixed.append(None)
                continue
            scalar, part = split
            self.indices.append(scalar or (lambda env: 0))
            self.tiles.append(None)
            constant = None if part is None else compile_tile(part, domain, warps)(None)  # type: ignore[arg-type]
            fixed.append(None if constant is None else constant.astype(np.int64))
        self.fixed = tuple(fixed)
        self.points = not any(self.tiles) and all(f is None for f in fixed)
        self.spread = [(0, 0) if f is None else (int(f.min()), int(f.max())) for f in fixed]
        self.known: dict[Any, ev.Spans] = {}

    def elements(self, inst: Instance, where: Array | None) -> Elements:
        """The elements meant now; each one that ``where`` admits lies inside. The others are moved to element 0."""
        shape = self.buffer.shape if self.buffer is not None else inst.machine.memory[self.ref.base].shape
        env = inst.env
        base: list[int | Array] = []
        fixed = self.fixed
        for axis, extent in enumerate(shape):
            scalar = self.indices[axis]
            if scalar is not None:
                value = int(scalar(env))
                least, most = self.spread[axis]
                if value + least >= 0 and value + most < extent:
                    base.append(value)
                    continue
                at = _array(value, self.fixed[axis])
                fixed = tuple([None if i == axis else f for i, f in enumerate(fixed)])
            else:
                function = self.tiles[axis]
                assert function is not None
                at = function(inst)
            if at.size and (int(at.min()) < 0 or int(at.max()) >= extent):
                bad = (at < 0) | (at >= extent)
                accessed = bad if where is None else bad & where
                if where is None or accessed.any():
                    wrong = np.broadcast_to(at, accessed.shape)[accessed]
                    self.outside(axis, int(wrong.reshape(-1)[0]), extent)
                else:
                    at = np.where(where, at, 0)
            base.append(at)
        return Elements(self.tile(inst), tuple(base), fixed)

    def read(self, inst: Instance, elements: Elements) -> Array:
        """Values in the domain's shape."""
        tile = elements.tile
        index: tuple[Any, ...] = elements.base if self.points else elements.index
        if tile is None:
            value = np.asarray(inst.machine.memory[self.ref.base][index])
        else:
            value = tile.cta.shared.gather(tile.name, tile.instance, tile.slot, index)
        return widened(value, self.shape)

    def flat(self, inst: Instance, elements: Elements, mask: Array | None) -> Array:
        """Row-major element numbers (tensor) or byte addresses (buffer) of the elements, those that ``mask``
        selects."""
        numbers = elements.numbers
        if numbers is None:
            total: Any = 0
            tile = elements.tile
            if tile is None:
                strides = row_major(inst.machine.memory[self.ref.base].shape)
                for at, stride in zip(elements.index, strides, strict=True):
                    total = total + at.astype(np.int64) * stride
            else:
                for at, places in zip(elements.index, self.layout(inst).axes, strict=True):
                    total = total + places[at]
            numbers = elements.numbers = widened(total, self.shape)
        return numbers if mask is None else numbers[widened(mask, numbers.shape)]

    def region(
        self, inst: Instance, elements: Elements, mask: Array | None, key: tuple[int | None, bool] | None = None
    ) -> ev.Region:
        """The exact region of the elements that ``mask`` selects. ``key``: a name of that mask among those of the reference,
        so that a region that recurs is computed once."""
        tile = elements.tile
        name = None if key is None else self._name(elements, key)
        spans = None if name is None else self.known.get(name)
        if spans is None and self.single and (mask is None or bool(mask.all())):
            spans = self._one(inst, elements)
        elif spans is None:
            numbers = self.flat(inst, elements, mask)
            if tile is None:
                spans = number_spans(numbers)
            else:
                layout = self.layout(inst)
                spans = layout.spans(layout.start(tile.instance, tile.slot), numbers)
        if name is not None and len(self.known) < KNOWN:
            self.known[name] = spans
        if tile is None:
            return ev.GlobalRegion(self.ref.base, spans=spans)
        return ev.SharedRegion(tile.cta.index, spans, tile.name, tile.slot, tile.position)

    def _name(self, elements: Elements, key: tuple[int | None, bool]) -> object:
        """What tells one region of a buffer from another, if a few integers do."""
        tile, base = elements.tile, elements.base
        if tile is None or elements.fixed is not self.fixed or not all(isinstance(at, int) for at in base):
            return None
        return tile.instance, tile.slot, base, key

    def _one(self, inst: Instance, elements: Elements) -> ev.Spans:
        """Where a single element is."""
        index = [
            at if isinstance(at, int) and part is None else int(_array(at, part).reshape(-1)[0])
            for at, part in zip(elements.base, elements.fixed, strict=True)
        ]
        tile = elements.tile
        if tile is None:
            strides = row_major(inst.machine.memory[self.ref.base].shape)
            number = sum(at * stride for at, stride in zip(index, strides, strict=True))
            return ((number, number + 1),)
        layout = self.layout(inst)
        first = layout.start(tile.instance, tile.slot)
        first = layout.swizzled(first + sum(int(places[at]) for at, places in zip(index, layout.axes, strict=True)))
        return ((first, first + layout.itemsize),)


def row_major(shape: tuple[int, ...]) -> list[int]:
    """How many elements a step along each axis is."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 1, 0, -1):
        strides[axis - 1] = strides[axis] * shape[axis]
    return strides


def number_spans(numbers: Array) -> ev.Spans:
    """Sorted disjoint spans of a set of integers."""
    return merged(numbers.reshape(-1), 1)


def element_like(ref: x.Ref) -> bool:
    """True for references by points and index tiles, False for those with a slice."""
    return not any(isinstance(sub, x.Range) for sub in ref.subs)
