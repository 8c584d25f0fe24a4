"""Emission of operations, and what is checked at each one: registers have values and are not in flight (D206, T010)."""

from __future__ import annotations

from cake.diagnostics import Label, Span
from cake.expand.context import Abort, RoleContext
from cake.ir import expanded as x
from cake.ir.expr import Expr, Reg, walk
from cake.ir.layout import register_map, spread_stands_opposite
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
    _check_spread(ctx, op)
    if op.op != "wgmma":
        check_reads(ctx, read, op.span)
        check_writes(ctx, written, op.span)
    ctx.state.assigned |= written
    ctx.emit(op)


def _check_spread(ctx: RoleContext, op: x.Op) -> None:
    """Every thread has the elements of spread tiles that broadcast to its own (T007)."""
    if op.type is None or op.type.layout.kind != "spread":
        return
    domain = register_map(op.type, ctx.threads)
    for operand in op.operands.values():
        exprs = (
            [sub.index for sub in operand.subs if isinstance(sub, x.Elem)] if isinstance(operand, x.Ref) else [operand]
        )
        for reg in (n for e in exprs for n in walk(e) if isinstance(n, Reg)):
            tile = ctx.tiles.get(reg.name)
            if tile is None or tile.layout != op.type.layout:
                continue
            rows, cols = reg.rows or (0, tile.rows), reg.cols or (0, tile.cols)
            part = (rows[1] - rows[0], cols[1] - cols[0])
            fits = all(n in (1, m) for n, m in zip(part, (domain.rows, domain.cols), strict=True))
            if fits and not spread_stands_opposite(tile, part, cols[0], domain):
                ctx.refuse(
                    "T007",
                    f"a part [{part[0]}, {part[1]}] of a {tile.layout} tile does not broadcast to [{domain.rows}, {domain.cols}]: its "
                    "elements are dealt to threads, and others need them",
                    op.span,
                    help="handle one row at a time with a scalar, `load(ref[row])`, or go through shared memory",
                )


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
