"""Which lane of a warp touches which bytes in a step: where lanes of one warp may cross in shared memory.

Program order is of one thread (PTX ISA 8.9.1), so what one lane writes and another reads has to be ordered like an exchange
between warps. An effect on shared memory by all lanes therefore carries its *reach*, from which an observer learns, if it
asks, the lanes at each element. A register tile says which lanes hold an element (``cake.ir.layout``): all of them read it, the
first of them stores it.

ldmatrix and stmatrix are executed by a warp together, and the ISA does not say which lane makes the access to a row: the one
that gives its address or those that have its registers (9.7.14.5.15). Both readings are kept, and an access has to be right
under each of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

from cake.ir import expanded as x
from cake.ir.layout import WARP, Layout, RegisterMap, TileType
from cake.ir.ops import OPS
from cake.machine import owners
from cake.machine.elementwise import Array, widened
from cake.machine.meanings.base import Meaning
from cake.machine.meanings.matrix import LdMatrix, StMatrix
from cake.machine.meanings.moves import Move
from cake.machine.memory import BufferLayout
from cake.machine.references import BlockReference, Box, ElementReference, Elements

if TYPE_CHECKING:
    from cake.machine.instance import Instance
    from cake.machine.tape import Step

ALL = (1 << WARP) - 1
MATRIX = 8
"""Rows and columns of a matrix of ldmatrix and stmatrix."""


@dataclass(slots=True, frozen=True)
class Touched:
    """Elements that a warp touches: ``first[i]`` is the first of ``size`` bytes, rising; ``lanes[r, i]``, a bit each, the lanes
    that touch it in reading r of the access (one reading, or two)."""

    first: Array
    size: int
    lanes: Array

    def in_bytes(self) -> Touched:
        """The same, byte by byte."""
        if self.size == 1:
            return self
        first = (self.first[:, None] + np.arange(self.size)).reshape(-1)
        return Touched(first, 1, np.repeat(self.lanes, self.size, axis=1))


@dataclass(slots=True, frozen=True)
class Crossing:
    """Lane ``earlier`` and lane ``later`` touch the ``size`` bytes from ``first`` on."""

    earlier: int
    later: int
    first: int
    size: int


class Reach:
    """What one warp touches of a tile of a buffer in one step, computed when it is asked for. ``addresses``: of each element
    the first byte, from the tile's start and before swizzling; ``masks``: its lanes, a bit each, in one or two readings;
    ``where``: which elements are touched (None: all)."""

    __slots__ = ("_name", "_touched", "addresses", "layout", "masks", "tile", "where")

    def __init__(
        self,
        layout: BufferLayout,
        tile: tuple[int, int],
        addresses: Array,
        masks: Iterable[Array],
        where: Array | None = None,
    ) -> None:
        """``tile``: its instance and slot."""
        self.layout, self.tile = layout, tile
        self.addresses = addresses
        self.masks = tuple(masks)
        self.where = where
        self._touched: Touched | None = None
        self._name: bytes | None = None

    def _chosen(self) -> tuple[Array, Array]:
        shape = self.addresses.shape
        lanes = np.stack([widened(m, shape).reshape(-1) for m in self.masks])
        chosen = lanes[0] != 0
        if self.where is not None:
            chosen = chosen & widened(self.where, shape).reshape(-1)
        return self.addresses.reshape(-1)[chosen], lanes[:, chosen]

    @property
    def name(self) -> bytes:
        """Equal for equal reaches within tiles, wherever the tiles lie."""
        if self._name is None:
            addresses, lanes = self._chosen()
            self._name = blake2b(addresses.astype(np.int64).tobytes() + b"|" + lanes.tobytes(), digest_size=16).digest()
        return self._name

    @property
    def key(self) -> tuple[str, int, int, bytes]:
        """Equal for equal reaches of one tile."""
        return self.layout.buffer.name, *self.tile, self.name

    @property
    def touched(self) -> Touched:
        """Bytes of the CTA's shared memory, and the lanes at each."""
        if self._touched is None:
            addresses, lanes = self._chosen()
            at = self.layout.swizzled(addresses + self.layout.start(*self.tile))
            order = np.argsort(at, kind="stable")
            at, lanes = at[order], lanes[:, order]
            firsts = np.flatnonzero(np.concatenate(([True], at[1:] != at[:-1]))) if at.size else np.zeros(0, np.int64)
            if firsts.size < at.size:  # lanes that have the same element
                lanes = np.bitwise_or.reduceat(lanes, firsts, axis=1)
            self._touched = Touched(at[firsts], self.layout.itemsize, lanes)
        return self._touched


def crossing(earlier: Touched, later: Touched) -> Crossing | None:
    """Two different lanes that touch one byte, under some reading; None if each byte is a single lane's."""
    a, b = earlier, later
    if a.size != b.size or (a.first.size and b.first.size and (int(a.first[0]) - int(b.first[0])) % a.size):
        a, b = a.in_bytes(), b.in_bytes()
    _, i, j = np.intersect1d(a.first, b.first, assume_unique=True, return_indices=True)
    if not i.size:
        return None
    for r in range(max(len(a.lanes), len(b.lanes))):
        mine, theirs = a.lanes[min(r, len(a.lanes) - 1)][i], b.lanes[min(r, len(b.lanes) - 1)][j]
        both = mine | theirs
        crossed = np.flatnonzero(both & (both - np.uint64(1)))
        if crossed.size:
            n = int(crossed[0])
            one, other = _apart(int(mine[n]), int(theirs[n]))
            return Crossing(one, other, int(a.first[i[n]]), a.size)
    return None


def _apart(a: int, b: int) -> tuple[int, int]:
    """A lane of each mask, not the same one."""
    first, second = (a & -a).bit_length() - 1, (b & -b).bit_length() - 1
    if first != second:
        return first, second
    rest = b & (b - 1)
    if rest:
        return first, (rest & -rest).bit_length() - 1
    rest = a & (a - 1)
    return (rest & -rest).bit_length() - 1, second


# ---- lanes of elements ----------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def readers(rows: int, cols: int, layout: Layout, warps: int, warp: int) -> Array:
    """For each element the lanes of ``warp`` that hold it, a bit each."""
    registers = RegisterMap(rows, cols, layout, WARP * warps)
    result = np.zeros((rows, cols), dtype=np.uint64)
    for lane in range(WARP):
        bit = np.uint64(1 << lane)
        for register in range(registers.count):
            where = registers.element(WARP * warp + lane, register)
            if where is not None:
                result[where] |= bit
    return result


@lru_cache(maxsize=256)
def writers(rows: int, cols: int, layout: Layout, warps: int, warp: int) -> Array:
    """For each element the lane of ``warp`` that stores it, as a bit; 0 where another warp does."""
    thread = owners.owner(rows, cols, layout, warps)
    bits = np.uint64(1) << (thread % WARP).astype(np.uint64)
    return np.where(thread // WARP == warp, bits, np.uint64(0))


@lru_cache(maxsize=256)
def addressers(rows: int, cols: int, warps: int, warp: int, transposed: bool) -> Array:
    """For each element of a fragment the lane of ``warp`` that gives the address of its row to ldmatrix or stmatrix: lane l names
    row l % 8 of matrix l / 8, and the matrices of a block of 16 x 16 go down its rows first (9.7.14.5.15)."""
    row, col = np.arange(rows)[:, None], np.arange(cols)[None, :]
    half, group = row // MATRIX % 2, col // MATRIX % 2
    odd = (row // 16 == rows // 16) & (rows % 16 == MATRIX)  # a last block of eight rows has two matrices side by side
    matrix = np.where(odd, group, half + 2 * group)
    lane = MATRIX * matrix + (col if transposed else row) % MATRIX
    bits = np.uint64(1) << lane.astype(np.uint64)
    return np.where(row // 16 % warps == warp, bits, np.uint64(0))


# ---- reaches of operations ------------------------------------------------------------------------------------------


def exchanged(kernel: x.Kernel, body: Iterable[x.Stmt]) -> frozenset[str]:
    """Shared buffers that share bytes with one that lanes of a role write through the generic proxy (``body``: its statements,
    inner ones too). In others they cannot cross."""
    written = set()
    for node in body:
        if isinstance(node, x.Op) and node.executor == "lanes":
            for e in OPS[node.op].effects:
                ref = node.operands.get(e.operand)
                stores = e.mode != "r" and e.proxy == "generic" and e.time == "issue"
                if isinstance(ref, x.Ref) and stores and kernel.tensor(ref.base) is None:
                    written.add(ref.base)
    return frozenset(b.name for b in kernel.buffers if any(_overlap(b, kernel.buffer(w)) for w in written))


def _overlap(a: x.Buffer, b: x.Buffer) -> bool:
    return a.offset < _end(b) and b.offset < _end(a)


def _end(b: x.Buffer) -> int:
    return b.offset + b.slot_bytes * b.slots + b.instance_bytes * (b.instances - 1)


def reach(meaning: Meaning, inst: Instance, step: Step, warp: int) -> Reach | None:
    """What ``warp`` touches of shared memory in a step that all lanes execute; None for what touches none."""
    where: Array | None = None
    if isinstance(meaning, LdMatrix):
        reference: BlockReference | ElementReference = meaning.src
        place: Box | Elements | None = step.data
        domain: TileType | None = meaning.domain
        reads = True
    elif isinstance(meaning, Move):
        reference, domain, reads = meaning.reference, meaning.domain, meaning.memory == "src"
        place, where = step.result[:2] if isinstance(step.result, tuple) else (step.result, None)
    else:
        return None
    if place is None or place.tile is None:
        return None
    layout, tile = reference.layout(inst), (place.tile.instance, place.tile.slot)
    matrix = isinstance(meaning, LdMatrix | StMatrix)
    if isinstance(place, Elements):
        assert isinstance(reference, ElementReference)
        return Reach(layout, tile, reference.flat(inst, place, None), _masks(domain, inst.warps, warp, reads), where)
    box = Block(place.starts, place.sizes, reference.shape, reference.ref.transposed)
    whole = _block(layout, tile, box, domain, inst.warps, warp, reads, matrix)
    return whole if where is None else Reach(layout, tile, whole.addresses, whole.masks, where)


@dataclass(slots=True, frozen=True)
class Block:
    """A block of a tile; ``shape``: of the axes that it keeps."""

    starts: tuple[int, ...]
    sizes: tuple[int, ...]
    shape: tuple[int, ...]
    transposed: bool


@lru_cache(maxsize=4096)
def _block(
    layout: BufferLayout,
    tile: tuple[int, int],
    box: Block,
    domain: TileType | None,
    warps: int,
    warp: int,
    reads: bool,
    matrix: bool,
) -> Reach:
    index = tuple(slice(s, s + n) for s, n in zip(box.starts, box.sizes, strict=True))
    addresses = layout.addresses[index].reshape(box.shape)
    if box.transposed:
        addresses = addresses.swapaxes(-1, -2)
    masks = _masks(domain, warps, warp, reads)
    if matrix and domain is not None:
        masks.append(addressers(domain.rows, domain.cols, warps, warp, box.transposed))
    return Reach(layout, tile, addresses, masks)


def _masks(domain: TileType | None, warps: int, warp: int, reads: bool) -> list[Array]:
    if domain is None:  # a scalar: all read it, the first thread stores it
        return [np.asarray(ALL if reads else int(warp == 0), dtype=np.uint64)]
    return [(readers if reads else writers)(domain.rows, domain.cols, domain.layout, warps, warp)]
