"""Inputs, reference and peer of batched_gemm.cake."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np

SIZES = {"Z": 3, "M": 200, "N": 136, "K": 200}


def inputs(dims: dict[str, int], constants: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Standard normal operands."""

    def normal(*shape: int) -> Any:
        return rng.standard_normal(shape, dtype=np.float32).astype(ml_dtypes.bfloat16)

    return {"a": normal(dims["Z"], dims["M"], dims["K"]), "b": normal(dims["Z"], dims["N"], dims["K"])}


def reference(arguments: dict[str, Any], dims: dict[str, int], constants: dict[str, Any]) -> dict[str, Any]:
    """The products in float64."""
    a, b = arguments["a"].astype(np.float64), arguments["b"].astype(np.float64)
    return {"c": a @ b.transpose(0, 2, 1)}


def tolerance(name: str) -> float:
    """Relative to the largest element: one rounding to bf16 (2**-9), and f32 accumulation far below it."""
    return 2**-8


def device_reference(arguments: dict[str, Any], dims: dict[str, int], constants: dict[str, Any]) -> Iterator[Any]:
    """The reference on a device, in float64, one product at a time."""
    a, b = arguments["a"], arguments["b"]
    for z in range(dims["Z"]):
        yield "c", z, a[z].double() @ b[z].double().T


def peer(arguments: dict[str, Any], dims: dict[str, int], constants: dict[str, Any]) -> Callable[[], Any]:
    """cuBLAS, through torch."""
    import torch

    a, b, c = (arguments[name] for name in ("a", "b", "c"))
    return lambda: torch.bmm(a, b.transpose(1, 2), out=c)
