"""The synchronising skeleton of an expanded kernel: what two expansions of one program must agree on.

Names of derived scalars, the places where they are computed, handles and the order of the buffers in shared memory are
free; counts, bytes, orders, subscripts, launch registers and maps are not.
"""

from __future__ import annotations

from typing import Any

from cake.ir import expanded as x
from cake.ir.expr import Apply, Const, Expr, Sym, substitute

Skeleton = tuple[Any, ...]


def skeleton(kernel: x.Kernel) -> dict[str, Any]:
    """Everything that matters of a kernel, as plain data."""
    return {
        "target": kernel.target,
        "tensors": [(t.name, t.dtype, t.shape, t.direction) for t in kernel.tensors],
        "dims": sorted((d.name, d.tensor, d.axis) for d in kernel.dims),
        "guards": [g.expr for g in kernel.guards],
        "schedule": kernel.schedule,
        "positions": kernel.positions,
        "grid": kernel.grid,
        "threads": kernel.threads,
        "registers": kernel.launch_registers,
        "shared": kernel.shared_bytes,
        "buffers": sorted(b.model_copy(update={"span": None, "offset": 0}).model_dump_json() for b in kernel.buffers),
        "barriers": [(b.name, b.count, b.slots, b.offset) for b in kernel.barriers],
        "named": [(b.name, b.id, b.size, b.threads, b.per_instance) for b in kernel.named],
        "rings": [(r.name, r.slots, r.kind, r.fields, r.full, r.empty) for r in kernel.rings],
        "maps": sorted((m.name, m.tensor, m.box, m.swizzle) for m in kernel.maps),
        "entry": [step for node in kernel.entry for step in _step(node, _State({}, {}))],
        "roles": [_role(r) for r in kernel.roles],
    }


def _role(role: x.Role) -> Skeleton:
    return (
        role.name,
        role.first_warp,
        role.warps,
        role.instances,
        role.solo,
        role.registers,
        {n: t for n, t in role.tiles.items() if "." not in n},
        _body(role.body, _State({}, {})),
    )


class _State:
    """Derived scalars; the position of each cursor, relative to the entry of the block; what each handle names."""

    def __init__(self, scalars: dict[str, Expr], handles: dict[str, tuple[str | None, int]]) -> None:
        self.scalars = dict(scalars)
        self.handles = dict(handles)
        self.moved: dict[str, int] = {}

    def value(self, e: Expr) -> Expr:
        """An expression with derived scalars replaced."""
        return _folded(substitute(e, self.scalars))

    def slot(self, slot: x.Slot | None) -> tuple[str | None, int] | None:
        """Which position of a ring, relative to its cursor at the entry of the block."""
        if slot is None:
            return None
        name = slot.cursor or ""
        cursor, at = self.handles.get(name, (slot.cursor, self.moved.get(name, 0)))
        return cursor, at - slot.back


def _body(body: tuple[x.Stmt, ...], outer: _State) -> list[Any]:
    state = _State(outer.scalars, outer.handles)
    out: list[Any] = []
    for node in body:
        out.extend(_step(node, state))
    return [*out, ("advance", dict(sorted(state.moved.items())))]


def _step(node: x.Stmt, state: _State) -> list[Any]:
    match node:
        case x.Let():
            if not node.name.startswith("t."):
                state.scalars[node.name] = state.value(node.value)
            return []
        case x.Cursor(form="copy"):
            source = state.slot(x.Slot(cursor=node.source, back=node.back))
            assert source is not None
            state.handles[node.cursor] = source
            return []
        case x.Cursor():
            state.moved[node.cursor] = state.moved.get(node.cursor, 0) + node.by
            return []
        case x.For():
            bounds = [state.value(e) for e in (node.lo, node.hi, node.step)]
            return [("for", node.role, bounds, _body(node.body, state))]
        case x.If():
            return [("if", state.value(node.cond), _body(node.then, state), _body(node.orelse, state))]
        case x.Op():
            return [_operation(node, state)]
        case x.Wait() | x.Arrive():
            return [(node.model_dump(exclude={"span", "reason", "slot"}), state.slot(node.slot))]
        case _:
            return [node.model_dump(exclude={"span", "reason"})]


def _operation(node: x.Op, state: _State) -> Skeleton:
    operands: dict[str, Any] = {}
    for name, operand in node.operands.items():
        if isinstance(operand, x.Ref):
            subs = [(s.kind, state.value(_index(s)), s.size if isinstance(s, x.Range) else 0) for s in operand.subs]
            operands[name] = (operand.base, state.slot(operand.slot), subs, operand.transposed)
        else:
            operands[name] = state.value(operand)
    completion: Any = None
    if isinstance(node.completion, x.ByBarrier):
        done = node.completion
        completion = (done.barrier, state.slot(done.slot), done.bytes)
    elif node.completion is not None:
        completion = node.completion.queue
    return (node.op, node.executor, operands, dict(node.attrs), completion)


def _index(sub: x.Sub) -> Expr:
    return sub.at if isinstance(sub, x.Point) else sub.index if isinstance(sub, x.Elem) else sub.start


def _folded(e: Expr) -> Expr:
    """Sums and products in one order, zero terms gone: enough to compare two ways of writing one offset."""
    if not isinstance(e, Apply):
        return e
    args = tuple(_folded(a) for a in e.args)
    if e.op in ("+", "*"):
        args = tuple(sorted(args, key=lambda a: (isinstance(a, Const), isinstance(a, Sym), repr(a))))
        if e.op == "+" and isinstance(args[1], Const) and args[1].value == 0:
            return args[0]
    return Apply(op=e.op, args=args, dtype=e.dtype)
