"""What the driver is told about tensors, and structures that follow its ABI."""

from __future__ import annotations

import ctypes

import pytest

from cake.diagnostics import CakeError
from cake.ir.expanded import TensorMap
from cake.runtime import driver as ours
from cake.runtime import maps
from cake.runtime.maps import tensor_map_arguments
from cake.runtime.tensors import View, row_major_strides


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
    assert (a.data_type, a.swizzle) == (9, 2)


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


def test_enumerations_are_the_drivers() -> None:
    d = pytest.importorskip("cuda.bindings.driver")
    for name, value in maps.DATA_TYPE.items():
        assert getattr(d.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{name}").value == value
    for width, value in maps.SWIZZLE.items():
        name = f"{width}B" if width else "NONE"
        assert getattr(d.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{name}").value == value
    assert d.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B.value == maps.L2_128B
    assert d.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B.value == maps.L2_256B
    a = d.CUdevice_attribute
    assert dict(ours.ATTRIBUTES.items()) == {
        "sms": a.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT.value,
        "major": a.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR.value,
        "minor": a.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR.value,
        "shared_sm": a.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR.value,
        "shared_block": a.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN.value,
    }
    f = d.CUfunction_attribute
    assert f.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES.value == ours.FUNC_MAX_DYNAMIC_SHARED
    assert f.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED.value == ours.FUNC_NON_PORTABLE_CLUSTER
    assert d.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL.value == ours.POINTER_DEVICE
    assert d.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION.value == ours.LAUNCH_CLUSTER
    assert d.CUresult.CUDA_ERROR_NO_DEVICE.value == ours.NO_DEVICE


def test_structures_are_the_drivers() -> None:
    d = pytest.importorskip("cuda.bindings.driver")
    theirs = d.CUlaunchConfig()
    theirs.gridDimX, theirs.gridDimY, theirs.gridDimZ = 1, 2, 3
    theirs.blockDimX, theirs.blockDimY, theirs.blockDimZ = 4, 5, 6
    theirs.sharedMemBytes = 7
    theirs.hStream = d.CUstream(0x1234)
    attribute = d.CUlaunchAttribute()
    attribute.id = d.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    attribute.value.clusterDim.x, attribute.value.clusterDim.y, attribute.value.clusterDim.z = 9, 8, 7
    theirs.attrs, theirs.numAttrs = [attribute], 1
    config = ours.LaunchConfig.from_address(int(theirs.getPtr()))
    assert tuple(config.grid) == (1, 2, 3) and tuple(config.block) == (4, 5, 6)
    assert (config.shared, config.stream, config.count) == (7, 0x1234, 1)
    assert config.attributes[0].id == 4 and tuple(config.attributes[0].value[0:3]) == (9, 8, 7)
    assert ctypes.sizeof(ours.LaunchAttribute) == 72 and ctypes.sizeof(ours.LaunchConfig) == 56
