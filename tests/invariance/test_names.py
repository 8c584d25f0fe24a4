"""Renaming things and permuting independent declarations changes no machine code."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path

import pytest

from cake.codegen import emit, nvrtc
from cake.codegen.elf import sections
from cake.compiler import expand_text
from cake.diagnostics import CakeError
from tests.invariance.rewrite import permuted, renamed

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
CASES = [("gemm", "gemm"), ("softmax", "softmax"), ("softmax", "softmax_long"), ("attention", "attention")]
KINDS = ["tensor", "dim", "constant", "definition", "role", "pipeline", "field", "turn", "variable"]

try:
    nvrtc.bindings()
    NVRTC = True
except CakeError:
    NVRTC = False
pytestmark = pytest.mark.skipif(not NVRTC, reason="NVRTC is not installed")


def code(text: str, kernel: str) -> dict[str, bytes]:
    """The machine code of a kernel: the text sections of its cubin."""
    k = expand_text(text, "x.cake", kernel=kernel)
    source = emit(k)
    limited = k.launch_registers is not None and "__maxnreg__" not in source
    options = (f"--maxrregcount={k.launch_registers}",) if limited else ()
    cubin = nvrtc.compile_source(source, k.target, name="x.cu", options=options).cubin
    return {s.name: bytes(s.data) for s in sections(cubin) if s.name.startswith(".text")}


@cache
def original(stem: str, kernel: str) -> tuple[str, dict[str, bytes]]:
    """The text of an example and its machine code."""
    text = (EXAMPLES / f"{stem}.cake").read_text()
    return text, code(text, kernel)


def same(stem: str, kernel: str, text: str) -> bool:
    """Whether a text makes the machine code of the example."""
    return code(text, kernel) == original(stem, kernel)[1]


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("stem", "kernel"), CASES)
def test_all_names(stem: str, kernel: str, seed: int) -> None:
    assert same(stem, kernel, renamed(original(stem, kernel)[0], random.Random(seed)))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("stem", "kernel"), CASES)
def test_names_of_one_kind(stem: str, kernel: str, kind: str) -> None:
    assert same(stem, kernel, renamed(original(stem, kernel)[0], random.Random(7), {kind}))


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("stem", "kernel"), CASES)
def test_order_of_declarations(stem: str, kernel: str, seed: int) -> None:
    assert same(stem, kernel, permuted(original(stem, kernel)[0], random.Random(seed)))
