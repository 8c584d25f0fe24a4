"""Limits of the hardware on expanded kernels that were changed by hand; what expansion makes keeps all of them."""

from __future__ import annotations

from typing import Any

import pytest

from cake.compiler import expand_file
from cake.ir import expanded as x
from cake.verify import verify
from cake.verify.limits import limits
from tests.examples import EXAMPLES

GEMM = expand_file(EXAMPLES / "gemm.cake")


def _with(kernel: x.Kernel, field: str, **changes: Any) -> x.Kernel:
    """The first of a kernel's declarations, changed."""
    first, *rest = getattr(kernel, field)
    return kernel.model_copy(update={field: (first.model_copy(update=changes), *rest)})


def _swizzled(**changes: Any) -> x.Kernel:
    """The first swizzled buffer, changed."""
    at = next(i for i, b in enumerate(GEMM.buffers) if b.swizzle)
    buffers = list(GEMM.buffers)
    buffers[at] = buffers[at].model_copy(update=changes)
    return GEMM.model_copy(update={"buffers": tuple(buffers)})


BROKEN = {
    "too much shared memory": ("W701", GEMM.model_copy(update={"shared_bytes": 1 << 18})),
    "too few registers at launch": ("W702", GEMM.model_copy(update={"launch_registers": 128})),
    "a barrier id that does not exist": ("W705", _with(GEMM, "named", id=16)),
    "too many threads": ("W706", GEMM.model_copy(update={"threads": 2048, "launch_registers": None})),
    "too large a cluster": ("W706", GEMM.model_copy(update={"cluster": 16})),
    "too large a box": ("W707", _with(GEMM, "maps", box=(512, 64))),
    "rows of a box that are no whole pieces": ("W707", _with(GEMM, "maps", box=(64, 12))),
    "rows of a box wider than its swizzle": ("W708", _with(GEMM, "maps", box=(64, 128), swizzle=128)),
    "a swizzled buffer between two patterns": ("W708", _swizzled(offset=512)),
    "slots that break the pattern": ("W708", _swizzled(slot_bytes=16384 + 512)),
    "no arrivals": ("W710", _with(GEMM, "barriers", count=0)),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken(name: str) -> None:
    code, kernel = BROKEN[name]
    verdict = verify(kernel)
    assert verdict.status == "unsafe" and code in verdict.codes, verdict.diagnostics
    assert all(d.contract and d.help for d in verdict.diagnostics)


def test_smaller_swizzles_have_smaller_patterns() -> None:
    assert limits(_swizzled(swizzle=64, offset=512)) == []
    assert [d.code for d in limits(_swizzled(swizzle=64, offset=256))] == ["W708"]
    assert limits(_swizzled(swizzle=32, offset=256)) == []


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.cake")), ids=lambda p: p.stem)
def test_expansion_keeps_them(path: Any) -> None:
    from benchmarks.verify_speed import kernels

    assert [limits(k) for k in kernels(path) if limits(k)] == []
