"""The emitted code of an expanded kernel, and launches of it as the interpreter of PTX takes them.

The interpreter knows nothing of the expanded IR; what the runtime would pass to the device is made here, from the
contract between emitter and runtime (``cake.codegen.parameters``, ``cake.runtime.maps``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from cake.codegen import emit, nvrtc
from cake.codegen.parameters import parameters
from cake.ir import expanded as x
from cake.ir.binding import bind
from cake.ir.dtypes import DTYPES
from cake.ir.evaluate import evaluate
from cake.ptx.interpret import Launch, Outcome, Pointer, Tensor, TensorMap, examine
from cake.runtime.maps import tensor_map_arguments
from cake.runtime.tensors import View, row_major_strides

SMS = 132
ALLOWED = {"W713", "G007", "G008"}


LOAD = "*static_cast<const Word *>(p)"
"""The load of one word from global memory, in the device functions."""


def compiled(kernel: x.Kernel, *, keep_loads: bool = False) -> str:
    """The PTX that NVRTC makes of what is emitted. ``keep_loads``: also loads of single words whose values nothing uses,
    as in many litmus programs, which would be left out."""
    options = [f"--maxrregcount={kernel.launch_registers}"] if kernel.launch_registers else []
    source = emit(kernel)
    if keep_loads:
        source = source.replace(LOAD, LOAD.replace("const Word", "const volatile Word"))
    return nvrtc.compile_source(source, kernel.target, name="test.cu", options=options, allow=ALLOWED).ptx


def launch_of(kernel: x.Kernel, values: Mapping[str, Any], clusters: int = 1) -> Launch:
    """The launch that ``values`` (arrays and scalars by name) make, of which ``clusters`` are run; a persistent kernel
    is given no more."""
    arrays = {t.name: np.ascontiguousarray(values[t.name]) for t in kernel.tensors}
    shapes = {n: tuple(map(int, a.shape)) for n, a in arrays.items()}
    scalars = {n: v for n, v in values.items() if n not in arrays}
    env = bind(kernel, shapes, {t.name: t.dtype for t in kernel.tensors}, scalars)
    grid = int(evaluate(kernel.grid, {**env, "%sms": SMS, "%resident": 1, "%clusters": SMS // kernel.cluster}))
    if kernel.schedule == "persistent":
        grid = min(grid, clusters)
    numbers = {t.name: i for i, t in enumerate(kernel.tensors)}
    tensors = tuple(
        Tensor(t.name, arrays[t.name].nbytes, _contents(t, arrays[t.name]), t.direction == "in") for t in kernel.tensors
    )
    views = {
        t.name: View(1 << 20, shapes[t.name], row_major_strides(shapes[t.name]), t.dtype, 0) for t in kernel.tensors
    }
    maps = {m.name: _map(m, numbers[m.tensor], views[m.tensor]) for m in kernel.maps}
    given: list[Any] = []
    for p in parameters(kernel):
        if p.kind == "tensor":
            given.append(Pointer(numbers[p.name]))
        elif p.kind == "map":
            given.append(maps[p.name])
        elif p.kind == "stride":
            assert p.axis is not None
            given.append(views[p.name].strides[p.axis])
        else:
            value = env[p.name]
            given.append(int(value) if float(value) == int(value) and p.ctype in ("int", "int64_t", "bool") else None)
    return Launch(
        parameters=tuple(given),
        tensors=tensors,
        ctas=min(grid, clusters) * kernel.cluster,
        threads=kernel.threads,
        shared=kernel.shared_bytes,
        cluster=kernel.cluster,
        registers=kernel.launch_registers,
        grid=grid * kernel.cluster,
    )


def _contents(t: x.Tensor, array: np.ndarray[Any, Any]) -> bytes | None:
    """Integers may decide control; the values of floats are not followed."""
    return array.tobytes() if DTYPES[t.dtype].kind != "float" else None


def _map(m: x.TensorMap, tensor: int, view: View) -> TensorMap:
    a = tensor_map_arguments(m, view)
    return TensorMap(tensor, DTYPES[view.dtype].bytes, a.extents, a.strides, a.box, a.swizzle)


def interpret(kernel: x.Kernel, values: Mapping[str, Any], clusters: int = 1, **how: int) -> Outcome:
    """What the interpreter says of one launch of the emitted code."""
    return examine(compiled(kernel, keep_loads=True), launch_of(kernel, values, clusters), **how)
