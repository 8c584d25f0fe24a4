"""Expanded kernels and the PTX that NVRTC makes of them, compiled once a run."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from cake.codegen import emit, nvrtc
from cake.compiler import expand_file
from cake.diagnostics import CakeError, Diagnostic
from cake.ir import expanded as x
from cake.ptx.check import check

EXAMPLES = Path(__file__).parents[2] / "examples"

try:
    nvrtc.bindings()
    NVRTC = True
except CakeError:
    NVRTC = False

needs_nvrtc = pytest.mark.skipif(not NVRTC, reason="NVRTC is not installed")


@cache
def example(name: str, kernel: str | None = None, **constants: int | bool) -> x.Kernel:
    """An example at a search point."""
    return expand_file(EXAMPLES / f"{name}.cake", kernel=kernel, constants=constants)


@cache
def source_of(name: str) -> str:
    """The CUDA of an example."""
    return emit(example(name))


def compile_kernel(kernel: x.Kernel, source: str | None = None) -> str:
    """The PTX of a kernel."""
    options = [f"--maxrregcount={kernel.launch_registers}"] if kernel.launch_registers else []
    text = source if source is not None else emit(kernel)
    allowed = {"W713", "G007", "G008"}
    return nvrtc.compile_source(text, kernel.target, name="test.cu", options=options, allow=allowed).ptx


@cache
def ptx_of(name: str) -> str:
    """The PTX of an example."""
    return compile_kernel(example(name), source_of(name))


def edited(text: str, pattern: str, replacement: str, count: int = 1) -> str:
    """``text`` with a substitution that must apply."""
    out, n = re.subn(pattern, replacement, text, count=count, flags=re.MULTILINE)
    assert n > 0, f"{pattern} does not occur"
    assert out != text
    return out


def findings(name: str, ptx: str) -> list[Diagnostic]:
    """What the check says about PTX of an example."""
    return check(example(name), ptx)
