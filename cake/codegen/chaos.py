"""Chaos builds: the same kernel at other times, for finding on hardware what a verdict says about all schedules.

Before and after every statement that synchronises (``sides``) stands a pseudo-random delay, and a CTA begins by filling
its shared memory with NaN. The seed is the last launch parameter, so one compilation serves all seeds. Neither is part of
the protocol: the translation check (P119) compares the compiled code with ``poisoned(kernel)``, where the only additions
are the fence and the barrier that put the NaN before everything else.

Lanes of a warp that execute a statement together come together again after their delays, so delays move warps and
elected lanes against each other, not lanes in convergent code.
"""

from __future__ import annotations

from cake.codegen.context import RoleContext
from cake.codegen.parameters import SEED
from cake.ir import expanded as x
from cake.ir.ops import OPS

SEEDS = range(1 << 32)
"""What a seed may be."""

REASON = "chaos: shared memory starts as NaN"


def sides(node: x.Node) -> tuple[bool, bool]:
    """Whether a delay stands before a statement and after it: where it synchronises, and where one thread or an asynchronous
    engine moves data for it. From a wgmma's fence to its commit there is none, or ptxas serialises the wgmma (C7519)."""
    if isinstance(node, x.Op):
        row = OPS[node.op]
        here = row.executor == "one" or bool(set(row.completes) - {"wgmma"})
        return here, here
    if isinstance(node, x.Fence) and node.what == "wgmma":
        return True, False
    if isinstance(node, x.Commit) and node.queue == "wgmma":
        return False, True
    here = isinstance(node, _SYNCHRONISES)
    return here, here


_SYNCHRONISES = (
    *(x.Init, x.Wait, x.Arrive, x.Named, x.Cluster, x.SyncWarp, x.Fence, x.Commit, x.GroupWait),
    x.SetMaxNReg,
)


def delay(role: RoleContext) -> None:
    """Write a delay. Loop counters vary it between iterations; each delay of the unit has a number of its own."""
    unit = role.unit
    unit.delays += 1
    step = "0"
    for name in role.loops:
        step = name if step == "0" else f"({step}) * 61 + {name}"
    role.line(f"chaos_delay(p.{unit.names.get('sym', SEED)}, {unit.delays * 0x9E3779B1 & 0xFFFFFFFF:#x}, {step});")


def poisoned(kernel: x.Kernel) -> x.Kernel:
    """``kernel`` with what orders the NaN before its first statement: a fence by every thread, since copies write through
    the async proxy, and a barrier of the CTA."""
    whole = next((b for b in kernel.named if b.threads == kernel.threads and b.id == 0), None)
    barrier = whole or x.NamedBarrier(name="chaos", id=0, threads=kernel.threads)
    first: tuple[x.Stmt, ...] = (
        x.Fence(what="async_shared", reason=REASON),
        x.Named(barrier=barrier.name, reason=REASON),
    )
    named = kernel.named if whole else (*kernel.named, barrier)
    return kernel.model_copy(update={"named": named, "entry": (*first, *kernel.entry)})
