"""The executor: runs the agents of some clusters and their asynchronous operations in the order a scheduler picks."""

from __future__ import annotations

from typing import Any, Literal

from cake.ir import expanded as x
from cake.machine import events as ev
from cake.machine.agents import LANES, ONE, WARP, Runner
from cake.machine.barriers import ClusterBarrier, MBarrier, Pool
from cake.machine.elementwise import Array
from cake.machine.faults import fail
from cake.machine.flights import Flight, nothing
from cake.machine.instance import ClusterState, Cta, Instance
from cake.machine.memory import Shared, layout_of
from cake.machine.program import RoleProgram, tracked_tiles
from cake.machine.registers import poison
from cake.machine.schedule import Scheduler
from cake.machine.stuck import report
from cake.machine.tape import Tape

HALVES: tuple[tuple[Literal["L", "R"], int], ...] = (("L", 1), ("R", 31))


class Executor:
    """One batch of clusters. ``memory``: the tensors; ``env``: launch values; ``values``: tiles have values."""

    instances: type[Instance] = Instance

    def __init__(
        self,
        kernel: x.Kernel,
        programs: tuple[RoleProgram, dict[str, RoleProgram]],
        memory: dict[str, Array],
        env: dict[str, Any],
        scheduler: Scheduler,
        observer: ev.Observer | None,
        *,
        values: bool = True,
    ) -> None:
        self.values = values
        self.kernel = kernel
        self.entry, self.roles = programs
        self.memory = memory
        self.env = env
        self.scheduler = scheduler
        self.observer = observer
        self.moved = getattr(observer, "moved", None)
        self.layouts = {b.name: layout_of(b) for b in kernel.buffers}
        for layout in self.layouts.values():
            if layout.end > kernel.shared_bytes:
                fail(
                    "W701",
                    f"`{layout.buffer.name}` ends at byte {layout.end} of {kernel.shared_bytes} bytes of shared memory",
                    layout.buffer.span,
                )
        self.spinning: dict[str, list[Runner]] = {}
        self.open_flags = False
        self.runners: list[Runner] = []
        self.clusters: list[ClusterState] = []
        self.cta_count = 0
        self.steps = 0
        self.most: int | None = None
        self.operations = 0
        self.events = 0
        self.live = 0

    # -- what codes ask for -------------------------------------------------------------------------------------------

    def wake(self, runner: Runner) -> None:
        """What ``runner`` waited for may have happened."""
        self.scheduler.add(runner)

    def launch(self, flight: Flight) -> None:
        """``flight`` can go on."""
        if not self.values:
            flight.read = flight.write = nothing
        self.scheduler.add(flight)

    def operation(self, op: str, runner: Runner) -> ev.AsyncOp:
        """A new asynchronous operation."""
        self.operations += 1
        return ev.AsyncOp(self.operations - 1, op, runner.agent)

    def event_id(self) -> int:
        """The next event's number."""
        self.events += 1
        return self.events - 1

    def emit(self, event: ev.Event) -> None:
        """Tell the observer."""
        assert self.observer is not None
        self.observer.event(event)

    def touched(self, tensor: str) -> None:
        """A tensor was written: those that spin on it look again."""
        for runner in self.spinning.pop(tensor, ()):
            self.wake(runner)

    # -- setting up ---------------------------------------------------------------------------------------------------

    def add_cluster(self, index: int, number: int) -> None:
        """A cluster with place ``number`` in the grid; ``index`` counts the simulated ones."""
        kernel = self.kernel
        agents = kernel.threads // 32 * 2 * kernel.cluster
        cluster = ClusterState(index, ClusterBarrier(index, agents))
        self.clusters.append(cluster)
        for rank in range(kernel.cluster):
            self._add_cta(cluster, rank, number)

    def _add_cta(self, cluster: ClusterState, rank: int, number: int) -> None:
        kernel = self.kernel
        index = cluster.index * kernel.cluster + rank
        barriers = {b.name: [MBarrier((index, b.name, slot), b) for slot in range(b.slots)] for b in kernel.barriers}
        warps = kernel.threads // 32
        launch = kernel.launch_registers
        pool = Pool(dict.fromkeys(range(warps), launch)) if launch is not None else None
        cta = Cta(index, rank, cluster, Shared(kernel.shared_bytes, self.layouts), barriers, pool)
        cluster.ctas.append(cta)
        self.cta_count += 1
        env = {**self.env, "%cta": number, "%rank": rank}
        self._add_warps(cta, env)

    def _add_warps(self, cta: Cta, env: dict[str, Any]) -> None:
        kernel = self.kernel
        warps = kernel.threads // 32
        entry = Instance(self, cta, None, 0, 0, warps, dict(env), {})
        tape = Tape(entry, self.entry.prologue, self.entry.body)
        places: dict[int, Instance] = {}
        for role in kernel.roles:
            for number in range(role.instances):
                first = role.first_warp + number * role.warps
                values = dict(env)
                if role.var is not None:
                    values[role.var] = number
                tiles = {name: poison(t.dtype, t.shape) for name, t in role.tiles.items()}
                instance = self.instances(self, cta, role, number, first, role.warps, values, tiles)
                program = self.roles[role.name]
                instance.tape = Tape(instance, program.prologue, program.body)
                places.update(dict.fromkeys(range(first, first + role.warps), instance))
        for warp in range(warps):
            place = places.get(warp)
            role_name, number = (place.role_name, place.index) if place is not None else ("", 0)
            halves = []
            for half, threads in HALVES:
                agent = ev.Agent(
                    len(self.runners),
                    cta.cluster.index,
                    cta.index,
                    cta.rank,
                    warp,
                    half,
                    role_name,
                    number,
                )
                runner = Runner(agent, threads)
                runner.place = place
                self._enter(runner, entry)
                runner.step = tape.head
                self.runners.append(runner)
                halves.append(runner)
            halves[0].partner, halves[1].partner = halves[1], halves[0]

    @staticmethod
    def _enter(runner: Runner, instance: Instance) -> None:
        """``runner`` becomes an agent of ``instance``."""
        runner.instance = instance
        runner.warp = runner.agent.warp - instance.first_warp
        elected = runner.agent.half == "L"
        runner.rank = LANES if not elected else ONE if runner.warp == 0 else WARP
        instance.runners.append(runner)

    # -- running ------------------------------------------------------------------------------------------------------

    def run(self, max_steps: int | None) -> None:
        """Run everything to its end."""
        self.most = max_steps
        self.start()
        self.drain()
        if self.live:
            report(self)
        if self.observer is not None:
            self.observer.end()

    def start(self) -> None:
        """Bring every agent to its first step."""
        if self.observer is not None:
            agents = tuple(r.agent for r in self.runners)
            self.observer.start(ev.Setup(self.kernel, self.env, agents, tracked_tiles(self.kernel)))
        self.live = len(self.runners)
        for runner in self.runners:
            if self.observer is not None:
                self.emit(ev.Begin(self.event_id(), None, runner.agent))
            self._move(runner)

    def drain(self) -> None:
        """Run until nothing can."""
        scheduler = self.scheduler
        while (entity := scheduler.next()) is not None:
            self.count()
            if isinstance(entity, Runner):
                step = entity.step
                assert step is not None
                if step.code.run(self, entity, step):
                    self._move(entity)
                else:
                    entity.fresh = False
            elif entity.advance(self):
                scheduler.add(entity)

    def count(self, steps: int = 1) -> None:
        """So many agents' steps more; there is a limit to them."""
        self.steps += steps
        if self.most is not None and self.steps > self.most:
            self.steps = self.most + 1
            fail("U906", f"stopped after {self.most} steps", self.kernel.span)

    def _move(self, runner: Runner) -> None:
        """On to the next step, from the entry to the role, or out."""
        while True:
            step, instance = runner.step, runner.instance
            assert step is not None and instance is not None
            runs_body = not instance.solo or runner.rank == ONE
            following = step.tape.after(step, runner, runs_body)
            if following is not None:
                runner.step = following
                runner.fresh, runner.released = True, False
                self.scheduler.add(runner)
                return
            if instance.role is not None or runner.place is None:
                self._exit(runner)
                return
            self._enter(runner, runner.place)
            runner.step = runner.place.tape.head

    def _exit(self, runner: Runner) -> None:
        runner.done = True
        runner.step = None
        self.live -= 1
        if self.observer is not None:
            self.emit(ev.Exit(self.event_id(), None, runner.agent))
        self.clusters[runner.agent.cluster - self.clusters[0].index].barrier.exit(self)
