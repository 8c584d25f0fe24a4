"""Quality of diagnostics on mutants of source texts (``tests.mutation.surface``): does the first finding name the changed operation,
and does a fix give an accepted kernel back?

``python -m benchmarks.diagnostics [--all]`` asks the fixed sample of 300 that is kept in ``results/diagnostics.json`` (``--all``:
every mutant there is; ``--choose``: draw a new sample from those that are refused). Each answer is noted in a progress file, and
the next call goes on from there unless it says ``--fresh``. One process, no GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.mutation.diagnosed import diagnosed, population, sources
from tests.mutation.surface import Mutant

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "diagnostics.json"
PROGRESS = ROOT / "build" / "diagnostics.jsonl"
SAMPLE = 300
SEED = 20


def key(m: Mutant) -> str:
    """What a mutant is called."""
    return f"{m.source} | {m.kind} | {m.what}"


Answers = dict[str, dict[str, Any]]


class Asking:
    """Answers, from the progress file or anew."""

    def __init__(self, progress: Path) -> None:
        progress.parent.mkdir(exist_ok=True)
        self.progress = progress
        self.answers: Answers = {}
        self.parents = {source.name: source.text for source in sources()}
        if progress.exists():
            self.answers = {line["mutant"]: line for line in map(json.loads, progress.read_text().splitlines())}

    def ask(self, m: Mutant) -> dict[str, Any]:
        """The answer for one mutant."""
        name = key(m)
        if name not in self.answers:
            line = {"mutant": name, "kind": m.kind, **asdict(diagnosed(m, self.parents[m.source]))}
            self.answers[name] = line
            with self.progress.open("a") as out:
                out.write(json.dumps(line) + "\n")
        return self.answers[name]


def drawn(everything: list[Mutant], asking: Asking) -> list[str]:
    """A sample of those that are refused: kinds in turn, in a random order fixed by the seed."""
    rnd = random.Random(SEED)
    by_kind: dict[str, list[Mutant]] = {}
    for m in everything:
        by_kind.setdefault(m.kind, []).append(m)
    for of in by_kind.values():
        rnd.shuffle(of)
    found: list[str] = []
    while len(found) < SAMPLE and any(by_kind.values()):
        for of in by_kind.values():
            while of and len(found) < SAMPLE:
                m = of.pop()
                if asking.ask(m)["codes"]:
                    found.append(key(m))
                    break
    return sorted(found)


def summary(sample: list[str], answers: Answers) -> dict[str, Any]:
    """The figures."""
    lines = [answers[name] for name in sample]
    refused = [line for line in lines if line["codes"]]

    def count(what: str, of: list[dict[str, Any]]) -> int:
        return sum(bool(line[what]) for line in of)

    kinds = {}
    for kind in sorted({line["kind"] for line in lines}):
        of = [line for line in refused if line["kind"] == kind]
        kinds[kind] = {"refused": len(of)} | {w: count(w, of) for w in ("named", "somewhere", "fixed", "restored")}
    left = [
        {"mutant": line["mutant"], "codes": line["codes"], "says": line["message"]}
        for line in refused
        if not line["named"]
    ]
    return {
        "mutants": len(lines),
        "refused": len(refused),
        **{w: count(w, refused) for w in ("named", "somewhere", "fixed", "restored")},
        "kinds": kinds,
        "codes": dict(Counter(line["codes"][0] for line in refused).most_common()),
        "not_named": left,
        "not_fixed": [line["mutant"] for line in refused if not line["fixed"]],
        "sample": sample,
    }


def main() -> None:
    """The command line."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--all", action="store_true", help="ask every mutant, and print the figures only")
    arguments.add_argument("--choose", action="store_true", help="ask every mutant and draw a new sample")
    arguments.add_argument("--fresh", action="store_true", help="forget earlier answers")
    arguments.add_argument("--progress", type=Path, default=PROGRESS)
    arguments.add_argument("--out", type=Path, default=RESULTS)
    options = arguments.parse_args()
    os.nice(10)
    if options.fresh:
        options.progress.unlink(missing_ok=True)
    everything = list(population())
    whole = options.all or options.choose or not options.out.exists()
    names: set[str] | None = None if whole else set(json.loads(options.out.read_text())["sample"])
    asking = Asking(options.progress)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["CAKE_CACHE"] = folder  # verdicts of mutants are of no further use
        if names is None and not options.all:
            sample = drawn(everything, asking)
        else:
            sample = sorted(key(m) for m in everything if names is None or key(m) in names)
            for m in everything:
                if key(m) in sample:
                    asking.ask(m)
    result = summary(sample, asking.answers)
    if not options.all:
        options.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({n: v for n, v in result.items() if n not in ("sample", "not_named", "not_fixed")}, indent=1))


if __name__ == "__main__":
    main()
