"""Flash-KMeans. A shape is (batches, points, centroids); the depth is a constant. An eighth of the centroids are copies of others
with lower numbers, so that ties occur and only the lower is right."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from benchmarks.problems.problem import Constants, Problem, Shape, poisoned, random_tensor

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
    x, c, half = t[:3]

    def call() -> None:
        for i, rows in _chunks(t):
            t[3][i, rows] = torch.argmax((x[i, rows] @ c[i].T).float() + half[i], dim=1).int()

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


def judge_means(torch: Any, x: Any, ids: Any, c: Any, new: Any, moved: Any) -> dict[str, float]:
    """``error``: new centroids beside the means in float64 of the points with each label (c where there are none), in units of
    what bf16 rounds off and f32 sums of n addends may lose, n 2^-24 of their magnitudes (above 1: wrong); and, where ``moved`` is
    given, |new - c|^2 beside it in units of 2^-16. ``empty``: clusters without points."""
    b, k, d = c.shape
    worst, empty = 0.0, 0
    for i in range(b):
        sums = torch.zeros((2, k, d), dtype=torch.float64, device=x.device)
        step = max(1, SCORES // d // 4)
        for at in range(0, x.shape[1], step):
            part, to = x[i, at : at + step].double(), ids[i, at : at + step].long()
            sums[0].index_add_(0, to, part)
            sums[1].index_add_(0, to, part.abs())
        n = torch.bincount(ids[i].long(), minlength=k)[:, None].double()
        mean = torch.where(n > 0, sums[0] / n.clamp(min=1), c[i].double())
        bound = mean.abs() * 2.0**-8 + 2.0**-24 * sums[1] + 1e-30
        worst = max(worst, float(((new[i].double() - mean).abs() / bound).nan_to_num(nan=float("inf")).amax()))
        empty += int((n == 0).sum())
        if moved is not None:
            far = (new[i].double() - c[i].double()).square().sum(dim=1)
            off = (moved[i].double() - far).abs() / (far * 2.0**-16 + 1e-30)
            worst = max(worst, float(off.nan_to_num(nan=float("inf")).amax()))
    return {"error": worst, "empty": empty}


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
