"""Warnings: what is allowed and rarely meant. They block nothing, and a verdict carries them beside its findings.

P118 a barrier that nobody waits for; N801 a running sum in a narrow type; N804 a long product of 8-bit operands whose sum is
never moved to full precision; N806 a field that is filled and never read. N805, sums whose order differs from run to run, is
a note.
"""

from __future__ import annotations

from collections.abc import Iterator

from cake.diagnostics import Diagnostic, Span
from cake.ir import expanded as x
from cake.ir.dtypes import DTYPES
from cake.ir.expr import Apply, Const, Expr, Reg, registers
from cake.ir.ops import OPS
from cake.machine.program import statements

EIGHT_BITS = frozenset({"e4m3", "e5m2"})
SUMS = frozenset({"atomic", "tma.reduce"})


def remarks(kernel: x.Kernel) -> list[Diagnostic]:
    """All warnings about a kernel, each place once."""
    found: dict[tuple[str, object], Diagnostic] = {}
    for d in (*_dead_barriers(kernel), *_narrow_sums(kernel), *_long_products(kernel), *_unread(kernel)):
        found.setdefault((d.code, d.span or d.message), d)
    return list(found.values())


def unordered_sums(kernel: x.Kernel) -> str | None:
    """N805 as a sentence: which tensors are added to in an order that differs between runs."""
    names = []
    for node in _operations(kernel):
        if node.op in SUMS and node.attrs.get("function") == "add":
            base = node.ref("dst").base
            tensor = kernel.tensor(base)
            if tensor is not None and DTYPES[tensor.dtype].kind == "float" and base not in names:
                names.append(base)
    if not names:
        return None
    listed = ", ".join(f"`{n}`" for n in names)
    return f"N805: floats are added to {listed} in the order in which CTAs come, so the last bits may differ from run to run"


def _operations(kernel: x.Kernel) -> Iterator[x.Op]:
    for body in (kernel.entry, *(role.body for role in kernel.roles)):
        for node in statements(body):
            if isinstance(node, x.Op):
                yield node


# ---- P118 -----------------------------------------------------------------------------------------------------------


def _dead_barriers(kernel: x.Kernel) -> Iterator[Diagnostic]:
    waited = {n.barrier for role in kernel.roles for n in statements(role.body) if isinstance(n, x.Wait)}
    for barrier in kernel.barriers:
        if barrier.name not in waited:
            message = f"nobody waits for mbarrier `{barrier.name}`"
            yield _warning("P118", message, barrier.span, "leave it out, or wait for what it stands for")


# ---- N801 -----------------------------------------------------------------------------------------------------------


def _narrow_sums(kernel: x.Kernel) -> Iterator[Diagnostic]:
    for role in kernel.roles:
        for loop in (n for n in statements(role.body) if isinstance(n, x.For) and n.role != "tiles"):
            for node in statements(loop.body):
                dst = node.operands.get("dst") if isinstance(node, x.Op) and node.op == "assign" else None
                value = node.expr("value") if isinstance(node, x.Op) and node.op == "assign" else None
                if not isinstance(dst, Reg) or value is None or DTYPES[dst.dtype].kind != "float":
                    continue
                if DTYPES[dst.dtype].bytes < 4 and _adds_to(value, dst):
                    yield _warning(
                        "N801",
                        f"`{dst.name}` adds up in {dst.dtype} as a loop goes on: every step rounds the sum",
                        node.span,
                        f"add up in an f32 tile, and cast to {dst.dtype} at the end",
                    )


def _adds_to(value: Expr, dst: Reg) -> bool:
    """A sum or difference with the tile itself as a summand."""
    if isinstance(value, Apply) and value.op == "cast":
        return _adds_to(value.args[0], dst)
    if isinstance(value, Apply) and value.op in ("+", "-"):
        return any(_is(a, dst) or _adds_to(a, dst) for a in value.args)
    return False


def _is(e: Expr, tile: Reg) -> bool:
    if isinstance(e, Apply) and e.op == "cast":
        return _is(e.args[0], tile)
    return isinstance(e, Reg) and e.name == tile.name


# ---- N804 -----------------------------------------------------------------------------------------------------------


def _long_products(kernel: x.Kernel) -> Iterator[Diagnostic]:
    for role in kernel.roles:
        for loop in (n for n in statements(role.body) if isinstance(n, x.For) and n.role != "tiles"):
            if isinstance(loop.lo, Const) and isinstance(loop.hi, Const):
                continue
            inside = [n for n in statements(loop.body) if isinstance(n, x.Op)]
            taken = {
                name
                for n in inside
                if n.op == "assign"
                for name in registers(n.expr("value") or Const(value=0, dtype="i32"))
            }
            for node in inside:
                if node.op != "wgmma" or node.reg("d").name in taken or _fresh(node):
                    continue
                if _narrow(kernel, node) and not any(node in statements(n.body) for n in inside_loops(loop)):
                    yield _warning(
                        "N804",
                        f"`{node.reg('d').name}` takes a run-time number of products of 8-bit operands, of which the tensor cores keep "
                        "13 bits of the sum",
                        node.span,
                        "add the sum of a few slabs to another f32 tile, and begin anew with `use_acc=False`",
                    )


def inside_loops(loop: x.For) -> list[x.For]:
    """Loops of run-time length inside a loop: they speak for themselves."""
    return [
        n
        for n in statements(loop.body)
        if isinstance(n, x.For) and not (isinstance(n.lo, Const) and isinstance(n.hi, Const))
    ]


def _fresh(node: x.Op) -> bool:
    """The product overwrites what was there."""
    use = node.expr("use_acc")
    return isinstance(use, Const) and not use.value


def _narrow(kernel: x.Kernel, node: x.Op) -> bool:
    b = node.ref("b").base
    return any(buffer.name == b and buffer.dtype in EIGHT_BITS for buffer in kernel.buffers)


# ---- N806 -----------------------------------------------------------------------------------------------------------


def _unread(kernel: x.Kernel) -> Iterator[Diagnostic]:
    shared = {b.alias for b in kernel.buffers if b.alias} | {b.name for b in kernel.buffers if b.alias}
    read: set[str] = set()
    written: set[str] = set()
    for node in _operations(kernel):
        modes = {e.operand: e.mode for e in OPS[node.op].effects}
        for name, value in node.operands.items():
            if isinstance(value, x.Ref):
                mode = modes.get(name, "r")
                (written if mode == "w" else read).add(value.base)
    for buffer in kernel.buffers:
        if buffer.name in written - read and buffer.name not in shared:
            field = buffer.name.split(".")[-1]
            yield _warning(
                "N806",
                f"`{buffer.name}` is filled and never read: if it scales what is read, the result lacks its scale",
                buffer.span,
                f"use `{field}`, or leave it out",
            )


def _warning(code: str, message: str, span: Span | None, help: str) -> Diagnostic:
    return Diagnostic(code=code, severity="warning", message=message, span=span, help=help)
