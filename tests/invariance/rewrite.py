"""Changes of a surface kernel that must not change the machine code: other names, and declarations in another order."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any, TypeVar

from cake.ir import surface as s
from cake.ir.parser import parse
from cake.ir.printer import format_file

FREE = {"store", "T", "inf"}
"""Words with a meaning of their own."""

AWKWARD = ["lane", "thread", "warp", "p", "float_", "v0", "acc", "slot", "full", "x", "A_", "zz9", "Tile"]
"""Names that generated code might use itself."""

WORD = re.compile(r"(?<!tma\.)(?<!atomic\.)(?<!wgmma\.)(?<!fence\.)\b[A-Za-z_]\w*\b(?!\()")
"""Names that are not called: operations stay, even where a role is called like one."""

N = TypeVar("N", bound=s.Node)


def declared(kernel: s.Kernel, file: s.File) -> dict[str, str]:
    """Every name that the author chose, with what it names."""
    found: dict[str, str] = {c.name: "constant" for c in (*file.consts, *kernel.consts)}

    def note(name: str | None, what: str) -> None:
        if name and name not in FREE and name != kernel.name:
            found.setdefault(name, what)

    for p in kernel.params:
        note(p.name, "tensor")
    for p in kernel.params:
        for node in (n for dim in p.type.dims for n in s.walk(dim)):
            if isinstance(node, s.Name):
                note(node.name, "dim")
    for d in kernel.defines:
        note(d.name, "definition")
    for item in kernel.tiles.items if kernel.tiles else ():
        if not isinstance(item, s.Where):
            note(item.name, "definition")
    for what, items in (("role", kernel.roles), ("pipeline", kernel.pipelines), ("buffer", kernel.smems)):
        for named in items:
            note(named.name, what)
    for field in (f for pipe in kernel.pipelines for f in pipe.fields):
        note(field.name, "field")
    for turn in kernel.turns:
        note(turn.name, "turn")
    for do in kernel.dos:
        note(do.var, "variable")
        for node in s.walk(do):
            match node:
                case s.Declare(name=name) | s.With(name=name) | s.For(var=name):
                    note(name, "variable")
                case s.Assign(targets=targets):
                    for name in targets:
                        note(name, "variable")
    return found


def renamed(text: str, rng: random.Random, kinds: set[str] | None = None) -> str:
    """The text with other names, whose alphabetical order is another too; awkward ones are among them."""
    file = parse(text, "x.cake")
    names: dict[str, str] = {}
    for kernel in file.kernels:
        names |= declared(kernel, file)
    chosen = [n for n, what in names.items() if kinds is None or what in kinds]
    fresh = AWKWARD + [f"{rng.choice('abkqzNXY_')}{rng.randrange(10**4)}_{i}" for i in range(len(chosen))]
    taken = set(names) | {k.name for k in file.kernels}
    pool = [f for f in fresh if f not in taken]
    rng.shuffle(pool)
    table = dict(zip(chosen, pool, strict=False))
    bare = re.sub(r"#[^\n]*", "", text)
    return WORD.sub(lambda m: table.get(m[0], m[0]), bare)


def permuted(text: str, rng: random.Random) -> str:
    """The text with declarations other than parameters and roles in another order, definitions before their uses."""
    file = parse(text, "x.cake")

    def mix(items: Sequence[N]) -> tuple[N, ...]:
        return tuple(rng.sample(list(items), len(items)))

    def shuffled(k: s.Kernel) -> s.Kernel:
        pipelines = tuple(p.model_copy(update={"fields": mix(p.fields)}) for p in mix(k.pipelines))
        update = {
            "consts": ordered(k.consts, rng),
            "wheres": mix(k.wheres),
            "assumes": mix(k.assumes),
            "defines": ordered(k.defines, rng),
            "pipelines": pipelines,
            "smems": mix(k.smems),
            "turns": mix(k.turns),
            "dos": mix(k.dos),
        }
        return k.model_copy(update=update)

    kernels = tuple(shuffled(k) for k in file.kernels)
    return format_file(file.model_copy(update={"kernels": kernels, "consts": ordered(file.consts, rng)}))


def ordered(items: Sequence[Any], rng: random.Random) -> tuple[Any, ...]:
    """A random order in which each item comes after those that it names."""
    names = {item.name for item in items}
    uses = {item.name: {n.name for n in s.walk(item) if isinstance(n, s.Name)} & names for item in items}
    left, out = list(items), list[Any]()
    while left:
        pick = rng.choice([i for i in left if uses[i.name] <= {o.name for o in out} | {i.name}])
        out.append(pick)
        left.remove(pick)
    return tuple(out)
