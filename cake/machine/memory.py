"""Memories of the machine: a CTA's shared memory as bytes, and tensors.

Shared memory is one byte array per CTA, poisoned with 0xFF (NaN in every float type), so that buffers that alias
share bytes. A buffer's tile lies in rows with padding, or in panels of the swizzle's width (docs/language.md 1.5).
Swizzling permutes 16-byte pieces inside a panel row (PTX ISA 5.5.7 swizzling modes): writer and reader agree on it,
so values ignore it, but the exact bytes of an access do not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from cake.ir.dtypes import numpy_dtype
from cake.ir.expanded import Buffer
from cake.machine.elementwise import Array
from cake.machine.events import Spans

POISON_BYTE = 0xFF

Index = tuple[int | slice, ...]


def merged(numbers: Array, width: int) -> Spans:
    """The intervals ``n`` to ``n + width`` of some numbers, sorted and merged."""
    if numbers.size == 0:
        return ()
    low = int(numbers.min())
    extent = (int(numbers.max()) - low) // width + 1
    places = numbers - low
    if extent > 16 * numbers.size + 4096 or (width > 1 and (places % width).any()):
        flat = np.sort(numbers, axis=None)
        breaks = np.flatnonzero(flat[1:] - flat[:-1] > width)
        lows = flat[np.concatenate(([0], breaks + 1))]
        highs = flat[np.concatenate((breaks, [flat.size - 1]))] + width
        return tuple(zip(lows.tolist(), highs.tolist(), strict=True))
    marks = np.zeros(extent + 2, dtype=bool)
    marks[places // width + 1] = True
    edges = np.flatnonzero(marks[1:] != marks[:-1]) * width + low
    return tuple(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


@lru_cache(maxsize=512)
def layout_of(buffer: Buffer) -> BufferLayout:
    """The layout of a buffer, shared by all runs of its kernel."""
    return BufferLayout(buffer)


@dataclass(eq=False)
class BufferLayout:
    """Where the elements of one tile of a buffer lie, in bytes from the tile's start. ``known``: spans of boxes that recur."""

    buffer: Buffer
    known: dict[Any, Spans] = field(default_factory=dict)
    strides: tuple[int, ...] = field(init=False)
    panel: int = field(init=False)
    panel_stride: int = field(init=False)

    def __post_init__(self) -> None:
        shape, item = self.buffer.shape, self.itemsize
        width = shape[-1]
        self.panel = width
        if self.buffer.swizzle and width * item > self.buffer.swizzle:
            self.panel = self.buffer.swizzle // item
        row = (self.panel + (self.buffer.pad if self.panel == width else 0)) * item
        strides, step = [item], row
        for extent in reversed(shape[:-1]):
            strides.insert(0, step)
            step *= extent
        self.strides = tuple(strides)
        self.panel_stride = step

    @cached_property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return int(numpy_dtype(self.buffer.dtype).itemsize)

    @cached_property
    def dtype(self) -> Any:
        """NumPy dtype of the elements."""
        return numpy_dtype(self.buffer.dtype)

    @cached_property
    def axes(self) -> tuple[Array, ...]:
        """For each place along each axis, how many bytes it adds to an element's address, before swizzling."""
        found = []
        for axis, (extent, stride) in enumerate(zip(self.buffer.shape, self.strides, strict=True)):
            at = np.arange(extent, dtype=np.int64)
            if axis == len(self.strides) - 1:
                found.append((at // self.panel) * self.panel_stride + (at % self.panel) * stride)
            else:
                found.append(at * stride)
        return tuple(found)

    @cached_property
    def addresses(self) -> Array:
        """For each element its first byte, from the tile's start and before swizzling."""
        total = np.zeros(self.buffer.shape, dtype=np.int64)
        for axis, places in enumerate(self.axes):
            total += places.reshape([-1 if i == axis else 1 for i in range(len(self.axes))])
        return total

    def start(self, instance: int, slot: int) -> int:
        """Absolute offset of the tile."""
        b = self.buffer
        return b.offset + b.slot_bytes * slot + (b.instance_bytes * instance if b.instances > 1 else 0)

    @property
    def end(self) -> int:
        """The first byte after the last tile (without the padding of its last row)."""
        b = self.buffer
        return self.start(b.instances - 1, b.slots - 1) + int(self.addresses.max()) + self.itemsize

    def swizzled(self, absolute: Any) -> Any:
        """Absolute byte addresses (an array of them, or one) after swizzling: bits 4.. are xored with bits 7.. (1, 2 or 3 of
        them)."""
        if not self.buffer.swizzle:
            return absolute
        mask = self.buffer.swizzle // 16 - 1
        return absolute ^ (((absolute >> 7) & mask) << 4)

    def spans(self, start: int, elements: Array) -> Spans:
        """The bytes of elements given by their ``addresses``, in a tile at ``start``."""
        return merged(self.swizzled(elements.reshape(-1) + start), self.itemsize)


class Shared:
    """The shared memory of one CTA."""

    def __init__(self, size: int, layouts: dict[str, BufferLayout]) -> None:
        self.bytes = np.full(size, POISON_BYTE, dtype=np.uint8)
        self.layouts = layouts
        self._views: dict[tuple[str, int, int], Array] = {}

    def view(self, name: str, instance: int, slot: int) -> Array:
        """The tile as an array [..., panels, panel width] (without the panel axis where there is one panel)."""
        key = (name, instance, slot)
        found = self._views.get(key)
        if found is None:
            layout = self.layouts[name]
            shape, strides = layout.buffer.shape, layout.strides
            panels = shape[-1] // layout.panel
            if panels > 1:
                shape = (*shape[:-1], panels, layout.panel)
                strides = (*strides[:-1], layout.panel_stride, strides[-1])
            found = np.ndarray(
                shape, layout.dtype, buffer=self.bytes.data, offset=layout.start(instance, slot), strides=strides
            )
            self._views[key] = found
        return found

    def read(self, name: str, instance: int, slot: int, index: Index) -> Array:
        """A box of the tile (integers drop their axis); a copy."""
        view = self.view(name, instance, slot)
        layout = self.layouts[name]
        if view.ndim == len(layout.buffer.shape):
            return view[index].copy()
        last = index[-1]
        if isinstance(last, int):
            return view[(*index[:-1], last // layout.panel, last % layout.panel)].copy()
        low, high = last.start // layout.panel, -(-last.stop // layout.panel)
        box = view[(*index[:-1], slice(low, high), slice(None))]
        flat = box.reshape(*box.shape[:-2], -1)
        return flat[..., last.start - low * layout.panel : last.stop - low * layout.panel].copy()

    def write(self, name: str, instance: int, slot: int, index: Index, value: Array) -> None:
        """Fill a box of the tile."""
        view = self.view(name, instance, slot)
        layout = self.layouts[name]
        if view.ndim == len(layout.buffer.shape):
            view[index] = value
            return
        last = index[-1]
        if isinstance(last, int):
            view[(*index[:-1], last // layout.panel, last % layout.panel)] = value
            return
        for panel in range(last.start // layout.panel, -(-last.stop // layout.panel)):
            base = panel * layout.panel
            low, high = max(last.start, base), min(last.stop, base + layout.panel)
            view[(*index[:-1], panel, slice(low - base, high - base))] = value[
                ..., low - last.start : high - last.start
            ]

    def gather(self, name: str, instance: int, slot: int, index: tuple[Array, ...]) -> Array:
        """Elements at broadcast index arrays, one an axis."""
        view = self.view(name, instance, slot)
        return np.asarray(view[self._split(name, view, index)])

    def scatter(self, name: str, instance: int, slot: int, index: tuple[Array, ...], value: Array) -> None:
        """Write elements at index arrays."""
        view = self.view(name, instance, slot)
        view[self._split(name, view, index)] = value

    def _split(self, name: str, view: Array, index: tuple[Array, ...]) -> tuple[Array, ...]:
        layout = self.layouts[name]
        if view.ndim == len(layout.buffer.shape):
            return index
        return (*index[:-1], index[-1] // layout.panel, index[-1] % layout.panel)


def read_box(tensor: Array, starts: tuple[int, ...], sizes: tuple[int, ...]) -> Array:
    """A box of a tensor where what lies outside reads as zero (PTX ISA 5.5.4, out-of-bound access)."""
    lows = [max(0, s) for s in starts]
    highs = [min(n, s + z) for n, s, z in zip(tensor.shape, starts, sizes, strict=True)]
    inner = tensor[tuple(slice(lo, max(lo, hi)) for lo, hi in zip(lows, highs, strict=True))]
    if inner.shape == sizes:
        return inner.copy()
    box = np.zeros(sizes, dtype=tensor.dtype)
    if inner.size:
        box[tuple(slice(lo - s, hi - s) for lo, hi, s in zip(lows, highs, starts, strict=True))] = inner
    return box


def clip_box(
    shape: tuple[int, ...], starts: tuple[int, ...], sizes: tuple[int, ...]
) -> tuple[tuple[slice, ...], tuple[slice, ...]] | None:
    """The part of a box inside a tensor: as slices of the tensor and of the box. None if nothing is."""
    lows = [max(0, s) for s in starts]
    highs = [min(n, s + z) for n, s, z in zip(shape, starts, sizes, strict=True)]
    if any(lo >= hi for lo, hi in zip(lows, highs, strict=True)):
        return None
    outer = tuple(slice(lo, hi) for lo, hi in zip(lows, highs, strict=True))
    inner = tuple(slice(lo - s, hi - s) for lo, hi, s in zip(lows, highs, starts, strict=True))
    return outer, inner


def volume(sizes: tuple[int, ...]) -> int:
    """Elements of a box."""
    return math.prod(sizes)
