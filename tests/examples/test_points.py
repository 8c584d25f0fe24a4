"""Every declared point of every example's search set (of large ones, points spread over it) is refused with a reason, or simulates
right on a ragged shape."""

from __future__ import annotations

import functools
import itertools
import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cake.cli.companion import load
from cake.cli.compare import compare
from cake.compiler import parse
from cake.expand.constants import points
from cake.expand.kernel import expand_kernel
from cake.ir import expanded as x
from cake.ir import surface as s
from cake.ir.dtypes import numpy_dtype
from cake.ir.evaluate import evaluate
from cake.machine import run
from cake.machine.registers import poison
from tests.examples import EXAMPLES

PARTS = 6  # of each kernel's points, so that workers share them
MOST, FEWER = 48, {"knn": 20, "attention_backward": 18, "gemm_split": 18, "gemm_cluster": 24, "gemm_pingpong": 24}
"""Points of a kernel that are looked at; fewer where a launch takes long and test_<example>.py runs other points."""

KERNELS = [
    (path, kernel.name)
    for path in sorted(EXAMPLES.glob("*.cake"))
    for kernel in parse(path.read_text(encoding="utf-8"), str(path)).kernels
]


def launch(path: Path, kernel: x.Kernel) -> None:
    """Simulate on the companion's sizes and compare with its reference."""
    companion = load(path, kernel.name)
    assert companion is not None, f"{path.name} has no companion module"
    names = {d.name for d in kernel.dims}
    dims = {n: int(v) for n, v in companion.sizes.items() if n in names}
    assert set(dims) == names, f"{path.name}: SIZES lacks {sorted(names - set(dims))}"
    rng = np.random.default_rng(zlib.crc32(repr(kernel.constants).encode()))
    values: dict[str, Any] = companion.find("inputs")(dims, dict(kernel.constants), rng)
    parameters = {t.name for t in kernel.tensors} | {s.name for s in kernel.scalars}
    given = {n: v for n, v in values.items() if n in parameters}
    for t in kernel.tensors:
        if t.name not in given:  # an output, or workspace that starts at zero
            given[t.name] = np.zeros([int(evaluate(e, dims)) for e in t.shape], numpy_dtype(t.dtype))
    result = run(kernel, given, seed=1)
    expected = companion.find("reference")(values, dims, dict(kernel.constants))
    tolerance = companion.find("tolerance")
    outputs = [t for t in kernel.tensors if t.direction == "out" or (t.direction == "inout" and t.name in expected)]
    assert outputs
    for t in outputs:
        got = result.outputs[t.name]
        allowed = tolerance(t.name) if tolerance else None
        report = compare(t.name, t.dtype, got, expected[t.name], poison(t.dtype, got.shape), allowed)
        assert report.ok, f"{kernel.constants}: {report}"


@functools.cache
def sample(path: Path, name: str) -> tuple[s.File, s.Kernel, list[dict[str, Any]]]:
    """A kernel and the points to look at, the chosen one first. Where there are more than these, every n-th, with n prime to their
    number, so that each constant takes all its values."""
    file = parse(path.read_text(encoding="utf-8"), str(path))
    kernel: s.Kernel = next(k for k in file.kernels if k.name == name)
    count = sum(1 for _ in points(file, kernel))
    step = -(-count // FEWER.get(path.stem, MOST))
    while math.gcd(step, count) > 1:
        step += 1
    return file, kernel, list(itertools.islice(points(file, kernel), 0, None, step))


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize(("path", "name"), KERNELS, ids=lambda v: v.stem if isinstance(v, Path) else v)
def test_every_point(path: Path, name: str, part: int) -> None:
    file, kernel, chosen = sample(path, name)
    ran = 0
    for point in chosen[part::PARTS]:
        expanded, findings = expand_kernel(file, kernel, point)
        if expanded is None:
            assert any(d.severity == "error" and d.span is not None for d in findings), point
            continue
        launch(path, expanded)
        ran += 1
    if part == 0:
        assert ran, "the chosen point itself must run"
