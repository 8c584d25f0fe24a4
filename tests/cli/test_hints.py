"""Hints on the command line: after the verdict, never in its way, in JSON and SARIF, and off when asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from cake.diagnostics import Diagnostic
from cake.diagnostics.codes import explain
from cake.diagnostics.sarif import to_sarif
from tests.cli.conftest import Cake


@pytest.fixture
def conflict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A kernel with bank conflicts."""
    text = explain("H952").fail
    assert text is not None
    (tmp_path / "conflict.cake").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_check_tells_hints_last(cake: Cake, conflict: Path) -> None:
    done = cake("check", "conflict.cake")
    assert done.code == 0
    assert "no findings" in done.out and "transpose for sm_90a  safe" in done.out
    assert "hint[H952]" in done.err and "pad(1)" in done.err and "1 hint" in done.err
    for words in (["--no-hints"], ["--no-verify"]):
        done = cake("check", "conflict.cake", *words)
        assert done.code == 0 and not done.err


def test_check_json(cake: Cake, conflict: Path) -> None:
    done = cake("check", "conflict.cake", "--json")
    (d,) = done.json["diagnostics"]
    assert done.json["ok"] and (d["code"], d["severity"]) == ("H952", "hint")
    assert done.json["result"]["verdicts"][0]["status"] == "safe"
    assert cake("check", "conflict.cake", "--json", "--no-hints").json["diagnostics"] == []
    assert '"level": "note"' in to_sarif([Diagnostic.model_validate(d)], indent=1)


def test_hints_of_an_expanded_kernel(cake: Cake, conflict: Path) -> None:
    Path("k.json").write_text(cake("expand", "conflict.cake", "--json").out, encoding="utf-8")
    assert cake("check", "k.json", "--json").codes == ["H952"]


def test_no_hints_about_what_fails(cake: Cake, conflict: Path) -> None:
    text = Path("conflict.cake").read_text(encoding="utf-8")
    Path("race.cake").write_text(text.replace("            sync()\n", ""), encoding="utf-8")
    done = cake("check", "race.cake", "--json")
    assert done.code == 1 and "H952" not in done.codes


def test_build_says_what_fits(cake: Cake, conflict: Path) -> None:
    text = explain("H955").fail
    assert text is not None
    Path("flip.cake").write_text(text, encoding="utf-8")
    done = cake("build", "flip.cake")
    assert done.code == 0 and "occupancy  1 CTA an SM, 4 of 64 warps, limited by shared memory" in done.out
    assert "tiles      group" in done.out and "hint[H955]" in done.err
    record = cake("build", "flip.cake", "--json", "--no-hints").json
    assert record["diagnostics"] == [] and record["result"]["occupancy"]["ctas"] == 1
    assert record["result"]["tiles"][0]["role"] == "group"
