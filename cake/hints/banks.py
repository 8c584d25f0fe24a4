"""H952: lanes of a warp that meet in a bank of shared memory.

Shared memory has 32 banks of 4 bytes (CUDA C++ Programming Guide, "Shared Memory" of compute capability 5.x and later). An
instruction is served in *phases*: all lanes at once for up to 4 bytes a lane, half a warp for 8, a quarter for 16; ldmatrix and
stmatrix take the 8 rows of a matrix at a time. A load of vectors whose lanes 2 i and 2 i + 1 read the same place, for every i,
takes twice as many lanes a phase. Lanes of a phase that reach different words of one bank wait for each other, so a phase takes
as many *wavefronts* as the fullest bank has words. (``tests/hints/wavefronts.json`` has what the counters of an H200 said.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from cake.hints.lanes import Requests
from cake.ir import expanded as x
from cake.machine.elementwise import Array
from cake.machine.memory import BufferLayout

BANKS, WORD = 32, 4
PHASE_BYTES = BANKS * WORD

PADS = (16, 8, 4, 32, 64)
"""Bytes after each row that are tried against conflicts."""

SWIZZLES = (128, 64, 32)


@dataclass(frozen=True)
class Cost:
    """Wavefronts of some instructions: ``ideal`` with one a phase, ``worst`` of a single phase."""

    instructions: int
    wavefronts: int
    ideal: int
    worst: int


def cost(layout: BufferLayout, start: int, requests: Requests) -> Cost:
    """What ``requests`` to the tile at byte ``start`` cost."""
    size = requests.width * layout.itemsize
    addresses = layout.swizzled(start + layout.addresses.reshape(-1)[requests.first])
    return of_addresses(addresses, requests.active, size, loads=requests.loads)


def of_addresses(addresses: Array, active: Array, size: int, *, loads: bool) -> Cost:
    """What instructions of ``size`` bytes a lane cost, by the byte addresses of their lanes, [instructions, lanes]."""
    lanes = addresses.shape[1]
    group = min(lanes, max(1, PHASE_BYTES // max(size, WORD)))
    paired = np.zeros(len(addresses), dtype=bool)
    if loads and group < lanes:
        even, odd = slice(0, lanes, 2), slice(1, lanes, 2)
        both = active[:, even] & active[:, odd]
        paired = (~both | (addresses[:, even] == addresses[:, odd])).all(axis=1)
    fullest = [np.zeros(0, dtype=np.int64)]
    for chosen, width in ((~paired, group), (paired, 2 * group)):
        phases, on = addresses[chosen].reshape(-1, width), active[chosen].reshape(-1, width)
        used = on.any(axis=1)
        if used.any():
            fullest.append(_fullest(phases[used], on[used], size))
    found = np.concatenate(fullest)
    return Cost(len(addresses), int(found.sum()), len(found), int(found.max(initial=0)))


def _fullest(phases: Array, active: Array, size: int) -> Array:
    """For each phase the number of different words in its fullest bank."""
    words = phases[:, :, None] // WORD + np.arange(max(1, size // WORD))
    words = np.where(active[:, :, None], words, -1).reshape(len(phases), -1)
    words.sort(axis=1)
    fresh = np.ones_like(words, dtype=bool)
    fresh[:, 1:] = words[:, 1:] != words[:, :-1]
    fresh &= words >= 0
    counts = np.zeros((len(phases), BANKS), dtype=np.int64)
    row, column = np.nonzero(fresh)
    np.add.at(counts, (row, words[row, column] % BANKS), 1)
    result: Array = counts.max(axis=1, initial=0)
    return result


# ---- ways out -------------------------------------------------------------------------------------------------------


def better(buffer: x.Buffer, accesses: Iterable[Requests], *, engines: bool) -> x.Buffer | None:
    """The buffer in another layout that all ``accesses`` find without conflicts. ``engines``: TMA or wgmma use it too, which
    takes dense rows."""
    accesses = list(accesses)
    for other in _layouts(buffer, engines):
        layout = BufferLayout(other)
        if all(_fits(other, layout, r) for r in accesses):
            costs = [cost(layout, 0, r) for r in accesses]
            if all(c.wavefronts == c.ideal for c in costs):
                return other
    return None


def _layouts(buffer: x.Buffer, engines: bool) -> Iterator[x.Buffer]:
    size = BufferLayout(buffer).itemsize
    rows = int(np.prod(buffer.shape[:-1]))
    width = buffer.shape[-1] * size
    for swizzle in SWIZZLES if engines else ():
        if swizzle != buffer.swizzle and width % swizzle == 0 and rows % 8 == 0:
            yield buffer.model_copy(update={"swizzle": swizzle, "pad": 0})
    for pad in () if engines else PADS:
        if pad % size == 0 and pad // size != buffer.pad:
            yield buffer.model_copy(update={"swizzle": 0, "pad": pad // size})


def _fits(buffer: x.Buffer, layout: BufferLayout, requests: Requests) -> bool:
    """The rows still start where vectors of this width may."""
    return (
        bool(buffer.swizzle) or len(buffer.shape) < 2 or (layout.strides[-2] % (requests.width * layout.itemsize)) == 0
    )


def layout_text(buffer: x.Buffer) -> str:
    """How a declaration says a buffer's layout."""
    return f"swizzle({buffer.swizzle})" if buffer.swizzle else f"pad({buffer.pad})" if buffer.pad else "no padding"
