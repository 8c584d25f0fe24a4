"""Shadow memory: for each byte of shared memory and each element of a written tensor, the last write and the reads
since.

Bytes that were always accessed together share a cell; a region that cuts through a cell splits it. Regions recur
(slots of a ring), so after the first round the cells no longer change and an access costs what its region has in cells.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from math import prod
from typing import Literal

import numpy as np

from cake.machine import events as ev


@dataclass(slots=True, eq=False)
class Access:
    """One access of a thread or of an asynchronous operation. ``column`` and ``number`` place it in its agent's
    program (an operation: its issue) within its ``batch`` of clusters; ``bit`` is the operation's place in the sets, None
    for a thread's access. ``lanes``: both halves of the warp make it. ``stale``: the agent fenced after its last release
    and before this access, so the fence was meant for it and comes too early."""

    agent: ev.Agent
    column: int
    number: int
    site: ev.Site | None
    effect: ev.Effect
    batch: int
    op: ev.AsyncOp | None = None
    bit: int | None = None
    queue: str | None = None
    lanes: bool = False
    atomic: bool = False
    stale: bool = False
    unwritten: bool = False

    @property
    def writes(self) -> bool:
        """It changes memory."""
        return self.effect.mode != "r"

    @property
    def asynchronous(self) -> bool:
        """It goes through the async proxy."""
        return self.effect.proxy == "async"


ReadKey = tuple[Literal["thread", "early", "op"], int]


@dataclass(slots=True, eq=False)
class Cell:
    """What is known of some bytes: the last write and the reads since. Where a whole warp writes, its halves come one
    after the other, so both halves' last writes are kept, and ``pending`` holds for each half what it has yet to be
    compared with."""

    size: int
    writes: list[Access] = field(default_factory=list)
    reads: dict[ReadKey, Access] = field(default_factory=dict)
    pending: dict[str, list[Access]] = field(default_factory=dict)

    def split(self, size: int) -> Cell:
        """Take ``size`` bytes out of this cell into a new one."""
        self.size -= size
        pending = {half: list(accesses) for half, accesses in self.pending.items()}
        return Cell(size, list(self.writes), dict(self.reads), pending)

    def read(self, access: Access) -> None:
        """Remember a read; an agent's later read stands for its earlier ones, but one that came before any write is
        kept."""
        if not self.writes:
            access.unwritten = True
        if access.bit is not None:
            self.reads["op", access.bit] = access
        else:
            self.reads["early" if access.unwritten else "thread", access.column] = access

    def rivals(self, access: Access) -> list[Access]:
        """Earlier accesses that ``access`` may conflict with."""
        if not access.writes:
            return self.writes
        if self._goes_on(access):
            return [*self.pending.get(access.agent.half, ()), *self.reads.values()]
        return [*self.writes, *self.reads.values()]

    def _goes_on(self, access: Access) -> bool:
        """The last write was by lanes of the same warp: the halves of one sequence of writes."""
        return access.lanes and bool(self.writes) and self.writes[0].lanes and same_warp(self.writes[0], access)

    def write(self, access: Access) -> None:
        """Remember a write."""
        half = access.agent.half
        other = "R" if half == "L" else "L"
        reads = list(self.reads.values())
        self.reads = {}
        if self._goes_on(access):
            self.pending[half] = []
            self.pending.setdefault(other, []).extend(reads)
            self.writes = [*(w for w in self.writes if w.agent.half != half), access]
            return
        self.pending = {other: [*self.writes, *reads]} if access.lanes else {}
        self.writes = [access]


def same_warp(a: Access, b: Access) -> bool:
    """Both were made by (or issued by) one warp."""
    return a.agent.cta == b.agent.cta and a.agent.warp == b.agent.warp


class Space:
    """One linear memory: the bytes of a CTA's shared memory, or the elements of a tensor."""

    def __init__(self, size: int) -> None:
        self.owner = np.zeros(size, dtype=np.int32)
        self.cells = [Cell(size)]
        self.known: dict[ev.Spans, tuple[int, list[Cell]]] = {}

    def at(self, spans: ev.Spans) -> list[Cell]:
        """The cells that make up ``spans``, splitting those that reach beyond. A cell that has been split since is smaller,
        so the sizes tell whether what is known still makes up the whole."""
        found = self.known.get(spans)
        if found is not None:
            size, cells = found
            for cell in cells:
                size -= cell.size
            if size == 0:
                return cells
        cells = self._cut(spans)
        self.known[spans] = sum(cell.size for cell in cells), cells
        return cells

    def _cut(self, spans: ev.Spans) -> list[Cell]:
        if not spans:
            return []
        where = slice(*spans[0]) if len(spans) == 1 else places(spans)
        owners = self.owner[where]
        first = self.cells[int(owners[0])]
        if (owners == owners[0]).all():  # all of one cell, or a piece of it
            if first.size == owners.size:
                return [first]
            self.owner[where] = len(self.cells)
            self.cells.append(first.split(owners.size))
            return [self.cells[-1]]
        result = []
        cut = False
        for number, count in _counts(owners):
            cell = self.cells[number]
            if count != cell.size:
                cell = cell.split(count)
                owners = np.where(owners == number, len(self.cells), owners)
                self.cells.append(cell)
                cut = True
            result.append(cell)
        if cut:
            self.owner[where] = owners
        return result


def _counts(owners: np.ndarray) -> list[tuple[int, int]]:
    """The numbers that occur, rising, and how often: at a cost that does not grow with the cells there are."""
    if owners.size <= 8:
        few = owners.tolist()
        return [(number, few.count(number)) for number in sorted(set(few))]
    ordered = np.sort(owners)
    edges = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
    starts = [0, *edges.tolist(), ordered.size]
    return [(int(ordered[lo]), hi - lo) for lo, hi in pairwise(starts)]


@lru_cache(maxsize=4096)
def places(spans: ev.Spans) -> np.ndarray:
    """All numbers in some intervals."""
    bounds = np.asarray(spans, dtype=np.int64)
    sizes = bounds[:, 1] - bounds[:, 0]
    skipped = bounds[:, 0] - np.concatenate(([0], np.cumsum(sizes)[:-1]))
    return np.repeat(skipped, sizes) + np.arange(int(sizes.sum()))


def box_spans(box: tuple[tuple[int, int], ...], shape: tuple[int, ...]) -> ev.Spans:
    """The row-major element numbers of a box."""
    if any(hi <= lo for lo, hi in box):
        return ()
    strides = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
    *outer, (lo, hi) = box
    grid = np.zeros(1, dtype=np.int64)
    for (start, stop), stride in zip(outer, strides, strict=False):
        grid = (grid[:, None] + np.arange(start, stop) * stride).ravel()
    return ev.spans_of((grid + lo).tolist(), hi - lo)


class Memory:
    """The shared memories of the simulated CTAs, and the tensors that the kernel writes. ``before``: what earlier batches of
    clusters did to the tensors."""

    def __init__(
        self, shared_bytes: int, shapes: dict[str, tuple[int, ...]], before: dict[int | str, Space] | None = None
    ) -> None:
        self.shared_bytes = shared_bytes
        self.shapes = shapes
        self.spaces: dict[int | str, Space] = before or {}
        self.boxes: dict[ev.GlobalRegion, ev.Spans] = {}

    def tensors(self) -> dict[int | str, Space]:
        """What has been done to the tensors."""
        return {name: space for name, space in self.spaces.items() if isinstance(name, str)}

    def cells(self, region: ev.Region) -> list[Cell]:
        """The cells of a region; none for registers and for tensors that nothing writes."""
        if isinstance(region, ev.SharedRegion):
            space = self.spaces.get(region.cta)
            if space is None:
                space = self.spaces[region.cta] = Space(self.shared_bytes)
            return space.at(region.spans)
        if isinstance(region, ev.GlobalRegion):
            shape = self.shapes.get(region.tensor)
            if shape is None:
                return []
            space = self.spaces.get(region.tensor)
            if space is None:
                space = self.spaces[region.tensor] = Space(prod(shape))
            return space.at(self.numbers(region))
        return []

    def numbers(self, region: ev.GlobalRegion) -> ev.Spans:
        """The row-major numbers of the elements that a region names."""
        if region.spans is not None:
            return region.spans
        assert region.box is not None
        spans = self.boxes.get(region)
        if spans is None:
            spans = self.boxes[region] = box_spans(region.box, self.shapes[region.tensor])
        return spans
