"""Runs what was built and says how often verdicts and hardware agree."""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from benchmarks.chaos import store
from benchmarks.chaos.store import Item

SPARE = 4
"""Processes that stand by."""

LETTERS = {"right": "r", "wrong": "w", "hang": "h", "trap": "t", "ended": "h"}
"""Outcomes in the record, a letter a seed. A process that was killed for its silence hung."""


@dataclass
class Record:
    """An item's launches in the order of seeds; a hang or a trap is the last. ``notes``: what was said of them, once each."""

    item: Item
    launches: str = ""
    notes: list[str] = field(default_factory=list)

    def add(self, outcome: str, note: str = "") -> None:
        """One more launch."""
        self.launches += LETTERS[outcome]
        if note and note not in self.notes:
            self.notes.append(note)

    @property
    def kind(self) -> str:
        """``right``, ``hang``, ``trap``, ``wrong`` (the first of these that occurs), or ``not run``."""
        for letter, kind in (("h", "hang"), ("t", "trap"), ("w", "wrong")):
            if letter in self.launches:
                return kind
        return "right" if self.launches else "not run"

    @property
    def first(self) -> int | None:
        """The number of launches up to the first that shows something."""
        return next((i + 1 for i, letter in enumerate(self.launches) if letter != "r"), None)


def chosen(items: list[Item], only: list[str]) -> list[int]:
    """Numbers of the items to run: those that must be right first, then mutants, kinds mixed."""
    numbers = [n for n, i in enumerate(items) if not only or any(o in i.name for o in only)]
    known = [n for n in numbers if not items[n].number]
    safe = [n for n in numbers if items[n].number and items[n].expect == "safe"]
    unsafe = [n for n in numbers if items[n].number and items[n].expect == "unsafe"]
    mixed = [n for pair in zip(unsafe, safe, strict=False) for n in pair]
    return [*known, *mixed, *unsafe[len(safe) :], *safe[len(unsafe) :]]


def run_all(options: argparse.Namespace) -> int:
    """Run everything in ``options.directory``; 1 if something that must be right was not, or something did not run."""
    from benchmarks.chaos.device import serve
    from benchmarks.chaos.pool import ENDED, Pool
    from cake.runtime.driver import bindings

    bindings()  # imported once for all processes; none is opened here

    index = store.index(options.directory)
    seeds = range(1, options.seeds + 1)
    records = {n: Record(index.items[n]) for n in chosen(index.items, options.only)}
    pool = Pool(serve, (options.directory, seeds), options.workers, SPARE)
    begin = time.time()
    said = begin
    for number, message in pool.run(list(records), 60 * options.minutes):
        if message == ENDED:
            records[number].add("ended", "the process ended without an answer")
            continue
        _, outcome, note = message
        records[number].add(outcome, note)
        if time.time() - said > 10:
            said = time.time()
            print(
                f"{sum(bool(r.launches) for r in records.values())} of {len(records)}, {said - begin:.0f} s", flush=True
            )
    seconds = time.time() - begin
    summary = summarise(list(records.values()))
    summary |= {"seconds": round(seconds, 1), "processes_lost": pool.lost, "seeds": options.seeds}
    summary |= {"refused": index.refused, "left": index.left}
    summary["device"] = device()
    options.out.mkdir(parents=True, exist_ok=True)
    rows = [_row(r) for r in records.values()]
    (options.out / "chaos.json").write_text(json.dumps(summary | {"kernels": rows}, indent=1) + "\n")
    print(table(list(records.values())))
    print(closing(summary))
    return 1 if summary["failures"] or summary["not_run"] else 0


def device() -> dict[str, Any]:
    """What it ran on; asked last, since processes that are forked later could not use the GPU."""
    from cake.diagnostics import CakeError
    from cake.runtime.driver import driver

    try:
        cuda = driver()
        return {"name": cuda.device_name(0), "driver_cuda": cuda.version()}
    except CakeError as e:
        return {"unknown": e.diagnostics[0].message}


def _row(r: Record) -> dict[str, Any]:
    i = r.item
    row: dict[str, Any] = {"name": i.name, "class": i.number, "case": i.case, "what": i.what, "verdict": i.expect}
    return row | {
        "codes": i.codes,
        "launches": r.launches,
        "kind": r.kind,
        "serialised": i.serialised,
        "notes": r.notes,
    }


def summarise(records: list[Record]) -> dict[str, Any]:
    """Counts over all, the failures of what must be right, and what was called unsafe and went right."""
    unsafe = [r for r in records if r.item.expect == "unsafe" and r.launches]
    safe = [r for r in records if r.item.expect == "safe" and r.launches]
    return {
        "launches": sum(len(r.launches) for r in records),
        "unsafe": len(unsafe),
        "detected": sum(r.kind != "right" for r in unsafe),
        "detected_by": dict(Counter(r.kind for r in unsafe)),
        "safe_mutants": sum(r.item.number > 0 for r in safe),
        "kernels": sum(r.item.number == 0 for r in safe),
        "failures": [r.item.name for r in safe if r.kind != "right"],
        "changing": [r.item.name for r in safe if any("other bits" in n for n in r.notes)],
        "undetected": [r.item.name for r in unsafe if r.kind == "right"],
        "undetected_codes": dict(
            Counter(r.item.codes[0] for r in unsafe if r.kind == "right" and r.item.codes).most_common()
        ),
        "not_run": [r.item.name for r in records if not r.launches],
    }


def table(records: Iterable[Record]) -> str:
    """By class, as Markdown: of unsafe mutants how they showed, of safe ones how many failed."""
    from collections import defaultdict

    rows: dict[int, Counter[str]] = defaultdict(Counter)
    for r in records:
        row = rows[r.item.number]
        if not r.launches:
            row["not run"] += 1
        elif r.item.expect == "unsafe":
            row["unsafe"] += 1
            row[r.kind] += 1
            row["at first"] += r.first == 1
        else:
            row["safe"] += 1
            row["failed"] += r.kind != "right"
    whole: Counter[str] = sum(rows.values(), Counter())
    columns = ("unsafe", "wrong", "hang", "trap", "right", "at first", "safe", "failed", "not run")
    head = (
        "class",
        "unsafe",
        "wrong",
        "hang",
        "trap",
        "not detected",
        "by the first seed",
        "safe",
        "failed",
        "not run",
    )
    lines = ["| " + " | ".join(head) + " |", "| --- |" + " ---: |" * len(columns)]
    for name, row in [*((str(n or "no mutant"), rows[n]) for n in sorted(rows)), ("**all**", whole)]:
        lines.append(f"| {name} | " + " | ".join(str(row[c] or "") for c in columns) + " |")
    return "\n".join(lines)


def closing(summary: dict[str, Any]) -> str:
    """The result in a few lines."""
    unsafe, detected = summary["unsafe"], summary["detected"]
    share = f"{100 * detected / unsafe:.0f}%" if unsafe else "none"
    lines = [
        f"unsafe: {detected} of {unsafe} detected ({share}); safe: {len(summary['failures'])} of "
        f"{summary['safe_mutants']} mutants and {summary['kernels']} kernels failed",
        f"{summary['launches']} launches, {summary['processes_lost']} processes lost, {summary['seconds']} s",
    ]
    if summary["undetected_codes"]:
        lines.append(f"not detected: {', '.join(f'{code} {n}' for code, n in summary['undetected_codes'].items())}")
    for title in ("failures", "changing", "not_run"):
        if summary[title]:
            lines.append(f"{title.replace('_', ' ')}: {', '.join(summary[title])}")
    return "\n".join(lines)
