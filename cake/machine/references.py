"""References compiled: from a node's subscripts to boxes and index arrays in a memory, for one instance at one step."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cake.ir import expanded as x
from cake.ir.evaluate import Scalar, compile_expr
from cake.ir.layout import TileType
from cake.machine import events as ev
from cake.machine.elementwise import Array
from cake.machine.faults import fail
from cake.machine.memory import BufferLayout, merged, read_box
from cake.machine.registers import TileFunction, compile_tile

if TYPE_CHECKING:
    from cake.machine.instance import Cta, Instance


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


@dataclass(slots=True)
class Elements:
    """Elements of a buffer or tensor: one index array an axis, broadcasting to the domain."""

    tile: Tile | None
    index: tuple[Array, ...]


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
        self.indices: list[TileFunction] = []
        self.domain = domain
        self.shape = domain.shape if domain is not None else ()
        self.single = math.prod(self.shape) == 1
        for sub in ref.subs:
            if isinstance(sub, x.Range):
                fail("T000", f"`{ref.base}`: an element move takes points and index tiles, not slices", node.span)
            self.indices.append(self._index(sub, domain, warps))

    @staticmethod
    def _index(sub: x.Point | x.Elem, domain: TileType | None, warps: int) -> TileFunction:
        if isinstance(sub, x.Elem):
            return compile_tile(sub.index, domain, warps)
        at: Callable[[dict[str, object]], int] = compile_expr(sub.at)  # type: ignore[assignment]
        return lambda inst: np.asarray(at(inst.env), dtype=np.int64)

    def elements(self, inst: Instance, where: Array | None) -> Elements:
        """The elements meant now; each one that ``where`` admits lies inside. The others are moved to element 0."""
        shape = self.buffer.shape if self.buffer is not None else inst.machine.memory[self.ref.base].shape
        index = []
        for axis, (function, extent) in enumerate(zip(self.indices, shape, strict=True)):
            at = function(inst)
            if at.ndim == 0 and 0 <= int(at) < extent:
                index.append(at)
                continue
            bad = (at < 0) | (at >= extent)
            if bad.any():
                accessed = bad if where is None else bad & where
                if where is None or accessed.any():
                    wrong = np.broadcast_to(at, accessed.shape)[accessed]
                    self.outside(axis, int(wrong.reshape(-1)[0]), extent)
                else:
                    at = np.where(where, at, 0)
            index.append(at)
        return Elements(self.tile(inst), tuple(index))

    def read(self, inst: Instance, elements: Elements) -> Array:
        """Values in the domain's shape."""
        index = tuple(np.broadcast_arrays(*elements.index))
        tile = elements.tile
        if tile is None:
            value = np.asarray(inst.machine.memory[self.ref.base][index])
        else:
            value = tile.cta.shared.gather(tile.name, tile.instance, tile.slot, index)
        return np.broadcast_to(value, self.shape)

    def flat(self, inst: Instance, elements: Elements, mask: Array | None) -> Array:
        """Row-major element numbers (tensor) or byte addresses (buffer) of the elements, those that ``mask``
        selects."""
        index = np.broadcast_arrays(*elements.index, np.empty(self.shape, dtype=np.int8))[:-1]
        tile = elements.tile
        if tile is None:
            shape = inst.machine.memory[self.ref.base].shape
            numbers = np.ravel_multi_index(tuple(i.astype(np.int64) for i in index), shape)
        else:
            numbers = self.layout(inst).addresses[tuple(index)]
        numbers = np.asarray(numbers)
        return numbers if mask is None else numbers[np.broadcast_to(mask, numbers.shape)]

    def region(self, inst: Instance, elements: Elements, mask: Array | None) -> ev.Region:
        """The exact region of the elements that ``mask`` selects."""
        if self.single and (mask is None or bool(mask.all())):
            return self._one(inst, elements)
        numbers = self.flat(inst, elements, mask)
        tile = elements.tile
        if tile is None:
            return ev.GlobalRegion(self.ref.base, spans=number_spans(numbers))
        layout = self.layout(inst)
        spans = layout.spans(layout.start(tile.instance, tile.slot), numbers)
        return ev.SharedRegion(tile.cta.index, spans, tile.name, tile.slot, tile.position)

    def _one(self, inst: Instance, elements: Elements) -> ev.Region:
        """The region of a single element."""
        index = tuple(int(i) if i.ndim == 0 else int(i.reshape(-1)[0]) for i in elements.index)
        tile = elements.tile
        if tile is None:
            number = 0
            for at, extent in zip(index, inst.machine.memory[self.ref.base].shape, strict=True):
                number = number * extent + at
            return ev.GlobalRegion(self.ref.base, spans=((number, number + 1),))
        layout = self.layout(inst)
        spans = layout.spans(layout.start(tile.instance, tile.slot), layout.addresses[index])
        return ev.SharedRegion(tile.cta.index, spans, tile.name, tile.slot, tile.position)


def number_spans(numbers: Array) -> ev.Spans:
    """Sorted disjoint spans of a set of integers."""
    return merged(numbers.reshape(-1), 1)


def element_like(ref: x.Ref) -> bool:
    """True for references by points and index tiles, False for those with a slice."""
    return not any(isinstance(sub, x.Range) for sub in ref.subs)
