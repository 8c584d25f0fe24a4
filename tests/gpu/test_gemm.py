"""The GEMM fixture, emitted and run: every shape, from poisoned outputs, against float64."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.gpu_smoke import CHECK_SECONDS, check_shapes, survive
from benchmarks.problems import GEMM
from cake.codegen.build import build, write
from tests.expanded.gemm import gemm


@pytest.mark.parametrize(("bn", "stages"), [(256, 4), (128, 4), (128, 6), (64, 3)])
def test_gemm(bn: int, stages: int, tmp_path: Path) -> None:
    directory = write(build(gemm(bn=bn, stages=stages)), tmp_path / f"gemm-{bn}-{stages}")
    records = survive(check_shapes, directory, GEMM, list(GEMM.checked({})), CHECK_SECONDS)
    assert [r for r in records if not r["ok"] or not r["repeatable"]] == []
    assert len(records) == len(GEMM.checked({}))
