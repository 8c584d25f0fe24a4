"""Every guard of a launch, at the edge of what it lets through."""

from __future__ import annotations

import dataclasses

import pytest

from cake.diagnostics import CakeError
from cake.ir import expanded as x
from cake.ir.expr import Apply, Sym, integer
from cake.runtime.guards import INDEX_LIMIT, Access, check
from cake.runtime.tensors import View, row_major_strides

M, N = Sym(name="M"), Sym(name="N")


def kernel(*, strided: bool = False, second: str = "out") -> x.Kernel:
    """x[M, N] in, y[M, N] written or read."""
    return x.Kernel(
        name="k",
        target="sm_90a",
        tensors=(
            x.Tensor(name="x", dtype="f32", shape=(M, N), strided=strided),
            x.Tensor(name="y", dtype="f32", shape=(M, N), direction=second, strided=strided),  # type: ignore[arg-type]
        ),
        dims=(x.Dim(name="M", tensor="x", axis=0), x.Dim(name="N", tensor="x", axis=1)),
        positions=M,
        grid=Apply(op="cdiv", args=(M, integer(2)), dtype="i32"),
        threads=128,
        roles=(),
    )


def seen(
    shape: tuple[int, ...] = (8, 16),
    *,
    at: int = 1 << 40,
    strides: tuple[int, ...] | None = None,
    device: int = 0,
    read_only: bool = False,
) -> View:
    return View(at, shape, strides or row_major_strides(shape), "f32", device, read_only=read_only)


def codes(
    k: x.Kernel, first: View, second: View | None = None, *, alignment: int = 16, mapped_only: bool = False
) -> list[str]:
    how = {name: Access(alignment, mapped_only) for name in ("x", "y")}
    found = check(k, how, {"x": first, "y": second or seen(first.shape, at=1 << 50)})
    assert all(d.help and "`" in d.message for d in found)
    return [d.code for d in found]


def test_nothing_to_refuse() -> None:
    assert codes(kernel(), seen()) == []
    assert codes(kernel(strided=True), seen(strides=(20, 1))) == []


@pytest.mark.parametrize(
    ("strides", "declared", "found"),
    [
        ((20, 1), False, ["R007"]),
        ((16, 2), True, ["R007"]),
        ((18, 1), True, ["R007"]),  # rows start at 72 bytes, and 16 are moved at once
        ((-16, 1), True, ["R007"]),
        ((0, 1), True, []),  # an expanded input is read like any other
        ((16, 1), True, []),
    ],
)
def test_strides(strides: tuple[int, ...], declared: bool, found: list[str]) -> None:
    assert codes(kernel(strided=declared), seen(strides=strides)) == found


def test_unit_axes_have_no_strides() -> None:
    assert codes(kernel(strided=True), seen((1, 16), strides=(3, 1))) == []
    assert codes(kernel(strided=True), seen((8, 1), strides=(4, 99)), seen((8, 1), at=1 << 50, strides=(4, 9))) == []
    assert codes(kernel(), seen((1, 16), strides=(3, 1))) == []


@pytest.mark.parametrize(("offset", "alignment", "bad"), [(0, 16, 0), (8, 16, 1), (8, 8, 0), (4, 8, 1), (4, 4, 0)])
def test_alignment(offset: int, alignment: int, bad: int) -> None:
    assert codes(kernel(), seen(at=(1 << 40) + offset), alignment=alignment) == ["R008"] * bad


@pytest.mark.parametrize(
    ("device", "other", "found"), [(0, 0, []), (1, 1, []), (0, 1, ["R009"]), (-1, 0, ["R009"] * 2)]
)
def test_devices(device: int, other: int, found: list[str]) -> None:
    assert codes(kernel(), seen(device=device), seen(at=1 << 50, device=other)) == found


SIZE = 8 * 16 * 4


@pytest.mark.parametrize(
    ("offset", "second", "found"),
    [
        (0, "out", ["R010"]),
        (0, "inout", ["R010"]),
        (0, "in", []),
        (SIZE - 16, "out", ["R010"]),
        (16 - SIZE, "out", ["R010"]),
        (SIZE, "out", []),
        (-SIZE, "out", []),
    ],
)
def test_overlap(offset: int, second: str, found: list[str]) -> None:
    assert codes(kernel(second=second), seen(), seen(at=(1 << 40) + offset)) == found


def test_outputs_hold_each_element_once() -> None:
    out = kernel(strided=True)
    for strides, found in (((0, 1), ["R010"]), ((8, 1), ["R010"]), ((16, 1), []), ((32, 1), [])):
        assert codes(out, seen(), seen(at=1 << 50, strides=strides)) == found, strides
    assert codes(kernel(strided=True, second="in"), seen(), seen(at=1 << 50, strides=(0, 1))) == []
    assert seen((4, 1, 8), strides=(8, 0, 1)).distinct() and not seen((2, 3, 4), strides=(4, 4, 1)).distinct()


def test_read_only_outputs() -> None:
    assert codes(kernel(), seen(read_only=True)) == []
    assert codes(kernel(), seen(), seen(at=1 << 50, read_only=True)) == ["R022"]


@pytest.mark.parametrize(
    ("shape", "mapped_only", "bad"),
    [
        ((1 << 15, 1 << 16), False, 1),
        ((1 << 15, 1 << 16), True, 0),
        (((1 << 15) - 1, 1 << 16), False, 0),
        ((INDEX_LIMIT + 1, 1), True, 1),
        ((INDEX_LIMIT, 1), True, 0),
    ],
)
def test_large_tensors(shape: tuple[int, ...], mapped_only: bool, bad: int) -> None:
    assert codes(kernel(), seen(shape), mapped_only=mapped_only) == ["R011"] * (2 * bad)


def test_all_findings_at_once() -> None:
    """Whoever calls learns everything that is wrong; overlap is asked only of tensors that are right by themselves."""
    bad = dataclasses.replace(seen(strides=(20, 1)), pointer=(1 << 40) + 4)
    assert codes(kernel(), bad, seen()) == ["R007", "R008"]


def test_a_diagnostic_is_an_exception() -> None:
    with pytest.raises(CakeError, match="shares memory"):
        raise CakeError(*check(kernel(), dict.fromkeys("xy", Access(4, False)), {"x": seen(), "y": seen()}))
