"""The problems that benchmarks and GPU tests run: inputs, reference, peer, tolerances, shapes. A kernel is matched to
its problem by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Problem:
    """``inputs(torch, shape, generator)`` makes the tensors of a call in order of declaration, outputs poisoned;
    ``outputs`` are their indices. ``reference`` computes the outputs in float64; ``peer`` writes into outputs of its
    own. ``checked`` shapes are tested, ``timed`` ones also timed. ``bound(reference) `` is the error allowed for each
    element."""

    name: str
    inputs: Callable[[Any, Shape, Any], list[Any]]
    outputs: tuple[int, ...]
    reference: Callable[[Any, list[Any]], list[Any]]
    peer: Callable[[Any, list[Any]], Any]
    flops: Callable[[Shape], float]
    bound: Callable[[Any], Any]
    checked: tuple[Shape, ...]
    timed: tuple[Shape, ...]


def random_tensor(torch: Any, shape: Shape, generator: Any, dtype: Any) -> Any:
    """Standard normal values."""
    return torch.randn(shape, generator=generator, device=generator.device, dtype=torch.float32).to(dtype)


def poisoned(torch: Any, shape: Shape, device: Any, dtype: Any) -> Any:
    """An output filled with NaN, so that an element nobody writes shows."""
    return torch.full(shape, float("nan"), device=device, dtype=dtype)


def _gemm_inputs(torch: Any, shape: Shape, generator: Any) -> list[Any]:
    m, n, k = shape
    return [
        random_tensor(torch, (m, k), generator, torch.bfloat16),
        random_tensor(torch, (n, k), generator, torch.bfloat16),
        poisoned(torch, (m, n), generator.device, torch.bfloat16),
    ]


def _gemm_bound(reference: Any) -> Any:
    """One rounding to bf16 (half an ulp is 2**-9), and the sum's own in f32, far below a thousandth of the typical
    element."""
    return reference.abs() * 2.0**-8 + 1e-3 * reference.square().mean().sqrt()


GEMM = Problem(
    name="gemm",
    inputs=_gemm_inputs,
    outputs=(2,),
    reference=lambda torch, t: [t[0].double() @ t[1].double().T],
    peer=lambda torch, t: torch.mm(t[0], t[1].T, out=t[2]),
    flops=lambda s: 2.0 * s[0] * s[1] * s[2],
    bound=_gemm_bound,
    checked=(
        (128, 256, 64),
        (1, 8, 8),
        (64, 64, 64),
        (127, 264, 72),
        (129, 8, 8),
        (300, 520, 40),
        (128, 256, 4096),
        (16, 128, 7168),
        (1000, 1000, 1000),
        (2049, 2056, 136),
        (4111, 1024, 512),
        (4096, 4096, 1024),
    ),
    timed=(
        (8192, 8192, 8192),
        (4096, 4096, 4096),
        (2048, 2048, 2048),
        (16384, 4096, 4096),
        (1024, 4096, 4096),
        (8192, 8192, 512),
        (4111, 4096, 4096),
    ),
)

PROBLEMS = {p.name: p for p in (GEMM,)}
