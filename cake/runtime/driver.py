"""The CUDA driver, as far as a launch needs it.

Called through ctypes rather than through cuda-bindings, because a launch is the one call whose host time users feel:
here it takes four ready-made pointers, where the bindings convert eleven Python objects. Nothing but the display
driver's own library is needed, and structures follow its stable ABI (a test holds them equal to cuda-bindings').
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any

from cake.diagnostics import CakeError
from cake.runtime import errors
from cake.runtime.maps import MAP_ALIGNMENT, MAP_BYTES, MapArguments

LIBRARY = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"

ATTRIBUTES = {
    "sms": 16,  # CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
    "major": 75,  # ..._COMPUTE_CAPABILITY_MAJOR
    "minor": 76,  # ..._COMPUTE_CAPABILITY_MINOR
    "shared_sm": 81,  # ..._MAX_SHARED_MEMORY_PER_MULTIPROCESSOR
    "shared_block": 97,  # ..._MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
}
FUNC_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
FUNC_NON_PORTABLE_CLUSTER = 14  # CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
POINTER_DEVICE = 9  # CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
LAUNCH_CLUSTER = 4  # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE
PORTABLE_CLUSTER = 8


class LaunchAttribute(ctypes.Structure):
    """CUlaunchAttribute; the value is a union of 64 bytes, of which a cluster's shape uses three integers."""

    _fields_ = (("id", ctypes.c_uint), ("pad", ctypes.c_uint), ("value", ctypes.c_uint * 16))


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(LaunchAttribute)),
        ("count", ctypes.c_uint),
    )


class Driver:
    """The driver's entry points. Methods raise CakeError R018 where a call fails; ``launch_raw`` is the bare
    cuLaunchKernelEx and returns the driver's code."""

    def __init__(self, library: Any) -> None:
        self._lib = library
        self.launch_raw: Callable[..., int] = library.cuLaunchKernelEx
        self.get_current_raw: Callable[..., int] = library.cuCtxGetCurrent
        self._encode = library.cuTensorMapEncodeTiled

    # -- errors -------------------------------------------------------------------------------------------------------

    def describe(self, code: int) -> str:
        """Name and text of a driver error."""
        out = []
        for function in (self._lib.cuGetErrorName, self._lib.cuGetErrorString):
            text = ctypes.c_char_p()
            if function(ctypes.c_int(code), ctypes.byref(text)) == 0 and text.value:
                out.append(text.value.decode(errors="replace"))
        return ": ".join(out) or f"error {code}"

    def failure(self, what: str, code: int, help: str | None = None) -> CakeError:
        """The exception for a call that failed."""
        return errors.error(
            errors.CUDA_CALL,
            f"{what} failed.",
            help or "an error of an earlier kernel can surface here: run it alone, under compute-sanitizer",
            self.describe(code),
        )

    def _check(self, what: str, code: int) -> None:
        if code != 0:
            raise self.failure(what, code)

    # -- devices ------------------------------------------------------------------------------------------------------

    def device_count(self) -> int:
        """Number of visible devices."""
        n = ctypes.c_int()
        self._check("Counting the CUDA devices", self._lib.cuDeviceGetCount(ctypes.byref(n)))
        return n.value

    def version(self) -> int:
        """The CUDA version of the driver, as 1000 * major + 10 * minor."""
        n = ctypes.c_int()
        self._check("Asking the driver's version", self._lib.cuDriverGetVersion(ctypes.byref(n)))
        return n.value

    def device_name(self, ordinal: int) -> str:
        """The device's product name."""
        text = ctypes.create_string_buffer(256)
        self._check("Asking the device's name", self._lib.cuDeviceGetName(text, 256, self._device(ordinal)))
        return text.value.decode(errors="replace")

    def attribute(self, ordinal: int, name: str) -> int:
        """One of ``ATTRIBUTES`` of a device."""
        n = ctypes.c_int()
        code = self._lib.cuDeviceGetAttribute(ctypes.byref(n), ctypes.c_int(ATTRIBUTES[name]), self._device(ordinal))
        self._check("Asking the device's properties", code)
        return n.value

    def primary_context(self, ordinal: int) -> int:
        """The primary context, retained for the life of the process; it is the one that frameworks use."""
        context = ctypes.c_void_p()
        code = self._lib.cuDevicePrimaryCtxRetain(ctypes.byref(context), self._device(ordinal))
        self._check(f"Opening CUDA device {ordinal}", code)
        return context.value or 0

    def current_context(self) -> int | None:
        """The calling thread's context, if it has one."""
        current = ctypes.c_void_p()
        self._check("Asking for the current context", self.get_current_raw(ctypes.byref(current)))
        return current.value

    def push(self, context: int) -> None:
        """Make ``context`` current."""
        self._check("Entering the device's context", self._lib.cuCtxPushCurrent_v2(ctypes.c_void_p(context)))

    def pop(self) -> None:
        """Undo the last push."""
        old = ctypes.c_void_p()
        self._check("Leaving the device's context", self._lib.cuCtxPopCurrent_v2(ctypes.byref(old)))

    def synchronize(self) -> None:
        """Wait for the current context's device."""
        self._check("Waiting for the device", self._lib.cuCtxSynchronize())

    def device_of(self, pointer: int) -> int | None:
        """The device that an address belongs to; None if it is no device address."""
        n = ctypes.c_int(-1)
        code = self._lib.cuPointerGetAttribute(ctypes.byref(n), ctypes.c_int(POINTER_DEVICE), ctypes.c_uint64(pointer))
        return n.value if code == 0 and n.value >= 0 else None

    def _device(self, ordinal: int) -> ctypes.c_int:
        device = ctypes.c_int()
        self._check(
            f"Opening CUDA device {ordinal}", self._lib.cuDeviceGet(ctypes.byref(device), ctypes.c_int(ordinal))
        )
        return device

    # -- code ---------------------------------------------------------------------------------------------------------

    def load(self, cubin: bytes) -> int:
        """Load a cubin into the current context."""
        module = ctypes.c_void_p()
        self._check("Loading the kernel", self._lib.cuModuleLoadData(ctypes.byref(module), cubin))
        return module.value or 0

    def function(self, module: int, name: str) -> int:
        """The kernel ``name`` of a module."""
        function = ctypes.c_void_p()
        code = self._lib.cuModuleGetFunction(ctypes.byref(function), ctypes.c_void_p(module), name.encode())
        self._check(f"Finding the kernel {name}", code)
        return function.value or 0

    def set_attribute(self, function: int, attribute: int, value: int) -> None:
        """Set an attribute of a kernel."""
        code = self._lib.cuFuncSetAttribute(ctypes.c_void_p(function), ctypes.c_int(attribute), ctypes.c_int(value))
        self._check("Preparing the kernel", code)

    def resident(self, function: int, threads: int, shared: int) -> int:
        """How many CTAs of a kernel fit an SM together."""
        n = ctypes.c_int()
        code = self._lib.cuOccupancyMaxActiveBlocksPerMultiprocessor(
            ctypes.byref(n), ctypes.c_void_p(function), ctypes.c_int(threads), ctypes.c_size_t(shared)
        )
        self._check("Asking the kernel's occupancy", code)
        return n.value

    # -- tensor maps --------------------------------------------------------------------------------------------------

    def encode_tiled(self, a: MapArguments, tensor: str) -> bytes:
        """The 128 bytes of a tensor map."""
        rank = len(a.extents)
        room = (ctypes.c_char * (MAP_BYTES + MAP_ALIGNMENT))()
        base = ctypes.addressof(room)
        target = base + -base % MAP_ALIGNMENT
        extents = (ctypes.c_uint64 * rank)(*a.extents)
        strides = (ctypes.c_uint64 * max(rank - 1, 1))(*a.strides)
        box = (ctypes.c_uint32 * rank)(*a.box)
        ones = (ctypes.c_uint32 * rank)(*([1] * rank))
        code = self._encode(
            ctypes.c_void_p(target),
            ctypes.c_int(a.data_type),
            ctypes.c_uint32(rank),
            ctypes.c_void_p(a.pointer),
            extents,
            strides,
            box,
            ones,
            ctypes.c_int(0),  # interleave: none
            ctypes.c_int(a.swizzle),
            ctypes.c_int(a.l2_promotion),
            ctypes.c_int(0),  # out of bounds reads as zero
        )
        if code != 0:
            raise errors.error(
                errors.TENSOR_MAP,
                f"The driver refuses the tensor map of `{tensor}`.",
                "see its extents, strides (bytes) and box, innermost axis first",
                self.describe(code),
                f"extents {list(a.extents)}, strides {list(a.strides)}, box {list(a.box)}",
            )
        return ctypes.string_at(target, MAP_BYTES)


_loaded: Driver | None = None


def driver() -> Driver:
    """The driver of this machine, initialised. CakeError R016 where there is none, R017 where it has no device."""
    global _loaded
    if _loaded is None:
        try:
            library = ctypes.CDLL(LIBRARY)
        except OSError as e:
            raise errors.error(
                errors.NO_DRIVER,
                "There is no CUDA driver on this machine, so kernels cannot be launched here.",
                "run on a machine with an NVIDIA GPU; checking, simulating, estimating and building need none",
                str(e),
            ) from e
        found = Driver(library)
        code = library.cuInit(0)
        if code == NO_DEVICE or (code == 0 and found.device_count() == 0):
            raise errors.error(
                errors.NO_DEVICE,
                "The CUDA driver sees no device.",
                "look at nvidia-smi and CUDA_VISIBLE_DEVICES",
            )
        if code != 0:
            raise found.failure("Initialising CUDA", code, "look at nvidia-smi")
        _loaded = found
    return _loaded
