"""Symbolic execution of a reduced program for one kind of thread: an automaton over events.

A state is a block and the known values of the registers that are live there. Ring cursors and parities stay exact;
counters are exact up to the largest constant that they are compared with and then, in the loops that count, only bounded from
below; a branch on an unknown predicate goes both ways, and remembers the outcome where the predicate is used again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cake.ptx.flow import Event, Operand, Program, Set, counters, headers, live_in
from cake.ptx.values import Least, Value

Letter = tuple[Any, ...]
LIMIT = 200_000
"""States of one automaton."""
_EXACT = 64
_LEAST = -64


class Undecided(Exception):
    """The automaton grew beyond the limit."""


@dataclass(slots=True)
class State:
    """Letters in order (with whether each may repeat or be left out, and its place), then the next states."""

    letters: list[tuple[Letter, bool, Any]] = field(default_factory=list)
    after: tuple[int, ...] = ()


@dataclass(slots=True)
class Automaton:
    """States; the first is the start."""

    states: list[State]


class Explorer:
    """Runs one program for any number of threads."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.registers: dict[str, int] = {}
        self._initial: list[Value] = []
        self.live = [tuple(self._slot(r) for r in sorted(names)) for names in live_in(program)]
        self.counters = {self._slot(name): limit for name, limit in counters(program).items()}
        self.headers = {
            n: {self._slot(r) for r in names} & self.counters.keys() for n, names in headers(program).items()
        }
        self.code = [[self._compiled(s) for s in node.steps] for node in program.nodes]
        self.branch = [None if n.predicate is None else self._slot(n.predicate) for n in program.nodes]

    def _slot(self, operand: Operand) -> int:
        """The slot of a register or literal."""
        key = operand if isinstance(operand, str) else f"={operand!r}"
        if key not in self.registers:
            self.registers[key] = len(self._initial)
            self._initial.append(None if isinstance(operand, str) else operand)
        return self.registers[key]

    def _compiled(self, s: Set | Event) -> tuple[Any, ...]:
        args = tuple(self._slot(a) for a in (s.args + s.extra if isinstance(s, Event) else s.args))
        if isinstance(s, Event):
            return (None, None if s.result is None else self._slot(s.result), args, s)
        return (s.function, self._slot(s.dst), args, None)

    def run(self, inputs: Mapping[str, Value], exact: bool = False, limit: int = LIMIT) -> Automaton:
        """The automaton of the thread that starts with ``inputs``. ``exact``: counters stay exact, for a launch with
        known parameters, and the run ends where a predicate is not known."""
        initial = list(self._initial)
        for name, value in inputs.items():
            if name in self.registers:
                initial[self.registers[name]] = value
        seen: dict[tuple[int, int], set[int]] = {}
        bounds: dict[tuple[int, int], int] = {}
        numbers: dict[tuple[int, tuple[Value, ...]], int] = {}
        states: list[State] = []
        work: list[tuple[int, tuple[Value, ...]]] = []

        def number(block: int, env: list[Value]) -> int:
            live = self.live[block]
            if block in self.headers and not exact:
                counted = self.headers[block]  # here: another loop's counter has its value still
                values = tuple(self._widened(block, r, env[r], seen, bounds) if r in counted else env[r] for r in live)
            else:
                values = tuple([env[r] for r in live])
            key = (block, values)
            at = numbers.get(key)
            if at is None:
                if len(states) >= limit:
                    raise Undecided(f"more than {limit} states")
                at = numbers[key] = len(states)
                states.append(State())
                work.append(key)
            return at

        number(0, initial)
        done = 0
        while done < len(work):
            block, values = work[done]
            env = list(initial)
            for r, value in zip(self.live[block], values, strict=True):
                env[r] = value
            state = states[done]
            done += 1
            for function, dst, args, event in self.code[block]:
                if event is None:
                    env[dst] = function(*[env[a] for a in args])
                    continue
                head = event.head
                if dst is not None:
                    if not self._loops(block, event, env):
                        head = ("poll", *head[1:])
                    env[dst] = True
                state.letters.append(((*head, *[env[a] for a in args]), event.star, event.where))
            node, predicate = self.program.nodes[block], self.branch[block]
            if node.then is None:
                continue
            if predicate is None:
                state.after = (number(node.then, env),)
                continue
            assert node.other is not None
            taken = env[predicate]
            if taken is None and exact:
                state.after = (0, 0)  # a fork ends the run
            elif taken is None:
                env[predicate] = True
                first = number(node.then, env)
                env[predicate] = False
                state.after = (first, number(node.other, env))
            else:
                state.after = (number(node.then if taken else node.other, env),)
        return Automaton(states)

    def _widened(
        self,
        block: int,
        register: int,
        value: Value,
        seen: dict[tuple[int, int], set[int]],
        bounds: dict[tuple[int, int], int],
    ) -> Value:
        """A counter's value at the head of a loop, such that finitely many occur."""
        key = (block, register)
        if type(value) is int:
            known = seen.setdefault(key, set())
            if value in known:
                return value
            if value <= self.counters[register] and len(known) < _EXACT and value > _LEAST:
                known.add(value)
                return value
            if value <= _LEAST:
                return None
            return Least(bounds.setdefault(key, value)) if bounds.get(key, value) <= value else None
        if isinstance(value, Least):
            if value.bound <= _LEAST:
                return None
            if value.bound <= min(self.counters[register], _EXACT):
                return value
            bound = bounds.setdefault(key, value.bound)
            return Least(bound) if bound <= value.bound else None
        return value

    def _loops(self, block: int, event: Event, env: list[Value]) -> bool:
        """Whether a try_wait that fails is tried again, with the same operands and nothing in between."""
        trial = list(env)
        n, start = block, self.program.nodes[block].steps.index(event) + 1
        wanted = [env[self._slot(a)] for a in event.args]
        trial[self._slot(event.result or "")] = False
        for _ in range(8):
            node = self.program.nodes[n]
            for step, (function, dst, args, other) in zip(node.steps[start:], self.code[n][start:], strict=True):
                if other is not None:
                    return step is event and [trial[a] for a in args] == wanted
                trial[dst] = function(*[trial[a] for a in args])
            predicate = self.branch[n]
            taken = True if predicate is None else trial[predicate]
            following = None if taken is None else (node.then if taken else node.other)
            if following is None:
                return False
            n, start = following, 0
        return False
