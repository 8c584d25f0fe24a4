"""Which bytes an operation touches, as numbers of pieces: boxes, wgmma operands, ldmatrix rows, elements of lanes."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from cake.ptx.interpret.launch import TensorMap
from cake.ptx.interpret.outcome import Undecided

Region = npt.NDArray[np.int64]

_SWIZZLE = {0: 0, 1: 128, 2: 64, 3: 32}
"""Of a wgmma matrix descriptor, bits 62-63 (9.7.15.5.1.2)."""


@lru_cache(maxsize=4096)
def span(start: int, size: int, piece: int) -> Region:
    """Consecutive bytes."""
    return np.arange(start // piece, (start + size - 1) // piece + 1, dtype=np.int64)


@lru_cache(maxsize=65536)
def elements(addresses: tuple[int, ...], size: int, piece: int) -> Region:
    """``size`` bytes at each address, each piece once."""
    starts = np.array(addresses, np.int64) // piece
    if size <= piece:
        return np.unique(starts)
    return np.unique(starts[:, None] + np.arange(size // piece))


@lru_cache(maxsize=4096)
def box(m: TensorMap, coordinates: tuple[int, ...], piece: int) -> Region:
    """The part of a box that lies in the tensor, in bytes from the tensor's start."""
    rows = np.zeros(1, np.int64)
    steps = (m.element, *m.strides)
    lo, hi = max(coordinates[0], 0), min(coordinates[0] + m.box[0], m.extents[0])
    if hi <= lo:
        return np.zeros(0, np.int64)
    for axis in range(1, len(m.box)):
        at = np.arange(coordinates[axis], coordinates[axis] + m.box[axis], dtype=np.int64)
        at = at[(at >= 0) & (at < m.extents[axis])] * steps[axis]
        rows = (rows[:, None] + at).reshape(-1)
    first = (rows + lo * m.element) // piece
    count = -(-(hi - lo) * m.element // piece)
    return (first[:, None] + np.arange(count)).reshape(-1)


def _swizzled(addresses: Region, swizzle: int) -> Region:
    """The swizzle modes exchange 16-byte chunks by the bits of the address above 128 bytes (5.5.7)."""
    bits = {0: 0, 32: 1, 64: 3, 128: 7}[swizzle]
    return addresses ^ (addresses >> 3 & bits << 4)


@lru_cache(maxsize=8192)
def operand(descriptor: int, rows: int, k_bytes: int, element: int, transposed: bool, piece: int) -> Region:
    """A wgmma operand of ``rows`` (M or N) by ``k_bytes`` of K (9.7.15.5.1).

    K-major: 8-row groups are a stride offset apart, rows a swizzle width. MN-major (``transposed``): groups of 8 k are
    a stride offset apart, k a swizzle width, and blocks of a swizzle width along M or N a leading offset.
    """
    start = (descriptor & 0x3FFF) << 4
    leading = (descriptor >> 16 & 0x3FFF) << 4
    stride = (descriptor >> 32 & 0x3FFF) << 4
    swizzle = _SWIZZLE[descriptor >> 62 & 3]
    if not swizzle:
        raise Undecided("a wgmma operand without a swizzle")
    if not transposed:
        r = np.arange(rows)
        lines = r // 8 * stride + r % 8 * swizzle
        chunks = np.arange(0, k_bytes, 16)
    else:
        k = np.arange(k_bytes // element)
        lines = k // 8 * stride + k % 8 * swizzle
        at = np.arange(0, rows * element, 16)
        chunks = at // swizzle * leading + at % swizzle
    # the start may lie inside a row of the pattern: chunks advance from there before the exchange
    addresses = _swizzled((start + lines[:, None] + chunks).reshape(-1), swizzle)
    return np.unique(addresses[:, None] // piece + np.arange(16 // piece))
