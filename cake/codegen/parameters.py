"""The launch parameters of a kernel, in order: the contract between the generated code and the runtime.

Tensors (pointers), scalar parameters, dims (``int``), strides of strided tensors (``int64_t``, in elements, every
axis but the last), tensor maps (128 bytes, aligned to 64); in a chaos build its seed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cake.codegen.names import CTYPE, Names
from cake.ir import expanded as x

SEED = "chaos seed"
"""The name of the parameter that a chaos build has besides."""


@dataclass(frozen=True)
class Parameter:
    """One launch parameter. ``name`` is the IR's name of the tensor, scalar, dim or tensor map; for a stride the
    tensor's, with ``axis``; of a seed, ``chaos seed``. ``ident`` is the name in the generated code."""

    kind: Literal["tensor", "scalar", "dim", "stride", "map", "seed"]
    name: str
    ctype: str
    ident: str
    axis: int | None = None


def parameters(kernel: x.Kernel, names: Names | None = None, chaos: bool = False) -> list[Parameter]:
    """Every launch parameter of ``kernel``; ``chaos``: of its chaos build."""
    names = names or Names()
    out: list[Parameter] = []
    for t in kernel.tensors:
        const = "const " if t.direction == "in" else ""
        out.append(Parameter("tensor", t.name, f"{const}{CTYPE[t.dtype]} *", names.get("tensor", t.name)))
    for s in kernel.scalars:
        out.append(Parameter("scalar", s.name, CTYPE[s.dtype], names.get("sym", s.name)))
    for d in kernel.dims:
        out.append(Parameter("dim", d.name, "int", names.get("sym", d.name)))
    for t in kernel.tensors:
        if t.strided:
            for axis in range(len(t.shape) - 1):
                ident = names.get("stride", f"{t.name}.stride{axis}")
                out.append(Parameter("stride", t.name, "int64_t", ident, axis))
    for m in kernel.maps:
        out.append(Parameter("map", m.name, "TensorMap", names.get("map", m.name)))
    if chaos:
        out.append(Parameter("seed", SEED, "uint32_t", names.get("sym", SEED)))
    return out
