"""Exhaustive exploration of one launch."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from cake.diagnostics import CakeError
from cake.ir.expanded import Kernel, Op
from cake.verify.search.lower import Launch
from cake.verify.search.model import Model
from cake.verify.search.outcome import Outcome
from cake.verify.search.persistent import Reduction
from cake.verify.search.registers import misuse
from cake.verify.search.rotation import Rotation
from cake.verify.search.state import Bad, State
from cake.verify.search.steps import Fault, Undecided
from cake.verify.search.transitions import Move, Transitions

LIMIT = 1_000_000
TRACE = 60
Came = dict[State, tuple[State, Move] | None]


def search(
    kernel: Kernel,
    launch_values: Mapping[str, Any],
    *,
    limit: int = LIMIT,
    ctas: int = 1,
    all_warps: bool = False,
    halves: bool = False,
    endless: bool = False,
    reduced: bool = False,
) -> Outcome:
    """All interleavings of one launch at warp granularity, up to ``limit`` states (then unknown, U906).

    ``launch_values``: the arguments (arrays and scalars), or dims and scalars by name. ``ctas``: clusters; they are explored
    one by one unless flags join them. Decides deadlock, over-arrival, races in execution order, reads of the wrong fill and
    operations in flight at exit; it knows nothing of fences, scopes and proxies (docs/verifier.md).

    ``endless``: states that differ by whole turns of all rings count as one. Give a launch with many trips: if the search closes
    before any agent comes to its end, any number of trips is covered but for how they end (``complete`` says whether it did).

    ``reduced``: moves that commute with all that may come before them are not interleaved (``persistent``): the same verdict,
    perhaps another witness, and no remarks.
    """
    try:
        if ctas > 1 and not _flags(kernel):
            probe = Launch(kernel, launch_values, ctas=ctas, clusters=(0,))
            outcomes = []
            for cluster in range(min(ctas, probe.grid)):
                launch = Launch(
                    kernel, launch_values, ctas=ctas, clusters=(cluster,), all_warps=all_warps, halves=halves
                )
                outcomes.append(explore(Transitions(Model(launch)), limit, endless=endless, reduced=reduced))
                if outcomes[-1].verdict != "clean":
                    return outcomes[-1]
            return Outcome("clean", "", outcomes[0].trace if outcomes else (), sum(o.states for o in outcomes))
        launch = Launch(kernel, launch_values, ctas=ctas, all_warps=all_warps, halves=halves)
        return explore(Transitions(Model(launch)), limit, endless=endless, reduced=reduced)
    except Undecided as why:
        return Outcome("unknown", str(why).split(":")[0], (str(why),))
    except Fault as why:
        return Outcome("broken", str(why).split(":")[0], (str(why),))
    except Bad as bad:
        return Outcome("broken", bad.kind, ("at the start", bad.text))
    except CakeError as error:
        return Outcome("unknown", error.diagnostics[0].code, tuple(d.message for d in error.diagnostics))


def _flags(kernel: Kernel) -> bool:
    def inside(body: tuple[Any, ...]) -> bool:
        return any(
            (isinstance(n, Op) and n.op in ("signal", "wait_until"))
            or any(inside(getattr(n, part, ())) for part in ("body", "then", "orelse"))
            for n in body
        )

    return any(inside(role.body) for role in kernel.roles)


def explore(machine: Transitions, limit: int, *, endless: bool = False, reduced: bool = False) -> Outcome:
    """Depth first; the path to a bad state is its witness."""
    for agent in machine.model.agents:
        text = misuse(agent)
        if text:
            return Outcome("broken", "register", (f"{agent.name} {text}",), 0)
    if endless:
        return _endless(machine, limit)
    first = machine.first()
    successors = Reduction(machine).successors if reduced else machine.successors
    came: Came = {first: None}
    stack = [first]
    while stack:
        state = stack.pop()
        alive = False
        try:
            for move, following in successors(state):
                alive = True
                if following not in came:
                    came[following] = (state, move)
                    stack.append(following)
        except Bad as bad:
            return Outcome("broken", bad.kind, (*_path(machine, came, state), bad.text), len(came))
        if not alive and not machine.finished(state):
            return Outcome("broken", "deadlock", (*_path(machine, came, state), *_stuck(machine, state)), len(came))
        if len(came) > limit:
            return Outcome("unknown", "U906", (f"more than {limit} states",), len(came), complete=False)
    return Outcome("clean", "", tuple(sorted(machine.lapses))[:4], len(came))


def _endless(machine: Transitions, limit: int) -> Outcome:
    """Breadth first, so that early turns come first, over states up to rotation."""
    rotation = Rotation(machine)
    first = machine.first()
    came: Came = {first: None}
    known = {rotation.key(first)}
    queue = deque([first])
    ended = not rotation.usable
    while queue:
        state = queue.popleft()
        alive = False
        try:
            for move, following in machine.successors(state):
                alive = True
                key = rotation.key(following)
                if key not in known:
                    known.add(key)
                    came[following] = (state, move)
                    queue.append(following)
                    ended = ended or rotation.late(following)
        except Bad as bad:
            return Outcome("broken", bad.kind, (*_path(machine, came, state), bad.text), len(came))
        if not alive and not machine.finished(state):
            return Outcome("broken", "deadlock", (*_path(machine, came, state), *_stuck(machine, state)), len(came))
        if len(came) > limit:
            return Outcome("unknown", "U906", (f"more than {limit} states",), len(came), complete=False)
    return Outcome("clean", "", tuple(sorted(machine.lapses))[:4], len(came), complete=not ended)


def _path(machine: Transitions, came: Came, state: State) -> tuple[str, ...]:
    steps: list[str] = []
    at: State | None = state
    while at is not None:
        before = came[at]
        if before is None:
            break
        at, move = before
        steps.append(machine.label(*move))
    steps.reverse()
    return tuple(steps if len(steps) <= TRACE else ["...", *steps[-TRACE:]])


def _stuck(machine: Transitions, state: State) -> tuple[str, ...]:
    waiting = []
    for agent, place in enumerate(state[0]):
        step = machine.tracks[agent][place].step
        if step is not None:
            waiting.append(f"stuck: {machine.label(agent, step)}")
    return tuple(waiting)
