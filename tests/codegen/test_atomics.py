"""Additions to global memory go in vectors where the target has them, and where a thread's elements lie side by side."""

from __future__ import annotations

import re

import pytest

from cake.codegen import emit
from cake.compiler import expand_text
from cake.diagnostics import CakeError

TEXT = """\
kernel add(x: {dtype}[8, N], at: i32[8], inout y: {dtype}[M, N]) for sm_80, sm_90a:
    where {guard}

    tiles once:
        i in cdiv(N, 128)

    role row: warps 1

    do row:
        v: {dtype}[1, 128] spread({vector})
        for t in tiles:
            c = t.i * 128 + cols(v)
            for r in range(8):
                k = load(at[r])
                v = load(x[r, c], where=c < N)
                atomic.add(y[k, c], v, where=c < N and k >= 0 and k < M)
"""


def width(target: str, dtype: str = "f32", vector: int = 4, guard: str = "N % 4 == 0") -> int:
    """Elements that a call of the emitted code adds."""
    kernel = expand_text(TEXT.format(dtype=dtype, vector=vector, guard=guard), target=target)
    (call,) = re.findall(r"\) reduce_add_global\(([^;]*)\);", emit(kernel))
    return call.count(",")


@pytest.mark.parametrize(("vector", "found"), [(8, 4), (4, 4), (2, 2), (1, 1)])
def test_width(vector: int, found: int) -> None:
    assert width("sm_90a", vector=vector, guard=f"N % {max(vector, 2)} == 0") == found


def test_elsewhere_by_element() -> None:
    """Ampere has no vectors, and integers have none."""
    assert width("sm_80") == width("sm_90a", dtype="i32") == 1


def test_alignment_is_demanded() -> None:
    """As of a store: accesses do not become narrower silently."""
    with pytest.raises(CakeError) as e:
        width("sm_90a", guard="N % 2 == 0")
    assert {d.code for d in e.value.diagnostics} == {"O506"}
