"""Names of the generated CUDA: C identifiers that cannot clash, and element types."""

from __future__ import annotations

import re

from cake.ir.dtypes import DTYPES

CTYPE = {
    "f32": "float",
    "tf32": "float",
    "f16": "f16",
    "bf16": "bf16",
    "e4m3": "e4m3",
    "e5m2": "e5m2",
    "i32": "int",
    "i64": "int64_t",
    "i8": "int8_t",
    "u8": "uint8_t",
    "bool": "bool",
}
"""How an element lies in memory. The 8- and 16-bit floats are structs of their bits (device/types.cuh)."""

VALUE = {
    "i32": "int",
    "i64": "int64_t",
    "i8": "int",
    "u8": "int",
    "bool": "bool",
} | dict.fromkeys(("f32", "tf32", "f16", "bf16", "e4m3", "e5m2"), "float")
"""How a value is held while it is computed with: the narrow floats as the f32 that they convert to exactly."""

_RESERVED = frozenset(
    re.findall(
        r"\w+",
        """
        alignas alignof and asm auto bool break case catch char class const constexpr continue default delete do
        double else enum explicit extern false float for friend goto if inline int long mutable namespace new not
        operator or private protected public register return short signed sizeof static struct switch template this
        throw true try typedef typename union unsigned using virtual void volatile while xor int8_t uint8_t int16_t
        uint16_t int32_t uint32_t int64_t uint64_t bf16 f16 e4m3 e5m2 TensorMap Cursor Params min max abs threadIdx
        blockIdx blockDim gridDim warpSize lane warp thread elected one smem smem16 warp_id p instance cta grid rank
        frag_row frag_col exp2 exp log log2 sqrt rsqrt tanh erf erff NULL INFINITY NAN linux unix assert printf
        infinity
        """,
    )
)


class Names:
    """Maps (kind, IR name) to unique C identifiers, in the order of first use."""

    def __init__(self, reserved: set[str] | None = None, parent: Names | None = None) -> None:
        self._taken: set[str] = set(_RESERVED if parent is None else parent._taken) | (reserved or set())
        self._known: dict[tuple[str, str], str] = {} if parent is None else dict(parent._known)

    def get(self, kind: str, name: str) -> str:
        """The identifier of ``name``."""
        key = (kind, name)
        if key not in self._known:
            self._known[key] = self.fresh(name.upper() if kind == "constant" else name)
        return self._known[key]

    def release(self, name: str) -> None:
        """Free a name whose scope has ended."""
        self._taken.discard(name)

    def adopt(self, other: Names) -> None:
        """Take the names of ``other`` as used."""
        self._taken |= other._taken

    def fresh(self, hint: str) -> str:
        """A new identifier that resembles ``hint``."""
        base = re.sub(r"\W", "_", hint.replace("%", ""))
        if not base or base[0].isdigit():
            base = f"v{base}"
        name, n = base, 1
        if name in self._taken and f"{name}_" not in self._taken:
            name = f"{name}_"
        while name in self._taken:
            n += 1
            name = f"{base}{n}"
        self._taken.add(name)
        return name


def size_of(dtype: str) -> int:
    """Bytes of an element in memory."""
    return DTYPES[dtype].bytes
