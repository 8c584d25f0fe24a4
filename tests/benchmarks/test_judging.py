"""What the scripts measure, on the CPU: outputs change hands, errors stand beside the peer's, for every problem with a peer
that runs here."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks.judging import accuracy, beside_peer, error_text, peer_arguments, within_bounds
from benchmarks.problems import PROBLEMS, Constants, Problem, Shape
from cake.evaluate.record import plain
from tests.evaluate.fakes import Torch

torch = pytest.importorskip("torch")

SMALL: dict[str, tuple[Shape, Constants]] = {
    "gemm": ((70, 72, 64), {}),
    "gemm_pingpong": ((70, 72, 64), {"SPLIT": 2, "BM": 64, "BN": 64}),
    "gemm_bias_gelu": ((70, 72, 64), {}),
    "batched_gemm": ((2, 30, 40, 64), {}),
    "softmax": ((9, 264), {}),
    "rmsnorm": ((9, 264), {}),
    "layernorm": ((9, 264), {}),
    "attention": ((2, 4, 2, 50, 50), {"D": 64, "CAUSAL": True, "LSE": False}),
    "half_norms": ((3, 100), {"D": 64}),
    "assign": ((2, 30, 64), {"D": 64}),
}


def arguments(problem: Problem, shape: Shape, constants: Constants) -> list[Any]:
    return problem.arguments(torch, shape, torch.Generator().manual_seed(1), constants)


def exact(problem: Problem, constants: Constants) -> Any:
    """A kernel that computes the reference."""

    def kernel(*given: Any) -> None:
        for i, (value, _) in zip(
            problem.outputs(constants), problem.reference(torch, list(given), constants), strict=True
        ):
            given[i].copy_(value)

    return kernel


@pytest.fixture
def dense(monkeypatch: pytest.MonkeyPatch) -> None:
    """The peer of attention, without cuDNN."""
    from torch.nn.attention import SDPBackend

    monkeypatch.setattr(SDPBackend, "CUDNN_ATTENTION", SDPBackend.MATH)


@pytest.mark.parametrize("name", [n for n in SMALL if n != "assign"])
def test_errors_beside_the_peer(dense: None, name: str) -> None:
    """A kernel that rounds the exact value once is within the bounds, and no further off than a peer in bf16."""
    shape, constants = SMALL[name]
    problem = PROBLEMS[name]
    ours = arguments(problem, shape, constants)
    exact(problem, constants)(*ours)
    bounds, rows = accuracy(torch, problem, ours, peer_arguments(problem, ours, constants), constants)
    assert bounds["worst"] <= 1 and bounds["not_finite"] == 0 and len(rows) == len(problem.outputs(constants))
    for row in rows:
        assert 0 < row["kernel"]["normwise"] < 2**-8 and row["kernel"]["compared"] == row["kernel"]["elements"]
        assert 0.05 < row["ratio"]["normwise"] <= 1.01 and row["peer"]["normwise"] < 2**-5
    assert "normwise" in error_text(rows)
    json.dumps(plain(rows), allow_nan=False)


def test_choices_are_compared_by_what_they_are_worth() -> None:
    """Another centroid at the same distance is no error; one that is further is one of its own size."""
    shape, constants = SMALL["assign"]
    problem = PROBLEMS["assign"]
    ours = arguments(problem, shape, constants)
    x, c, half, ids = ours
    ids.copy_((x.float() @ c.float().transpose(1, 2) + half[:, None]).argmax(dim=2))
    bounds, rows = accuracy(torch, problem, ours, peer_arguments(problem, ours, constants), constants)
    assert bounds["worst"] <= 1 and rows[0]["kernel"]["worst"] < 1e-6
    ids[0, 0] = 63
    assert within_bounds(torch, problem, ours, constants)["worst"] > 1


def test_a_wrong_kernel_is_beside_itself() -> None:
    shape, constants = SMALL["gemm"]
    problem = PROBLEMS["gemm"]
    ours = arguments(problem, shape, constants)
    bounds, rows = accuracy(torch, problem, ours, peer_arguments(problem, ours, constants), constants)
    assert bounds["not_finite"] == 70 * 72 and rows[0]["kernel"]["normwise"] == rows[0]["ratio"]["worst"] == float(
        "inf"
    )
    assert "inf" in error_text(rows) and error_text(None) == ""


@pytest.mark.parametrize("name", ["gemm", "half_norms", "assign"])
def test_outputs_change_hands_and_end_with_the_kernel(name: str) -> None:
    shape, constants = SMALL[name]
    problem = PROBLEMS[name]
    fake = Torch()
    ours = arguments(problem, shape, constants)
    (output,) = problem.outputs(constants)
    before = ours[output]
    places: list[int] = []

    def kernel(*given: Any) -> None:
        fake.now += 2.0
        places.append(given[output].data_ptr())
        given[output].fill_(7)

    result, peer = beside_peer(fake, problem, kernel, ours, constants, pairs=4)
    assert ours[output] is before and (ours[output] == 7).all() and (peer[output] == 7).all()
    assert len(set(places)) == 2 and result.pairs == 4
    assert ours[0] is peer[0]
