"""Logical time: the rounds of the deterministic schedule.

The canonical schedule lets every warp that can go on do one step, in turn, and lets an asynchronous operation go on only when no warp
can. One tick is one such round: an agent that comes up again begins the next. So the order of ticks is the order of the run,
what stands in one tick was possible at once, and a bar's length says how much else happened meanwhile, not how long it took.
"""

from __future__ import annotations

from collections.abc import Iterable

from cake.machine import events as ev


def ticks(events: Iterable[ev.Event]) -> list[int]:
    """The tick of each event."""
    now = 0
    seen: dict[object, object] = {}
    result = []
    for event in events:
        for actor, step in actors(event):
            if seen.setdefault(actor, step) != step:
                now, seen = now + 1, {actor: step}
        result.append(now)
    return result


def actors(event: ev.Event) -> list[tuple[object, object]]:
    """Who acts, and in which step of its own."""
    if isinstance(event, ev.Done):
        return [(event.op.name, event.part)]
    if isinstance(event, ev.Contrib) and isinstance(event.by, ev.AsyncOp):
        return [(event.by.name, "writes")]
    return [(agent.name, id(event.site)) for agent in agents(event)]


def agents(event: ev.Event) -> tuple[ev.Agent, ...]:
    """The half warps that an event belongs to; none for what barriers and operations do by themselves."""
    if isinstance(event, ev.Join):
        return event.members
    if isinstance(event, ev.Issue):
        return event.agents
    if isinstance(event, ev.Contrib):
        return (event.by,) if isinstance(event.by, ev.Agent) else ()
    agent = getattr(event, "agent", None)
    return (agent,) if agent is not None else ()
