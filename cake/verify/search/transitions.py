"""Successors: what each agent and each operation in flight can do next (PTX ISA 9.7.13: barrier.cta, barrier.cluster, mbarrier)."""

from __future__ import annotations

from collections.abc import Iterator

from cake.verify.search.model import Part
from cake.verify.search.state import Bad, Mbar, Semantics, State
from cake.verify.search.steps import Slot, Step
from cake.verify.search.tiles import WARP

Move = tuple[int | None, Step]
"""An agent and its step, or an operation that lands."""

MEETINGS = {"issue", "syncwarp", "access"}


class Transitions(Semantics):
    """The transition relation."""

    def successors(self, state: State) -> Iterator[tuple[Move, State]]:
        """Each possible next state, with what moves. Raises ``Bad`` for a transition that must not be."""
        places = state[0]
        for agent in range(self.count):
            step = self.tracks[agent][places[agent]].step
            if step is None:
                continue
            following = self.act(state, agent, step)
            if following is not None:
                yield (agent, step), following
        for part in self.flying(state[5]):
            yield (None, part.step), self.land(state, part)

    def label(self, agent: int | None, step: Step) -> str:
        """For a witness."""
        if agent is None:
            return f"lands: {step.text()}"
        return f"{self.model.agents[agent].name}: {step.text()}"

    def finished(self, state: State) -> bool:
        """All agents at their end, nothing in flight."""
        return not state[5] and all(self.tracks[a][p].step is None for a, p in enumerate(state[0]))

    def act(self, state: State, agent: int, step: Step) -> State | None:
        """``agent`` does its visible step; None if it is blocked."""
        kind = step.kind
        if kind == "wait":
            return self._wait(state, agent, step)
        if kind == "arrive":
            return self._arrive(state, agent, step)
        if kind == "named":
            return self._named(state, agent, step)
        if kind == "cluster":
            return self._cluster(state, agent, step)
        if kind in MEETINGS and self.model.meets(self.model.agents[agent], step):
            team = self.model.meeting(agent, step)
            if agent != team[0] or any(self.tracks[m][state[0][m]].step is not step for m in team):
                return None
            return self.advance(state, *team)
        if kind == "init":
            bars = list(state[1])
            for slot in step.barriers:
                at = self.bars[slot]
                if bars[at] is not None:
                    raise Bad("lifetime", f"{step.text()} is initialised twice")
                bars[at] = (0, self.init_count[at], 0)
            return self.advance((state[0], tuple(bars), *state[2:]), agent)
        if kind == "setmaxnreg":
            return self._registers_change(state, agent)
        if kind in ("signal", "wait_until"):
            return self._flag(state, agent, step)
        return self.advance(state, agent)

    def advance(self, state: State, *agents: int) -> State:
        """Some agents go on to their next place."""
        places = list(state[0])
        for agent in agents:
            places[agent] += 1
        state = (tuple(places), *state[1:])
        for agent in agents:
            state = self.enter(state, agent)
        for agent in agents:
            if self.tracks[agent][places[agent]].step is None:
                state = self._exit(state, agent)
        return state

    def _exit(self, state: State, agent: int) -> State:
        cta = self.model.agents[agent].cta
        if self.gone(state, cta):
            for part in self.flying(state[5]):
                if cta in part.ctas:
                    raise Bad("leak", f"{part.step.text()} is in flight when its CTA has ended")
            team = self.of_cta[cta]
            for a in team:
                for part in self.tracks[a][state[0][a]].leaks:
                    members = self.team[a] if part.step.width == 4 else [a]
                    if cta in part.ctas and all(part in self.tracks[m][state[0][m]].leaks for m in members):
                        raise Bad("leak", f"{part.step.text()} is in flight when its CTA has ended")
        return self._cluster_check(state, self.model.agents[agent].cluster)

    def gone(self, state: State, cta: int) -> bool:
        """All agents of a CTA have ended."""
        return all(self.tracks[a][state[0][a]].step is None for a in self.of_cta[cta])

    # -- mbarriers ----------------------------------------------------------------------------------------------------

    def _wait(self, state: State, agent: int, step: Step) -> State | None:
        bar = self._bar(state, step.barriers[0], step)
        if not (bar[0] ^ step.phase) & 1:
            return None
        if bar[0] - 1 != (step.phase if step.meant is None else step.meant):
            self.lapses.add(f"{self.label(agent, step)} meant phase {step.meant} and found {bar[0] - 1}")
        return self.advance(state, agent)

    def _bar(self, state: State, slot: Slot, step: Step) -> Mbar:
        bar = state[1][self.bars[slot]]
        if bar is None:
            raise Bad("lifetime", f"{step.text()} uses a barrier before its initialisation")
        return bar

    def _arrive(self, state: State, agent: int, step: Step) -> State:
        threads = self.model.agents[agent].threads(step)
        bars = list(state[1])
        for slot in step.barriers:
            if slot[0] != self.model.agents[agent].cta and self.gone(state, slot[0]):
                raise Bad("leak", f"{self.label(agent, step)} arrives at a CTA that has ended")
            if step.form != "arrive":
                self._contribute(bars, slot, 0, step.bytes * threads, step)
            if step.form != "expect":
                self._arrivals(bars, slot, step.weight, threads, step)
        return self.advance((state[0], tuple(bars), *state[2:]), agent)

    def _arrivals(self, bars: list[Mbar | None], slot: Slot, weight: int, threads: int, step: Step) -> None:
        """Each thread arrives for itself: where a phase completes in between, the others are in the next one."""
        while threads:
            bar = bars[self.bars[slot]]
            some = max(1, min(threads, bar[1] // weight)) if bar is not None else threads
            self._contribute(bars, slot, some * weight, 0, step)
            threads -= some

    def _contribute(self, bars: list[Mbar | None], slot: Slot, weight: int, tx: int, step: Step) -> None:
        at = self.bars[slot]
        bar = bars[at]
        if bar is None:
            raise Bad("lifetime", f"{step.text()} uses a barrier before its initialisation")
        phase, pending, bytes = bar
        if weight > pending:
            raise Bad("arrivals", f"{step.text()}: {weight} arrivals where {pending} are pending")
        pending, bytes = pending - weight, bytes + tx
        bars[at] = (phase + 1, self.init_count[at], 0) if pending == 0 and bytes == 0 else (phase, pending, bytes)

    def land(self, state: State, part: Part) -> State:
        """An operation that completes on mbarriers does."""
        bars, fills = list(state[1]), list(state[6])
        for cta in part.ctas:
            if self.gone(state, cta):
                raise Bad("leak", f"{part.step.text()} lands in a CTA that has ended")
        for mask, tag in part.writes:
            self.write(mask, tag, fills)
        for slot in part.barriers:
            self._contribute(bars, slot, part.weight, -part.bytes, part.step)
        return (state[0], tuple(bars), state[2], state[3], state[4], state[5] & ~(1 << part.number), tuple(fills))

    # -- other barriers -----------------------------------------------------------------------------------------------

    def _named(self, state: State, agent: int, step: Step) -> State | None:
        """barrier.cta: the count goes up by the warp size, whoever of the warp executes it; with all lanes they go together.

        Of several warps that only arrive, each comes for itself: those that find the generation complete are in the next one."""
        me = self.model.agents[agent]
        at = self.nbars[me.cta, step.ident]
        threads, count, waiting = state[2][at]
        team = [agent]
        if step.executor == "lanes" and not step.alone and me.half != "LR":
            team = self.model.meeting(agent, step)
            if agent != team[0] or any(self.tracks[m][state[0][m]].step is not step for m in team):
                return None
        if waiting >> agent & 1:
            return None
        if threads and count != step.count:
            raise Bad("named", f"{self.label(agent, step)}: {step.count} threads where others state {count}")
        threads += WARP * (1 if step.executor == "one" or step.alone else len(me.warps))
        if threads > step.count and (step.form == "sync" or step.count % WARP):
            raise Bad("named", f"{self.label(agent, step)}: more than {step.count} threads come")
        nbars = list(state[2])
        if threads >= step.count:
            rest = threads % step.count
            nbars[at] = (rest, step.count if rest else 0, 0)
            waiters = [a for a in range(self.count) if waiting >> a & 1]
            self._company(state, waiters + (team if step.form == "sync" else []), step)
            team = team + waiters
        elif step.form == "sync":
            nbars[at] = (threads, step.count, waiting | sum(1 << m for m in team))
            return (state[0], state[1], tuple(nbars), *state[3:])
        else:
            nbars[at] = (threads, step.count, waiting)
        return self.advance((state[0], state[1], tuple(nbars), *state[3:]), *team)

    def _company(self, state: State, team: list[int], step: Step) -> None:
        """With whom an agent syncs at a given step must not depend on the schedule (generations that mix: P114)."""
        together = frozenset((a, state[0][a]) for a in team)
        for a in team:
            if self.company.setdefault((a, state[0][a]), together) != together:
                self.lapses.add(f"{self.label(a, step)} meets others in another schedule (barrier {step.ident})")

    def _cluster(self, state: State, agent: int, step: Step) -> State | None:
        cluster = self.model.agents[agent].cluster
        came, free = state[3][cluster]
        bit = 1 << agent
        if step.form == "wait" or (step.form == "sync" and (came | free) & bit):
            if not (came | free) & bit:
                raise Bad("cluster", f"{self.label(agent, step)} waits without having arrived")
            if not free & bit:
                return None
            return self.advance(self._with_cluster(state, cluster, came, free & ~bit), agent)
        if (came | free) & bit:
            raise Bad("cluster", f"{self.label(agent, step)} arrives twice")
        state = self._cluster_check(self._with_cluster(state, cluster, came | bit, free), cluster)
        return self.advance(state, agent) if step.form == "arrive" else state

    @staticmethod
    def _with_cluster(state: State, cluster: int, came: int, free: int) -> State:
        clusters = list(state[3])
        clusters[cluster] = (came, free)
        return (*state[:3], tuple(clusters), *state[4:])

    def _cluster_check(self, state: State, cluster: int) -> State:
        came, free = state[3][cluster]
        if not came:
            return state
        for agent in self.of_cluster[cluster]:
            if not came >> agent & 1 and self.tracks[agent][state[0][agent]].step is not None:
                return state
        return self._with_cluster(state, cluster, 0, free | came)

    def _registers_change(self, state: State, agent: int) -> State | None:
        change = self.held[agent].get(state[0][agent], 0)
        cta = self.model.agents[agent].cta
        free = state[4][cta] - change
        if free < 0:
            return None
        pool = list(state[4])
        pool[cta] = free
        return self.advance((*state[:4], tuple(pool), *state[5:]), agent)

    def _flag(self, state: State, agent: int, step: Step) -> State | None:
        assert step.flag is not None
        at = len(self.of_cta) + self.flags[step.flag]
        if step.kind == "wait_until":
            return self.advance(state, agent) if state[4][at] == step.value else None
        words = list(state[4])
        words[at] = step.value
        return self.advance((*state[:4], tuple(words), *state[5:]), agent)
