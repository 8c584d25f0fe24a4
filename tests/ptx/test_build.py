"""The build refuses compiled code that does not say what the kernel says, and asks once for each kernel and code."""

from __future__ import annotations

from pathlib import Path

import pytest

import cake.ptx.check
from cake.cache import Cache
from cake.codegen.build import build
from cake.diagnostics import CakeError
from cake.ir import expanded as x
from tests.ptx.compiled import edited, example, needs_nvrtc, source_of

pytestmark = needs_nvrtc


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kernels for which the check ran."""
    names: list[str] = []
    original = cake.ptx.check.require

    def counting(kernel: x.Kernel, ptx: str) -> None:
        names.append(kernel.name)
        original(kernel, ptx)

    monkeypatch.setattr(cake.ptx.check, "require", counting)
    return names


def test_a_difference_is_refused(tmp_path: Path, asked: list[str]) -> None:
    kernel, cache = example("gemm"), Cache(tmp_path)
    wrong = edited(source_of("gemm"), r"bulk_wait_read<1>", "bulk_wait_read<2>")
    for _ in range(2):  # a refusal is not remembered as a pass
        with pytest.raises(CakeError) as refused:
            build(kernel, source=wrong, translation=True, cache=cache)
        assert {d.code for d in refused.value.diagnostics} == {"P119"}
    assert len(asked) == 2
    assert build(kernel, source=wrong, cache=cache).ptx, "code written by hand is the author's"


def test_the_cache_remembers(tmp_path: Path, asked: list[str]) -> None:
    kernel, cache = example("gemm"), Cache(tmp_path)
    first = build(kernel, cache=cache)
    assert asked == ["gemm"]
    assert build(kernel, cache=cache) == first
    assert asked == ["gemm"]
    build(kernel, use_cache=False)
    assert len(asked) == 2


def test_the_same_code_for_another_kernel(tmp_path: Path, asked: list[str]) -> None:
    kernel, cache = example("gemm"), Cache(tmp_path)
    build(kernel, cache=cache)
    other = kernel.model_copy(
        update={"barriers": tuple(b.model_copy(update={"count": b.count + 1}) for b in kernel.barriers)}
    )
    with pytest.raises(CakeError) as refused:
        build(other, source=source_of("gemm"), translation=True, cache=cache)
    assert {d.code for d in refused.value.diagnostics} == {"P119"}
    assert len(asked) == 2
