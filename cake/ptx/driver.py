"""Compares the compiled code with what is expected of each kind of thread."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from cake.diagnostics import Diagnostic, Span
from cake.ptx.compare import Difference, difference
from cake.ptx.explore import Automaton, Explorer, Undecided
from cake.ptx.flow import Event, Program, without_extras
from cake.ptx.launches import LIMIT, Launch, first_difference, launches
from cake.ptx.lower import Invariants, lower, thread_inputs
from cake.ptx.reader import PtxError, read
from cake.ptx.report import HELP, finding
from cake.ptx.slicing import compact, drop_unknown, slice_program
from cake.ptx.values import Value


@dataclass(frozen=True)
class Thread:
    """A kind of thread of the expanded kernel. ``first``: in the first warp of its instance; ``leader``: in warp 0."""

    role: int
    instance: int
    first: bool
    leader: bool
    elected: bool


@dataclass(frozen=True)
class Subject:
    """A kernel as far as the comparison needs it. ``elects``: the target has elect.sync. ``scalars``: the launch
    parameters after the tensors; ``sampled``: those that get a value in a sampled launch. ``thread``: what the elected
    lane or the others of a warp are; ``expected``: what they are to do, with values of remainders told apart or not;
    ``apart``: whether there are any; ``positions``: the number of tiles; ``stars``: letters of which only the presence is compared."""

    name: str
    span: Span | None
    warps: int
    elects: bool
    cluster: int
    tensors: int
    scalars: list[str]
    sampled: list[str]
    thread: Callable[[int, bool], Thread]
    expected: Callable[[Thread, bool], Program]
    apart: bool
    positions: Callable[[Mapping[str, int]], Value]
    stars: frozenset[str]
    roles: list[tuple[str, Span | None]]


class _Side:
    """A reduced program for automata, and its form with coordinates for sampled launches."""

    def __init__(self, program: Program, known: Iterable[str] = ()) -> None:
        plain = without_extras(program)
        slice_program(plain)
        drop_unknown(plain, known)
        slice_program(program)
        compact(plain)
        compact(program)
        self.all, self.sampled = Explorer(plain), Explorer(program)


def differences(subject: Subject, ptx: str) -> list[Diagnostic]:
    """P119 for each role that differs, for the first kind of thread that does."""
    try:
        functions = read(ptx)
        if len(functions) != 1:
            raise PtxError(f"{len(functions)} entries")
        return _compared(subject, lower(functions[0]), functions[0].files)
    except (PtxError, Undecided) as e:
        return [
            Diagnostic(
                code="P119",
                severity="error",
                message=f"The compiled code of `{subject.name}` could not be compared with the checked kernel: {e}.",
                span=subject.span,
                help=HELP,
            )
        ]


def _compared(subject: Subject, program: Program, files: Mapping[int, str]) -> list[Diagnostic]:
    found: list[Diagnostic] = []
    for node in program.nodes:
        for s in node.steps:
            if isinstance(s, Event):
                s.star = s.head[0] in subject.stars
    compiled = _Side(program, thread_inputs(0, True, subject.elects))
    samples = list(launches(subject.sampled, subject.positions))
    invariants = Invariants(program, thread_inputs(0, True, subject.elects))
    compared: set[tuple[tuple[Value, ...], Thread]] = set()
    sides: dict[Thread, tuple[_Side, Automaton]] = {}
    wrong: set[int] = set()
    for warp, elected in itertools.product(range(subject.warps), (True, False)):
        thread, inputs = subject.thread(warp, elected), thread_inputs(warp, elected, subject.elects)
        key = (invariants.of(inputs), thread)
        if key in compared or thread.role in wrong:
            continue
        compared.add(key)
        if thread not in sides:
            side = _Side(subject.expected(thread, False))
            sides[thread] = side, side.all.run({})
        expected, automaton = sides[thread]
        mine = compiled.all.run(inputs)
        what, when = difference(mine, automaton), None
        if what is not None and subject.apart and not _unlike(mine, automaton, subject, thread):
            what = None
        for launch in samples if what is None else ():
            what, when = _sampled(subject, launch, compiled, inputs, expected), launch
            if what is not None:
                break
        if what is not None:
            wrong.add(thread.role)
            name, place = subject.roles[thread.role]
            note = f"in a launch with {_text(when)}" if when is not None else None
            found.append(finding(name, warp, elected, what, files, place, note))
    return found


def _unlike(compiled: Automaton, loose: Automaton, subject: Subject, thread: Thread) -> bool:
    """Whether the code can do what no outcome of the conditions allows, or cannot do what the values of remainders demand. The
    compiler knows that conditions on a remainder exclude each other; ``loose`` has each of them as it likes."""
    if difference(compiled, loose, within=True) is not None:
        return True
    demanded = _Side(subject.expected(thread, True)).all.run({})
    return difference(demanded, compiled, within=True) is not None


def _sampled(
    subject: Subject, launch: Launch, compiled: _Side, inputs: Mapping[str, Value], expected: _Side
) -> Difference | None:
    """The first difference in one launch; None also where the run is too long to follow."""
    parameters = launch.parameters(subject.tensors, subject.scalars, launch.scalars)
    mine = {**inputs, **parameters, **launch.blocks(subject.cluster)}
    names = {**launch.scalars, "%cta": launch.cta, "%grid": launch.grid, "%rank": 0}
    theirs = {f"scalar {name}": value for name, value in names.items()}
    try:
        return first_difference(
            compiled.sampled.run(mine, exact=True, limit=LIMIT), expected.sampled.run(theirs, exact=True, limit=LIMIT)
        )
    except Undecided:
        return None


def _text(launch: Launch) -> str:
    values = ", ".join(f"{name} = {value}" for name, value in launch.scalars.items())
    return f"{values}; block {launch.cta} of {launch.grid}"
