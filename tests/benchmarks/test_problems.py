"""What the GPU tests call right and wrong of lists of neighbours, labels and means, where a choice may differ from the reference's."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.judging import within_bounds
from benchmarks.problems import PROBLEMS, Shape, kmeans, knn

torch = pytest.importorskip("torch")
CONSTANTS = {"D": 64, "K": 5}


def made(problem: str, shape: Shape) -> list[Any]:
    generator = torch.Generator()
    generator.manual_seed(sum(shape))
    tensors: list[Any] = PROBLEMS[problem].arguments(torch, shape, generator, CONSTANTS)
    return tensors


def right(problem: str, tensors: list[Any]) -> bool:
    found = within_bounds(torch, PROBLEMS[problem], tensors, CONSTANTS)
    return bool(found["worst"] <= 1 and not found["not_finite"])


def neighbours(t: list[Any]) -> None:
    """The K nearest by a stable sort."""
    far = (t[0].double()[:, None] - t[1].double()[None]).square().sum(dim=2)
    value, row = torch.where(torch.isfinite(far), far, torch.inf).sort(dim=1, stable=True)
    count = min(CONSTANTS["K"], t[1].shape[0])
    t[2][:], t[3][:] = torch.inf, -1
    t[2][:, :count], t[3][:, :count] = value[:, :count], torch.where(value.isinf(), -1, row)[:, :count]


@pytest.mark.parametrize("pattern", range(5))
@pytest.mark.parametrize("rows", [4, 8, 90])
def test_neighbours(pattern: int, rows: int) -> None:
    t = made("knn", (9, rows, pattern))
    assert not right("knn", t), "nobody wrote"
    neighbours(t)
    assert right("knn", t)
    for column, wrong in ((2, 1.01), (3, 1 - int(t[3][2, 0]))):
        bad = [x.clone() for x in t]
        bad[column][2, 0] = wrong
        assert not right("knn", bad)
    if pattern == knn.EQUAL:
        t[3][4, :2] = t[3][4, :2].flip(0)
        assert not right("knn", t), "the lower of equals comes first"


@pytest.mark.parametrize("pattern", range(4))
def test_iterations(pattern: int) -> None:
    t = made("kmeans_step", (2, 50, 24, pattern))
    assert not right("kmeans_step", t)
    x, c, ids, new, moved = t
    score = x.double() @ c.double().mT - 0.5 * c.double().square().sum(dim=2)[:, None]
    score = torch.where(torch.isnan(score), -torch.inf, score)
    ids[:] = torch.where(score.amax(dim=2) > -torch.inf, score.argmax(dim=2), -1)
    new[:] = kmeans.means(torch, x, ids, c)[0].to(new.dtype)
    moved[:] = (new.double() - c.double()).square().sum(dim=2)
    assert right("kmeans_step", t)
    for i, value in ((2, 23 if pattern != kmeans.SAME_CENTROIDS else 1), (3, 9.0), (4, -1.0)):
        bad = [y.clone() for y in t]
        bad[i][1, 6] = value
        assert not right("kmeans_step", bad)
    update = [x, ids, c, new, moved]
    assert right("kmeans_update", update)
    update[4] = moved + 1
    assert not right("kmeans_update", update)


@pytest.mark.parametrize("causal", [False, True])
def test_gradients(causal: bool) -> None:
    """What torch differentiates, of a dense batch with two query heads a key head; one element that is off is seen."""
    constants = {"D": 64, "CAUSAL": causal}
    generator = torch.Generator()
    generator.manual_seed(1)
    problem = PROBLEMS["attention_backward"]
    t = problem.arguments(torch, (2, 2, 1, 33, 33), generator, constants)
    q, k, v, do = (t[i].double().view(2, 33, -1, 64).transpose(1, 2).requires_grad_() for i in (0, 1, 2, 4))
    y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)
    for i, gradient in zip(problem.outputs(constants), torch.autograd.grad(y, (q, k, v), do), strict=True):
        t[i][:] = gradient.transpose(1, 2).reshape(t[i].shape).to(t[i].dtype)
    assert within_bounds(torch, problem, t, constants)["worst"] <= 1
    t[12][7, 0, 3] += 0.3
    assert within_bounds(torch, problem, t, constants)["worst"] > 1
