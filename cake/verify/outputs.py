"""O501 and O502: every element of every output is written exactly once, counted over whole launches.

Reductions (TMA reduce, atomics) may meet an element any number of times, and cover it. ``inout`` tensors may keep what they
had, and where CTAs pass words on, they may hand an element of one from tile to tile (unordered writes are M401 then).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cake.diagnostics import Diagnostic
from cake.ir import expanded as x
from cake.machine import events as ev


class Coverage:
    """An observer that counts the writes of each element, and passes events on."""

    inputs = False

    def __init__(self, following: ev.Observer | None, shapes: dict[str, tuple[int, ...]]) -> None:
        self.following = following
        self.counts = {name: np.zeros(shape, dtype=np.int16) for name, shape in shapes.items()}
        self.combined: set[str] = set()
        self.sites: dict[str, dict[str, ev.Site]] = {}
        self.twice: dict[str, tuple[ev.Site | None, tuple[int, ...]]] = {}

    def start(self, setup: ev.Setup) -> None:
        """A batch starts."""
        if self.following is not None:
            self.following.start(setup)

    def event(self, event: ev.Event) -> None:
        """Count what writes."""
        if isinstance(event, ev.Access):
            if event.effect.mode != "r" and event.agent.half == "L":
                self._write(event.effect, event.site, event.atomic)
        elif isinstance(event, ev.Issue):
            for effect in event.effects:
                if effect.mode != "r" and isinstance(effect.region, ev.GlobalRegion):
                    self._write(effect, event.site, effect.mode == "rw")
        if self.following is not None:
            self.following.event(event)

    def end(self) -> None:
        """A batch has ended."""
        if self.following is not None:
            self.following.end()

    def _write(self, effect: ev.Effect, site: ev.Site | None, combines: bool) -> None:
        region = effect.region
        counts = self.counts.get(region.tensor) if isinstance(region, ev.GlobalRegion) else None
        if counts is None or not isinstance(region, ev.GlobalRegion):
            return
        if site is not None:
            self.sites.setdefault(region.tensor, {}).setdefault(site.path, site)
        if combines:
            self.combined.add(region.tensor)
        parts: list[Any] = []
        if region.spans is not None:
            flat = counts.reshape(-1)
            parts = [flat[lo:hi] for lo, hi in region.spans]
        elif region.box is not None:
            parts = [counts[tuple(slice(lo, max(lo, hi)) for lo, hi in region.box)]]
        for part in parts:
            if combines:
                np.maximum(part, 1, out=part)
                continue
            if region.tensor not in self.twice and part.size and part.max() > 0:
                self.twice[region.tensor] = site, ()
            part += 1


def coverage(kernel: x.Kernel, found: Coverage, launch: str, *, flags: bool = False) -> list[Diagnostic]:
    """The findings of one whole launch. ``flags``: CTAs wait for each other."""
    result = []
    for tensor in kernel.tensors:
        counts = found.counts.get(tensor.name)
        if counts is None or tensor.direction == "in" or tensor.name in found.combined:
            continue
        sites = found.sites.get(tensor.name, {})
        place = next(iter(sites.values()), None)
        span = place.span if place is not None and place.span is not None else tensor.span
        if tensor.direction == "out" and (counts == 0).any():
            at = tuple(map(int, np.argwhere(counts == 0)[0]))
            result.append(_finding("O501", f"`{tensor.name}`{list(at)} is never written", span, launch))
        if (counts > 1).any() and not (flags and tensor.direction == "inout"):
            at = tuple(map(int, np.argwhere(counts > 1)[0]))
            times = int(counts[at])
            site = found.twice.get(tensor.name, (None, ()))[0]
            where = site.span if site is not None and site.span is not None else span
            result.append(_finding("O502", f"`{tensor.name}`{list(at)} is written {times} times", where, launch))
    return result


def _finding(code: str, message: str, span: Any, launch: str) -> Diagnostic:
    help = {
        "O501": "every element of an output is written once; look at the tiles' extents and at predicates of stores",
        "O502": "let one tile own each element, or combine with atomics or tma.reduce",
    }[code]
    return Diagnostic(
        code=code, severity="error", message=message, span=span, witness=(f"launch: {launch}",), help=help
    )
