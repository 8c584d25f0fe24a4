"""What a call costs the host: ours beside bare launches of the same kernel and the launches of peers.

    cake build examples/gemm.cake -o DIRECTORY                     anywhere
    python benchmarks/host_time.py DIRECTORY --out OUT             on a GPU: writes OUT/host_time.json

DIRECTORY is the artifact of a kernel with the arguments of `gemm`. Every function is called in short bursts that never
fill the launch queue, all functions take turns, and the order changes from round to round, so that what disturbs the
host disturbs all alike. Nothing waits for the device inside a burst.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import random
import sys
import time
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.problems import random_tensor
from cake.evaluate.intervals import interval
from cake.evaluate.record import environment, write_json
from cake.runtime import driver as driver_module
from cake.runtime import load_kernel, watchdog
from cake.runtime.launcher import Call, LoadedKernel

CALLS = 100
ROUNDS = 60
SECONDS = 300.0
SHAPE = (128, 256, 64)
"""One tile: the device is done long before the host has made the next call."""

Function = Callable[[], Any]


def measure(
    functions: Mapping[str, Function], synchronize: Function, *, calls: int = CALLS, rounds: int = ROUNDS, seed: int = 0
) -> dict[str, list[float]]:
    """Host microseconds of one call, a sample for each function and round."""
    rng = random.Random(seed)
    samples: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(2):
        for function in functions.values():
            function()
    enabled = gc.isenabled()
    gc.disable()
    try:
        for _ in range(rounds):
            for name in rng.sample(list(functions), len(functions)):
                function = functions[name]
                synchronize()
                function()  # what a wait leaves cold is not the call's
                begin = time.perf_counter_ns()
                for _ in range(calls):
                    function()
                samples[name].append((time.perf_counter_ns() - begin) / calls / 1000)
    finally:
        if enabled:
            gc.enable()
    synchronize()
    return samples


def bare(call: Call, kernel: LoadedKernel) -> dict[str, Function]:
    """The launch of a prepared call with nothing around it: as the runtime makes it, by the older entry point, and
    through ctypes at the address of the entry point."""
    cuda = driver_module.bindings()
    assert call.arguments is not None
    config, function, pointers, extra = call.arguments
    shape = (config.gridDimX, 1, 1, config.blockDimX, 1, 1, config.sharedMemBytes)
    stream = config.hStream
    functions: dict[str, Function] = {
        "cuLaunchKernelEx, cuda-bindings": lambda: cuda.cuLaunchKernelEx(config, function, pointers, extra)
    }
    if kernel.kernel.cluster == 1:
        functions["cuLaunchKernel, cuda-bindings"] = lambda: cuda.cuLaunchKernel(
            function, *shape, stream, pointers, extra
        )
    found = cuda.cuGetProcAddress(b"cuLaunchKernelEx", 12000, 0)
    if not found[0]:
        kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
        raw = kind(int(found[1]))
        packed = ctypes.c_void_p(int(config.getPtr())), ctypes.c_void_p(int(function)), ctypes.c_void_p(pointers), None
        functions["cuLaunchKernelEx, ctypes"] = lambda: raw(*packed)
    return functions


def _peers(torch: Any, tensors: list[Any]) -> tuple[dict[str, Function], dict[str, str]]:
    """Calls of peers with three tensors, and why one is missing."""
    a, b, c = tensors
    x, y = (torch.randn(1024, device="cuda") for _ in range(2))
    z, transposed, product = torch.empty_like(x), b.T, torch.empty_like(c)
    functions: dict[str, Function] = {
        "torch.add(out=)": lambda: torch.add(x, y, out=z),
        "torch.mm(out=)": lambda: torch.mm(a, transposed, out=product),
    }
    missing: dict[str, str] = {}
    try:
        from benchmarks import triton_add

        launch = triton_add.add(x, y, z)
        launch()
        functions["Triton, cached"] = launch
    except Exception as problem:  # not installed, or no compiler for its launcher
        missing["Triton, cached"] = f"{type(problem).__name__}: {problem}"
    return functions, missing


def collect(directory: str, calls: int, rounds: int) -> dict[str, Any]:
    """Everything, in a process of its own."""
    import torch

    def tensors(seed: int) -> list[Any]:
        generator = torch.Generator(device="cuda")
        generator.manual_seed(seed)
        m, n, k = SHAPE
        made = [random_tensor(torch, s, generator, torch.bfloat16) for s in ((m, k), (n, k))]
        return [*made, torch.empty(m, n, device="cuda", dtype=torch.bfloat16)]

    kernel = load_kernel(directory)
    sets = [tensors(seed) for seed in range(4)]
    one, turn = sets[0], iter(range(1 << 60))
    for each in sets:
        kernel(*each)
    stream = torch.cuda.current_stream().cuda_stream
    call = kernel.prepared(*one)
    peers, missing = _peers(torch, one)
    functions: dict[str, Function] = {
        "ours": lambda: kernel(*one),
        "ours, stream given": lambda: kernel(*one, stream=stream),
        "ours, four sets of tensors in turn": lambda: kernel(*sets[next(turn) & 3]),
        **bare(call, kernel),
        **peers,
    }
    before = torch.cuda.memory_allocated()
    samples = measure(functions, torch.cuda.synchronize, calls=calls, rounds=rounds)
    return {
        "environment": {
            **environment(torch),
            "cuda_bindings": metadata.version("cuda-bindings"),
            "processor": _processor(),
            "load_average": os.getloadavg(),
        },
        "shape": SHAPE,
        "calls": calls,
        "rounds": rounds,
        "allocated_bytes": torch.cuda.memory_allocated() - before,
        "missing": missing,
        "microseconds": {name: interval(values) for name, values in samples.items()},
        "over_ours": {
            name: interval([v / o for v, o in zip(values, samples["ours"], strict=True)])
            for name, values in samples.items()
        },
        "samples": samples,
    }


def _processor() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), None)


def table(result: Mapping[str, Any]) -> str:
    """The medians, fastest first."""
    lines = [f"  {'host time of one call':<36} {'us':>7}  95%               over ours"]
    for name, i in sorted(result["microseconds"].items(), key=lambda item: item[1].median):
        over = result["over_ours"][name].median
        lines.append(f"  {name:<36} {i.median:7.2f}  [{i.low:6.2f}, {i.high:6.2f}]  {over:6.2f}")
    lines += [f"  {name:<36} {why}" for name, why in result["missing"].items()]
    return "\n".join(lines)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--out", type=Path, default=Path("."), help="where host_time.json goes")
    parser.add_argument("--calls", type=int, default=CALLS, help="calls a burst")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    given = parser.parse_args()
    result = watchdog.run(
        collect, str(given.directory), given.calls, given.rounds, timeout=SECONDS, what="measuring host times"
    )
    print(table(result))
    write_json(given.out / "host_time.json", result)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
