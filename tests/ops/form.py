"""A form of an operation: a micro-kernel in the surface language, inputs, and what it must give, in plain NumPy."""

from __future__ import annotations

import textwrap
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from cake.compiler import expand_text
from cake.ir import expanded as x
from tests.ops.compare import EXACT, Bound
from tests.ops.values import CLASSES, Array, Rng

Inputs = dict[str, Any]
Make = Callable[[Rng, str], Inputs]
Reference = Callable[..., Mapping[str, Array]]
Bounds = Callable[..., Mapping[str, Bound]]


def exact(**_: Any) -> dict[str, Bound]:
    """Bit for bit."""
    return {}


@dataclass(frozen=True)
class Form:
    """One micro-kernel. ``inputs(rng, class)`` makes tensors and scalars by name (of ``inout`` tensors the initial
    contents); ``reference(**inputs)`` gives the outputs by name; ``bounds(**inputs)`` says how far the device may be
    from them (outputs that it leaves out must agree bit for bit)."""

    name: str
    source: str
    inputs: Make
    reference: Reference
    bounds: Bounds = exact
    classes: tuple[str, ...] = ("random",)
    slow: bool = False
    ctas: int = 2

    @property
    def group(self) -> str:
        """The first word of the name: the family of operations."""
        return self.name.split()[0]

    @cached_property
    def kernel(self) -> x.Kernel:
        """The expanded kernel."""
        return expand_text(self.source, f"{self.name}.cake")

    def case(self, kind: str) -> Case:
        """Inputs and expected outputs for one class of inputs; the seed depends on nothing but the names."""
        rng = np.random.default_rng(zlib.crc32(f"{self.name}/{kind}".encode()))
        inputs = self.inputs(rng, kind)
        with np.errstate(all="ignore"):
            outputs = dict(self.reference(**inputs))
            bounds = dict(self.bounds(**inputs))
        return Case(kind, inputs, outputs, {n: bounds.get(n, EXACT) for n in outputs})


@dataclass
class Case:
    """A form's inputs of one class with what they must give."""

    kind: str
    inputs: Inputs
    outputs: dict[str, Array]
    bounds: dict[str, Bound] = field(default_factory=dict)

    def arguments(self) -> Inputs:
        """What to call the kernel with: inputs, and room for the tensors that are only written."""
        return {**{n: np.zeros_like(a) for n, a in self.outputs.items()}, **self.inputs}


FORMS: dict[str, Form] = {}


def add(form: Form) -> Form:
    """Put a form into the table."""
    assert form.name not in FORMS, form.name
    FORMS[form.name] = form
    return form


def simple(params: str, declare: str, body: str, *, warps: int = 4, head: str = "", targets: str = "sm_90a") -> str:
    """A kernel of one role that does ``body`` once."""
    lines = [f"kernel k({params}) for {targets}:"]
    if head:
        lines.append(textwrap.indent(textwrap.dedent(head).strip("\n"), " " * 4))
    lines += ["    tiles once:", "        i in 1", f"    role work: warps {warps}"]
    smem = [line for line in textwrap.dedent(declare).strip("\n").splitlines() if line.startswith("smem")]
    lines += [f"    {line}" for line in smem]
    lines.append("    do work:")
    lines += [
        f"        {line}" for line in textwrap.dedent(declare).strip("\n").splitlines() if not line.startswith("smem")
    ]
    lines.append("        for t in tiles:")
    lines.append(textwrap.indent(textwrap.dedent(body).strip("\n"), " " * 12))
    return "\n".join(lines) + "\n"


def all_classes(dtype: str) -> tuple[str, ...]:
    """The classes of inputs that a type has."""
    return CLASSES if dtype in ("f32", "bf16", "f16", "tf32", "e4m3", "e5m2") else ("random", "extreme")
