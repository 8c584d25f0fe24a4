"""What each engine says of one launch, in one vocabulary: clean, broken, policy (a contract without a victim), unknown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cake.diagnostics import CakeError
from cake.expand.wellformed import problems
from cake.ir import expanded as x
from cake.machine.order import Profile, check
from cake.verify.oracle import attack
from cake.verify.search import search
from tests.engines.emitted import interpret
from tests.mutation.judge import POLICY

ENGINES = ("order", "search", "oracle", "ptx")


def order(kernel: x.Kernel, values: Mapping[str, Any], ctas: int) -> str:
    """The order reading, after the check that the kernel is well-formed."""
    if problems(kernel):
        return "broken"
    codes = _codes(kernel, values, ctas, "conservative")
    if not codes:
        return "clean"
    if codes <= POLICY and not _codes(kernel, values, ctas, "practice"):
        return "policy"
    return "unknown" if all(c.startswith("U") for c in codes) else "broken"


def _codes(kernel: x.Kernel, values: Mapping[str, Any], ctas: int, profile: Profile) -> set[str]:
    try:
        found = check(kernel, dict(values), ctas=ctas, profile=profile, values=False)
    except CakeError as error:
        found = list(error.diagnostics)
    return {d.code for d in found if d.severity == "error"}


def searched(kernel: x.Kernel, values: Mapping[str, Any], ctas: int) -> str:
    """The search over interleavings of warps."""
    return search(kernel, dict(values), ctas=ctas, limit=20_000).verdict


def attacked(kernel: x.Kernel, values: Mapping[str, Any], ctas: int) -> str:
    """The visibility oracle."""
    found = attack(kernel, dict(values), 16, ctas=ctas)
    return "policy" if found.policy else found.verdict


def interpreted(kernel: x.Kernel, values: Mapping[str, Any], ctas: int) -> str:
    """The interpreter on the emitted code; ``not emitted`` where there is none."""
    try:
        return interpret(kernel, values, ctas, seeds=2, warps=1).verdict
    except CakeError:
        return "not emitted"


ASK = {"order": order, "search": searched, "oracle": attacked, "ptx": interpreted}


def verdicts(kernel: x.Kernel, values: Mapping[str, Any], ctas: int = 1) -> dict[str, str]:
    """Of all engines."""
    return {name: ask(kernel, values, ctas) for name, ask in ASK.items()}
