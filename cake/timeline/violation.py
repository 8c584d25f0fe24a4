"""Where a finding is in a run: the events it is about, and who hangs."""

from __future__ import annotations

from dataclasses import dataclass

from cake.diagnostics import Diagnostic
from cake.machine import events as ev
from cake.machine.order.report import steps
from cake.timeline.recording import Recording
from cake.timeline.ticks import agents


@dataclass(frozen=True)
class Place:
    """A finding's events: ``first`` and ``then`` (one of them may be missing) lack an edge from one to the other if ``unordered``;
    ``blocked``: the last event of each half warp that never ended."""

    first: int | None
    then: int | None
    unordered: bool
    blocked: tuple[int, ...]


def locate(recording: Recording, finding: Diagnostic) -> Place:
    """Find the events of a finding in its run."""
    blocked = _blocked(recording)
    for earlier, later in recording.batch.conflicts:
        spans = [label.span for label in finding.labels]
        there = earlier.site.span if earlier.site is not None else None
        if later.site is not None and later.site.span == finding.span and (not spans or there in spans):
            first, then = recording.batch.event_of(earlier), recording.batch.event_of(later)
            if first is not None and then is not None:
                return Place(first, then, True, blocked)
    stuck = [
        e.id for e in recording.batch.events if e.id in blocked and e.site is not None and e.site.span == finding.span
    ]
    if stuck:
        return Place(None, stuck[0], False, blocked)
    at = {fact.removeprefix("at ") for fact in finding.facts if fact.startswith("at ")}
    at |= {
        f.removeprefix("at ")
        for d in recording.findings
        if d.code == finding.code
        for f in d.facts
        if f.startswith("at ")
    }
    here = [e.id for e in recording.batch.events if e.site is not None and f"{e.site.path}{steps(e.site)}" in at]
    if not here and finding.span is not None:
        here = [e.id for e in recording.batch.events if e.site is not None and e.site.span == finding.span]
    return Place(None, here[-1] if here else (blocked[0] if blocked else None), False, blocked)


def _blocked(recording: Recording) -> tuple[int, ...]:
    """The last events of those that never exit, if the run stopped."""
    if not recording.stopped:
        return ()
    last: dict[int, ev.Event] = {}
    for event in recording.batch.events:
        for agent in agents(event):
            last[agent.index] = event
    return tuple(sorted({event.id for event in last.values() if not isinstance(event, ev.Exit)}))
