"""No finding on kernels that are right: the examples, expanded, over their own inputs."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cake.compiler import expand_file
from cake.ir.dtypes import numpy_dtype
from cake.ir.evaluate import evaluate
from cake.machine.order import check

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    ("file", "kernel"),
    [
        ("gemm", None),
        ("gemm_cluster", None),
        ("gemm_bias_gelu", None),
        ("batched_gemm", None),
        ("layernorm", None),
        ("rmsnorm", None),
        ("softmax", "softmax"),
        ("softmax", "softmax_long"),
        ("attention", None),
    ],
)
def test_no_findings(file: str, kernel: str | None) -> None:
    k = expand_file(EXAMPLES / f"{file}.cake", kernel=kernel)
    module: Any = importlib.import_module(f"examples.{file}")
    dims = dict(module.SIZES)
    values = module.inputs(dims, dict(k.constants), np.random.default_rng(0))
    for t in k.tensors:
        if t.name not in values:
            shape = tuple(int(evaluate(e, dims)) for e in t.shape)
            values[t.name] = np.zeros(shape, numpy_dtype(t.dtype))
    assert check(k, values, ctas=2) == []
