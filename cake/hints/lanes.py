"""Which lanes of a warp reach which elements in each instruction of a move.

A move of a register tile is a sequence of instructions: each takes the next ``width`` registers of every thread, which lie side
by side in memory. The layout says which element a register of a thread holds (``cake.ir.layout``), the emitter how many it
takes at once (``cake.codegen.emit.access_widths``), the machine where each element lies (``cake.machine.footprints``).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from cake.ir.layout import WARP, Layout, RegisterMap
from cake.machine import owners
from cake.machine.elementwise import Array
from cake.machine.footprints import Footprint

MATRIX = 8
"""Rows and columns of one matrix of ldmatrix and stmatrix; a row is 16 bytes (PTX ISA 9.7.14.5.15)."""


@dataclass(frozen=True)
class Requests:
    """Instructions of warps: ``first[i, l]`` is the number of the first element that lane l reaches in instruction i, if
    ``active[i, l]``, and ``width`` the number of elements from there on. ``lanes`` is 8 where a row of a matrix stands for
    each lane (ldmatrix, stmatrix), else 32. ``loads``: of whole vectors, whose equal neighbours are served together."""

    first: Array
    active: Array
    width: int
    loads: bool = False

    @property
    def lanes(self) -> int:
        """Addresses an instruction."""
        return int(self.first.shape[1])


@lru_cache(maxsize=64)
def held(rows: int, cols: int, layout: Layout, threads: int) -> tuple[Array, Array, Array]:
    """Row and column of register r of thread t, and whether there is such an element, as arrays [threads, registers]."""
    registers = RegisterMap(rows, cols, layout, threads)
    at = np.zeros((2, threads, registers.count), dtype=np.int64)
    valid = np.zeros((threads, registers.count), dtype=bool)
    for thread in range(threads):
        for register in range(registers.count):
            where = registers.element(thread, register)
            if where is not None:
                at[:, thread, register] = where
                valid[thread, register] = True
    return at[0], at[1], valid


def element_requests(found: Footprint, threads: int, width: int, *, stores: bool) -> Requests:
    """The instructions of a load or store of ``width`` elements an access by an instance of ``threads`` threads. A value that
    several threads hold is stored by the first of them."""
    tile = found.domain
    rows, cols, valid = held(tile.rows, tile.cols, tile.layout, threads)
    if stores:
        first = owners.owner(tile.rows, tile.cols, tile.layout, threads // WARP)
        valid = valid & (first[rows, cols] == np.arange(threads)[:, None])
    numbers = found.numbers.reshape(-1, tile.rows, tile.cols)
    masks = None if found.mask is None else found.mask.reshape(-1, tile.rows, tile.cols)
    firsts: list[Array] = []
    actives: list[Array] = []
    for lead in range(len(numbers)):
        active = valid if masks is None else valid & masks[lead][rows, cols]
        for out, array in ((firsts, numbers[lead][rows, cols]), (actives, active)):
            starts = array[:, ::width]
            out.append(starts.reshape(threads // WARP, WARP, -1).swapaxes(1, 2).reshape(-1, WARP))
    return Requests(np.concatenate(firsts), np.concatenate(actives), width, loads=not stores)


def matrix_requests(found: Footprint, *, transposed: bool) -> Requests:
    """The rows of the 8x8 matrices of an ldmatrix or stmatrix: one address each, of 8 elements side by side in memory."""
    tile = found.domain
    numbers = found.numbers.reshape(-1, tile.rows, tile.cols)
    if transposed:
        numbers = numbers.swapaxes(-1, -2)
    starts = numbers[:, :, ::MATRIX]
    first = starts.reshape(len(numbers), -1, MATRIX, starts.shape[-1]).swapaxes(-1, -2).reshape(-1, MATRIX)
    return Requests(first, np.ones_like(first, dtype=bool), MATRIX)
