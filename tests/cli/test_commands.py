"""check, expand, fmt, explain and version."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import cake as package
from cake.compiler import expand_file, read_expanded
from cake.diagnostics.codes import all_codes
from tests.cli.conftest import ROOT, Cake

TWICE = "kernel k(x: f32[M]) for sm_90a:\n    foo = 1\n    foo = 2\n"


def test_check(cake: Cake, gemm: Path) -> None:
    assert cake("check", "gemm.cake", ROOT / "examples" / "softmax.cake").code == 0
    source = Path("gemm.cake").read_text()
    Path("bad.cake").write_text(source.replace("wgmma.wait(keep=1)", "wgmma.wait(kep=1)"))
    done = cake("check", "gemm.cake", "bad.cake")
    assert done.code == 1 and "bad.cake:" in done.err and "^" in done.err
    record = cake("check", "gemm.cake", "bad.cake", "--json").json
    assert record["diagnostics"][0]["span"]["file"] == "bad.cake"
    assert record["result"]["files"] == ["gemm.cake", "bad.cake"]


def test_a_quick_check_says_how_to_claim_more(
    cake: Cake, gemm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What build proves, check proves with --prove; without, it says that it is quick. A proof that is known is told again."""
    monkeypatch.setenv("CAKE_CACHE", str(tmp_path / "nothing known"))
    first = cake("check", "gemm.cake")
    assert "checked up to" in first.out and "--prove" in first.out
    assert cake("check", "gemm.cake", "--json").json["result"]["verdicts"][0]["effort"] == "quick"
    for done in (cake("check", "gemm.cake", "--prove"), cake("check", "gemm.cake")):
        assert "proved for all trip counts" in done.out and "--prove" not in done.out


def test_expand_text(cake: Cake, gemm: Path) -> None:
    done = cake("expand", "gemm.cake", "BN=128", "STAGES=3")
    assert done.code == 0
    assert "BN=128" in done.out and "ab.full[3] count 1" in done.out


@pytest.mark.parametrize(
    ("setting", "code"),
    [("BN=100", "T009"), ("BM=64", "T009"), ("BNN=1", "T001"), ("M=3", "T001"), ("BN=1e99", "T009")],
)
def test_wrong_constants(cake: Cake, gemm: Path, setting: str, code: str) -> None:
    for command in ("expand", "build"):
        assert cake(command, "gemm.cake", setting, "--json").codes == [code]


def test_wrong_target(cake: Cake, gemm: Path) -> None:
    assert cake("expand", "gemm.cake", "--target", "sm_80", "--json").codes == ["T021"]


def test_expanded_kernels_are_input(cake: Cake, gemm: Path) -> None:
    """Both what `expand --json` prints and the kernel alone, with infinities."""
    done = cake("expand", ROOT / "examples" / "attention.cake", "--json")
    assert read_expanded(done.out) == expand_file(ROOT / "examples" / "attention.cake")
    done = cake("expand", "gemm.cake", "BN=128", "--json")
    Path("k.json").write_text(done.out)
    Path("bare.json").write_text(json.dumps(done.json["result"]["kernel"]))
    for name in ("k.json", "bare.json"):
        assert cake("check", name).code == 0
        assert cake("expand", name).out == cake("expand", "gemm.cake", "BN=128").out
        assert cake("expand", name, "BN=256", "--json").codes == ["T009"]
        assert cake("expand", name, "BNN=256", "--json").codes == ["T001"]
        assert cake("expand", name, "--kernel", "other", "--json").codes == ["T001"]
        assert cake("expand", name, "--target", "sm_80", "--json").codes == ["T021"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"barrier": "ab.full"', '"barrier": "ab.ful"'),
        ('"base": "ab.a"', '"base": "ab.z"'),
        ('"op": "tma.load"', '"op": "tma.lod"'),
        ('"name": "kt"', '"name": "kx"'),
        ('"cursor": "ab.wait"', '"cursor": "ab.w"'),
        ('"map": "a.map"', '"map": "z.map"'),
        ('"first_warp": 4', '"first_warp": 9'),
        ('"shared_bytes": 229440', '"shared_bytes": 20'),
    ],
)
def test_expanded_kernels_that_do_not_hold_together(cake: Cake, gemm: Path, old: str, new: str) -> None:
    text = cake("expand", "gemm.cake", "--json").out
    assert old in text
    Path("k.json").write_text(text.replace(old, new, 1))
    done = cake("check", "k.json", "--json")
    assert done.codes == ["X003"], done.out


def test_fmt(cake: Cake, gemm: Path) -> None:
    good = Path("gemm.cake").read_text()
    assert cake("fmt", "--check", "gemm.cake").code == 0
    path = Path("ugly.cake")
    path.write_text(good.replace("m0 = m * BM", "m0   =  (m*BM)"))
    os.chmod(path, 0o640)
    checked = cake("fmt", "--check", "ugly.cake", "gemm.cake", "--json")
    assert checked.code == 1 and checked.json["result"]["changed"] == ["ugly.cake"]
    shown = cake("fmt", "--diff", "ugly.cake")
    assert shown.code == 0 and "-        m0   =  (m*BM)" in shown.out and "+        m0 = m * BM" in shown.out
    assert path.read_text() != good
    link = Path("link.cake")
    link.symlink_to("ugly.cake")
    assert cake("fmt", "link.cake").code == 0
    assert path.read_text() == good and link.is_symlink() and path.stat().st_mode & 0o777 == 0o640
    assert sorted(p.name for p in gemm.iterdir()) == ["gemm.cake", "gemm.py", "link.cake", "ugly.cake"]


def test_fmt_goes_on_after_a_bad_file(cake: Cake, gemm: Path) -> None:
    Path("bad.cake").write_text("kernel k(\n")
    path = Path("gemm.cake")
    good = path.read_text()
    path.write_text(good.replace("m0 = m * BM", "m0 = (m * BM)"))
    done = cake("fmt", "bad.cake", "gemm.cake")
    assert done.code == 1 and path.read_text() == good


def test_explain(cake: Cake) -> None:
    for code in all_codes():
        assert cake("explain", code).out.startswith(f"{code}: ")
    record = cake("explain", "s101", "--json").json["result"]
    assert record["code"] == "S101" and record["fail"] and record["good"]
    listed = cake("explain", "--json").json["result"]["codes"]
    assert [row["code"] for row in listed] == list(all_codes())
    for code in ("S999", "../pages/S101", "", "x" * 500):
        done = cake("explain", code, "--json")
        assert done.code == 1 and done.codes == ["X005"]


def test_version(cake: Cake) -> None:
    assert package.__version__ in cake("version").out
    assert cake("version", "--json").json["result"]["cake"] == package.__version__


def test_library_front(gemm: Path) -> None:
    assert package.check("gemm.cake") == []
    assert package.check("missing.cake")[0].code == "S009"
    assert package.expanded("gemm.cake", constants={"BN": 128}).constants["BN"] == 128
    with pytest.raises(AttributeError):
        package.nothing  # noqa: B018
