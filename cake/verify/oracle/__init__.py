"""The visibility oracle: adversarial executions in which every agent has its own view of memory.

It shares no code with the machine and its order reading. See ``views`` for the model, ``run`` for the schedules.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cake.diagnostics import CakeError
from cake.ir.expanded import Kernel
from cake.verify.oracle.memory import Seen
from cake.verify.oracle.run import Run
from cake.verify.search.lower import Launch
from cake.verify.search.outcome import Outcome
from cake.verify.search.registers import misuse
from cake.verify.search.steps import Fault, Undecided

SEEDS = 64

__all__ = ["SEEDS", "assault", "attack"]


def attack(
    kernel: Kernel,
    launch_values: Mapping[str, Any],
    seeds: int | Iterable[int] = SEEDS,
    *,
    ctas: int = 1,
    all_warps: bool = True,
    halves: bool = True,
    lanes: bool = False,
) -> Outcome:
    """Run one launch under ``seeds`` adversarial schedules; the first bad execution is the outcome. ``lanes``: each lane of a warp
    is an agent of its own (for small programs: a view each).

    ``broken`` with ``policy`` is what only a conservative rule refuses (a fence by another thread; a refill through the async
    proxy after an unfenced read). ``clean`` says that no seed found anything: it is no proof.
    """
    try:
        launch = Launch(kernel, launch_values, ctas=ctas, all_warps=all_warps, halves=halves, lanes=lanes)
    except Undecided as why:
        return Outcome("unknown", str(why).split(":")[0], (str(why),))
    except Fault as why:
        return Outcome("broken", str(why).split(":")[0], (str(why),))
    except CakeError as error:
        return Outcome("unknown", error.diagnostics[0].code, tuple(d.message for d in error.diagnostics))
    return assault(launch, range(seeds) if isinstance(seeds, int) else seeds)


def assault(launch: Launch, seeds: Iterable[int]) -> Outcome:
    """The same for a launch that is unrolled already."""
    steps = 0
    policy: dict[str, str] = {}
    for agent in launch.agents:
        text = misuse(agent)
        if text:
            return Outcome("broken", "register", (f"{agent.name} {text}",), 0)
    for seed in seeds:
        run = Run(launch, seed)
        try:
            run.run()
        except Seen as seen:
            return Outcome("broken", seen.kind, (f"seed {seed}", seen.text), steps + run.steps)
        policy |= run.memory.policy
        steps += run.steps
    if policy:
        kind = next(iter(policy))
        return Outcome("broken", kind, (policy[kind],), steps, policy=True)
    return Outcome("clean", "", (), steps, complete=False)
