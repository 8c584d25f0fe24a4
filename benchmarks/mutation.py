"""The mutation suite in full: confusion matrix by class, as JSON and as the table of docs/verifier.md.

``python -m benchmarks.mutation [--minutes N] [--workers N] [--only NAME] [--every N] [--page]`` judges as many mutants as
fit, in an order that takes from every parent and class alike; what did not fit is counted. No GPU is used. ``--checker``
mutates the checker instead: its effects and its rules.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import time
from collections import Counter
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from tests.mutation.classes import CLASSES, LEFT_OUT, mutants
from tests.mutation.judge import MANY, STATES, verdict, verifier
from tests.mutation.matrix import COLUMNS, Matrix, Result, judge
from tests.mutation.parents import Parent, parents

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "mutation.json"
PAGE = ROOT / "docs" / "verifier.md"
BEGIN, END = "<!-- mutation: begin -->", "<!-- mutation: end -->"
PATIENCE = 60


class Slow(Exception):
    """One mutant takes too long."""


def _alarm(*_: Any) -> None:
    raise Slow


def work(task: tuple[str, int, float, int, bool]) -> tuple[str, list[Result], int]:
    """One parent's mutants in a fixed random order, until the deadline."""
    name, seed, seconds, every, whole = task
    deadline = time.time() + seconds
    parent = next(p for p in parents() if p.name == name)
    found = list(mutants(parent.kernel))
    random.Random(seed).shuffle(found)
    found = found[::every]
    signal.signal(signal.SIGALRM, _alarm)
    results: list[Result] = []
    # one generator, so that skeletons are compared over all of the parent's mutants
    ask = verifier if whole else verdict
    stream = judge(parent, found, ask)
    while time.time() < deadline:
        signal.alarm(PATIENCE)
        try:
            results.append(next(stream))
        except StopIteration:
            signal.alarm(0)
            break
        except Slow:
            done = len(results) + 1
            stream = judge(parent, found[done:], ask)
        finally:
            signal.alarm(0)
    return name, results, len(found)


def shares(chosen: list[Parent], minutes: float, workers: int) -> dict[str, float]:
    """Seconds for each parent: synthetic ones are cheap, each kernel of the corpus gets a fixed share."""
    whole = 60 * minutes * workers
    heavy = [p for p in chosen if p.family == "corpus"]
    each = 0.25 * whole / max(1, len(heavy))
    light = whole - each * len(heavy)
    rest = [p for p in chosen if p.family != "corpus"]
    return {p.name: each if p in heavy else 1.5 * light / max(1, len(rest)) for p in chosen}


def record(matrix: Matrix, possible: dict[str, int], seconds: float, seed: int) -> dict[str, Any]:
    """What is written to the results file."""
    return {
        "mutants": sum(possible.values()),
        "judged": sum(sum(c.values()) for c in matrix.counts.values()),
        "distinct": sum(matrix.total(c) for c in COLUMNS),
        "seconds": round(seconds),
        "seed": seed,
        "oracle_seeds": MANY,
        "search_states": STATES,
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
    """Put the kill rate and the survivors into the page."""
    killed, survivors = len(summary["killed"]), summary["survivors"]
    text = f"{killed} of {killed + len(survivors)} killed by {summary['programs']} programs. Survivors:\n\n"
    text += "".join(f"- `{s}`\n" for s in survivors)
    text += "\nEffects of operations that none of these programs has (not run): "
    text += ", ".join(f"`{u}`" for u in summary["not_told"]) + "."
    put(text, "<!-- checker: begin -->", "<!-- checker: end -->")


def resumed(path: Path) -> tuple[Matrix, dict[str, int], float]:
    """What an earlier run wrote: it stopped between two parents."""
    matrix, possible = Matrix(), {}
    summary = json.loads(path.read_text())
    for number, cells in summary["classes"].items():
        matrix.counts[int(number)] = Counter({c: n for c, n in cells.items() if c != "title"})
    for name, cells in summary["parents"].items():
        possible[name] = cells.pop("possible")
        matrix.parents[name] = Counter(cells)
    matrix.notes, matrix.kinds = summary["notes"], Counter(summary["bad_executions"])
    return matrix, possible, float(summary["seconds"])


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
    from tests.mutation.checker import cases, effect_mutants, heard, killer, rule_mutants

    began = time.time()
    programs = [c for c in cases() if c.holds()]
    known = heard(programs)
    killed: dict[str, str] = {}
    survivors: list[str] = []
    unused: list[str] = []
    for name, patch in [*effect_mutants(), *rule_mutants()]:
        if ":" in name and "." in name.split(":")[0] and name.split(":")[0] not in known:
            unused.append(name)
            continue
        by = killer(patch, programs)
        if by:
            killed[name] = by
        else:
            survivors.append(name)
            print(f"survives: {name}", flush=True)
    rate = len(killed) / (len(killed) + len(survivors))
    summary: dict[str, Any] = {"programs": len(programs), "seconds": round(time.time() - began), "rate": round(rate, 3)}
    summary |= {"survivors": survivors, "not_told": unused, "killed": killed}
    out.write_text(json.dumps(summary, indent=1) + "\n")
    print(f"{len(killed)} killed, {len(survivors)} survive")
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
    arguments.add_argument("--minutes", type=float, default=20)
    arguments.add_argument("--workers", type=int, default=2)
    arguments.add_argument("--only", default="")
    arguments.add_argument("--every", type=int, default=1)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--out", type=Path, default=RESULTS)
    arguments.add_argument("--page", action="store_true", help="write the table of docs/verifier.md")
    arguments.add_argument("--resume", action="store_true", help="go on with the parents that the results file lacks")
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
    began = time.time()
    chosen = [p for p in parents() if options.only in p.name]
    if options.verifier:
        chosen = [p for p in chosen if verifier(p, p.kernel).kind == "accepted"]
        options.out = RESULTS.with_name("mutation_verifier.json") if options.out == RESULTS else options.out
    matrix, possible, before = resumed(options.out) if options.resume else (Matrix(), {}, 0.0)
    chosen = [p for p in chosen if p.name not in possible]
    began -= before
    seconds = shares(chosen, options.minutes, options.workers)
    queue = sorted(chosen, key=lambda p: (len(p.name) * 7919 + sum(map(ord, p.name))) % 101)
    with get_context("fork").Pool(options.workers, maxtasksperchild=1) as pool:
        waiting = [
            (p, pool.apply_async(work, ((p.name, options.seed, seconds[p.name], options.every, options.verifier),)))
            for p in queue
        ]
        for parent, handle in waiting:
            name, results, count = handle.get()
            possible[name] = count
            for r in results:
                matrix.add(r)
            bad = {
                c: n
                for c, n in matrix.parents.get(parent.name, Counter()).items()
                if c not in ("broken rejected", "harmless accepted")
            }
            summary = record(matrix, dict(possible), time.time() - began, options.seed)
            options.out.write_text(json.dumps(summary, indent=1) + "\n")
            print(f"{name}: {len(results)} of {count}, {dict(bad)}, {time.time() - began:.0f} s", flush=True)
    summary = record(matrix, dict(possible), time.time() - began, options.seed)
    options.out.write_text(json.dumps(summary, indent=1) + "\n")
    if options.page:
        page(summary)
    print(json.dumps(summary["totals"]))


if __name__ == "__main__":
    main()
