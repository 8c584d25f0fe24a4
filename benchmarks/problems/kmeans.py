"""Flash-KMeans: assignment, update and iteration. A shape is (batches, points, centroids) or with a pattern too; the depth is a
constant. Usually an eighth of the centroids are copies of others with lower numbers, so that ties occur and only the lower is right.
Infinities and NaN are compared too, as numbers of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from benchmarks.problems.problem import Constants, Problem, Shape, identical, poisoned, random_tensor

SCORES = 2**27  # scores computed at once
NORMAL, SAME_CENTROIDS, SAME_POINTS, GAPS = range(4)
"""Normal values; all centroids equal; all points equal; NaN and infinities in points and centroids."""


def _assign_arguments(torch: Any, shape: Shape, generator: Any, constants: Constants) -> list[Any]:
    b, n, k, *more = shape
    pattern, d = more[0] if more else NORMAL, constants["D"]
    x = random_tensor(torch, (b, n, d), generator, torch.bfloat16)
    c = random_tensor(torch, (b, k, d), generator, torch.bfloat16)
    if pattern == SAME_CENTROIDS:
        c[:] = c[:, :1].clone()
    elif pattern == SAME_POINTS:
        x[:] = x[:, :1].clone()
    elif pattern == GAPS:
        x[:, ::5, 3], x[:, 1::7, 0] = float("nan"), -float("inf")
        c[:, 2::9, 1], c[:, 4::9, 0] = float("nan"), float("inf")
    c[:, k // 2 : k // 2 + k // 8] = c[:, : k // 8].clone()
    return [x, c, -0.5 * c.float().square().sum(dim=2), poisoned(torch, (b, n), generator.device, torch.int32)]


def _numbers(torch: Any, values: Any) -> Any:
    """NaN and infinities as numbers, so that they are right only where they are expected."""
    return torch.nan_to_num(values, nan=1e30, posinf=2e30, neginf=-2e30)


def _chunks(t: list[Any]) -> Iterator[tuple[int, slice]]:
    """Batches and ranges of points whose scores fit at once."""
    b, n, _ = t[0].shape
    step = max(1, SCORES // t[1].shape[1])
    for i in range(b):
        for at in range(0, n, step):
            yield i, slice(at, min(n, at + step))


def _assign(torch: Any, t: list[Any], constants: Constants) -> list[tuple[Any, Any]]:
    """The best score of each point in float64, of those that are not NaN. Two centroids are equally near if their scores differ by
    less than what f32 sums of the products lose: 2**-19 of |x| |c| (the products are exact, and the terms have random signs)."""
    x, c = t[0], t[1].double()
    norms = c.square().sum(dim=2)
    best = torch.empty(x.shape[:2], dtype=torch.float64, device=x.device)
    for i, rows in _chunks(t):
        score = x[i, rows].double() @ c[i].T - 0.5 * norms[i]
        best[i, rows] = torch.where(torch.isnan(score), -torch.inf, score).amax(dim=1)
    longest = torch.where(torch.isfinite(norms), norms, 0.0).amax(dim=1).sqrt()
    bound = 2.0**-19 * x.double().square().sum(dim=2).sqrt() * longest[:, None] + 1e-30
    return [(_numbers(torch, best), torch.where(torch.isfinite(bound), bound, 1e-30))]


def _chosen(torch: Any, t: list[Any], ids: Any) -> Any:
    """The score of the chosen centroid, -inf for none (-1); NaN for a number out of range and for a copy of a lower centroid."""
    x, c = t[0], t[1]
    out = torch.empty(ids.shape, dtype=torch.float64, device=x.device)
    step = max(1, SCORES // x.shape[2] // 4)
    for i in range(ids.shape[0]):
        copies = identical(torch, c[i])[1]
        for at in range(0, ids.shape[1], step):
            own, rows = ids[i, at : at + step].long(), slice(at, at + step)
            known = own.clamp(0, c.shape[1] - 1)
            near = c[i, known].double()
            score = (x[i, rows].double() * near).sum(dim=1) - 0.5 * near.square().sum(dim=1)
            score = torch.where((own == known) & (copies[known] == 0), score, torch.nan)
            out[i, rows] = torch.where(own == -1, -torch.inf, score)
    return out


def _assign_peer(torch: Any, t: list[Any], constants: Constants) -> Callable[[], Any]:
    """Matrix products and argmax, in chunks whose scores fit."""
    x, c, half = t[:3]

    def call() -> None:
        for i, rows in _chunks(t):
            t[3][i, rows] = torch.argmax((x[i, rows] @ c[i].T).float() + half[i], dim=1).int()

    return call


def _assign_shapes(constants: Constants) -> Sequence[Shape]:
    small = [(b, n, k) for b in (1, 3) for n in (1, 64, 255, 257, 1000) for k in (4, 60, 128, 132)]
    odd = [(2, n, k, p) for p in (SAME_CENTROIDS, SAME_POINTS, GAPS) for n, k in ((1, 4), (300, 60), (1000, 260))]
    return [
        *small,
        *odd,
        (1, 300, 1000),
        (2, 4096, 1024),
        (1, 20000, 1000),
        (4, 2500, 2052),
        (1, 257, 8192),
        (70, 256, 256),
    ]


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
    measure=lambda torch, t, output: _numbers(torch, _chosen(torch, t, output)),
)


def means(torch: Any, x: Any, ids: Any, c: Any) -> tuple[Any, Any, Any]:
    """Means in float64 of the points with each label (c where there are none); the error allowed for each, which is what bf16 rounds
    off and f32 sums of n addends may lose, n 2^-24 of their magnitudes; and the numbers of points. A label that is none counts
    nowhere."""
    mean = c.double()
    bound = torch.zeros_like(mean)
    counts = torch.zeros(c.shape[:2], dtype=torch.int64, device=c.device)
    step = max(1, SCORES // c.shape[2] // 4)
    for i in range(c.shape[0]):
        sums = torch.zeros((2, *c.shape[1:]), dtype=torch.float64, device=x.device)
        mine = (ids[i] >= 0) & (ids[i] < c.shape[1])
        for at in range(0, x.shape[1], step):
            here = mine[at : at + step]
            part, to = x[i, at : at + step][here].double(), ids[i, at : at + step][here].long()
            sums[0].index_add_(0, to, part)
            sums[1].index_add_(0, to, part.abs())
        counts[i] = torch.bincount(ids[i][mine].long(), minlength=c.shape[1])
        n = counts[i][:, None].double()
        mean[i] = torch.where(n > 0, sums[0] / n.clamp(min=1), mean[i])
        bound[i] = mean[i].abs() * 2.0**-8 + 2.0**-24 * sums[1] + 1e-30
    return mean, bound, counts


def _far(torch: Any, new: Any, c: Any) -> tuple[Any, Any]:
    """|new - c|^2 in float64, and the error allowed for it."""
    far = (new.double() - c.double()).square().sum(dim=2)
    return far, far * 2.0**-16 + 1e-30


def judge_means(torch: Any, x: Any, ids: Any, c: Any, new: Any, moved: Any) -> dict[str, float]:
    """``error``: new centroids beside ``means``, in units of what is allowed (above 1: wrong); and, where ``moved`` is given, |new -
    c|^2 beside it. ``empty``: clusters without points."""
    mean, bound, counts = means(torch, x, ids, c)
    worst = float(((new.double() - mean).abs() / bound).nan_to_num(nan=float("inf")).amax())
    if moved is not None:
        far, allowed = _far(torch, new, c)
        worst = max(worst, float(((moved.double() - far).abs() / allowed).nan_to_num(nan=float("inf")).amax()))
    return {"error": worst, "empty": int((counts == 0).sum())}


# Means are those of the labels that the kernel chose, and how far they moved is from the means that it wrote: the reference looks at
# outputs.


def _update(torch: Any, t: list[Any], constants: Constants) -> list[tuple[Any, Any]]:
    x, ids, c, new = t[:4]
    mean, bound, _ = means(torch, x, ids, c)
    return [
        (_numbers(torch, value), torch.where(torch.isfinite(error), error, 1e-30))
        for value, error in ((mean, bound), _far(torch, new, c))
    ]


def _update_arguments(torch: Any, shape: Shape, generator: Any, constants: Constants) -> list[Any]:
    """Labels of any cluster but the last, and some that are none."""
    x, c, _, ids = _assign_arguments(torch, shape, generator, constants)
    b, n, k = shape[:3]
    ids[:] = torch.randint(0, max(1, k - 1), (b, n), generator=generator, device=generator.device)
    ids[:, 3::17], ids[:, 5::17] = -1, k
    return [x, ids, c, torch.full_like(c, torch.nan), poisoned(torch, (b, k), generator.device, torch.float32)]


def _step_arguments(torch: Any, shape: Shape, generator: Any, constants: Constants) -> list[Any]:
    x, c, _, ids = _assign_arguments(torch, shape, generator, constants)
    return [x, c, ids, torch.full_like(c, torch.nan), poisoned(torch, c.shape[:2], generator.device, torch.float32)]


def _step_peer(torch: Any, t: list[Any], constants: Constants) -> Callable[[], Any]:
    """Matrix products and argmax, then sums by index_add."""
    x, c, ids, new, moved = t

    def call() -> None:
        _assign_peer(torch, [x, c, -0.5 * c.float().square().sum(dim=2), ids], constants)()
        _means_peer(torch, [x, ids, c, new, moved], constants)()

    return call


def _means_peer(torch: Any, t: list[Any], constants: Constants) -> Callable[[], Any]:
    x, ids, c, new, moved = t

    def call() -> None:
        new.copy_(means(torch, x, ids, c)[0])
        moved.copy_((new.float() - c.float()).square().sum(dim=2))

    return call


def _step_worth(torch: Any, t: list[Any], output: Any) -> Any:
    """Of labels the scores, of the others the values."""
    return _numbers(torch, _chosen(torch, t, output) if output.dtype == torch.int32 else output.double())


def _step_shapes(constants: Constants) -> Sequence[Shape]:
    small = [(b, n, k) for b in (1, 3) for n in (1, 64, 257, 1000) for k in (4, 60, 132)]
    odd = [(2, n, k, p) for p in (SAME_CENTROIDS, SAME_POINTS, GAPS) for n, k in ((1, 4), (300, 60), (5000, 260))]
    return [*small, *odd, (2, 4096, 1024), (4, 20000, 100), (70, 256, 256)]


STEP = replace(
    ASSIGN,
    name="kmeans_step",
    arguments=_step_arguments,
    outputs=lambda c: (2, 3, 4),
    reference=lambda torch, t, c: _assign(torch, t[:2], c) + _update(torch, [t[0], t[2], t[1], t[3]], c),
    peer=_step_peer,
    peer_name="torch matmul + argmax, then index_add",
    checked=_step_shapes,
    timed=lambda c: [],  # kmeans.py
    measure=_step_worth,
)
UPDATE = replace(
    STEP,
    name="kmeans_update",
    arguments=_update_arguments,
    outputs=lambda c: (3, 4),
    reference=_update,
    peer=_means_peer,
    peer_name="torch index_add",
    work=lambda s, c: 2.0 * s[0] * s[1] * c["D"],
    unit="TFLOP/s",
    measure=lambda torch, t, output: _numbers(torch, output.double()),
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
