"""One kernel on the GPU under many seeds: what each launch did. Runs in a worker process, which a hang ends.

Needs the runtime and the driver's bindings only, no compiler, no simulator, no framework.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.chaos import store
from benchmarks.chaos.pool import LEAVES, READY
from benchmarks.chaos.store import Item
from cake.diagnostics import CakeError
from cake.ir.dtypes import DTYPES, numpy_dtype
from cake.runtime import LoadedKernel
from cake.runtime.driver import bindings, driver

RIGHT, WRONG, HANG, TRAP = "right", "wrong", "hang", "trap"
PATIENCE = {"safe": 3.0, "unsafe": 0.7}
"""Seconds after which a launch counts as hanging. A launch takes some milliseconds, also beside hanging ones."""

POISON = 0xFF
"""Bytes of outputs before each launch: NaN in floats."""


class Resident:
    """A tensor in device memory, as the runtime reads one."""

    def __init__(self, pointer: int, shape: list[int], dtype: str) -> None:
        self.pointer = pointer
        self.dtype = np.dtype(numpy_dtype(dtype))
        self.bytes = int(np.prod(shape, dtype=np.int64)) * self.dtype.itemsize
        self.shape = shape
        self.__cuda_array_interface__ = {
            "version": 3,
            "shape": tuple(shape),
            "strides": None,
            "typestr": self.dtype.str,
            "data": (pointer, False),
        }


class Gpu:
    """Device 0, a stream, and copies to and from it."""

    def __init__(self) -> None:
        self._driver = driver()
        self._cuda = bindings()
        self._driver.push(self._driver.primary_context(0))
        self.stream = int(self._call("cuStreamCreate", int(self._cuda.CUstream_flags.CU_STREAM_NON_BLOCKING)))
        self._pointers: list[int] = []

    def _call(self, function: str, *arguments: Any) -> Any:
        return self._driver.call(f"Calling {function}", function, *arguments)

    def room(self, shape: list[int], dtype: str) -> Resident:
        """Memory for a tensor."""
        tensor = Resident(0, shape, dtype)
        pointer = int(self._call("cuMemAlloc", max(tensor.bytes, 16)))
        self._pointers.append(pointer)
        return Resident(pointer, shape, dtype)

    def free(self) -> None:
        """Give back all memory."""
        for pointer in self._pointers:
            self._call("cuMemFree", pointer)
        self._pointers.clear()

    def put(self, tensor: Resident, data: Any) -> None:
        """Fill a tensor from the host's bits."""
        if tensor.bytes:
            self._call("cuMemcpyHtoD", tensor.pointer, data.ctypes.data, tensor.bytes)

    def poison(self, tensor: Resident) -> None:
        """Fill a tensor with what nothing writes."""
        if tensor.bytes:
            self._call("cuMemsetD8", tensor.pointer, POISON, tensor.bytes)

    def get(self, tensor: Resident) -> Any:
        """The bits of a tensor."""
        out = np.empty(tensor.shape, f"u{tensor.dtype.itemsize}")
        if tensor.bytes:
            self._call("cuMemcpyDtoH", out.ctypes.data, tensor.pointer, tensor.bytes)
        return out

    def ready(self) -> None:
        """Wait for copies."""
        self._driver.synchronize()

    def finished(self, seconds: float) -> bool:
        """Wait for the launch; False if it does not end in time. CakeError if it ended with an error."""
        limit = time.monotonic() + seconds
        stream = self._cuda.CUstream(self.stream)
        while True:
            (code,) = self._cuda.cuStreamQuery(stream)
            if code != self._cuda.CUresult.CUDA_ERROR_NOT_READY:
                if code:
                    raise self._driver.failure("The launch", code)
                return True
            if time.monotonic() > limit:
                return False
            time.sleep(2e-5)


def numbers(bits: Any, dtype: str) -> Any:
    """Elements from their bits, in a type that NumPy compares."""
    if DTYPES[dtype].kind != "float":
        return bits
    return bits.view(np.dtype(numpy_dtype(dtype))).astype(np.float64)


def agrees(found: Any, wanted: Any, dtype: str, tolerance: float) -> bool:
    """Whether bits found are right: equal numbers (NaN equals NaN), or within ``tolerance`` of the largest one wanted."""
    if np.array_equal(found, wanted):
        return True
    f, w = numbers(found, dtype), numbers(wanted, dtype)
    if DTYPES[dtype].kind != "float":
        return False
    if not tolerance:
        return bool(np.array_equal(f, w, equal_nan=True))
    finite = np.abs(w[np.isfinite(w)])
    limit = tolerance * (float(finite.max()) if finite.size else 1.0)
    with np.errstate(invalid="ignore"):
        close = (np.abs(f - w) <= limit) | (f == w) | (np.isnan(f) & np.isnan(w))
    return bool(close.all())


def outcomes(
    gpu: Gpu, directory: Path, item: Item, case: Mapping[str, Any], seeds: range
) -> Iterator[tuple[int, str, str]]:
    """(seed, outcome, note) of each launch. A hang or a trap is the last: the context is lost with it."""
    artifact, own = store.load_item(directory, item.name)
    arrays = store.load_case(directory, item.case)
    arrays |= own
    tensors = {n: gpu.room(case["shapes"][n], d) for n, d in case["dtypes"].items()}
    kernel = LoadedKernel(artifact)
    first: dict[str, Any] = {}
    for seed in seeds:
        for n, tensor in tensors.items():
            data = arrays.get(f"in/{n}")
            if data is None:
                gpu.poison(tensor)
            else:
                gpu.put(tensor, data)
        gpu.ready()
        kernel.reseed(seed)
        try:
            kernel(**tensors, **case["scalars"], stream=gpu.stream)
            if not gpu.finished(PATIENCE[item.expect]):
                yield seed, HANG, ""
                return
            got = {n: gpu.get(tensors[n]) for n in case["outputs"]}
        except CakeError as e:
            yield seed, TRAP, "; ".join(e.diagnostics[0].facts) or e.diagnostics[0].message
            return
        wrong = [
            n for n in got if not agrees(got[n], arrays[f"out/{n}"], case["dtypes"][n], case["tolerance"].get(n, 0.0))
        ]
        note = f"wrong: {', '.join(wrong)}" if wrong else ""
        if first and not wrong and not all(np.array_equal(first[n], got[n]) for n in got):
            note = "other bits than under the first seed"
        first = first or got
        yield seed, WRONG if wrong else RIGHT, note


def serve(pipe: Any, directory: Path, seeds: range) -> None:
    """A worker of a ``Pool``: takes numbers of items, answers with (seed, outcome, note) for each launch. Leaves after a hang or
    a trap."""
    known = store.index(directory)
    gpu = Gpu()
    while True:
        pipe.send(READY)
        item = known.items[pipe.recv()]
        for seed, outcome, note in outcomes(gpu, directory, item, known.cases[item.case], seeds):
            pipe.send((seed, outcome, note))
            if outcome in (HANG, TRAP):
                pipe.send(LEAVES)
                os._exit(3)
        gpu.free()
