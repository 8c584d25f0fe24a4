"""Inputs, reference and peer of layernorm.cake."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np

SIZES = {"M": 7, "N": 1000}
ROWS = 4096  # of the reference that are computed at once on a device


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


def device_reference(arguments: dict[str, Any], dims: dict[str, int], constants: dict[str, Any]) -> Iterator[Any]:
    """The reference on a device, in float64, some rows at a time."""
    x, g, b = arguments["x"], arguments["g"].double(), arguments["b"].double()
    for first in range(0, dims["M"], ROWS):
        rows = slice(first, first + ROWS)
        part = x[rows].double()
        part = part - part.mean(dim=1, keepdim=True)
        yield "y", rows, part * (part.square().mean(dim=1, keepdim=True) + arguments["eps"]).rsqrt() * g + b


def peer(arguments: dict[str, Any], dims: dict[str, int], constants: dict[str, Any]) -> Callable[[], Any]:
    """torch's own kernel. A copy of the same size (`y.copy_(x)`) is the ceiling of any."""
    import torch

    x, g, b, eps = (arguments[name] for name in ("x", "g", "b", "eps"))
    return lambda: torch.nn.functional.layer_norm(x, (dims["N"],), g, b, eps)
