"""Inputs and reference of softmax.cake; both kernels compute the same function."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

SIZES = {"M": 7, "N": 1000}


def inputs(dims: dict[str, int], constants: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Rows with a spread of about +-12, so that the maximum matters."""
    x = 4 * rng.standard_normal((dims["M"], dims["N"]), dtype=np.float32)
    return {"x": x.astype(ml_dtypes.bfloat16)}


def reference(arguments: dict[str, Any], dims: dict[str, int], constants: dict[str, Any]) -> dict[str, Any]:
    """Softmax in float64."""
    x = arguments["x"].astype(np.float64)
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return {"y": e / e.sum(axis=1, keepdims=True)}


def tolerance(name: str) -> float:
    """Relative to the largest element: one rounding to bf16 and the approximate exp2."""
    return 2**-8
