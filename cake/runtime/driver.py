"""The CUDA driver through cuda-bindings, as far as a launch needs it.

A launch is the one call whose host time users feel. A CUlaunchConfig made once and the address of a ready array of
parameters keep it cheap: measured on a driver that does nothing, cuLaunchKernelEx takes 0.5 us through the bindings, as
it does through ctypes, and cuCtxGetCurrent 0.15 us against 0.9 us, so nothing here goes round the bindings.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from cake.diagnostics import CakeError
from cake.runtime import errors
from cake.runtime.maps import MAP_BYTES, MapArguments

ATTRIBUTES = {
    "sms": "MULTIPROCESSOR_COUNT",
    "major": "COMPUTE_CAPABILITY_MAJOR",
    "minor": "COMPUTE_CAPABILITY_MINOR",
    "shared_sm": "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR",
    "shared_block": "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN",
}
"""Names of device attributes, after ``CU_DEVICE_ATTRIBUTE_``."""

FUNCTION_ATTRIBUTES = {
    "dynamic_shared": "MAX_DYNAMIC_SHARED_SIZE_BYTES",
    "large_cluster": "NON_PORTABLE_CLUSTER_SIZE_ALLOWED",
}
"""Names of attributes of a kernel, after ``CU_FUNC_ATTRIBUTE_``."""

PORTABLE_CLUSTER = 8
"""CTAs of the largest cluster that every device takes."""

DEFAULT_STREAMS = (0, 1, 2)
"""Handles that mean the current device's: the default stream, the legacy one, the one of the thread."""


class Driver:
    """The driver's entry points; ``cuda`` is the module ``cuda.bindings.driver``. Methods raise CakeError R018 where a
    call fails; contexts, modules and kernels are their addresses. ``launch_raw`` and ``get_current_raw`` are the bare
    functions of the bindings, which give a tuple that begins with the driver's code."""

    def __init__(self, cuda: Any) -> None:
        self._cuda = cuda
        self.launch_raw: Callable[..., tuple[Any, ...]] = cuda.cuLaunchKernelEx
        self.get_current_raw: Callable[..., tuple[Any, ...]] = cuda.cuCtxGetCurrent

    def call(self, what: str, function: str, *arguments: Any) -> Any:
        """What a function of the driver gives; ``what`` says in the error what it was wanted for."""
        code, *values = getattr(self._cuda, function)(*arguments)
        if code:
            raise self.failure(what, code)
        return values[0] if values else None

    # -- errors -------------------------------------------------------------------------------------------------------

    def describe(self, code: int) -> str:
        """Name and text of a driver error."""
        out = []
        for function in (self._cuda.cuGetErrorName, self._cuda.cuGetErrorString):
            failed, text = function(self._cuda.CUresult(code))
            if not failed and text:
                out.append(text.decode(errors="replace"))
        return ": ".join(out) or f"error {int(code)}"

    def failure(self, what: str, code: int, help: str | None = None) -> CakeError:
        """The exception for a call that failed."""
        return errors.error(
            errors.CUDA_CALL,
            f"{what} failed.",
            help or "an error of an earlier kernel can surface here: run it alone, under compute-sanitizer",
            self.describe(code),
        )

    # -- devices ------------------------------------------------------------------------------------------------------

    def device_count(self) -> int:
        """Number of visible devices."""
        return int(self.call("Counting the CUDA devices", "cuDeviceGetCount"))

    def version(self) -> int:
        """The CUDA version of the driver, as 1000 * major + 10 * minor."""
        return int(self.call("Asking the driver's version", "cuDriverGetVersion"))

    def device_name(self, ordinal: int) -> str:
        """The device's product name."""
        name: bytes = self.call("Asking the device's name", "cuDeviceGetName", 256, self._device(ordinal))
        return name.partition(b"\0")[0].decode(errors="replace").strip()

    def pci_bus_id(self, ordinal: int) -> str:
        """Where the device sits (domain:bus:device.function), by which other tools know it."""
        place: bytes = self.call("Asking for the device's place", "cuDeviceGetPCIBusId", 32, self._device(ordinal))
        return place.partition(b"\0")[0].decode(errors="replace")

    def attribute(self, ordinal: int, name: str) -> int:
        """One of ``ATTRIBUTES`` of a device."""
        attribute = self._member("CUdevice_attribute", "CU_DEVICE_ATTRIBUTE_", ATTRIBUTES[name])
        return int(
            self.call("Asking the device's properties", "cuDeviceGetAttribute", attribute, self._device(ordinal))
        )

    def primary_context(self, ordinal: int) -> int:
        """The primary context, retained for the life of the process; it is the one that frameworks use."""
        return int(self.call(f"Opening CUDA device {ordinal}", "cuDevicePrimaryCtxRetain", self._device(ordinal)))

    def current_context(self) -> int | None:
        """The calling thread's context, if it has one."""
        return int(self.call("Asking for the current context", "cuCtxGetCurrent")) or None

    def push(self, context: int) -> None:
        """Make ``context`` current."""
        self.call("Entering the device's context", "cuCtxPushCurrent", self._cuda.CUcontext(context))

    def pop(self) -> None:
        """Undo the last push."""
        self.call("Leaving the device's context", "cuCtxPopCurrent")

    def synchronize(self) -> None:
        """Wait for the current context's device."""
        self.call("Waiting for the device", "cuCtxSynchronize")

    def device_of(self, pointer: int) -> int | None:
        """The device that an address belongs to; None if it is no device address."""
        attribute = self._member("CUpointer_attribute", "CU_POINTER_ATTRIBUTE_", "DEVICE_ORDINAL")
        code, ordinal = self._cuda.cuPointerGetAttribute(attribute, pointer)
        return int(ordinal) if not code and ordinal >= 0 else None

    def capturing(self, stream: int) -> bool:
        """Whether what goes to a stream is recorded in a graph now."""
        code, status = self._cuda.cuStreamIsCapturing(self._cuda.CUstream(stream))
        active = self._member("CUstreamCaptureStatus", "CU_STREAM_CAPTURE_STATUS_", "ACTIVE")
        return not code and status == active

    def stream_device(self, stream: int) -> int | None:
        """The device of a stream; None for the default streams, which every device has."""
        if stream in DEFAULT_STREAMS:
            return None
        code, context = self._cuda.cuStreamGetCtx(self._cuda.CUstream(stream))
        if code:
            return None
        self.push(int(context))
        try:
            return int(self.call("Asking for the device of a stream", "cuCtxGetDevice"))
        finally:
            self.pop()

    def _device(self, ordinal: int) -> Any:
        return self.call(f"Opening CUDA device {ordinal}", "cuDeviceGet", ordinal)

    def _member(self, enumeration: str, prefix: str, name: str) -> Any:
        return getattr(getattr(self._cuda, enumeration), prefix + name)

    # -- code ---------------------------------------------------------------------------------------------------------

    def load(self, cubin: bytes) -> int:
        """Load a cubin into the current context."""
        return int(self.call("Loading the kernel", "cuModuleLoadData", cubin))

    def function(self, module: int, name: str) -> int:
        """The kernel ``name`` of a module."""
        found = self.call(
            f"Finding the kernel {name}", "cuModuleGetFunction", self._cuda.CUmodule(module), name.encode()
        )
        return int(found)

    def set_attribute(self, function: int, name: str, value: int) -> None:
        """Set one of ``FUNCTION_ATTRIBUTES`` of a kernel."""
        attribute = self._member("CUfunction_attribute", "CU_FUNC_ATTRIBUTE_", FUNCTION_ATTRIBUTES[name])
        self.call("Preparing the kernel", "cuFuncSetAttribute", self._cuda.CUfunction(function), attribute, value)

    def resident(self, function: int, threads: int, shared: int) -> int:
        """How many CTAs of a kernel fit an SM together."""
        kernel = self._cuda.CUfunction(function)
        name = "cuOccupancyMaxActiveBlocksPerMultiprocessor"
        return int(self.call("Asking the kernel's occupancy", name, kernel, threads, shared))

    def clusters(self, function: int, threads: int, shared: int, size: int) -> int:
        """How many clusters of ``size`` CTAs the device holds together: maybe fewer than its SMs allow, as a cluster
        stays within a group of them."""
        config = self._config(size, threads, shared, 0, size)
        kernel = self._cuda.CUfunction(function)
        return int(self.call("Asking how many clusters fit", "cuOccupancyMaxActiveClusters", kernel, config))

    def launch_arguments(
        self, function: int, *, grid: int, threads: int, shared: int, stream: int, cluster: int, parameters: int
    ) -> tuple[Any, ...]:
        """What ``launch_raw`` takes, ready to be used again and again; ``parameters`` is the address of the array of
        pointers to them."""
        config = self._config(grid, threads, shared, stream, cluster)
        return config, self._cuda.CUfunction(function), parameters, 0

    def _config(self, grid: int, threads: int, shared: int, stream: int, cluster: int) -> Any:
        config = self._cuda.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = grid, 1, 1
        config.blockDimX, config.blockDimY, config.blockDimZ = threads, 1, 1
        config.sharedMemBytes = shared
        config.hStream = self._cuda.CUstream(stream)
        if cluster > 1:
            attribute = self._cuda.CUlaunchAttribute()
            attribute.id = self._member("CUlaunchAttributeID", "CU_LAUNCH_ATTRIBUTE_", "CLUSTER_DIMENSION")
            shape = attribute.value.clusterDim
            shape.x, shape.y, shape.z = cluster, 1, 1
            config.attrs, config.numAttrs = [attribute], 1
        return config

    # -- tensor maps --------------------------------------------------------------------------------------------------

    def encode_tiled(self, a: MapArguments, tensor: str) -> bytes:
        """The 128 bytes of a tensor map."""
        cuda = self._cuda
        swizzle = f"{a.swizzle}B" if a.swizzle else "NONE"
        code, encoded = cuda.cuTensorMapEncodeTiled(
            self._member("CUtensorMapDataType", "CU_TENSOR_MAP_DATA_TYPE_", a.data_type),
            len(a.extents),
            a.pointer,
            [cuda.cuuint64_t(n) for n in a.extents],
            # A tensor of one axis has no strides, but the driver refuses a null pointer where they would be.
            [cuda.cuuint64_t(n) for n in a.strides or (16,)],
            [cuda.cuuint32_t(n) for n in a.box],
            [cuda.cuuint32_t(1) for _ in a.box],
            cuda.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            self._member("CUtensorMapSwizzle", "CU_TENSOR_MAP_SWIZZLE_", swizzle),
            self._member("CUtensorMapL2promotion", "CU_TENSOR_MAP_L2_PROMOTION_", f"L2_{a.l2_promotion}B"),
            cuda.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,  # out of bounds reads as zero
        )
        if code:
            raise errors.error(
                errors.TENSOR_MAP,
                f"The driver refuses the tensor map of `{tensor}`.",
                "see its extents, strides (bytes) and box, innermost axis first",
                self.describe(code),
                f"extents {list(a.extents)}, strides {list(a.strides)}, box {list(a.box)}",
            )
        return ctypes.string_at(int(encoded.getPtr()), MAP_BYTES)


def bindings() -> Any:
    """The module of the bindings, which opens the driver's library at the first call of a function."""
    from cuda.bindings import driver as cuda

    return cuda


_loaded: Driver | None = None


def driver() -> Driver:
    """The driver of this machine, initialised. CakeError R016 where there is none, R017 where it has no device."""
    global _loaded
    if _loaded is None:
        try:
            cuda = bindings()
            (code,) = cuda.cuInit(0)
        except (ImportError, RuntimeError) as e:
            raise errors.error(
                errors.NO_DRIVER,
                "There is no CUDA driver on this machine, so kernels cannot be launched here.",
                "run on a machine with an NVIDIA GPU; checking, simulating and building need none",
                str(e),
            ) from e
        found = Driver(cuda)
        if code == cuda.CUresult.CUDA_ERROR_NO_DEVICE or (not code and found.device_count() == 0):
            raise errors.error(
                errors.NO_DEVICE,
                "The CUDA driver sees no device.",
                "look at nvidia-smi and CUDA_VISIBLE_DEVICES",
            )
        if code:
            raise found.failure("Initialising CUDA", code, "look at nvidia-smi")
        _loaded = found
    return _loaded
