"""D9, quiescence: before a CTA's last exit, all that touches its shared memory is over, and nothing remote comes later.

An asynchronous operation must have finished the part that touches the memory (loads: writes; bulk stores and wgmma:
reads) in the past of *some* exit of that CTA (D213). A remote access or arrival must be in the past of an exit of its
target, and its issuer must know that the target has begun (D214, P117).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cake.diagnostics import Diagnostic
from cake.machine import events as ev
from cake.machine.order.clocks import DONE, READ, C, Clock
from cake.machine.order.layout import Columns
from cake.machine.order.report import finding, of


@dataclass(slots=True)
class Touch:
    """An operation's part in a CTA's shared memory."""

    cta: int
    bit: int
    part: int
    event: ev.Issue


class Leaving:
    """What each CTA's exits know together, and what must be among it."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.done: dict[int, list[int]] = {cta: [0, 0] for cta in columns.of_cta}
        self.past = {cta: np.zeros(columns.count, dtype=np.int32) for cta in columns.of_cta}
        self.touches: list[Touch] = []
        self.remote: list[tuple[int, int, int, ev.Event, str]] = []
        self.findings: dict[tuple[str, str], Diagnostic] = {}

    def issue(self, event: ev.Issue, bits: dict[int, int]) -> None:
        """An operation touches shared memory; ``bits``: its place in the sets, by destination CTA."""
        for effect in event.effects:
            if isinstance(effect.region, ev.SharedRegion):
                part = READ if effect.mode == "r" else DONE
                cta = effect.region.cta
                self.touches.append(Touch(cta, bits.get(cta, bits[-1]), part, event))

    def reach(self, cta: int, column: int, number: int, event: ev.Event, clock: Clock, code: str) -> None:
        """An access or arrival of another CTA: its target must have begun, and must not have ended."""
        if not any(clock.rows[C, c] for c in self.columns.of_cta[cta]):
            who = getattr(event, "agent", None) or getattr(event, "by", None)
            assert who is not None
            self._add(code, f"{of(who)} reaches into CTA {cta} before that CTA is known to have started", event)
        self.remote.append((cta, column, number, event, code))

    def exit(self, agent: ev.Agent, clock: Clock) -> None:
        """An agent leaves."""
        done = self.done[agent.cta]
        done[READ] |= clock.bits[READ]
        done[DONE] |= clock.bits[DONE]
        np.maximum(self.past[agent.cta], clock.rows[C], out=self.past[agent.cta])

    def finish(self) -> list[Diagnostic]:
        """The findings."""
        for touch in self.touches:
            if not self.done[touch.cta][touch.part] >> touch.bit & 1:
                issue = touch.event
                code = "D213" if issue.agent.cta == touch.cta else "D214"
                verb = "write" if touch.part == DONE else "read"
                message = (
                    f"{of(issue.op)} may still {verb} the shared memory of CTA {touch.cta} when that CTA has ended"
                )
                self._add(code, message, issue)
        for cta, column, number, event, code in self.remote:
            if self.past[cta][column] < number:
                who = getattr(event, "agent", None) or getattr(event, "by", None)
                assert who is not None
                self._add(code, f"{of(who)} reaches into CTA {cta}, which may have ended", event)
        return list(self.findings.values())

    def _add(self, code: str, message: str, event: ev.Event) -> None:
        help = {
            "D213": "wait for it in a thread that exits later, or make one fill less",
            "D214": "end with a cluster barrier",
            "P117": "end with a cluster barrier",
        }[code]
        key = code, event.site.path if event.site is not None else ""
        if key not in self.findings:
            self.findings[key] = finding(code, message, event.site, help=help)
