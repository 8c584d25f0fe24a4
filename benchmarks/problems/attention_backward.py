"""Gradients of attention over packed sequences. Shapes are those of attention: (sequences, query heads, key heads, query length, key
length), ragged where the query length is negative."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.problems.attention import lengths
from benchmarks.problems.problem import Constants, Problem, Shape, poisoned, random_tensor

OUTPUTS = (11, 12, 13)


def _arguments(torch: Any, shape: Shape, generator: Any, constants: Constants) -> list[Any]:
    """O and the log sums are what float64 gives, rounded as the forward pass rounds them."""
    _, h, hk, _, _ = shape
    d = constants["D"]
    queries, keys = lengths(torch, shape, generator)
    cu = [torch.tensor([0, *n]).cumsum(0).int().to(generator.device) for n in (queries, keys)]
    sizes = ((sum(queries), h, d), (sum(keys), hk, d), (sum(keys), hk, d), (sum(queries), h, d))
    q, k, v, do = (random_tensor(torch, size, generator, torch.bfloat16) for size in sizes)
    o = torch.zeros_like(q)
    lse = torch.full((h, q.shape[0]), -math.inf, dtype=torch.float32, device=generator.device)
    scale = math.log2(math.e) / d**0.5
    for rows, keys_, head, group, p, total in _weights(torch, [q, k, *cu], scale, constants):
        o[rows, head] = (p @ v[keys_, group].double()).to(o.dtype)
        lse[head, rows] = total.float()
    outputs = [poisoned(torch, tuple(x.shape), generator.device, torch.bfloat16) for x in (q, k, v)]
    return [q, k, v, o, do, lse, *cu, max(1, *queries), max(1, *keys), scale, *outputs]


def _weights(
    torch: Any, t: list[Any], scale: float, constants: Constants
) -> Iterator[tuple[slice, slice, int, int, Any, Any]]:
    """For each sequence and query head: its rows, its keys, both heads' numbers, the softmax and the log2 of its sums."""
    q, k, cu_q, cu_k = t[0], t[1], t[2].tolist(), t[3].tolist()
    share = q.shape[1] // k.shape[1]
    for b in range(len(cu_q) - 1):
        rows, keys = slice(cu_q[b], cu_q[b + 1]), slice(cu_k[b], cu_k[b + 1])
        nq, nk = rows.stop - rows.start, keys.stop - keys.start
        if nq == 0 or nk == 0:
            continue
        for h in range(q.shape[1]):
            s = q[rows, h].double() @ k[keys, h // share].double().T * scale
            if constants["CAUSAL"]:
                i = torch.arange(nq, device=q.device)[:, None] + (nk - nq)
                s = s.masked_fill(torch.arange(nk, device=q.device) > i, -math.inf)
            top = s.amax(dim=1, keepdim=True).nan_to_num(neginf=0.0)
            p = torch.exp2(s - top)
            total = p.sum(dim=1, keepdim=True)
            yield rows, keys, h, h // share, p / total.clamp_min(1e-300), (top + torch.log2(total))[:, 0]


def _reference(torch: Any, t: list[Any], constants: Constants) -> list[tuple[Any, Any]]:
    """Besides its own rounding, an element carries those of P and dS to bf16, 2**-9 of what is summed, and through delta that of O;
    as much again is to spare."""
    q, k, v, o, do, scale = t[0], t[1], t[2], t[3].double(), t[4].double(), t[10]
    true, off = ([torch.zeros(x.shape, dtype=torch.float64, device=x.device) for x in (q, k, v)] for _ in range(2))
    for rows, keys, h, g, p, _ in _weights(torch, [q, k, t[6], t[7]], scale, constants):
        a, b, c, y = q[rows, h].double(), k[keys, g].double(), v[keys, g].double(), do[rows, h]
        dp = y @ c.T
        ds = p * (dp - (p * dp).sum(dim=1, keepdim=True)) * (scale * math.log(2.0))
        loose = ds.abs() + p * (o[rows, h].abs() * y.abs()).sum(dim=1, keepdim=True) * (scale * math.log(2.0))
        for sums, e, w, (x, m, n) in ((true, ds, p, (a, b, y)), (off, loose, p, (a.abs(), b.abs(), y.abs()))):
            sums[0][rows, h] += e @ m
            sums[1][keys, g] += e.T @ x
            sums[2][keys, g] += w.T @ n
    return [(x, x.abs() * 2.0**-8 + e * 2.0**-8 + 1e-5) for x, e in zip(true, off, strict=True)]


def _peer(torch: Any, t: list[Any], constants: Constants) -> Callable[[], Any]:
    """cuDNN's backward pass through torch's SDPA, on the same values as a dense batch."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    b = t[6].numel() - 1
    q, k, v, do = (x.view(b, -1, *x.shape[1:]).transpose(1, 2).contiguous() for x in (t[0], t[1], t[2], t[4]))
    inputs = [x.requires_grad_() for x in (q, k, v)]
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        y = torch.nn.functional.scaled_dot_product_attention(
            *inputs, is_causal=constants["CAUSAL"], enable_gqa=q.shape[1] != k.shape[1]
        )
    return lambda: torch.autograd.grad(y, inputs, do, retain_graph=True)


def _computed(torch: Any, t: list[Any], constants: Constants) -> list[Any]:
    """The dense batch as packed sequences."""
    found = _peer(torch, t, constants)()
    return [x.transpose(1, 2).reshape(y.shape) for x, y in zip(found, t[:3], strict=True)]


def _work(shape: Shape, constants: Constants) -> float:
    b, h, _, nq, nk = shape
    return 10.0 * b * h * abs(nq) * nk * constants["D"] * (0.5 if constants["CAUSAL"] else 1.0)


def _checked(constants: Constants) -> list[Shape]:
    dense: list[Shape] = [
        (b, 2, 1, nq, nk)
        for b in (1, 2)
        for nq, nk in ((1, 1), (1, 500), (64, 64), (128, 128), (128, 1000), (577, 577), (700, 130))
    ]
    ragged: list[Shape] = [
        (b, h, hk, -nq, nk)
        for b in (1, 3, 6)
        for h, hk in ((1, 1), (4, 2), (8, 1))
        for nq, nk in ((2, 2), (300, 500), (700, 600))
    ]
    return [*dense, *ragged, (4, 4, 4, 1024, 1024)]


ATTENTION_BACKWARD = Problem(
    name="attention_backward",
    arguments=_arguments,
    outputs=lambda c: OUTPUTS,
    reference=_reference,
    peer=_peer,
    peer_name="cuDNN (torch SDPA)",
    computed=_computed,
    work=_work,
    unit="TFLOP/s",
    checked=_checked,
    timed=lambda c: [(4, 16, 16, 4096, 4096)],
)
