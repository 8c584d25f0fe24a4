"""wgmma: operands read through the async proxy, registers in flight, groups of a warpgroup (PTX ISA 9.7.15)."""

from __future__ import annotations

import re

from cake.ptx.interpret.handlers import Handler
from cake.ptx.interpret.machine import Machine
from cake.ptx.interpret.outcome import Undecided
from cake.ptx.interpret.program import Operand, Step
from cake.ptx.interpret.regions import operand
from cake.ptx.interpret.shadow import Access
from cake.ptx.interpret.synchronise import met
from cake.ptx.interpret.warps import Fiber, Warp, Watched

_SHAPE = re.compile(r"m64n(\d+)k(\d+)$")
_BYTES = {"bf16": 2, "f16": 2, "tf32": 4, "e4m3": 1, "e5m2": 1, "s8": 1, "u8": 1}


def _group(m: Machine, warp: Warp) -> tuple[list[Warp], int]:
    """The warps of a warpgroup, and the component of its groups."""
    first = warp.number - warp.number % 4
    warps = m.ctas[warp.cta].warps[first : first + 4]
    key = (warp.cta, first)
    if key not in m.warpgroups:
        m.warpgroups[key] = m.component()
    return warps, m.warpgroups[key]


def _fence(m: Machine, fiber: Fiber, s: Step, mask: int) -> None:
    """wgmma.fence: registers written before are seen by the wgmma after it (9.7.15.6.1)."""
    met(fiber)
    fiber.warp.fences += 1
    fiber.warp.loose = frozenset()


def _multiply(m: Machine, fiber: Fiber, s: Step, mask: int) -> None:
    """wgmma.mma_async: every warp of the warpgroup executes it; noted for each with what it knows."""
    met(fiber)
    warp = fiber.warp
    warps, component = _group(m, warp)
    if len(warps) < 4:
        m.report("divergence", "a wgmma outside of a whole warpgroup")
    if not warp.fences:
        m.report("wgmma fence", "the first wgmma of a warp has no wgmma.fence before it")
    loose = sorted(s.touches & warp.loose)
    if loose:
        m.report("wgmma fence", f"{loose[0]} was touched since the last wgmma.fence")
    for name in s.touches:
        warp.busy[name] = warp.groups
    warp.products += 1
    shape = next((f for p in s.parts if (f := _SHAPE.match(p))), None)
    size = _BYTES.get(s.parts[-1])
    if shape is None or size is None:
        raise Undecided(f"the instruction {'.'.join(s.parts)}")
    columns, k_bytes = int(shape[1]), int(shape[2]) * size
    left, right = s.args[1], s.args[2]
    flags = [m.value(fiber, a, mask) for a in s.args[6:] if isinstance(a, int)]
    shared = not isinstance(left, tuple)
    transposed = [bool(f) for f in flags] + [False, False]
    operands: list[tuple[Operand, int, bool]] = [(left, 64, transposed[0])] if shared else []
    operands.append((right, columns, transposed[1] if shared else transposed[0]))
    cta = m.ctas[warp.cta]
    line, place = m.place(s)
    key = (component, warp.groups)
    access = m.products.get(key)
    if access is None:
        number = warps[0].number
        text = f"the wgmma by warps {number} to {number + 3} of CTA {warp.cta}"
        who = (warp.cta, number, "wgmma", warp.groups)
        access = Access(component, warp.groups + 1, text, who, False, proxy=True, line=line, place=place)
        m.products[key] = access
        cta.flights[access] = None
    knows = m.know(fiber.strands())
    for register, rows, across in operands:
        assert isinstance(register, int)
        descriptor = m.one(fiber, register, mask, "a matrix descriptor")
        region = operand(descriptor, rows, k_bytes, size, across, cta.memory.piece)
        found = cta.memory.read(region, access, knows, m.report)
        m.note(fiber.strands()[-1], s, found)


def _commit(m: Machine, fiber: Fiber, s: Step, mask: int) -> None:
    met(fiber)
    warp = fiber.warp
    warp.groups += 1
    for other in m.ctas[warp.cta].warps[warp.number - warp.number % 4 :][:4]:
        other.changed()


def _wait(m: Machine, fiber: Fiber, s: Step, mask: int) -> Watched | None:
    """wgmma.wait_group: a group ends only if all four warps have issued it (9.7.15.6.2)."""
    (keep,) = s.args
    assert isinstance(keep, int)
    warp = fiber.warp
    upto = warp.groups - m.one(fiber, keep, mask, "a number of groups")
    warps, component = _group(m, warp)
    if any(w.groups < upto for w in warps):
        return warp
    met(fiber)
    for strand in fiber.strands():
        strand.knowledge.finished(component, upto)
    warp.busy = {r: g for r, g in warp.busy.items() if g >= upto}
    return None


def _mma(m: Machine, fiber: Fiber, s: Step, mask: int) -> None:
    """mma.sync: registers only."""
    met(fiber)


HANDLERS: dict[str, Handler] = {
    "wgmma.fence": Handler(_fence, sync=False, collective=True),
    "wgmma.mma_async": Handler(_multiply, sync=False, collective=True, ignored=(0, 3, 4, 5), vectors=True),
    "wgmma.commit_group": Handler(_commit, sync=False, collective=True),
    "wgmma.wait_group": Handler(_wait, collective=True),
    "mma.sync": Handler(_mma, sync=False, collective=True, ignored=(0, 1, 2, 3)),
}
