"""The problems that benchmarks and GPU tests run, by the name of their kernel or sequence."""

from __future__ import annotations

from benchmarks.problems.attention import ATTENTION
from benchmarks.problems.attention_backward import ATTENTION_BACKWARD
from benchmarks.problems.gemm import (
    BATCHED_GEMM,
    GEMM,
    GEMM_BIAS_GELU,
    GEMM_CLUSTER,
    GEMM_PINGPONG,
    GEMM_SPLIT,
    GEMM_STREAMK,
)
from benchmarks.problems.kmeans import ASSIGN, HALF_NORMS, STEP, UPDATE
from benchmarks.problems.knn import KNN, KNN_FEW
from benchmarks.problems.problem import Constants, Problem, Shape, poison, poisoned, random_tensor
from benchmarks.problems.rows import LAYERNORM, RMSNORM, SOFTMAX, SOFTMAX_LONG

__all__ = ["GEMM", "PROBLEMS", "Constants", "Problem", "Shape", "poison", "poisoned", "random_tensor"]

PROBLEMS = {
    p.name: p
    for p in (
        ASSIGN,
        HALF_NORMS,
        STEP,
        UPDATE,
        KNN,
        KNN_FEW,
        GEMM,
        GEMM_CLUSTER,
        GEMM_PINGPONG,
        GEMM_SPLIT,
        GEMM_STREAMK,
        GEMM_BIAS_GELU,
        BATCHED_GEMM,
        SOFTMAX,
        SOFTMAX_LONG,
        RMSNORM,
        LAYERNORM,
        ATTENTION,
        ATTENTION_BACKWARD,
    )
}
