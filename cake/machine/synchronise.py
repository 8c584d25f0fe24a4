"""The synchronising statements as the machine executes them: what an agent does, and what it waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cake.ir import expanded as x
from cake.ir.evaluate import Scalar
from cake.machine import events as ev
from cake.machine.agents import RANKS, Runner
from cake.machine.faults import fail_at
from cake.machine.tape import Code, Step

if TYPE_CHECKING:
    from cake.machine.executor import Executor
    from cake.machine.flights import Flight
    from cake.machine.instance import Instance


class Statement(Code):
    """A code with a node of its own kind."""

    def __init__(self, node: x.Node, path: str, alone: bool) -> None:
        self.node = node
        self.path = path
        self.alone = alone
        self.rank = RANKS[node.executor]
        self.by_lanes = node.executor == "lanes" and not alone

    def weight(self, runner: Runner) -> int:
        """How many threads ``runner`` stands for when it executes this statement."""
        return runner.threads if self.by_lanes else 1


def meet(m: Executor, runner: Runner, step: Step, width: int, name: str, strength: str) -> bool:
    """Join the agents of ``width`` warps at this step. True for the last one to come; the others are woken,
    ``released``."""
    inst = step.tape.instance
    group = runner.warp // width if width else 0
    if step.meeting is None:
        step.meeting = {}
    here = step.meeting.setdefault(group, [])
    here.append(runner)
    warps = min(width, inst.warps)
    if len(here) < 2 * warps:
        return False
    if m.observer is not None:
        m.emit(ev.Join(m.event_id(), step.site, name, tuple(r.agent for r in here), strength))  # type: ignore[arg-type]
    return True


def release(m: Executor, runner: Runner, step: Step, width: int) -> None:
    """Let the others of a completed meeting go on."""
    assert step.meeting is not None
    for other in step.meeting.pop(runner.warp // width if width else 0):
        if other is not runner:
            other.released = True
            m.wake(other)


class Init(Statement):
    """mbarrier.init of every slot."""

    node: x.Init

    def run(self, m: Executor, runner: Runner, step: Step) -> bool:
        for barrier in step.tape.instance.cta.barriers[self.node.barrier]:
            barrier.init(m, runner, step)
        return True


class Wait(Statement):
    """A parity wait that loops until it succeeds."""

    node: x.Wait

    def prepare(self, inst: Instance) -> tuple[int, int, int | None]:
        node = self.node
        slots = len(inst.cta.barriers[node.barrier])
        position = inst.position(node.slot)
        return position % slots, position // slots + node.ahead, inst.meant(node.slot, slots, node.ahead)

    def run(self, m: Executor, runner: Runner, step: Step) -> bool:
        slot, phase, meant = step.data
        barrier = step.tape.instance.cta.barriers[self.node.barrier][slot]
        node = self.node
        if runner.fresh:
            barrier.require_live(step)
            if m.observer is not None:
                m.emit(ev.Wait(m.event_id(), step.site, runner.agent, barrier.key, meant, node.sem, node.scope))
        if not barrier.passed(phase):
            barrier.waiters.append(runner)
            return False
        if m.observer is not None:
            found = barrier.phase - 1
            m.emit(ev.Pass(m.event_id(), step.site, runner.agent, barrier.key, meant, found, node.sem, node.scope))
        return True


class Arrive(Statement):
    """Arrivals and announcements, on this CTA's barrier or on those of peers."""

    node: x.Arrive

    def prepare(self, inst: Instance) -> tuple[int, int | None]:
        slots = len(inst.cta.barriers[self.node.barrier])
        return inst.position(self.node.slot) % slots, inst.meant(self.node.slot, slots)

    def run(self, m: Executor, runner: Runner, step: Step) -> bool:
        node, (slot, phase) = self.node, step.data
        cta = step.tape.instance.cta
        ctas = [cta] if node.peers is None else [cta.cluster.ctas[rank] for rank in node.peers]
        threads = self.weight(runner)
        for target in ctas:
            barrier = target.barriers[node.barrier][slot]
            if node.form != "arrive":
                barrier.contribute(
                    m, runner, step, "expect", tx=node.bytes * threads, sem=node.sem, scope=node.scope, intended=phase
                )
            if node.form != "expect":
                barrier.contribute(
                    m,
                    runner,
                    step,
                    "arrive",
                    weight=node.weight * threads,
                    sem=node.sem,
                    scope=node.scope,
                    intended=phase,
                )
        return True


class Named(Statement):
    """A hardware barrier: an elected lane counts for its warp (PTX ISA 9.7.13.1: the count goes up by the warp
    size)."""

    def __init__(self, node: x.Named, path: str, alone: bool, declared: x.NamedBarrier, index: Scalar | None) -> None:
        super().__init__(node, path, alone)
        self.form = node.form
        self.declared = declared
        self.index = index

    def prepare(self, inst: Instance) -> int:
        if self.index is not None:
            return self.declared.id + int(self.index(inst.env))
        return self.declared.id + (inst.index if self.declared.per_instance else 0)

    def run(self, m: Executor, runner: Runner, step: Step) -> bool:
        if runner.released:
            return True
        threads = runner.threads if self.by_lanes else 32
        barrier = step.tape.instance.cta.named_barrier(step.data)
        complete = barrier.arrive(m, runner, step, self.form, self.declared.threads, threads)
        return complete or self.form == "arrive"


class Cluster(Statement):
    """Half of the cluster barrier, or both."""

    node: x.Cluster

    def run(self, m: Executor, runner: Runner, step: Step) -> bool:
        node = self.node
        barrier = step.tape.instance.cta.cluster.barrier
        if runner.fresh and node.form != "wait":
            barrier.arrive(m, runner, step, node.sem)
        if node.form == "arrive":
            return True
        if runner.cluster_arrived is None:
            fail_at("P116", "a thread waits for the cluster barrier without having arrived", step)
        if barrier.generation <= runner.cluster_arrived:
            barrier.waiters.append(runner)
            return False
        if m.observer is not None:
            m.emit(ev.ClusterWait(m.event_id(), step.site, runner.agent, runner.cluster_arrived, node.sem))
        runner.cluster_arrived = None
        return True


class SyncWarp(Statement):
    """The lanes of each warp meet. For a single lane there is nothing to order."""

    def run(self, m: Executor, runner: Runner, step: Step) -> bool:
        if runner.released or not self.by_lanes:
            return True
        if not meet(m, runner, step, 1, "syncwarp", "all"):
            return False
        release(m, runner, step, 1)
        return True


class Fence(Statement):
    """Order, which the values reading has anyway; observers are told."""

    node: x.Fence

    def run(self, m: Executor, runner: Runner, step: Step) -> bool:
        if m.observer is not None:
            m.emit(ev.Fence(m.event_id(), step.site, runner.agent, self.node.what, self.node.scope))
        return True


class Commit(Statement):
    """Close the agent's open group."""

    node: x.Commit

    def run(self, m: Executor, runner: Runner, step: Step) -> bool:
        queue = runner.queue(self.node.queue)
        group = tuple(queue.open)
        queue.open = []
        queue.groups.append(group)
        if m.observer is not None:
            ops = tuple(op for flight in group for op in flight.ops)
            number = len(queue.groups) - 1
            m.emit(ev.Commit(m.event_id(), step.site, runner.agent, self.node.queue, number, ops))
        return True


class GroupWait(Statement):
    """Wait for all but the newest ``keep`` groups of this agent; ``read``: for their reads only."""

    node: x.GroupWait

    def run(self, m: Executor, runner: Runner, step: Step) -> bool:
        node = self.node
        queue = runner.queue(node.queue)
        start = queue.seen_read if node.read else queue.seen
        limit = max(start, len(queue.groups) - node.keep)
        for number in range(start, limit):
            for flight in queue.groups[number]:
                if not (flight.reads_done if node.read else flight.done):
                    runner.memo = flight
                    flight.waiters.append(runner)
                    return False
        runner.memo = None
        if m.observer is not None:
            ops = tuple(op for group in queue.groups[start:limit] for flight in group for op in flight.ops)
            m.emit(
                ev.GroupWait(
                    m.event_id(), step.site, runner.agent, node.queue, node.keep, node.read, len(queue.groups), ops
                )
            )
        if node.read:
            queue.seen_read = max(start, limit)
        else:
            queue.seen = max(start, limit)
            queue.seen_read = max(queue.seen_read, queue.seen)
        self._forget(queue.groups, min(queue.seen, queue.seen_read))
        return True

    @staticmethod
    def _forget(groups: list[tuple[Flight, ...]], upto: int) -> None:
        """Groups that no later wait can ask about keep their number but not their operations."""
        for number in range(upto - 1, -1, -1):
            if not groups[number]:
                break
            groups[number] = ()


class SetMaxNReg(Statement):
    """All lanes of each warp meet, then the pool changes (a warp of a CTA without a register budget just meets)."""

    node: x.SetMaxNReg

    def run(self, m: Executor, runner: Runner, step: Step) -> bool:
        if runner.released:
            return True
        if self.by_lanes and runner.fresh and not meet(m, runner, step, 1, "setmaxnreg", "control"):
            return False
        pool = step.tape.instance.cta.pool
        if pool is not None and not pool.change(m, runner, step, self.node.form, self.node.count):
            pool.waiters.append(runner)
            return False
        if self.by_lanes:
            release(m, runner, step, 1)
        return True


class Leave(Statement):
    """Exit: the tape ends after it."""

    def run(self, m: Executor, runner: Runner, step: Step) -> bool:
        return True


SIMPLE: dict[type[Any], type[Statement]] = {
    x.Init: Init,
    x.Wait: Wait,
    x.Arrive: Arrive,
    x.Cluster: Cluster,
    x.SyncWarp: SyncWarp,
    x.Fence: Fence,
    x.Commit: Commit,
    x.GroupWait: GroupWait,
    x.SetMaxNReg: SetMaxNReg,
    x.Exit: Leave,
}
"""Statements that need nothing but their node."""
