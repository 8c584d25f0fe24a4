"""GEMM by clusters, with bias and gelu, batched; layer normalisation: values over ragged shapes, order, machine code."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

from cake.codegen.build import build
from cake.compiler import expand_file
from cake.ir import expanded as x
from cake.ir.dtypes import numpy_dtype
from cake.ir.evaluate import evaluate
from cake.machine import run
from cake.machine.order import check
from examples import batched_gemm, gemm_bias_gelu, gemm_cluster, gemm_split, layernorm
from tests.examples import EXAMPLES

MODULES: dict[str, ModuleType] = {
    m.__name__.split(".")[1]: m for m in (gemm_cluster, gemm_split, gemm_bias_gelu, batched_gemm, layernorm)
}


def kernel(name: str, constants: dict[str, Any]) -> x.Kernel:
    return expand_file(EXAMPLES / f"{name}.cake", constants=constants)


def arguments(k: x.Kernel, module: Any, sizes: tuple[int, ...] | None = None) -> tuple[dict[str, int], dict[str, Any]]:
    dims = dict(module.SIZES) if sizes is None else dict(zip(module.SIZES, sizes, strict=True))
    values = module.inputs(dims, dict(k.constants), np.random.default_rng(sum(dims.values())))
    for t in k.tensors:
        if t.name not in values:
            values[t.name] = np.zeros([int(evaluate(e, dims)) for e in t.shape], numpy_dtype(t.dtype))
    return dims, values


CASES: list[tuple[str, tuple[int, ...], dict[str, Any]]] = [
    *(("gemm_cluster", (300, 136, 72), {"CLUSTER": c, "BN": n}) for c in (1, 2, 4) for n in (128, 192, 256)),
    ("gemm_cluster", (1, 8, 8), {}),
    *(("gemm_cluster", (200, 184, 72), {"MATH": m, "BN": 176, "CHUNK": 176, "STAGES": 3, "OUT": 1}) for m in (1, 3)),
    *(("gemm_split", (130, 104, 328), {"SPLIT": s, "BN": 64, "MATH": m}) for s, m in ((1, 1), (2, 2), (4, 1), (8, 2))),
    ("gemm_split", (1, 8, 8), {}),
    *(("gemm_bias_gelu", s, {}) for s in ((1, 8, 8), (129, 264, 200))),
    *(("gemm_bias_gelu", (130, 200, 72), {"BN": n}) for n in (128, 192)),
    *(("batched_gemm", s, {}) for s in ((1, 1, 8, 8), (5, 129, 136, 72), (2, 300, 264, 200))),
    *(("batched_gemm", (3, 40, 72, 136), {"BN": n, "STAGES": 4}) for n in (64, 256)),
    *(("layernorm", s, {"COLS": c, "ROWS": r}) for s in ((1, 8), (7, 1000)) for c, r in ((1024, 1), (2048, 2))),
    ("layernorm", (3, 8192), {"COLS": 8192, "WARPS": 8}),
]


@pytest.mark.parametrize(("name", "sizes", "constants"), CASES, ids=str)
def test_values(name: str, sizes: tuple[int, ...], constants: dict[str, Any]) -> None:
    module: Any = MODULES[name]
    k = kernel(name, constants)
    dims, values = arguments(k, module, sizes)
    outputs = [run(k, values, seed=seed).outputs for seed in (0, 1)]
    for output, expected in module.reference(values, dims, dict(k.constants)).items():
        found = outputs[0][output]
        assert np.array_equal(found.view(np.uint16), outputs[1][output].view(np.uint16))
        error = np.abs(found.astype(np.float64) - expected).max()
        assert error <= module.tolerance(output) * np.abs(expected).max()


@pytest.mark.parametrize("name", MODULES)
def test_order(name: str) -> None:
    k = kernel(name, {})
    assert check(k, arguments(k, MODULES[name])[1]) == []


@pytest.mark.parametrize(
    ("name", "constants", "registers"),
    [
        ("gemm_cluster", {}, 168),
        ("gemm_cluster", {"CLUSTER": 4}, 168),
        ("gemm_cluster", {"MATH": 3, "BN": 192, "STAGES": 3}, 128),
        ("gemm_split", {"SPLIT": 8, "BN": 96}, 128),
        ("gemm_split", {"MATH": 1, "BN": 160}, 168),
        ("gemm_bias_gelu", {}, 168),
        ("gemm_bias_gelu", {"BN": 192}, 168),
        ("batched_gemm", {}, 168),
        ("batched_gemm", {"BN": 256, "STAGES": 4}, 168),
        ("layernorm", {}, 128),
        ("layernorm", {"COLS": 8192, "WARPS": 8, "REGS": 64}, 64),
    ],
    ids=str,
)
def test_machine_code(name: str, constants: dict[str, Any], registers: int) -> None:
    """Neither spills nor remarks on wgmma: the build refuses those."""
    report = build(kernel(name, constants)).report
    assert not report.spills and report.registers is not None and report.registers <= registers
