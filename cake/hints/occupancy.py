"""H955: CTAs that an SM holds at one time, and what keeps another one out.

From the resources of the compiled kernel: threads, registers (each of the four parts of an SM gives a quarter of them to its
warps, in units of 256) and shared memory (CUDA C++ Programming Guide, "Occupancy Calculator"; compared with what Nsight
Compute says of kernels on an H200). How many CTAs are best is not said here; what is said is when one more fails by little.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cake.codegen.report import Report
from cake.diagnostics import Diagnostic
from cake.ir import expanded as x
from cake.ir.targets import TARGETS, Target

WARP_UNIT, SHARED_UNIT, PARTS = 256, 128, 4
RESERVED = 1024
"""Bytes of shared memory that each resident CTA costs the system."""

REGISTERS_SHORT = 8
SHARED_SHORT = 0.05
"""A CTA more fails by little if so many registers a thread, or this part of its shared memory, are too much."""


@dataclass(frozen=True)
class Occupancy:
    """``ctas`` an SM and, for each resource, how many it would admit by itself."""

    ctas: int
    warps: int
    most_warps: int
    by: dict[str, int]

    @property
    def text(self) -> str:
        """In words: ``2 CTAs an SM, 16 of 64 warps, limited by registers``."""
        limits = [name for name, n in self.by.items() if n == self.ctas]
        return f"{_ctas(self.ctas)} an SM, {self.warps} of {self.most_warps} warps, limited by {' and '.join(limits)}"


def occupancy(kernel: x.Kernel, report: Report) -> Occupancy:
    """How many CTAs of a compiled kernel an SM of its target holds."""
    target = TARGETS[kernel.target]
    warps = -(-kernel.threads // 32)
    by = {
        "registers": _by_registers(target, report.registers, warps),
        "shared memory": _by_shared(target, report.dynamic_shared_bytes + report.static_shared_bytes),
        "threads": target.threads_per_sm // (32 * warps),
        "the number of CTAs": target.ctas_per_sm,
    }
    ctas = min(by.values())
    return Occupancy(ctas, ctas * warps, target.threads_per_sm // 32, by)


def _by_registers(target: Target, registers: int, warps: int) -> int:
    unit = max(WARP_UNIT, -(-registers * 32 // WARP_UNIT) * WARP_UNIT)
    return target.registers_per_sm // PARTS // unit * PARTS // warps


def _by_shared(target: Target, size: int) -> int:
    return target.shared_per_sm // (-(-(size + RESERVED) // SHARED_UNIT) * SHARED_UNIT)


def occupancy_hints(kernel: x.Kernel, report: Report) -> list[Diagnostic]:
    """Where one more CTA fails by little, in one resource only. Registers that roles have budgets for are as they are on
    purpose."""
    now = occupancy(kernel, report)
    tight = [name for name, n in now.by.items() if n == now.ctas]
    size = report.dynamic_shared_bytes + report.static_shared_bytes
    if tight == ["registers"] and kernel.launch_registers is None:
        fits = _largest(
            kernel, report, now.ctas, range(report.registers - 1, report.registers - 1 - REGISTERS_SHORT, -1), ()
        )
        said = f"{{}} registers a thread instead of {report.registers}"
        help = "`registers {}` on every role makes ptxas keep to that; smaller tiles need less"
    elif tight == ["shared memory"]:
        least = int(size * (1 - SHARED_SHORT))
        fits = _largest(kernel, report, now.ctas, (), range(size // SHARED_UNIT * SHARED_UNIT, least - 1, -SHARED_UNIT))
        said = f"{{:,}} bytes of shared memory instead of {size:,}"
        help = "fewer stages, or smaller tiles"
    else:
        return []
    if fits is None:
        return []
    amount, ctas = fits
    return [
        Diagnostic(
            code="H955",
            severity="hint",
            message=f"an SM holds {_ctas(now.ctas)} of {kernel.name}; it would hold {ctas} with {said.format(amount)}",
            span=kernel.span,
            facts=(now.text,),
            help=help.format(amount),
        )
    ]


def _largest(
    kernel: x.Kernel, report: Report, ctas: int, registers: Sequence[int], shared: Sequence[int]
) -> tuple[int, int] | None:
    """The first of some register counts or sizes of shared memory with which more CTAs fit, and how many."""
    other = [report.model_copy(update={"registers": n}) for n in registers]
    other += [report.model_copy(update={"dynamic_shared_bytes": n, "static_shared_bytes": 0}) for n in shared]
    for amount, changed in zip((*registers, *shared), other, strict=True):
        found = occupancy(kernel, changed).ctas
        if found > ctas:
            return amount, found
    return None


def _ctas(n: int) -> str:
    return f"{n} CTA{'' if n == 1 else 's'}"
