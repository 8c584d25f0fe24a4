"""The verdict on one expanded kernel: what can be said without a run, small launches, and the closure of its states.

Launches come first: they show real failures with a witness, and count what every launch must do to its outputs. Then the
graph of states is closed for a proof of all trip counts; where it does not close, more launches say how far was looked.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from cake.diagnostics import CakeError, Diagnostic
from cake.ir import expanded as x
from cake.machine.order.reader import Order
from cake.machine.run import run
from cake.verify import grid, remarks, report
from cake.verify.causes import refine
from cake.verify.closure import Closed, explore
from cake.verify.launches import CTAS, Family, Launch, ranges
from cake.verify.limits import limits
from cake.verify.outputs import Coverage, coverage
from cake.verify.padding import concerned, padding
from cake.verify.schedules import SEEDS, UNDECIDED, failure
from cake.verify.skeleton import Plan, Unfit, plan
from cake.verify.statics import outside
from cake.verify.verdict import PROVED, Effort, Status, Verdict


@dataclass(frozen=True)
class Budget:
    """How much to spend: steps and seconds of the closure, seconds of launches, how many launches at least, how many of them
    are read for padding besides the least one, and after how many events of launches enough have been run. Where steps and
    events decide, the claim is the same on every machine."""

    steps: int
    seconds: float
    launches: float
    least: int
    padded: int = 0
    seeds: int = SEEDS
    events: int = 1 << 60


BUDGETS: dict[Effort, Budget] = {
    "quick": Budget(steps=2000, seconds=2.0, launches=1.0, least=3, seeds=32, events=800),
    "full": Budget(steps=2_000_000, seconds=30.0, launches=15.0, least=3, padded=4),
}
LAUNCH_STEPS = 400_000
"""Steps after which a launch is given up as too large."""


def verify(
    kernel: x.Kernel,
    *,
    effort: Effort = "full",
    budget: Budget | None = None,
    launches: list[dict[str, Any]] | None = None,
    ctas: int = CTAS,
) -> Verdict:
    """Decide whether ``kernel`` is safe. ``launches``: arguments to run instead of the family that is derived."""
    return _Verifier(kernel, budget or BUDGETS[effort], launches, ctas, effort).decide()


@dataclass
class _Verifier:
    kernel: x.Kernel
    budget: Budget
    given: list[dict[str, Any]] | None
    ctas: int
    effort: Effort = "full"
    runs: int = 0
    events: int = 0
    graph: tuple[int, int, int] = (0, 0, 0)
    findings: list[Diagnostic] = field(default_factory=list)
    unknown: list[Diagnostic] = field(default_factory=list)
    done: list[Launch] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    start: float = field(default_factory=time.process_time)

    def __post_init__(self) -> None:
        self.flags = bool(grid.waits(self.kernel))

    def decide(self) -> Verdict:
        """The verdict."""
        try:
            self.findings += limits(self.kernel)
            if self.findings:
                return self._failed()
            self.unknown += outside(self.kernel)
            launches = iter(self._launches())
            self._run(launches, self.budget.least, self.budget.launches)
            self.findings += grid.unstated(self.kernel)
            if self.findings:
                return self._failed()
            if not self.done:
                self.unknown.append(_no_launch(self.kernel))
            self._pad()
            if self.findings:
                return self._failed()
            claim = None if self.unknown else self._close()
            if self.findings:
                return self._failed()
            if claim is None and not self.unknown:
                self._run(launches, 1 << 30, self.budget.launches)
                if self.findings:
                    return self._failed()
        except CakeError as error:
            self.findings += error.diagnostics
            return self._failed()
        if self.unknown:
            return self._verdict("unknown", "not known", self.unknown)
        if self.flags:
            self.notes.append(
                "CTAs wait for each other: each wait is for a tile that is not later in the list, in the launches above; that a "
                "waiting CTA is answered rests on the grid's CTAs being resident together (axiom A7)"
            )
        return self._verdict("safe", claim or f"checked up to {ranges(self.done)}", [])

    # -- launches -----------------------------------------------------------------------------------------------------

    def _launches(self) -> list[Launch] | Any:
        if self.given is not None:
            return [Launch(a, {n: v for n, v in a.items() if isinstance(v, int)}) for a in self.given]
        return Family(self.kernel).launches()

    def _run(self, launches: Any, count: int, seconds: float) -> None:
        """Run some launches, until something is found or the budget is spent."""
        deadline = time.process_time() + seconds
        last = self.events + self.budget.events
        for number, launch in enumerate(launches):
            self._one(launch)
            if self.findings or number + 1 >= count or self.events > last or time.process_time() > deadline:
                return

    def _one(self, launch: Launch) -> None:
        order = Order()
        shapes = {t.name: launch.arguments[t.name].shape for t in self.kernel.tensors if t.direction != "in"}
        watch = Coverage(order, shapes)
        ctas = grid.clusters(self.kernel, self.runs) if self.flags else self.ctas
        self.runs += 1
        found: list[Diagnostic] = []
        try:
            result = run(
                self.kernel,
                launch.arguments,
                ctas=ctas,
                observer=watch,
                values=False,
                max_steps=LAUNCH_STEPS,
            )
            self.events += result.events
            if self.flags:
                found += grid.progress(self.kernel, order.flags)
                found += grid.left_over(self.kernel, result.outputs, order.flags)
        except CakeError as error:
            if any(d.code.startswith("R") for d in error.diagnostics):
                self.runs -= 1
                return
            if any(d.code == "U906" for d in error.diagnostics):
                return
            order.finish(complete=False)
            found += self._why(error.diagnostics, launch, ctas)
        found += order.findings
        self.done.append(launch)
        if not found:
            found = coverage(self.kernel, watch, launch.text, flags=self.flags)
        if found:
            self.findings += [_at(d, launch) for d in report.choose(refine(self.kernel, found, launch.values))]
            self._demonstrate(launch)

    def _pad(self) -> None:
        """N802, on a launch that has been found in order."""
        if not concerned(self.kernel):
            return
        deadline = time.process_time() + self.budget.launches
        least = Family(self.kernel).padded() if self.given is None else None
        more = self.done[: self.budget.padded or (least is None)]
        for launch in more if least is None else [least, *more]:
            ctas = grid.clusters(self.kernel, 0) if self.flags else self.ctas
            found = padding(self.kernel, launch.arguments, set(launch.data), ctas=ctas, max_steps=LAUNCH_STEPS)
            self.findings += [_at(d, launch) for d in report.choose(found)]
            if self.findings or time.process_time() > deadline:
                return

    def _why(self, found: Sequence[Diagnostic], launch: Launch, ctas: int) -> list[Diagnostic]:
        """A launch that is stuck at words of global memory: what the waits lack is the cause, the deadlock its witness."""
        if self.flags and any(d.code == "P101" for d in found):
            causes = grid.stuck(self.kernel, launch.arguments, ctas=ctas, max_steps=LAUNCH_STEPS)
            if causes:
                trace = next(d.message for d in found if d.code == "P101")
                return [d.model_copy(update={"witness": (*d.witness, trace)}) for d in causes]
        return list(found)

    def _demonstrate(self, launch: Launch) -> None:
        """Conditions of determinacy need a schedule that goes wrong, or they leave the verdict open."""
        suspects = [d for d in self.findings if d.code in UNDECIDED]
        if not suspects or len(suspects) < len(self.findings):
            return
        trace, tried = failure(
            self.kernel, launch.arguments, ctas=self.ctas, max_steps=LAUNCH_STEPS, seeds=self.budget.seeds
        )
        self.runs += tried
        if trace is not None:
            self.findings = [d.model_copy(update={"witness": (*d.witness, *trace)}) for d in self.findings]
            return
        self.findings = []
        for d in suspects:
            self.unknown.append(
                d.model_copy(
                    update={
                        "code": "U902",
                        "message": f"not deterministic, though no failure was found in {tried} schedules: {d.message}",
                        "facts": (f"the condition is that of {d.code}", *d.facts),
                        "contract": report.CONTRACTS[d.code],
                    }
                )
            )

    # -- all trip counts ----------------------------------------------------------------------------------------------

    def _close(self) -> str | None:
        try:
            skeleton = plan(self.kernel)
            closed = explore(skeleton, max_steps=self.budget.steps, seconds=self.budget.seconds)
        except Unfit as why:
            self.notes.append(f"no proof for all trip counts: {why}")
            return None
        self.runs += closed.runs
        self.graph = closed.nodes, closed.edges, closed.runs
        if closed.findings:
            self._aim(skeleton, closed)
            return None
        states = f"{closed.nodes} states, " if closed.nodes else ""
        unset = (
            f"that {', '.join(f'`{n}`' for n in sorted(closed.unset))} is set before it is read, "
            if closed.unset
            else ""
        )
        self.notes.append(
            f"barriers, shared memory and registers: closed over all counts and conditions ({states}{closed.edges} tiles, "
            f"{closed.runs} runs); {unset}global accesses and outputs: {ranges(self.done)}"
        )
        return PROVED

    def _aim(self, skeleton: Plan, closed: Closed) -> None:
        """The skeleton fails: find a launch that does so too; else it is open whether there is one."""
        wanted = {
            c.leaf: closed.failing[c.name] for c in skeleton.counts if c.leaf is not None and c.name in closed.failing
        }
        if self.given is None:
            self._run(Family(self.kernel).aimed(wanted), 1 << 30, self.budget.launches)
        if not self.findings and not self.unknown:
            first = report.choose(closed.findings)[0]
            counts = ", ".join(f"{n} = {v}" for n, v in wanted.items())
            self.unknown.append(
                first.model_copy(
                    update={
                        "code": "U904",
                        "message": f"some combination of trip counts and conditions fails, and no launch was found that has it: "
                        f"{first.message}",
                        "contract": report.CONTRACTS.get(first.code),
                        "facts": (
                            f"the finding is {first.code}",
                            *((f"with {counts}",) if counts else ()),
                            *first.facts,
                        ),
                    }
                )
            )

    # -- the answer ---------------------------------------------------------------------------------------------------

    def _failed(self) -> Verdict:
        if not self.findings:
            return self._verdict("unknown", "not known", self.unknown)
        return self._verdict("unsafe", "refuted", self.findings)

    def _verdict(self, status: Status, claim: str, found: list[Diagnostic]) -> Verdict:
        chosen = report.choose(found)
        unordered = remarks.unordered_sums(self.kernel)
        if unordered is not None and status == "safe":
            self.notes.append(unordered)
        return Verdict(
            status=status,
            claim=claim,
            codes=tuple(dict.fromkeys(d.code for d in chosen)),
            diagnostics=(*chosen, *remarks.remarks(self.kernel)),
            notes=tuple(self.notes),
            runs=self.runs,
            events=self.events,
            nodes=self.graph[0],
            edges=self.graph[1],
            walks=self.graph[2],
            seconds=round(time.process_time() - self.start, 4),
            effort=self.effort,
        )


def _at(d: Diagnostic, launch: Launch) -> Diagnostic:
    line = f"launch: {launch.text}"
    return d if line in d.witness else d.model_copy(update={"witness": (*d.witness, line)})


def _no_launch(kernel: x.Kernel) -> Diagnostic:
    return Diagnostic(
        code="U904",
        severity="error",
        message=f"no small launch of {kernel.name} was found that meets its guards and assumptions",
        span=kernel.span,
        help="state what the dims must satisfy in simpler conditions",
    )
