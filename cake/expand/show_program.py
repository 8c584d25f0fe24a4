"""The statements of an expanded program as lines of text.

A line reads ``executor: what``; scalars, loops and conditions, which every thread evaluates alike, have no executor. A
statement that was written has no reason, only its source line; a derived one says which rule put it there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cake.diagnostics import Span
from cake.facts.show import show
from cake.ir import expanded as x
from cake.ir.dtypes import DTYPES
from cake.ir.expr import Const, Expr
from cake.ir.ops import OPS

WGMMA_K_BYTES = 32
"""The depth of one wgmma instruction, in bytes of an operand's row."""


WHY = {
    "acquire": "acquire: the last readers of the slot have released it",
    "announce": "announce: the bytes that the stage's copies will write",
    "handle": "the handle keeps the position",
    "advance": "the ring moves on",
    "release": "release: one arrival a warp, after its lanes",
    "wgmma": "each wgmma is fenced and is a group of its own",
    "tma.store": "each store is a group of its own",
    "store ring gwait": "store ring: the engine has read the slot",
    "store ring fence": "store ring: what was written, before the engine reads it",
    "store ring named": "store ring: for the whole instance",
    "cluster end": "no CTA leaves while peers may still signal it",
    "registers": "the role's register budget",
    "prologue": "barriers exist before anyone uses them",
    "tiles": "position to tile",
    "define": "definition",
    "panel": "the next panel of the same copy",
    "broadcast": "operand in a register tile of its own",
    "mma": "operand fragments",
}
"""Short names of rules, spelled out. Other reasons are shown as they are."""


@dataclass(frozen=True)
class Lines:
    """One line: its text, its depth below the body, why it is there (empty: written) and where it came from."""

    text: str
    depth: int
    reason: str
    span: Span | None


def walk(body: Sequence[x.Stmt]) -> Iterator[x.Stmt]:
    """Every statement of a body, blocks after their heads."""
    for s in body:
        yield s
        if isinstance(s, x.For):
            yield from walk(s.body)
        elif isinstance(s, x.If):
            yield from walk(s.then)
            yield from walk(s.orelse)


def statements(kernel: x.Kernel, role: x.Role | None, body: Sequence[x.Stmt], depth: int = 0) -> Iterator[Lines]:
    """The lines of a body."""
    for i, s in enumerate(body):
        reason = _why(s, body[i + 1 :])
        if isinstance(s, x.For):
            yield Lines(_for(s), depth, reason or _loop(s), s.span)
            yield from statements(kernel, role, s.body, depth + 1)
        elif isinstance(s, x.If):
            yield Lines(f"if {show(s.cond)}:", depth, reason, s.span)
            yield from statements(kernel, role, s.then, depth + 1)
            if s.orelse:
                yield Lines("else:", depth, "", None)
                yield from statements(kernel, role, s.orelse, depth + 1)
        elif isinstance(s, x.Let):
            yield Lines(f"{s.name} = {show(s.value)}", depth, reason, s.span)
        elif isinstance(s, x.Cursor):
            yield Lines(_cursor(s), depth, reason, s.span)
        else:
            yield Lines(f"{s.executor}: {text(kernel, role, s)}", depth, reason, s.span)


def _for(s: x.For) -> str:
    bounds = [show(s.lo), show(s.hi)]
    if isinstance(s.step, Const) and s.step.value == 1:
        bounds = bounds[1:] if isinstance(s.lo, Const) and s.lo.value == 0 else bounds
    else:
        bounds.append(show(s.step))
    return f"for {s.var} in range({', '.join(bounds)}):"


def _loop(s: x.For) -> str:
    if s.role == "tiles":
        return "this CTA's tiles"
    return f"piece {s.piece} of the split loop" if s.piece is not None else ""


def _why(s: x.Stmt, after: Sequence[x.Stmt]) -> str:
    """The reason in words; an announcement says which copies its bytes are, where they follow in the same block."""
    if s.reason == "written":
        return ""
    if isinstance(s, x.Arrive) and s.form != "arrive":
        sizes = []
        for other in after:
            if isinstance(other, x.Op) and isinstance(other.completion, x.ByBarrier):
                if (other.completion.barrier, other.completion.slot) == (s.barrier, s.slot):
                    sizes.append(other.completion.bytes)
            elif isinstance(other, x.Cursor) and other.cursor == s.slot.cursor:
                break
        if len(sizes) > 1 and sum(sizes) == s.bytes:
            return f"{s.reason}: {_sum(sizes)}"
    return WHY.get(f"{s.reason} {s.kind}") or WHY.get(s.reason, s.reason)


def _sum(sizes: list[int]) -> str:
    if len(set(sizes)) == 1:
        return f"{len(sizes)} x {sizes[0]}"
    return " + ".join(map(str, sizes)) if len(sizes) < 7 else f"{len(sizes)} copies"


def _cursor(s: x.Cursor) -> str:
    if s.form == "advance":
        return f"{s.cursor} += {s.by if s.count is None else show(s.count)}"
    if s.form == "set":
        return f"{s.cursor} = {s.by}"
    return f"{s.cursor} = {s.source}" + (f" - {s.back}" if s.back else "")


# ---- synchronisation ------------------------------------------------------------------------------------------------


def text(kernel: x.Kernel, role: x.Role | None, s: x.Stmt) -> str:
    match s:
        case x.Init():
            found = next((b for b in kernel.barriers if b.name == s.barrier), None)
            slots = f"[{found.slots}]" if found and found.slots > 1 else ""
            return f"init {s.barrier}{slots}" + (f" count {found.count}" if found else "")
        case x.Wait():
            phase = "n" if s.ahead == 0 else f"n {'+' if s.ahead > 0 else '-'} {abs(s.ahead)}"
            return f"wait {s.barrier}{_slot(s.slot)} phase {phase}{_order(s.sem, 'acquire', s.scope)}"
        case x.Arrive():
            return _arrive(s)
        case x.Named():
            return _named(kernel, s)
        case x.Cluster():
            return f"cluster.{s.form}" + (" relaxed" if s.sem == "relaxed" else "")
        case x.SyncWarp():
            return "syncwarp"
        case x.Fence():
            return f"fence.{s.what}" + (f" {s.scope}" if s.what == "thread" else "")
        case x.Commit():
            return f"commit {s.queue}"
        case x.GroupWait():
            ready = f", then {', '.join(s.ready)} readable" if s.ready else ""
            return f"gwait {s.queue}{'.read' if s.read else ''} keep {s.keep}{ready}"
        case x.SetMaxNReg():
            return f"setmaxnreg.{s.form} {s.count}"
        case x.Exit():
            return "exit"
        case x.Op():
            return _op(kernel, s)
    return s.kind


def _slot(slot: x.Slot) -> str:
    if slot.cursor is None:
        return f"[stage {slot.back}]" if slot.back else ""
    return f"[slot of {slot.cursor}{f' - {slot.back}' if slot.back else ''}]"


def _order(sem: str, usual: str, scope: str) -> str:
    """Semantics and scope where they are not the usual ones."""
    return (f" {sem}" if sem != usual else "") + (f".{scope}" if scope != "cta" else "")


def _arrive(s: x.Arrive) -> str:
    text = f"{'expect' if s.form == 'expect' else 'arrive'} {s.barrier}{_slot(s.slot)}"
    if s.weight != 1:
        text += f" x {s.weight}"
    if s.form == "arrive_expect":
        text += f" expect {s.bytes} bytes"
    elif s.form == "expect":
        text += f" {s.bytes} bytes, no arrival"
    if s.peers is not None:
        text += f" at ranks {', '.join(map(str, s.peers))}"
    return text + _order(s.sem, "release", s.scope)


def _named(kernel: x.Kernel, s: x.Named) -> str:
    found = next((b for b in kernel.named if b.name == s.barrier), None)
    text = f"named.{s.form} {s.barrier}"
    if found is None:
        return text
    number = f"{found.id}"
    if s.index is not None:
        number += f" + {show(s.index)}"
    elif found.per_instance and found.size > 1:
        number += " + w"
    return f"{text} id {number}, {found.threads} threads"


# ---- operations -----------------------------------------------------------------------------------------------------


def _op(kernel: x.Kernel, s: x.Op) -> str:
    operands = {name: operand(kernel, value) for name, value in s.operands.items()}
    tail = ""
    for name in ("where", "other", "use_acc"):
        if name in operands:
            tail += f" {name} {operands.pop(name)}"
    shown = {n: v for n, v in s.attrs.items() if n not in ("map", "function", "axis", "bytes")}
    tail += "".join(f", {name} {value}" for name, value in shown.items())
    tail += _completion(s)
    dst, value, src = operands.get("dst"), operands.get("value"), operands.get("src")
    if s.op == "wgmma" and {"d", "a", "b"} <= set(operands):
        note = _instructions(kernel, s)
        return f"issue {note}wgmma {operands['d']} {_plus(s)} {operands['a']} @ {operands['b']}{tail}"
    if s.op == "mma" and {"d", "a", "b"} <= set(operands):
        return f"mma {operands['d']} += {operands['a']} @ {operands['b']}.T{tail}"
    if s.op == "assign" and dst and value:
        return f"{dst} = {value}"
    if s.op in ("load", "load_scalar", "ldmatrix") and dst and src:
        return f"{dst} = {s.op} {src}{tail}"
    if s.op in ("reduce", "argreduce") and dst and value:
        index = f", {operands['index']}" if "index" in operands else ""
        axis = f", axis={s.attrs['axis']}" if "axis" in s.attrs else ""
        return f"{dst}{index} = {s.attrs.get('function', s.op)}({value}{axis}){tail}"
    issue = "issue " if s.op in OPS and OPS[s.op].completes else ""
    function = f".{s.attrs['function']}" if "function" in s.attrs else ""
    source = src or value
    if dst and source and len(operands) == 2:
        return f"{issue}{s.op}{function} {dst} <- {source}{tail}"
    return f"{issue}{s.op}{function} " + ", ".join(f"{n}={v}" for n, v in operands.items()) + tail


def _plus(s: x.Op) -> str:
    """``use_acc`` false always: overwrite; absent: accumulate; otherwise the line says when."""
    use = s.operands.get("use_acc")
    return "=" if isinstance(use, Const) and not use.value else "+="


def _completion(s: x.Op) -> str:
    if isinstance(s.completion, x.ByBarrier):
        c = s.completion
        return f" ({c.bytes} bytes -> {c.barrier}{_slot(c.slot)})"
    return ""


def _instructions(kernel: x.Kernel, s: x.Op) -> str:
    """``4 x m64n256k16 ``: how many instructions one statement is."""
    a = s.operands["a"]
    if s.type is None or not isinstance(a, x.Ref):
        return ""
    buffer = next((b for b in kernel.buffers if b.name == a.base), None)
    if buffer is None:
        return ""
    extents = [sub.size for sub in a.subs if isinstance(sub, x.Range)] if a.subs else list(buffer.shape)
    if len(extents) != 2:
        return ""
    depth = extents[0] if a.transposed else extents[1]
    step = WGMMA_K_BYTES // DTYPES[buffer.dtype].bytes
    count = s.type.rows // 64 * (depth // step)
    return f"{count} x m64n{s.type.cols}k{step} "


def operand(kernel: x.Kernel, value: x.Ref | Expr) -> str:
    """An operand as the author would write it; a box that is a whole axis is ``:``."""
    if not isinstance(value, x.Ref):
        return show(value)
    shape: Sequence[Expr | int] = ()
    buffer = next((b for b in kernel.buffers if b.name == value.base), None)
    if buffer is not None:
        shape = buffer.shape
    elif (tensor := kernel.tensor(value.base)) is not None:
        shape = tensor.shape
    subs = [_sub(sub, shape[i] if i < len(shape) else None) for i, sub in enumerate(value.subs)]
    text = value.base
    if value.slot is not None and (value.slot.cursor is not None or value.slot.back):
        text += _slot(value.slot)
    if any(sub != ":" for sub in subs):
        text += f"[{', '.join(subs)}]"
    if value.transposed:
        text += ".T"
    return text + (f" of rank {show(value.peer)}" if value.peer is not None else "")


def _sub(sub: x.Sub, extent: Expr | int | None) -> str:
    if isinstance(sub, x.Point):
        return show(sub.at)
    if isinstance(sub, x.Elem):
        return show(sub.index)
    whole = extent.value if isinstance(extent, Const) else extent
    start = sub.start
    if isinstance(start, Const):
        if start.value == 0 and whole == sub.size:
            return ":"
        return f"{start.value} : {int(start.value) + sub.size}"
    return f"{show(start)} : +{sub.size}"
