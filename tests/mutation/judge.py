"""Truth and verdict of one mutant over its parent's launches (docs/verification.md 2.1)."""

from __future__ import annotations

from dataclasses import dataclass, field

from cake.diagnostics import CakeError
from cake.expand.wellformed import problems
from cake.ir import expanded as x
from cake.machine.order import check
from cake.verify.oracle import assault
from cake.verify.search.explore import search
from cake.verify.search.lower import Launch
from cake.verify.search.outcome import Outcome
from cake.verify.search.steps import Fault, Undecided
from tests.mutation.parents import Parent
from tests.mutation.skeleton import skeleton

POLICY = {"F302", "F303"}
"""Codes that refuse by axiom A4."""

FEW, MANY = 3, 12
"""Seeds of the oracle: first, and where nothing was found. (The search tries all interleavings; views need few seeds.)"""

STATES = 40_000
"""Of one launch, after reduction."""


@dataclass
class Truth:
    """``broken``, ``policy``, ``harmless``, ``undecided`` or ``ill`` (no launch could be unrolled)."""

    kind: str
    why: str = ""
    trace: tuple[str, ...] = ()
    skeleton: str = ""
    states: int = 0


@dataclass
class Verdict:
    """``accepted``, ``rejected``, ``policy``, ``unknown`` or ``crash``."""

    kind: str
    codes: list[str] = field(default_factory=list)
    text: str = ""


def unrolled(parent: Parent, kernel: x.Kernel) -> tuple[list[Launch], Truth | None]:
    """The launches of a mutant for the oracle, or the truth if they say it already."""
    launches = []
    for values in parent.launches:
        try:
            launches.append(Launch(kernel, values, ctas=parent.ctas, halves=True))
        except Fault as why:
            return launches, Truth("broken", str(why).split(":")[0], (str(why),), f"fault {why}")
        except Undecided as why:
            return launches, Truth("undecided", str(why))
        except CakeError as error:
            return launches, Truth("undecided", error.diagnostics[0].message)
    return launches, None


def names(launches: list[Launch]) -> str:
    """The skeleton over the grid."""
    return "+".join(skeleton(launch) for launch in launches)


def truth(parent: Parent, kernel: x.Kernel, launches: list[Launch], states: int = STATES) -> Truth:
    """What the two engines say together."""
    name = names(launches)
    policy: Outcome | None = None
    for launch in launches:
        found = assault(launch, range(FEW))
        if found.broken:
            return Truth("broken", found.kind, found.trace, name)
        policy = found if found.policy else policy
    total, undecided = 0, ""
    for values in parent.launches:
        found = search(kernel, values, ctas=parent.ctas, limit=states, reduced=True)
        total += found.states
        if found.verdict == "broken":
            return Truth("broken", found.kind, found.trace, name, total)
        if found.verdict == "unknown":
            undecided = found.trace[0]
            break
    for launch in launches:
        found = assault(launch, range(FEW, MANY))
        if found.broken:
            return Truth("broken", found.kind, found.trace, name, total)
    if undecided:
        return Truth("undecided", undecided, (), name, total)
    if policy is not None:
        return Truth("policy", policy.kind, policy.trace, name, total)
    return Truth("harmless", "", (), name, total)


def verifier(parent: Parent, kernel: x.Kernel) -> Verdict:
    """What the whole verifier says of the kernel, given the same launches (its closure goes past them)."""
    from cake.verify import verify

    try:
        ill = problems(kernel)
        if ill:
            return Verdict("rejected", ["X003"], ill[0])
        said = verify(kernel, effort="quick", launches=[dict(v) for v in parent.launches], ctas=parent.ctas)
        codes = list(said.codes)
        text = next((d.message for d in said.diagnostics if d.code in said.codes), "")
        kind = {"safe": "accepted", "unsafe": "rejected", "unknown": "unknown"}[said.status]
        return Verdict("policy" if kind == "rejected" and codes and set(codes) <= POLICY else kind, codes, text)
    except CakeError as error:
        return Verdict("rejected", [d.code for d in error.diagnostics], error.diagnostics[0].message)
    except Exception as error:
        return Verdict("crash", [type(error).__name__], str(error)[:200])


def verdict(parent: Parent, kernel: x.Kernel) -> Verdict:
    """What the checker says over the grid: the first launch it refuses."""
    try:
        ill = problems(kernel)
        if ill:
            return Verdict("rejected", ["X003"], ill[0])
        policy: Verdict | None = None
        for values in parent.launches:
            found = [d for d in check(kernel, values, ctas=parent.ctas, values=False) if d.severity == "error"]
            if not found:
                continue
            codes = sorted({d.code for d in found})
            if all(c.startswith("U") for c in codes):
                return Verdict("unknown", codes, found[0].message)
            if set(codes) <= POLICY:
                policy = Verdict("policy", codes, found[0].message)
                continue
            return Verdict("rejected", codes, found[0].message)
        return policy or Verdict("accepted")
    except CakeError as error:
        return Verdict("rejected", [d.code for d in error.diagnostics], error.diagnostics[0].message)
    except Exception as error:
        return Verdict("crash", [type(error).__name__], str(error)[:200])
