"""Attention over packed sequences. A shape is (sequences, query heads, key heads, query length, key length); a negative query
length asks for ragged sequences of up to that many queries. The counter of tiles is the last argument."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.problems.problem import Constants, Problem, Shape, poisoned, random_tensor


def lengths(torch: Any, shape: Shape, generator: Any) -> tuple[list[int], list[int]]:
    """Of the queries and of the keys of each sequence; at least one of each in all."""
    b, _, _, nq, nk = shape
    if nq >= 0:
        return [nq] * b, [nk] * b
    cpu = torch.Generator()
    cpu.manual_seed(generator.initial_seed())
    queries = torch.randint(0, -nq + 1, (b,), generator=cpu).tolist()
    keys = torch.randint(0, nk + 1, (b,), generator=cpu).tolist()
    if sum(queries) == 0:
        queries[0] = 1
    if sum(keys) == 0:
        keys[0] = 1
    return queries, keys


def _attention_arguments(torch: Any, shape: Shape, generator: Any, constants: Constants) -> list[Any]:
    _, h, hk, _, _ = shape
    d = constants["D"]
    queries, keys = lengths(torch, shape, generator)
    cu_q = torch.tensor([0, *queries]).cumsum(0).int().to(generator.device)
    cu_k = torch.tensor([0, *keys]).cumsum(0).int().to(generator.device)
    tq, tk = sum(queries), sum(keys)
    arguments = [
        random_tensor(torch, (tq, h, d), generator, torch.bfloat16),
        random_tensor(torch, (tk, hk, d), generator, torch.bfloat16),
        random_tensor(torch, (tk, hk, d), generator, torch.bfloat16),
        cu_q,
        cu_k,
        max(queries),
        1.4426950408889634 / d**0.5,
        poisoned(torch, (tq, h, d), generator.device, torch.bfloat16),
    ]
    if constants["LSE"]:
        arguments.append(poisoned(torch, (h, tq), generator.device, torch.float32))
    return [*arguments, torch.zeros(1, dtype=torch.int32, device=generator.device)]


def _attention(torch: Any, t: list[Any], constants: Constants) -> list[tuple[Any, Any]]:
    """Besides its own rounding, an element carries that of each weight P to bf16: 2**-9 of P |V|, with as much again to spare."""
    q, k, v, scale = t[0].double(), t[1].double(), t[2].double(), t[6]
    cu_q, cu_k = t[3].tolist(), t[4].tolist()
    y, weight = torch.zeros_like(q), torch.zeros_like(q)
    lse = torch.full((q.shape[1], q.shape[0]), float("-inf"), dtype=q.dtype, device=q.device)
    share = q.shape[1] // k.shape[1]
    for b in range(len(cu_q) - 1):
        rows, keys = slice(cu_q[b], cu_q[b + 1]), slice(cu_k[b], cu_k[b + 1])
        nq, nk = rows.stop - rows.start, keys.stop - keys.start
        if nq == 0 or nk == 0:
            continue
        for h in range(q.shape[1]):
            s = q[rows, h] @ k[keys, h // share].T * scale
            if constants["CAUSAL"]:
                i = torch.arange(nq, device=q.device)[:, None] + (nk - nq)
                s = s.masked_fill(torch.arange(nk, device=q.device) > i, float("-inf"))
            top = s.amax(dim=1, keepdim=True).nan_to_num(neginf=0.0)
            p = torch.exp2(s - top)
            total = p.sum(dim=1, keepdim=True)
            some = total.clamp_min(1e-300)
            y[rows, h] = torch.where(total > 0, p @ v[keys, h // share] / some, 0.0)
            weight[rows, h] = torch.where(total > 0, p @ v[keys, h // share].abs() / some, 0.0)
            lse[h, rows] = (top + torch.log2(total))[:, 0]
    outputs = [(y, y.abs() * 2.0**-8 + weight * 2.0**-8 + 1e-6)]
    if constants["LSE"]:
        # Rows that see no key keep the finite start of the running maximum: their value means "nothing", whatever it is.
        outputs.append((lse, torch.where(lse.isinf(), torch.inf, 1e-3)))
    return outputs


def _attention_peer(torch: Any, t: list[Any], constants: Constants) -> Callable[[], Any]:
    """cuDNN through torch's SDPA, on the same values as a dense batch."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    b = t[3].numel() - 1
    q, k, v = (x.view(b, -1, *x.shape[1:]).transpose(1, 2).contiguous() for x in t[:3])

    def call() -> Any:
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return torch.nn.functional.scaled_dot_product_attention(
                q, k, v, is_causal=constants["CAUSAL"], enable_gqa=q.shape[1] != k.shape[1]
            )

    return call


def _attention_computed(torch: Any, t: list[Any], constants: Constants) -> list[Any]:
    """The dense batch as packed sequences; the peer keeps its log sums to itself."""
    y = _attention_peer(torch, t, constants)().transpose(1, 2).reshape(t[0].shape)
    return [y, None] if constants["LSE"] else [y]


def _attention_work(shape: Shape, constants: Constants) -> float:
    b, h, _, nq, nk = shape
    return 4.0 * b * h * nq * nk * constants["D"] * (0.5 if constants["CAUSAL"] else 1.0)


def _attention_shapes(constants: Constants) -> list[Shape]:
    dense: list[Shape] = [
        (b, 2, 1, nq, nk)
        for b in (1, 2)
        for nq, nk in ((1, 1), (64, 64), (128, 128), (128, 1000), (200, 333), (577, 577))
    ]
    ragged: list[Shape] = [
        (b, h, hk, -nq, nk)
        for b in (1, 3, 6)
        for h, hk in ((1, 1), (4, 2), (8, 1))
        for nq, nk in ((40, 50), (300, 500), (700, 600))
    ]
    return dense + ragged + [(4, 4, 4, 1024, 1024), (1, 16, 4, 2048, 2048)]


def _attention_timed(constants: Constants) -> list[Shape]:
    if constants["D"] != 128:
        return [(4, 32, 32, 4096, 4096)]
    cells: list[Shape] = [(4, 16, 16, 4096, 4096), (2, 16, 16, 8192, 8192)]
    return [*cells, (1, 16, 16, 16384, 16384)] if constants["CAUSAL"] else cells


ATTENTION = Problem(
    name="attention",
    arguments=_attention_arguments,
    outputs=lambda c: (7, 8) if c["LSE"] else (7,),
    reference=_attention,
    peer=_attention_peer,
    peer_name="cuDNN (torch SDPA)",
    computed=_attention_computed,
    work=_attention_work,
    unit="TFLOP/s",
    checked=_attention_shapes,
    timed=_attention_timed,
)
