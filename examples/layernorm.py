"""Inputs and reference of layernorm.cake."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

SIZES = {"M": 7, "N": 1000}


def inputs(dims: dict[str, int], constants: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Rows away from zero, where a variance from sums of squares would cancel; gains around one."""
    x = 8 + rng.standard_normal((dims["M"], dims["N"]), dtype=np.float32)
    g = 1 + 0.1 * rng.standard_normal(dims["N"], dtype=np.float32)
    b = rng.standard_normal(dims["N"], dtype=np.float32)
    return {"eps": 1e-5, **{name: value.astype(ml_dtypes.bfloat16) for name, value in (("x", x), ("g", g), ("b", b))}}


def reference(arguments: dict[str, Any], dims: dict[str, int], constants: dict[str, Any]) -> dict[str, Any]:
    """Layer normalisation in float64."""
    x, g, b = (arguments[name].astype(np.float64) for name in ("x", "g", "b"))
    scale = 1 / np.sqrt(x.var(axis=1, keepdims=True) + arguments["eps"])
    return {"y": (x - x.mean(axis=1, keepdims=True)) * scale * g + b}


def tolerance(name: str) -> float:
    """Relative to the largest element: one rounding to bf16."""
    return 2**-8
