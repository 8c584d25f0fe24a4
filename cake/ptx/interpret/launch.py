"""What a launch gives the code: grid, parameters, tensors and tensor maps, and where they lie in the address space.

Addresses are invented, but behave as the ISA says (PTX ISA 5.1.6, 5.1.7): tensor i starts at ``i + 1 << TENSOR``, a
tensor map at ``MAP + number``, shared memory of every CTA at ``SHARED``, and ``mapa`` puts ``rank + 1`` into the bits
from ``RANK`` up, so that an address of the CTA's own window also works where a cluster address is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass

TENSOR = 40
"""Bits of the offset in a tensor."""
MAP = 1 << 60
SHARED = 1024
RANK = 24


@dataclass(frozen=True)
class Tensor:
    """A tensor in global memory: ``size`` bytes, contents (little-endian; None: no values are known), and whether the
    launch promises not to write it."""

    name: str
    size: int
    data: bytes | None = None
    constant: bool = False


@dataclass(frozen=True)
class TensorMap:
    """A tiled tensor map of ``tensor`` (its place among the launch's tensors); axes from the innermost outwards;
    ``strides`` are bytes of all axes but the innermost, ``element`` and ``swizzle`` bytes (PTX ISA 5.5)."""

    tensor: int
    element: int
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int = 0

    @property
    def bytes(self) -> int:
        """Bytes of a box, which is what a copy completes, also where the box leaves the tensor."""
        total = self.element
        for n in self.box:
            total *= n
        return total


@dataclass(frozen=True)
class Pointer:
    """A parameter that points at a tensor."""

    tensor: int


Parameter = int | float | Pointer | TensorMap | None
"""The value of a kernel parameter; None is not known."""


@dataclass(frozen=True)
class Launch:
    """One launch, of which the first ``ctas`` CTAs are run. ``grid``: how many it has (default: those). ``registers``: of
    each thread at the start (None: setmaxnreg does not block)."""

    parameters: tuple[Parameter, ...]
    tensors: tuple[Tensor, ...]
    ctas: int
    threads: int
    shared: int
    cluster: int = 1
    registers: int | None = None
    grid: int | None = None

    def maps(self) -> dict[int, TensorMap]:
        """Tensor maps by address."""
        return {MAP + i: p for i, p in enumerate(self.parameters) if isinstance(p, TensorMap)}

    def value(self, i: int) -> int | None:
        """What a load of parameter ``i`` (or its address, for a tensor map) gives."""
        p = self.parameters[i]
        if isinstance(p, Pointer):
            return p.tensor + 1 << TENSOR
        if isinstance(p, TensorMap):
            return MAP + i
        return p if type(p) is int else None
