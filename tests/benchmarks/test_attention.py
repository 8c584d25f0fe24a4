"""The attention benchmark with a device of our own: candidates checked, timed and compared, cells counted."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import attention
from benchmarks.problems import PROBLEMS
from cake.compiler import expand_text
from cake.evaluate.record import plain
from tests.evaluate.fakes import Torch

torch = pytest.importorskip("torch")


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Torch:
    """In place of torch, with tensors on the CPU."""
    made = Torch()
    monkeypatch.setattr(Torch, "Generator", lambda self, device: torch.Generator(), raising=False)
    monkeypatch.setattr(Torch, "empty_cache", lambda self: None, raising=False)
    monkeypatch.setitem(sys.modules, "torch", made)
    return made


def kernel(fake: Torch, milliseconds: float, right: bool = True) -> Any:
    """Computes the reference, or nothing."""

    def call(*given: Any) -> None:
        fake.now += milliseconds
        if right:
            constants = {"D": given[0].shape[2], "CAUSAL": True, "LSE": False}
            given[7].copy_(PROBLEMS["attention"].reference(torch, list(given[:8]), constants)[0][0])

    return call


def slow_peer(fake: Torch, monkeypatch: pytest.MonkeyPatch) -> None:
    """SDPA as torch computes it on the CPU, in 3 ms, for either backend."""
    from torch.nn.attention import SDPBackend

    monkeypatch.setattr(SDPBackend, "CUDNN_ATTENTION", SDPBackend.MATH)
    monkeypatch.setattr(SDPBackend, "FLASH_ATTENTION", SDPBackend.MATH)
    original = attention.dense_peer

    def slowed(*given: Any) -> Any:
        call = original(*given)

        def timed() -> Any:
            fake.now += 3.0
            return call()

        return timed

    monkeypatch.setattr(attention, "dense_peer", slowed)


def test_the_fastest_right_candidate_is_compared(fake: Torch, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    slow_peer(fake, monkeypatch)
    point = {"D": 64, "CAUSAL": True, "DRAWN": False}
    built = {
        "slow": (kernel(fake, 4.0), point),
        "fast": (kernel(fake, 2.0), point | {"DRAWN": True}),
        "wrong": (kernel(fake, 1.0, right=False), point),
        "another": (kernel(fake, 0.5), point | {"D": 128}),
    }
    cell = attention.cell(64, True, 2, 4, 2, 24)
    record = attention.measure(fake, built, cell, fake.empty(1, dtype=torch.uint8, device="cuda"))
    assert set(record["candidates"]) == {"slow", "fast", "wrong"} and not record["candidates"]["wrong"]["right"]
    assert record["chosen"] == "fast"
    for name in attention.PEERS:
        assert record["peers"][name]["ratio"]["median"] == pytest.approx(1.5)
        assert record["errors"][name]["ratio"]["normwise"] <= 1.01
    text = attention.line(plain(record))
    assert "fast" in text and "1.500" in text


def test_summary_leaves_out_packed_cells_beside_cudnn(capsys: pytest.CaptureFixture[str]) -> None:
    def cell(d: int, lengths: list[int], ratio: float) -> dict[str, Any]:
        samples = {"ours_us": [10.0, 10.0], "peer_us": [10.0 * ratio, 10.0 * ratio]}
        one = {"ratio": {"median": ratio}, "samples": samples}
        return {"name": f"{d}-{len(lengths)}", "d": d, "lengths": lengths, "peers": dict.fromkeys(attention.PEERS, one)}

    attention.summary([cell(128, [9, 9], 1.0), cell(64, [9, 9], 4.0), cell(128, [1, 2, 3], 100.0)])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" of ")[1][:7] for line in lines] == ["2 cells", "1 cells", "3 cells", "2 cells"]
    assert "cuDNN: geometric mean 2.0000" in lines[0] and "cuDNN, D=128: geometric mean 1.0000" in lines[1]


def test_work_counts_what_a_query_sees() -> None:
    dense = attention.cell(128, False, 2, 4, 4, 100)
    assert dense.dense and dense.work == 2 * 4 * 4 * 128 * 100 * 100
    causal = attention.Cell("c", 64, True, 2, 1, (1, 3))
    assert not causal.dense and causal.work == 4 * 2 * 64 * (1 + 6)


@pytest.mark.parametrize("d", attention.WIDTHS)
def test_candidates_are_points_of_the_example(d: int) -> None:
    text = attention.SOURCE.read_text(encoding="utf-8")
    names = set()
    for chosen in attention.CANDIDATES[d]:
        point = {"D": d, **chosen}
        constants = {n: v for n, v in point.items() if n != "DRAWN"} | {"CAUSAL": True, "LSE": False}
        kernel = expand_text(
            text if point["DRAWN"] else text.replace(attention.DRAWN, attention.IN_ORDER), constants=constants
        )
        assert (kernel.tensors[-1].name == "tile_counter") == point["DRAWN"]
        names.add(attention.label(point, True))
    assert len(names) == len(attention.CANDIDATES[d])
    assert len({c.name for c in attention.CELLS}) == len(attention.CELLS)
