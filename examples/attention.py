"""Inputs and reference of attention.cake: packed sequences whose lengths are drawn to add up to TQ and TK; the counter of tiles is
zero before and after."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

SIZES = {"B": 3, "H": 4, "HK": 2, "TQ": 300, "TK": 420}


def _lengths(total: int, parts: int, rng: np.random.Generator) -> Any:
    """Prefix sums of ``parts`` lengths that add up to ``total``; empty sequences are allowed."""
    cuts = np.sort(rng.integers(0, total + 1, parts - 1))
    return np.concatenate([[0], cuts, [total]]).astype(np.int32)


def inputs(dims: dict[str, int], constants: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Standard normal operands."""
    d = constants["D"]

    def normal(*shape: int) -> Any:
        return rng.standard_normal(shape, dtype=np.float32).astype(ml_dtypes.bfloat16)

    cu_q = _lengths(dims["TQ"], dims["B"], rng)
    return {
        "q": normal(dims["TQ"], dims["H"], d),
        "k": normal(dims["TK"], dims["HK"], d),
        "v": normal(dims["TK"], dims["HK"], d),
        "cu_q": cu_q,
        "cu_k": _lengths(dims["TK"], dims["B"], rng),
        "max_q": int(np.diff(cu_q).max()),
        "scale_log2": float(np.log2(np.e) / np.sqrt(d)),
        "tile_counter": np.zeros(1, np.int32),
    }


def reference(arguments: dict[str, Any], dims: dict[str, int], constants: dict[str, Any]) -> dict[str, Any]:
    """Attention in float64, sequence by sequence and head by head; rows that see no key are zero."""
    q, k, v = (arguments[n].astype(np.float64) for n in ("q", "k", "v"))
    cu_q, cu_k = arguments["cu_q"], arguments["cu_k"]
    y = np.zeros(q.shape)
    lse = np.full((q.shape[1], q.shape[0]), -np.inf)
    share = q.shape[1] // k.shape[1]
    for b in range(len(cu_q) - 1):
        rows, keys = slice(cu_q[b], cu_q[b + 1]), slice(cu_k[b], cu_k[b + 1])
        nq, nk = rows.stop - rows.start, keys.stop - keys.start
        if nq == 0 or nk == 0:
            continue
        for h in range(q.shape[1]):
            s = q[rows, h] @ k[keys, h // share].T * arguments["scale_log2"]
            if constants["CAUSAL"]:
                s = np.where(np.arange(nk) <= np.arange(nq)[:, None] + (nk - nq), s, -np.inf)
            top = s.max(axis=1, keepdims=True)
            p = np.exp2(s - np.where(np.isinf(top), 0, top))
            total = p.sum(axis=1, keepdims=True)
            y[rows, h] = np.where(total > 0, p @ v[keys, h // share] / np.where(total > 0, total, 1), 0)
            with np.errstate(divide="ignore"):
                lse[h, rows] = (np.where(np.isinf(top), 0, top) + np.log2(total))[:, 0]
    return {"y": y, "lse": lse, "tile_counter": np.zeros(1)}


def tolerance(name: str) -> float:
    """Relative to the largest element: P is rounded to bf16 before P V, and Y once more."""
    return 2**-6
