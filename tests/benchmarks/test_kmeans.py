"""The k-means benchmark on the CPU: what it checks, chooses and records, with kernels and peers of our own."""

from __future__ import annotations

import json
import types
from collections.abc import Callable
from typing import Any

import pytest

from benchmarks import kmeans, kmeans_peers
from benchmarks.problems.kmeans import judge_means
from cake.evaluate.record import plain
from tests.benchmarks.test_scripts import fake  # noqa: F401
from tests.evaluate.fakes import Torch

torch = pytest.importorskip("torch")
CELL = (2, 300, 64, 64)


def labels(x: Any, c: Any) -> Any:
    """Right labels, the lowest of equals."""
    x, c = x.double(), c.double()
    return (x @ c.mT - 0.5 * c.square().sum(dim=2)[:, None]).argmax(dim=2).int()


def means(x: Any, ids: Any, c: Any) -> Any:
    """Right means."""
    new = c.clone()
    for i in range(c.shape[0]):
        for k in range(c.shape[1]):
            if (ids[i] == k).any():
                new[i, k] = x[i, ids[i] == k].double().mean(dim=0).to(c.dtype)
    return new


class Sequence:
    """A built sequence of one kind that takes so many milliseconds and, if ``wrong``, leaves one label or mean wrong."""

    def __init__(self, clock: Torch, kind: str, ms: float, wrong: bool = False) -> None:
        self.fake, self.kind, self.ms, self.wrong = clock, kind, ms, wrong
        self.steps = (self.step, self.assign, self.step)

    def step(self, *_: Any) -> None:
        self.fake.now += self.ms / 3

    def assign(self, x: Any, c: Any, half: Any, ids: Any, *_: Any) -> None:
        self.step()
        ids.copy_(labels(x, c))

    def workspace(self, *_: Any) -> dict[str, Any]:
        return dict.fromkeys(("half", "sums", "counts"))

    def __call__(self, *given: Any, workspace: Any) -> None:
        self.fake.now += self.ms
        if self.kind == "update":
            x, ids, c, new, moved = given
        else:
            x, c, ids, *rest = given
            ids.copy_(labels(x, c))
            if self.wrong and self.kind == "assign":
                ids[1, 7] = (ids[1, 7] + 1) % 8
            if not rest:
                return
            new, moved = rest
        new.copy_(means(x, ids, c))
        moved.copy_((new.double() - c.double()).square().sum(dim=2))
        if self.wrong:
            new[0, 3, 5] += 0.5


@pytest.fixture
def bench(fake: Torch, monkeypatch: pytest.MonkeyPatch) -> kmeans.Bench:  # noqa: F811
    """Candidates by kind, one of them fast and wrong; a library that takes 3 ms for an assignment and 2 for an update."""

    def assign(x: Any, c: Any, *_: Any, out: Any = None, config: Any = None, **__: Any) -> Any:
        fake.now += 3.0 if config != kmeans_peers.GRID[5] else 2.5
        found = labels(x, c)
        return found if out is None else out.copy_(found)

    def update(x: Any, ids: Any, c: Any, *, new_buf: Any = None, **_: Any) -> Any:
        fake.now += 2.0
        found = means(x, ids, c)
        return found if new_buf is None else new_buf.copy_(found)

    library = (
        types.SimpleNamespace(euclid_assign_triton=assign),
        types.SimpleNamespace(triton_lloyd_centroid_step_euclid=update, triton_centroid_update_sorted_euclid=update),
    )
    monkeypatch.setattr(kmeans.peers, "flashlib", lambda: library)
    monkeypatch.setattr(kmeans.peers, "flash_kmeans", lambda: library)
    monkeypatch.setattr(kmeans, "PAIRS", 2)
    times: dict[str, tuple[tuple[float, bool], ...]] = {
        "assign": ((2.0, False), (1.5, False), (1.0, True)),
        "update": ((1.0, False), (0.5, True)),
        "step": ((1.8, False), (0.5, True)),
    }
    built = {
        kind: {CELL[3]: {f"{kind}-{ms}": Sequence(fake, kind, ms, wrong) for ms, wrong in given}}
        for kind, given in times.items()
    }
    return kmeans.Bench(fake, built, {})


@pytest.mark.parametrize("measure", [kmeans.assign_cell, kmeans.step_cell])
def test_cells(bench: kmeans.Bench, measure: Callable[..., Any], capsys: Any) -> None:
    found = measure(bench, CELL)
    assert json.loads(json.dumps(plain(found)))
    printed = capsys.readouterr().out
    assert printed.count("WRONG") == (1 if measure is kmeans.assign_cell else 3)
    if measure is kmeans.assign_cell:
        assert found["chosen"] == "assign-1.5" and len(found["grid"]) == 48
        assert found["config"] == kmeans_peers.GRID[5]
        assert found["flashlib"]["ratio"]["median"] == pytest.approx(6.0)  # 3 ms beside a kernel of 1.5 / 3
        assert found["flashlib tuned"]["ratio"]["median"] == pytest.approx(5.0)
        assert found["flashlib call"]["ratio"]["median"] == pytest.approx(2.0)
    else:
        assert found["chosen"] == {"assign": "assign-1.5", "update": "update-1.0", "step": "step-1.8"}
        assert found["us"]["apart"] == pytest.approx(2500.0)
        assert found["step beside flashlib"]["ratio"]["median"] == pytest.approx(5.0 / 1.8)
        assert found["update beside flash-kmeans"]["ratio"]["median"] == pytest.approx(2.0)
        assert found["flashlib_errors"]["error"] <= 1


def test_means_are_judged() -> None:
    """Rounding once is right; a mean of other points, a lost centroid and a wrong distance are not."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn((2, 500, 32), generator=generator).bfloat16()
    c = torch.randn((2, 10, 32), generator=generator).bfloat16()
    ids = torch.randint(0, 9, (2, 500), generator=generator).int()  # nothing for the last
    new = means(x, ids, c)
    moved = (new.double() - c.double()).square().sum(dim=2).float()
    found = judge_means(torch, x, ids, c, new, moved)
    assert found["error"] <= 1 and found["empty"] == 2
    other = ids.clone()
    other[1, 3] = (other[1, 3] + 1) % 9
    assert judge_means(torch, x, other, c, new, moved)["error"] > 1
    gone = new.clone()
    gone[0, 9] = 0
    assert judge_means(torch, x, ids, c, gone, None)["error"] > 1
    assert judge_means(torch, x, ids, c, new, moved * 1.01)["error"] > 1
