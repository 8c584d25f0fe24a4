"""``cake build``: artifacts, their place, and the stamp."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import cake as package
from tests.cli.conftest import Cake

pytest.importorskip("cuda.bindings.nvrtc")


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of these tests' own."""
    monkeypatch.setenv("CAKE_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


def test_build(cake: Cake, gemm: Path) -> None:
    done = cake("build", "gemm.cake", "BN=128")
    assert done.code == 0, done.err
    assert "registers" in done.out and "U909" in done.out and "build/gemm" in done.out
    record = json.loads(Path("build/gemm/manifest.json").read_text())
    assert record["unproved"] == ["U909"] and record["constants"]["BN"] == 128
    for name in ("gemm.cu", "gemm.cubin", "gemm.expanded.json"):
        assert (Path("build/gemm") / name).stat().st_size > 100


def test_outputs_and_input_as_json(cake: Cake, gemm: Path) -> None:
    Path("k.json").write_text(cake("expand", "gemm.cake", "BN=128", "--json").out)
    done = cake("build", "k.json", "--emit", "ptx,cubin", "--emit", "expand", "-o", "out", "--json")
    assert done.code == 0, done.out
    result = done.json["result"]
    assert result["files"] == ["gemm.ptx", "gemm.cubin", "gemm.expanded.json", "manifest.json"]
    assert sorted(p.name for p in Path("out").iterdir()) == sorted(result["files"])
    assert result["unproved"] == ["U909"] and not result["proved"] and result["resources"]["registers"] > 0
    assert cake("run", "out/gemm.expanded.json", "M=8", "N=8", "K=8").code == 0


def test_places_that_cannot_be_written(cake: Cake, gemm: Path) -> None:
    for place in ("gemm.cake", "gemm.cake/x"):
        assert cake("build", "gemm.cake", "BN=128", "-o", place, "--json").codes == ["G010"]


def test_compile(gemm: Path) -> None:
    kernel = package.compile("gemm.cake", BN=128)
    assert kernel.signature == ("a", "b", "c") and kernel.kernel.constants["BN"] == 128
