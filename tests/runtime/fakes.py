"""A CUDA driver in Python: the functions of ``cuda.bindings.driver`` that the launcher calls, with devices of memory
that exists only as addresses. Types and enumerations are the bindings' own, so what a call is given is checked by
them."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import Any

from cuda.bindings import driver as real

from cake.codegen.build import Artifact, ParameterInfo
from cake.codegen.parameters import parameters
from cake.codegen.report import Report
from cake.ir import expanded as x
from cake.runtime.driver import Driver

SIZES = {"tensor": 8, "dim": 4, "stride": 8, "map": 128}
SCALARS = {"float": 4, "int": 4, "int32_t": 4, "int64_t": 8, "bool": 1, "int8_t": 1, "uint8_t": 1}
CONTEXT = 0xC0DE0000
SUCCESS = real.CUresult.CUDA_SUCCESS
INVALID = real.CUresult.CUDA_ERROR_INVALID_VALUE


@dataclass
class Launch:
    """What a launch was given."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    stream: int
    cluster: int
    function: int
    parameters: list[int]
    context: int


@dataclass
class FakeBindings:
    """The module: one device a gigabyte of addresses from 1 << 40 on. ``sms`` and ``occupancy`` may differ by device.
    ``calls`` are the names of the functions called, in order."""

    capability: tuple[int, int] = (9, 0)
    devices: int = 2
    sms: tuple[int, ...] = (132, 132)
    occupancy: int | tuple[int, ...] = 1
    launch_code: int = 0
    init_code: int = 0
    capturing: bool = False
    launches: list[Launch] = field(default_factory=list)
    encoded: list[dict[str, Any]] = field(default_factory=list)
    modules: int = 0
    stack: list[int] = field(default_factory=list)
    function_attributes: dict[str, int] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)

    def __getattribute__(self, name: str) -> Any:
        found = object.__getattribute__(self, name)
        if not name.startswith("cu") or not callable(found):
            return found

        def counted(*arguments: Any) -> Any:
            self.calls.append(name)
            return found(*arguments)

        return counted

    def __getattr__(self, name: str) -> Any:
        if name.startswith("CU") or name in ("cuuint32_t", "cuuint64_t"):
            return getattr(real, name)
        raise AttributeError(f"nothing here is called {name}")

    def _here(self) -> int:
        """The current device."""
        return self.stack[-1] - CONTEXT

    def cuInit(self, flags: int) -> tuple[Any, ...]:
        return (real.CUresult(self.init_code),)

    def cuGetErrorName(self, code: real.CUresult) -> tuple[Any, ...]:
        return SUCCESS, str(code.name).encode()

    def cuGetErrorString(self, code: real.CUresult) -> tuple[Any, ...]:
        return SUCCESS, b"it is not real"

    def cuDeviceGetCount(self) -> tuple[Any, ...]:
        return SUCCESS, self.devices

    def cuDriverGetVersion(self) -> tuple[Any, ...]:
        return SUCCESS, 13000

    def cuDeviceGet(self, ordinal: int) -> tuple[Any, ...]:
        if not 0 <= ordinal < self.devices:
            return real.CUresult.CUDA_ERROR_INVALID_DEVICE, None
        return SUCCESS, real.CUdevice(ordinal)

    def cuDeviceGetName(self, size: int, device: Any) -> tuple[Any, ...]:
        return SUCCESS, b"Fake H200".ljust(size, b"\0")

    def cuDeviceGetPCIBusId(self, size: int, device: Any) -> tuple[Any, ...]:
        return SUCCESS, b"0000:1b:00.0".ljust(size, b"\0")

    def cuDeviceGetAttribute(self, attribute: Any, device: Any) -> tuple[Any, ...]:
        a = real.CUdevice_attribute
        table = {
            a.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: self.sms[int(device)],
            a.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: self.capability[0],
            a.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: self.capability[1],
            a.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: 233472,
            a.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: 232448,
        }
        return SUCCESS, table[attribute]

    def cuDevicePrimaryCtxRetain(self, device: Any) -> tuple[Any, ...]:
        return SUCCESS, real.CUcontext(CONTEXT + int(device))

    def cuCtxGetCurrent(self) -> tuple[Any, ...]:
        return SUCCESS, real.CUcontext(self.stack[-1] if self.stack else 0)

    def cuCtxPushCurrent(self, context: Any) -> tuple[Any, ...]:
        self.stack.append(int(context))
        return (SUCCESS,)

    def cuCtxPopCurrent(self) -> tuple[Any, ...]:
        return SUCCESS, real.CUcontext(self.stack.pop())

    def cuCtxGetDevice(self) -> tuple[Any, ...]:
        return SUCCESS, real.CUdevice(self._here())

    def cuStreamIsCapturing(self, stream: Any) -> tuple[Any, ...]:
        return SUCCESS, real.CUstreamCaptureStatus(int(self.capturing))

    def cuStreamGetCtx(self, stream: Any) -> tuple[Any, ...]:
        """Streams of device d have handles from 1000 * d on."""
        return SUCCESS, real.CUcontext(CONTEXT + int(stream) // 1000)

    def cuPointerGetAttribute(self, attribute: Any, pointer: Any) -> tuple[Any, ...]:
        assert attribute == real.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
        device = (int(pointer) - (1 << 40)) >> 30
        return (SUCCESS, device) if 0 <= device < self.devices else (INVALID, None)

    def cuModuleLoadData(self, image: bytes) -> tuple[Any, ...]:
        self.modules += 1
        return SUCCESS, real.CUmodule(0x1000 + self.modules)

    def cuModuleGetFunction(self, module: Any, name: bytes) -> tuple[Any, ...]:
        return SUCCESS, real.CUfunction(0xF000 + int(module))

    def cuFuncSetAttribute(self, function: Any, attribute: Any, value: int) -> tuple[Any, ...]:
        self.function_attributes[attribute.name.removeprefix("CU_FUNC_ATTRIBUTE_")] = value
        return (SUCCESS,)

    def _occupancy(self) -> int:
        return self.occupancy if isinstance(self.occupancy, int) else self.occupancy[self._here()]

    def cuOccupancyMaxActiveBlocksPerMultiprocessor(self, f: Any, threads: int, shared: int) -> tuple[Any, ...]:
        return SUCCESS, self._occupancy()

    def cuOccupancyMaxActiveClusters(self, function: Any, config: Any) -> tuple[Any, ...]:
        size = _cluster(config)
        return SUCCESS, self._occupancy() * (self.sms[self._here()] // size - 2)  # some SMs have no neighbour left

    def cuTensorMapEncodeTiled(
        self, kind: Any, rank: int, pointer: int, extents: Any, strides: Any, box: Any, ones: Any, *modes: Any
    ) -> tuple[Any, ...]:
        interleave, swizzle, promotion, outside = modes
        assert isinstance(kind, real.CUtensorMapDataType) and isinstance(promotion, real.CUtensorMapL2promotion)
        assert int(interleave) == int(outside) == 0
        # Seen with driver 580: a null pointer for the strides of a one-axis tensor is refused, though nothing is read there.
        assert (len(extents), len(strides), len(box), len(ones)) == (rank, max(rank - 1, 1), rank, rank)
        self.encoded.append(
            {
                "pointer": pointer,
                "type": kind.name.removeprefix("CU_TENSOR_MAP_DATA_TYPE_"),
                "extents": [int(n) for n in extents],
                "strides": [int(n) for n in strides][: rank - 1],
                "box": [int(n) for n in box],
                "swizzle": swizzle.name.removeprefix("CU_TENSOR_MAP_SWIZZLE_"),
            }
        )
        encoded = real.CUtensorMap()
        ctypes.memset(int(encoded.getPtr()), len(self.encoded) % 256, 128)
        return SUCCESS, encoded

    def cuLaunchKernelEx(self, config: Any, function: Any, pointers: int, extra: int) -> tuple[Any, ...]:
        assert extra == 0
        array = (ctypes.c_void_p * 32).from_address(pointers)
        self.launches.append(
            Launch(
                (config.gridDimX, config.gridDimY, config.gridDimZ),
                (config.blockDimX, config.blockDimY, config.blockDimZ),
                config.sharedMemBytes,
                int(config.hStream),
                _cluster(config),
                int(function),
                [array[i] or 0 for i in range(3)],
                self.stack[-1] if self.stack else 0,
            )
        )
        return (real.CUresult(self.launch_code),)


def _cluster(config: Any) -> int:
    """CTAs of a cluster; 1 where the configuration has none."""
    if not config.numAttrs:
        return 1
    (attribute,) = config.attrs
    assert attribute.id == real.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    assert (attribute.value.clusterDim.y, attribute.value.clusterDim.z) == (1, 1)
    return int(attribute.value.clusterDim.x)


def fake_driver(**options: Any) -> tuple[Driver, FakeBindings]:
    """A driver and the bindings behind it."""
    bindings = FakeBindings(**options)
    return Driver(bindings), bindings


def artifact(kernel: x.Kernel) -> Artifact:
    """An artifact without code."""
    infos = tuple(
        ParameterInfo(kind=p.kind, name=p.name, ctype=p.ctype, bytes=SIZES.get(p.kind) or SCALARS[p.ctype], axis=p.axis)
        for p in parameters(kernel)
    )
    return Artifact(
        kernel=kernel,
        entry=kernel.name,
        source="",
        ptx="",
        cubin=b"cubin",
        report=Report(kernel=kernel.name, registers=168),
        parameters=infos,
        compiler_version="none",
    )


@dataclass(frozen=True)
class FakeTensor:
    """An object with ``__cuda_array_interface__``; ``strides`` in elements."""

    shape: tuple[int, ...]
    dtype: str = "bfloat16"
    pointer: int = 1 << 40
    strides: tuple[int, ...] | None = None
    read_only: bool = False

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        item = {"bfloat16": 2, "float32": 4, "float16": 2, "int32": 4}[self.dtype]
        return {
            "shape": self.shape,
            "typestr": f"<V{item}" if self.dtype == "bfloat16" else f"<f{item}",
            "data": (self.pointer, self.read_only),
            "strides": None if self.strides is None else tuple(s * item for s in self.strides),
            "version": 3,
        }


MB = 1 << 20


def at(megabyte: int, device: int = 0) -> int:
    """An address on a fake device."""
    return (1 << 40) + (device << 30) + megabyte * MB
