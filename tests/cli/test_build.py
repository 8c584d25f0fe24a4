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
    assert "registers" in done.out and "proved for all trip counts" in done.out and "build/gemm" in done.out
    record = json.loads(Path("build/gemm/manifest.json").read_text())
    assert record["proved"] and record["unproved"] == [] and record["constants"]["BN"] == 128
    assert record["claim"] == "proved for all trip counts"
    for name in ("gemm.cu", "gemm.cubin", "gemm.expanded.json"):
        assert (Path("build/gemm") / name).stat().st_size > 100


def test_chaos(cake: Cake, gemm: Path) -> None:
    result = cake("build", "gemm.cake", "BN=128", "--chaos", "5", "--json").json["result"]
    assert result["chaos"] == 5 and json.loads(Path("build/gemm/manifest.json").read_text())["chaos"] == 5
    assert "seed 6" in cake("build", "gemm.cake", "BN=128", "--chaos", "6").out
    assert "chaos" not in cake("build", "gemm.cake", "BN=128").out
    for seed in ("-1", "4294967296", "x"):
        assert cake("build", "gemm.cake", "--chaos", seed).code == 2


def test_outputs_and_input_as_json(cake: Cake, gemm: Path) -> None:
    Path("k.json").write_text(cake("expand", "gemm.cake", "BN=128", "--json").out)
    done = cake("build", "k.json", "--emit", "ptx,cubin", "--emit", "expand", "-o", "out", "--json")
    assert done.code == 0, done.out
    result = done.json["result"]
    assert result["files"] == ["gemm.ptx", "gemm.cubin", "gemm.expanded.json", "manifest.json"]
    assert sorted(p.name for p in Path("out").iterdir()) == sorted(result["files"])
    assert result["unproved"] == [] and result["proved"] and result["resources"]["registers"] > 0
    assert cake("run", "out/gemm.expanded.json", "M=8", "N=8", "K=8").code == 0


def test_places_that_cannot_be_written(cake: Cake, gemm: Path) -> None:
    for place in ("gemm.cake", "gemm.cake/x"):
        assert cake("build", "gemm.cake", "BN=128", "-o", place, "--json").codes == ["G010"]


KERNEL = """
kernel {name}(x: f32[M, N], out y: f32[M, N]) for sm_90a:
    const COLS: {{512, 1024}} = 512
    {more}
    where N % 4 == 0, N <= COLS

    tiles once:
        r in M

    role row: warps 4

    do row:
        v: f32[1, COLS] spread(4)
        for t in tiles:
            ok = cols(v) < N
            v = load(x[t.r, cols(v)], where=ok, other=0.0)
            store(y[t.r, cols(v)], v, where=ok)
"""
SEQUENCE = """
sequence both(x: f32[M, N], out y: f32[M, N]):
    one(x, y)
"""


@pytest.fixture
def several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with pair.cake: two kernels, and a sequence."""
    one, two = KERNEL.format(name="one", more=""), KERNEL.format(name="two", more="const EXTRA: {1, 2} = 1")
    (tmp_path / "pair.cake").write_text(one + two + SEQUENCE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_all_kernels_of_a_file(cake: Cake, several: Path) -> None:
    done = cake("build", "pair.cake", "COLS=1024", "EXTRA=2", "--json")
    assert done.code == 0, done.out
    result = done.json["result"]
    assert [k["directory"] for k in result["kernels"]] == ["build/pair/one", "build/pair/two"]
    assert [k["constants"] for k in result["kernels"]] == [{"COLS": 1024}, {"COLS": 1024, "EXTRA": 2}]
    assert [q["directory"] for q in result["sequences"]] == ["build/pair/both"]
    assert json.loads(Path("build/pair/both/sequence.json").read_text())["name"] == "both"
    for name in ("one", "two"):
        assert json.loads((Path("build/pair") / name / "manifest.json").read_text())["name"] == name
    text = cake("build", "pair.cake", "-o", "out").out
    assert "out/one" in text and "out/two" in text and "out/both" in text


def test_one_kernel_of_several(cake: Cake, several: Path) -> None:
    result = cake("build", "pair.cake", "-k", "two", "--json").json["result"]
    assert (result["kernel"], result["directory"]) == ("two", "build/pair/two")
    assert not Path("build/pair/one").exists()
    assert cake("build", "pair.cake", "-k", "two", "-o", "out", "--json").json["result"]["directory"] == "out"
    Path("pair.cake").write_text(Path("pair.cake").read_text().removesuffix(SEQUENCE))
    for command in ("expand", "run"):
        assert cake(command, "pair.cake", "--json").codes == ["T018"]


def test_the_sequence_of_a_file(cake: Cake, several: Path) -> None:
    """Where a file has one sequence, that is what is meant."""
    assert "launch one(x=x, y=y)" in cake("expand", "pair.cake").out
    assert list(cake("expand", "pair.cake", "--json").json["result"]) == ["sequence"]
    done = cake("run", "pair.cake", "M=3", "N=8", "--json")
    assert done.code == 0 and done.json["result"]["kernel"] == "both"
    result = cake("build", "pair.cake", "-k", "both", "COLS=1024", "--json").json["result"]
    assert result["directory"] == "build/pair/both" and result["steps"][0]["directory"] == "0-one"


def test_one_wrong_kernel_does_not_keep_the_others(cake: Cake, several: Path) -> None:
    path = Path("pair.cake")
    path.write_text(path.read_text().replace("store(y[t.r", "store(z[t.r", 1))
    done = cake("build", "pair.cake", "--json")
    assert done.code == 1 and done.codes == ["T001"]
    assert [k["kernel"] for k in done.json["result"]["kernels"]] == ["two"]
    assert cake("build", "pair.cake", "COL=1", "--json").codes == ["T001"]
    path.write_text(path.read_text().replace("kernel two", "kernel one"))
    assert cake("build", "pair.cake", "--json").codes == ["T002"]


def test_compile(gemm: Path) -> None:
    kernel = package.compile("gemm.cake", BN=128)
    assert kernel.signature == ("a", "b", "c") and kernel.kernel.constants["BN"] == 128
