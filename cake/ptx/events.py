"""The letters: which PTX instructions synchronise or move data asynchronously, and what of them is compared.

A letter is a tuple: a name, fixed attributes, then operand values (None: not known). ``describe`` writes it for people.
Sections are of the PTX ISA 9.0.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from cake.ptx.flow import Event, Operand
from cake.ptx.reader import Instruction
from cake.ptx.values import Peer

Split = Callable[[str], list[str]]
Resolve = Callable[[str], Operand]

FAMILIES = frozenset(
    (
        *("mbarrier", "barrier", "bar", "fence", "membar", "cp", "wgmma", "setmaxnreg", "ldmatrix", "stmatrix", "mma"),
        *("red", "atom", "griddepcontrol", "tcgen05", "multimem", "clusterlaunchcontrol", "discard", "call"),
    )
)
"""First words of the opcodes that are letters. What is not understood becomes a letter of its own, which nothing
expects."""

_SCOPE = re.compile(r"\.(acquire|release|relaxed)\.(cta|cluster|gpu|sys)\b")
_MMA = re.compile(r"\.(m\d+n\d+k\d+)\.f32\.(\w+)\.")


def event_of(i: Instruction, split: Split, resolve: Resolve) -> Event | None:
    """The letter of an instruction of ``FAMILIES``."""
    op = i.opcode
    base = op.split(".", 1)[0]
    if base == "wgmma":
        return _wgmma(i, split, resolve)
    if base == "mma":
        shape = re.search(r"\.(m\d+n\d+k\d+)\.", op)
        types = [p for p in op.split(".") if p in ("bf16", "f16", "tf32", "e4m3", "e5m2")]
        return Event(("mma", shape[1] if shape else "", types[0] if types else ""), where=i)
    if base in ("ldmatrix", "stmatrix"):
        count = next((p for p in op.split(".") if p in ("x1", "x2", "x4")), "x1")
        return Event((base, count, "trans" in op.split(".")), where=i)
    ops = split(i.operands)
    args = _Args(ops, resolve)
    if base == "mbarrier":
        return _mbarrier(i, args)
    if base in ("barrier", "bar"):
        return _barrier(i, args)
    if base in ("fence", "membar"):
        return Event(("fence", *_fence(op)), where=i)
    if base == "cp":
        return _copy(i, ops, args)
    if base == "setmaxnreg":
        return Event(("setmaxnreg", "inc" if ".inc." in op else "dec"), args(0), where=i)
    if base == "atom" and op == "atom.relaxed.gpu.global.inc.u32":
        return Event(("draw",), where=i)
    if base == "red":
        return Event(("red", "shared" if "shared" in op else "global"), where=i)
    if base in ("ld", "st"):
        found = _SCOPE.search(op)
        return Event(("flag", "load" if base == "ld" else "store", *(found.groups() if found else ())), where=i)
    return Event(("instruction", op), where=i)


class _Args:
    """Operands by number."""

    def __init__(self, ops: list[str], resolve: Resolve) -> None:
        self.ops, self.resolve = ops, resolve

    def __call__(self, *numbers: int, default: int | None = None) -> tuple[Operand, ...]:
        out: list[Operand] = []
        for n in numbers:
            if n >= len(self.ops):
                assert default is not None, f"operand {n} is missing"
                out.append(default)
            else:
                out.append(self.resolve(self.ops[n]))
        return tuple(out)

    def vector(self, n: int) -> tuple[Operand, ...]:
        """The address in ``[a, {...}]``."""
        return (self.resolve(self.ops[n][1:].split(",", 1)[0].rstrip("]")),)

    def coordinates(self, n: int) -> tuple[Operand, ...]:
        """The vector in ``[a, {...}]``."""
        inner = self.ops[n].partition("{")[2].partition("}")[0]
        return tuple(self.resolve(t) for t in inner.split(",")) if inner else ()


def _scope(op: str, default: tuple[str, str]) -> tuple[str, str]:
    found = _SCOPE.search(op)
    return (found[1], found[2]) if found else default


def _mbarrier(i: Instruction, args: _Args) -> Event:
    """9.7.13.15."""
    op = i.opcode
    if op.startswith("mbarrier.init"):
        return Event(("mbarrier.init",), args(0, 1), where=i)
    if op.startswith(("mbarrier.try_wait.parity", "mbarrier.test_wait.parity")):
        return Event(("mbarrier.wait", *_scope(op, ("acquire", "cta"))), args(1, 2), result=args.ops[0], where=i)
    if op.startswith("mbarrier.arrive.expect_tx"):
        return Event(("mbarrier.arrive.expect_tx", *_scope(op, ("release", "cta"))), args(1, 2), where=i)
    if op.startswith(("mbarrier.arrive.", "mbarrier.arrive_drop")) and ".noComplete" not in op and "_drop" not in op:
        return Event(("mbarrier.arrive", *_scope(op, ("release", "cta"))), args(1, 2, default=1), where=i)
    if op.startswith("mbarrier.expect_tx"):
        return Event(("mbarrier.expect_tx",), args(0, 1), where=i)
    return Event(("instruction", op), where=i)


def _barrier(i: Instruction, args: _Args) -> Event:
    """9.7.13.1 barrier, 9.7.13.2 bar.warp.sync, 9.7.13.4 barrier.cluster."""
    parts = i.opcode.split(".")
    if parts[1] == "warp":
        return Event(("warp.sync",), args(0), where=i)
    if parts[1] == "cluster":
        relaxed = "relaxed" if "relaxed" in parts else "ordered"
        return Event(("cluster.arrive", relaxed) if "arrive" in parts else ("cluster.wait",), where=i)
    form = "sync" if "sync" in parts else "arrive" if "arrive" in parts else None
    if form is None:
        return Event(("instruction", i.opcode), where=i)
    return Event((f"barrier.{form}",), args(0, 1, default=0), where=i)


def _fence(op: str) -> tuple[str, ...]:
    """9.7.13.5."""
    if op.startswith("membar"):
        return ("thread", {"cta": "cta", "gl": "gpu", "sys": "sys"}[op.split(".")[1]])
    if op.startswith(("fence.acq_rel", "fence.sc")):
        return ("thread", op.split(".")[2])
    return (op.removeprefix("fence."),)


def _copy(i: Instruction, ops: list[str], args: _Args) -> Event:
    """9.7.9.25 cp.async, 9.7.9.27 cp.async.bulk."""
    op = i.opcode
    parts = op.split(".")
    rank = next((p for p in parts if re.fullmatch(r"\dd", p)), "")
    hint = "hint" if "L2::cache_hint" in op else "no hint"
    if op.startswith("cp.async.bulk.tensor") and "mbarrier::complete_tx::bytes" in op:
        multicast = "multicast" if "multicast::cluster" in op else "own"
        rest = tuple(range(3, len(ops)))
        found = args(0) + args.vector(1) + args(2, *rest)
        return Event(("tma.load", rank, multicast, hint), found, where=i, extra=args.coordinates(1))
    if op.startswith("cp.async.bulk.prefetch.tensor"):
        return Event(("tma.prefetch", rank), args.vector(0), where=i, extra=args.coordinates(0))
    if op.startswith(("cp.async.bulk.tensor", "cp.reduce.async.bulk.tensor")) and "bulk_group" in op:
        kind = next((p for p in parts if p in ("add", "min", "max")), "") if "reduce" in parts else "store"
        found = args.vector(0) + args(*range(1, len(ops)))
        return Event(("tma.store", rank, kind, hint), found, where=i, extra=args.coordinates(0))
    if op.startswith("cp.async.bulk.commit_group"):
        return Event(("bulk.commit",), where=i)
    if op.startswith("cp.async.bulk.wait_group"):
        return Event(("bulk.wait", "read" if "read" in parts else "all"), args(0), where=i)
    if op.startswith("cp.async.commit_group"):
        return Event(("cp.async.commit",), where=i)
    if op.startswith("cp.async.wait_group"):
        return Event(("cp.async.wait",), args(0), where=i)
    if op.startswith("cp.async.mbarrier.arrive.noinc"):
        return Event(("cp.async.arrive",), args(0), where=i)
    if op.startswith("cp.async.c"):
        return Event(("cp.async",), args(2), where=i)
    return Event(("instruction", op), where=i)


def _wgmma(i: Instruction, split: Split, resolve: Resolve) -> Event:
    """9.7.15.5 wgmma.mma_async, 9.7.15.6 and 9.7.15.7."""
    op = i.opcode
    if op.startswith("wgmma.fence"):
        return Event(("fence", "wgmma"), where=i)
    if op.startswith("wgmma.commit_group"):
        return Event(("wgmma.commit",), where=i)
    if op.startswith("wgmma.wait_group"):
        return Event(("wgmma.wait",), (resolve(i.operands),), where=i)
    found = _MMA.search(op)
    if not op.startswith("wgmma.mma_async.sync.aligned") or found is None:
        return Event(("instruction", op), where=i)
    a, b, scale, *flags = split(i.operands[i.operands.index("}") + 1 :].lstrip(" ,"))
    shared = not a.startswith("{")
    args: tuple[Operand, ...] = (resolve(scale), *([resolve(a)] if shared else []), resolve(b))
    return Event(("wgmma", found[1], found[2], "shared" if shared else "registers", *map(int, flags)), args, where=i)


def describe(letter: tuple[Any, ...]) -> str:
    """A letter for people."""
    name, *rest = letter
    shown = [_address(r) if isinstance(r, Peer) else "not known" if r is None else str(r) for r in rest]
    labels = _LABELS.get(name)
    if labels is None or len(labels) > len(rest):
        return " ".join([name, *shown])
    fixed = len(rest) - len(labels)
    named = [
        f"{label} {_hex(value) if label in _HEX else text}"
        for label, text, value in zip(labels, shown[fixed:], rest[fixed:], strict=True)
    ]
    return " ".join([name, *[s for s in shown[:fixed] if s not in ("own", "no hint")]]) + " " + ", ".join(named)


_HEX = ("a", "b")
_LABELS: dict[str, tuple[str, ...]] = {
    "mbarrier.init": ("barrier at", "count"),
    "mbarrier.wait": ("barrier at", "parity"),
    "poll": ("barrier at", "parity"),
    "mbarrier.arrive": ("barrier at", "count"),
    "mbarrier.arrive.expect_tx": ("barrier at", "bytes"),
    "mbarrier.expect_tx": ("barrier at", "bytes"),
    "barrier.sync": ("id", "threads"),
    "barrier.arrive": ("id", "threads"),
    "bulk.wait": ("keep",),
    "wgmma.wait": ("keep",),
    "cp.async.wait": ("keep",),
    "setmaxnreg": ("registers",),
    "warp.sync": ("mask",),
    "cp.async.arrive": ("barrier at",),
}


def _hex(value: Any) -> str:
    return f"{value:#x}" if isinstance(value, int) else str(value)


def _address(peer: Peer) -> str:
    return f"{peer.address} of rank {peer.rank}"
