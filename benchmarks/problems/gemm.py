"""The matrix products: plain, by clusters, ping-pong, stream-K, batched, with bias and gelu."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from benchmarks.problems.problem import Constants, Problem, Shape, poisoned, random_tensor, rounded


def _gemm_arguments(torch: Any, shape: Shape, generator: Any, constants: Constants) -> list[Any]:
    m, n, k = shape
    return [
        random_tensor(torch, (m, k), generator, torch.bfloat16),
        random_tensor(torch, (n, k), generator, torch.bfloat16),
        poisoned(torch, (m, n), generator.device, torch.bfloat16),
    ]


def _gemm_shapes(constants: Constants) -> list[Shape]:
    fixed: list[Shape] = [
        (1, 8, 8),
        (128, 256, 4096),
        (16, 128, 7168),
        (2049, 2056, 136),
        (4111, 1024, 512),
        (4096, 4096, 1024),
    ]
    ragged: list[Shape] = [(m, n, k) for m in (1, 64, 127, 129, 300) for n in (8, 264, 520) for k in (8, 72, 200)]
    return fixed + ragged


GEMM = Problem(
    name="gemm",
    arguments=_gemm_arguments,
    outputs=lambda c: (2,),
    reference=lambda torch, t, c: [rounded(t[0].double() @ t[1].double().T)],
    peer=lambda torch, t, c: lambda: torch.mm(t[0], t[1].T, out=t[2]),
    peer_name="torch.mm (cuBLAS)",
    work=lambda s, c: 2.0 * s[0] * s[1] * s[2],
    unit="TFLOP/s",
    checked=_gemm_shapes,
    timed=lambda c: [
        (8192, 8192, 8192),
        (4096, 4096, 4096),
        (2048, 2048, 2048),
        (16384, 4096, 4096),
        (4096, 14336, 4096),
        (1024, 4096, 4096),
        (8192, 8192, 512),
        (4111, 4096, 4096),
    ],
)


GEMM_CLUSTER = replace(GEMM, name="gemm_cluster")
GEMM_SPLIT = replace(
    GEMM,
    name="gemm_split",
    timed=lambda c: [(128, 128, 16384), (256, 256, 8192), (512, 512, 8192), (64, 4096, 4096), (1024, 1024, 8192)],
)


def _bias_arguments(torch: Any, shape: Shape, generator: Any, constants: Constants) -> list[Any]:
    m, n, k = shape
    return [
        random_tensor(torch, (m, k), generator, torch.bfloat16),
        random_tensor(torch, (n, k), generator, torch.bfloat16, k**-0.5),  # products around one, where gelu bends
        random_tensor(torch, (n,), generator, torch.float32),
        poisoned(torch, (m, n), generator.device, torch.bfloat16),
    ]


def _bias_gelu(torch: Any, t: list[Any], constants: Constants) -> list[tuple[Any, Any]]:
    """The exact gelu, by erf."""
    return [rounded(torch.nn.functional.gelu(t[0].double() @ t[1].double().T + t[2].double()))]


def _bias_peer(torch: Any, t: list[Any], constants: Constants) -> Callable[[], Any]:
    bias = t[2].to(torch.bfloat16)
    return lambda: torch.nn.functional.gelu(torch.nn.functional.linear(t[0], t[1], bias))


GEMM_BIAS_GELU = replace(
    GEMM,
    name="gemm_bias_gelu",
    arguments=_bias_arguments,
    outputs=lambda c: (3,),
    reference=_bias_gelu,
    peer=_bias_peer,
    peer_name="torch linear (cuBLAS), then gelu",
    computed=lambda torch, t, c: [_bias_peer(torch, t, c)()],
    timed=lambda c: [(8192, 8192, 8192), (4096, 4096, 4096), (16384, 4096, 4096), (4096, 14336, 4096)],
)


# A shape is (matrices, M, N, K).


def _batched_arguments(torch: Any, shape: Shape, generator: Any, constants: Constants) -> list[Any]:
    z, m, n, k = shape
    return [
        random_tensor(torch, (z, m, k), generator, torch.bfloat16),
        random_tensor(torch, (z, n, k), generator, torch.bfloat16),
        poisoned(torch, (z, m, n), generator.device, torch.bfloat16),
    ]


def _batched_shapes(constants: Constants) -> list[Shape]:
    fixed: list[Shape] = [
        (1, 1, 8, 8),
        (7, 128, 256, 4096),
        (33, 16, 128, 2048),
        (5, 1029, 1032, 136),
        (64, 128, 128, 128),
    ]
    return fixed + [(z, m, n, k) for z in (1, 2, 5) for m in (1, 127, 300) for n in (8, 264) for k in (8, 72, 200)]


BATCHED_GEMM = replace(
    GEMM,
    name="batched_gemm",
    arguments=_batched_arguments,
    reference=lambda torch, t, c: [rounded(t[0].double() @ t[1].double().transpose(1, 2))],
    peer=lambda torch, t, c: lambda: torch.bmm(t[0], t[1].transpose(1, 2), out=t[2]),
    peer_name="torch.bmm (cuBLAS)",
    work=lambda s, c: 2.0 * s[0] * s[1] * s[2] * s[3],
    checked=_batched_shapes,
    timed=lambda c: [(8, 4096, 4096, 4096), (64, 1024, 1024, 1024), (256, 512, 512, 512), (512, 128, 512, 512)],
)


def _pingpong_arguments(torch: Any, shape: Shape, generator: Any, constants: Constants) -> list[Any]:
    """With SPLIT > 1 also room for partial sums, and flags that are zero."""
    arguments = _gemm_arguments(torch, shape, generator, constants)
    if constants["SPLIT"] > 1:
        tiles = (-(-shape[0] // constants["BM"]), -(-shape[1] // constants["BN"]))
        size = constants["BM"] * constants["BN"]
        arguments.append(poisoned(torch, (*tiles, size), generator.device, torch.float32))
        arguments.append(torch.zeros(tiles, dtype=torch.int32, device=generator.device))
    return arguments


GEMM_PINGPONG = replace(GEMM, name="gemm_pingpong", arguments=_pingpong_arguments, scratch=(3,))


# Stream-K: a shape has the number of units too.


def _streamk_arguments(torch: Any, shape: Shape, generator: Any, constants: Constants) -> list[Any]:
    """Room for the parts of the units, and flags that are zero."""
    units, bn, device = shape[3], constants["BN"], generator.device
    return [
        *_gemm_arguments(torch, shape[:3], generator, constants),
        poisoned(torch, (units, 2, 64 * bn), device, torch.float32),
        torch.zeros((units, 2), dtype=torch.int32, device=device),
    ]


def _streamk_shapes(constants: Constants) -> list[Shape]:
    """As many units as an H200 has SMs, and few, of which some have parts of several tiles and some several a tile."""
    shapes: list[Shape] = []
    for m, n, k in [*_gemm_shapes(constants), (1152, 1152, 4096), (128, 128, 16384)]:
        slabs = -(-m // constants["BM"]) * -(-n // constants["BN"]) * -(-k // constants["BK"])
        shapes += [(m, n, k, min(units, slabs)) for units in (5, 132)]
    return list(dict.fromkeys(shapes))


GEMM_STREAMK = replace(
    GEMM,
    name="gemm_streamk",
    arguments=_streamk_arguments,
    scratch=(3,),
    checked=_streamk_shapes,
    timed=lambda c: [],  # gemm_shapes.py
)
