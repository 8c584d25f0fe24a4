"""Registers of wgmma operations (D206), the fence before one reads registers that others wrote (F306), and registers that
nothing has set (D209).

A wgmma reads its accumulators and a register A operand, and writes its accumulators, until its group has been waited
for by the same warp (PTX ISA 9.7.15.6.2; axiom A1 extends only the reads of shared operands to the warpgroup).
Several in flight may accumulate into the same registers.
"""

from __future__ import annotations

from dataclasses import dataclass

from cake.diagnostics import Diagnostic
from cake.ir import expanded as x
from cake.machine import events as ev
from cake.machine.order.clocks import DONE, Clock
from cake.machine.order.report import finding, of

Home = tuple[int, int, str]
"""Which registers: CTA, warp, tile."""


@dataclass(slots=True)
class InFlight:
    """A register operand of an operation that may be unfinished."""

    region: ev.RegisterRegion
    mode: str
    bit: int
    op: ev.AsyncOp


def overlap(a: ev.RegisterRegion, b: ev.RegisterRegion) -> bool:
    """The two parts of one tile share a register."""
    if a.lead != b.lead and a.lead and b.lead:
        return False
    for p, q in ((a.rows, b.rows), (a.cols, b.cols)):
        if p is not None and q is not None and (p[1] <= q[0] or q[1] <= p[0]):
            return False
    return True


class Registers:
    """The tracked tiles of all warps."""

    def __init__(self) -> None:
        self.flying: dict[Home, list[InFlight]] = {}
        self.touched: dict[tuple[Home, int], int] = {}
        self.fenced: dict[int, int] = {}
        self.findings: dict[tuple[str, str], Diagnostic] = {}
        self.unset: dict[str, Diagnostic] = {}
        self.unset_tiles: set[str] = set()

    def fence(self, column: int, number: int) -> None:
        """wgmma.fence by an agent."""
        self.fenced[column] = number

    def access(self, event: ev.Access, region: ev.RegisterRegion, column: int, number: int, clock: Clock) -> None:
        """A thread touches its registers."""
        home = region.cta, region.warp, region.tile
        self.touched[home, column] = number
        for use in self.flying.get(home, ()):
            conflict = use.mode != "r" or event.effect.mode != "r"
            if conflict and not clock.has(use.bit, DONE) and overlap(use.region, region):
                verb = "reads" if event.effect.mode == "r" else "writes"
                message = f"{of(event.agent)} {verb} `{region.tile}` while a wgmma uses it"
                self._add("D206", message, event.site, "wait for the wgmma group, or use another tile")

    def issue(self, event: ev.Issue, region: ev.RegisterRegion, mode: str, columns: list[int], bit: int) -> None:
        """A wgmma starts to use registers."""
        home = region.cta, region.warp, region.tile
        for column in columns:
            if self.fenced.get(column, 0) <= self.touched.get((home, column), 0):
                message = f"a wgmma uses `{region.tile}`, accessed by {of(event.agent)} since its last wgmma fence"
                self._add("F306", message, event.site, "fence.wgmma before the first wgmma after an access")
        self.flying.setdefault(home, []).append(InFlight(region, mode, bit, event.op))

    def nothing(self, event: ev.Unset) -> None:
        """A step reads registers that no step of its instance has set."""
        site = event.site
        assert site is not None
        self.unset_tiles.add(event.tile)
        if site.path not in self.unset:
            accumulates = (
                isinstance(site.node, x.Op) and site.node.op == "wgmma" and site.node.reg("d").name == event.tile
            )
            verb = "adds to" if accumulates else "reads"
            message = f"{site.role} {verb} registers of `{event.tile}` that nothing has set"
            help = (
                "the first wgmma overwrites them: use_acc false"
                if accumulates
                else "assign them before, on every way here"
            )
            self.unset[site.path] = finding("D209", message, site, help=help)

    def waited(self, cta: int, warp: int, clocks: list[Clock]) -> None:
        """Forget what both halves of a warp know to be finished."""
        done = clocks[0].bits[DONE]
        for clock in clocks[1:]:
            done &= clock.bits[DONE]
        for (where, number, _), uses in self.flying.items():
            if where == cta and number == warp and uses:
                uses[:] = [u for u in uses if not done >> u.bit & 1]

    def _add(self, code: str, message: str, site: ev.Site | None, help: str) -> None:
        key = code, site.path if site is not None else ""
        if key not in self.findings:
            self.findings[key] = finding(code, message, site, help=help)
