"""Mutants judged one by one, and the confusion matrix of what came out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from cake.ir.expanded import Kernel
from tests.mutation.judge import Truth, Verdict, names, truth, unrolled, verdict
from tests.mutation.parents import Parent
from tests.mutation.site import CLASSES, Mutant

CELLS = {
    ("broken", "rejected"): "broken rejected",
    ("broken", "policy"): "broken rejected",
    ("broken", "unknown"): "broken unknown",
    ("broken", "accepted"): "FALSE ACCEPT",
    ("harmless", "accepted"): "harmless accepted",
    ("harmless", "rejected"): "FALSE REJECT",
    ("harmless", "policy"): "policy",
    ("harmless", "unknown"): "harmless unknown",
    ("policy", "policy"): "policy",
    ("policy", "rejected"): "policy",
    ("policy", "unknown"): "policy",
    ("policy", "accepted"): "policy accepted",
    ("undecided", "accepted"): "undecided accepted",
    ("undecided", "rejected"): "undecided rejected",
    ("undecided", "policy"): "undecided rejected",
    ("undecided", "unknown"): "undecided rejected",
}
"""Truth and verdict to a column."""

COLUMNS = (
    "broken rejected",
    "broken unknown",
    "FALSE ACCEPT",
    "harmless accepted",
    "harmless unknown",
    "FALSE REJECT",
    "policy",
    "policy accepted",
    "undecided accepted",
    "undecided rejected",
    "crash",
)

NOTED = {
    "FALSE ACCEPT",
    "FALSE REJECT",
    "harmless unknown",
    "policy accepted",
    "undecided accepted",
    "undecided rejected",
    "crash",
}


Ask = Callable[[Parent, Kernel], Verdict]


@dataclass
class Result:
    """One mutant judged. ``cell``: its column, or ``equivalent`` / ``repeated``."""

    parent: str
    number: int
    what: str
    cell: str
    truth: Truth
    verdict: Verdict


@dataclass
class Matrix:
    """Counts by class, and what has to be looked at."""

    counts: dict[int, Counter[str]] = field(default_factory=dict)
    parents: dict[str, Counter[str]] = field(default_factory=dict)
    notes: list[dict[str, Any]] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)

    def add(self, r: Result) -> None:
        """One more."""
        self.counts.setdefault(r.number, Counter())[r.cell] += 1
        self.parents.setdefault(r.parent, Counter())[r.cell] += 1
        if r.truth.kind == "broken":
            self.kinds[r.truth.why] += 1
        if r.cell in NOTED:
            note = {"cell": r.cell, "parent": r.parent, "class": r.number, "what": r.what, "truth": r.truth.why}
            note |= {"trace": list(r.truth.trace[-6:]), "codes": r.verdict.codes, "says": r.verdict.text}
            self.notes.append(note)

    def total(self, cell: str) -> int:
        """Of all classes."""
        return sum(c[cell] for c in self.counts.values())

    def table(self) -> str:
        """As Markdown."""
        head = ("class", "distinct", *COLUMNS, "same as the parent", "repeated")
        lines = ["| " + " | ".join(head) + " |", "| --- |" + " ---: |" * (len(head) - 1)]
        for number in sorted(self.counts):
            c = self.counts[number]
            cells = [str(c[name] or "") for name in (*COLUMNS, "equivalent", "repeated")]
            distinct = sum(c[name] for name in COLUMNS)
            lines.append(f"| {number} {CLASSES.get(number, '')} | {distinct} | " + " | ".join(cells) + " |")
        whole = [str(self.total(name)) for name in (*COLUMNS, "equivalent", "repeated")]
        distinct = sum(self.total(name) for name in COLUMNS)
        lines.append(f"| **all** | **{distinct}** | " + " | ".join(f"**{v}**" for v in whole) + " |")
        return "\n".join(lines)


class Judge:
    """Judges mutants of one parent; equal skeletons once. ``known``: skeletons judged before. ``truths``: what an earlier run found
    of skeletons, which a change of the checker leaves as it is."""

    def __init__(
        self, parent: Parent, ask: Ask = verdict, known: Iterable[str] = (), truths: Mapping[str, Truth] | None = None
    ) -> None:
        self.parent = parent
        self.ask = ask
        self.truths = truths or {}
        self.base = names(unrolled(parent, parent.kernel)[0])
        self.known = set(known)

    def one(self, m: Mutant) -> Result:
        """One mutant."""
        parent = self.parent
        launches, said = unrolled(parent, m.kernel)
        name = names(launches) if said is None else said.skeleton
        if said is None and name == self.base:
            return Result(parent.name, m.number, m.what, "equivalent", Truth("equivalent"), Verdict(""))
        if name and name in self.known:
            return Result(parent.name, m.number, m.what, "repeated", Truth("repeated"), Verdict(""))
        self.known.add(name)
        heard = self.ask(parent, m.kernel)
        real = said or self.truths.get(name) or truth(parent, m.kernel, launches)
        cell = "crash" if heard.kind == "crash" else CELLS[real.kind, heard.kind]
        return Result(parent.name, m.number, m.what, cell, real, heard)


def judge(parent: Parent, mutants: Iterable[Mutant], ask: Ask = verdict) -> Iterator[Result]:
    """Judge the mutants of one parent."""
    one = Judge(parent, ask).one
    for m in mutants:
        yield one(m)
