"""The benchmark of attention's gradients with a device of our own: the reference, candidates checked, timed and compared."""

from __future__ import annotations

import math
import sys
from typing import Any

import pytest

from benchmarks import attention_backward
from benchmarks.attention import Cell, cell
from cake.evaluate.record import plain
from cake.expand.sequences import expand_sequence
from cake.ir.parser import parse
from tests.evaluate.fakes import Torch

torch = pytest.importorskip("torch")


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Torch:
    """In place of torch, with tensors on the CPU and SDPA as torch computes it there, in 3 ms."""
    from torch.nn.attention import SDPBackend

    made = Torch()
    monkeypatch.setattr(Torch, "Generator", lambda self, device: torch.Generator(), raising=False)
    monkeypatch.setitem(sys.modules, "torch", made)
    for name in ("CUDNN_ATTENTION", "FLASH_ATTENTION"):
        monkeypatch.setattr(SDPBackend, name, SDPBackend.MATH)
    original = attention_backward.dense_peer

    def slowed(*given: Any) -> Any:
        call = original(*given)

        def timed() -> Any:
            made.now += 3.0
            return call()

        return timed

    monkeypatch.setattr(attention_backward, "dense_peer", slowed)
    return made


class Kernel:
    """Computes the gradients, or nothing, in a given time."""

    def __init__(self, fake: Torch, of: Cell, milliseconds: float, right: bool = True) -> None:
        self.fake, self.of, self.milliseconds, self.right = fake, of, milliseconds, right

    def workspace(self, *given: Any) -> dict[str, Any]:
        return {}

    def __call__(self, *given: Any, workspace: dict[str, Any]) -> None:
        self.fake.now += self.milliseconds
        if self.right:
            q, k, v, do = given[0], given[1], given[2], given[4]
            _, _, want = attention_backward.reference(torch, self.of, q, k, v, do)
            for name, x in zip(attention_backward.OUTPUTS, given[11:], strict=True):
                x.copy_(want[name])

    def launches(self, *given: Any, workspace: dict[str, Any]) -> list[tuple[str, Any]]:
        return [("backward", lambda: self(*given, workspace=workspace))]


def test_the_reference_is_what_torch_differentiates() -> None:
    of = Cell("c", 64, True, 4, 2, (5, 17))
    q, k, v, do = (torch.randn((22, h, 64), dtype=torch.bfloat16) for h in (4, 2, 2, 4))
    o, lse, want = attention_backward.reference(torch, of, q, k, v, do)
    for rows in (slice(0, 5), slice(5, 22)):
        x = [t[rows].double().transpose(0, 1)[None].requires_grad_() for t in (q, k, v)]
        y = torch.nn.functional.scaled_dot_product_attention(*x, is_causal=True, enable_gqa=True)
        found = torch.autograd.grad(y, x, do[rows].double().transpose(0, 1)[None])
        for name, gradient in zip(attention_backward.OUTPUTS, found, strict=True):
            assert torch.allclose(gradient[0].transpose(0, 1), want[name][rows])
        assert torch.allclose(y[0].transpose(0, 1), o[rows].double(), atol=1e-2)
    assert math.isclose(
        2.0 ** float(lse[0, 0]), math.exp(float(q[0, 0].double() @ k[0, 0].double()) / 8.0), rel_tol=1e-5
    )


def test_the_fastest_right_candidate_is_compared(fake: Torch) -> None:
    of = cell(64, True, 2, 4, 2, 24)
    point = {"D": 64, "CAUSAL": True}
    built = {
        "slow": (Kernel(fake, of, 4.0), point),
        "fast": (Kernel(fake, of, 2.0), point),
        "wrong": (Kernel(fake, of, 1.0, right=False), point),
        "another": (Kernel(fake, of, 0.5), point | {"D": 128}),
    }
    record = attention_backward.measure(fake, built, of, fake.empty(1, dtype=torch.uint8, device="cuda"))
    assert set(record["candidates"]) == {"slow", "fast", "wrong"} and not record["candidates"]["wrong"]["right"]
    assert record["chosen"] == "fast"
    for name in attention_backward.PEERS:
        assert record["peers"][name]["ratio"]["median"] == pytest.approx(1.5)
        assert all(e["ratio"]["normwise"] <= 1.01 for e in record["errors"][name].values())
    text = attention_backward.line(plain(record))
    assert "fast" in text and "1.500" in text


def test_candidates_are_points_of_the_example() -> None:
    file = parse(attention_backward.SOURCE.read_text(encoding="utf-8"), str(attention_backward.SOURCE))
    names = set()
    for d in attention_backward.WIDTHS:
        for chosen in attention_backward.CANDIDATES[d]:
            point = {"D": d, **chosen}
            made, found = expand_sequence(file, file.sequences[0], point)
            assert made is not None, [f.message for f in found]
            names.add(attention_backward.label(point, True))
    assert len(names) == sum(map(len, attention_backward.CANDIDATES.values()))
