"""Inputs, reference and peer of rmsnorm.cake."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np

SIZES = {"M": 7, "N": 1000}
ROWS = 4096  # of the reference that are computed at once on a device


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


def device_reference(arguments: dict[str, Any], dims: dict[str, int], constants: dict[str, Any]) -> Iterator[Any]:
    """The reference on a device, in float64, some rows at a time."""
    x, g, eps = arguments["x"], arguments["g"].double(), arguments["eps"]
    for first in range(0, dims["M"], ROWS):
        rows = slice(first, first + ROWS)
        part = x[rows].double()
        yield "y", rows, part * (part.square().mean(dim=1, keepdim=True) + eps).rsqrt() * g


def peer(arguments: dict[str, Any], dims: dict[str, int], constants: dict[str, Any]) -> Callable[[], Any]:
    """torch's own kernel. A copy of the same size (`y.copy_(x)`) is the ceiling of any."""
    import torch

    x, g, eps = (arguments[name] for name in ("x", "g", "eps"))
    return lambda: torch.nn.functional.rms_norm(x, (dims["N"],), g, eps)
