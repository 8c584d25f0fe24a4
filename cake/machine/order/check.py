"""The order check of one launch: one canonical run, read by ``Order``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cake.diagnostics import CakeError, Diagnostic
from cake.ir import expanded as x
from cake.machine.order.conflicts import Profile
from cake.machine.order.reader import Order
from cake.machine.run import run

MEANINGLESS = frozenset({"P101", "P102", "P103", "P104", "P105", "P107", "P108", "P113", "P114", "P115", "P116"})
"""Protocol findings after which the run says nothing about data: phases do not hold what the program means by them, so
Theorem 2 (docs/verification.md 1.3) does not apply, and what the clocks say of accesses is a consequence."""

RANK = "WTPDFMOCNUH"
"""Root causes first: limits, types, protocol, data."""


def check(
    kernel: x.Kernel,
    arguments: Mapping[str, Any],
    *,
    ctas: int = 2,
    profile: Profile = "conservative",
    seed: int = 0,
    values: bool = True,
    max_steps: int | None = None,
) -> list[Diagnostic]:
    """Run ``kernel`` once (``ctas`` clusters together) and report what is not ordered as it needs to be: no finding
    means that conditions D0-D5 and D7-D10 hold on this run, hence, under the axioms, no schedule of this launch hangs
    or races.

    ``seed`` picks the schedule of the run; by Theorem 1 the verdict of a launch in the fragment does not depend on it.
    """
    order = Order(profile)
    findings: list[Diagnostic] = []
    try:
        run(kernel, arguments, ctas=ctas, seed=seed, observer=order, values=values, max_steps=max_steps)
    except CakeError as error:
        findings += error.diagnostics
        order.finish(complete=False)
    findings += order.findings
    if any(d.code in MEANINGLESS for d in findings):
        findings = [d for d in findings if d.code[0] not in "DF" or d.code == "F308"]
    return sorted({d.model_dump_json(): d for d in findings}.values(), key=_rank)


def _rank(d: Diagnostic) -> tuple[int, bool, str]:
    """A deadlock comes after the protocol findings that may have caused it."""
    return RANK.find(d.code[0]) % len(RANK), d.code == "P101", d.code
