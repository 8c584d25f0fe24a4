"""Emission of operations, and what is checked at each one: registers have values and are not in flight (D206, T010)."""

from __future__ import annotations

from cake.diagnostics import Label, Span
from cake.expand.context import Abort, RoleContext
from cake.ir import expanded as x
from cake.ir.expr import Expr, Reg, walk
from cake.ir.ops import OPS


def key(reg: Reg) -> str:
    """What is tracked of a register tile: its name and leading indices."""
    return reg.name + "".join(f"[{i}]" for i in reg.lead)


def keys(e: Expr) -> set[str]:
    """The register tiles an expression reads."""
    return {key(n) for n in walk(e) if isinstance(n, Reg)}


def emit_op(ctx: RoleContext, op: x.Op) -> None:
    """Append an operation after checking its target and the registers it touches."""
    row = OPS[op.op]
    target = ctx.kernel.target
    if target.name not in row.targets:
        ctx.refuse(
            "W711",
            f"`{op.op}` does not exist on {target.name}",
            op.span,
            help=f"it exists on {', '.join(sorted(row.targets))}",
        )
    read: set[str] = set()
    written: set[str] = set()
    for effect in row.effects:
        operand = op.operands.get(effect.operand)
        if isinstance(operand, x.Ref):
            _index_reads(operand, read)
        elif operand is not None:
            if "r" in effect.mode:
                read |= keys(operand)
            if "w" in effect.mode:
                written |= keys(operand)
    for name in row.optional:
        operand = op.operands.get(name)
        if operand is not None and not isinstance(operand, x.Ref):
            read |= keys(operand)
    if op.op != "wgmma":
        check_reads(ctx, read, op.span)
        check_writes(ctx, written, op.span)
    ctx.state.assigned |= written
    ctx.emit(op)


def _index_reads(ref: x.Ref, read: set[str]) -> None:
    for sub in ref.subs:
        if isinstance(sub, x.Elem):
            read |= keys(sub.index)


def check_reads(ctx: RoleContext, names: set[str], span: Span | None) -> None:
    """Every register tile read has a value on every path and is not being written by a wgmma in flight."""
    for name in sorted(names):
        for flight in ctx.state.flights:
            for group in flight:
                if group.writes == name:
                    _in_flight(ctx, name, "read", "written", group.span, span)
        if name not in ctx.state.assigned:
            if name.split("[")[0] in ctx.doubtful:
                raise Abort
            ctx.refuse(
                "T010",
                f"`{name}` is read before it has a value on some path",
                span,
                help="give it an initial value, such as `= 0.0`",
            )


def check_writes(ctx: RoleContext, names: set[str], span: Span | None) -> None:
    """No register tile is written that a wgmma in flight reads or writes."""
    for name in sorted(names):
        for flight in ctx.state.flights:
            for group in flight:
                if name == group.writes or name in group.reads:
                    how = "written" if name == group.writes else "read"
                    _in_flight(ctx, name, "written", how, group.span, span)


def _in_flight(ctx: RoleContext, name: str, what: str, how: str, issued: Span | None, span: Span | None) -> None:
    target = name if how == "written" else None
    labels = [Label(span=issued, text="issued here")] if issued else []
    if ctx.leaving is not None:
        labels.append(Label(span=ctx.leaving, text="this wait leaves groups in flight"))
    ctx.refuse(
        "D206",
        f"`{name}` is {what} while a wgmma that is still in flight has it {how}",
        span,
        labels=tuple(labels),
        help=f"wait first: `wgmma.wait({target})`" if target else "wait for that group first: `wgmma.wait(…)`",
    )
