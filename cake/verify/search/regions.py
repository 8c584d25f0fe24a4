"""Exact memory regions, and the atoms they are made of.

A region is a set of granules: bytes of a CTA's shared memory after swizzling (PTX ISA 5.5.7: 16-byte pieces of a row of
the panel are permuted by absolute address bits), or elements of a tensor that the kernel writes. Once all regions of a
launch are known, memory is cut into *atoms*, the classes of granules that no region tells apart, so that a region is a
bit mask and a conflict is an ``&``.
"""

from __future__ import annotations

from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from cake.ir.dtypes import DTYPES
from cake.ir.expanded import Buffer, Kernel

Array = np.ndarray[Any, Any]


class BufferMap:
    """Where the elements of a buffer's tile lie: bytes from the tile's start, before swizzling."""

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer
        self.item = DTYPES[buffer.dtype].bytes

    @cached_property
    def addresses(self) -> Array:
        """The first byte of each element. Rows wider than the swizzle are stored as panels of that width."""
        b, item = self.buffer, self.item
        width = b.shape[-1]
        panel = b.swizzle // item if b.swizzle and width * item > b.swizzle else width
        row = (panel + (b.pad if panel == width else 0)) * item
        lines = prod(b.shape[:-1])
        line = np.arange(lines).reshape(*b.shape[:-1], 1) * row
        column = np.arange(width)
        return line + (column // panel) * (lines * row) + column % panel * item

    def absolute(self, instance: int, slot: int, addresses: Array) -> Array:
        """Bytes of the CTA's shared memory."""
        b = self.buffer
        at = addresses + b.offset + b.slot_bytes * slot + (b.instance_bytes * instance if b.instances > 1 else 0)
        if b.swizzle:
            at = at ^ ((at >> 7 & (b.swizzle // 16 - 1)) << 4)
        return at


def distinct(numbers: Array) -> Array:
    """The numbers in order, each once. They are dense, so marking them is cheaper than sorting or hashing."""
    if not numbers.size:
        return numbers
    first = int(numbers.min())
    marked = np.zeros(int(numbers.max()) - first + 1, dtype=bool)
    marked[numbers - first] = True
    return np.flatnonzero(marked) + first


class Regions:
    """All regions of a launch, by number. Granules of CTA c start at ``c * shared``; tensors follow."""

    def __init__(self, kernel: Kernel, shapes: dict[str, tuple[int, ...]], ctas: int) -> None:
        self.grain = min((DTYPES[b.dtype].bytes for b in kernel.buffers), default=1)
        self.shared = -(-kernel.shared_bytes // self.grain) + 64
        self.maps = {b.name: BufferMap(b) for b in kernel.buffers}
        self.ctas = ctas
        self.shapes = {t.name: shapes[t.name] for t in kernel.tensors if t.direction != "in"}
        self.bases: dict[str, int] = {}
        top = self.shared * ctas
        for name, shape in self.shapes.items():
            self.bases[name] = top
            top += prod(shape)
        self.size = top
        self.granules: list[Array] = []
        self.known: dict[object, int] = {}
        self.masks: list[int] = []
        self.atoms = 0

    def number(self, key: object, make: Any) -> int:
        """The region called ``key``; ``make`` gives its granules if it is new."""
        found = self.known.get(key)
        if found is None:
            granules = distinct(make().reshape(-1))
            bytes_key = granules.tobytes()
            found = self.known.get(bytes_key)
            if found is None:
                found = self.known[bytes_key] = len(self.granules)
                self.granules.append(granules)
            self.known[key] = found
        return found

    def of_buffer(self, cta: int, name: str, instance: int, slot: int, addresses: Array) -> Array:
        """Granules of elements given by their tile addresses."""
        layout = self.maps[name]
        at = layout.absolute(instance, slot, addresses.reshape(-1)) // self.grain
        parts = layout.item // self.grain
        if parts > 1:
            at = (at[:, None] + np.arange(parts)).reshape(-1)
        return at + cta * self.shared

    def of_tensor(self, name: str, index: tuple[Array, ...]) -> Array:
        """Granules of elements given by one index array an axis; those outside are left out."""
        shape = self.shapes[name]
        flat = np.broadcast_arrays(*index)
        inside = np.ones(flat[0].shape, dtype=bool)
        number = np.zeros(flat[0].shape, dtype=np.int64)
        for at, extent in zip(flat, shape, strict=True):
            inside &= (at >= 0) & (at < extent)
            number = number * extent + at
        return number[inside] + self.bases[name]

    def partition(self) -> None:
        """Cut memory into atoms: granules that are in the same regions (told by a random signature of 64 bits)."""
        rnd = np.random.default_rng(20240607)
        signature = np.zeros(self.size, dtype=np.uint64)
        for granules in self.granules:
            signature[granules] ^= rnd.integers(1, 2**63, dtype=np.uint64)
        used = np.flatnonzero(signature)
        classes, first, atom = np.unique(signature[used], return_index=True, return_inverse=True)
        where = np.zeros(self.size, dtype=np.int64)
        where[used] = atom
        self.atoms = len(classes)
        self.home = [int(used[i]) for i in first]
        self.lists = [distinct(where[g]) for g in self.granules]
        self.masks = [sum(1 << int(a) for a in atoms) for atoms in self.lists]

    def cta_of(self, atom: int) -> int | None:
        """The CTA whose shared memory an atom is in, None for tensors."""
        at = self.home[atom]
        return at // self.shared if at < self.shared * self.ctas else None
