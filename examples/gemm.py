"""Inputs, reference and peer of gemm.cake."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np

SIZES = {"M": 300, "N": 520, "K": 200}
ROWS = 4096  # of the reference that are computed at once on a device


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


def device_reference(arguments: dict[str, Any], dims: dict[str, int], constants: dict[str, Any]) -> Iterator[Any]:
    """The reference on a device, in float64, some rows at a time."""
    a, b = arguments["a"], arguments["b"].double()
    for first in range(0, dims["M"], ROWS):
        rows = slice(first, first + ROWS)
        yield "c", rows, a[rows].double() @ b.T


def peer(arguments: dict[str, Any], dims: dict[str, int], constants: dict[str, Any]) -> Callable[[], Any]:
    """cuBLAS, through torch."""
    import torch

    a, b, c = (arguments[name] for name in ("a", "b", "c"))
    return lambda: torch.mm(a, b.T, out=c)
