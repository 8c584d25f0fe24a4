"""One launch of whole tiles, with what hints need to know of it: where moves fall, and every event."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cake.diagnostics import CakeError
from cake.ir import expanded as x
from cake.machine import events as ev
from cake.machine.footprints import Footprint
from cake.machine.run import run
from cake.verify.launches import Family, Launch

MAX_STEPS = 100_000
"""A launch of more steps is not looked at."""


@dataclass(frozen=True)
class Step:
    """A dynamic step and where its elements lie. ``active``: how many it moves."""

    site: ev.Site
    footprint: Footprint
    active: int
    launch: str

    @property
    def text(self) -> str:
        """Where this was looked at."""
        at = ", ".join(f"{name}={value}" for name, value in self.site.iteration)
        return f"seen with {self.launch}" + (f" at {at}" if at else "")


class Watch(ev.Recorder):
    """An observer that keeps all events, and of each place in the program the fullest step."""

    def __init__(self, launch: Launch) -> None:
        super().__init__()
        self.launch = launch
        self.steps: dict[str, Step] = {}
        self.firsts: list[int] = []

    def start(self, setup: ev.Setup) -> None:
        """A batch of clusters starts."""
        super().start(setup)
        self.firsts.append(len(self.events))

    def batches(self) -> Iterator[tuple[ev.Setup, list[ev.Event]]]:
        """The events of each batch."""
        for i, (setup, first) in enumerate(zip(self.setups, self.firsts, strict=True)):
            yield setup, self.events[first : self.firsts[i + 1] if i + 1 < len(self.firsts) else None]

    def moved(self, site: ev.Site, footprint: Footprint) -> None:
        """An element move is about to happen."""
        count = footprint.numbers.size if footprint.mask is None else int(np.count_nonzero(footprint.mask))
        known = self.steps.get(site.path)
        if known is None or count > known.active:
            self.steps[site.path] = Step(site, footprint, count, self.launch.text)


def watch(kernel: x.Kernel) -> Watch | None:
    """A run of ``kernel`` on a launch of whole tiles; None if there is none that ends within ``MAX_STEPS``."""
    return next((found for launch in Family(kernel).whole() if (found := observe(kernel, launch)) is not None), None)


def observe(kernel: x.Kernel, launch: Launch) -> Watch | None:
    """A run of ``kernel`` on ``launch``; None if it does not come to its end."""
    found = Watch(launch)
    try:
        run(kernel, launch.arguments, observer=found, values=False, max_steps=MAX_STEPS)
    except CakeError:
        return None
    return found
