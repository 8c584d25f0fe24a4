"""Asynchronous operations under way: they read at some moment after their issue and write at some later one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from cake.machine import events as ev
from cake.machine.agents import Runner

if TYPE_CHECKING:
    from cake.machine.barriers import MBarrier
    from cake.machine.executor import Executor
    from cake.machine.tape import Step


def nothing() -> None:
    """What a finished operation still does; its values and its step are let go."""


class Flight:
    """One operation (a wgmma counts as one, with an event agent for each warp). ``landings``: the barriers that
    receive bytes when it has written; ``triggers``: those that receive an arrival; ``after``: the operation of the
    same unit that must have finished first (wgmma groups complete in order, PTX ISA 9.7.15.6.2; a cp.async arrival
    follows the thread's earlier copies)."""

    __slots__ = (
        "after",
        "done",
        "followers",
        "issuer",
        "key",
        "landings",
        "ops",
        "priority",
        "read",
        "reads_done",
        "step",
        "triggers",
        "waiters",
        "write",
    )

    def __init__(
        self,
        step: Step,
        issuer: Runner,
        ops: tuple[ev.AsyncOp, ...],
        read: Callable[[], None],
        write: Callable[[], None],
    ) -> None:
        self.step: Step | None = step
        self.issuer = issuer
        self.ops = ops
        self.read = read
        self.write = write
        self.landings: tuple[tuple[MBarrier, int, int | None], ...] = ()
        self.triggers: tuple[tuple[MBarrier, int, int | None], ...] = ()
        self.after: tuple[Flight, ...] = ()
        self.followers: list[Flight] = []
        self.waiters: list[Runner] = []
        self.reads_done = False
        self.done = False
        self.priority = 0.0
        self.key = ops[0].id

    def advance(self, m: Executor) -> bool:
        """Do the next part. True if another part can follow by itself."""
        if not self.reads_done:
            self.read()
            self.reads_done = True
            self._tell(m, "reads")
        else:
            self.write()
            self.done = True
            self._tell(m, "writes")
            self._signal(m)
            self.read = self.write = nothing
            self.step = None
            for follower in self.followers:
                if follower.reads_done and follower.ready:
                    m.launch(follower)
            self.followers = []
        waiters, self.waiters = self.waiters, []
        for runner in waiters:
            m.wake(runner)
        return not self.done and self.ready

    @property
    def ready(self) -> bool:
        """True if nothing that must finish first is under way."""
        return all(f.done for f in self.after)

    def _tell(self, m: Executor, which: ev.Part) -> None:
        if m.observer is not None:
            for op in self.ops:
                assert self.step is not None
                m.emit(ev.Done(m.event_id(), self.step.site, op, which))

    def _signal(self, m: Executor) -> None:
        op, step = self.ops[0], self.step
        assert step is not None
        for barrier, amount, phase in self.landings:
            barrier.contribute(m, op, step, "tx", tx=-amount, sem="release", intended=phase)
        for barrier, weight, phase in self.triggers:
            barrier.contribute(m, op, step, "triggered", weight=weight, sem="release", intended=phase)
