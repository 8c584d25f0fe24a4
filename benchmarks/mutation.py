"""The mutation suite in full: confusion matrix by class, as JSON and as the table of docs/verifier.md.

``python -m benchmarks.mutation [--minutes N] [--only NAME] [--every N] [--page]`` judges mutants one after the other, small parents
first, and notes each in a progress file; the next call goes on from there (``--fresh``: from the start; ``--truths FILE``: with the
truths of an earlier run, after a change of the checker). One process, no GPU.
``--checker`` mutates the checker instead: its effects and its rules.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.mutation.classes import CLASSES, LEFT_OUT, mutants
from tests.mutation.judge import MANY, STATES, Truth, Verdict, verdict, verifier
from tests.mutation.matrix import COLUMNS, Judge, Matrix, Result, judge
from tests.mutation.parents import Parent, parents
from tests.mutation.site import Mutant

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "mutation.json"
PROGRESS = ROOT / "build" / "mutation.jsonl"
PAGE = ROOT / "docs" / "verifier.md"
BEGIN, END = "<!-- mutation: begin -->", "<!-- mutation: end -->"
PATIENCE = 120
"""Seconds for one mutant; then it is undecided."""


class Slow(BaseException):
    """One mutant takes too long. (No error of the checker, so nothing on the way takes it for one.)"""


def _alarm(*_: Any) -> None:
    raise Slow


def order(parent: Parent, seed: int, every: int) -> list[Mutant]:
    """A parent's mutants in a fixed random order."""
    found = list(mutants(parent.kernel))
    random.Random(seed).shuffle(found)
    return found[::every]


def work(
    parent: Parent, chosen: list[Mutant], whole: bool, known: set[str], truths: dict[str, Truth], deadline: float
) -> Iterator[Result]:
    """Judge mutants until the deadline."""
    signal.signal(signal.SIGALRM, _alarm)
    judging = Judge(parent, verifier if whole else verdict, known, truths)
    for m in chosen:
        if time.time() > deadline:
            return
        signal.alarm(PATIENCE)
        try:
            result = judging.one(m)
        except Slow:
            said = Truth("undecided", f"more than {PATIENCE} s")
            result = Result(parent.name, m.number, m.what, "undecided accepted", said, Verdict("unknown"))
        finally:
            signal.alarm(0)
        yield result


def written(r: Result, seconds: float) -> str:
    """A line of the progress file."""
    line = {
        "parent": r.parent,
        "class": r.number,
        "what": r.what,
        "cell": r.cell,
        "truth": r.truth.kind,
        "why": r.truth.why,
    }
    line |= {"skeleton": r.truth.skeleton, "states": r.truth.states, "seconds": round(seconds, 3)}
    line |= {"trace": list(r.truth.trace[-6:]), "codes": r.verdict.codes, "says": r.verdict.text}
    return json.dumps(line) + "\n"


def read(line: dict[str, Any]) -> Result:
    """A result from the progress file."""
    truth = Truth(line["truth"], line["why"], tuple(line["trace"]), line["skeleton"], line["states"])
    said = Verdict(line["cell"], line["codes"], line["says"])
    return Result(line["parent"], line["class"], line["what"], line["cell"], truth, said)


def lacking(every: list[Mutant], before: list[Result]) -> list[Mutant]:
    """Those that have not been judged. (Lines may be taken out of the progress file to have their mutants judged again.)"""
    judged = Counter((r.number, r.what) for r in before)
    rest = []
    for m in every:
        if judged[m.number, m.what]:
            judged[m.number, m.what] -= 1
        else:
            rest.append(m)
    return rest


def run(chosen: list[Parent], progress: Path, options: argparse.Namespace) -> None:
    """Go on where the progress file ends."""
    done: dict[str, list[Result]] = {}
    if progress.exists():
        for text in progress.read_text().splitlines():
            r = read(json.loads(text))
            done.setdefault(r.parent, []).append(r)
    progress.parent.mkdir(exist_ok=True)
    deadline = time.time() + 60 * options.minutes
    truths: dict[str, Truth] = {}
    if options.truths is not None:
        lines = map(json.loads, options.truths.read_text().splitlines())
        truths = {
            r.truth.skeleton: r.truth for r in map(read, lines) if r.truth.skeleton and r.truth.kind != "undecided"
        }
    with progress.open("a") as out:
        for parent in chosen:
            if time.time() > deadline:
                return
            before = done.get(parent.name, [])
            rest = lacking(order(parent, options.seed, options.every), before)
            known = {r.truth.skeleton for r in before if r.truth.skeleton}
            cells: Counter[str] = Counter()
            at = time.time()
            for r in work(parent, rest, options.verifier, known, truths, deadline):
                out.write(written(r, time.time() - at))
                out.flush()
                at = time.time()
                cells[r.cell] += 1
            if rest:
                print(
                    f"{parent.name}: {len(before) + sum(cells.values())} of {len(before) + len(rest)}, {dict(cells)}",
                    flush=True,
                )


def record(progress: Path, possible: dict[str, int], seed: int) -> dict[str, Any]:
    """What is written to the results file."""
    matrix, seconds, skeletons, states = Matrix(), 0.0, set(), []
    for text in progress.read_text().splitlines():
        line = json.loads(text)
        matrix.add(read(line))
        seconds += line["seconds"]
        if line["skeleton"]:
            skeletons.add(line["skeleton"])
            states.append(line["states"])
    return {
        "mutants": sum(possible.values()),
        "judged": sum(sum(c.values()) for c in matrix.counts.values()),
        "distinct": sum(matrix.total(c) for c in COLUMNS),
        "skeletons": len(skeletons),
        "seconds": round(seconds),
        "seed": seed,
        "oracle_seeds": MANY,
        "search_states": STATES,
        "most_states": max(states),
        "totals": {c: matrix.total(c) for c in (*COLUMNS, "equivalent", "repeated")},
        "classes": {str(n): {"title": CLASSES[n], **matrix.counts[n]} for n in sorted(matrix.counts)},
        "left_out": {str(n): why for n, why in LEFT_OUT.items()},
        "parents": {n: {"possible": possible[n], **c} for n, c in sorted(matrix.parents.items())},
        "bad_executions": dict(matrix.kinds.most_common()),
        "notes": sorted(matrix.notes, key=lambda n: (n["cell"], n["class"], n["parent"], n["what"])),
    }


def page(summary: dict[str, Any]) -> None:
    """Put the table into the page."""
    matrix = Matrix()
    for number, cells in summary["classes"].items():
        matrix.counts[int(number)] = Counter({c: n for c, n in cells.items() if c != "title"})
    intro = (
        f"{summary['judged']:,} of {summary['mutants']:,} mutants of {len(summary['parents'])} parents judged in "
        f"{summary['seconds']} s; {summary['distinct']:,} distinct event skeletons."
    )
    put(f"{intro}\n\n{matrix.table()}", BEGIN, END)


def checker_page(summary: dict[str, Any]) -> None:
    """Put the kill rate, the survivors and the equivalent mutants into the page."""
    killed, survivors = len(summary["killed"]), summary["survivors"]
    text = f"{killed} of {killed + len(survivors)} killed by {summary['programs']} programs."
    if survivors:
        text += " Survivors:\n\n" + "".join(f"- `{s}`\n" for s in survivors)
    text += "\n\nEquivalent, so not counted:\n\n| mutant | why no program can tell |\n| --- | --- |\n"
    text += "".join(f"| `{name}` | {why} |\n" for name, why in summary["equivalent"].items())
    put(text, "<!-- checker: begin -->", "<!-- checker: end -->")


def again(path: Path) -> None:
    """Judge the false accepts of a results file once more, after a fix, and move them to where they belong now."""
    summary = json.loads(path.read_text())
    wrong = [n for n in summary["notes"] if n["cell"] == "FALSE ACCEPT"]
    for note in wrong:
        parent = next(p for p in parents() if p.name == note["parent"])
        same = [m for m in mutants(parent.kernel, (note["class"],)) if m.what == note["what"]]
        now = next(r for r in judge(parent, same) if r.cell not in ("equivalent", "repeated"))
        for cells in (summary["totals"], summary["classes"][str(note["class"])], summary["parents"][note["parent"]]):
            cells[note["cell"]] -= 1
            cells[now.cell] = cells.get(now.cell, 0) + 1
        note |= {"cell": f"was FALSE ACCEPT, now {now.cell}", "codes": now.verdict.codes, "says": now.verdict.text}
    path.write_text(json.dumps(summary, indent=1) + "\n")


def checker(out: Path, write: bool) -> None:
    """Mutants of the checker: which program kills each, and who survives."""
    from tests.mutation.checker import cases, effect_mutants, equivalent, killer, rule_mutants

    began = time.time()
    programs = [c for c in cases() if c.holds()]
    killed: dict[str, str] = {}
    same: dict[str, str] = {}
    survivors: list[str] = []
    for name, patch in [*effect_mutants(), *rule_mutants()]:
        why = equivalent(name)
        if why:
            same[name] = why
            continue
        by = killer(patch, programs)
        if by:
            killed[name] = by
        else:
            survivors.append(name)
            print(f"survives: {name}", flush=True)
    rate = len(killed) / (len(killed) + len(survivors))
    summary: dict[str, Any] = {"programs": len(programs), "seconds": round(time.time() - began), "rate": round(rate, 3)}
    summary |= {"survivors": survivors, "equivalent": same, "killed": killed}
    out.write_text(json.dumps(summary, indent=1) + "\n")
    print(f"{len(killed)} killed, {len(survivors)} survive, {len(same)} equivalent")
    if write:
        checker_page(summary)


def put(text: str, begin: str, end: str) -> None:
    """Replace a part of the page."""
    page = PAGE.read_text()
    before, rest = page.split(begin)
    PAGE.write_text(f"{before}{begin}\n{text}\n{end}{rest.split(end)[1]}")


def main() -> None:
    """The command line."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--minutes", type=float, default=1e9)
    arguments.add_argument("--only", default="")
    arguments.add_argument("--every", type=int, default=1)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--out", type=Path, default=RESULTS)
    arguments.add_argument("--progress", type=Path, default=PROGRESS)
    arguments.add_argument("--fresh", action="store_true", help="forget what earlier calls have judged")
    arguments.add_argument(
        "--truths", type=Path, help="a progress file of another version of the checker, for its truths"
    )
    arguments.add_argument("--page", action="store_true", help="write the table of docs/verifier.md")
    arguments.add_argument("--again", action="store_true", help="judge the false accepts of the results once more")
    arguments.add_argument("--verifier", action="store_true", help="ask cake.verify.verify instead of the order check")
    arguments.add_argument("--checker", action="store_true", help="mutate the checker instead of kernels")
    options = arguments.parse_args()
    os.nice(10)
    if options.again:
        again(options.out)
        page(json.loads(options.out.read_text()))
        return
    if options.checker:
        checker(RESULTS.with_name("checker_mutation.json") if options.out == RESULTS else options.out, options.page)
        return
    chosen = [p for p in parents() if options.only in p.name]
    progress = options.progress
    if options.verifier:
        chosen = [p for p in chosen if verifier(p, p.kernel).kind == "accepted"]
        options.out = RESULTS.with_name("mutation_verifier.json") if options.out == RESULTS else options.out
        progress = progress.with_stem(f"{progress.stem}_verifier")
    if options.fresh:
        progress.unlink(missing_ok=True)
    run(chosen, progress, options)
    possible = {p.name: len(order(p, options.seed, options.every)) for p in parents()}
    summary = record(progress, possible, options.seed)
    options.out.write_text(json.dumps(summary, indent=1) + "\n")
    if options.page:
        page(summary)
    print(json.dumps(summary["totals"]))


if __name__ == "__main__":
    main()
