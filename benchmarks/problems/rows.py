"""Softmax and the norms: one row at a time, bound by memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from benchmarks.problems.problem import Constants, Problem, Shape, poisoned, random_tensor, rounded


def _row_shapes(constants: Constants) -> list[Shape]:
    limit = constants.get("COLS", 4096)
    widths = [8, 16, 40, 128, 256, 264, 1000, 1016, 1024, 2040, 2048, 3000, 4088, 4096, 8184, 8192, 16384]
    return [(m, n) for n in widths if n <= limit for m in (1, 3, 130, 517)]


def _long_shapes(constants: Constants) -> list[Shape]:
    widths = [8, 264, 1000, 4096, 4104, 8192, 12000, 20000, 32768, 50264]
    return [(m, n) for n in widths for m in (1, 2, 5, 133)]


def _copy(torch: Any, t: list[Any], constants: Constants) -> Callable[[], Any]:
    return lambda: t[-1].copy_(t[0])


def _compiled(function: Callable[..., Any]) -> Callable[[Any, list[Any], Constants], Callable[[], Any]]:
    """``function(torch, *inputs)`` through torch.compile, for exactly these shapes."""

    def rival(torch: Any, t: list[Any], constants: Constants) -> Callable[[], Any]:
        compiled = torch.compile(lambda *inputs: function(torch, *inputs), dynamic=False, fullgraph=True)
        return lambda: compiled(*t[:-1])

    return rival


def _eager(function: Callable[..., Any]) -> Callable[[Any, list[Any], Constants], list[Any]]:
    """What ``function(torch, *inputs)`` computes: the error to compare with where the peer is a copy."""
    return lambda torch, t, constants: [function(torch, *t[:-1])]


def _torch_softmax(torch: Any, x: Any) -> Any:
    return torch.softmax(x, dim=1)


def _torch_rmsnorm(torch: Any, x: Any, g: Any, eps: float) -> Any:
    f = x.float()
    return (f * torch.rsqrt(f.square().mean(dim=1, keepdim=True) + eps) * g.float()).to(x.dtype)


def _torch_layernorm(torch: Any, x: Any, g: Any, b: Any, eps: float) -> Any:
    return torch.nn.functional.layer_norm(x, x.shape[1:], g, b, eps)


def _softmax_arguments(torch: Any, shape: Shape, generator: Any, constants: Constants) -> list[Any]:
    return [
        random_tensor(torch, shape, generator, torch.bfloat16, 4.0),
        poisoned(torch, shape, generator.device, torch.bfloat16),
    ]


def softmax(name: str, checked: Callable[[Constants], Sequence[Shape]], timed: Sequence[Shape]) -> Problem:
    return Problem(
        name=name,
        arguments=_softmax_arguments,
        outputs=lambda c: (1,),
        reference=lambda torch, t, c: [rounded(torch.softmax(t[0].double(), dim=1))],
        peer=_copy,
        peer_name="copy of the same size",
        work=lambda s, c: 4.0 * s[0] * s[1],
        unit="TB/s",
        checked=checked,
        timed=lambda c: [s for s in timed if s[1] <= c.get("COLS", 4096) or name.endswith("long")],
        rival=_compiled(_torch_softmax),
        computed=_eager(_torch_softmax),
    )


def _rmsnorm_arguments(torch: Any, shape: Shape, generator: Any, constants: Constants) -> list[Any]:
    return [
        random_tensor(torch, shape, generator, torch.bfloat16),
        random_tensor(torch, shape[1:], generator, torch.bfloat16),
        1e-5,
        poisoned(torch, shape, generator.device, torch.bfloat16),
    ]


def _rmsnorm(torch: Any, t: list[Any], constants: Constants) -> list[tuple[Any, Any]]:
    x, g = t[0].double(), t[1].double()
    return [rounded(x * torch.rsqrt(x.square().mean(dim=1, keepdim=True) + t[2]) * g)]


RMSNORM = Problem(
    name="rmsnorm",
    arguments=_rmsnorm_arguments,
    outputs=lambda c: (3,),
    reference=_rmsnorm,
    peer=_copy,
    peer_name="copy of the same size",
    work=lambda s, c: 4.0 * s[0] * s[1],
    unit="TB/s",
    checked=_row_shapes,
    timed=lambda c: [s for s in ((16384, 4096), (16384, 8192), (4096, 16384)) if s[1] <= c.get("COLS", 4096)],
    rival=_compiled(_torch_rmsnorm),
    computed=_eager(_torch_rmsnorm),
)


def _layernorm_arguments(torch: Any, shape: Shape, generator: Any, constants: Constants) -> list[Any]:
    x = (
        random_tensor(torch, shape, generator, torch.float32) + 8.0
    )  # where a variance from sums of squares would cancel
    return [
        x.to(torch.bfloat16),
        random_tensor(torch, shape[1:], generator, torch.bfloat16),
        random_tensor(torch, shape[1:], generator, torch.bfloat16),
        1e-5,
        poisoned(torch, shape, generator.device, torch.bfloat16),
    ]


def _layernorm(torch: Any, t: list[Any], constants: Constants) -> list[tuple[Any, Any]]:
    x, g, b = (e.double() for e in t[:3])
    scale = torch.rsqrt(x.var(dim=1, unbiased=False, keepdim=True) + t[3])
    return [rounded((x - x.mean(dim=1, keepdim=True)) * scale * g + b)]


LAYERNORM = replace(
    RMSNORM,
    name="layernorm",
    arguments=_layernorm_arguments,
    outputs=lambda c: (4,),
    reference=_layernorm,
    timed=lambda c: [s for s in ((16384, 4096), (16384, 8192)) if s[1] <= c.get("COLS", 4096)],
    rival=_compiled(_torch_layernorm),
    computed=_eager(_torch_layernorm),
)

SOFTMAX = softmax("softmax", _row_shapes, ((16384, 4096), (16384, 8192)))
SOFTMAX_LONG = softmax("softmax_long", _long_shapes, ((4096, 16384), (2048, 32768)))
