"""One view of the tensors that callers pass: torch, CuPy, anything with ``__cuda_array_interface__`` or DLPack.

Nothing here synchronises, copies or imports a framework: torch is looked at only where the caller has loaded it.
"""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass
from typing import Any

from cake.diagnostics import CakeError
from cake.ir.dtypes import DTYPES
from cake.runtime import errors

HOST = -1
UNKNOWN_DEVICE = -2
"""The device is not said by the object; the driver knows it from the pointer."""


@dataclass(frozen=True)
class View:
    """A device tensor: address, shape, strides in elements, Cake's name of its dtype, device ordinal. ``stream``: the one
    that its producer works on, where it says so."""

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    device: int
    stream: int | None = None
    read_only: bool = False

    @property
    def item(self) -> int:
        """Bytes of an element."""
        return DTYPES[self.dtype].bytes

    @property
    def empty(self) -> bool:
        """Whether it has no elements."""
        return 0 in self.shape

    @property
    def elements(self) -> int:
        """Number of elements."""
        n = 1
        for extent in self.shape:
            n *= extent
        return n

    def byte_range(self) -> tuple[int, int]:
        """The half-open range of addresses between its first and last byte."""
        if self.empty:
            return self.pointer, self.pointer
        spans = [(n - 1) * s for n, s in zip(self.shape, self.strides, strict=True)]
        low = sum(s for s in spans if s < 0)
        high = sum(s for s in spans if s > 0)
        return self.pointer + low * self.item, self.pointer + (high + 1) * self.item

    def distinct(self) -> bool:
        """Whether no two indices can be the same element: each stride is beyond all that smaller ones reach."""
        reach = 0
        for stride, extent in sorted((abs(s), n) for n, s in zip(self.shape, self.strides, strict=True) if n > 1):
            if stride <= reach:
                return False
            reach += (extent - 1) * stride
        return True

    def row_major(self) -> bool:
        """Whether it is contiguous; the strides of axes of extent 1 do not count."""
        expected = 1
        for extent, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if extent != 1 and stride != expected:
                return False
            expected *= extent
        return True


_NAMES = {
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "e4m3",
    "float8_e5m2": "e5m2",
    "int64": "i64",
    "int32": "i32",
    "int8": "i8",
    "uint8": "u8",
    "bool": "bool",
}
_TYPESTR = {"f4": "f32", "f2": "f16", "i8": "i64", "i4": "i32", "i1": "i8", "u1": "u8", "b1": "bool"}
_DLPACK = {(0, 64): "i64", (0, 32): "i32", (0, 8): "i8", (1, 8): "u8", (2, 32): "f32", (2, 16): "f16", (4, 16): "bf16"}
_DLPACK |= {(6, 8): "bool", (10, 8): "e4m3", (12, 8): "e5m2"}


def dtype_name(dtype: Any) -> str:
    """Cake's name of a torch or NumPy dtype; the dtype's own name where Cake has none."""
    text = str(dtype).removeprefix("torch.")
    return _NAMES.get(text, text)


def torch_dtype(torch: Any, name: str) -> Any:
    """The torch dtype of Cake's name (tf32 is f32 in memory)."""
    known = {"tf32": "float32", **{cake: theirs for theirs, cake in _NAMES.items()}}
    return getattr(torch, known[name])


def row_major_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a contiguous tensor, in elements."""
    out: list[int] = []
    step = 1
    for extent in reversed(shape):
        out.append(step)
        step *= max(extent, 1)
    return tuple(reversed(out))


def is_device_array(value: object) -> bool:
    """Whether the object is a tensor of any framework rather than a scalar of the host."""
    return any(hasattr(value, a) for a in ("__cuda_array_interface__", "__dlpack__", "data_ptr"))


def view(value: Any, name: str) -> View:
    """The view of an argument. CakeError R006 if it is no tensor, R009 if it lies in host memory."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return _torch_view(value, name)
    try:
        interface = getattr(value, "__cuda_array_interface__", None)
    except Exception:  # an object may refuse the interface for its dtype or place
        interface = None
    if isinstance(interface, dict):
        return _interface_view(value, interface, name)
    if hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__"):
        return _dlpack_view(value, name)
    raise errors.error(
        errors.NOT_A_TENSOR,
        f"`{name}` is {type(value).__name__}, not a tensor on a CUDA device.",
        "pass a torch or CuPy tensor, or an object with __cuda_array_interface__ or __dlpack__",
    )


def _on_host(name: str, where: str) -> CakeError:
    return errors.error(
        errors.DEVICE, f"`{name}` is on {where}, not on a CUDA device.", "move it to the device before the call"
    )


def _torch_view(value: Any, name: str) -> View:
    if value.device.type != "cuda":
        raise _on_host(name, str(value.device))
    try:
        strides = tuple(value.stride())
        pointer = value.data_ptr()
    except RuntimeError as e:  # sparse, fake, meta and functorch tensors have no storage
        raise errors.error(
            errors.NOT_A_TENSOR, f"`{name}` has no plain storage.", "pass a dense tensor", str(e).splitlines()[0]
        ) from e
    return View(pointer, tuple(value.shape), strides, dtype_name(value.dtype), value.device.index)


def _interface_view(value: Any, interface: dict[str, Any], name: str) -> View:
    shape = tuple(int(n) for n in interface["shape"])
    dtype = dtype_name(getattr(value, "dtype", ""))
    typestr = str(interface["typestr"])
    if typestr[:1] == ">" or interface.get("mask") is not None:
        raise errors.error(
            errors.NOT_A_TENSOR,
            f"`{name}` is {'masked' if typestr[:1] != '>' else 'of big-endian elements'}, which kernels do not know.",
            "pass a plain tensor",
        )
    if dtype not in DTYPES:
        dtype = _TYPESTR.get(typestr[1:], typestr)
    if dtype not in DTYPES:
        raise errors.error(
            errors.NOT_A_TENSOR,
            f"`{name}` has elements of type {typestr}, which Cake does not know.",
            f"convert it to one of {', '.join(DTYPES)}",
        )
    item = DTYPES[dtype].bytes
    given = interface.get("strides")
    if given is None:
        strides = row_major_strides(shape)
    else:
        if any(s % item for s in given):
            raise errors.error(
                errors.STRIDES,
                f"`{name}` has strides that are no multiple of its elements.",
                "pass a contiguous tensor",
            )
        strides = tuple(int(s) // item for s in given)
    pointer, read_only = interface["data"]
    return View(int(pointer or 0), shape, strides, dtype, UNKNOWN_DEVICE, interface.get("stream"), bool(read_only))


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_KDLCUDA = (2, 13)  # device and managed memory
_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype = ctypes.c_void_p
_pointer_of.argtypes = [ctypes.py_object, ctypes.c_char_p]


def _dlpack_view(value: Any, name: str) -> View:
    kind, _ = value.__dlpack_device__()
    if int(kind) not in _KDLCUDA:
        raise _on_host(name, "the host")
    capsule = value.__dlpack__(stream=-1)  # -1: no synchronisation; the capsule frees itself, as it is not consumed
    address = _pointer_of(capsule, b"dltensor")
    t = ctypes.cast(address, ctypes.POINTER(_DLTensor)).contents
    shape = tuple(t.shape[i] for i in range(t.ndim))
    strides = tuple(t.strides[i] for i in range(t.ndim)) if t.strides else row_major_strides(shape)
    dtype = _DLPACK.get((t.code, t.bits), f"DLPack type {t.code}:{t.bits}")
    if dtype not in DTYPES or t.lanes != 1:
        raise errors.error(
            errors.NOT_A_TENSOR,
            f"`{name}` has elements that Cake does not know ({dtype}).",
            f"convert it to one of {', '.join(DTYPES)}",
        )
    return View((t.data or 0) + t.byte_offset, shape, strides, dtype, int(t.device_id))
