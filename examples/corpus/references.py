"""Inputs and references of the corpus kernels, as `cake bench --module` and the tests take them. `corpus.json` has the shapes.

Operands are small integers wherever the result is then exact in f32, so that any wrong element shows; attention and softmax get
normal ones.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

Dims = dict[str, int]
Arguments = dict[str, Any]
BF16 = ml_dtypes.bfloat16


def _integers(rng: np.random.Generator, *shape: int) -> Any:
    return rng.integers(-3, 4, shape).astype(np.float32)


def inputs(dims: Dims, constants: Arguments, rng: np.random.Generator) -> Arguments:
    """Operands of the products: a [M, K] and b [N, K]."""
    a, b = _integers(rng, dims["M"], dims["K"]), _integers(rng, dims["N"], dims["K"])
    return {"a": a.astype(BF16), "b": b.astype(BF16)}


def reference(arguments: Arguments, dims: Dims, constants: Arguments) -> Arguments:
    """c = a @ b.T in float64."""
    return {"c": arguments["a"].astype(np.float64) @ arguments["b"].astype(np.float64).T}


def inputs_blend_store_ring(dims: Dims, constants: Arguments, rng: np.random.Generator) -> Arguments:
    """x and z [M, N]; p and q halves."""
    return {"x": _integers(rng, dims["M"], dims["N"]), "z": _integers(rng, dims["M"], dims["N"]), "p": 0.5, "q": -1.5}


def reference_blend_store_ring(arguments: Arguments, dims: Dims, constants: Arguments) -> Arguments:
    """y = p x + q z."""
    return {
        "y": arguments["p"] * arguments["x"].astype(np.float64) + arguments["q"] * arguments["z"].astype(np.float64)
    }


def inputs_attention_alternating(dims: Dims, constants: Arguments, rng: np.random.Generator) -> Arguments:
    """q, k, v [BH, S, D]."""
    d = int(constants["D"])
    shape = (dims["BH"], dims["S"], d)
    drawn = {n: rng.standard_normal(shape, dtype=np.float32).astype(BF16) for n in ("q", "k", "v")}
    return {**drawn, "scale_log2": float(np.log2(np.e) / np.sqrt(d))}


def reference_attention_alternating(arguments: Arguments, dims: Dims, constants: Arguments) -> Arguments:
    """Softmax over all keys of a head, in float64."""
    q, k, v = (arguments[n].astype(np.float64) for n in ("q", "k", "v"))
    s = q @ k.transpose(0, 2, 1) * arguments["scale_log2"]
    p = np.exp2(s - s.max(axis=2, keepdims=True))
    return {"y": p @ v / p.sum(axis=2, keepdims=True)}


def inputs_softmax_streamed(dims: Dims, constants: Arguments, rng: np.random.Generator) -> Arguments:
    """Rows whose maxima come late as often as early."""
    x = rng.standard_normal((dims["M"], dims["N"]), dtype=np.float32) + np.linspace(-2, 2, dims["N"], dtype=np.float32)
    return {"x": x.astype(BF16)}


def reference_softmax_streamed(arguments: Arguments, dims: Dims, constants: Arguments) -> Arguments:
    """Softmax along the rows, in float64."""
    x = arguments["x"].astype(np.float64)
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return {"y": e / e.sum(axis=1, keepdims=True)}
