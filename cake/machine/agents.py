"""The executor's side of a warp agent: where it is on its tape, what it waits for, and its group queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cake.machine import events as ev

if TYPE_CHECKING:
    from cake.machine.flights import Flight
    from cake.machine.instance import Instance
    from cake.machine.tape import Step

LANES, WARP, ONE = 0, 1, 2
"""Ranks of agents and of executors: an agent executes a step whose rank is at most its own. R has 0, the elected lane
of a warp 1, that of an instance's first warp 2."""

RANKS = {"lanes": LANES, "warp": WARP, "one": ONE}


class GroupQueue:
    """Groups of asynchronous operations of one agent and sort. Two heads: reads done and everything done."""

    __slots__ = ("groups", "open", "seen", "seen_read")

    def __init__(self) -> None:
        self.open: list[Flight] = []
        self.groups: list[tuple[Flight, ...]] = []
        self.seen = 0
        self.seen_read = 0


class Runner:
    """An agent being run. ``fresh``: it has not tried its step yet; ``released``: what it waited for has happened;
    ``partner``: the other half of its warp; ``place``: the instance of its role, after the entry."""

    __slots__ = (
        "agent",
        "cluster_arrived",
        "copies",
        "done",
        "fresh",
        "instance",
        "key",
        "memo",
        "partner",
        "place",
        "priority",
        "queues",
        "rank",
        "released",
        "step",
        "threads",
        "warp",
    )

    def __init__(self, agent: ev.Agent, threads: int) -> None:
        self.agent = agent
        self.threads = threads
        self.rank = LANES
        self.warp = 0
        self.instance: Instance | None = None
        self.place: Instance | None = None
        self.partner: Runner = self
        self.step: Step | None = None
        self.fresh = True
        self.released = False
        self.done = False
        self.cluster_arrived: int | None = None
        self.queues: dict[str, GroupQueue] = {}
        self.memo: Flight | None = None
        self.copies: list[Flight] = []
        self.priority = 0.0
        self.key = agent.index

    def queue(self, kind: str) -> GroupQueue:
        """The group queue of ``kind``."""
        found = self.queues.get(kind)
        if found is None:
            found = self.queues[kind] = GroupQueue()
        return found

    def __repr__(self) -> str:
        return self.agent.name
