"""gemm, softmax, rmsnorm and attention on the simulator: ragged shapes, several schedules, the same bits in each."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

from cake.compiler import expand_file
from cake.ir.dtypes import numpy_dtype
from cake.ir.evaluate import evaluate
from cake.machine import run
from examples import attention, gemm, rmsnorm, softmax
from tests.examples import EXAMPLES

SEEDS = (0, 1, 2)

GEMM = [(1, 8, 8), (127, 264, 72), (129, 8, 200), (300, 520, 40), (64, 136, 136)]
ROWS = [(1, 8), (3, 1000), (5, 1024), (2, 16)]
LONG = [(1, 8), (2, 1000), (3, 1032), (1, 2056)]
ATTENTION = [(1, 1, 1, 1, 1), (2, 2, 1, 130, 70), (3, 4, 2, 100, 300), (1, 2, 2, 257, 257)]

CASES: list[tuple[str, str, ModuleType, dict[str, int], dict[str, Any]]] = [
    *(("gemm", "gemm", gemm, dict(zip("MNK", s, strict=True)), {}) for s in GEMM),
    *(("gemm", "gemm", gemm, {"M": 200, "N": 200, "K": 72}, {"BN": n, "STAGES": 3}) for n in (128, 192)),
    *(("softmax", "softmax", softmax, dict(zip("MN", s, strict=True)), {"COLS": 1024}) for s in ROWS),
    *(("softmax", "softmax_long", softmax, dict(zip("MN", s, strict=True)), {"COLS": 1024}) for s in LONG),
    *(("rmsnorm", "rmsnorm", rmsnorm, dict(zip("MN", s, strict=True)), {"COLS": 1024, "WARPS": 8}) for s in ROWS),
    *(
        (
            "attention",
            "attention",
            attention,
            dict(zip(("B", "H", "HK", "TQ", "TK"), s, strict=True)),
            {"CAUSAL": c, "LSE": c},
        )
        for s in ATTENTION
        for c in (False, True)
    ),
]


@pytest.mark.parametrize(("stem", "name", "module", "dims", "constants"), CASES, ids=str)
def test_against_numpy(stem: str, name: str, module: Any, dims: dict[str, int], constants: dict[str, Any]) -> None:
    kernel = expand_file(EXAMPLES / f"{stem}.cake", kernel=name, constants=constants)
    values = module.inputs(dims, dict(kernel.constants), np.random.default_rng(sum(dims.values())))
    expected = module.reference(values, dims, dict(kernel.constants))
    for t in kernel.tensors:
        if t.direction == "out":
            values[t.name] = np.zeros([int(evaluate(e, dims)) for e in t.shape], numpy_dtype(t.dtype))
    first: dict[str, Any] = {}
    for seed in SEEDS:
        result = run(kernel, values, seed=seed).outputs
        if not first:
            first = result
        for output, array in result.items():
            assert array.tobytes() == first[output].tobytes(), f"{output} differs under seed {seed}"
    for output, array in first.items():
        want = expected[output]
        known = np.isfinite(want)  # rows that see no key have no sum whose logarithm could be compared
        largest = float(np.abs(want[known]).max()) if known.any() else 1.0
        error = np.abs(array.astype(np.float64)[known] - want[known])
        assert not np.isnan(error).any()
        assert float(error.max(initial=0.0)) <= module.tolerance(output) * (largest or 1.0)
