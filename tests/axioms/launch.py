"""Running a probe's cubin through the runtime's driver: no compiler, no torch."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from tests.axioms.table import IN_WORDS, OUT_WORDS, Probe

COUNTS = ("violations", "checks", "timeouts", "observed")


def run(probe: Probe, cubin: bytes, seed: int) -> dict[str, int]:
    """One launch in the current process; the counts. CakeError where the driver refuses something."""
    from cake.runtime.driver import driver

    d = driver()
    d.push(d.primary_context(0))
    try:
        return _run(d, probe, cubin, seed)
    finally:
        d.pop()


def _run(d: Any, probe: Probe, cubin: bytes, seed: int) -> dict[str, int]:
    cuda = d._cuda
    module = d.load(cubin)
    function = d.function(module, "probe")
    if probe.shared > 48 * 1024:
        d.set_attribute(function, "dynamic_shared", probe.shared)
    sizes = (4 * IN_WORDS, 4 * OUT_WORDS, 64)
    pointers = [int(d.call("Allocating memory", "cuMemAlloc", n)) for n in sizes]
    try:
        for pointer, data in zip(pointers, _contents(probe), strict=True):
            d.call("Copying", "cuMemcpyHtoD", cuda.CUdeviceptr(pointer), data.ctypes.data, data.nbytes)
        values = [*(ctypes.c_uint64(p) for p in pointers), ctypes.c_uint32(seed), ctypes.c_uint32(probe.rounds)]
        addresses = (ctypes.c_void_p * len(values))(*(ctypes.addressof(v) for v in values))
        config, kernel, parameters, extra = d.launch_arguments(
            function,
            grid=probe.grid,
            threads=probe.threads,
            shared=probe.shared,
            stream=0,
            cluster=1,  # the kernels that need clusters say so themselves (__cluster_dims__)
            parameters=ctypes.addressof(addresses),
        )
        (code,) = d.launch_raw(config, kernel, parameters, extra)
        if code:
            raise d.failure(f"Launching {probe.name}", code)
        d.synchronize()
        counts = np.zeros(16, np.uint32)
        d.call("Copying", "cuMemcpyDtoH", counts.ctypes.data, cuda.CUdeviceptr(pointers[2]), counts.nbytes)
        return {name: int(counts[i]) for i, name in enumerate(COUNTS)}
    finally:
        for pointer in pointers:
            d.call("Freeing memory", "cuMemFree", cuda.CUdeviceptr(pointer))


def _contents(probe: Probe) -> list[np.ndarray]:
    out = np.zeros(OUT_WORDS, np.uint32)
    if probe.pattern:
        out[: probe.pattern] = 0x3F803F80  # pairs of bf16 ones
        out[probe.pattern : 2 * probe.pattern] = 0x40004000  # and of twos
    return [np.arange(IN_WORDS, dtype=np.uint32), out, np.zeros(16, np.uint32)]


def verdict(probe: Probe, counts: dict[str, int]) -> str:
    """``holds``, ``refuted``, ``stuck`` (a wait timed out), or ``observed``."""
    if counts["timeouts"]:
        return "stuck"
    if counts["violations"]:
        return "refuted"
    return "holds" if probe.claims else "observed"
