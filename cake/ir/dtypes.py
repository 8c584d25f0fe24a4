"""Element types: sizes, NumPy meanings, and the names the CUDA side uses."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

DTypeName = Literal["f32", "f16", "bf16", "tf32", "e4m3", "e5m2", "i32", "i64", "i8", "u8", "bool"]


@dataclass(frozen=True)
class DType:
    """One element type. ``bits`` is its size in memory; ``cuda`` its C++ name; ``tensor_map`` its TMA data type
    (the suffix of ``CU_TENSOR_MAP_DATA_TYPE_``, None where TMA has none)."""

    name: DTypeName
    bits: int
    kind: Literal["float", "int", "bool"]
    cuda: str
    tensor_map: str | None

    @property
    def bytes(self) -> int:
        """Size in memory, in bytes."""
        return self.bits // 8

    def __str__(self) -> str:
        return self.name


DTYPES: dict[str, DType] = {
    d.name: d
    for d in (
        DType("f32", 32, "float", "float", "FLOAT32"),
        DType("tf32", 32, "float", "float", "TFLOAT32"),
        DType("f16", 16, "float", "__half", "FLOAT16"),
        DType("bf16", 16, "float", "__nv_bfloat16", "BFLOAT16"),
        DType("e4m3", 8, "float", "__nv_fp8_e4m3", "UINT8"),
        DType("e5m2", 8, "float", "__nv_fp8_e5m2", "UINT8"),
        DType("i64", 64, "int", "int64_t", "INT64"),
        DType("i32", 32, "int", "int32_t", "INT32"),
        DType("i8", 8, "int", "int8_t", "UINT8"),
        DType("u8", 8, "int", "uint8_t", "UINT8"),
        DType("bool", 8, "bool", "bool", None),
    )
}


@cache
def numpy_dtype(name: str) -> Any:
    """The NumPy dtype that holds values of ``name`` (ml_dtypes for bf16 and the 8-bit floats; tf32 is held in f32)."""
    import ml_dtypes
    import numpy as np

    table: dict[str, Any] = {
        "f32": np.float32,
        "tf32": np.float32,
        "f16": np.float16,
        "bf16": ml_dtypes.bfloat16,
        "e4m3": ml_dtypes.float8_e4m3fn,
        "e5m2": ml_dtypes.float8_e5m2,
        "i64": np.int64,
        "i32": np.int32,
        "i8": np.int8,
        "u8": np.uint8,
        "bool": np.bool_,
    }
    return np.dtype(table[name])
