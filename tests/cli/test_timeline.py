"""`cake check --timeline`: a page beside the verdict."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Cake


def test_a_page_of_a_safe_kernel(cake: Cake, gemm: Path) -> None:
    done = cake("check", "gemm.cake", "--timeline", "out.html")
    assert done.code == 0 and "timeline of gemm written to out.html" in done.out
    assert Path("out.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert cake("check", "gemm.cake", "--timeline", "o.html", "--json").json["result"]["timeline"] == "o.html"


def test_a_page_of_one_that_fails(cake: Cake, gemm: Path) -> None:
    text = cake("expand", "gemm.cake", "--json").out
    assert '"keep": 1' in text  # of the wait for a wgmma
    Path("bad.json").write_text(text.replace('"keep": 1', '"keep": 2', 1), encoding="utf-8")
    done = cake("check", "bad.json", "--timeline", "bad.html")
    assert done.code == 1 and "D202" in done.err and "D202" in Path("bad.html").read_text(encoding="utf-8")


def test_of_an_expanded_kernel(cake: Cake, gemm: Path) -> None:
    Path("k.json").write_text(cake("expand", "gemm.cake", "BN=128", "--json").out, encoding="utf-8")
    assert cake("check", "k.json", "--timeline", "k.html").code == 0
    assert Path("k.html").is_file()


TWO = """\
kernel {name}(x: f32[M, 128], out y: f32[M, 128]) for sm_90a:
    tiles once:
        r in M

    role row: warps 4

    do row:
        v: f32[1, 128] spread(1)
        for t in tiles:
            v = load(x[t.r, cols(v)])
            store(y[t.r, cols(v)], v)
"""


def test_which_kernel(cake: Cake, gemm: Path) -> None:
    Path("two.cake").write_text(TWO.format(name="one") + "\n" + TWO.format(name="two"), encoding="utf-8")
    assert "timeline of one" in cake("check", "two.cake", "--timeline", "t.html").out
    done = cake("check", "two.cake", "--timeline", "t.html", "--kernel", "two")
    assert done.code == 0 and "timeline of two" in done.out
    assert cake("check", "two.cake", "--timeline", "t.html", "--kernel", "three", "--json").codes == ["T001"]


def test_what_cannot_be_drawn(cake: Cake, gemm: Path) -> None:
    assert cake("check", "gemm.cake", "gemm.cake", "--timeline", "o.html").code == 2
    assert cake("check", "gemm.cake", "--no-verify", "--timeline", "o.html").code == 2
    assert cake("check", "gemm.cake", "--timeline", "no/such/o.html", "--json").codes == ["G010"]
    Path("bad.cake").write_text("kernel k(x: f32[M]) for sm_90a:\n    foo = 1\n", encoding="utf-8")
    done = cake("check", "bad.cake", "--timeline", "b.html")
    assert done.code == 1 and not Path("b.html").exists()
