"""What a page draws, as plain data: lanes, events, operations, edges, slots, the finding.

Every event of the batch is in ``events`` once, under the number that the machine gave it. A batch with more events than
``LIMIT`` is cut to those around the finding (or from the start), and ``cut`` says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cake.diagnostics import Diagnostic
from cake.expand.show_program import text as statement_text
from cake.ir import expanded as x
from cake.machine import events as ev
from cake.machine.order.layout import name
from cake.timeline.edges import edges
from cake.timeline.recording import Recording
from cake.timeline.rings import slots
from cake.timeline.ticks import agents, ticks
from cake.timeline.violation import locate
from cake.verify.verdict import Verdict

LIMIT = 20_000
"""Events that one page holds: more take a browser too long to draw."""


def model(kernel: x.Kernel, verdict: Verdict, recording: Recording, source: str | None) -> dict[str, Any]:
    """The data of one page. ``source``: the text that spans point into, if there is one."""
    finding = verdict.diagnostics[0] if verdict.diagnostics and verdict.diagnostics[0].severity == "error" else None
    place = locate(recording, finding) if finding is not None else None
    focus = place.then if place is not None and place.then is not None else None
    return _Model(kernel, recording, source).build(verdict, finding, place, focus)


class _Table:
    """Values by number, each once."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self.numbers: dict[Any, int] = {}

    def number(self, key: Any, row: Callable[[], Any] | None = None) -> int:
        if key not in self.numbers:
            self.numbers[key] = len(self.rows)
            self.rows.append(key if row is None else row())
        return self.numbers[key]


@dataclass
class _Model:
    kernel: x.Kernel
    recording: Recording
    source: str | None

    def build(self, verdict: Verdict, finding: Diagnostic | None, place: Any, focus: int | None) -> dict[str, Any]:
        batch = self.recording.batch
        times = ticks(batch.events)
        first, last = self._window(focus)
        shown = list(zip(batch.events, times, strict=True))[first:last]
        kept = {event.id for event, _ in shown}
        self.slots = {b.name: b.slots for b in self.kernel.barriers}
        self.roles = {role.name: role for role in self.kernel.roles}
        self.sites, self.words = _Table(), _Table()
        columns = {agent.index: i for i, agent in enumerate(batch.setup.agents)}
        rows = [
            [
                event.id,
                tick,
                event.kind,
                [columns[a.index] for a in agents(event)],
                -1 if event.site is None else self._site(event.site),
                self.words.number(self._words(event)),
                self._about(event),
            ]
            for event, tick in shown
        ]
        lanes = [
            {
                "ring": s.ring,
                "cta": s.cta,
                "owner": None if s.owner is None else list(s.owner),
                "slot": s.slot,
                "segments": [
                    [g.first, times[-1] if g.last is None else g.last, g.state, g.fill, g.position, g.event]
                    for g in s.segments
                    if g.event in kept
                ],
            }
            for s in slots(self.kernel, batch.events, times)
        ]
        cut = None
        if len(shown) < len(batch.events):
            cut = {"shown": len(shown), "all": len(batch.events), "first": shown[0][0].id, "last": shown[-1][0].id}
        return {
            "kernel": self.kernel.name,
            "target": self.kernel.target,
            "constants": {n: str(v) for n, v in self.kernel.constants.items()},
            "launch": self.recording.launch.text,
            "batch": [self.recording.number + 1, self.recording.batches],
            "status": verdict.status,
            "claim": verdict.claim,
            "stopped": bool(self.recording.stopped),
            "cut": cut,
            "ticks": [shown[0][1], times[-1] if last >= len(times) else shown[-1][1]] if shown else [0, 0],
            "roles": [role.name for role in self.kernel.roles],
            "rings": [ring.name for ring in self.kernel.rings],
            "agents": [
                {"name": a.name, "cta": a.cta, "role": a.role, "instance": a.instance, "warp": a.warp, "half": a.half}
                for a in batch.setup.agents
            ],
            "instances": {role.name: role.instances for role in self.kernel.roles},
            "ops": self._operations(shown, times, columns),
            "sites": self.sites.rows,
            "words": self.words.rows,
            "events": rows,
            "edges": [list(e) for e in edges(batch.events) if e[0] in kept and e[1] in kept],
            "slots": lanes,
            "lines": self._lines(),
            "finding": None if finding is None else self._finding(finding, place),
        }

    def _window(self, focus: int | None) -> tuple[int, int]:
        """Which events are shown."""
        count = len(self.recording.batch.events)
        if count <= LIMIT:
            return 0, count
        if focus is None:
            return 0, LIMIT
        at = next((i for i, e in enumerate(self.recording.batch.events) if e.id == focus), 0)
        end = min(count, max(LIMIT, at + LIMIT // 10))
        return end - LIMIT, end

    def _operations(
        self, shown: list[tuple[ev.Event, int]], times: list[int], columns: dict[int, int]
    ) -> list[list[Any]]:
        """Each asynchronous operation issued here: id, name, issuing column, site, ticks of issue, end of reads and end of
        writes (None: not within this run), and the ids of these events."""
        ends: dict[tuple[int, str], tuple[int, int]] = {}
        for event, tick in zip(self.recording.batch.events, times, strict=True):
            if isinstance(event, ev.Done):
                ends[event.op.id, event.part] = tick, event.id
        rows = []
        for event, tick in shown:
            if isinstance(event, ev.Issue):
                parts = [ends.get((event.op.id, part)) for part in ("reads", "writes")]
                site = -1 if event.site is None else self._site(event.site)
                who = columns[event.agent.index]
                rows.append([event.op.id, event.op.op, who, site, tick, event.id, *[p and list(p) for p in parts]])
        return rows

    # -- words --------------------------------------------------------------------------------------------------------

    def _site(self, site: ev.Site) -> int:
        """The number of a dynamic step."""

        def row() -> dict[str, Any]:
            at = ", ".join(f"{name}={value}" for name, value in site.iteration)
            node = site.node
            what = statement_text(self.kernel, self.roles.get(site.role), node)  # type: ignore[arg-type]
            return {
                "path": site.path,
                "line": site.span.line if site.span is not None else None,
                "what": what.split(": ", 1)[1] if what.startswith(("lanes: ", "warp: ", "one: ")) else what,
                "executor": node.executor,
                "why": "" if node.reason == "written" else node.reason,
                "at": at,
                "role": site.role,
                "name": _name(node),
            }

        return self.sites.number((site.cta, site.role, site.instance, site.number), row)

    def _words(self, event: ev.Event) -> str:
        """What happened, in a few words."""
        if isinstance(event, ev.Access):
            return f"{_MODES[event.effect.mode]} {_region(event.effect.region)}" + (
                " atomically" if event.atomic else ""
            )
        if isinstance(event, ev.Issue):
            parts = [f"{_MODES[e.mode]} {_region(e.region)}" for e in event.effects]
            parts += [f"bytes to {self._barrier(k)}" for k in event.barriers]
            return f"issue {event.op.op} {event.op.name}: {', '.join(parts)}" + (
                f", {event.bytes} bytes" * bool(event.bytes)
            )
        if isinstance(event, ev.Done):
            return f"{event.op.op} {event.op.name}: {event.part} done"
        if isinstance(event, ev.Init):
            return f"init {self._barrier(event.barrier)} for {event.count}"
        if isinstance(event, ev.Contrib):
            amount = f"{event.weight} of weight" if event.weight else f"{event.bytes} bytes"
            by = f" by {event.by.op} {event.by.name}" if isinstance(event.by, ev.AsyncOp) else ""
            return f"{event.form} {self._barrier(event.barrier)} phase {event.phase}: {amount}{by}"
        if isinstance(event, ev.Phase):
            return f"phase {event.index} of {self._barrier(event.barrier)} is complete"
        if isinstance(event, ev.Wait):
            return f"wait for {self._barrier(event.barrier)} phase {event.intended}"
        if isinstance(event, ev.Pass):
            return f"{self._barrier(event.barrier)} phase {event.intended} has come (found {event.found})"
        return self._others(event)

    def _others(self, event: ev.Event) -> str:
        if isinstance(event, ev.NamedArrive):
            return (
                f"{event.form} at barrier id {event.barrier[1]}, generation {event.generation}, {event.count} threads"
            )
        if isinstance(event, ev.NamedGeneration):
            return f"generation {event.generation} of barrier id {event.barrier[1]} is complete"
        if isinstance(event, ev.ClusterArrive | ev.ClusterWait):
            verb = "arrive at" if isinstance(event, ev.ClusterArrive) else "return from"
            return f"{verb} the cluster barrier, generation {event.generation}, {event.sem}"
        if isinstance(event, ev.ClusterGeneration):
            return f"generation {event.generation} of the barrier of cluster {event.cluster} is complete"
        if isinstance(event, ev.Commit):
            return f"commit {event.queue} group {event.group} of {len(event.ops)}"
        if isinstance(event, ev.GroupWait):
            read = " (reads)" if event.read else ""
            return f"{event.queue} groups but the newest {event.keep} have ended{read}: {len(event.ops)} operations"
        if isinstance(event, ev.Fence):
            return f"fence {event.what}"
        if isinstance(event, ev.Join):
            return f"{event.name}: {len(event.members)} half warps meet"
        if isinstance(event, ev.Registers):
            return f"setmaxnreg.{event.form} by {event.amount}, {event.pool} left in the pool"
        return {"begin": "begins", "exit": "ends"}.get(event.kind, event.kind)

    def _about(self, event: ev.Event) -> list[str]:
        """The pipelines that an event has to do with."""
        names: set[str] = set()
        key = getattr(event, "barrier", None)
        if isinstance(key, tuple) and len(key) == 3:
            names.add(str(key[1]))
        effects = (
            event.effects if isinstance(event, ev.Issue) else (event.effect,) if isinstance(event, ev.Access) else ()
        )
        names |= {e.region.buffer for e in effects if isinstance(e.region, ev.SharedRegion)}
        return [r.name for r in self.kernel.rings if names & {*r.fields, r.full or "", r.empty or ""}]

    def _barrier(self, key: ev.BarrierKey) -> str:
        return name(key, self.slots[key[1]])

    def _lines(self) -> dict[int, str]:
        """The source lines that steps came from."""
        if self.source is None:
            return {}
        lines = self.source.splitlines()
        numbers = {row["line"] for row in self.sites.rows if row["line"] is not None}
        return {n: lines[n - 1] for n in sorted(numbers) if n <= len(lines)}

    def _finding(self, d: Diagnostic, place: Any) -> dict[str, Any]:
        return {
            "code": d.code,
            "message": d.message,
            "line": d.span.line if d.span is not None else None,
            "contract": d.contract,
            "facts": list(d.facts),
            "witness": list(d.witness),
            "help": d.help,
            "labels": [{"text": lb.text, "line": lb.span.line if lb.span is not None else None} for lb in d.labels],
            "first": place.first,
            "then": place.then,
            "unordered": place.unordered,
            "blocked": list(place.blocked),
        }


def _name(node: x.Node) -> str:
    """What a mark is called in the drawing."""
    if isinstance(node, x.Op):
        return node.op
    if isinstance(node, x.Named):
        return f"{node.form} {node.barrier}"
    return {"gwait": "group wait"}.get(kind := str(node.kind), kind)  # type: ignore[attr-defined]


_MODES = {"r": "read", "w": "write", "rw": "update"}


def _region(region: ev.Region) -> str:
    if isinstance(region, ev.SharedRegion):
        fill = "" if region.position is None else f" (fill {region.position})"
        return f"{region.buffer}[{region.slot}]{fill}"
    if isinstance(region, ev.GlobalRegion):
        if region.box is not None:
            return f"{region.tensor}[{', '.join(f'{lo}:{hi}' for lo, hi in region.box)}]"
        return f"{region.tensor} ({sum(hi - lo for lo, hi in region.spans or ())} elements)"
    return f"registers {region.tile}"
