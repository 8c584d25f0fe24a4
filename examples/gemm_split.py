"""Inputs and reference of gemm_split.cake: those of gemm.cake."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

SIZES = {"M": 200, "N": 264, "K": 520}


def inputs(dims: dict[str, int], constants: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Standard normal operands."""

    def normal(*shape: int) -> Any:
        return rng.standard_normal(shape, dtype=np.float32).astype(ml_dtypes.bfloat16)

    return {"a": normal(dims["M"], dims["K"]), "b": normal(dims["N"], dims["K"])}


def reference(arguments: dict[str, Any], dims: dict[str, int], constants: dict[str, Any]) -> dict[str, Any]:
    """The product in float64."""
    return {"c": arguments["a"].astype(np.float64) @ arguments["b"].astype(np.float64).T}


def tolerance(name: str) -> float:
    """Relative to the largest element: one rounding to bf16 (2**-9), and f32 accumulation far below it."""
    return 2**-8
