"""Running a sequence on arrays: its kernels one after another, on one memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from cake.ir.binding import bind, empty_launch
from cake.ir.dtypes import numpy_dtype
from cake.ir.evaluate import evaluate
from cake.ir.sequences import Launch, Sequence
from cake.machine.elementwise import Array
from cake.machine.registers import poison
from cake.machine.run import RunResult, dtype_name, run


def run_sequence(sequence: Sequence, arguments: Mapping[str, Any], *, seed: int = 0, ctas: int = 2) -> RunResult:
    """Execute every step in order, as ``run`` does one kernel. Workspace starts poisoned, or with zeros where it is declared
    ``zero``; all guards are checked before the first step."""
    arrays = {t.name: np.asarray(arguments[t.name]) for t in sequence.tensors if t.name in arguments}
    scalars = {n: v for n, v in arguments.items() if sequence.tensor(n) is None}
    shapes = {n: tuple(map(int, a.shape)) for n, a in arrays.items()}
    dtypes = {n: dtype_name(a, t.dtype) for n, a in arrays.items() if (t := sequence.tensor(n)) is not None}
    values = bind(sequence, shapes, dtypes, scalars)
    memory = _memory(sequence, arrays, values)
    total = RunResult({}, values, 0, 0, 0)
    if not empty_launch(sequence, shapes):
        for step in sequence.steps:
            _step(step, memory, values, total, seed, ctas)
    total.outputs = {t.name: memory[t.name] for t in sequence.tensors if t.direction != "in"}
    return total


def _memory(sequence: Sequence, arrays: Mapping[str, Array], values: Mapping[str, Any]) -> dict[str, Array]:
    memory = dict(arrays)
    for t in sequence.tensors:
        if t.direction == "out":
            memory[t.name] = poison(t.dtype, arrays[t.name].shape)
        elif t.direction == "inout":
            memory[t.name] = np.array(arrays[t.name], order="C", copy=True)
    for w in sequence.temps:
        shape = tuple(int(evaluate(e, values)) for e in w.shape)
        memory[w.name] = np.zeros(shape, numpy_dtype(w.dtype)) if w.zero else poison(w.dtype, shape)
    return memory


def _step(
    step: Launch, memory: dict[str, Array], values: Mapping[str, Any], total: RunResult, seed: int, ctas: int
) -> None:
    given: dict[str, Any] = {name: memory[passed] for name, passed in step.tensors.items()}
    given |= {name: evaluate(e, values) for name, e in step.scalars.items()}
    result = run(step.kernel, given, seed=seed, ctas=ctas)
    for name, array in result.outputs.items():
        memory[step.tensors[name]] = array
    total.clusters += result.clusters
    total.steps += result.steps
    total.operations += result.operations
    total.events += result.events
