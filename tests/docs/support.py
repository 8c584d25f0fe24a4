"""Kernels in documents: extraction, inputs of small ragged shapes, and a run on the simulator."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cake.ir import expanded as x
from cake.ir.dtypes import DTYPES, numpy_dtype
from cake.ir.evaluate import evaluate

_FENCE = re.compile(r"^```cake(?: ([^\n]*))?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SIZES = (72, 40, 136, 8, 24, 3, 5, 64, 128, 1, 2, 256)
MOST = 1 << 18
"""Elements of one tensor."""


@dataclass(frozen=True)
class Block:
    """A fenced block: its source, the words after ``cake``, and where it starts."""

    text: str
    mark: str
    line: int

    @property
    def name(self) -> str:
        """The first kernel's name and the line, for the test's identifier."""
        found = re.search(r"^(?:kernel|sequence) (\w+)", self.text, re.MULTILINE)
        return f"{found.group(1) if found else 'text'}:{self.line}"


def blocks(path: Path) -> list[Block]:
    """The ``cake`` blocks of a document."""
    text = path.read_text(encoding="utf-8")
    return [Block(m.group(2), m.group(1) or "", text[: m.start()].count("\n") + 2) for m in _FENCE.finditer(text)]


def usual(kernel: x.Kernel) -> bool:
    """Whether any values in range will do as inputs."""
    return all(a.form in ("finite", "within", "zero") for a in kernel.assumes)


def dims(kernel: x.Kernel, seed: int) -> dict[str, Any]:
    """Small values of the dims, ragged where the guards allow it."""
    rng = np.random.default_rng(seed)
    names = [d.name for d in kernel.dims]
    for attempt in range(4000):
        sizes = SIZES if attempt else SIZES[:1]
        values: dict[str, Any] = {n: int(rng.choice(sizes)) for n in names}
        values |= {s.name: scalar(s.dtype, rng) for s in kernel.scalars}
        shapes = [[int(evaluate(e, values)) for e in t.shape] for t in kernel.tensors]
        fits = all(min(s, default=1) > 0 and int(np.prod(s)) <= MOST for s in shapes)
        if fits and all(evaluate(g.expr, values) for g in kernel.guards if g.expr is not None):
            return values
    raise AssertionError(f"no small shapes satisfy the guards of {kernel.name}")


def scalar(dtype: str, rng: np.random.Generator) -> Any:
    """A value of a scalar parameter."""
    return float(rng.uniform(0.25, 1.0)) if DTYPES[dtype].kind == "float" else int(rng.integers(1, 9))


def inputs(kernel: x.Kernel, seed: int = 0, given: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Random arguments of every parameter; ``given`` fixes dims."""
    rng = np.random.default_rng(seed)
    values = dict(given) if given else dims(kernel, seed)
    for s in kernel.scalars:
        values.setdefault(s.name, scalar(s.dtype, rng))
    out: dict[str, Any] = {s.name: values[s.name] for s in kernel.scalars}
    for t in kernel.tensors:
        shape = tuple(int(evaluate(e, values)) for e in t.shape)
        kind = DTYPES[t.dtype].kind
        ranges = [a for a in kernel.assumes if a.form == "within" and a.tensor == t.name]
        if any(a.form == "zero" and a.tensor == t.name for a in kernel.assumes):
            array: Any = np.zeros(shape)
        elif kind == "float":
            array = rng.normal(size=shape)
        elif kind == "bool":
            array = rng.random(shape) < 0.5
        else:
            low = max((int(evaluate(a.args[0], values)) for a in ranges), default=0)
            high = min((int(evaluate(a.args[1], values)) for a in ranges), default=low + 16)
            array = rng.integers(low, max(high, low + 1), shape)
        out[t.name] = np.asarray(array).astype(numpy_dtype(t.dtype))
    return out


def simulate(kernel: x.Kernel, arguments: Mapping[str, Any], seed: int = 0) -> dict[str, Any]:
    """The outputs of a run; skips where the simulator is not there."""
    machine = pytest.importorskip("cake.machine.run")
    result: dict[str, Any] = machine.run(kernel, arguments, seed=seed).outputs
    return result
