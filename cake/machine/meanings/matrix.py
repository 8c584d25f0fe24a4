"""Matrix fragments and tensor cores: ldmatrix, stmatrix, mma, wgmma. Products accumulate in f32."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cake.ir import expanded as x
from cake.ir.expr import Reg, walk
from cake.machine import events as ev
from cake.machine.elementwise import Array, to_f32
from cake.machine.faults import fail
from cake.machine.flights import Flight
from cake.machine.instance import Instance
from cake.machine.meanings.base import Meaning, Unit, register_region, set_tile
from cake.machine.meanings.moves import Store
from cake.machine.references import BlockReference, Box
from cake.machine.registers import compile_tile, part
from cake.machine.tape import Step

if TYPE_CHECKING:
    from cake.machine.agents import Runner
    from cake.machine.executor import Executor


BLAS_SINGLE_THREAD = 4 * 65536
"""OpenBLAS gives a product of at most so many multiply-adds to one thread. Larger ones are cut up: waking threads
costs more than it gains here (far more on a busy machine), and a sum must not depend on how many there are."""


def product(a: Array, b: Array) -> Array:
    """a @ b in f32."""
    (rows, inner), cols = a.shape, b.shape[1]
    step = max(8, BLAS_SINGLE_THREAD // (rows * inner) // 8 * 8)
    if cols <= step:
        return np.matmul(a, b)
    result = np.empty((rows, cols), dtype=np.float32)
    for first in range(0, cols, step):
        np.matmul(a, b[:, first : first + step], out=result[:, first : first + step])
    return result


class LdMatrix(Meaning):
    """Load a 16-bit shared tile as frag."""

    def __init__(self, op: x.Op, unit: Unit) -> None:
        super().__init__(op, unit)
        self.dst = op.reg("dst")
        self.src = BlockReference(op.ref("src"), op, unit.kernel)
        self.domain = self.reg_type(self.dst)

    def prepare(self, inst: Instance) -> Box:
        return self.src.box(inst)

    def first(self, inst: Instance, step: Step) -> None:
        set_tile(inst, self.dst, self.src.read(inst, step.data))

    def effects(self, inst: Instance, step: Step, warp: int) -> tuple[ev.Effect, ...]:
        mask = self.holders(self.domain, warp, False)
        region = self.src.region(inst, step.data, mask, (warp, str(self.domain)))
        return (ev.Effect("src", "r", region, "generic"),)


class StMatrix(Store):
    """Store a 16-bit frag tile to shared memory."""

    def __init__(self, op: x.Op, unit: Unit) -> None:
        if op.type is None:
            op = op.model_copy(update={"type": Meaning(op, unit).reg_type(op.reg("value"))})
        super().__init__(op, unit)


class Mma(Meaning):
    """d += a @ b.T, on the tensor core of a warp."""

    def __init__(self, op: x.Op, unit: Unit) -> None:
        super().__init__(op, unit)
        self.d = op.reg("d")
        a, b = op.expr("a"), op.expr("b")
        assert a is not None and b is not None
        self.a = compile_tile(a, None, unit.warps)
        self.b = compile_tile(b, None, unit.warps)

    def first(self, inst: Instance, step: Step) -> None:
        a, b = to_f32(self.a(inst)), to_f32(self.b(inst))
        set_tile(inst, self.d, part(inst.tiles[self.d.name], self.d) + product(a, b.T))


class Wgmma(Meaning):
    """d = a @ b (+ d), asynchronously: shared operands (and a register a) are read at some moment between issue and
    completion."""

    asynchronous = True

    def __init__(self, op: x.Op, unit: Unit) -> None:
        super().__init__(op, unit)
        self.d = op.reg("d")
        a = op.operands["a"]
        self.a_ref = BlockReference(a, op, unit.kernel) if isinstance(a, x.Ref) else None
        self.a_reg = None if isinstance(a, x.Ref) else compile_tile(a, None, unit.warps)
        self.a_parts = [] if isinstance(a, x.Ref) else [n for n in walk(a) if isinstance(n, Reg)]
        self.b = BlockReference(op.ref("b"), op, unit.kernel)
        use_acc = op.expr("use_acc")
        self.use_acc = compile_tile(use_acc, None, unit.warps) if use_acc is not None else None

    def prepare(self, inst: Instance) -> tuple[Box | None, Box, bool]:
        use_acc = True if self.use_acc is None else bool(self.use_acc(inst))
        return (self.a_ref.box(inst) if self.a_ref else None), self.b.box(inst), use_acc

    def accumulates(self, step: Step) -> bool:
        return bool(step.data[2])

    def issue(self, m: Executor, inst: Instance, step: Step, members: list[Runner]) -> None:
        """All warps of the warpgroup have come."""
        a_box, b_box, use_acc = step.data
        operands: list[Array] = []

        def read() -> None:
            if self.a_ref is not None:
                assert a_box is not None
                a = to_f32(self.a_ref.read(inst, a_box))
            else:
                assert self.a_reg is not None
                a = to_f32(self.a_reg(inst))
            operands.extend((np.ascontiguousarray(a), np.ascontiguousarray(to_f32(self.b.read(inst, b_box)))))

        def write() -> None:
            result = product(operands[0], operands[1])
            old = part(inst.tiles[self.d.name], self.d)
            if result.shape != old.shape:
                fail("T000", f"wgmma: {result.shape} into {old.shape}", self.op.span)
            set_tile(inst, self.d, old + result if use_acc else result)

        leaders = [r for r in members if r.agent.half == "L"]
        ops = tuple(m.operation("wgmma", r) for r in leaders)
        flight = Flight(step, leaders[0], ops, read, write)
        if inst.last_wgmma is not None and not inst.last_wgmma.done:
            flight.after = (inst.last_wgmma,)
            inst.last_wgmma.followers.append(flight)
        inst.last_wgmma = flight
        for runner in members:
            runner.queue("wgmma").open.append(flight)
        if m.observer is not None:
            for op, runner in zip(ops, leaders, strict=True):
                both = (runner.agent, runner.partner.agent)
                effects = self._parts(inst, step, runner.warp)
                m.emit(ev.Issue(m.event_id(), step.site, runner.agent, both, op, effects, queue="wgmma"))
        m.launch(flight)

    def _parts(self, inst: Instance, step: Step, warp: int) -> tuple[ev.Effect, ...]:
        a_box, b_box, use_acc = step.data
        parts: list[ev.Effect] = []
        if self.a_ref is not None and a_box is not None:
            parts.append(ev.Effect("a", "r", self.a_ref.region(inst, a_box), "async", "reads"))
        else:
            for reg in self.a_parts:
                parts.append(ev.Effect("a", "r", register_region(inst, reg, warp), "register", "reads"))
        parts.append(ev.Effect("b", "r", self.b.region(inst, b_box), "async", "reads"))
        mode: ev.Mode = "rw" if use_acc else "w"
        parts.append(ev.Effect("d", mode, register_region(inst, self.d, warp), "register", "writes"))
        return tuple(parts)
