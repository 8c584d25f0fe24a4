"""The synchronising edges of a run, as pairs of event ids.

Edges of a barrier go through the event of its completion: arrivals and bytes to the phase, the phase to each wait that returns by it. A
page follows them through, so n arrivals and m waits take n + m edges.
"""

from __future__ import annotations

from collections.abc import Iterable

from cake.machine import events as ev

Edge = tuple[int, int, str]


def edges(events: Iterable[ev.Event]) -> list[Edge]:
    """All edges, in the order of the events they lead to. Kinds: ``phase`` (mbarriers), ``named``, ``cluster``, ``group`` (an
    operation's end to the group wait), ``commit`` (to the group wait), ``bytes`` (an operation's end to its bytes), ``flag``."""
    return _Edges().read(events)


class _Edges:
    def __init__(self) -> None:
        self.found: list[Edge] = []
        self.phases: dict[tuple[ev.BarrierKey, int], int] = {}
        self.named: dict[tuple[ev.NamedKey, int], list[tuple[int, ev.Agent]]] = {}
        self.cluster: dict[tuple[int, int], list[int]] = {}
        self.cluster_done: dict[tuple[int, int], int] = {}
        self.done: dict[tuple[int, str], int] = {}
        self.commits: dict[int, int] = {}
        self.flags: dict[object, int] = {}

    def read(self, events: Iterable[ev.Event]) -> list[Edge]:
        for event in events:
            handler = getattr(self, f"_{event.kind}", None)
            if handler is not None:
                handler(event)
        return self.found

    def _add(self, source: int | None, target: int, kind: str) -> None:
        if source is not None:
            self.found.append((source, target, kind))

    def _contrib(self, event: ev.Contrib) -> None:
        if isinstance(event.by, ev.AsyncOp):
            self._add(self.done.get((event.by.id, "writes")), event.id, "bytes")

    def _phase(self, event: ev.Phase) -> None:
        self.phases[event.barrier, event.index] = event.id
        for number in event.contributions:
            self._add(number, event.id, "phase")

    def _pass(self, event: ev.Pass) -> None:
        self._add(self.phases.get((event.barrier, event.found)), event.id, "phase")

    def _nb(self, event: ev.NamedArrive) -> None:
        self.named.setdefault((event.barrier, event.generation), []).append((event.id, event.agent))

    def _nb_gen(self, event: ev.NamedGeneration) -> None:
        synced = set(map(id, event.synced))
        for number, agent in self.named.pop((event.barrier, event.generation), ()):
            self._add(number, event.id, "named")
            if id(agent) in synced:
                self._add(event.id, number, "named")

    def _cl_arrive(self, event: ev.ClusterArrive) -> None:
        self.cluster.setdefault((event.agent.cluster, event.generation), []).append(event.id)

    def _cl_gen(self, event: ev.ClusterGeneration) -> None:
        self.cluster_done[event.cluster, event.generation] = event.id
        for number in self.cluster.pop((event.cluster, event.generation), ()):
            self._add(number, event.id, "cluster")

    def _cl_wait(self, event: ev.ClusterWait) -> None:
        self._add(self.cluster_done.get((event.agent.cluster, event.generation)), event.id, "cluster")

    def _done(self, event: ev.Done) -> None:
        self.done[event.op.id, event.part] = event.id

    def _commit(self, event: ev.Commit) -> None:
        for op in event.ops:
            self.commits[op.id] = event.id

    def _gwait(self, event: ev.GroupWait) -> None:
        for op in event.ops:
            self._add(self.done.get((op.id, "reads" if event.read else "writes")), event.id, "group")
        for number in sorted({self.commits[op.id] for op in event.ops if op.id in self.commits}):
            self._add(number, event.id, "commit")

    def _access(self, event: ev.Access) -> None:
        if event.word is None:
            return
        if event.effect.mode == "r":
            self._add(self.flags.get(event.effect.region), event.id, "flag")
        else:
            self.flags[event.effect.region] = event.id
