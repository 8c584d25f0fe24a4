"""Checking what a kernel assumes about its data (``assume``), which the device never checks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from cake.diagnostics import Findings
from cake.ir import expanded as x
from cake.ir.evaluate import evaluate
from cake.machine.elementwise import Array, to_f32


def _holds(condition: x.Condition, array: Array, args: list[Any]) -> bool:
    flat = array.reshape(-1)
    if condition.form == "increasing":
        return bool(np.all(flat[1:] >= flat[:-1]))
    if condition.form == "within":
        return bool(np.all((flat >= args[0]) & (flat < args[1])))
    if condition.form == "unique":
        return len(np.unique(flat)) == flat.size
    if condition.form == "zero":
        return not bool(np.any(flat != 0))
    if condition.form == "finite":
        return bool(np.all(np.isfinite(flat if flat.dtype.kind in "iub" else to_f32(flat))))
    *index, value = args
    return bool(array[tuple(index)] == value)


def check_assumptions(
    kernel: x.Kernel, arrays: Mapping[str, Array], values: Mapping[str, Any], findings: Findings
) -> None:
    """Report each assumption that the arguments break. ``element`` has the indices and then the value as arguments;
    ``increasing`` is not strict and ``within`` half-open."""
    for condition in kernel.assumes:
        if condition.form == "expr":
            holds = condition.expr is None or bool(evaluate(condition.expr, values))
        else:
            assert condition.tensor is not None
            holds = _holds(condition, arrays[condition.tensor], [evaluate(a, values) for a in condition.args])
        if not holds:
            findings.error("R021", f"{kernel.name} assumes {condition.text}", condition.span)
