"""Launch parameters in memory: where each one lies, and how values get there.

The driver takes an array of pointers, one a parameter, and copies what they point at during the launch. All
parameters of a call lie in one block, tensor maps at multiples of 64 bytes as the hardware requires, the rest at
their own alignment.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cake.ir import expanded as x
from cake.ir.dtypes import numpy_dtype
from cake.runtime import errors
from cake.runtime.maps import MAP_ALIGNMENT, MAP_BYTES


@dataclass(frozen=True)
class Slot:
    """One parameter: what it carries and its place in the block. ``axis`` is a stride's axis."""

    kind: str
    name: str
    offset: int
    bytes: int
    axis: int = 0
    dtype: str = "i32"


@dataclass(frozen=True)
class Layout:
    """All parameters of a kernel."""

    slots: tuple[Slot, ...]
    bytes: int


_INTEGERS = {4: "<i", 8: "<q"}


def layout(kernel: x.Kernel, parameters: Sequence[Any]) -> Layout:
    """Place the ``ParameterInfo`` of an artifact in order."""
    scalars = {s.name: s.dtype for s in kernel.scalars}
    slots: list[Slot] = []
    at = 0
    for p in parameters:
        at += -at % (MAP_ALIGNMENT if p.kind == "map" else p.bytes)
        slots.append(Slot(p.kind, p.name, at, p.bytes, p.axis or 0, scalars.get(p.name, "i32")))
        at += p.bytes
    return Layout(tuple(slots), at)


class Block:
    """The parameters of one call and the array of pointers to them. Never changed once filled, so that launches of
    several threads cannot mix."""

    def __init__(self, layout: Layout) -> None:
        self._room = (ctypes.c_char * (layout.bytes + MAP_ALIGNMENT))()
        base = ctypes.addressof(self._room)
        self.address = base + -base % MAP_ALIGNMENT
        self._start = self.address - base
        self.pointers = (ctypes.c_void_p * max(len(layout.slots), 1))(*(self.address + s.offset for s in layout.slots))
        self.array = ctypes.addressof(self.pointers)

    def write(self, offset: int, data: bytes) -> None:
        """Copy bytes to an offset."""
        ctypes.memmove(self.address + offset, data, len(data))

    def read(self, offset: int, size: int) -> bytes:
        """The bytes at an offset."""
        return ctypes.string_at(self.address + offset, size)


def fill(
    layout: Layout,
    pointers: Mapping[str, int],
    strides: Mapping[str, Sequence[int]],
    values: Mapping[str, Any],
    maps: Mapping[str, bytes],
    seed: int = 0,
) -> Block:
    """The block of a call. ``values`` holds dims and scalars by name, ``maps`` the encoded tensor maps by name; ``seed`` is
    that of a chaos build."""
    block = Block(layout)
    for s in layout.slots:
        if s.kind == "tensor":
            data = struct.pack("<Q", pointers[s.name])
        elif s.kind == "map":
            data = maps[s.name]
            assert len(data) == MAP_BYTES
        elif s.kind == "dim":
            data = struct.pack(_INTEGERS[s.bytes], values[s.name])
        elif s.kind == "stride":
            data = struct.pack(_INTEGERS[s.bytes], strides[s.name][s.axis])
        elif s.kind == "seed":
            data = struct.pack("<I", seed)
        elif s.kind == "scalar":
            data = scalar_bytes(values[s.name], s.dtype)
        else:
            raise errors.error(
                errors.TARGET,
                f"The artifact has a parameter of unknown kind `{s.kind}`.",
                "build the kernel again with this version of Cake",
            )
        if len(data) != s.bytes:
            raise errors.error(
                errors.TARGET,
                f"The parameter `{s.name}` takes {s.bytes} bytes, but its value has {len(data)}.",
                "build the kernel again with this version of Cake",
            )
        block.write(s.offset, data)
    return block


def scalar_bytes(value: Any, dtype: str) -> bytes:
    """The bytes of a scalar, rounded to its dtype as the device's conversion does."""
    kind = numpy_dtype(dtype).type
    data: bytes = kind(value).tobytes()
    return data
