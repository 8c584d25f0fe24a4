"""States of the search and what leads from one to the next: the hardware's words, nothing of the program's intent.

A state is a tuple: place of each agent; mbarriers (phases completed, pending arrivals, pending bytes); named barriers (threads
that have come, count, agents that wait); cluster barriers; flags; operations in flight; and which fill each shared atom holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cake.verify.search.model import EMPTY, Foot, Model, Part, Place, conflict, union
from cake.verify.search.steps import Slot, Step, Tag

Mbar = tuple[int, int, int]
Nbar = tuple[int, int, int]
State = tuple[
    tuple[int, ...],  # places
    tuple[Mbar | None, ...],  # mbarriers
    tuple[Nbar, ...],  # named barriers
    tuple[tuple[int, int], ...],  # cluster barriers: came in this generation, may go
    tuple[int, ...],  # registers free, then flags
    int,  # parts in flight that complete on an mbarrier
    tuple[int, ...],  # fills
]


@dataclass
class Bad(Exception):
    """A bad transition or state."""

    kind: str
    text: str


class Semantics:
    """Successors of states of one model."""

    def __init__(self, model: Model) -> None:
        self.model = model
        launch = model.launch
        self.tracks = [t.places for t in model.tracks]
        self.count = len(self.tracks)
        self.bars: dict[Slot, int] = {}
        for cta in range(launch.cta_count):
            for name, (_, slots) in launch.counts.items():
                for slot in range(slots):
                    self.bars[cta, name, slot] = len(self.bars)
        self.init_count = [launch.counts[name][0] for _, name, _ in self.bars]
        self.nbars: dict[tuple[int, int], int] = {}
        self.flags: dict[tuple[str, int], int] = {}
        for agent in model.agents:
            for step in agent.program:
                if step.kind == "named":
                    self.nbars.setdefault((agent.cta, step.ident), len(self.nbars))
                elif step.flag is not None:
                    self.flags.setdefault(step.flag, len(self.flags))
        self.tags: dict[Tag | None, int] = {None: 1}
        self.shared = [launch.regions.cta_of(a) is not None for a in range(launch.regions.atoms)]
        self.bits: dict[int, list[int]] = {}
        self.held = self._registers()
        self.team = [model.teams[id(a.instance)] for a in model.agents]
        self.wgmmas = [
            members for members in model.teams.values() if any(p.wgmma for m in members for p in self.tracks[m])
        ]
        self.masks: dict[int, Foot] = {}
        self.of_cta: dict[int, list[int]] = {}
        self.of_cluster: dict[int, list[int]] = {}
        for a in model.agents:
            self.of_cta.setdefault(a.cta, []).append(a.number)
            self.of_cluster.setdefault(a.cluster, []).append(a.number)
        self.lapses: set[str] = set()
        self.company: dict[tuple[int, int], frozenset[tuple[int, int]]] = {}

    # -- the first state ----------------------------------------------------------------------------------------------

    def first(self) -> State:
        """Before anything has happened."""
        launch = self.model.launch
        flags = [0] * len(self.flags)
        for (tensor, at), i in self.flags.items():
            if tensor in launch.arrays and launch.kernel.tensor(tensor).direction == "inout":  # type: ignore[union-attr]
                flat = launch.arrays[tensor].reshape(-1)
                flags[i] = int(flat[at - launch.regions.bases[tensor]])
        state: State = (
            (0,) * self.count,
            (None,) * len(self.bars),
            ((0, 0, 0),) * len(self.nbars),
            ((0, 0),) * len(launch.clusters),
            (*[0] * launch.cta_count, *flags),
            0,
            (0,) * launch.regions.atoms,
        )
        for i in range(self.count):
            state = self.enter(state, i)
        return state

    def _registers(self) -> list[dict[int, int]]:
        """For each agent and place of a setmaxnreg, by how much it changes the pool."""
        launch = self.model.launch.kernel.launch_registers
        changes: list[dict[int, int]] = []
        for agent, places in zip(self.model.agents, self.tracks, strict=True):
            held, mine = launch, {}
            for i, place in enumerate(places):
                if place.step is not None and place.step.kind == "setmaxnreg" and held is not None:
                    threads = 32 * len(agent.warps) if agent.half != "R" else 0
                    mine[i] = threads * (place.step.count - held)
                    held = place.step.count
            changes.append(mine)
        return changes

    # -- entering a segment -------------------------------------------------------------------------------------------

    def wgmma(self, places: tuple[int, ...]) -> Foot:
        """What the tensor cores may be reading: operations that no warp of their group has waited for (axiom A1)."""
        result = EMPTY
        for members in self.wgmmas:
            both = -1
            for m in members:
                both &= self.tracks[m][places[m]].wgmma
            if both:
                found = self.masks.get(both)
                if found is None:
                    found = EMPTY
                    for p in self.model.parts:
                        if both >> p.number & 1:
                            found = union(found, p.foot)
                    self.masks[both] = found
                result = union(result, found)
        return result

    def flying(self, fly: int) -> list[Part]:
        """The parts of a set."""
        parts = self.model.parts
        result = []
        while fly:
            low = fly & -fly
            result.append(parts[low.bit_length() - 1])
            fly ^= low
        return result

    def enter(self, state: State, agent: int) -> State:
        """``agent`` has come to a new place: its segment's accesses and issues become possible."""
        places, fly, fills = state[0], state[5], state[6]
        place = self.tracks[agent][places[agent]]
        if place.race:
            raise Bad("race", place.race)
        mine = place.seg
        for part in place.issued:
            mine = union(mine, part.foot)
        mine = union(mine, place.flying)
        if mine != EMPTY:
            for other in range(self.count):
                if other != agent:
                    theirs = self.tracks[other][places[other]].everything
                    if theirs is not EMPTY and conflict(mine, theirs):
                        self._race(place, agent, self.tracks[other][places[other]], other)
            tensor = self.wgmma(places)
            if tensor != EMPTY and conflict(mine, tensor):
                raise Bad("race", f"{self.who(agent, place)} writes what a wgmma in flight reads")
            for part in self.flying(fly):
                if conflict(mine, part.foot):
                    raise Bad("race", f"{self.who(agent, place)} overlaps {part.step.text()} in flight")
        if place.wgmma:
            read = self.wgmma(places)
            for part in self.flying(fly):
                if conflict(read, part.foot):
                    raise Bad("race", f"{part.step.text()} writes what {self.who(agent, place)} reads by wgmma")
            for other in range(self.count):
                theirs = self.tracks[other][places[other]].everything
                if conflict(read, theirs):
                    raise Bad("race", f"{self.who(other, self.tracks[other][places[other]])} writes what a wgmma reads")
        if place.items:
            fills = self._data(place, fills, agent)
        for a, part in enumerate(place.issued):
            for other_part in place.issued[:a]:
                if conflict(part.foot, other_part.foot):
                    raise Bad("race", f"{part.step.text()} and {other_part.step.text()} write the same bytes")
            fly |= 1 << part.number
        if fly == state[5] and fills is state[6]:
            return state
        return (*state[:5], fly, fills)

    def _race(self, place: Place, agent: int, theirs: Place, other: int) -> None:
        raise Bad("race", f"{self.who(agent, place)} and {self.who(other, theirs)} access the same bytes at once")

    def _data(self, place: Place, fills: tuple[int, ...], agent: int) -> tuple[int, ...]:
        changed: list[int] | None = None
        for item in place.items:
            now: Any = fills if changed is None else changed
            for mask, tag in item.reads:
                self.read(mask, tag, now, item.step, agent)
            if item.writes:
                changed = list(now) if changed is None else changed
                for mask, tag in item.writes:
                    self.write(mask, tag, changed)
        return fills if changed is None else tuple(changed)

    def atoms(self, mask: int) -> list[int]:
        """The shared atoms of a mask."""
        found = self.bits.get(mask)
        if found is None:
            found = self.bits[mask] = [a for a in range(mask.bit_length()) if mask >> a & 1 and self.shared[a]]
        return found

    def read(self, mask: int, tag: Tag | None, fills: Any, step: Step, agent: int) -> None:
        """A read must find something, and of a ring the fill that it means."""
        want = self.tags.setdefault(tag, len(self.tags) + 1)
        for atom in self.atoms(mask):
            have = fills[atom]
            if have == 0:
                raise Bad(
                    "uninitialised", f"{self.model.agents[agent].name} {step.text()} reads what nothing has written"
                )
            if have != want and tag is not None:
                held = next(t for t, n in self.tags.items() if n == have)
                raise Bad("stale", f"{self.model.agents[agent].name} {step.text()} means {tag} and finds {held}")

    def write(self, mask: int, tag: Tag | None, fills: list[int]) -> None:
        """A write leaves its fill."""
        number = self.tags.setdefault(tag, len(self.tags) + 1)
        for atom in self.atoms(mask):
            fills[atom] = number

    def who(self, agent: int, place: Place) -> str:
        """For a witness."""
        steps = [i.step.text() for i in place.items] or [place.step.text() if place.step else "end"]
        return f"{self.model.agents[agent].name} ({', '.join(steps[:2])})"
