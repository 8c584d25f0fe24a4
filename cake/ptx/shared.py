"""Where data lies in shared memory, in integers: tiles in panels of a swizzle's width, and wgmma matrix descriptors.

Written from the layout rules of the expanded IR and the PTX ISA, not from the emitter.
"""

from __future__ import annotations

from collections.abc import Sequence

from cake.ptx.values import wrap

_LAYOUT = {0: 0, 128: 1, 64: 2, 32: 3}


def tile_offset(shape: Sequence[int], index: Sequence[int], size: int, swizzle: int, pad: int) -> int:
    """Byte offset of an element of a stored tile, before the swizzle's XOR. A row wider than ``swizzle`` bytes lies in
    panels of that width, one after another."""
    row = rows = 0
    rows = 1
    for extent, i in zip(shape[:-1], index[:-1], strict=True):
        row = row * extent + i
        rows *= extent
    column = index[-1]
    if not swizzle:
        return (row * (shape[-1] + pad) + column) * size
    width = swizzle // size
    return column // width * rows * swizzle + row * swizzle + column % width * size


def descriptor(address: int, leading: int, swizzle: int) -> int:
    """A wgmma matrix descriptor (9.7.15.5.1): start address, leading and stride byte offsets in units of 16 bytes,
    and the swizzle. Groups of 8 rows are 8 swizzle widths apart."""
    low = (address >> 4) | (leading >> 4) << 16
    high = (8 * swizzle >> 4) | _LAYOUT[swizzle] << 30
    return wrap(high << 32 | low, 64)


def step_offset(k: int, k_major: bool, size: int, swizzle: int, panel: int) -> int:
    """Bytes from the start of an operand to its k-th slice of 32 bytes of K."""
    if not k_major:
        return k * (32 // size) * swizzle
    per_panel = swizzle // 32
    return k // per_panel * panel + k % per_panel * 32


def block_offset(m: int, k_major: bool, size: int, swizzle: int, panel: int) -> int:
    """Bytes from the start of a left operand to its m-th block of 64 rows."""
    return m * 64 * swizzle if k_major else m * 64 * size // swizzle * panel
