"""The tape of an instance: its program as a lazily produced chain of dynamic steps.

Control (loops, conditions, scalar variables, cursors) is interpreted once for the instance, as the farthest agent
comes by; every agent then walks the same steps at its own pace. Steps are linked, so those that every agent has
passed are freed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from cake.ir import expanded as x
from cake.ir.evaluate import Scalar
from cake.machine import events as ev
from cake.machine.agents import LANES, Runner

if TYPE_CHECKING:
    from cake.machine.executor import Executor
    from cake.machine.instance import Instance


class Code:
    """A compiled node that agents execute. ``rank``: who; ``alone``: in a solo role's body, where one lane runs
    everything; ``private``: nobody but the instance can tell when it happens, so it is done once, as the tape comes by, and no
    agent stops at it."""

    node: x.Node
    path: str
    rank: int = LANES
    alone: bool = False
    private: bool = False

    def prepare(self, inst: Instance) -> Any:
        """The step's operands, evaluated when it is produced."""
        return None

    def produced(self, inst: Instance, step: Step) -> None:
        """The step, with its operands, is the next one of the instance."""

    def run(self, m: Executor, runner: Runner, step: Step) -> bool:
        """One agent tries the step: true if it goes on, false if it has to wait (somebody will wake it)."""
        raise NotImplementedError

    def act(self, inst: Instance, step: Step) -> None:
        """What a private step does."""

    def executions(self, inst: Instance) -> int:
        """How many agents execute a step of this code."""
        if self.alone or self.rank == 2:
            return 1
        return inst.warps if self.rank == 1 else 2 * inst.warps


class Step:
    """A dynamic step. ``data``: evaluated operands; ``came``: agents that have done it; ``meeting``: who waits in its
    collectives; ``fork``: in a solo role, where the agents other than the elected lane leave."""

    __slots__ = (
        "came",
        "code",
        "data",
        "fork",
        "halves",
        "iteration",
        "meeting",
        "next",
        "number",
        "result",
        "seen",
        "tape",
        "told",
    )

    def __init__(self, tape: Tape, code: Code, number: int, iteration: tuple[tuple[str, int], ...], data: Any) -> None:
        self.tape = tape
        self.code = code
        self.number = number
        self.iteration = iteration
        self.data = data
        self.came = 0
        self.halves: dict[int, int] | None = None
        self.meeting: dict[int, list[Runner]] | None = None
        self.next: Step | None = None
        self.fork = False
        self.result: Any = None
        self.seen: ev.Site | None = None
        self.told: dict[int, tuple[ev.Effect, ...]] | None = None

    @property
    def site(self) -> ev.Site:
        """The record of this step for observers."""
        if self.seen is None:
            inst = self.tape.instance
            self.seen = ev.Site(
                self.code.node, self.iteration, inst.cta.index, inst.role_name, inst.index, self.number, self.code.path
            )
        return self.seen


class End(Code):
    """The end of a tape."""

    node = x.Exit()
    path = "end"

    def run(self, m: Executor, runner: Runner, step: Step) -> bool:
        return True


END = End()


class Block:
    """A compiled statement list. Each entry is a Code, or control: a function that yields steps or just acts."""

    def __init__(self, items: list[Code | Control]) -> None:
        self.items = items

    def walk(self, tape: Tape) -> Iterator[Step]:
        """The steps of one execution of the block."""
        for item in self.items:
            if isinstance(item, Code):
                if item.private:
                    tape.pass_by(item)
                else:
                    yield tape.step(item)
            else:
                steps = item.walk(tape)
                if steps is not None:
                    yield from steps


class Control:
    """Control that the tape interprets."""

    def walk(self, tape: Tape) -> Iterator[Step] | None:
        """Act, and give the steps that follow from it."""
        raise NotImplementedError


class Action(Control):
    """A change of the instance's variables, as ``node`` says."""

    def __init__(self, act: Callable[[Instance], None], node: x.Stmt | None = None) -> None:
        self.act = act
        self.node = node

    def walk(self, tape: Tape) -> None:
        self.act(tape.instance)


class Loop(Control):
    """For."""

    def __init__(self, node: x.For, lo: Scalar, hi: Scalar, step: Scalar, body: Block) -> None:
        self.node, self.lo, self.hi, self.step, self.body = node, lo, hi, step, body

    def walk(self, tape: Tape) -> Iterator[Step]:
        env, var = tape.instance.env, self.node.var
        outer = tape.iteration
        value, end = self.lo(env), self.hi(env)
        while value < end:
            env[var] = value
            tape.iteration = (*outer, (var, value))
            yield from self.body.walk(tape)
            step = self.step(env)  # which the body may have set
            assert step > 0, f"{var} does not move"
            value += step
        tape.iteration = outer


class Branch(Control):
    """If."""

    def __init__(self, cond: Scalar, then: Block, orelse: Block) -> None:
        self.cond, self.then, self.orelse = cond, then, orelse

    def walk(self, tape: Tape) -> Iterator[Step]:
        return (self.then if self.cond(tape.instance.env) else self.orelse).walk(tape)


class Tape:
    """The steps of one instance so far produced."""

    def __init__(self, instance: Instance, prologue: Block, body: Block) -> None:
        self.instance = instance
        self.iteration: tuple[tuple[str, int], ...] = ()
        self.count = 0
        self.head = Step(self, END, -1, (), None)
        self.head.fork = not prologue.items
        self._steps = self._walk(prologue, body)

    def _walk(self, prologue: Block, body: Block) -> Iterator[Step]:
        last = len(prologue.items)
        for number, step in enumerate(prologue.walk(self), 1):
            step.fork = number == last
            yield step
        yield from body.walk(self)
        yield Step(self, END, self.count, self.iteration, None)

    def step(self, code: Code) -> Step:
        """A new step of ``code``, with its operands evaluated now."""
        step = Step(self, code, self.count, self.iteration, None)
        self.count += 1
        step.data = code.prepare(self.instance)
        code.produced(self.instance, step)
        return step

    def pass_by(self, code: Code) -> None:
        """A private step: it takes its place on the tape, and happens. It counts as the agents' steps that it stands for."""
        inst = self.instance
        step = Step(self, code, self.count, self.iteration, None)
        self.count += 1
        inst.machine.count(code.executions(inst))
        code.produced(inst, step)
        code.act(inst, step)

    def after(self, step: Step, runner: Runner, runs_body: bool) -> Step | None:
        """The next step that ``runner`` executes; None where its program ends."""
        rank = runner.rank
        while True:
            if step.fork and not runs_body:
                return None
            following = step.next
            if following is None:
                following = step.next = next(self._steps)
            step = following
            if step.code is END:
                return None
            if step.code.alone or step.code.rank <= rank:
                return step
