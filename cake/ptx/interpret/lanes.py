"""Lanes of a strand that cross in shared memory: program order is of one thread (PTX ISA 8.9.1), so until the lanes have met
(``bar.warp.sync``, a barrier, or a message that comes back to all of them) each has to keep to what it touched itself.

For each piece it is kept which lane wrote it last and which has read it since, as far as the lanes have not met.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cake.ptx.interpret.regions import Region

Lanes = npt.NDArray[np.int64]
NOBODY, SEVERAL, ATOMIC = 255, 254, 253


class Apart:
    """``dirty``: the epoch of the last access that is kept; -1: none is."""

    def __init__(self, pieces: int) -> None:
        self.writer = np.full(pieces, NOBODY, np.uint8)
        self.reader = np.full(pieces, NOBODY, np.uint8)
        self.dirty = -1

    def copy(self) -> Apart:
        """For lanes that go their own way."""
        out = Apart(0)
        out.writer, out.reader, out.dirty = self.writer.copy(), self.reader.copy(), self.dirty
        return out

    def heard(self, epoch: int) -> None:
        """All lanes know what all had done up to ``epoch``."""
        if 0 <= self.dirty <= epoch:
            self.writer.fill(NOBODY)
            self.reader.fill(NOBODY)
            self.dirty = -1

    def read(self, region: Region, lanes: Lanes, epoch: int) -> bool:
        """Lanes read pieces; whether one of them reads what another has written."""
        crossed = self.dirty >= 0 and _others(self.writer[region], lanes)
        _set(self.reader, region, lanes, keep=True)
        self.dirty = epoch
        return crossed

    def overwrites(self, region: Region, lanes: Lanes, *, atomic: bool = False) -> bool:
        """Whether a lane writes what another has written, or may yet read."""
        if self.dirty < 0:
            return False
        writer = self.writer[region]
        if atomic:
            writer[writer == ATOMIC] = NOBODY
        return _others(writer, lanes) or _others(self.reader[region], lanes)

    def write(self, region: Region, lanes: Lanes, epoch: int, *, atomic: bool = False) -> bool:
        """Lanes write pieces; whether they overwrite what is another's."""
        crossed = self.overwrites(region, lanes, atomic=atomic)
        _set(self.writer, region, np.full_like(lanes, ATOMIC) if atomic else lanes, keep=False)
        self.reader[region] = NOBODY
        self.dirty = epoch
        return crossed


def _others(known: npt.NDArray[np.uint8], lanes: Lanes) -> bool:
    return bool(((known != NOBODY) & ((known != lanes) | (known == SEVERAL))).any())


def _set(table: npt.NDArray[np.uint8], region: Region, lanes: Lanes, *, keep: bool) -> None:
    """Note lanes; pieces that several touch in one instruction, or (``keep``) have touched before, are of several."""
    before = table[region]
    table[region] = lanes
    mixed = table[region] != lanes
    if keep:
        mixed |= (before != NOBODY) & (before != lanes)
    table[region[mixed]] = SEVERAL


def spread(addresses: list[int], lanes: list[int], size: int, piece: int) -> tuple[Region, Lanes]:
    """Pieces of ``size`` bytes at each address, and the lane of each."""
    starts = np.array(addresses, np.int64) // piece
    count = max(size // piece, 1)
    region = (starts[:, None] + np.arange(count)).reshape(-1)
    return region, np.repeat(np.array(lanes, np.int64), count)


def matrix(rows: list[int], piece: int, *, transposed: bool) -> tuple[Region, Lanes]:
    """Pieces of rows of 8 x 8 matrices (ldmatrix, stmatrix: 9.7.14.5.15), and the lane that holds each: row r has 4 bytes of
    each of lanes 4 r to 4 r + 3; ``transposed``, 2 bytes of each of eight."""
    at = np.array(rows, np.int64)[:, None] // piece + np.arange(16 // piece)
    row = np.arange(len(rows))[:, None] % 8
    byte = np.arange(0, 16, piece)
    exact = 2 if transposed else 4
    lanes = 4 * (byte // 2) + row // 2 if transposed else 4 * row + byte // 4
    held = np.broadcast_to(lanes if piece <= exact else np.full_like(lanes, SEVERAL), at.shape)
    return at.reshape(-1), held.reshape(-1).astype(np.int64)
