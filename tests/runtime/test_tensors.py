"""Views of what callers pass."""

from __future__ import annotations

import numpy as np
import pytest

from cake.diagnostics import CakeError
from cake.runtime.streams import stream_handle
from cake.runtime.tensors import UNKNOWN_DEVICE, View, dtype_name, view
from tests.runtime.fakes import FakeTensor


def refused(value: object) -> str:
    with pytest.raises(CakeError) as e:
        view(value, "x")
    assert "`x`" in e.value.diagnostics[0].message
    return e.value.diagnostics[0].code


def test_array_interface() -> None:
    v = view(FakeTensor((4, 8), dtype="float32", strides=(16, 1)), "x")
    assert v == View(1 << 40, (4, 8), (16, 1), "f32", UNKNOWN_DEVICE)
    assert not v.row_major()
    assert v.byte_range() == (1 << 40, (1 << 40) + 4 * (3 * 16 + 8))


def test_host_arrays_are_refused() -> None:
    assert refused(np.zeros(3, np.float32)) == "R009"
    assert refused(3.0) == "R006"
    assert refused([1.0]) == "R006"


def test_torch_on_the_host() -> None:
    torch = pytest.importorskip("torch")
    assert refused(torch.zeros(3)) == "R009"
    assert refused(torch.empty(3, device="meta")) == "R009"
    assert dtype_name(torch.bfloat16) == "bf16"
    assert dtype_name(torch.float8_e4m3fn) == "e4m3"
    assert dtype_name(torch.float64) == "float64"


class Interface:
    """An object with a hand-made ``__cuda_array_interface__``."""

    def __init__(self, **fields: object) -> None:
        self.__cuda_array_interface__ = {"shape": (4,), "typestr": "<f4", "data": (64, False), "version": 3} | fields


def test_odd_interfaces() -> None:
    assert refused(Interface(typestr="<c8")) == "R006"
    assert refused(Interface(strides=(3,))) == "R007"
    assert view(Interface(stream=7), "x").stream == 7
    assert view(Interface(shape=(0,)), "x").empty


@pytest.mark.parametrize(("shape", "strides"), [((1, 8), (3, 1)), ((4, 1), (1, 9)), ((), ()), ((2, 3, 4), (12, 4, 1))])
def test_row_major(shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    assert View(0, shape, strides, "f32", 0).row_major()


def test_streams() -> None:
    class Protocol:
        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, 99

    class Torch:
        cuda_stream = 5

    assert stream_handle(Protocol()) == 99
    assert stream_handle(Torch()) == 5
    with pytest.raises(CakeError):
        stream_handle("default")
