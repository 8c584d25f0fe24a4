"""Running a kernel on arrays: the interface of the values reading."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cake.diagnostics import Findings
from cake.ir import expanded as x
from cake.ir.binding import bind, empty_launch
from cake.ir.dtypes import DTYPES, numpy_dtype
from cake.ir.evaluate import evaluate
from cake.machine.assumptions import check_assumptions
from cake.machine.elementwise import Array
from cake.machine.events import Observer
from cake.machine.executor import Executor
from cake.machine.faults import DIVISOR, fail
from cake.machine.program import RoleProgram, compile_kernel, needed_values
from cake.machine.registers import poison
from cake.machine.schedule import scheduler

Programs = tuple[RoleProgram, dict[str, RoleProgram]]
"""The compiled entry and roles."""

SMS = 132
"""What ``%sms`` is in a simulation: the SMs of an H200. Persistent kernels run fewer clusters than that (``ctas``)."""


@dataclass
class RunResult:
    """What a run gives: copies of the ``out`` and ``inout`` tensors, the launch values, and how much was executed."""

    outputs: dict[str, Array]
    values: dict[str, Any]
    clusters: int
    steps: int
    operations: int
    events: int = field(default=0)


def dtype_name(array: Array, expected: str) -> str:
    """The Cake name of an array's element type (tf32 is held in f32)."""
    if expected == "tf32" and array.dtype == np.float32:
        return "tf32"
    for name in DTYPES:
        if name != "tf32" and numpy_dtype(name) == array.dtype:
            return name
    return str(array.dtype)


def _bind(kernel: x.Kernel, arguments: Mapping[str, Any]) -> tuple[dict[str, Array], dict[str, Any]]:
    tensors = {t.name: t for t in kernel.tensors}
    arrays = {n: np.asarray(v) for n, v in arguments.items() if n in tensors}
    scalars = {n: v for n, v in arguments.items() if n not in tensors}
    shapes = {n: tuple(map(int, a.shape)) for n, a in arrays.items()}
    dtypes = {n: dtype_name(a, tensors[n].dtype) for n, a in arrays.items()}
    return arrays, bind(kernel, shapes, dtypes, scalars)


def _memory(kernel: x.Kernel, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Inputs as they are; outputs as copies, those that are only written poisoned."""
    memory: dict[str, Array] = {}
    for tensor in kernel.tensors:
        given = arrays[tensor.name]
        if tensor.direction == "in":
            memory[tensor.name] = given
        elif tensor.direction == "out":
            memory[tensor.name] = poison(tensor.dtype, given.shape)
        else:
            memory[tensor.name] = np.array(given, order="C", copy=True)
    return memory


def run(
    kernel: x.Kernel,
    arguments: Mapping[str, Any],
    *,
    seed: int = 0,
    ctas: int = 2,
    observer: Observer | None = None,
    max_steps: int | None = None,
    values: bool = True,
    open_flags: bool = False,
    prepare: Callable[[Programs], None] | None = None,
) -> RunResult:
    """Execute ``kernel`` on arrays (bf16 and 8-bit floats are ml_dtypes arrays) and scalars.

    ``seed`` picks the order of agents and the completion times of asynchronous operations; 0 is the canonical order.
    ``ctas`` is the number of clusters simulated: a persistent kernel runs on that many, so that each meets several
    tiles; one with a cluster for each tile runs them in batches of that many. ``values`` False leaves out what neither
    control nor addresses depend on: the same events, and outputs that mean nothing. ``open_flags`` lets every `wait_until` pass
    at once; ``prepare`` may change the compiled programs before they run. Raises CakeError for arguments
    that do not fit and for whatever the machine finds: a deadlock (P101), an excess arrival (P103), an access outside
    (O503) and the like.
    """
    arrays, env = _bind(kernel, arguments)
    memory = _memory(kernel, arrays)
    result = RunResult({t.name: memory[t.name] for t in kernel.tensors if t.direction != "in"}, env, 0, 0, 0)
    if empty_launch(kernel, {n: tuple(a.shape) for n, a in arrays.items()}):
        return result
    with np.errstate(all="ignore"):
        findings = Findings()
        check_assumptions(kernel, arrays, env, findings)
        findings.raise_errors()
        try:
            with uncollected():
                _run(kernel, memory, env, result, seed, max(1, ctas), observer, max_steps, values, open_flags, prepare)
        except ZeroDivisionError:
            fail("N807", "an index, bound or condition divides by zero", kernel.span, help=DIVISOR)
    return result


@contextmanager
def uncollected() -> Iterator[None]:
    """Without the cyclic garbage collector: nearly all that a run makes lives until its end, and is only walked again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


_KNOWN: dict[tuple[int, bool, bool], tuple[x.Kernel, Programs, bool]] = {}
"""The programs of the last few kernels by identity: a kernel is run many times."""

KEPT = 8


def _compiled(kernel: x.Kernel, values: bool, inputs: bool) -> tuple[Programs, bool]:
    """The programs of a kernel, and whether they compute all values. Nothing changes them."""
    key = id(kernel), values, inputs
    found = _KNOWN.pop(key, None)
    if found is None:
        found = kernel, *_compile(kernel, values, inputs)  # with the kernel, so that its identity stays its own
        while len(_KNOWN) >= KEPT:
            _KNOWN.pop(next(iter(_KNOWN)), None)
    _KNOWN[key] = found
    return found[1:]


def _compile(kernel: x.Kernel, values: bool, inputs: bool) -> tuple[Programs, bool]:
    needed = None if values else needed_values(kernel)
    return compile_kernel(kernel, needed, inputs=inputs), needed is None


def _run(
    kernel: x.Kernel,
    memory: dict[str, Array],
    values: dict[str, Any],
    result: RunResult,
    seed: int,
    ctas: int,
    observer: Observer | None,
    max_steps: int | None,
    computed: bool,
    open_flags: bool,
    prepare: Callable[[Programs], None] | None,
) -> None:
    inputs = observer is not None and getattr(observer, "inputs", True)
    programs, computed = _compiled(kernel, computed, inputs) if prepare is None else _compile(kernel, computed, inputs)
    if prepare is not None:
        prepare(programs)
    env = {**values, "%sms": SMS, "%resident": 1, "%clusters": SMS // kernel.cluster}
    grid = int(evaluate(kernel.grid, env))
    if kernel.schedule == "persistent":
        grid = min(grid, ctas)
    env["%grid"] = grid
    for first in range(0, grid, ctas):
        executor = Executor(kernel, programs, memory, env, scheduler(seed), observer, values=computed)
        executor.open_flags = open_flags
        executor.operations, executor.events = result.operations, result.events
        for number in range(first, min(first + ctas, grid)):
            executor.add_cluster(number, number)
        executor.run(None if max_steps is None else max_steps - result.steps)
        result.clusters += len(executor.clusters)
        result.steps += executor.steps
        result.operations, result.events = executor.operations, executor.events
