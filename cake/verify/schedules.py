"""Turning a violated condition into a failure: other schedules of the same launch, until one goes wrong.

A violation of D1, D3, D4 or D5 says that a run may go differently, not that it then goes wrong (docs/verification.md H38).
So all interleavings are searched, within a limit; and the machine runs the launch again under priority schedules, where what
counts as a failure can be seen in that one run: it stops, a barrier gets too much, a wait returns in another phase than
the one it was for, bytes of another fill are read, or bytes that nobody wrote. No failure found is not safe: it is *not
known* (U902).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cake.diagnostics import CakeError, Diagnostic
from cake.ir import expanded as x
from cake.machine import events as ev
from cake.machine.order.reader import Order
from cake.machine.order.report import of, steps
from cake.machine.run import run

UNDECIDED = frozenset({"P102", "P105", "P106", "P107", "P114"})
"""Conditions of determinacy: violated, another run may differ."""

SEEDS = 64
STATES = 20_000
"""States of the search over interleavings."""

SEEN = frozenset({"D208", "D209"})
"""Findings about what a run in fact read."""


class Watch(Order):
    """The order reading, noting the first wait that returns in a phase it was not for."""

    def __init__(self) -> None:
        super().__init__()
        self.wrong: str | None = None

    def event(self, event: ev.Event) -> None:
        """The next event."""
        if isinstance(event, ev.Pass) and self.wrong is None and event.intended not in (None, event.found):
            name = f"{event.barrier[1]}[{event.barrier[2]}]"
            self.wrong = (
                f"{of(event.agent)}{steps(event.site)} waits for phase {event.intended} of {name} and returns in phase "
                f"{event.found}"
            )
        super().event(event)


def failure(
    kernel: x.Kernel, arguments: Mapping[str, Any], *, ctas: int, max_steps: int, seeds: int = SEEDS
) -> tuple[tuple[str, ...] | None, int]:
    """The trace of a schedule that goes wrong (None: none was found), and how many were run."""
    from cake.verify.search import search

    outcome = search(kernel, arguments, limit=STATES, ctas=ctas, halves=True)
    if outcome.broken:
        return (f"a schedule that ends in: {outcome.kind}", *outcome.trace[-5:]), 1
    for seed in range(seeds):
        watch = Watch()
        try:
            run(kernel, arguments, ctas=ctas, seed=seed, observer=watch, values=False, max_steps=max_steps)
        except CakeError as error:
            first = error.diagnostics[0]
            if first.code != "U906":
                return _trace(seed, first), seed + 1
            continue
        if watch.wrong is not None:
            return (f"schedule {seed}: {watch.wrong}",), seed + 1
        for d in watch.findings:
            if d.code in SEEN:
                return _trace(seed, d), seed + 1
    return None, seeds


def _trace(seed: int, found: Diagnostic) -> tuple[str, ...]:
    return (f"schedule {seed}: {found.message}", *found.witness[:4])
