"""Constants: the chosen point of the search set, and the enumeration of all declared points."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterator, Mapping

from cake.diagnostics import Findings, Label
from cake.expand import expressions as ex
from cake.expand.context import Abort, KernelContext
from cake.expand.values import Poison, Scalar
from cake.ir import surface as s
from cake.ir.dtypes import DTypeName
from cake.ir.expr import Const

Value = bool | int | float


def declared(file: s.File, kernel: s.Kernel) -> tuple[s.Const, ...]:
    """The constants that apply to a kernel, in order."""
    return (*file.consts, *kernel.consts)


def bind_constants(ctx: KernelContext, overrides: Mapping[str, Value]) -> None:
    """Evaluate every constant at the chosen point; an override must be in the declared set (T009)."""
    consts = declared(ctx.file, ctx.kernel)
    names = [c.name for c in consts]
    for name in overrides:
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            ctx.error(
                "T001",
                f"kernel `{ctx.kernel.name}` has no constant `{name}`",
                ctx.kernel.span,
                help=f"did you mean `{near[0]}`?" if near else f"it has {', '.join(names) or 'none'}",
            )
    for const in consts:
        try:
            _bind(ctx, const, overrides)
        except Abort:
            ctx.env.setdefault(const.name, Poison())


def _bind(ctx: KernelContext, const: s.Const, overrides: Mapping[str, Value]) -> None:
    if const.name in ctx.env:
        ctx.refuse(
            "T002",
            f"`{const.name}` is declared twice",
            const.span,
            labels=(Label(span=ctx.spans.get(const.name), text="first here"),),
        )
    choices = [ex.constant(ctx, c, "a declared value") for c in const.choices]
    value = ex.constant(ctx, const.value, f"`{const.name}`")
    if choices and not _among(value, choices):
        ctx.error("T009", f"`{const.name} = {value}` is not in its own set", const.span)
    if const.name in overrides:
        given = overrides[const.name]
        if not choices and not _among(given, [value]):
            ctx.refuse(
                "T009",
                f"`{const.name}` is fixed at {value}",
                const.span,
                help=f"declare a set to choose from: `const {const.name}: {{{value}, {given}}} = {value}`",
            )
        if choices and not _among(given, choices):
            ctx.refuse(
                "T009",
                f"{given} is not a declared value of `{const.name}`",
                const.span,
                help="declared: " + ", ".join(map(str, choices)),
            )
        value = given
    dtype: DTypeName = "bool" if isinstance(value, bool) else "i32" if isinstance(value, int) else "f32"
    ctx.constants[const.name] = value
    ctx.env[const.name] = Scalar(Const(value=value, dtype=dtype), literal=True)
    ctx.spans[const.name] = const.span


def _among(value: Value, choices: list[Value]) -> bool:
    return any(type(value) is type(c) and value == c for c in choices)


def points(file: s.File, kernel: s.Kernel) -> Iterator[dict[str, Value]]:
    """Every declared point of a kernel's search set (before `where` prunes), the chosen one first."""
    from cake.ir.targets import TARGETS

    findings = Findings()
    target = next((TARGETS[t] for t in kernel.targets if t in TARGETS), TARGETS["sm_90a"])
    ctx = KernelContext(file, kernel, target, findings)
    bind_constants(ctx, {})
    findings.raise_errors()
    free = [c for c in declared(file, kernel) if c.choices]
    sets = [[ex.constant(ctx, v, "a declared value") for v in c.choices] for c in free]
    chosen = {c.name: ctx.constants[c.name] for c in free}
    yield chosen
    for combination in itertools.product(*sets):
        point = dict(zip((c.name for c in free), combination, strict=True))
        if point != chosen:
            yield point
