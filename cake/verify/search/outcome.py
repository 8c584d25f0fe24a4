"""What an engine says of one launch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["clean", "broken", "unknown"]


@dataclass(frozen=True)
class Outcome:
    """``clean``: nothing was found (by the search: in all interleavings); ``broken``: a concrete bad execution, ``kind`` and
    ``trace`` say which; ``unknown``: outside what the engine reads, or the limit was reached (``kind`` is the code). ``policy``:
    broken only by a conservative rule of the proof (axiom A4), not by what the hardware is known to do. ``states``: how many were
    looked at (by the oracle: steps)."""

    verdict: Verdict
    kind: str = ""
    trace: tuple[str, ...] = ()
    states: int = 0
    policy: bool = False
    complete: bool = True

    @property
    def broken(self) -> bool:
        """A bad execution was found that no profile admits."""
        return self.verdict == "broken" and not self.policy
