"""Block moves by the copy engines: TMA loads, stores, reductions and prefetches, and cp.async."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cake.ir import expanded as x
from cake.ir.dtypes import DTYPES
from cake.machine import events as ev
from cake.machine.elementwise import Array
from cake.machine.faults import fail
from cake.machine.flights import Flight
from cake.machine.instance import Cta, Instance
from cake.machine.meanings.base import Meaning, Unit
from cake.machine.memory import clip_box, volume
from cake.machine.references import BlockReference, Box
from cake.machine.tape import Step

if TYPE_CHECKING:
    from cake.machine.agents import Runner
    from cake.machine.executor import Executor


class Copy(Meaning):
    """An asynchronous copy between a tensor and shared memory."""

    asynchronous = True

    def __init__(self, op: x.Op, unit: Unit) -> None:
        super().__init__(op, unit)
        self.src = BlockReference(op.ref("src"), op, unit.kernel)
        self.dst = BlockReference(op.ref("dst"), op, unit.kernel)
        if volume(self.src.sizes) != volume(self.dst.sizes):
            fail("T000", f"{op.op} copies {self.src.sizes} to {self.dst.sizes}", op.span)
        self.dst.require_writable(unit.kernel)
        self.bytes = volume(self.dst.sizes) * DTYPES[self.dst.dtype].bytes

    def prepare(self, inst: Instance) -> tuple[Box, Box, tuple[int, int | None] | None]:
        landing = None
        if isinstance(self.op.completion, x.ByBarrier):
            slots, slot = len(inst.cta.barriers[self.op.completion.barrier]), self.op.completion.slot
            landing = inst.position(slot) % slots, inst.meant(slot, slots)
        return self.dst.box(inst), self.src.box(inst), landing

    def enqueue(self, runner: Runner, flight: Flight) -> None:
        """Join the open group if a group completes the operation."""
        if isinstance(self.op.completion, x.ByGroup):
            runner.queue(self.op.completion.queue).open.append(flight)

    def announce(
        self,
        m: Executor,
        step: Step,
        runner: Runner,
        flight: Flight,
        effects: tuple[ev.Effect, ...],
    ) -> None:
        """Tell observers about the issue."""
        barriers = tuple(b.key for b, _, _ in (*flight.landings, *flight.triggers))
        queue = self.op.completion.queue if isinstance(self.op.completion, x.ByGroup) else None
        bytes = flight.landings[0][1] if flight.landings else 0
        m.emit(
            ev.Issue(
                m.event_id(), step.site, runner.agent, (runner.agent,), flight.ops[0], effects, barriers, bytes, queue
            )
        )


class TmaLoad(Copy):
    """Copy a box of a tensor to shared memory, of this CTA or of every rank in the multicast mask (at the same
    offsets)."""

    def __init__(self, op: x.Op, unit: Unit) -> None:
        super().__init__(op, unit)
        self.mask = int(op.attrs.get("multicast", 0) or 0)

    def targets(self, inst: Instance) -> list[Cta]:
        """The CTAs that receive the box."""
        if not self.mask:
            return [inst.cta]
        return [cta for cta in inst.cta.cluster.ctas if self.mask >> cta.rank & 1]

    def issue(self, m: Executor, inst: Instance, step: Step, members: list[Runner]) -> None:
        """Start the copy."""
        dst, src, landing = step.data
        runner = members[0]
        targets = self.targets(inst)
        assert dst.tile is not None
        held: list[Array] = []

        def read() -> None:
            held.append(self.src.read(inst, src))

        def write() -> None:
            value = held.pop().reshape(self.dst.shape)
            for cta in targets:
                tile = dst.tile
                index = tuple(slice(s, s + n) for s, n in zip(dst.starts, dst.sizes, strict=True))
                cta.shared.write(tile.name, tile.instance, tile.slot, index, value.reshape(dst.sizes))

        flight = Flight(step, runner, (m.operation(self.op.op, runner),), read, write)
        if landing is not None:
            slot, phase = landing
            assert isinstance(self.op.completion, x.ByBarrier)
            name = self.op.completion.barrier
            flight.landings = tuple((cta.barriers[name][slot], self.bytes, phase) for cta in targets)
        self.enqueue(runner, flight)
        if m.observer is not None:
            effects = [ev.Effect("src", "r", self.src.region(inst, src), "async", "reads")]
            effects += [
                ev.Effect("dst", "w", self.dst.region(inst, dst, cta=cta), "async", "writes") for cta in targets
            ]
            self.announce(m, step, runner, flight, tuple(effects))
        m.launch(flight)


class TmaStore(Copy):
    """Copy a shared tile to a box of a tensor; what lies past its ends is not written. The box may not start before the
    tensor: unlike loads, stores with a negative coordinate trap (CUDA C++ Programming Guide, "Using TMA to transfer
    multi-dimensional arrays": the top left corner of a write cannot have negative indices; seen on H200)."""

    mode: ev.Mode = "w"

    def issue(self, m: Executor, inst: Instance, step: Step, members: list[Runner]) -> None:
        """Start the copy."""
        dst, src, _ = step.data
        if min(dst.starts) < 0:
            what = f"`{self.op.op}` to a box of `{self.dst.ref.base}` that starts at {list(map(int, dst.starts))}"
            fail(
                "O503",
                f"{what}: a copy to global memory may end outside the tensor, but not start before it",
                self.op.span,
            )
        runner = members[0]
        held: list[Array] = []

        def read() -> None:
            held.append(self.src.read(inst, src).reshape(dst.sizes))

        def write() -> None:
            memory = m.memory[self.dst.ref.base]
            inside = clip_box(memory.shape, dst.starts, dst.sizes)
            if inside is not None:
                self.combine(memory, inside[0], held[0][inside[1]])
            m.touched(self.dst.ref.base)

        flight = Flight(step, runner, (m.operation(self.op.op, runner),), read, write)
        self.enqueue(runner, flight)
        if m.observer is not None:
            effects = (
                ev.Effect("src", "r", self.src.region(inst, src), "async", "reads"),
                ev.Effect("dst", self.mode, self.dst.region(inst, dst), "async", "writes"),
            )
            self.announce(m, step, runner, flight, effects)
        m.launch(flight)

    def combine(self, memory: Array, where: tuple[slice, ...], value: Array) -> None:
        """What the store does to memory."""
        memory[where] = value


class TmaReduce(TmaStore):
    """Combine a shared tile into a box of a tensor, element by element, in the element's type."""

    mode = "rw"

    def __init__(self, op: x.Op, unit: Unit) -> None:
        super().__init__(op, unit)
        self.function = {"add": np.add, "max": np.maximum, "min": np.minimum}[str(op.attrs["function"])]

    def combine(self, memory: Array, where: tuple[slice, ...], value: Array) -> None:
        memory[where] = self.function(memory[where], value)


class TmaPrefetch(Meaning):
    """Bring a box into L2: nothing that a program could see."""

    private = True


class CpAsync(Copy):
    """Copy a box to shared memory in pieces, dealt round robin to the instance's threads in row-major order. Each
    agent's pieces are one operation, complete when it says so, and are written through the generic proxy.

    Completion by barrier is ``cp.async.mbarrier.arrive.noinc`` (PTX ISA 9.7.13.15.14): one arrival for each executing
    thread, once its copies so far have completed.
    """

    def __init__(self, op: x.Op, unit: Unit) -> None:
        super().__init__(op, unit)
        item = DTYPES[self.dst.dtype].bytes
        piece = int(op.attrs.get("bytes", 16) or 16) // item
        count = volume(self.dst.sizes)
        threads = 32 * unit.warps
        if self.dst.sizes[-1] % piece:
            fail("T000", f"cp_async: rows of {self.dst.sizes[-1]} elements are no whole number of pieces", op.span)
        self.thread = (np.arange(count) // piece % threads).reshape(self.dst.sizes)

    def issue(self, m: Executor, inst: Instance, step: Step, members: list[Runner]) -> None:
        """Start this agent's share."""
        for runner in members:
            self._issue(m, inst, step, runner)

    def _mine(self, runner: Runner) -> Array:
        if runner.threads == 32:
            result: Array = self.thread // 32 == runner.warp
            return result
        first = 32 * runner.warp
        if runner.agent.half == "L":
            result = self.thread == first
        else:
            result = (self.thread > first) & (self.thread < first + 32)
        return result

    def _issue(self, m: Executor, inst: Instance, step: Step, runner: Runner) -> None:
        dst, src, landing = step.data
        mine = self._mine(runner)
        tile = dst.tile
        assert tile is not None
        index = tuple(i + s for i, s in zip(np.nonzero(mine), dst.starts, strict=True))
        held: list[Array] = []

        def read() -> None:
            held.append(self.src.read(inst, src).reshape(dst.sizes)[mine])

        def write() -> None:
            tile.cta.shared.scatter(tile.name, tile.instance, tile.slot, index, held.pop())

        flight = Flight(step, runner, (m.operation(self.op.op, runner),), read, write)
        if landing is not None:
            slot, phase = landing
            assert isinstance(self.op.completion, x.ByBarrier)
            barrier = tile.cta.barriers[self.op.completion.barrier][slot]
            flight.triggers = ((barrier, runner.threads, phase),)
            earlier = [f for f in runner.copies if not f.done]
            flight.after = tuple(earlier)
            for other in earlier:
                other.followers.append(flight)
        runner.copies = [f for f in runner.copies if not f.done]
        runner.copies.append(flight)
        self.enqueue(runner, flight)
        if m.observer is not None:
            held_mask = mine.reshape(self.dst.shape)
            effects = (
                ev.Effect("src", "r", self.src.region(inst, src), "generic", "reads"),
                ev.Effect(
                    "dst",
                    "w",
                    self.dst.region(inst, dst, held_mask, ("cp", runner.warp, runner.agent.half)),
                    "generic",
                    "writes",
                ),
            )
            self.announce(m, step, runner, flight, effects)
        m.launch(flight)
