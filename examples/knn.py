"""Inputs and references of knn.cake."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

SIZES = {"Q": 70, "N": 600}
SIZES_knn_merge = {"Q": 9, "N": 300}
SIZES_half_norms = {"N": 150}


def _normal(rng: np.random.Generator, *shape: int) -> Any:
    """Normal values rounded to quarters: scores are then exact in f32, and which rows are nearest does not depend on rounding."""
    return (np.round(4 * rng.standard_normal(shape, dtype=np.float32)) / 4).astype(ml_dtypes.bfloat16)


def _squares(x: Any) -> Any:
    return np.square(x.astype(np.float64)).sum(axis=1)


def inputs(dims: dict[str, int], constants: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Queries and database."""
    d = constants["D"]
    return {"q": _normal(rng, dims["Q"], d), "x": _normal(rng, dims["N"], d)}


def inputs_half_norms(dims: dict[str, int], constants: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """The database alone."""
    return {"x": _normal(rng, dims["N"], constants["D"])}


def inputs_knn_scan(dims: dict[str, int], constants: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Queries, database, what half_norms makes of it, and the greatest scores of the classes of the sample."""
    given = inputs(dims, constants, rng)
    given["half"] = reference_half_norms(given, dims, constants)["half"].astype(np.float32)
    return {**given, "peak": _peaks(given, constants).astype(np.float32)}


def inputs_knn_merge(dims: dict[str, int], constants: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Queries, database, and the lists of its parts."""
    given = inputs(dims, constants, rng)
    score, rows = _lists(_scores(given), -(-dims["N"] // constants["SPLIT"]), constants)
    return {"score": score.astype(np.float32), "id": rows.astype(np.int32), "q": given["q"], "x": given["x"]}


def reference_half_norms(arguments: dict[str, Any], dims: dict[str, int], constants: dict[str, Any]) -> dict[str, Any]:
    """-|x|^2 / 2 in float64."""
    return {"half": -0.5 * _squares(arguments["x"])}


def _scores(arguments: dict[str, Any]) -> Any:
    """q . x - |x|^2 / 2 in float64."""
    q, x = arguments["q"].astype(np.float64), arguments["x"].astype(np.float64)
    return q @ x.T - 0.5 * _squares(x)


def _part(rows: int, parts: int, constants: dict[str, Any]) -> int:
    """Rows of the database in a part, which is whole tiles."""
    tiles = -(-rows // constants["BN"])
    return -(-tiles // parts) * constants["BN"]


def _peaks(arguments: dict[str, Any], constants: dict[str, Any]) -> Any:
    """The greatest scores of the classes: of the first tiles of each part, by the thread that holds the column."""
    score = _scores(arguments)
    part = _part(score.shape[1], constants["PARTS"], constants)
    peaks = np.full((score.shape[0], constants["PARTS"], constants["CLASSES"]), -np.inf)
    for n in range(score.shape[1]):
        place, at = divmod(n, part)
        if at < constants["SAMPLE"] * constants["BN"]:
            kind = n // 2 % 4 if constants["CLASSES"] == 4 else 0
            peaks[:, place, kind] = np.maximum(peaks[:, place, kind], score[:, n])
    return peaks.reshape(score.shape[0], -1)


def _best(score: Any, first: int, count: int) -> tuple[Any, Any]:
    """The ``count`` best columns of each row, the lowest of equals first, and their scores; -inf and -1 where there are no more."""
    taken = min(count, score.shape[1])
    order = np.argsort(-score, axis=1, kind="stable")[:, :taken]
    missing = ((0, 0), (0, count - taken))
    best = np.pad(np.take_along_axis(score, order, axis=1), missing, constant_values=-np.inf)
    at = np.pad(order + first, missing, constant_values=-1)
    return best, np.where(np.isneginf(best), -1, at)


def _lists(score: Any, rows: int, constants: dict[str, Any]) -> tuple[Any, Any]:
    """The best of each part of ``rows`` rows, part after part: scores and rows of the database."""
    starts = range(0, constants["SPLIT"] * rows, rows)
    parts = [_best(score[:, first : first + rows], first, constants["K"]) for first in starts]
    return np.hstack([v for v, _ in parts]), np.hstack([n for _, n in parts])


def reference_knn_scan(arguments: dict[str, Any], dims: dict[str, int], constants: dict[str, Any]) -> dict[str, Any]:
    """The best of each part of the database, of what is not below the floor; of a sample, the greatest scores of its classes."""
    if constants["PROBE"]:
        return {"found": _peaks(arguments, constants)}
    score = _scores(arguments)
    floor = arguments["peak"].reshape(len(score), -1, constants["FLOORS"]).max(axis=1).min(axis=1)
    score = np.where(score < floor[:, None], -np.inf, score)
    best, rows = _lists(score, _part(score.shape[1], constants["SPLIT"], constants), constants)
    return {"score": best, "id": rows}


def _distances(q: Any, x: Any, rows: Any) -> Any:
    """Squared distances of queries to rows of the database, in float64; infinite where there is no row."""
    difference = q.astype(np.float64)[:, None, :] - x.astype(np.float64)[rows]
    return np.where(rows < 0, np.inf, np.square(difference).sum(axis=2))


def reference_knn_merge(arguments: dict[str, Any], dims: dict[str, int], constants: dict[str, Any]) -> dict[str, Any]:
    """The best K of the lists, the earlier of equals."""
    order = np.argsort(-arguments["score"].astype(np.float64), axis=1, kind="stable")[:, : constants["K"]]
    rows = np.take_along_axis(arguments["id"], order, axis=1)
    return {"distance": _distances(arguments["q"], arguments["x"], rows), "row": rows}


def reference(arguments: dict[str, Any], dims: dict[str, int], constants: dict[str, Any]) -> dict[str, Any]:
    """The nearest rows in float64, the lower of equals."""
    _, rows = _best(_scores(arguments), 0, constants["K"])
    return {"distance": _distances(arguments["q"], arguments["x"], rows), "row": rows}
