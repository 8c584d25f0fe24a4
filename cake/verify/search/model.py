"""Agents compiled for the search: visible steps, and between two of them a *segment* of accesses and issues.

An agent that stands before its visible step k may be anywhere in segment k: it can have done all or none of it. So two accesses
can be enabled together exactly if a state is reachable in which their agents stand in those segments, and the search need not
interleave accesses at all. Issuing an operation is likewise part of its segment: it only adds to what is in flight.

What an agent's own group queues (bulk, cp.async, wgmma) have in flight is a function of its place; only operations that complete
on an mbarrier are part of the state. A group wait before which and after which nothing happens up to the next visible step is
taken together with that step: waiting longer before it only keeps more in flight.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cake.verify.search.lower import Launch
from cake.verify.search.steps import Agent, Slot, Step, Tag, Touch

Foot = tuple[int, int, int]
"""Atoms read, written, and updated atomically."""

EMPTY: Foot = (0, 0, 0)
VISIBLE = {"wait", "arrive", "named", "cluster", "init", "setmaxnreg", "signal", "wait_until"}


def conflict(f: Foot, g: Foot) -> int:
    """The atoms on which two footprints conflict."""
    return f[1] & (g[0] | g[1] | g[2]) | g[1] & (f[0] | f[2]) | f[0] & g[2] | f[2] & g[0]


def union(f: Foot, g: Foot) -> Foot:
    """Both."""
    return f[0] | g[0], f[1] | g[1], f[2] | g[2]


def foot(mode: str, mask: int) -> Foot:
    """The footprint of one access."""
    return (mask, 0, 0) if mode == "r" else (0, mask, 0) if mode == "w" else (0, 0, mask)


@dataclass(eq=False)
class Part:
    """One part (reads of sources, or writes) of an asynchronous operation. ``landing``: where it signals."""

    number: int
    foot: Foot
    step: Step
    agent: int
    barriers: tuple[Slot, ...] = ()
    bytes: int = 0
    weight: int = 0
    writes: tuple[tuple[int, Tag | None], ...] = ()
    ctas: frozenset[int] = frozenset()
    read: bool = False
    after: tuple[int, ...] = ()


@dataclass
class Item:
    """An access or issue of a segment, in order: what it reads and writes of shared memory."""

    step: Step
    reads: list[tuple[int, Tag | None]] = field(default_factory=list)
    writes: list[tuple[int, Tag | None]] = field(default_factory=list)


@dataclass
class Place:
    """Where an agent can stand: before a visible step (None: at its end)."""

    step: Step | None
    items: list[Item] = field(default_factory=list)
    seg: Foot = EMPTY
    issued: list[Part] = field(default_factory=list)
    flying: Foot = EMPTY
    leaks: list[Part] = field(default_factory=list)
    wgmma: int = 0
    race: str = ""
    everything: Foot = EMPTY


class Track:
    """The places of one agent."""

    def __init__(self, model: Model, agent: Agent) -> None:
        self.model = model
        self.agent = agent
        self.places: list[Place] = []
        self.open: dict[str, list[Part]] = {"bulk": [], "cp_async": [], "wgmma": []}
        self.groups: dict[str, list[list[Part]]] = {"bulk": [], "cp_async": [], "wgmma": []}
        self.lazy: list[Step] = []
        self.copies: list[int] = []
        self.place = Place(None)
        self._begin()
        for step, touched in zip(agent.program, agent.touched, strict=True):
            self._step(step, touched)
        self._close(None)

    def _live(self, queue: str) -> list[Part]:
        return [p for group in self.groups[queue] for p in group] + self.open[queue]

    def _begin(self) -> None:
        self.place = Place(None)
        self._note()

    def _note(self) -> None:
        place, flying = self.place, EMPTY
        for queue in ("bulk", "cp_async"):
            for part in self._live(queue):
                flying = union(flying, part.foot)
        place.flying = flying
        place.wgmma = sum(1 << p.number for p in self._live("wgmma"))
        place.leaks = [p for q in self.groups for p in self._live(q)]

    def _close(self, step: Step | None) -> None:
        """Place complete: the agent stands before ``step``. Lazy group waits happen with it (the last ones at the end)."""
        if step is None and self.lazy:
            last = self.lazy[-1]
            self.place.step = last
            self._finish()
            self._retire()
            self._begin()
        self.place.step = step
        self._finish()
        self._retire()
        if step is not None:
            self._begin()

    def _finish(self) -> None:
        self.place.everything = union(self.place.seg, self.place.flying)
        self.places.append(self.place)

    def _retire(self) -> None:
        for wait in self.lazy:
            groups = self.groups[wait.queue]
            upto = len(groups) - wait.keep
            for group in groups[: max(0, upto)]:
                group[:] = [p for p in group if wait.read and not p.read]
        self.lazy = []

    def _step(self, step: Step, touched: list[tuple[Touch, int]]) -> None:
        if step.kind in VISIBLE or self.model.meets(self.agent, step):
            self._close(step)
            if step.kind == "issue":
                self._issue(step, touched)
            elif step.kind == "access" and touched:
                self._access(step, touched)
        elif step.kind == "gwait":
            groups = self.groups[step.queue]
            if any(p.read or not step.read for g in groups[: max(0, len(groups) - step.keep)] for p in g):
                self.lazy.append(step)
        elif step.kind == "commit":
            if self.lazy and step.queue in {w.queue for w in self.lazy}:
                self._materialise()
            self.groups[step.queue].append(self.open[step.queue])
            self.open[step.queue] = []
        elif step.kind == "access" and touched:
            self._materialise()
            self._access(step, touched)
        elif step.kind == "issue":
            self._materialise()
            self._issue(step, touched)

    def _materialise(self) -> None:
        """Something happens after a group wait: it is a step of its own."""
        if self.lazy:
            self._close(self.lazy[-1])

    def _access(self, step: Step, touched: list[tuple[Touch, int]]) -> None:
        item = Item(step)
        masks = self.model.masks
        for touch, region in touched:
            mask = masks[region]
            here = foot(touch.mode, mask)
            self.place.seg = union(self.place.seg, here)
            for part in [p for q in ("bulk", "cp_async") for p in self._live(q)] + self.place.issued:
                if conflict(part.foot, here):
                    self.place.race = f"race: {step.text()} overlaps {part.step.text()} of the same thread"
            if touch.space == "shared":
                (item.writes if touch.mode == "w" else item.reads).append((mask, touch.tag))
        self.place.items.append(item)

    def _issue(self, step: Step, touched: list[tuple[Touch, int]]) -> None:
        item = Item(step)
        landing = bool(step.barriers)
        parts: list[Part] = []
        for read in (False,) if landing else (True, False):
            feet = EMPTY
            writes: list[tuple[int, Tag | None]] = []
            ctas: set[int] = set()
            for touch, region in touched:
                if (touch.mode == "r") != read and not landing:
                    continue
                mask = self.model.masks[region]
                feet = union(feet, foot(touch.mode, mask))
                if touch.space == "shared":
                    ctas.add(touch.cta)
                    (item.reads if touch.mode == "r" else writes).append((mask, touch.tag))
            if feet != EMPTY or (landing and not read):
                part = self.model.part(step, self.agent, feet, frozenset(ctas), read)
                part.writes = tuple(writes)
                if landing and not read:
                    part.barriers, part.bytes = step.barriers, step.bytes
                    part.weight = self.agent.threads(step) if step.triggered else 0
                parts.append(part)
        for part in parts:
            for other in [p for q in ("bulk", "cp_async") for p in self._live(q)]:
                if conflict(other.foot, part.foot) and not (other.foot[2] and part.foot[2]):
                    self.place.race = f"race: {step.text()} overlaps {other.step.text()}"
            if part.barriers:
                self.place.issued.append(part)
            else:
                if step.queue == "cp_async":
                    item.writes += part.writes
                self.open[step.queue or "bulk"].append(part)
        self.place.items.append(item)
        self._note()


class Model:
    """All agents of a launch."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.masks = launch.regions.masks
        self.parts: list[Part] = []
        self.joint: dict[int, Part] = {}
        self.agents = launch.agents
        self.tracks = [Track(self, agent) for agent in launch.agents]
        self.teams: dict[int, list[int]] = {}
        for a in launch.agents:
            self.teams.setdefault(id(a.instance), []).append(a.number)

    def meets(self, agent: Agent, step: Step) -> bool:
        """Agents come together here: a warpgroup for a wgmma, the two halves of a warp where they are apart."""
        if step.width == 4:
            return True
        lanes = step.executor == "lanes" and not step.alone
        return agent.half != "LR" and lanes and (step.kind == "syncwarp" or step.width == 1)

    def meeting(self, agent: int, step: Step) -> list[int]:
        """Who meets ``agent`` at a step."""
        me = self.agents[agent]
        team = self.teams[id(me.instance)]
        return team if step.width == 4 else [a for a in team if self.agents[a].warps == me.warps]

    def part(self, step: Step, agent: Agent, feet: Foot, ctas: frozenset[int], read: bool) -> Part:
        """A new part; a wgmma is one operation of its warpgroup."""
        if step.width == 4:
            found = self.joint.get(id(step))
            if found is not None:
                return found
        part = Part(len(self.parts), feet, step, agent.number, ctas=ctas, read=read)
        self.parts.append(part)
        if step.width == 4:
            self.joint[id(step)] = part
        return part
