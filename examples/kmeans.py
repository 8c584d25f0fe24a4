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


def inputs_assign_add(dims: dict[str, int], constants: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """As for assign; sums and counts start with zeros."""
    b, k, d = dims["B"], dims["K"], constants["D"]
    zeros = {"sums": np.zeros((b, k, d), np.float32), "counts": np.zeros((b, k), np.int32)}
    return {**inputs_assign(dims, constants, rng), **zeros}


def inputs_add_points(dims: dict[str, int], constants: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Points with labels of all clusters but the last, and zeros."""
    b, n, k, d = (*(dims[x] for x in "BNK"), constants["D"])
    ids = rng.integers(0, max(k - 1, 1), (b, n), np.int32)
    zeros = {"sums": np.zeros((b, k, d), np.float32), "counts": np.zeros((b, k), np.int32)}
    return {"x": _normal(rng, b, n, d), "ids": ids, **zeros}


def inputs_means(dims: dict[str, int], constants: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Centroids, and sums of 0 to 7 points each."""
    b, k, d = dims["B"], dims["K"], constants["D"]
    counts = rng.integers(0, 8, (b, k), np.int32)
    sums = (rng.standard_normal((b, k, d)) * np.sqrt(counts)[:, :, None]).astype(np.float32)
    return {"c": _normal(rng, b, k, d), "sums": sums, "counts": counts}


def inputs_kmeans_update(dims: dict[str, int], constants: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Points with labels, and the centroids before."""
    given = inputs_add_points(dims, constants, rng)
    return {"x": given["x"], "ids": given["ids"], "c": _normal(rng, dims["B"], dims["K"], constants["D"])}


def reference_half_norms(arguments: dict[str, Any], dims: dict[str, int], constants: dict[str, Any]) -> dict[str, Any]:
    """-|c|^2 / 2 in float64."""
    return {"half": -0.5 * np.square(arguments["c"].astype(np.float64)).sum(axis=2)}


def reference(arguments: dict[str, Any], dims: dict[str, int], constants: dict[str, Any]) -> dict[str, Any]:
    """The nearest centroid in float64, the lowest of equals; -1 where no score is above -inf."""
    x, c = arguments["x"].astype(np.float64), arguments["c"].astype(np.float64)
    score = x @ c.transpose(0, 2, 1) - 0.5 * np.square(c).sum(axis=2)[:, None, :]
    score = np.where(np.isnan(score), -np.inf, score)
    return {"ids": np.where(score.max(axis=2) > -np.inf, score.argmax(axis=2), -1)}


def _sums(x: Any, ids: Any, k: int) -> tuple[Any, Any]:
    """Sums and numbers of the points of each label, in float64; labels that are none count nowhere."""
    sums, counts = np.zeros((x.shape[0], k, x.shape[2])), np.zeros((x.shape[0], k), np.int32)
    for b in range(x.shape[0]):
        mine = (ids[b] >= 0) & (ids[b] < k)
        np.add.at(sums[b], ids[b][mine], x[b][mine].astype(np.float64))
        np.add.at(counts[b], ids[b][mine], 1)
    return sums, counts


def _means(c: Any, sums: Any, counts: Any) -> dict[str, Any]:
    """Means as bf16 keeps them, and how far that is from the centroids before."""
    n = counts[:, :, None]
    new = np.where(n > 0, sums / np.maximum(n, 1), c.astype(np.float64)).astype(c.dtype)
    return {"next": new, "moved": np.square(new.astype(np.float64) - c.astype(np.float64)).sum(axis=2)}


def reference_assign_add(arguments: dict[str, Any], dims: dict[str, int], constants: dict[str, Any]) -> dict[str, Any]:
    """Labels, and sums and counts with the points added."""
    ids = reference(arguments, dims, constants)["ids"]
    sums, counts = _sums(arguments["x"], ids, arguments["c"].shape[1])
    return {"ids": ids, "sums": arguments["sums"] + sums, "counts": arguments["counts"] + counts}


def reference_add_points(arguments: dict[str, Any], dims: dict[str, int], constants: dict[str, Any]) -> dict[str, Any]:
    """Sums and counts with the points added."""
    sums, counts = _sums(arguments["x"], arguments["ids"], arguments["sums"].shape[1])
    return {"sums": arguments["sums"] + sums, "counts": arguments["counts"] + counts}


def reference_means(arguments: dict[str, Any], dims: dict[str, int], constants: dict[str, Any]) -> dict[str, Any]:
    """The new centroids; sums and counts are zero afterwards."""
    found = _means(arguments["c"], arguments["sums"].astype(np.float64), arguments["counts"])
    return {**found, "sums": np.zeros_like(arguments["sums"]), "counts": np.zeros_like(arguments["counts"])}


def reference_kmeans_update(
    arguments: dict[str, Any], dims: dict[str, int], constants: dict[str, Any]
) -> dict[str, Any]:
    """The means of the points of each label."""
    return _means(arguments["c"], *_sums(arguments["x"], arguments["ids"], arguments["c"].shape[1]))


def reference_kmeans_step(arguments: dict[str, Any], dims: dict[str, int], constants: dict[str, Any]) -> dict[str, Any]:
    """The nearest centroid of each point, and the means of the points of each."""
    ids = reference(arguments, dims, constants)["ids"]
    return {"ids": ids, **_means(arguments["c"], *_sums(arguments["x"], ids, arguments["c"].shape[1]))}
