"""What each slot of each ring holds over time.

A slot with mbarriers is *filling* from the first thing that contributes to its fill until the full barrier's phase completes, *full*
until the empty barrier's phase does, and free otherwise. A slot of a store ring is filling from the first write and *stored* from the
issue of the bulk store until that has read it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from cake.ir import expanded as x
from cake.machine import events as ev


@dataclass
class Segment:
    """One state of a slot between two ticks. ``fill`` counts the slot's fills, ``position`` those of the ring; ``event`` is the
    one that began the state; ``last`` None: it goes on to the end."""

    first: int
    last: int | None
    state: str
    fill: int
    position: int
    event: int


@dataclass
class Slot:
    """A lane: one slot of a ring in one CTA, or (store rings) of one instance there, ``owner``."""

    ring: str
    cta: int
    owner: tuple[str, int] | None
    slot: int
    segments: list[Segment] = field(default_factory=list)

    @property
    def open(self) -> Segment | None:
        """The state that goes on."""
        return self.segments[-1] if self.segments and self.segments[-1].last is None else None

    def turn(self, tick: int, state: str | None, slots: int, event: int, *, fresh: bool = False) -> None:
        """The slot changes its state (None: free). ``fresh``: a new fill begins."""
        before = self.open
        fill = (self.segments[-1].fill if self.segments else -1) + fresh
        if before is not None:
            before.last = tick
        if state is not None:
            fill = max(fill, 0)
            self.segments.append(Segment(tick, None, state, fill, fill * slots + self.slot, event))


def slots(kernel: x.Kernel, events: Sequence[ev.Event], times: Sequence[int]) -> list[Slot]:
    """The lanes of all rings."""
    return _Rings(kernel).read(events, times)


class _Rings:
    def __init__(self, kernel: x.Kernel) -> None:
        self.rings = {ring.name: ring for ring in kernel.rings}
        self.full = {ring.full: ring for ring in kernel.rings if ring.full is not None}
        self.empty = {ring.empty: ring for ring in kernel.rings if ring.empty is not None}
        self.fields = {name: ring for ring in kernel.rings for name in ring.fields}
        self.lanes: dict[tuple[str, int, tuple[str, int] | None, int], Slot] = {}
        self.stores: dict[int, tuple[Slot, x.Ring]] = {}

    def read(self, events: Sequence[ev.Event], times: Sequence[int]) -> list[Slot]:
        for event, tick in zip(events, times, strict=True):
            if isinstance(event, ev.Contrib) and event.barrier[1] in self.full:
                self._filling(self.full[event.barrier[1]], event.barrier, tick, event.id)
            elif isinstance(event, ev.Phase):
                self._phase(event, tick)
            elif isinstance(event, ev.Access | ev.Issue):
                self._touch(event, tick)
            elif isinstance(event, ev.Done) and event.part == "reads" and event.op.id in self.stores:
                lane, ring = self.stores.pop(event.op.id)
                if lane.open is not None and lane.open.state == "stored":
                    lane.turn(tick, None, ring.slots, event.id)
        order = {name: i for i, name in enumerate(self.rings)}
        return sorted(self.lanes.values(), key=lambda s: (s.cta, order[s.ring], s.owner or (), s.slot))

    def _lane(self, ring: x.Ring, cta: int, owner: tuple[str, int] | None, slot: int) -> Slot:
        key = (ring.name, cta, owner, slot)
        if key not in self.lanes:
            for n in range(ring.slots):
                self.lanes.setdefault((ring.name, cta, owner, n), Slot(ring.name, cta, owner, n))
        return self.lanes[key]

    def _filling(self, ring: x.Ring, barrier: ev.BarrierKey, tick: int, event: int) -> None:
        lane = self._lane(ring, barrier[0], None, barrier[2])
        if lane.open is None or lane.open.state != "filling":
            lane.turn(tick, "filling", ring.slots, event, fresh=True)

    def _phase(self, event: ev.Phase, tick: int) -> None:
        name = event.barrier[1]
        if name in self.full:
            ring = self.full[name]
            self._lane(ring, event.barrier[0], None, event.barrier[2]).turn(tick, "full", ring.slots, event.id)
        elif name in self.empty:
            ring = self.empty[name]
            lane = self._lane(ring, event.barrier[0], None, event.barrier[2])
            if lane.open is not None and lane.open.state == "full":
                lane.turn(tick, None, ring.slots, event.id)

    def _touch(self, event: ev.Access | ev.Issue, tick: int) -> None:
        for effect in event.effects if isinstance(event, ev.Issue) else (event.effect,):
            region = effect.region
            ring = self.fields.get(region.buffer) if isinstance(region, ev.SharedRegion) else None
            if ring is None or ring.kind != "store" or not isinstance(region, ev.SharedRegion):
                continue
            lane = self._lane(ring, region.cta, (event.agent.role, event.agent.instance), region.slot)
            if isinstance(event, ev.Issue):
                lane.turn(tick, "stored", ring.slots, event.id)
                self.stores[event.op.id] = lane, ring
            elif effect.mode != "r" and (lane.open is None or lane.open.state != "filling"):
                lane.turn(tick, "filling", ring.slots, event.id, fresh=True)
