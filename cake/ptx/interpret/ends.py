"""How threads and CTAs end, and what it means if nobody can go on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cake.ptx.interpret.barriers import MBarrier, Named
from cake.ptx.interpret.clocks import raise_to
from cake.ptx.interpret.cta import Cta
from cake.ptx.interpret.program import Step
from cake.ptx.interpret.warps import ALL, Fiber

if TYPE_CHECKING:
    from cake.ptx.interpret.machine import Machine


def leave(m: Machine, fiber: Fiber, s: Step) -> bool:
    """exit or ret; True if lanes that do not exit go on."""
    m.now = s
    warp, cta = fiber.warp, m.ctas[fiber.warp.cta]
    mask = fiber.mask if s.guard is None else m.true(fiber, s)
    if not mask:
        fiber.pc = s.after
        return True
    rest = fiber.mask & ~mask
    if rest:
        warp.fibers.remove(warp.split(fiber, mask, s.at))
    else:
        warp.fibers.remove(fiber)
    warp.exited |= mask
    for strand in fiber.strands(mask):
        raise_to(cta.end, strand.settle().happened)
        if strand.cluster_arrived == cta.cluster.generation:  # it no longer counts, and is no longer waited for
            cta.cluster.arrived -= (strand.mask & mask).bit_count()
    settle_cluster(m, cta)
    if all(w.exited == ALL for w in cta.warps):
        cta.done = True
        _quiet(m, cta)
    fiber.pc = s.after
    return bool(rest)


def settle_cluster(m: Machine, cta: Cta) -> None:
    """Complete the cluster barrier if all threads that have not exited have come (9.7.13.4)."""
    members = [c for c in m.ctas if c.cluster is cta.cluster]
    cta.cluster.check(sum(w.alive.bit_count() for c in members for w in c.warps))


def _quiet(m: Machine, cta: Cta) -> None:
    """Nothing may touch the shared memory of a CTA that ends, and its barriers are owed nothing."""
    for access in cta.flights:
        if access.upto is None or cta.end[access.component] < access.upto:
            text = f"{access.text} may still touch the shared memory of CTA {cta.number} as it ends"
            m.report("in flight", text, at=(access.line, access.place))
    for component, epoch, text in cta.touches:
        if cta.end[component] < epoch:
            m.report("peer", f"CTA {cta.number} may end before {text}")
    for barrier in cta.barriers.values():
        if barrier.bytes and not barrier.landing:
            m.report("bytes", f"at the end {barrier.state()}")
    for g in range(0, len(cta.warps) - 3, 4):
        if len({(w.groups, w.products) for w in cta.warps[g : g + 4]}) > 1:
            m.report("divergence", f"warps {g} to {g + 3} issue or commit different numbers of wgmmas")


def stuck(m: Machine) -> None:
    """Report a deadlock: who stands where."""
    lines = []
    for f in (f for cta in m.ctas for warp in cta.warps for f in warp.fibers):
        s = m.program.steps[f.pc]
        line, place = m.place(s)
        text = s.instruction.opcode if s.instruction is not None else "the end"
        some = "" if f.mask == ALL else f" ({f.mask.bit_count()} lanes)"
        lines.append(f"warp {f.warp.number} of CTA {f.warp.cta}{some} at {text}, {place or f'line {line}'}{_on(f)}")
    shown = "; ".join(lines[:6]) + (f"; and {len(lines) - 6} more" if len(lines) > 6 else "")
    m.report("deadlock", f"nobody can go on: {shown}")


def _on(f: Fiber) -> str:
    if f.gathers is not None:
        return ", which needs the other lanes of its warp"
    on = f.waits[0] if f.waits else None
    return f", where {on.state()}" if isinstance(on, MBarrier | Named) else ""
