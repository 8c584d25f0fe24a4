"""Which mutants run: as many safe as unsafe ones, taken from all classes and parents in turn.

The order is fixed by a seed. In each round every class gives its next candidate; the verifier judges it on the launch that
will run, and it is taken if its kind is still wanted, if its events differ from its parent's and from those of the parent's
mutants seen before, and if it can be built.
"""

from __future__ import annotations

import functools
import multiprocessing
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.chaos import store
from benchmarks.chaos.parents import Case, parents, right
from benchmarks.chaos.store import Index, Item
from cake.codegen.build import build
from cake.diagnostics import CakeError
from cake.machine import run
from tests.mutation.classes import mutants
from tests.mutation.judge import names, unrolled, verifier
from tests.mutation.site import Mutant

SEED = 20
ROUNDS = 80
KINDS = {"accepted": "safe", "rejected": "unsafe"}
REMARKS = frozenset({"W713", "G007", "G008"})
"""What ptxas says of a mutant's speed does not keep it from running."""

_CASES: dict[str, Case] = {}
_MUTANTS: dict[str, list[Mutant]] = {}
"""Set before the workers are forked."""


@dataclass(frozen=True)
class Candidate:
    """Mutant ``position`` of a case."""

    case: str
    number: int
    position: int

    @property
    def name(self) -> str:
        """Of its file."""
        return f"{self.number:02}-{self.case}-{self.position}"


@dataclass
class Answer:
    """What became of a candidate: its verdict, its skeleton, and the item if it was built (``refused``: why it was not)."""

    candidate: Candidate
    kind: str
    codes: list[str]
    skeleton: str = ""
    item: Item | None = None
    refused: str = ""


def order(found: dict[str, list[Mutant]], seed: int) -> dict[int, list[Candidate]]:
    """For each class its candidates, parents in turn, at random within."""
    by_class: dict[int, dict[str, list[Candidate]]] = {}
    for case, ms in found.items():
        for position, m in enumerate(ms):
            by_class.setdefault(m.number, {}).setdefault(case, []).append(Candidate(case, m.number, position))
    out: dict[int, list[Candidate]] = {}
    for number, by_case in sorted(by_class.items()):
        rnd = random.Random(1000 * seed + number)
        cases = sorted(by_case)
        rnd.shuffle(cases)
        for case in cases:
            rnd.shuffle(by_case[case])
        longest = max(map(len, by_case.values()))
        out[number] = [by_case[c][i] for i in range(longest) for c in cases if i < len(by_case[c])]
    return out


def rounds(ordered: dict[int, list[Candidate]]) -> Iterator[list[Candidate]]:
    """The next candidate of every class, again and again."""
    for i in range(ROUNDS):
        batch = [candidates[i] for candidates in ordered.values() if i < len(candidates)]
        if batch:
            yield batch


def outputs_of(case: Case, kernel: Any, seed: int = 0) -> dict[str, Any]:
    """What the simulator gives for a kernel on the case's launch."""
    return run(kernel, case.arguments, ctas=case.clusters, seed=seed).outputs


def same(a: dict[str, Any], b: dict[str, Any]) -> bool:
    """Whether outputs agree bit for bit."""
    return all(np.array_equal(store.bits(a[n]), store.bits(b[n])) for n in a)


def judge(task: tuple[Candidate, frozenset[str], str, bool]) -> Answer:
    """Judge a candidate, and build it into a directory if its kind is wanted."""
    candidate, wanted, directory, translation = task
    case = _CASES[candidate.case]
    mutant = _MUTANTS[candidate.case][candidate.position]
    launches, fault = unrolled(case.parent, mutant.kernel)
    skeleton = names(launches) if fault is None else ""
    said = verifier(case.parent, mutant.kernel)
    answer = Answer(candidate, KINDS.get(said.kind, said.kind), said.codes, skeleton)
    if answer.kind not in wanted:
        return answer
    own = None
    if answer.kind == "safe":
        outputs = outputs_of(case, mutant.kernel)
        if not same(outputs, outputs_of(case, mutant.kernel, seed=5)):
            answer.refused = "safe, but its simulated outputs depend on the schedule"
            return answer
        own = None if same(outputs, outputs_of(case, case.kernel)) else outputs
    try:
        artifact = build(mutant.kernel, chaos=0, allow=REMARKS, translation=translation)
    except CakeError as e:
        answer.refused = f"{e.diagnostics[0].code}: {e.diagnostics[0].message}"
        return answer
    store.save_item(Path(directory), candidate.name, artifact, own)
    answer.item = Item(
        candidate.name,
        candidate.case,
        answer.kind,
        candidate.number,
        mutant.what,
        answer.codes,
        own is not None,
        translation,
        bool(artifact.diagnostics),
    )
    return answer


def build_right(task: tuple[str, str]) -> tuple[str, dict[str, Any], Item]:
    """Build a kernel that must be right, with its launch."""
    name, directory = task
    case = _CASES[name]
    entry = store.save_case(Path(directory), case, outputs_of(case, case.kernel))
    artifact = build(case.kernel, chaos=0)
    store.save_item(Path(directory), name, artifact)
    return name, entry, Item(name, name, "safe")


def build_parent(task: tuple[str, str]) -> tuple[str, dict[str, Any], bool]:
    """Write a parent's launch; whether the translation check can follow the parent itself (else it is not asked of its
    mutants)."""
    name, directory = task
    case = _CASES[name]
    entry = store.save_case(Path(directory), case, outputs_of(case, case.kernel))
    try:
        build(case.kernel, chaos=0)
    except CakeError as e:
        if {d.code for d in e.diagnostics} != {"P119"}:
            raise
        return name, entry, False
    return name, entry, True


def quick() -> None:
    """Compile without counting instructions: starting the disassembler takes longer than everything else."""
    import os

    import cake.codegen.build as module
    from cake.codegen.report import report as full

    os.nice(10)
    setattr(module, "report", functools.partial(full, note="instructions are not counted"))  # noqa: B010


class Choice:
    """Takes answers until both kinds are complete."""

    def __init__(self, wanted: int, directory: Path) -> None:
        self.wanted, self.directory = wanted, directory
        self.items: dict[str, list[Item]] = {"safe": [], "unsafe": []}
        self.refused: list[dict[str, Any]] = []
        self.left: dict[str, int] = {}
        self._seen: set[tuple[str, str]] = set()

    @property
    def open(self) -> frozenset[str]:
        """Kinds of which more are wanted."""
        return frozenset(k for k, items in self.items.items() if len(items) < self.wanted)

    def know(self, case: str, skeleton: str) -> None:
        """A parent's events: mutants with the same are none."""
        self._seen.add((case, skeleton))

    def take(self, a: Answer) -> None:
        """One more answer, in order."""
        key = (a.candidate.case, a.skeleton)
        repeated = bool(a.skeleton) and key in self._seen
        self._seen.add(key)
        if a.item is not None and not repeated and a.kind in self.open:
            self.items[a.kind].append(a.item)
            return
        store.drop_item(self.directory, a.candidate.name)
        if a.refused and not repeated:
            self.refused.append({"name": a.candidate.name, "kind": a.kind, "why": a.refused})
        reason = "repeated" if repeated else "refused" if a.refused else f"{a.kind}, not needed"
        self.left[reason] = self.left.get(reason, 0) + 1


def build_all(directory: Path, wanted: int, jobs: int, say: Callable[[str], None] = print) -> Index:
    """Choose and build ``wanted`` mutants of each kind, and everything that must be right."""
    begin = time.time()
    cases, kernels = parents(), list(right())
    _CASES.update({c.name: c for c in (*cases, *kernels)})
    _MUTANTS.update({c.name: list(mutants(c.kernel)) for c in cases})
    choice = Choice(wanted, directory)
    for c in cases:
        choice.know(c.name, names(unrolled(c.parent, c.kernel)[0]))
    index = Index([], {})
    with multiprocessing.get_context("fork").Pool(jobs, initializer=quick) as pool:
        follows: dict[str, bool] = {}
        for name, entry, translates in pool.imap(build_parent, [(c.name, str(directory)) for c in cases]):
            index.cases[name], follows[name] = entry, translates
        for name, entry, item in pool.imap(build_right, [(c.name, str(directory)) for c in kernels]):
            index.cases[name] = entry
            index.items.append(item)
        say(f"{len(kernels)} kernels that must be right, {time.time() - begin:.0f} s")
        for batch in rounds(order(_MUTANTS, SEED)):
            if not choice.open:
                break
            tasks = [(c, choice.open, str(directory), follows[c.case]) for c in batch]
            for answer in pool.imap(judge, tasks):
                choice.take(answer)
            counts = ", ".join(f"{len(items)} {kind}" for kind, items in choice.items.items())
            say(f"{counts}, {time.time() - begin:.0f} s")
    index.items += [*choice.items["unsafe"], *choice.items["safe"]]
    index.refused, index.left, index.seconds = choice.refused, choice.left, round(time.time() - begin)
    index.save(directory)
    return index
