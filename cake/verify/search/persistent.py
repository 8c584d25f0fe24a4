"""Fewer interleavings with the same verdict: persistent sets of one move (Godefroid, "Partial-Order Methods for the Verification of
Concurrent Systems", LNCS 1032, chapter 4).

A move may be explored alone if nothing that *others* can do before it depends on it. What others can do is overestimated: each of
them goes on from where it stands, past every wait that may pass, until it needs the move. If none of those steps touches memory
that the move's agent holds or takes, and none of them changes or observes the barriers that it uses in another way than by
contributions that add up to one phase in any order, then every bad execution from here is one that begins with the move. Else
all moves are explored, as without reduction.

States cannot repeat (each move takes an agent or an operation further), so no move is put off for ever. What is preserved is the
verdict: some race, over-arrival, wrong fill, leak or deadlock exists in the full graph exactly if one exists in the reduced one.
Remarks (waits that pass on another phase) may get lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from cake.verify.search.model import EMPTY, Foot, Part, conflict, union
from cake.verify.search.state import State
from cake.verify.search.steps import Agent, Step
from cake.verify.search.transitions import MEETINGS, Move, Transitions

NOTHING = (0, 0, 0, 0)


@dataclass(slots=True)
class Gift:
    """What a step or a landing adds to an mbarrier. ``late``: bytes announced without an arrival."""

    bar: int
    weight: int
    bytes: int
    late: bool = False


@dataclass(slots=True)
class Spot:
    """What the reduction must know of a place. ``held``: memory touched as long as the agent stands here; ``taken``: also by
    what is issued on coming here."""

    held: Foot
    taken: Foot
    gifts: list[Gift]
    landings: list[Gift]
    step: Step | None
    bars: tuple[int, ...] = ()
    remote: tuple[int, ...] = ()
    meeting: tuple[int, ...] = ()
    grows: int = 0


class Reach:
    """An overestimate of what happens before a move of ``moved`` (agents) or of ``landing`` (a part): steps, contributions,
    memory. ``used``: barriers that are initialised in reach, or used before they are."""

    __slots__ = ("arriving", "at", "foot", "grown", "mixed", "named", "passed", "signals", "sums", "used", "watched")

    def __init__(self) -> None:
        self.at: dict[int, int] = {}
        self.foot: Foot = EMPTY
        self.sums: dict[int, list[int]] = {}
        self.passed: set[int] = set()
        self.named: dict[int, int] = {}
        self.mixed: set[int] = set()
        self.arriving: set[int] = set()
        self.signals: dict[tuple[str, int], set[int]] = {}
        self.watched: set[tuple[str, int]] = set()
        self.grown: dict[int, int] = {}
        self.used: set[int] = set()


@dataclass
class Reduction:
    """Successors of states of a machine, one where one is enough. ``single``: how often that was so; ``full``: how often not."""

    machine: Transitions
    single: int = 0
    full: int = 0
    spots: list[list[Spot]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.gifts = {p.number: self._landing(p) for p in self.machine.model.parts}
        wgmma = {p.number: p.foot for p in self.machine.model.parts if p.step.width == 4}
        for agent, places in enumerate(self.machine.tracks):
            mine = []
            for number, place in enumerate(places):
                held = place.everything
                rest = place.wgmma
                while rest:
                    low = rest & -rest
                    held = union(held, wgmma[low.bit_length() - 1])
                    rest ^= low
                taken, landings = held, []
                for part in place.issued:
                    taken = union(taken, part.foot)
                    landings += self.gifts[part.number]
                spot = Spot(held, taken, [], landings, place.step)
                if place.step is not None:
                    self._step(spot, agent, number, place.step)
                mine.append(spot)
            self.spots.append(mine)

    def _landing(self, part: Part) -> list[Gift]:
        return [Gift(self.machine.bars[slot], part.weight, -part.bytes) for slot in part.barriers]

    def _step(self, spot: Spot, agent: int, number: int, step: Step) -> None:
        me, machine = self.machine.model.agents[agent], self.machine
        if step.kind in ("wait", "arrive", "init"):
            spot.bars = tuple(machine.bars[s] for s in step.barriers)
        if step.kind == "arrive":
            threads = me.threads(step)
            bytes = step.bytes * threads if step.form != "arrive" else 0
            weight = step.weight * threads if step.form != "expect" else 0
            spot.gifts = [Gift(b, weight, bytes, step.form == "expect") for b in spot.bars]
            spot.remote = tuple(s[0] for s in step.barriers if s[0] != me.cta)
        elif self._together(me, step):
            spot.meeting = tuple(machine.model.meeting(agent, step))
        elif step.kind == "setmaxnreg":
            spot.grows = max(0, machine.held[agent].get(number, 0))

    def _together(self, me: Agent, step: Step) -> bool:
        if step.kind in MEETINGS:
            return self.machine.model.meets(me, step)
        return step.kind == "named" and step.executor == "lanes" and not step.alone and me.half != "LR"

    # -- successors ---------------------------------------------------------------------------------------------------

    def successors(self, state: State) -> Iterator[tuple[Move, State]]:
        """One move that is enough, or all. Raises ``Bad`` as the machine does."""
        machine, places = self.machine, state[0]
        for part in machine.flying(state[5]):
            if self._alone(state, (), None, part):
                self.single += 1
                yield (None, part.step), machine.land(state, part)
                return
        for agent in range(machine.count):
            step = machine.tracks[agent][places[agent]].step
            if step is None:
                continue
            following = machine.act(state, agent, step)
            if following is None:
                continue
            moved = tuple(a for a in range(machine.count) if following[0][a] != places[a]) or (agent,)
            if self._alone(state, moved, agent, None):
                self.single += 1
                yield (agent, step), following
                return
        self.full += 1
        yield from machine.successors(state)

    def _alone(self, state: State, moved: tuple[int, ...], agent: int | None, part: Part | None) -> bool:
        """Nothing in reach depends on the move."""
        reach = self._reach(state, moved, part)
        if part is not None:
            foot, gifts = part.foot, self.gifts[part.number]
            if any(self._ends(state, reach, cta) for cta in part.ctas):
                return False
            return not conflict(foot, reach.foot) and self._adds(state, reach, gifts)
        assert agent is not None
        foot = EMPTY
        for a in moved:
            spots, at = self.spots[a], state[0][a]
            foot = union(foot, spots[at].held)
            if at + 1 < len(spots):
                foot = union(foot, spots[at + 1].taken)
        if conflict(foot, reach.foot):
            return False
        spot = self.spots[agent][state[0][agent]]
        step = spot.step
        assert step is not None
        match step.kind:
            case "wait":
                return not self._completes(state, reach, spot.bars[0])
            case "arrive":
                if any(self._ends(state, reach, cta) for cta in spot.remote):
                    return False
                return self._adds(state, reach, spot.gifts)
            case "init":
                return reach.used.isdisjoint(spot.bars)
            case "named":
                return self._meets(state, reach, agent, step)
            case "setmaxnreg":
                cta = self.machine.model.agents[agent].cta
                return not spot.grows or state[4][cta] >= spot.grows + reach.grown.get(cta, 0)
            case "signal":
                assert step.flag is not None
                return step.flag not in reach.signals and step.flag not in reach.watched
            case "wait_until":
                assert step.flag is not None
                return step.flag not in reach.signals
        return True

    def _ends(self, state: State, reach: Reach, cta: int) -> bool:
        """All agents of a CTA may have ended."""
        return all(self.spots[a][reach.at.get(a, state[0][a])].step is None for a in self.machine.of_cta[cta])

    def _completes(self, state: State, reach: Reach, bar: int, gift: Gift | None = None) -> bool:
        """The current phase may complete by some of what is in reach, and this contribution.

        Nothing is pending only once enough arrivals have come; if that takes all of them, all that they announce has been
        announced, and must have landed."""
        now = state[1][bar]
        if now is None:
            return True
        arrivals, announced, landed, _ = reach.sums.get(bar, NOTHING)
        if gift is not None:
            arrivals += gift.weight
            announced += max(0, gift.bytes) if not gift.late else 0
            landed += max(0, -gift.bytes)
        if arrivals < now[1]:
            return False
        missing = now[2] + announced if arrivals == now[1] else now[2]
        return missing <= 0 or landed >= missing

    def _adds(self, state: State, reach: Reach, gifts: list[Gift]) -> bool:
        """The contributions commute with all in reach, and nobody in reach has seen the phase without them."""
        for gift in gifts:
            now = state[1][gift.bar]
            if now is None:
                return False
            arrivals, announced, landed, late = reach.sums.get(gift.bar, NOTHING)
            total = arrivals + gift.weight
            if total > now[1]:
                return False
            if not self._completes(state, reach, gift.bar, gift) and not self._completes(state, reach, gift.bar):
                continue
            if gift.bar in reach.passed or late or gift.late or total < now[1]:
                return False
            if now[2] + announced - landed + gift.bytes < 0:
                return False
        return True

    def _meets(self, state: State, reach: Reach, agent: int, step: Step) -> bool:
        """All who may come belong to the generation under way."""
        me = self.machine.model.agents[agent]
        at = self.machine.nbars[me.cta, step.ident]
        threads, count, _ = state[2][at]
        if at in reach.mixed or (threads and count != step.count) or reach.named.get(-1 - at, step.count) != step.count:
            return False
        mine = 32 * (1 if step.executor == "one" or step.alone else len(me.warps))
        return threads + mine + reach.named.get(at, 0) <= step.count

    # -- what others can do -------------------------------------------------------------------------------------------

    def _reach(self, state: State, moved: tuple[int, ...], landing: Part | None) -> Reach:
        machine, reach = self.machine, Reach()
        places = state[0]
        foot = EMPTY
        for part in machine.flying(state[5]):
            if part is not landing:
                foot = union(foot, part.foot)
                self._give(reach, self.gifts[part.number])
        going = [a for a in range(machine.count) if a not in moved]
        for a in going:
            reach.at[a] = places[a]
            foot = union(foot, self.spots[a][places[a]].held)
        reach.foot = foot
        waiting = 0
        for _, _, some in state[2]:
            waiting |= some
        blocked = set(moved)
        while going:
            rest = []
            more = False
            for a in going:
                before = reach.at[a]
                if self._forward(state, reach, a, blocked, waiting):
                    rest.append(a)
                more = more or reach.at[a] != before
            going = rest
            if not more:
                break
        return reach

    @staticmethod
    def _give(reach: Reach, gifts: list[Gift]) -> None:
        for g in gifts:
            sums = reach.sums.setdefault(g.bar, [0, 0, 0, 0])
            sums[0] += g.weight
            sums[1] += max(0, g.bytes) if not g.late else 0
            sums[2] += max(0, -g.bytes)
            sums[3] += g.late

    def _forward(self, state: State, reach: Reach, agent: int, blocked: set[int], waiting: int) -> bool:
        """As far as it may come; whether it may come further later."""
        spots, at = self.spots[agent], reach.at[agent]
        while True:
            spot = spots[at]
            step = spot.step
            if step is None:
                reach.at[agent] = at
                return False
            if not self._passes(state, reach, agent, at, spot, step, blocked, waiting):
                reach.at[agent] = at
                return True
            self._give(reach, spot.gifts)
            at += 1
            reach.at[agent] = at
            reach.foot = union(reach.foot, spots[at].taken)
            self._give(reach, spots[at].landings)

    def _passes(
        self,
        state: State,
        reach: Reach,
        agent: int,
        at: int,
        spot: Spot,
        step: Step,
        blocked: set[int],
        waiting: int,
    ) -> bool:
        if spot.meeting and any(m in blocked for m in spot.meeting):
            return False
        match step.kind:
            case "init":
                reach.used |= set(spot.bars)
                return True
            case "wait" | "arrive":
                reach.used |= {b for b in spot.bars if state[1][b] is None}
                if step.kind == "arrive":
                    return True
                bar = spot.bars[0]
                now = state[1][bar]
                if now is None or (now[0] ^ step.phase) & 1 or self._completes(state, reach, bar):
                    reach.passed.add(bar)
                    return True
                return False
            case "named":
                return self._comes(state, reach, agent, at, step, waiting)
            case "cluster":
                return self._gathers(state, agent, step, blocked)
            case "setmaxnreg":
                cta = self.machine.model.agents[agent].cta
                reach.grown[cta] = reach.grown.get(cta, 0) + spot.grows
                return True
            case "signal":
                assert step.flag is not None
                reach.signals.setdefault(step.flag, set()).add(step.value)
                return True
            case "wait_until":
                assert step.flag is not None
                word = state[4][len(self.machine.of_cta) + self.machine.flags[step.flag]]
                if word == step.value or step.value in reach.signals.get(step.flag, ()):
                    reach.watched.add(step.flag)
                    return True
                return False
        return True

    def _comes(self, state: State, reach: Reach, agent: int, at: int, step: Step, waiting: int) -> bool:
        """A named barrier in reach: it is counted once, and passed if it may be complete."""
        me = self.machine.model.agents[agent]
        number = self.machine.nbars[me.cta, step.ident]
        threads, count, _ = state[2][number]
        here = at == state[0][agent] and waiting >> agent & 1
        key = agent * 1_000_003 + at
        if not here and key not in reach.arriving:
            reach.arriving.add(key)
            mine = 32 * (1 if step.executor == "one" or step.alone else len(me.warps))
            reach.named[number] = reach.named.get(number, 0) + mine
            if reach.named.setdefault(-1 - number, step.count) != step.count or (threads and count != step.count):
                reach.mixed.add(number)
        if step.form != "sync":
            return True
        return threads + reach.named.get(number, 0) >= step.count or number in reach.mixed

    def _gathers(self, state: State, agent: int, step: Step, blocked: set[int]) -> bool:
        """The cluster barrier: passed if it is free, or may become so without those that do not move."""
        if step.form == "arrive":
            return True
        cluster = self.machine.model.agents[agent].cluster
        came, free = state[3][cluster]
        if free >> agent & 1:
            return True
        for a in blocked:
            mine = self.machine.model.agents[a].cluster == cluster
            if mine and not came >> a & 1 and self.machine.tracks[a][state[0][a]].step is not None:
                return False
        return True
