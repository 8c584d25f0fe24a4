"""Which warp, which thread and which ``lin`` number each element of a tile has, as arrays over the tile.

The same facts as ``cake.ir.layout.RegisterMap`` says element by element (a test compares them), for whole tiles at
once.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from cake.ir.layout import QUAD, WARP, Layout, RegisterMap, TileType
from cake.machine.elementwise import Array


@cache
def owner(rows: int, cols: int, layout: Layout, warps: int) -> Array:
    """The first thread that holds each element, [rows, cols]."""
    r = np.arange(rows, dtype=np.int64)[:, None]
    c = np.arange(cols, dtype=np.int64)[None, :]
    kind, threads = layout.kind, WARP * warps
    if kind == "frag":
        lane = c if cols == QUAD else np.zeros_like(c) if cols == 1 else (c // 2) % QUAD
        thread = WARP * ((r // 16) % warps) + QUAD * (r % 8) + lane
    elif kind == "quad":
        lane = c // -(-cols // QUAD) if cols > 1 else np.zeros_like(c)
        thread = WARP * ((r // 16) % warps) + QUAD * (r % 8) + lane
    elif kind == "rowwise":
        thread = r % 128 + 0 * c
    elif kind == "perwarp":
        thread = WARP * c + 0 * r
    elif kind == "uniform" or (rows == 1 and cols == 1):
        thread = 0 * r + 0 * c
    else:
        thread = ((r * cols + c) // layout.vector) % threads
    return np.broadcast_to(thread, (rows, cols))


def replicated(rows: int, cols: int, layout: Layout) -> bool:
    """True if every warp may hold the same element: an axis of size 1, or a uniform tile."""
    if layout.kind == "uniform":
        return True
    return rows == 1 and (layout.kind in ("frag", "quad", "rowwise") or cols == 1)


@cache
def held_by(rows: int, cols: int, layout: Layout, warps: int, warp: int, first_only: bool) -> Array | None:
    """Where ``warp`` holds (``first_only``: is the first holder of) the elements, [rows, cols]; None for everywhere."""
    if warps == 1 or (not first_only and replicated(rows, cols, layout)):
        return None
    result: Array = owner(rows, cols, layout, warps) // WARP == warp
    return result


@cache
def lin(rows: int, cols: int, layout: Layout, warps: int) -> Array:
    """The ``lin`` number of each element, [rows, cols], int32."""
    if layout.kind in ("spread", "uniform", "perwarp", "quad"):
        return np.arange(rows * cols, dtype=np.int32).reshape(rows, cols)
    numbers = np.zeros((rows, cols), dtype=np.int32)
    registers = RegisterMap(rows, cols, layout, WARP * warps)
    for thread in range(WARP * warps):
        for register in range(registers.count):
            where = registers.element(thread, register)
            if where is not None:
                numbers[where] = registers.lin(thread, register)
    return numbers


def holders(tile: TileType, warps: int, warp: int, first_only: bool = False) -> Array | None:
    """``held_by`` for the last two axes of ``tile``."""
    return held_by(tile.rows, tile.cols, tile.layout, warps, warp, first_only)
