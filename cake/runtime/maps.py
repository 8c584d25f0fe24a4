"""TMA descriptors (tensor maps): what the driver is told about a tensor, computed by a pure function, and a small
cache of the encoded 128 bytes.

The driver counts axes from the innermost outwards; Cake's shapes are row-major, so every list is reversed here and
only here. What lies outside the tensor reads as zero.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cake.ir.dtypes import DTYPES
from cake.ir.expanded import TensorMap
from cake.runtime import errors
from cake.runtime.tensors import View, row_major_strides

if TYPE_CHECKING:
    from cake.runtime.driver import Driver

MAP_BYTES = 128
MAP_ALIGNMENT = 64


@dataclass(frozen=True)
class MapArguments:
    """The arguments of cuTensorMapEncodeTiled, innermost axis first; ``strides`` are bytes of all axes but the
    innermost. ``data_type`` ends the driver's name of it; ``swizzle`` and ``l2_promotion`` are bytes."""

    data_type: str
    pointer: int
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int
    l2_promotion: int


def tensor_map_arguments(tensor_map: TensorMap, view: View) -> MapArguments:
    """What to tell the driver about ``view`` as seen through ``tensor_map``; R012 if the hardware cannot take it."""

    def refuse(why: str, help: str, *facts: str) -> Exception:
        return errors.error(errors.TENSOR_MAP, f"`{tensor_map.tensor}` cannot be moved by TMA: {why}.", help, *facts)

    element = DTYPES[view.dtype]
    rank = len(view.shape)
    if element.tensor_map is None:
        raise refuse(f"TMA has no {view.dtype}", "load it with element moves")
    if len(tensor_map.box) != rank or not 1 <= rank <= 5:
        raise refuse(f"its map has {len(tensor_map.box)} axes, the tensor {rank}", "TMA takes 1 to 5 axes")
    if view.pointer % 16:
        raise errors.error(
            errors.ALIGNMENT,
            f"`{tensor_map.tensor}` starts at an address that is no multiple of 16 bytes, which TMA needs.",
            "pass a tensor that starts at an aligned element, or a copy",
            f"address {view.pointer:#x}",
        )
    contiguous = row_major_strides(view.shape)
    strides = tuple(  # an axis of extent 1 is never stepped, whatever stride the framework gives it
        (s if n != 1 else c) * element.bytes
        for n, s, c in zip(view.shape[:-1], view.strides[:-1], contiguous[:-1], strict=True)
    )
    for axis, (extent, box) in enumerate(zip(view.shape, tensor_map.box, strict=True)):
        if not 1 <= extent < 1 << 32:
            raise refuse(f"axis {axis} has extent {extent}", "extents are 1 to 2**32 - 1")
        if not 1 <= box <= 256:
            raise refuse(f"its box has {box} elements on axis {axis}", "a box has at most 256 elements an axis")
    for axis, stride in enumerate(strides):
        if stride % 16 or not 0 <= stride < 1 << 40:
            raise refuse(
                f"a step along axis {axis} is {stride} bytes",
                "strides must be multiples of 16 bytes: pad the rows, or guard the extent with `where`",
                f"shape {list(view.shape)}, {element.bytes} bytes an element",
            )
    row = tensor_map.box[-1] * element.bytes
    if row % 16:
        raise refuse(f"a row of its box is {row} bytes", "rows of a box are multiples of 16 bytes")
    if tensor_map.swizzle and row > tensor_map.swizzle:
        raise refuse(
            f"a row of its box is {row} bytes, wider than its swizzle of {tensor_map.swizzle}", "narrow the box"
        )
    return MapArguments(
        data_type=element.tensor_map,
        pointer=view.pointer,
        extents=tuple(reversed(view.shape)),
        strides=tuple(reversed(strides)),
        box=tuple(reversed(tensor_map.box)),
        swizzle=tensor_map.swizzle,
        l2_promotion=256 if row >= 128 else 128,
    )


class MapCache:
    """The most recently used encoded maps, by map and tensor, so that a tensor that stays is not looked at again."""

    def __init__(self, driver: Driver, capacity: int = 256) -> None:
        self._driver = driver
        self._capacity = capacity
        self._entries: OrderedDict[tuple[str, str, View], bytes] = OrderedDict()

    def encode(self, tensor_map: TensorMap, view: View, dtype: str) -> bytes:
        """The 128 bytes of the map of ``view``, whose elements the kernel takes as ``dtype``."""
        key = (tensor_map.name, dtype, view)
        found = self._entries.pop(key, None)
        if found is None:
            typed = view if view.dtype == dtype else replace(view, dtype=dtype)
            found = self._driver.encode_tiled(tensor_map_arguments(tensor_map, typed), tensor_map.tensor)
            if len(self._entries) >= self._capacity:
                self._entries.popitem(last=False)
        self._entries[key] = found
        return found
