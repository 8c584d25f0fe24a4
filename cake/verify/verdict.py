"""What the verifier answers."""

from __future__ import annotations

from typing import Literal

from cake.diagnostics import Diagnostic, Record

Status = Literal["safe", "unsafe", "unknown"]
Effort = Literal["quick", "full"]

PROVED = "proved for all trip counts"


class Verdict(Record):
    """The answer for one expanded kernel.

    ``claim`` says how far it reaches: "proved for all trip counts" (order and visibility inside a CTA, Theorem 3 of
    docs/verification.md 1.3), or "checked up to" the launches that were run. ``notes``: what the claim rests on and what
    it leaves out, in sentences. ``codes``: of the findings that block, root cause first;
    ``diagnostics``: those findings, and warnings. ``runs``: executions of the
    machine; ``events``: what the launches reported; ``nodes`` and ``edges`` of the graph of states that was closed, and
    ``walks``, the runs along it; ``seconds``: of processor time; ``effort``: how much was to be spent. A quick verdict claims
    no more than a full one, and may claim less.
    """

    status: Status
    claim: str
    codes: tuple[str, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    notes: tuple[str, ...] = ()
    runs: int = 0
    events: int = 0
    nodes: int = 0
    edges: int = 0
    walks: int = 0
    seconds: float = 0.0
    effort: Effort = "full"

    @property
    def proved(self) -> bool:
        """Safe for every trip count."""
        return self.status == "safe" and self.claim.startswith(PROVED)

    @property
    def open(self) -> bool:
        """Safe, and more effort may find a proof or look at more launches."""
        return self.status == "safe" and self.effort == "quick" and not self.proved
