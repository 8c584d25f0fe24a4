"""The examples at small sizes, with several tiles for each CTA where tiles persist, and ragged edges."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from cake.cli.companion import Companion
from cake.compiler import expand_file
from cake.ir import expanded as x
from cake.ir.dtypes import numpy_dtype
from cake.ir.evaluate import evaluate
from examples.corpus import references
from tests.ptx.compiled import EXAMPLES, example

F32, I32 = np.float32, np.int32


@dataclass(frozen=True)
class Subject:
    """A kernel and one launch of it, ``clusters`` of which are run."""

    kernel: x.Kernel
    values: dict[str, Any]
    clusters: int = 1


def _z(*shape: int, dtype: Any = ml_dtypes.bfloat16) -> Any:
    return np.zeros(shape, dtype)


def _product(m: int, n: int, k: int) -> dict[str, Any]:
    return {"a": _z(m, k), "b": _z(n, k), "c": _z(m, n)}


def gemm() -> Subject:
    """Two tiles, more slabs than stages."""
    return Subject(example("gemm"), _product(200, 256, 328))


def gemm_cluster() -> Subject:
    """Two tiles of a cluster of two, the second ragged."""
    return Subject(example("gemm_cluster"), _product(300, 256, 328))


def gemm_pingpong() -> Subject:
    """Three tiles for two warpgroups."""
    return Subject(example("gemm_pingpong"), _product(300, 128, 392))


def gemm_split() -> Subject:
    """Partial sums handed from one CTA to the next, and back to zero."""
    k = example("gemm_pingpong", None, SPLIT=2)
    more = {"part": _z(2, 1, 128 * 128, dtype=F32), "flags": _z(2, 1, dtype=I32)}
    return Subject(k, {**_product(200, 128, 200), **more}, 2)


def gemm_joined() -> Subject:
    """Two tiles whose sums a cluster of two adds up through distributed shared memory."""
    return Subject(example("gemm_split", None, SPLIT=2, MATH=1, BN=32, STAGES=3), _product(100, 32, 392))


def attention(queries: int = 200, keys: int = 240, ctas: int = 2) -> Subject:
    """Tiles of one sequence, drawn by two CTAs; ragged in both directions."""
    k = example("attention", None, D=64, BN=128)
    values = {"q": _z(queries, 1, 64), "k": _z(keys, 1, 64), "v": _z(keys, 1, 64), "y": _z(queries, 1, 64)}
    more = {"cu_q": np.array([0, queries], I32), "cu_k": np.array([0, keys], I32), "tile_counter": np.zeros(1, I32)}
    return Subject(k, {**values, **more, "max_q": queries, "scale_log2": 1.0}, ctas)


def softmax() -> Subject:
    """Rows by warps."""
    return Subject(example("softmax", "softmax"), {"x": _z(5, 1000), "y": _z(5, 1000)})


def softmax_long() -> Subject:
    """A row by many warps, with an exchange."""
    return Subject(example("softmax", "softmax_long"), {"x": _z(2, 8200), "y": _z(2, 8200)})


def kmeans() -> Subject:
    """Points against ragged blocks of centroids."""
    values = {"x": _z(1, 130, 128), "c": _z(1, 200, 128), "half": _z(1, 200, dtype=F32), "ids": _z(1, 130, dtype=I32)}
    return Subject(example("kmeans", "assign"), values)


def layernorm() -> Subject:
    """Two rows."""
    more = {"g": _z(1000), "b": _z(1000), "eps": 1e-5}
    return Subject(example("layernorm"), {"x": _z(2, 1000), "y": _z(2, 1000), **more})


def rmsnorm() -> Subject:
    """Two rows."""
    return Subject(example("rmsnorm"), {"x": _z(2, 1000), "y": _z(2, 1000), "g": _z(1000), "eps": 1e-5})


def batched_gemm() -> Subject:
    """Two products."""
    return Subject(example("batched_gemm"), {"a": _z(2, 200, 200), "b": _z(2, 200, 200), "c": _z(2, 200, 200)})


def gemm_bias_gelu() -> Subject:
    """With an epilogue that computes."""
    values = {"x": _z(200, 200), "w": _z(304, 200), "bias": _z(304, dtype=F32), "y": _z(200, 304)}
    return Subject(example("gemm_bias_gelu"), values)


def expert(file: str, dims: dict[str, int]) -> Subject:
    """A kernel of the expert corpus."""
    folder = EXAMPLES / "corpus"
    k = expand_file(folder / file)
    inputs = Companion(Path(references.__file__), references, k.name).find("inputs")
    values = inputs(dims, dict(k.constants), np.random.default_rng(0))
    for t in k.tensors:
        shape = [int(evaluate(e, {**dims, **k.constants})) for e in t.shape]
        values.setdefault(t.name, _z(*shape, dtype=numpy_dtype(t.dtype)))
    return Subject(k, values)


Make = Callable[[], Subject]
SMALL: dict[str, Make] = {
    "gemm": gemm,
    "gemm_cluster": gemm_cluster,
    "gemm_pingpong": gemm_pingpong,
    "gemm_split": gemm_split,
    "gemm_joined": gemm_joined,
    "attention": attention,
    "softmax": softmax,
    "softmax_long": softmax_long,
    "kmeans": kmeans,
}
"""What the tests run."""

MORE: dict[str, Make] = {
    "layernorm": layernorm,
    "rmsnorm": rmsnorm,
    "batched_gemm": batched_gemm,
    "gemm_bias_gelu": gemm_bias_gelu,
    **{
        row["file"].removesuffix(".cake"): partial(expert, row["file"], row["shapes"][-1])
        for row in json.loads((EXAMPLES / "corpus" / "corpus.json").read_text())
    },
}
"""And what the benchmark runs besides."""
