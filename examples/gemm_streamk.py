"""Inputs and reference of gemm_streamk.cake."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

SIZES = {"M": 300, "N": 520, "K": 200, "U": 5}


def inputs(dims: dict[str, int], constants: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Standard normal operands, a workspace that nobody has written, flags at zero."""

    def normal(*shape: int) -> Any:
        return rng.standard_normal(shape, dtype=np.float32).astype(ml_dtypes.bfloat16)

    units = dims["U"]
    return {
        "a": normal(dims["M"], dims["K"]),
        "b": normal(dims["N"], dims["K"]),
        "part": np.full((units, 2, 64 * constants["BN"]), np.nan, np.float32),
        "flags": np.zeros((units, 2), np.int32),
    }


def reference(arguments: dict[str, Any], dims: dict[str, int], constants: dict[str, Any]) -> dict[str, Any]:
    """The product in float64."""
    return {"c": arguments["a"].astype(np.float64) @ arguments["b"].astype(np.float64).T}


def tolerance(name: str) -> float:
    """Relative to the largest element: one rounding to bf16 (2**-9), and f32 accumulation far below it."""
    return 2**-8
