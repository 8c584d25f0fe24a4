"""What the interpreter says of a launch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Verdict = Literal["clean", "broken", "policy", "unknown"]


@dataclass(frozen=True)
class Finding:
    """Something that is wrong. ``kind`` is a word, ``line`` the line of the PTX, ``place`` the line of the generated or
    the author's source. ``policy``: refused by the reading of proxy fences in axiom A4 only."""

    kind: str
    text: str
    line: int = 0
    place: str = ""
    policy: bool = False

    def __str__(self) -> str:
        where = f" ({self.place or f'PTX line {self.line}'})" if self.line else ""
        return f"{self.kind}: {self.text}{where}"


class Broken(Exception):
    """A finding after which the run has no meaning."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(str(finding))
        self.finding = finding


class Undecided(Exception):
    """The code does something that the interpreter does not follow: an unknown instruction, or control by data."""


@dataclass(frozen=True)
class Run:
    """One schedule. ``steps``: synchronising instructions executed; ``covered``: places of the effects among all
    instructions that were. ``log``: for each strand (CTA, warp, lowest lane) where it
    waited and read, and which phases and whose writes it found there. ``atomics``: these may depend on the order of
    atomics."""

    schedule: str
    findings: tuple[Finding, ...] = ()
    undecided: str = ""
    steps: int = 0
    log: dict[tuple[int, int, int], list[tuple[int, object]]] = field(default_factory=dict, compare=False, repr=False)
    atomics: bool = False
    covered: frozenset[int] = field(default=frozenset(), compare=False, repr=False)


@dataclass(frozen=True)
class Outcome:
    """``clean``: nothing was found in any schedule; ``broken``; ``policy``: contracts are broken, without a victim; ``unknown``:
    outside of what is followed. ``schedule``: the one that showed the first finding."""

    verdict: Verdict
    findings: tuple[Finding, ...] = ()
    schedule: str = ""
    why: str = ""
    steps: int = 0
    schedules: int = 0

    @property
    def kind(self) -> str:
        """Of the first finding that is not of policy, or the first."""
        firm = [f for f in self.findings if not f.policy]
        return (firm or list(self.findings))[0].kind if self.findings else ""
