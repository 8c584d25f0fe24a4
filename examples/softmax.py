"""Inputs, reference and peer of softmax.cake; both kernels compute the same function."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np

SIZES = {"M": 7, "N": 1000}
ROWS = 4096  # of the reference that are computed at once on a device


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


def device_reference(arguments: dict[str, Any], dims: dict[str, int], constants: dict[str, Any]) -> Iterator[Any]:
    """The reference on a device, in float64, some rows at a time."""
    x = arguments["x"]
    for first in range(0, dims["M"], ROWS):
        rows = slice(first, first + ROWS)
        yield "y", rows, x[rows].double().softmax(dim=1)


def peer(arguments: dict[str, Any], dims: dict[str, int], constants: dict[str, Any]) -> Callable[[], Any]:
    """torch's own kernel. A copy of the same size (`y.copy_(x)`) is the ceiling of any."""
    import torch

    x, y = arguments["x"], arguments["y"]
    return lambda: torch.softmax(x, dim=1, out=y)
