"""Where each element of a move lies, for observers that ask which lanes of a warp reach which bytes.

The event stream says which bytes a warp touches in a step, which is all that order needs. How they fall on banks and sectors
takes more: the place of every single element. An observer that has a method ``moved(site, footprint)`` is told of each
dynamic step of an operation that moves elements, once for the instance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cake.ir.layout import TileType
from cake.machine.elementwise import Array
from cake.machine.meanings.base import Meaning
from cake.machine.meanings.matrix import LdMatrix
from cake.machine.meanings.moves import Move
from cake.machine.references import BlockReference, Box, ElementReference, Elements

if TYPE_CHECKING:
    from cake.machine.instance import Instance
    from cake.machine.tape import Step


@dataclass(slots=True, frozen=True)
class Footprint:
    """The memory side of one step. ``numbers``: for each element of the domain the row-major number of its element in the
    tensor, or in its tile of the shared buffer; ``mask``: where the predicate holds (None: everywhere); ``start``: the first byte
    of that tile in shared memory (None for a tensor)."""

    base: str
    domain: TileType
    numbers: Array
    mask: Array | None
    start: int | None


def footprint(meaning: Meaning, inst: Instance, step: Step) -> Footprint | None:
    """The footprint of a step whose first agent has come; None for what moves no tile of elements, and for memory of a
    peer."""
    place: Box | Elements
    if isinstance(meaning, LdMatrix):
        reference: BlockReference | ElementReference = meaning.src
        domain, place, mask = meaning.domain, step.data, None
    elif isinstance(meaning, Move) and meaning.domain is not None and step.result is not None:
        reference, domain = meaning.reference, meaning.domain
        place, mask = step.result[:2]
    else:
        return None
    if reference.peer is not None:
        return None
    tile = place.tile
    if tile is None:
        extents, start = inst.machine.memory[reference.ref.base].shape, None
    else:
        layout = reference.layout(inst)
        extents, start = layout.buffer.shape, layout.start(tile.instance, tile.slot)
    if isinstance(place, Box):
        index = np.ix_(*[np.arange(s, s + n) for s, n in zip(place.starts, place.sizes, strict=True)])
        assert isinstance(reference, BlockReference)
        numbers = np.asarray(np.ravel_multi_index(index, extents)).reshape(reference.shape)
        numbers = numbers.swapaxes(-1, -2) if reference.ref.transposed else numbers
    else:
        shaped = np.broadcast_arrays(*place.index, np.empty(domain.shape, dtype=np.int8))[:-1]
        numbers = np.asarray(np.ravel_multi_index(tuple(i.astype(np.int64) for i in shaped), extents))
    if mask is not None:
        mask = np.broadcast_to(mask, domain.shape)
    return Footprint(reference.ref.base, domain, np.broadcast_to(numbers, domain.shape), mask, start)
