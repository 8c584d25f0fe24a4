"""Inputs and references of kmeans.cake."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

SIZES = {"B": 2, "N": 300, "K": 200}


def _normal(rng: np.random.Generator, *shape: int) -> Any:
    return rng.standard_normal(shape, dtype=np.float32).astype(ml_dtypes.bfloat16)


def inputs(dims: dict[str, int], constants: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Standard normal points and centroids."""
    d = constants["D"]
    return {"x": _normal(rng, dims["B"], dims["N"], d), "c": _normal(rng, dims["B"], dims["K"], d)}


def inputs_half_norms(dims: dict[str, int], constants: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Centroids alone."""
    return {"c": _normal(rng, dims["B"], dims["K"], constants["D"])}


def inputs_assign(dims: dict[str, int], constants: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Points, centroids, and what half_norms makes of them."""
    given = inputs(dims, constants, rng)
    return {**given, "half": reference_half_norms(given, dims, constants)["half"].astype(np.float32)}


def reference_half_norms(arguments: dict[str, Any], dims: dict[str, int], constants: dict[str, Any]) -> dict[str, Any]:
    """-|c|^2 / 2 in float64."""
    return {"half": -0.5 * np.square(arguments["c"].astype(np.float64)).sum(axis=2)}


def reference(arguments: dict[str, Any], dims: dict[str, int], constants: dict[str, Any]) -> dict[str, Any]:
    """The nearest centroid in float64, the lowest of equals."""
    x, c = arguments["x"].astype(np.float64), arguments["c"].astype(np.float64)
    score = x @ c.transpose(0, 2, 1) - 0.5 * np.square(c).sum(axis=2)[:, None, :]
    return {"ids": score.argmax(axis=2)}
