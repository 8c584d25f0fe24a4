"""The launch that a timeline shows: the one that a finding names, else a small one of whole tiles; run once and kept.

The run is the canonical one of the order reading (``cake.machine.order``), so what stands in the events is what was judged. Batches of
clusters that run one after another are launches of their own here: the first with a finding is shown, else the first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any

from cake.diagnostics import CakeError, Diagnostic
from cake.ir import expanded as x
from cake.machine import events as ev
from cake.machine.order.reader import Order
from cake.machine.order.shadow import Access
from cake.machine.run import run
from cake.verify.launches import Family, Launch
from cake.verify.verdict import Verdict

MAX_STEPS = 400_000
SOUGHT = 400
"""Launches among which the one of a finding is looked for; the verifier derives them in the same order."""

COMFORT = 12_000
"""Events up to which a launch is taken that no finding names, if a smaller one is at hand."""

Conflict = tuple[Access, Access]


@dataclass
class Batch:
    """The events of clusters that ran together. ``places``: the event of each agent (column) and its event number there, as the
    order reading counts; ``conflicts``: pairs that are not ordered; ``findings``: what the order reading said."""

    setup: ev.Setup
    events: list[ev.Event] = field(default_factory=list)
    places: dict[tuple[int, int], int] = field(default_factory=dict)
    conflicts: list[Conflict] = field(default_factory=list)
    findings: list[Diagnostic] = field(default_factory=list)

    def event_of(self, access: Access) -> int | None:
        """The id of the event that made an access (an operation: of its issue)."""
        return self.places.get((access.column, access.number))


class Scribe:
    """An observer: the order reading, and every event beside what it says."""

    def __init__(self) -> None:
        self.order = Order()
        self.batches: list[Batch] = []
        self.told = 0

    def start(self, setup: ev.Setup) -> None:
        """A batch starts."""
        self.order.start(setup)
        self.batches.append(Batch(setup))

    def event(self, event: ev.Event) -> None:
        """Keep and pass on."""
        self.order.event(event)
        batch = self.batches[-1]
        batch.events.append(event)
        if isinstance(event, ev.Access | ev.Issue):
            for agent in event.agents if isinstance(event, ev.Issue) else (event.agent,):
                column = self.order.columns.agent(agent)
                batch.places[column, self.order.numbers[column]] = event.id

    def end(self) -> None:
        """A batch has ended."""
        self.close(complete=True)

    def close(self, *, complete: bool) -> None:
        """Take down what the reading found in the batch."""
        if not self.batches or not self.order.running:
            return
        races = self.order.races
        self.order.finish(complete=complete)
        batch = self.batches[-1]
        batch.conflicts = [(p.earlier, p.later) for p in races.pairs.values()] + list(races.stale)
        batch.findings = self.order.findings[self.told :]
        self.told = len(self.order.findings)


@dataclass
class Recording:
    """A launch, the batch of it that is shown, which one that is of how many, and what stopped the run, if anything."""

    launch: Launch
    batch: Batch
    number: int
    batches: int
    stopped: tuple[Diagnostic, ...]

    @property
    def findings(self) -> list[Diagnostic]:
        """Everything that was found in this batch."""
        return [*self.stopped, *self.batch.findings]


def record(kernel: x.Kernel, launch: Launch, ctas: int = 2) -> Recording | None:
    """Run a launch; None if nothing was started (an empty launch, arguments that guards refuse)."""
    scribe = Scribe()
    stopped: tuple[Diagnostic, ...] = ()
    try:
        run(kernel, launch.arguments, ctas=ctas, observer=scribe, values=False, max_steps=MAX_STEPS)
    except CakeError as error:
        stopped = error.diagnostics
        scribe.close(complete=False)
    if not scribe.batches:
        return None
    failing = [i for i, batch in enumerate(scribe.batches) if batch.findings]
    chosen = len(scribe.batches) - 1 if stopped else failing[0] if failing else 0
    return Recording(launch, scribe.batches[chosen], chosen, len(scribe.batches), stopped)


def choose(kernel: x.Kernel, verdict: Verdict) -> Recording | None:
    """The launch that the first finding names, as the verifier ran it; without one a launch of whole tiles."""
    named = [_named(d) for d in verdict.diagnostics]
    wanted = next((text for text in named if text is not None), None)
    if wanted is not None:
        for launch in _family(kernel, wanted):
            if launch.text == wanted:
                return record(kernel, launch)
    found: Recording | None = None
    for launch in chain(Family(kernel).whole(), islice(Family(kernel).launches(), 2)):
        recording = record(kernel, launch)
        if recording is not None and (found is None or len(recording.batch.events) < len(found.batch.events)):
            found = recording
        if found is not None and len(found.batch.events) <= COMFORT:
            break
    return found


def _named(d: Diagnostic) -> str | None:
    """The launch in a finding's witness."""
    return next((line.removeprefix("launch: ") for line in d.witness if line.startswith("launch: ")), None)


def _family(kernel: x.Kernel, wanted: str) -> Iterator[Launch]:
    """The verifier's launches, then those aimed at the values in the text."""
    family = Family(kernel)
    yield from islice(family.launches(), SOUGHT)
    values: dict[str, Any] = {}
    for part in wanted.split(", "):
        name, _, value = part.partition("=")
        if value.lstrip("-").isdigit():
            values[name] = int(value)
    yield from family.aimed({n: v for n, v in values.items() if n in {d.name for d in kernel.dims}})
