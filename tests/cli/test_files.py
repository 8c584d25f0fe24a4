"""Every command on files that are none, and on command lines that cannot be read."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.cli.conftest import Cake

COMMANDS = ["check", "expand", "fmt", "build", "run"]


@pytest.fixture
def files(gemm: Path) -> Path:
    """Things that are no kernels."""
    (gemm / "empty.cake").write_text("")
    (gemm / "binary.cake").write_bytes(bytes(range(128, 256)) * 3)
    (gemm / "binary.json").write_bytes(bytes(range(128, 256)) * 3)
    (gemm / "list.json").write_text("[]")
    (gemm / "object.json").write_text("{}")
    (gemm / "deep.json").write_text("[" * 100_000)
    (gemm / "text.txt").write_text("x")
    (gemm / "wrong.cake").write_text("kernel k(\n")
    (gemm / "directory.cake").mkdir()
    return gemm


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    "name",
    ["missing.cake", "binary.cake", "directory.cake", "text.txt", "wrong.cake", "", "a\0b", "x" * 5000 + ".cake"],
)
def test_no_source(cake: Cake, files: Path, command: str, name: str) -> None:
    done = cake(command, name, "--json")
    assert done.code == 1
    assert done.codes and all(code.startswith("S") for code in done.codes)
    assert cake(command, name).code == 1


@pytest.mark.parametrize("command", ["check", "expand", "build", "run"])
@pytest.mark.parametrize("name", ["binary.json", "list.json", "object.json", "deep.json"])
def test_no_expanded_kernel(cake: Cake, files: Path, command: str, name: str) -> None:
    done = cake(command, name, "--json")
    assert done.code == 1
    assert done.codes in (["X003"], ["S009"])


@pytest.mark.parametrize("command", ["expand", "build", "run"])
def test_no_kernel_in_the_file(cake: Cake, files: Path, command: str) -> None:
    assert cake(command, "empty.cake", "--json").codes == ["T018"]


def test_suggestions(cake: Cake, files: Path) -> None:
    assert "did you mean `gemm.cake`?" in cake("check", "gem.cake").err
    assert "gemm.cake" in cake("check", ".").err
    assert "Did you mean 'check'" in cake("chek", "gemm.cake").err
    assert "--json" in cake("check", "gemm.cake", "--jsn").err
    assert "did you mean `gemm`?" in cake("expand", "gemm.cake", "--kernel", "gem").err


@pytest.mark.parametrize(
    "words",
    [
        ["chek"],
        ["check"],
        ["check", "gemm.cake", "--nope"],
        ["run", "gemm.cake", "--seed", "x"],
        ["run", "gemm.cake", "--seed", "-1"],
        ["run", "gemm.cake", "--ctas", "0"],
        ["run", "gemm.cake", "--device", "tpu"],
        ["run", "gemm.cake", "M"],
        ["run", "gemm.cake", "M="],
        ["run", "gemm.cake", "=3"],
        ["run", "gemm.cake", "M=abc"],
        ["run", "gemm.cake", "M=1", "M=2"],
        ["run", "gemm.cake", "M N=3"],
        ["build", "gemm.cake", "--emit", "foo"],
        ["build", "gemm.cake", "--allow", "foo"],
        ["explain", "S101", "S102"],
    ],
)
def test_usage(cake: Cake, gemm: Path, words: list[str]) -> None:
    done = cake(*words)
    assert done.code == 2 and "error[X002]: " in done.err and done.out == ""
    machine = cake(*words, "--json")
    assert machine.code == 2 and machine.codes == ["X002"] and machine.err == ""


def test_help(cake: Cake) -> None:
    done = cake("--help")
    assert done.code == 0
    for command in (*COMMANDS, "explain", "version"):
        assert command in done.out
        assert "--json" in cake(command, "--help").out
    assert cake().code == 2


def test_standard_input(cake: Cake, gemm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for data, code in ((Path("gemm.cake").read_bytes(), 0), (b"kernel", 1)):
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))
        done = cake("check", "-")
        assert done.code == code
    assert "<stdin>:1" in done.err and "kernel" in done.err


def test_unreadable(cake: Cake, gemm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", refuse)
    assert "Permission denied" in cake("check", "gemm.cake").err


def test_internal_errors_are_one_line(cake: Cake, gemm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("first\nsecond")

    monkeypatch.setattr("cake.compiler.decide_text", broken)
    done = cake("check", "gemm.cake")
    assert done.code == 1
    assert "error[X001]: internal error: RuntimeError: first second" in done.err
    assert "--debug" in done.err
    assert cake("check", "gemm.cake", "--json").codes == ["X001"]
    with pytest.raises(AssertionError):  # the trace is printed only on request
        cake("check", "gemm.cake", "--debug")
