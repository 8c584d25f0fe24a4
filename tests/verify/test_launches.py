"""The small launches that a verdict rests on: they come to what control decides."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from cake.compiler import check_file, expand_file, expand_text
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


@pytest.mark.parametrize("name", ["attention", "attention_backward"])
def test_quotients_of_two_dims_differ(name: str) -> None:
    """Query heads for each key head: one and several, in the first launches and with more than one key head."""
    kernels: list[x.Kernel] = []
    file = EXAMPLES / f"{name}.cake"
    check_file(parse(read_source(file), str(file)), kernels)
    values = [launch.values for k in kernels for launch in islice(Family(k).launches(), 6)]
    seen = {(v["H"] // v["HK"], v["HK"]) for v in values if "HK" in v}
    assert {(1, 1), (1, 2), (2, 1), (2, 2)} <= seen


def test_remainders_where_nothing_forbids_them() -> None:
    kernel = expand_text("""
kernel k(a: f32[N, 32], out c: f32[N, 32], G: i32) for sm_90a:
    tiles once:
        n in N

    role work: warps 1

    do work:
        r: f32[1, 32] spread(1)
        for t in tiles:
            r = load(a[t.n, cols(r)])
            if t.n < N // G * G:
                store(c[t.n, cols(r)], r)
            else:
                store(c[t.n, cols(r)], r + 1.0)
""")
    values = [launch.values for launch in islice(Family(kernel).launches(), 6)]
    assert {(1, 0), (2, 0), (1, 1), (2, 1)} <= {(v["N"] // v["G"], v["N"] % v["G"]) for v in values}
