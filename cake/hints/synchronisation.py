"""H951: a written barrier, fence or wait that orders nothing which is not ordered without it.

The edges of one statement are left out of a recorded run (``trail``). If everything that must be ordered still is, the statement is
taken out of the program itself, and the verifier decides what is left: over all trip counts where its graph closes, else on
launches with more trips and more tiles than any ring has slots (with fewer, half of a ring's waits look idle). Statements that
are found superfluous stay out while the others are looked at, so all hints of a kernel hold together.

Turns are not looked at: authors write them for the order in which roles reach the tensor cores, which nothing else needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cake.diagnostics import Diagnostic, Label, Span
from cake.hints.trail import Lesson, Need, Record, Trail, read
from cake.hints.watch import Watch, observe
from cake.ir import expanded as x
from cake.machine import events as ev
from cake.machine.order.report import of
from cake.verify.engine import Budget, verify
from cake.verify.launches import Family, ranges

CLOSING = Budget(steps=200_000, seconds=2.0, launches=0.2, least=3)
"""What is spent on the program without a statement."""

LINES, EXPLAINED = 4, 2
"""Needs that a hint tells of, and runs that they are looked for in, the shortest first."""


@dataclass(frozen=True)
class Candidate:
    """A written statement: the places in the expanded program that came from it, and one of their nodes."""

    node: x.Stmt
    paths: frozenset[str]


class Runs:
    """Recorded runs of a kernel: a given one, then launches deeper than its rings, made when they are asked for."""

    def __init__(self, kernel: x.Kernel, first: Watch) -> None:
        self.made = [first]
        self.rest = (run for launch in Family(kernel).deep() if (run := observe(kernel, launch)) is not None)

    def __iter__(self) -> Iterator[Watch]:
        yield from list(self.made)
        for run in self.rest:
            self.made.append(run)
            yield run


def synchronisation_hints(kernel: x.Kernel, watch: Watch) -> list[Diagnostic]:
    """The hints; ``kernel`` has been found safe, and ``watch`` is a run of it."""
    removed: frozenset[str] = frozenset()
    hints = []
    runs = Runs(kernel, watch)
    for candidate in candidates(kernel):
        both = removed | candidate.paths
        if all(read(run, Trail(both), stop=True) for run in runs):
            claim = _safe(without(kernel, both), candidate.paths, runs.made)
            if claim is not None:
                hints.append(_hint(kernel, runs.made, candidate, removed, claim))
                removed = both
    return hints


def candidates(kernel: x.Kernel) -> list[Candidate]:
    """The statements that are looked at, in the order of the source."""
    found: dict[tuple[str, Span], list[tuple[str, x.Stmt]]] = {}
    for role in kernel.roles:
        for path, node in _places(role.body, role.name):
            if node.reason == "written" and node.span is not None and _orders(node):
                found.setdefault((node.kind, node.span), []).append((path, node))
    result = [Candidate(places[0][1], frozenset(p for p, _ in places)) for places in found.values()]
    return sorted(result, key=lambda c: (c.node.span.line, c.node.span.column) if c.node.span is not None else (0, 0))


def _orders(node: x.Stmt) -> bool:
    fence = isinstance(node, x.Fence) and node.what in ("async_shared", "async_global")
    return fence or isinstance(node, x.Named | x.SyncWarp | x.GroupWait | x.Wait)


def _places(body: Sequence[x.Stmt], path: str) -> Iterator[tuple[str, x.Stmt]]:
    """Statements with their places, named as the machine names them (``Site.path``)."""
    for i, node in enumerate(body):
        here = f"{path}.{i}"
        yield here, node
        if isinstance(node, x.For):
            yield from _places(node.body, here)
        elif isinstance(node, x.If):
            yield from _places(node.then, here + ".then")
            yield from _places(node.orelse, here + ".else")


def without(kernel: x.Kernel, paths: frozenset[str]) -> x.Kernel:
    """The kernel without the statements at some places."""
    roles = tuple(r.model_copy(update={"body": _without(r.body, r.name, paths)}) for r in kernel.roles)
    return kernel.model_copy(update={"roles": roles})


def _without(body: tuple[x.Stmt, ...], path: str, paths: frozenset[str]) -> tuple[x.Stmt, ...]:
    kept: list[x.Stmt] = []
    for i, node in enumerate(body):
        here = f"{path}.{i}"
        if here in paths:
            continue
        if isinstance(node, x.For):
            node = node.model_copy(update={"body": _without(node.body, here, paths)})
        elif isinstance(node, x.If):
            then, orelse = _without(node.then, here + ".then", paths), _without(node.orelse, here + ".else", paths)
            node = node.model_copy(update={"then": then, "orelse": orelse})
        kept.append(node)
    return tuple(kept)


def _safe(kernel: x.Kernel, paths: frozenset[str], runs: Sequence[Watch]) -> str | None:
    """How far ``kernel`` is safe; None if it is not, or not known to be. ``runs`` are right without its edges at ``paths``: where
    nothing is proved they say how far, and must have come to all of these places."""
    verdict = verify(kernel, budget=CLOSING)
    if verdict.status != "safe" or verdict.proved:
        return verdict.claim if verdict.proved else None
    reached = {e.site.path for r in runs for e in r.events if e.site is not None}
    return f"checked up to {ranges([r.launch for r in runs])}" if paths <= reached else None


# ---- telling --------------------------------------------------------------------------------------------------------


def _hint(
    kernel: x.Kernel, runs: Sequence[Watch], candidate: Candidate, removed: frozenset[str], claim: str
) -> Diagnostic:
    node, word = candidate.node, _word(candidate.node)
    told: dict[tuple[object, ...], str] = {}
    labels: dict[Span, str] = {}
    near = [r for r in sorted(runs, key=lambda r: len(r.events)) if _events(r, candidate)]
    for run in near[:EXPLAINED]:
        if told:
            break
        for key, (line, place) in _kept(run, candidate, removed).items():
            if key not in told and len(told) < LINES:
                told[key] = line
                if place is not None and place != node.span:
                    labels.setdefault(place, "orders this already")
    facts = tuple(told.values())
    if not facts and isinstance(node, x.GroupWait) and not any(e.ops for r in near for e in _events(r, candidate)):  # type: ignore[attr-defined]
        facts = ("every group that it waits for has been waited for before",)
    facts = facts or (f"no two accesses and no phase of a barrier are ordered by this {word}",)
    return Diagnostic(
        code="H951",
        severity="hint",
        message=f"this {word} is not needed: everything that must be ordered is ordered without it",
        span=node.span,
        labels=tuple(Label(span=span, text=text) for span, text in labels.items()),
        facts=(*facts, f"{kernel.name} without it is safe: {claim}"),
        help=f"leave the {word} out" if not isinstance(node, x.Wait) else "let one pipeline carry both",
    )


def _events(run: Watch, candidate: Candidate) -> list[ev.Event]:
    """What the statement did in a run."""
    kinds = (ev.NamedArrive, ev.Join, ev.Fence, ev.GroupWait, ev.Pass)
    return [e for e in run.events if isinstance(e, kinds) and e.site is not None and e.site.path in candidate.paths]


def _kept(
    run: Watch, candidate: Candidate, removed: frozenset[str]
) -> dict[tuple[object, ...], tuple[str, Span | None]]:
    """What the statement orders in a run, by kind and places, each with what it rests on without the statement."""
    whole = Trail(removed, candidate.paths, noting=True)
    bare = Trail(removed | candidate.paths, noting=True)
    read(run, whole)
    read(run, bare)
    found: dict[tuple[object, ...], tuple[str, Span | None]] = {}
    for with_it, without_it in zip(whole.records, bare.records, strict=True):
        for need in with_it.across.values():
            key = (need.key[0], need.first and need.first.span, need.then and need.then.span)
            if key not in found:
                found[key] = _still(need, with_it, without_it, _word(candidate.node))
    return found


def _still(need: Need, with_it: Record, without_it: Record, word: str) -> tuple[str, Span | None]:
    """What a need rests on without the statement, in words, and where that is."""
    at = max((m.number for m in with_it.marks if m.column == need.column and m.number <= need.number), default=0)
    for lesson in without_it.lessons.get(need.column, ()):
        if lesson.number > need.number:
            break
        if need.met(lesson.clock):
            early = f"{_steps(at - lesson.number)} before this {word}" if lesson.number < at else ""
            slack = early or f"{_steps(need.number - lesson.number)} before it is needed"
            return f"{need.text}: {_by(lesson)}, {slack}", _span(lesson)
    return f"{need.text}: by the program of the warp itself", None


def _steps(n: int) -> str:
    return f"{n} step{'' if n == 1 else 's'}"


def _span(lesson: Lesson) -> Span | None:
    return lesson.site.span if lesson.site is not None else None


def _by(lesson: Lesson) -> str:
    event = lesson.event
    where = f" of line {span.line}" if (span := _span(lesson)) is not None else ""
    if isinstance(event, ev.Pass):
        return f"known since the wait for `{event.barrier[1]}`{where}"
    if isinstance(event, ev.GroupWait):
        return f"known since the {event.queue} wait{where}"
    if isinstance(event, ev.Fence):
        return f"known since the fence{where}"
    if isinstance(event, ev.Join):
        return f"known since the {event.name}{where}"
    if isinstance(event, ev.NamedGeneration):
        return f"known since the barrier{where}"
    return f"known since a step of {of(event.agent)}{where}" if isinstance(event, ev.Access) else f"known{where}"


def _word(node: x.Stmt) -> str:
    if isinstance(node, x.Fence):
        return "fence"
    if isinstance(node, x.Named | x.SyncWarp):
        return "barrier"
    return "wait"
