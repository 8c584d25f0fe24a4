"""Consistent cuts: an executor that stops every agent at the heads of loops and goes on when nothing else can run.

Stopping there is one legal schedule. When all agents that live are at gates, the cut is consistent, and every
asynchronous operation has completed (though who knows of it is another matter); the state of the machine and of the
order reading can be compared with that of another cut. Agents that wait for something elsewhere only lose the cut:
gates open when nothing else can run, so they never stop a program that would go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from cake.ir import expanded as x
from cake.ir.expr import Const
from cake.machine.agents import Runner
from cake.machine.executor import Executor
from cake.machine.instance import Instance
from cake.machine.program import RoleProgram
from cake.machine.stuck import report
from cake.machine.synchronise import Named
from cake.machine.tape import Action, Block, Branch, Code, Loop, Step, Tape
from cake.verify.control import leaves
from cake.verify.shifts import Shifts, watched

Values = dict[Any, Any]


Place = tuple[str, int, str, tuple[tuple[str, int], ...]]
"""One execution of a loop: role, instance, the loop's path, the iterations around it."""


class Gate(Code):
    """The head of an iteration. ``tile``: of the walk over tiles; ``free``: how often the loop runs is not the same for all
    counts."""

    node = x.SyncWarp()

    def __init__(self, loop: x.For, path: str, tile: bool, alone: bool, own: set[str]) -> None:
        """``own``: the variable of the role's instances."""
        self.loop = loop
        self.path = path
        self.tile = tile
        self.alone = alone
        self.free = bool((leaves(loop.lo) | leaves(loop.hi)) - own)

    def place(self, step: Step) -> Place:
        """Which execution of the loop the step belongs to."""
        inst = step.tape.instance
        return inst.role_name, inst.index, self.path, step.iteration[:-1]

    def prepare(self, inst: Instance) -> tuple[int, int, int]:
        """The iteration: how many came before, how many follow, and its index."""
        if self.tile:
            return 0, 0, 0
        env = inst.env
        value = env[self.loop.var]
        return value - env[f"%lo.{self.path}"], env[f"%hi.{self.path}"] - value, value

    def run(self, m: Executor, runner: Runner, step: Step) -> bool:
        if runner.released:
            return True
        assert isinstance(m, Explorer)
        if self.free and not self.tile:
            m.entered.add(self.place(step))
        m.gated.append(runner)
        return False


class GatedLoop(Loop):
    """A loop whose iterations begin at a gate."""

    def __init__(self, loop: Loop, gate: Gate) -> None:
        super().__init__(loop.node, loop.lo, loop.hi, loop.step, loop.body)
        self.gate = gate

    def walk(self, tape: Tape) -> Iterator[Step]:
        env, var = tape.instance.env, self.node.var
        outer = tape.iteration
        lo, hi = self.lo(env), self.hi(env)
        env[f"%lo.{self.gate.path}"], env[f"%hi.{self.gate.path}"] = lo, hi
        for value in range(lo, hi, self.step(env)):
            env[var] = value
            tape.iteration = (*outer, (var, value))
            yield tape.step(self.gate)
            yield from self.body.walk(tape)
        tape.iteration = outer


class Tiles(Loop):
    """The walk over tiles, by rounds in which every instance gets as many (most often: one tile). After each gate the explorer
    says what the tiles of the next round are like, and how many there are: fewer in the last one."""

    def __init__(self, loop: Loop, gate: Gate) -> None:
        super().__init__(loop.node, loop.lo, loop.hi, loop.step, loop.body)
        self.gate = gate

    def walk(self, tape: Tape) -> Iterator[Step]:
        inst, outer = tape.instance, tape.iteration
        machine = inst.machine
        assert isinstance(machine, Explorer)
        number = 0
        dealt = isinstance(self.node.step, Const) and self.node.step.value != 1
        while True:
            yield tape.step(self.gate)
            values, count = machine.tile(number, inst)
            inst.env.update(values)
            for i in range(inst.index, min(count, inst.index + 1)) if dealt else range(count):
                tile = number * machine.round + i
                inst.env[self.node.var] = tile
                tape.iteration = (*outer, (self.node.var, tile))
                yield from self.body.walk(tape)
            tape.iteration = outer
            if count < machine.round:
                break
            number += 1


def gated(
    programs: tuple[RoleProgram, dict[str, RoleProgram]], skips: bool = False
) -> tuple[RoleProgram, dict[str, RoleProgram]]:
    """Put a gate at the head of every loop whose number of iterations is not constant; ``skips``: note down what cursors skip."""
    entry, roles = programs
    for name, program in roles.items():
        solo = program.role is not None and program.role.solo
        own = {program.role.var} if program.role is not None and program.role.var is not None else set()
        _gate(program.body, name, solo, own, skips)
    return entry, roles


def _gate(block: Block, path: str, alone: bool, own: set[str], skips: bool) -> None:
    for i, item in enumerate(block.items):
        here = f"{path}.{i}"
        if isinstance(item, Loop):
            _gate(item.body, here, alone, own, skips)
            gate = Gate(item.node, here, item.node.role == "tiles", alone, own)
            if gate.tile:
                block.items[i] = Tiles(item, gate)
            elif not (item.node.lo.kind == "const" and item.node.hi.kind == "const"):
                block.items[i] = GatedLoop(item, gate)
        elif isinstance(item, Action):
            block.items[i] = watched(item) if skips else item
        elif isinstance(item, Branch):
            _gate(item.then, here + ".then", alone, own, skips)
            _gate(item.orelse, here + ".else", alone, own, skips)


def at_tile(runner: Runner) -> bool:
    """The agent is at the head of the walk over tiles."""
    return runner.step is not None and isinstance(runner.step.code, Gate) and runner.step.code.tile


def turning(runner: Runner) -> bool:
    """The agent waits at a named barrier in a tile, outside of inner loops: it has arrived, and all that it waits for is that
    barrier's generation."""
    step = runner.step
    return step is not None and isinstance(step.code, Named) and step.code.form == "sync" and len(step.iteration) == 1


class Explorer(Executor):
    """An executor with gates. ``cut`` is called whenever every agent that lives is at one, with True if all are at the
    walk over tiles; ``tile`` gives the values of tile ``number`` for an instance. ``entered``: the executions of loops
    whose heads agents have come to."""

    cut: Callable[[bool], None]
    choose: Callable[[int, Instance], tuple[Values, int]]
    round: int
    shifts: Shifts | None = None

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.gated: list[Runner] = []
        self.entered: set[Place] = set()

    def tile(self, number: int, inst: Instance) -> tuple[Values, int]:
        """What the tiles of the next round are like, and how many there are."""
        return self.choose(number, inst)

    def _living(self) -> list[Runner]:
        return [r for r in self.runners if not r.done]

    def run(self, max_steps: int | None) -> None:
        """Run to the end, cut by cut. While agents are inside loops, those at the head of the walk stay there."""
        self.most = self.steps + (max_steps or 1 << 60)
        started = False
        while True:
            if not started:
                self.start()
                started = True
            self.drain()
            if not self.gated:
                break
            inner = [r for r in self.gated if not at_tile(r)]
            if len(self.gated) == self.live or (inner and all(r in self.gated or turning(r) for r in self._living())):
                self.cut(not inner)
            waiting = inner or self.gated
            self.gated = [r for r in self.gated if r not in waiting]
            for runner in sorted(waiting, key=lambda r: r.agent.index):
                runner.released = True
                self.wake(runner)
        if self.live:
            report(self)
        if self.observer is not None:
            self.observer.end()
