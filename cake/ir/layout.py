"""Register layouts: which thread of an instance holds which element of a tile, and in which register.

Authors write three of them (docs/language.md, register tiles). ``frag`` is the accumulator layout of wgmma and mma
(PTX ISA, "Register Fragments for wgmma.mma_async" and "Matrix Fragments for mma.m16n8k16"); ``rowwise`` that of
``tcgen05.ld.32x32b``; ``spread(v)`` deals vectors of v elements to threads round robin. ``quad`` is what a list tracker
gives: the rows of ``frag``, each row's columns in four equal parts, one for each of the four lanes that share the row
(the last part may be shorter, or none be left for it). Two more appear only in derived code: ``perwarp`` ([1, W]: column
w is held by every thread of warp w) and ``uniform`` (every thread holds the whole tile).

A size-1 axis is broadcast: the value is held by every thread that holds some element along that axis. ``[R, 4]`` in
frag and ``[1, T]`` in spread hold one partial value a thread (the result of a reduction with ``to=``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from cake.diagnostics import Record
from cake.ir.dtypes import DTYPES, DType, DTypeName

LayoutKind = Literal["frag", "rowwise", "spread", "quad", "perwarp", "uniform"]

QUAD = 4  # threads that share a row in frag
WARP = 32


class Layout(Record):
    """A register layout. ``vector`` is the number of consecutive elements of a spread vector, 0 for the others."""

    kind: LayoutKind
    vector: int = 0

    def __str__(self) -> str:
        return f"spread({self.vector})" if self.kind == "spread" else self.kind


class TileType(Record):
    """The type of a register tile: leading axes (if any) are plain repetition; the last two are rows and columns."""

    dtype: DTypeName
    shape: tuple[int, ...]
    layout: Layout

    @property
    def element(self) -> DType:
        """The element type's row in the dtype table."""
        return DTYPES[self.dtype]

    @property
    def rows(self) -> int:
        """Extent of the row axis."""
        return self.shape[-2]

    @property
    def cols(self) -> int:
        """Extent of the column axis."""
        return self.shape[-1]

    @property
    def lead(self) -> tuple[int, ...]:
        """The leading (repetition) axes."""
        return self.shape[:-2]

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}] {self.layout}"


@dataclass(frozen=True)
class RegisterMap:
    """Where the elements of a two-axis tile lie: ``count`` registers (elements) a thread over ``threads`` threads."""

    rows: int
    cols: int
    layout: Layout
    threads: int

    @property
    def partial(self) -> bool:
        """True for one-partial-value-a-thread tiles: [R, 4] frag, [1, T] spread(1)."""
        if self.layout.kind == "frag":
            return self.cols == QUAD
        return self.layout.kind == "spread" and self.rows == 1 and self.cols == self.threads and self.layout.vector == 1

    @property
    def part(self) -> int:
        """Columns of a row that a lane holds in quad."""
        return -(-self.cols // QUAD)

    @property
    def count(self) -> int:
        """Elements a thread holds (the last round of a spread tile and the last lanes of a quad may be partly unused)."""
        if self.layout.kind == "frag":
            warps = self.threads // WARP
            halves = 1 if self.rows == 1 else 2 * max(1, self.rows // (16 * warps))
            if warps == 1 and self.rows % 16 == 8:  # the right operand of mma may end in eight rows
                halves = self.rows // 8
            if self.cols == 1 or self.cols == QUAD:
                return halves
            return halves * self.cols // QUAD
        if self.layout.kind == "quad":
            return (1 if self.rows == 1 else 2 * (self.rows // (self.threads // 2))) * self.part
        if self.layout.kind == "rowwise":
            blocks = 1 if self.rows == 1 else max(1, self.rows // 128)
            return blocks * self.cols
        if self.layout.kind == "perwarp" or (self.rows == 1 and self.cols == 1):
            return 1
        if self.layout.kind == "uniform":
            return self.rows * self.cols
        vector = self.layout.vector
        return -(-self.rows * self.cols // (vector * self.threads)) * vector

    def element(self, thread: int, register: int) -> tuple[int, int] | None:
        """The (row, column) that ``register`` of ``thread`` holds; along a broadcast axis the index is 0.

        None for the unused registers of a last partial round of a spread tile, or of the last lanes of a quad.
        """
        kind = self.layout.kind
        if kind == "frag":
            return self._frag(thread, register)
        if kind == "quad":
            return self._quad(thread, register)
        if kind == "rowwise":
            row = thread % 128
            if self.rows == 1:
                return 0, register % self.cols
            return row + 128 * (register // self.cols), register % self.cols
        if kind == "perwarp":
            return 0, thread // WARP
        if kind == "uniform":
            return register // self.cols, register % self.cols
        if self.rows == 1 and self.cols == 1:
            return 0, 0
        vector = self.layout.vector
        flat = ((register // vector) * self.threads + thread) * vector + register % vector
        if flat >= self.rows * self.cols:
            return None
        return flat // self.cols, flat % self.cols

    def _frag(self, thread: int, register: int) -> tuple[int, int]:
        warps = self.threads // WARP
        warp, lane = thread // WARP, thread % WARP
        quad, within = lane // QUAD, lane % QUAD
        if self.cols == 1 or self.cols == QUAD:
            half, block, col = register % 2, register // 2, within if self.cols == QUAD else 0
        elif self.rows == 1:
            return 0, 8 * (register // 2) + 2 * within + register % 2
        else:
            a_block = 4 * (self.cols // 8)
            block, rest = divmod(register, a_block)
            group, low = divmod(rest, 4)
            half, col = low // 2, 8 * group + 2 * within + low % 2
            if warps == 1 and 16 * block + 8 == self.rows:  # eight rows at the end of the right operand of mma
                group, low = divmod(rest, 2)
                half, col = 0, 8 * group + 2 * within + low
        if self.rows == 1:
            return 0, col
        return 16 * warps * block + 16 * warp + 8 * half + quad, col

    def _quad(self, thread: int, register: int) -> tuple[int, int] | None:
        result, within = divmod(register, self.part)
        block, half = divmod(result, 2)
        row = (
            0
            if self.rows == 1
            else self.threads // 2 * block + 16 * (thread // WARP) + 8 * half + thread % WARP // QUAD
        )
        col = 0 if self.cols == 1 else thread % QUAD * self.part + within
        return (row, col) if col < self.cols else None

    def lin(self, thread: int, register: int) -> int:
        """The number of an element in ``lin`` order: the threads' registers in vectors, dealt round robin, so that a
        thread's vectors are consecutive in memory and a warp's are side by side. Vectors have 4 elements in frag and
        rowwise (fewer where a thread's registers are no multiple of 4) and v in spread(v), whose ``lin`` order is
        therefore row-major, as is that of quad."""
        if self.layout.kind in ("uniform", "perwarp", "quad"):
            row, col = self.element(thread, register) or (0, 0)
            return row * self.cols + col
        vector = self.lin_vector
        return ((register // vector) * self.threads + thread) * vector + register % vector

    @property
    def lin_vector(self) -> int:
        """Consecutive numbers that consecutive registers have in ``lin`` order."""
        if self.layout.kind == "spread":
            return self.layout.vector
        return self.run if self.layout.kind == "quad" else math.gcd(4, self.count)

    @property
    def run(self) -> int:
        """Consecutive columns that consecutive registers hold: the access width in elements (language.md 1.8.6)."""
        if self.layout.kind == "frag":
            return 1 if self.cols in (1, QUAD) else 2
        if self.layout.kind == "quad":
            most = math.gcd(self.part, self.cols)
            return 1 if self.cols == 1 else most & -most
        if self.layout.kind in ("rowwise", "uniform"):
            return self.cols
        return 1 if self.cols == 1 or self.layout.kind == "perwarp" else self.layout.vector


def register_map(tile: TileType, threads: int) -> RegisterMap:
    """The register map of the last two axes of ``tile`` for an instance of ``threads`` threads."""
    return RegisterMap(tile.rows, tile.cols, tile.layout, threads)


def spread_stands_opposite(tile: TileType, part: tuple[int, int], col: int, domain: RegisterMap) -> bool:
    """Whether the thread that has an element of ``domain`` (spread) has the element of ``tile`` that broadcasts to it too. ``part``
    is the shape of the part of the tile that is read, ``col`` its first column. Elements are dealt in rounds of the threads'
    vectors, so a tile of one shape is dealt alike, one element is everybody's, and rows go with rows where they are whole rounds."""
    if part == (1, 1) == (tile.rows, tile.cols) or part == (domain.rows, domain.cols) == (tile.rows, tile.cols):
        return True
    wave = domain.threads * domain.layout.vector
    return part[1] == domain.cols and not (tile.cols % wave or col % wave or domain.cols % wave)


def shape_problem(tile: TileType, warps: int) -> str | None:
    """Why ``tile`` cannot exist in an instance of ``warps`` warps, in a few words; None if it can."""
    if len(tile.shape) < 2:
        return "a register tile needs rows and columns"
    if any(n < 1 for n in tile.shape):
        return "every extent must be at least 1"
    rows, cols, kind = tile.rows, tile.cols, tile.layout.kind
    if kind == "frag":
        if warps not in (1, 4):
            return "frag tiles need instances of 1 or 4 warps"
        if rows != 1 and rows % (16 * warps):
            return f"frag rows must be a multiple of {16 * warps} for {warps} warps"
        if cols not in (1, QUAD) and cols % 8:
            return "frag columns must be a multiple of 8"
    elif kind == "quad":
        if warps not in (1, 4):
            return "quad tiles need instances of 1 or 4 warps"
        if rows != 1 and rows % (16 * warps):
            return f"quad rows must be a multiple of {16 * warps} for {warps} warps"
    elif kind == "rowwise":
        if warps != 4:
            return "rowwise tiles need instances of 4 warps"
        if rows != 1 and rows % 128:
            return "rowwise rows must be a multiple of 128"
    else:
        if tile.layout.vector < 1 or tile.layout.vector & (tile.layout.vector - 1):
            return "the vector of spread(v) must be a power of two"
        if (rows, cols) != (1, 1) and cols % tile.layout.vector:
            return f"spread columns must be a multiple of the vector {tile.layout.vector}"
    return None
