"""``cake bench`` on a real device: what it records, and errors beside the peer's. Nothing here judges a time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cake.codegen.build import build, write
from cake.compiler import expand_file

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-c", "from cake.cli import main; main()"]


def bench(tmp_path: Path, *words: str) -> tuple[int, dict[str, Any]]:
    """Exit code and what was written."""
    out = tmp_path / "result.json"
    done = subprocess.run(
        [*COMMAND, "bench", *words, "--out", str(out)], cwd=ROOT, capture_output=True, text=True, timeout=600
    )
    assert out.exists() and "Traceback" not in done.stderr, done.stderr
    print(done.stdout, done.stderr)
    return done.returncode, json.loads(out.read_text())


def right(result: dict[str, Any], pairs: int = 30) -> None:
    assert result["environment"]["device"] and result["environment"]["driver"]
    for shape in result["shapes"]:
        assert "failed" not in shape
        for row in shape["outputs"]:
            assert row["ok"] and row["peer_ok"] and row["against"] == "float64"
            assert row["kernel"]["compared"] == row["kernel"]["elements"]
            assert row["ratio"]["normwise"] <= 1.5 and row["ratio"]["worst"] <= 1.5
        time = shape["time"]
        assert {len(samples) for samples in time["samples"].values()} == {pairs}
        assert time["clocks"]["samples"] > 0 and time["ours_cycles"] > 0 and time["peer_cycles"] > 0
        assert shape["repeatable"]


@pytest.mark.parametrize(
    ("words", "shapes"),
    [
        (["examples/gemm.cake"], ["M=2048,N=2048,K=1024", "M=300,N=520,K=200"]),
        (["examples/softmax.cake", "--kernel", "softmax"], ["M=4096,N=4096", "M=7,N=1000"]),
    ],
)
def test_sources(words: list[str], shapes: list[str], tmp_path: Path) -> None:
    code, result = bench(tmp_path, *words, *(w for s in shapes for w in ("--shape", s)))
    assert code == 0 and len(result["shapes"]) == 2 and result["mean"]["low"] > 0
    right(result)


def test_an_artifact_and_a_goal_out_of_reach(tmp_path: Path) -> None:
    built = write(build(expand_file(ROOT / "examples" / "gemm.cake", constants={"BN": 128})), tmp_path / "gemm")
    words = [str(built), "--module", "examples/gemm.py", "--shape", "M=1024,N=1024,K=512"]
    code, result = bench(tmp_path, *words, "--pairs", "40", "--goal", "1000")
    assert code == 1 and result["met"] is False and [d["code"] for d in result["diagnostics"]] == ["R107"]
    right(result, pairs=40)
