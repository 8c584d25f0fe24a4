"""The small launches that a verdict rests on: they come to what control decides."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from cake.compiler import check_file, expand_file
from cake.ir import expanded as x
from cake.ir.parser import parse, read_source
from cake.verify.launches import ROW, Family

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_lengths_inside_a_minimum_are_tiled() -> None:
    """Attention's key blocks are cdiv(min(nk, ...), BN): the lengths in cu_k reach several blocks all the same."""
    kernel = expand_file(EXAMPLES / "attention.cake")
    longest = [int(np.diff(launch.data["cu_k"]).max()) for launch in islice(Family(kernel).launches(), 3)]
    assert max(longest) > 128
    assert max(int(np.diff(launch.data["cu_k"]).max()) for launch in Family(kernel).launches()) > 4 * 128


@pytest.mark.parametrize("name", ["gemm", "gemm_cluster", "attention", "kmeans", "rmsnorm", "softmax"])
def test_whole_launches_have_aligned_rows(name: str) -> None:
    file = EXAMPLES / f"{name}.cake"
    kernels: list[x.Kernel] = []
    check_file(parse(read_source(file), str(file)), kernels)
    for kernel in kernels:
        launch = next(Family(kernel).whole())
        for tensor in kernel.tensors:
            shape = launch.arguments[tensor.name].shape
            assert len(shape) < 2 or shape[-1] % ROW == 0, (tensor.name, shape)


def test_deep_launches_have_more_trips_and_tiles_than_slots() -> None:
    kernel = expand_file(EXAMPLES / "gemm.cake")
    launches = list(Family(kernel).deep())
    assert max(launch.values["K"] for launch in launches) > 4 * 64
    assert max(-(-v["M"] // 128) * -(-v["N"] // 256) for v in (launch.values for launch in launches)) > 2 * 4
