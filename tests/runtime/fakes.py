"""A CUDA driver in Python: enough of the C interface for the launcher, with devices of memory that exists only as
addresses."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import Any

from cake.codegen.build import Artifact, ParameterInfo
from cake.codegen.parameters import parameters
from cake.codegen.report import Report
from cake.ir import expanded as x
from cake.runtime.driver import Driver, LaunchConfig

SIZES = {"tensor": 8, "dim": 4, "stride": 8, "map": 128}
SCALARS = {"float": 4, "int": 4, "int32_t": 4, "int64_t": 8, "bool": 1, "int8_t": 1, "uint8_t": 1}
CONTEXT = 0xC0DE0000


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
class FakeLibrary:
    """``libcuda``: one device a gigabyte of addresses from 1 << 40 on."""

    capability: tuple[int, int] = (9, 0)
    devices: int = 2
    occupancy: int = 1
    launch_code: int = 0
    launches: list[Launch] = field(default_factory=list)
    encoded: list[dict[str, Any]] = field(default_factory=list)
    modules: int = 0
    stack: list[int] = field(default_factory=list)
    function_attributes: dict[int, int] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)

    def cuGetErrorName(self, code: Any, out: Any) -> int:
        out._obj.value = b"CUDA_ERROR_FAKE"
        return 0

    def cuGetErrorString(self, code: Any, out: Any) -> int:
        out._obj.value = b"it is not real"
        return 0

    def cuDeviceGetCount(self, out: Any) -> int:
        out._obj.value = self.devices
        return 0

    def cuDeviceGet(self, out: Any, ordinal: Any) -> int:
        out._obj.value = ordinal.value
        return 0 if ordinal.value < self.devices else 101

    def cuDeviceGetName(self, buffer: Any, size: int, device: Any) -> int:
        buffer.value = b"Fake H200"
        return 0

    def cuDeviceGetAttribute(self, out: Any, attribute: Any, device: Any) -> int:
        table = {16: 132, 75: self.capability[0], 76: self.capability[1], 81: 233472, 97: 232448}
        out._obj.value = table[attribute.value]
        return 0

    def cuDevicePrimaryCtxRetain(self, out: Any, device: Any) -> int:
        out._obj.value = CONTEXT + device.value
        return 0

    def cuCtxGetCurrent(self, out: Any) -> int:
        out._obj.value = self.stack[-1] if self.stack else None
        return 0

    def cuCtxPushCurrent_v2(self, context: Any) -> int:
        self.calls.append("push")
        self.stack.append(context.value)
        return 0

    def cuCtxPopCurrent_v2(self, out: Any) -> int:
        out._obj.value = self.stack.pop()
        return 0

    def cuPointerGetAttribute(self, out: Any, attribute: Any, pointer: Any) -> int:
        device = (pointer.value - (1 << 40)) >> 30
        if not 0 <= device < self.devices:
            return 1
        out._obj.value = device
        return 0

    def cuModuleLoadData(self, out: Any, image: bytes) -> int:
        self.modules += 1
        out._obj.value = 0x1000 + self.modules
        return 0

    def cuModuleGetFunction(self, out: Any, module: Any, name: bytes) -> int:
        out._obj.value = 0xF000 + module.value
        return 0

    def cuFuncSetAttribute(self, function: Any, attribute: Any, value: Any) -> int:
        self.function_attributes[attribute.value] = value.value
        return 0

    def cuOccupancyMaxActiveBlocksPerMultiprocessor(self, out: Any, function: Any, threads: Any, shared: Any) -> int:
        out._obj.value = self.occupancy
        return 0

    def cuTensorMapEncodeTiled(self, out: Any, kind: Any, rank: Any, pointer: Any, *rest: Any) -> int:
        extents, strides, box, _ones, _interleave, swizzle, _l2, _oob = rest
        n = rank.value
        assert out.value % 64 == 0
        self.encoded.append(
            {
                "pointer": pointer.value,
                "extents": list(extents)[:n],
                "strides": list(strides)[: n - 1],
                "box": list(box)[:n],
                "swizzle": swizzle.value,
            }
        )
        mark = bytes([len(self.encoded) % 256]) * 128
        ctypes.memmove(out.value, mark, 128)
        return 0

    def cuLaunchKernelEx(self, config: Any, function: Any, pointers: Any, extra: Any) -> int:
        assert extra is None
        c = LaunchConfig.from_address(config.value)
        cluster = 1
        if c.count:
            assert c.attributes[0].id == 4
            cluster = c.attributes[0].value[0]
        array = (ctypes.c_void_p * 32).from_address(pointers.value)
        self.launches.append(
            Launch(
                tuple(c.grid),
                tuple(c.block),
                c.shared,
                c.stream or 0,
                cluster,
                function.value,
                [array[i] or 0 for i in range(3)],
                self.stack[-1] if self.stack else 0,
            )
        )
        return self.launch_code


def fake_driver(**options: Any) -> tuple[Driver, FakeLibrary]:
    """A driver and the library behind it."""
    library = FakeLibrary(**options)
    return Driver(library), library


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

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        item = {"bfloat16": 2, "float32": 4, "float16": 2, "int32": 4}[self.dtype]
        return {
            "shape": self.shape,
            "typestr": f"<V{item}" if self.dtype == "bfloat16" else f"<f{item}",
            "data": (self.pointer, False),
            "strides": None if self.strides is None else tuple(s * item for s in self.strides),
            "version": 3,
        }


MB = 1 << 20


def at(megabyte: int, device: int = 0) -> int:
    """An address on a fake device."""
    return (1 << 40) + (device << 30) + megabyte * MB
