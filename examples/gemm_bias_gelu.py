"""Inputs, reference and peer of gemm_bias_gelu.cake."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np

SIZES = {"M": 300, "N": 520, "K": 200}
ROWS = 4096  # of the reference that are computed at once on a device


def inputs(dims: dict[str, int], constants: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Weights of a scale that keeps the products around one, where gelu bends."""
    x = rng.standard_normal((dims["M"], dims["K"]), dtype=np.float32)
    w = rng.standard_normal((dims["N"], dims["K"]), dtype=np.float32) / np.sqrt(dims["K"])
    return {
        "x": x.astype(ml_dtypes.bfloat16),
        "w": w.astype(ml_dtypes.bfloat16),
        "bias": rng.standard_normal(dims["N"], dtype=np.float32),
    }


def reference(arguments: dict[str, Any], dims: dict[str, int], constants: dict[str, Any]) -> dict[str, Any]:
    """Product, bias and the exact gelu (by erf) in float64."""
    z = arguments["x"].astype(np.float64) @ arguments["w"].astype(np.float64).T + arguments["bias"].astype(np.float64)
    erf = np.vectorize(math.erf, otypes=[np.float64])
    return {"y": 0.5 * z * (1 + erf(z / math.sqrt(2)))}


def tolerance(name: str) -> float:
    """Relative to the largest element: one rounding to bf16 (2**-9); f32 sums and erf are far below it."""
    return 2**-8


def device_reference(arguments: dict[str, Any], dims: dict[str, int], constants: dict[str, Any]) -> Iterator[Any]:
    """The reference on a device, in float64, some rows at a time."""
    import torch

    x, w, bias = arguments["x"], arguments["w"].double(), arguments["bias"].double()
    for first in range(0, dims["M"], ROWS):
        rows = slice(first, first + ROWS)
        yield "y", rows, torch.nn.functional.gelu(x[rows].double() @ w.T + bias)


def peer(arguments: dict[str, Any], dims: dict[str, int], constants: dict[str, Any]) -> Callable[[], Any]:
    """cuBLAS with the bias, then gelu, through torch. The bias of such a product has the type of its operands."""
    import torch

    x, w, bias = arguments["x"], arguments["w"], arguments["bias"].to(arguments["w"].dtype)
    return lambda: torch.nn.functional.gelu(torch.nn.functional.linear(x, w, bias))
