"""H956: register tiles that are held at one time, against the budget of their role, and what ptxas made of them.

Prediction: where threads synchronise, where a wgmma is issued or a tile is reduced, and at the head of a loop, the tiles whose
values are needed later are in registers as a whole. (Between such points a tile may never exist as one: it is computed and
stored piece by piece.) Addresses, counters and temporaries come on top, so tiles that fill the budget alone are bound to
spill; whether others do is for ptxas to say.
"""

from __future__ import annotations

from dataclasses import dataclass

from cake.codegen.liveness import Liveness
from cake.codegen.report import Report
from cake.codegen.scoping import statements
from cake.codegen.tiles import Storage
from cake.diagnostics import Diagnostic, Label, Span
from cake.ir import expanded as x
from cake.ir.targets import TARGETS

STEP = 8
"""Registers are given to threads in steps of so many (CUDA C++ Programming Guide, register allocation unit of a warp: 256)."""


@dataclass(frozen=True)
class Pressure:
    """A role where it holds most. ``tiles``: registers a thread of each tile; ``budget``: registers a thread may have."""

    role: str
    tiles: dict[str, int]
    budget: int
    span: Span | None

    @property
    def held(self) -> int:
        """Registers a thread of all tiles together."""
        return sum(self.tiles.values())

    @property
    def text(self) -> str:
        """In words: ``math 128 of 232 (acc)``."""
        names = ", ".join(name for name, _ in self.parts[:4])
        return f"{self.role} {self.held} of {self.budget}" + (f" ({names})" if names else "")

    @property
    def parts(self) -> list[tuple[str, int]]:
        """What holds how much, the most first; tiles that the compiler has named are temporaries."""
        sizes: dict[str, int] = {}
        for name, n in self.tiles.items():
            shown = "temporaries" if name.rpartition(".")[2].isdigit() else name
            sizes[shown] = sizes.get(shown, 0) + n
        return sorted(sizes.items(), key=lambda item: (-item[1], item[0]))


class _Points(Liveness):
    """Tiles needed wherever whole tiles are: at synchronisation, at an issue of wgmma, at a reduction and at the head of a loop."""

    def asked(self, node: x.Node) -> bool:
        """True at these points."""
        if isinstance(node, x.Op):
            return node.op in ("wgmma", "reduce", "argreduce")
        return isinstance(node, x.For | x.GroupWait | x.Wait | x.Named | x.SyncWarp)


def pressure(kernel: x.Kernel) -> list[Pressure]:
    """Every role where it holds most."""
    return [_peak(kernel, role) for role in kernel.roles]


def budget(kernel: x.Kernel, role: x.Role) -> int:
    """Registers a thread of ``role`` may have: declared, else what the launch allows."""
    target = TARGETS[kernel.target]
    if role.registers is not None:
        return role.registers
    if kernel.launch_registers is not None:
        return kernel.launch_registers
    return min(target.registers_per_thread, target.registers_per_sm // kernel.threads // STEP * STEP)


def _peak(kernel: x.Kernel, role: x.Role) -> Pressure:
    sizes = {name: _registers(Storage(name, tile, role.threads)) for name, tile in role.tiles.items()}
    points = _Points(role.body)
    best, most = role.span, frozenset[str]()
    for _, node in statements(role.body):
        live = points.needed(node) & sizes.keys()
        if isinstance(node, x.Op) and node.op == "wgmma":
            live |= {node.reg("d").name}
        if sum(sizes[n] for n in live) > sum(sizes[n] for n in most):
            best, most = node.span, live
    return Pressure(role.name, {n: sizes[n] for n in most}, budget(kernel, role), best)


def _registers(storage: Storage) -> int:
    """Registers a thread: one a word, two for 64 bits."""
    return storage.words * (2 if storage.type.dtype == "i64" else 1)


# ---- hints ----------------------------------------------------------------------------------------------------------


def predicted_hints(kernel: x.Kernel) -> list[Diagnostic]:
    """Roles whose tiles alone do not fit."""
    return [
        Diagnostic(
            code="H956",
            severity="hint",
            message=f"the tiles of `{p.role}` take {p.held} registers a thread here, and it may have {p.budget}: it will spill",
            span=p.span,
            facts=_facts(p),
            help=_HELP,
        )
        for p in pressure(kernel)
        if p.held >= p.budget
    ]


def spill_hints(kernel: x.Kernel, report: Report) -> list[Diagnostic]:
    """What ptxas put into local memory, beside what was held."""
    if not report.spills:
        return []
    worst = max(pressure(kernel), key=lambda p: p.held / p.budget)
    parts = [f"{report.registers} registers a thread"]
    if report.spill_store_bytes or report.spill_load_bytes:
        parts.append(f"{report.spill_store_bytes} bytes stored and {report.spill_load_bytes} bytes loaded by spills")
    if report.stack_bytes:
        parts.append(f"{report.stack_bytes} bytes of stack a thread")
    return [
        Diagnostic(
            code="H956",
            severity="hint",
            message=f"ptxas keeps registers of {kernel.name} in local memory",
            span=kernel.span,
            labels=(Label(span=worst.span, text=f"here tiles hold most, {worst.held} of {worst.budget} registers"),),
            facts=(f"ptxas: {', '.join(parts)}", *_facts(worst)),
            help=_HELP,
        )
    ]


def _facts(p: Pressure) -> tuple[str, ...]:
    return (f"`{p.role}` holds {', '.join(f'{name} {n}' for name, n in p.parts) or 'no tile'}",)


_HELP = "take smaller tiles, spread them over more warps, let a tile end before the next begins, or raise `registers` of the role"
