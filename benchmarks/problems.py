"""The problems that benchmarks and GPU tests run: arguments, reference, peer, tolerances, shapes. A kernel is matched to its
problem by name; shapes depend on its constants, which the manifest records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

Shape = tuple[int, ...]
Constants = dict[str, Any]


@dataclass(frozen=True)
class Problem:
    """``arguments(torch, shape, generator, constants)`` makes a call's arguments in order of declaration, outputs poisoned;
    ``outputs(constants)`` are their indices. ``reference`` computes each output in float64, with the error allowed for each
    element; ``peer`` writes into outputs of its own. ``checked`` shapes are tested, ``timed`` ones also timed. ``work`` counts
    the ``unit`` (FLOP or bytes) of a shape. ``measure(torch, arguments, output)`` turns an output that is a choice into what
    the choice is worth, in float64, NaN where it is none. ``scratch`` arguments may hold anything before and after."""

    name: str
    arguments: Callable[[Any, Shape, Any, Constants], list[Any]]
    outputs: Callable[[Constants], tuple[int, ...]]
    reference: Callable[[Any, list[Any], Constants], list[tuple[Any, Any]]]
    peer: Callable[[Any, list[Any], Constants], Callable[[], Any]]
    peer_name: str
    work: Callable[[Shape, Constants], float]
    unit: str
    checked: Callable[[Constants], Sequence[Shape]]
    timed: Callable[[Constants], Sequence[Shape]]
    # A second peer, where the first is only a ceiling: what torch.compile makes of the reference.
    rival: Callable[[Any, list[Any], Constants], Callable[[], Any]] | None = None
    measure: Callable[[Any, list[Any], Any], Any] | None = None
    scratch: tuple[int, ...] = ()


def random_tensor(torch: Any, shape: Shape, generator: Any, dtype: Any, scale: float = 1.0) -> Any:
    """Normal values."""
    x = torch.randn(shape, generator=generator, device=generator.device, dtype=torch.float32)
    return (scale * x).to(dtype)


def poisoned(torch: Any, shape: Shape, device: Any, dtype: Any) -> Any:
    """An output filled with NaN (integers: with -1), so that an element nobody writes shows."""
    return poison(torch, torch.empty(shape, device=device, dtype=dtype))


def poison(torch: Any, tensor: Any) -> Any:
    """Fill a tensor with what no kernel writes."""
    return tensor.fill_(float("nan") if tensor.dtype.is_floating_point else -1)


def rounded(reference: Any) -> tuple[Any, Any]:
    """A bf16 output and its bound: one rounding to bf16 (half an ulp is 2**-9) with as much again to spare, and a
    thousandth of the typical element for what f32 loses inside."""
    return reference, reference.abs() * 2.0**-8 + 1e-3 * reference.square().mean().sqrt()


# ---- GEMM -----------------------------------------------------------------------------------------------------------


def _gemm_arguments(torch: Any, shape: Shape, generator: Any, constants: Constants) -> list[Any]:
    m, n, k = shape
    return [
        random_tensor(torch, (m, k), generator, torch.bfloat16),
        random_tensor(torch, (n, k), generator, torch.bfloat16),
        poisoned(torch, (m, n), generator.device, torch.bfloat16),
    ]


def _gemm_shapes(constants: Constants) -> list[Shape]:
    fixed = [(1, 8, 8), (128, 256, 4096), (16, 128, 7168), (2049, 2056, 136), (4111, 1024, 512), (4096, 4096, 1024)]
    ragged = [(m, n, k) for m in (1, 64, 127, 129, 300) for n in (8, 264, 520) for k in (8, 72, 200)]
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


# ---- row kernels ----------------------------------------------------------------------------------------------------


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


def _softmax(name: str, checked: Callable[[Constants], Sequence[Shape]], timed: Sequence[Shape]) -> Problem:
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
        rival=_compiled(lambda torch, x: torch.softmax(x, dim=1)),
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
)


# ---- attention ------------------------------------------------------------------------------------------------------
# A shape is (sequences, query heads, key heads, query length, key length); a negative query length asks for ragged sequences
# of up to that many queries.


def _lengths(torch: Any, shape: Shape, generator: Any) -> tuple[list[int], list[int]]:
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
    queries, keys = _lengths(torch, shape, generator)
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
    return arguments


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


def _attention_work(shape: Shape, constants: Constants) -> float:
    b, h, _, nq, nk = shape
    return 4.0 * b * h * nq * nk * constants["D"] * (0.5 if constants["CAUSAL"] else 1.0)


def _attention_shapes(constants: Constants) -> list[Shape]:
    dense = [
        (b, 2, 1, nq, nk)
        for b in (1, 2)
        for nq, nk in ((1, 1), (64, 64), (128, 128), (128, 1000), (200, 333), (577, 577))
    ]
    ragged = [
        (b, h, hk, -nq, nk)
        for b in (1, 3, 6)
        for h, hk in ((1, 1), (4, 2), (8, 1))
        for nq, nk in ((40, 50), (300, 500), (700, 600))
    ]
    return dense + ragged + [(4, 4, 4, 1024, 1024), (1, 16, 4, 2048, 2048)]


def _attention_timed(constants: Constants) -> list[Shape]:
    if constants["D"] != 128:
        return [(4, 32, 32, 4096, 4096)]
    cells = [(4, 16, 16, 4096, 4096), (2, 16, 16, 8192, 8192)]
    return [*cells, (1, 16, 16, 16384, 16384)] if constants["CAUSAL"] else cells


ATTENTION = Problem(
    name="attention",
    arguments=_attention_arguments,
    outputs=lambda c: (7, 8) if c["LSE"] else (7,),
    reference=_attention,
    peer=_attention_peer,
    peer_name="cuDNN (torch SDPA)",
    work=_attention_work,
    unit="TFLOP/s",
    checked=_attention_shapes,
    timed=_attention_timed,
)

# ---- Flash-KMeans ---------------------------------------------------------------------------------------------------
# A shape is (batches, points, centroids); the depth is a constant. An eighth of the centroids are copies of others with lower
# numbers, so that ties occur and only the lower is right.

SCORES = 2**27  # scores computed at once


def _copies(k: int) -> tuple[int, int]:
    """Centroids ``k // 2 + i`` are copies of centroid i, for i below the second number."""
    return k // 2, k // 8


def _assign_arguments(torch: Any, shape: Shape, generator: Any, constants: Constants) -> list[Any]:
    b, n, k = shape
    d = constants["D"]
    c = random_tensor(torch, (b, k, d), generator, torch.bfloat16)
    first, count = _copies(k)
    c[:, first : first + count] = c[:, :count]
    return [
        random_tensor(torch, (b, n, d), generator, torch.bfloat16),
        c,
        -0.5 * c.float().square().sum(dim=2),
        poisoned(torch, (b, n), generator.device, torch.int32),
    ]


def _chunks(t: list[Any]) -> Iterator[tuple[int, slice]]:
    """Batches and ranges of points whose scores fit at once."""
    b, n, _ = t[0].shape
    step = max(1, SCORES // t[1].shape[1])
    for i in range(b):
        for at in range(0, n, step):
            yield i, slice(at, min(n, at + step))


def _assign(torch: Any, t: list[Any], constants: Constants) -> list[tuple[Any, Any]]:
    """The best score of each point in float64. Two centroids are equally near if their scores differ by less than what f32
    sums of the products lose: 2**-19 of |x| |c| (the products are exact, and the terms have random signs)."""
    x, c = t[0], t[1].double()
    half = -0.5 * c.square().sum(dim=2)
    best = torch.empty(x.shape[:2], dtype=torch.float64, device=x.device)
    for i, rows in _chunks(t):
        best[i, rows] = (x[i, rows].double() @ c[i].T + half[i]).amax(dim=1)
    longest = c.square().sum(dim=2).amax(dim=1).sqrt()
    return [(best, 2.0**-19 * x.double().square().sum(dim=2).sqrt() * longest[:, None] + 1e-30)]


def _chosen(torch: Any, t: list[Any], ids: Any) -> Any:
    """The score of the chosen centroid; NaN for a number out of range and for a copy, whose original has a lower one."""
    x, c = t[0], t[1]
    first, count = _copies(c.shape[1])
    real = (ids >= 0) & (ids < c.shape[1]) & ~((ids >= first) & (ids < first + count))
    out = torch.empty(ids.shape, dtype=torch.float64, device=x.device)
    step = max(1, SCORES // x.shape[2] // 4)
    for i in range(ids.shape[0]):
        for at in range(0, ids.shape[1], step):
            rows = slice(at, at + step)
            near = c[i, ids[i, rows].long().clamp(0, c.shape[1] - 1)].double()
            out[i, rows] = (x[i, rows].double() * near).sum(dim=1) - 0.5 * near.square().sum(dim=1)
    return torch.where(real, out, torch.nan)


def _assign_peer(torch: Any, t: list[Any], constants: Constants) -> Callable[[], Any]:
    """Matrix products and argmax, in chunks whose scores fit."""
    x, c, half, ids = t

    def call() -> None:
        for i, rows in _chunks(t):
            ids[i, rows] = torch.argmax((x[i, rows] @ c[i].T).float() + half[i], dim=1).int()

    return call


def _assign_shapes(constants: Constants) -> Sequence[Shape]:
    small = [(b, n, k) for b in (1, 3) for n in (1, 64, 255, 257, 1000) for k in (4, 60, 128, 132)]
    return [*small, (1, 300, 1000), (2, 4096, 1024), (1, 20000, 1000), (4, 2500, 2052), (1, 257, 8192), (70, 256, 256)]


def _assign_timed(constants: Constants) -> Sequence[Shape]:
    cells = {
        64: [(1, 65536, 256), (32, 65536, 1024)],
        128: [(32, 65536, 1024), (1, 1048576, 1024), (32, 75600, 1000), (1, 262144, 16384)],
        256: [(1, 262144, 4096)],
    }
    return cells[constants["D"]]


ASSIGN = Problem(
    name="assign",
    arguments=_assign_arguments,
    outputs=lambda c: (3,),
    reference=_assign,
    peer=_assign_peer,
    peer_name="torch matmul + argmax in chunks",
    work=lambda s, c: 2.0 * s[0] * s[1] * s[2] * c["D"],
    unit="TFLOP/s",
    checked=_assign_shapes,
    timed=_assign_timed,
    measure=_chosen,
)

HALF_NORMS = Problem(
    name="half_norms",
    arguments=lambda torch, s, g, c: [
        random_tensor(torch, (*s, c["D"]), g, torch.bfloat16),
        poisoned(torch, s, g.device, torch.float32),
    ],
    outputs=lambda c: (1,),
    reference=lambda torch, t, c: [((r := -0.5 * t[0].double().square().sum(dim=2)), r.abs() * 2.0**-18 + 1e-30)],
    peer=lambda torch, t, c: lambda: t[1].copy_(-0.5 * t[0].float().square().sum(dim=2)),
    peer_name="torch, unfused",
    work=lambda s, c: s[0] * s[1] * (2.0 * c["D"] + 4.0),
    unit="TB/s",
    checked=lambda c: [(b, k) for b in (1, 3, 32) for k in (1, 4, 7, 8, 9, 100, 1000, 4097)],
    timed=lambda c: [(32, 1024), (1, 65536)],
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
ATTENTION_DYNAMIC = replace(
    ATTENTION,
    name="attention_dynamic",
    arguments=lambda torch, s, g, c: [
        *_attention_arguments(torch, s, g, c),
        torch.zeros(1, dtype=torch.int32, device=g.device),
    ],
)

PROBLEMS = {
    p.name: p
    for p in (
        ASSIGN,
        HALF_NORMS,
        GEMM,
        GEMM_CLUSTER,
        GEMM_PINGPONG,
        GEMM_BIAS_GELU,
        BATCHED_GEMM,
        _softmax("softmax", _row_shapes, ((16384, 4096), (16384, 8192))),
        _softmax("softmax_long", _long_shapes, ((4096, 16384), (2048, 32768))),
        RMSNORM,
        LAYERNORM,
        ATTENTION,
        ATTENTION_DYNAMIC,
    )
}
