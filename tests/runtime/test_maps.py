"""What the driver is told about tensors."""

from __future__ import annotations

import pytest

from cake.diagnostics import CakeError
from cake.ir.dtypes import DTYPES
from cake.ir.expanded import TensorMap
from cake.runtime.driver import ATTRIBUTES, FUNCTION_ATTRIBUTES
from cake.runtime.maps import tensor_map_arguments
from cake.runtime.tensors import View, row_major_strides
from tests.runtime.fakes import INVALID, fake_driver


def seen(
    shape: tuple[int, ...], dtype: str = "bf16", strides: tuple[int, ...] | None = None, at: int = 1 << 20
) -> View:
    return View(at, shape, strides or row_major_strides(shape), dtype, 0)


def test_axes_are_innermost_first() -> None:
    m = TensorMap(name="m", tensor="x", box=(1, 64, 32), swizzle=64)
    a = tensor_map_arguments(m, seen((4, 1000, 96)))
    assert a.extents == (96, 1000, 4)
    assert a.strides == (192, 192000)
    assert a.box == (32, 64, 1)
    assert (a.data_type, a.swizzle) == ("BFLOAT16", 64)


def test_vectors_have_no_strides() -> None:
    a = tensor_map_arguments(TensorMap(name="m", tensor="x", box=(64,)), seen((1000,), "f32"))
    assert (a.extents, a.strides, a.box) == ((1000,), (), (64,))


def test_strided_and_unit_axes() -> None:
    m = TensorMap(name="m", tensor="x", box=(1, 64, 64), swizzle=128)
    a = tensor_map_arguments(m, seen((2, 100, 64), strides=(100000, 128, 1)))
    assert a.strides == (256, 200000)
    a = tensor_map_arguments(m, seen((1, 100, 64), strides=(3, 128, 1)))
    assert a.strides == (256, 12800), "the stride of an axis of extent 1 means nothing"


@pytest.mark.parametrize(
    ("m", "view", "code"),
    [
        (TensorMap(name="m", tensor="x", box=(64, 64)), seen((100, 12)), "R012"),
        (TensorMap(name="m", tensor="x", box=(64, 64)), seen((100, 64), at=8), "R008"),
        (TensorMap(name="m", tensor="x", box=(512, 64)), seen((1000, 64)), "R012"),
        (TensorMap(name="m", tensor="x", box=(64, 4)), seen((1000, 64)), "R012"),
        (TensorMap(name="m", tensor="x", box=(64, 128), swizzle=128), seen((1000, 256)), "R012"),
        (TensorMap(name="m", tensor="x", box=(64,)), seen((1000, 64)), "R012"),
        (TensorMap(name="m", tensor="x", box=(64, 64)), seen((100, 64), "bool"), "R012"),
    ],
)
def test_refusals(m: TensorMap, view: View, code: str) -> None:
    with pytest.raises(CakeError) as e:
        tensor_map_arguments(m, view)
    assert e.value.diagnostics[0].code == code
    assert "`x`" in e.value.diagnostics[0].message


def test_names_are_the_drivers() -> None:
    """Every name that a map or a device property is given by exists in the bindings."""
    driver, library = fake_driver()
    for name in DTYPES:
        if DTYPES[name].tensor_map is not None:
            a = tensor_map_arguments(TensorMap(name="m", tensor="x", box=(64,)), seen((1024,), name))
            assert driver.encode_tiled(a, "x") == bytes([len(library.encoded)]) * 128
    for swizzle in (0, 32, 64, 128):
        row = (swizzle or 64) // 2
        m = TensorMap(name="m", tensor="x", box=(64, row), swizzle=swizzle)
        driver.encode_tiled(tensor_map_arguments(m, seen((100, 64))), "x")
        assert library.encoded[-1]["swizzle"] == (f"{swizzle}B" if swizzle else "NONE")
    assert [driver.attribute(0, name) for name in ATTRIBUTES] == [132, 9, 0, 233472, 232448]
    driver.push(driver.primary_context(0))
    for name in FUNCTION_ATTRIBUTES:
        driver.set_attribute(1, name, 1)
    assert len(library.function_attributes) == len(FUNCTION_ATTRIBUTES)
    assert driver.device_name(0) == "Fake H200" and driver.version() == 13000


def test_a_map_the_driver_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    driver, library = fake_driver()
    monkeypatch.setattr(type(library), "cuTensorMapEncodeTiled", lambda *_: (INVALID, None))
    with pytest.raises(CakeError) as e:
        driver.encode_tiled(tensor_map_arguments(TensorMap(name="m", tensor="x", box=(64,)), seen((1024,))), "x")
    assert e.value.diagnostics[0].code == "R012"
    assert "CUDA_ERROR_INVALID_VALUE" in e.value.diagnostics[0].facts[0]
