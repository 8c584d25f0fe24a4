"""Inputs and reference of rmsnorm.cake."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

SIZES = {"M": 7, "N": 1000}


def inputs(dims: dict[str, int], constants: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Standard normal rows, gains around one."""
    x = rng.standard_normal((dims["M"], dims["N"]), dtype=np.float32)
    g = 1 + 0.1 * rng.standard_normal(dims["N"], dtype=np.float32)
    return {"x": x.astype(ml_dtypes.bfloat16), "g": g.astype(ml_dtypes.bfloat16), "eps": 1e-5}


def reference(arguments: dict[str, Any], dims: dict[str, int], constants: dict[str, Any]) -> dict[str, Any]:
    """RMS normalisation in float64."""
    x, g = arguments["x"].astype(np.float64), arguments["g"].astype(np.float64)
    return {"y": x / np.sqrt((x * x).mean(axis=1, keepdims=True) + arguments["eps"]) * g}


def tolerance(name: str) -> float:
    """Relative to the largest element: one rounding to bf16."""
    return 2**-8
