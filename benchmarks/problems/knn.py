"""Nearest neighbours. What a list is worth is the distances of its rows, so that rows may trade places whose distances differ by
less than f32 scores can tell apart; of bit-identical rows the lower must come first. A shape is (queries, rows, pattern)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from benchmarks.problems.problem import Constants, Problem, Shape, identical, poisoned, random_tensor

SCORES = 2**26  # distances computed at once
NORMAL, EQUAL, GAPS, NEAR, FALLING = range(5)
"""Normal values, some rows twice; all rows equal; rows and queries with NaN and infinities; rows that differ by rounding only;
rows in order, the nearest to the first query last."""


def _arguments(torch: Any, shape: Shape, generator: Any, constants: Constants) -> list[Any]:
    queries, rows, pattern = shape
    d, device = constants["D"], generator.device
    q, x = (random_tensor(torch, (n, d), generator, torch.bfloat16) for n in (queries, rows))
    if pattern == NORMAL:
        x[rows // 2 : rows // 2 + rows // 8] = x[: rows // 8].clone()
    elif pattern == EQUAL:
        x[:] = x[:1].clone()
    elif pattern == GAPS:
        x[::3, 5], x[1::7, 0], x[2::11, d - 1] = float("nan"), -float("inf"), float("inf")
        q[1::4, 2] = float("nan")
    elif pattern == NEAR:
        step = torch.randint(0, 8, (rows, 8), generator=generator, device=device)
        x[:] = x[:1].clone()
        x[:, :8] = 2.0**-7 + step * 2.0**-14
    elif pattern == FALLING:
        far = (x.double() - q[0].double()).square().sum(dim=1)
        x = x[torch.argsort(far, descending=True)].contiguous()
    k = constants["K"]
    return [
        q,
        x,
        poisoned(torch, (queries, k), device, torch.float32),
        poisoned(torch, (queries, k), device, torch.int32),
    ]


def _parts(count: int, each: int) -> Iterator[slice]:
    step = max(1, SCORES // max(1, each))
    for at in range(0, count, step):
        yield slice(at, min(count, at + step))


def _worth(torch: Any, distance: Any) -> Any:
    """Distances in which there is no neighbour (infinite, NaN) as -1."""
    return torch.where(torch.isfinite(distance), distance, -1.0)


def _nearest(torch: Any, t: list[Any], constants: Constants) -> list[tuple[Any, Any]]:
    """The least squared distances in float64, for both outputs."""
    q, x, k = t[0].double(), t[1].double(), constants["K"]
    best = torch.full((q.shape[0], k), float("inf"), dtype=torch.float64, device=q.device)
    norms = x.square().sum(dim=1)
    taken = min(k, x.shape[0])
    for part in _parts(q.shape[0], x.shape[0]):
        far = norms - 2.0 * (q[part] @ x.T) + q[part].square().sum(dim=1, keepdim=True)
        far = torch.where(torch.isfinite(far), far, torch.inf)
        best[part, :taken] = torch.topk(far, taken, dim=1, largest=False, sorted=True)[0]
    size = torch.where(torch.isfinite(norms), norms, 0.0).amax().sqrt()
    bound = 2.0**-19 * (size * size + 2.0 * size * q.square().sum(dim=1, keepdim=True).sqrt()) + 1e-30
    return [(_worth(torch, best), torch.where(torch.isfinite(bound), bound, 1e-30).expand(-1, k))] * 2


def _listed(torch: Any, t: list[Any], output: Any) -> Any:
    """The distances of the rows of a list; NaN where a row is none, was there before, or comes before a lower one that equals it,
    and, of the distances that were computed, where one is not that of its row."""
    q, x, rows = t[0].double(), t[1], t[3].long()
    own = torch.empty(rows.shape, dtype=torch.float64, device=q.device)
    for part in _parts(q.shape[0], rows.shape[1] * x.shape[1]):
        own[part] = (q[part][:, None, :] - x[rows[part].clamp(0, x.shape[0] - 1)].double()).square().sum(dim=2)
    group, rank = identical(torch, x)
    listed = (rows >= 0) & (rows < x.shape[0])
    mine = torch.where(listed, group[rows.clamp(0, x.shape[0] - 1)], -1)
    before = (mine[:, :, None] == mine[:, None, :]).tril(-1).sum(dim=2)
    good = listed & (rank[rows.clamp(0, x.shape[0] - 1)] == before) & torch.isfinite(own)
    if output.dtype == torch.float32:
        good &= (output.double() - own).abs() <= own * 2.0**-18 + 1e-30
        absent = (rows == -1) & (output == torch.inf)
    else:
        absent = rows == -1
    return torch.where(absent, -1.0, torch.where(good, own, torch.nan))


def _peer(torch: Any, t: list[Any], constants: Constants) -> Callable[[], Any]:
    """Matrix products and topk, in chunks whose scores fit."""

    def call() -> None:
        norms = t[1].float().square().sum(dim=1)
        taken = min(constants["K"], t[1].shape[0])
        for part in _parts(t[0].shape[0], t[1].shape[0]):
            far = norms - 2.0 * (t[0][part] @ t[1].T).float() + t[0][part].float().square().sum(dim=1, keepdim=True)
            value, row = torch.topk(far, taken, dim=1, largest=False, sorted=True)
            t[2][part, :taken], t[3][part, :taken] = value, row.int()

    return call


def _shapes(constants: Constants) -> Sequence[Shape]:
    normal = [(q, n, NORMAL) for q in (1, 64, 65, 300) for n in (1, 7, 128, 129, 1000, 5000)]
    odd = [(q, n, p) for p in (EQUAL, GAPS, NEAR, FALLING) for q, n in ((1, 1000), (70, 3001), (130, 40000))]
    return [*normal, *odd, (2000, 20000, NORMAL), (257, 70001, NORMAL)]


KNN = Problem(
    name="knn",
    arguments=_arguments,
    outputs=lambda c: (2, 3),
    reference=_nearest,
    peer=_peer,
    peer_name="torch matmul + topk in chunks",
    work=lambda s, c: 2.0 * s[0] * s[1] * c["D"],
    unit="TFLOP/s",
    checked=_shapes,
    timed=lambda c: [],  # knn.py
    measure=_listed,
)
KNN_FEW = replace(KNN, name="knn_few")
