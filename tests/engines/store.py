"""Disagreements between engines: a minimal program each, what every engine said and says, and who was right and why.

One file a disagreement in ``disagreements``, ``NAME.toml``, beside it ``NAME.json`` (an expanded kernel) unless the
program is one of ``tests/litmus``. A new one is written by ``benchmarks/engines.py`` without a resolution, which fails
the tests until somebody decides it by the ISA or an axiom.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel

from cake.ir import expanded as x
from cake.ir.dtypes import numpy_dtype
from tests.litmus import mutate
from tests.litmus.catalogue import kernel as litmus

HERE = Path(__file__).parent / "disagreements"
CITES = re.compile(r"PTX ISA \d+(\.\d+)*|axiom A\d+")


class Disagreement(BaseModel):
    """One file. ``sizes``: scalar launch values; tensors are zeros of ``shapes`` (default: their constant extents).
    ``then``: what the engines said when it was found, ``now``: what they say since, those that are held to it. ``right``:
    who was right. ``resolution`` cites the ISA or an axiom; ``changed``: what was changed."""

    title: str
    program: str
    sizes: dict[str, int | float] = {}
    shapes: dict[str, list[int]] = {}
    ctas: int = 1
    then: dict[str, str]
    now: dict[str, str]
    right: str = ""
    resolution: str = ""
    changed: str = ""

    @property
    def resolved(self) -> bool:
        """Whether somebody has decided it, by something that can be looked up."""
        return bool(self.right and self.resolution and CITES.search(self.resolution))

    def kernel(self) -> x.Kernel:
        """The program."""
        path = HERE / f"{self.program}.json"
        return x.Kernel.model_validate_json(path.read_text()) if path.exists() else litmus(self.program)

    def values(self) -> dict[str, Any]:
        """Launch values."""
        k = self.kernel()
        shapes = {t.name: self.shapes.get(t.name) or [int(getattr(e, "value", 0)) for e in t.shape] for t in k.tensors}
        return {t.name: np.zeros(shapes[t.name], numpy_dtype(t.dtype)) for t in k.tensors} | self.sizes


def load() -> dict[str, Disagreement]:
    """All, by name."""
    return {p.stem: Disagreement(**tomllib.loads(p.read_text())) for p in sorted(HERE.glob("*.toml"))}


def write(name: str, title: str, kernel: x.Kernel, values: Mapping[str, Any], ctas: int, said: dict[str, str]) -> None:
    """Store an unresolved one."""
    (HERE / f"{name}.json").write_text(kernel.model_dump_json(indent=1) + "\n")
    sizes = {n: v for n, v in values.items() if isinstance(v, int | float)}
    shapes = {n: list(np.shape(v)) for n, v in values.items() if n not in sizes}
    lines = [f"title = {json.dumps(title)}", f"program = {json.dumps(name)}", f"ctas = {ctas}"]
    lines += ['right = ""', 'resolution = ""', 'changed = ""', f"then = {_table(said)}", f"now = {_table(said)}"]
    lines += [f"sizes = {_table(sizes)}", f"shapes = {_table(shapes)}"]
    (HERE / f"{name}.toml").write_text("\n".join(lines) + "\n")


def _table(values: Mapping[str, Any]) -> str:
    return "{ " + ", ".join(f"{json.dumps(k)} = {json.dumps(v)}" for k, v in values.items()) + " }"


def shrink(kernel: x.Kernel, differs: Callable[[x.Kernel], bool], tries: int = 150) -> x.Kernel:
    """A smaller kernel on which the engines still differ: statements are left out while they do."""
    again = True
    while again and tries > 0:
        again = False
        for number, role in enumerate(kernel.roles):
            for path in sorted(mutate.paths(role.body[:-1]), key=len):
                tries -= 1
                body = mutate.put(role.body[:-1], path, []) + role.body[-1:]
                roles = list(kernel.roles)
                roles[number] = role.model_copy(update={"body": body})
                smaller = kernel.model_copy(update={"roles": tuple(roles)})
                if tries > 0 and differs(smaller):
                    kernel, again = smaller, True
                    break
            if again:
                break
    return kernel
