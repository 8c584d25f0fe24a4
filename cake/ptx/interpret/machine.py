"""The machine: CTAs of warps over memory, barriers and copies in flight, one schedule at a time.

Fibers run up to their next synchronising instruction; which of them, or which copy, goes next is the schedule's
choice. What is wrong is found by the state that the hardware has (barriers that never complete, counts, ids) and by
what each strand of threads knows (``clocks``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cake.ptx.interpret import ends
from cake.ptx.interpret.alu import LANES, Value, uniform
from cake.ptx.interpret.barriers import ClusterBarrier, Message
from cake.ptx.interpret.clocks import Knowledge, nothing
from cake.ptx.interpret.cta import Cta, Word
from cake.ptx.interpret.handlers import Choice, Landing
from cake.ptx.interpret.launch import MAP, RANK, SHARED, TENSOR, Launch
from cake.ptx.interpret.outcome import Broken, Finding, Run, Undecided
from cake.ptx.interpret.program import At, Program, Step
from cake.ptx.interpret.shadow import Access, Memory
from cake.ptx.interpret.warps import ALL, Fiber, Queue, Strand, Warp, lanes

STEPS = 400_000
"""Synchronising steps of one run."""
_SPARE, _EACH = 192, 12
"""Components of the clocks: for barriers, and for the strands and queues of a warp."""
STRAIGHT = 2_000_000
"""Steps of one fiber without a synchronising one."""


class Machine:
    """One run of one launch."""

    def __init__(self, program: Program, launch: Launch, schedule: Choice) -> None:
        self.program, self.launch, self.schedule = program, launch, schedule
        self.live = program.live
        self.steps = self.clock = 0
        self.findings: dict[tuple[str, int, bool], Finding] = {}
        self.log: dict[tuple[int, int, int], list[tuple[int, object]]] = {}
        self.atomics = False
        self.covered: set[int] = set()
        self.landings: list[Landing] = []
        self.issued = 0
        self.maps = launch.maps()
        count = launch.threads // LANES
        self._components = -1
        self.size = _SPARE + _EACH * launch.ctas * count
        self.now: Step | None = None
        piece = program.widths("shared")
        clusters = [ClusterBarrier(self.message(), self.message()) for _ in range(-(-launch.ctas // launch.cluster))]
        self.ctas: list[Cta] = []
        for n in range(launch.ctas):
            memory = Memory(SHARED + launch.shared, piece, 0, "shared memory")
            warps = [self._warp(n, w) for w in range(count)]
            self.ctas.append(
                Cta(n, n % launch.cluster, clusters[n // launch.cluster], memory, warps, nothing(self.size))
            )
        wide = min([program.widths("global"), *(m.element for m in self.maps.values())])
        self.tensors = [Memory(t.size, wide, 1, t.name) for t in launch.tensors]
        self.words: dict[int, Word] = {}
        self.globals: dict[int, int | None] = {}
        self.warpgroups: dict[tuple[int, int], int] = {}
        self.products: dict[tuple[int, int], Access] = {}

    def component(self) -> int:
        """A new component of the clocks."""
        self._components += 1
        if self._components == self.size:
            raise Undecided("too many barriers and queues")
        return self._components

    def message(self) -> Message:
        """An empty one."""
        return Message.empty(self.size)

    def _warp(self, cta: int, number: int) -> Warp:
        launch = self.launch
        warp = Warp(cta, number, self.component, registers=launch.registers)
        for mask, low in ((1, 0), (ALL & ~1, 1)):
            know = Knowledge(self.size), Knowledge(self.size)
            warp.strands.append(Strand(mask, self.component(), (cta, number, low), *know))
        registers = list(self.program.initial)
        special = {
            "%tid.x": uniform(tuple(number * LANES + i for i in range(LANES))),
            "%tid.y": 0,
            "%tid.z": 0,
            "%laneid": tuple(range(LANES)),
            "%ntid.x": launch.threads,
            "%ctaid.x": cta,
            "%ctaid.y": 0,
            "%ctaid.z": 0,
            "%nctaid.x": launch.grid or launch.ctas,
            "%nctaid.y": 1,
            "%nctaid.z": 1,
            "%cluster_ctarank": cta % launch.cluster,
            "%cluster_nctarank": launch.cluster,
            "%clusterid.x": cta // launch.cluster,
        }
        for register_name, register in self.program.special.items():
            registers[register] = special.get(register_name)
        for i, register in self.program.parameters.items():
            registers[register] = MAP + i
        warp.fibers = [Fiber(warp, ALL, 0, registers)]
        return warp

    # -- findings and places ------------------------------------------------------------------------------------------

    def report(self, kind: str, text: str, policy: bool = False, *, at: tuple[int, str] | None = None) -> None:
        """Something is wrong at the instruction that runs now, or at a line and place."""
        line, place = self.place(self.now) if at is None else at
        self.findings.setdefault((kind, line, policy), Finding(kind, text, line, place, policy))

    def place(self, s: Step | None) -> tuple[int, str]:
        """Line of the PTX, and the source line."""
        if s is None or s.instruction is None:
            return 0, ""
        p = s.instruction.place
        file = self.program.files.get(p.file, "").rsplit("/", 1)[-1] if p is not None else ""
        return s.instruction.line, f"{file}:{p.line}" if p is not None else ""

    def note(self, strand: Strand, step: Step, what: object) -> None:
        """Something that must be the same in every schedule."""
        self.log.setdefault(strand.key, []).append((step.at, what))

    # -- values and addresses -----------------------------------------------------------------------------------------

    def value(self, fiber: Fiber, register: int, mask: int) -> Value:
        """A register in the lanes of ``mask``: one value where they agree."""
        v = fiber.registers[register]
        if type(v) is not tuple:
            return v
        first, *rest = lanes(mask)
        x = v[first]
        for n in rest:
            if v[n] != x:
                return v
        return x

    def one(self, fiber: Fiber, register: int, mask: int, what: str) -> int:
        """The same, which must be one known integer."""
        v = self.value(fiber, register, mask)
        if type(v) is not int:
            raise Undecided(f"{what} {'differs between lanes' if type(v) is tuple else 'is not known'}, {self._here()}")
        return v

    def _here(self) -> str:
        line, place = self.place(self.now)
        return place or f"line {line}"

    def address(self, fiber: Fiber, at: Any, mask: int) -> int:
        """One address."""
        assert isinstance(at, At)
        return self.one(fiber, at.register, mask, "an address") + at.offset

    def addresses(self, fiber: Fiber, at: Any, mask: int) -> dict[int, int]:
        """The address of each lane."""
        assert isinstance(at, At)
        v = fiber.registers[at.register]
        out = {n: v[n] if type(v) is tuple else v for n in lanes(mask)}
        if any(type(a) is not int for a in out.values()):
            raise Undecided(f"an address is not known, {self._here()}")
        return {n: a + at.offset for n, a in out.items()}

    def cta_of(self, fiber: Fiber, address: int) -> tuple[Cta, int]:
        """The CTA in whose shared memory an address lies, and the address there (5.1.7)."""
        own = self.ctas[fiber.warp.cta]
        rank = address >> RANK
        if not rank:
            return own, address
        number = own.number - own.rank + rank - 1
        if rank > self.launch.cluster or number >= len(self.ctas):
            raise Broken(Finding("address", f"there is no CTA of rank {rank - 1}"))
        return self.ctas[number], address & (1 << RANK) - 1

    def tensor_of(self, address: int, size: int) -> tuple[int, int]:
        """The tensor at a global address, and the offset in it."""
        number, offset = (address >> TENSOR) - 1, address & (1 << TENSOR) - 1
        if not 0 <= number < len(self.tensors) or offset + size > self.tensors[number].size:
            name = self.launch.tensors[number].name if 0 <= number < len(self.tensors) else "every tensor"
            raise Broken(Finding("address", f"an access outside of {name}, at byte {offset}"))
        return number, offset

    def queue(self, s: Strand, kind: str) -> Queue:
        """The groups of a strand."""
        if kind not in s.queues:
            s.queues[kind] = Queue(self.component())
        return s.queues[kind]

    def know(self, strands: Iterable[Strand]) -> list[Knowledge]:
        """What strands know, their own past included."""
        out = []
        for s in strands:
            s.knowledge.happened[s.component] = s.knowledge.visible[s.component] = s.epoch
            out.append(s.knowledge)
        return out

    # -- running ------------------------------------------------------------------------------------------------------

    def run(self) -> Run:
        """To the end, a deadlock, or a finding after which nothing has a meaning."""
        undecided = ""
        try:
            while self._turn():
                pass
        except Broken as b:
            self.report(b.finding.kind, b.finding.text, b.finding.policy)
        except Undecided as u:
            undecided = str(u)
        findings = tuple(self.findings.values())
        done = frozenset(self.covered)
        return Run(self.schedule.name, findings, undecided, self.steps, self.log, self.atomics, done)

    def _turn(self) -> bool:
        fibers = [f for c in self.ctas if not c.done for w in c.warps for f in w.fibers if f.ready]
        if not fibers and not self.landings:
            if any(not c.done for c in self.ctas):
                ends.stuck(self)
            return False
        self.steps += 1
        if self.steps > STEPS:
            raise Undecided(f"more than {STEPS} steps")
        chosen = self.schedule.pick(fibers, self.landings)
        if isinstance(chosen, Fiber):
            chosen.last = self.clock = self.clock + 1
            self._go(chosen)
        else:
            self.landings.remove(chosen)
            self.now = None
            chosen.land(self)
        return True

    def _go(self, fiber: Fiber) -> None:
        """One synchronising step, and all up to the next."""
        steps, first, count = self.program.steps, True, 0
        registers = fiber.registers
        while True:
            s = steps[fiber.pc]
            kind = s.kind
            if kind == "arithmetic":
                s.run(registers)  # type: ignore[misc]
                fiber.pc = s.after
            elif kind == "touch":
                if s.touches:
                    self._touch(fiber, s)
                fiber.pc = s.after
            elif kind == "branch":
                self._branch(fiber, s)
            elif kind == "exit":
                if not ends.leave(self, fiber, s):
                    return
            else:
                if s.handler.sync and not first:
                    return
                if s.handler.sync:
                    first = False
                if not self._effect(fiber, s):
                    return
            count += 1
            if count > STRAIGHT:
                raise Undecided("a loop that does not end")

    def _effect(self, fiber: Fiber, s: Step) -> bool:
        """Execute; False: the fiber is blocked here."""
        self.now = s
        fiber.waits = None
        mask = fiber.mask
        if s.guard is not None:
            mask = self.true(fiber, s)
            if not mask:
                fiber.pc = s.after
                return True
            if mask != fiber.mask and (s.handler.sync or s.handler.collective):
                other = fiber.warp.split(fiber, fiber.mask & ~mask, s.after)
                self._narrow(other)
                self._narrow(fiber)
        if s.handler.collective and not self._gather(fiber, s):
            return False
        if s.handler.collective:
            mask = fiber.mask
        if s.touches and not s.parts[0].startswith("wgmma"):
            self._touch(fiber, s)
        polled = fiber.polled
        blocked = s.handler.run(self, fiber, s, mask)
        if s.handler.sync and fiber.polled is polled and blocked is None:
            fiber.polled = None  # it did something since
        if blocked is not None:
            fiber.waits = (blocked, blocked.version)
            return False
        self.covered.add(s.at)
        fiber.pc = s.after
        return True

    def true(self, fiber: Fiber, s: Step) -> int:
        """Lanes in which a guard holds."""
        assert s.guard is not None
        register, wanted = s.guard
        p = self.value(fiber, register, fiber.mask)
        if type(p) is not tuple:
            if p is None:
                raise Undecided(f"a condition on data decides, {self._here()}")
            return fiber.mask if p is wanted else 0
        if any(p[n] is None for n in lanes(fiber.mask)):
            raise Undecided(f"a condition on data decides, {self._here()}")
        return sum(1 << n for n in lanes(fiber.mask) if p[n] is wanted)

    def _branch(self, fiber: Fiber, s: Step) -> None:
        if s.guard is None:
            fiber.pc = s.target
            return
        self.now = s
        try:
            mask = self.true(fiber, s)
        except Undecided:
            join = self.program.join(s.at)
            if join is None:
                raise
            fiber.pc = join[0]
            for register in join[1]:
                fiber.registers[register] = None
            return
        if mask == fiber.mask:
            fiber.pc = s.target
        elif not mask:
            fiber.pc = s.after
        else:
            other = fiber.warp.split(fiber, mask, s.target)
            fiber.pc = s.after
            self._narrow(other)
            self._narrow(fiber)

    def _narrow(self, fiber: Fiber) -> None:
        """Values that agree in the lanes that are left."""
        for r in self.program.live_at(fiber.pc):
            if type(fiber.registers[r]) is tuple:
                fiber.registers[r] = self.value(fiber, r, fiber.mask)

    def _gather(self, fiber: Fiber, s: Step) -> bool:
        """Wait for all lanes that a warp-wide instruction needs; the last fiber to come goes on for all."""
        warp = fiber.warp
        if fiber.mask == ALL:
            return True
        needed = ALL
        if s.parts[0] in ("shfl", "elect", "vote", "redux", "bar") and not (
            s.parts[0] == "bar" and s.parts[1] != "warp"
        ):
            member = s.args[-1]
            assert isinstance(member, int)
            needed = self.one(fiber, member, fiber.mask, "a member mask") & ALL
        if fiber.mask & needed == needed:
            return True
        fiber.gathers = fiber.pc
        here = [f for f in warp.fibers if f.gathers == fiber.pc]
        together = 0
        for f in here:
            together |= f.mask
        if together & needed == needed:
            here.remove(fiber)
            warp.merge([fiber, *here], self.program.live_at(fiber.pc))
            return True
        fiber.waits = (warp, warp.version)
        return False

    def _touch(self, fiber: Fiber, s: Step) -> None:
        busy = fiber.warp.busy
        if busy and not s.touches.isdisjoint(busy):
            register = next(r for r in sorted(s.touches) if r in busy)
            self.report("registers", f"{register} is touched while a wgmma of the warp is in flight", at=self.place(s))
        fiber.warp.loose |= s.touches
