"""The engines side by side: what each says of programs, examples and mutants, as JSON and as the tables of docs/verifier.md.

``python -m benchmarks.engines [--each N] [--seconds N] [--page] [--store]``. ``--each``: mutants of a class. ``--store`` writes
disagreements that are not stored yet, shrunk, to ``tests/engines/disagreements``, where they fail the tests until they are decided.
One process, no GPU; NVRTC compiles every program.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from cake.diagnostics import CakeError
from cake.ir import expanded as x
from cake.ptx.interpret import Outcome, examine, program, run
from cake.ptx.interpret.schedules import plain
from tests.engines.emitted import compiled, launch_of
from tests.engines.kernels import MORE, SMALL, Subject, attention
from tests.engines.store import load, shrink, write
from tests.engines.verdicts import ASK, ENGINES, interpreted
from tests.litmus.catalogue import kernel as litmus
from tests.litmus.catalogue import verdicts as litmus_verdicts
from tests.litmus.test_litmus import arguments
from tests.mutation.classes import CLASSES, mutants
from tests.mutation.judge import truth, unrolled
from tests.mutation.parents import Parent, programs, synthetic
from tests.mutation.site import Mutant

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "engines.json"
PAGE = ROOT / "docs" / "verifier.md"
BEGIN, END = "<!-- engines: begin -->", "<!-- engines: end -->"
MEANT = {"broken": "broken", "harmless": "clean", "policy": "policy"}
SEED = 5


def litmus_rows() -> list[dict[str, Any]]:
    """Every litmus program and size."""
    rows = []
    stored = {d.program for d in load().values()}
    for name, row in litmus_verdicts().items():
        k = litmus(name)
        for size, codes in row.expected():
            values = {**arguments(k), **size}
            said = {engine: ask(k, values, row.ctas) for engine, ask in ASK.items()}
            rows.append({"program": name, "sizes": size, "codes": codes, **said, "stored": name in stored})
    return rows


def example_rows() -> list[dict[str, Any]]:
    """The examples: all schedules of the interpreter, and the engines above the code."""
    rows = []
    for name, make in {**SMALL, **MORE}.items():
        s = make()
        said = {e: ASK[e](s.kernel, s.values, s.clusters) for e in ("order", "oracle")}
        began = time.time()
        found = examine(compiled(s.kernel), launch_of(s.kernel, s.values, s.clusters), seeds=2, warps=1)
        row = {"program": name, **said, "ptx": found.verdict, "schedules": found.schedules, "steps": found.steps}
        rows.append(
            {**row, "seconds": round(time.time() - began, 1), "why": found.why or [str(f) for f in found.findings]}
        )
    return rows


# ---- code with instructions missing -------------------------------------------------------------------------------------


def left_out(s: Subject) -> dict[str, Any]:
    """Each synchronising instruction that a launch of an example executes left out in turn; those that nobody misses, by
    opcode."""
    code = compiled(s.kernel)
    launch = launch_of(s.kernel, s.values, s.clusters)
    lines = code.split("\n")
    seen, survivors = Counter[str](), Counter[str]()
    ready = program(code)
    covered = run(ready, launch, plain()[0]).covered
    for step in ready.steps:
        i = step.instruction
        if step.at not in covered or i is None or "mma_async" in step.parts:
            continue
        if not (step.handler.sync or step.parts[0] in ("wgmma", "cp")):
            continue
        instead = f"setp.eq.u32 {i.operands.split(',')[0]}, 0, 0;" if "try_wait" in i.opcode else ""
        said = examine("\n".join([*lines[: i.line - 1], instead, *lines[i.line :]]), launch, seeds=0, warps=0).verdict
        seen[said] += 1
        if said in ("clean", "unknown"):
            survivors[i.opcode] += 1
    return {"left out": sum(seen.values()), **seen, "not missed": dict(survivors)}


def missing_rows() -> dict[str, Any]:
    """Of some examples."""
    subjects = {name: SMALL[name] for name in ("gemm", "gemm_cluster", "gemm_pingpong", "softmax_long")}
    subjects["attention, more tiles and keys"] = partial(attention, 500, 900, 1)  # so that every ring turns
    return {name: left_out(make()) for name, make in subjects.items()}


# ---- mutants ------------------------------------------------------------------------------------------------------------


def chosen(each: int) -> Iterator[tuple[Parent, Mutant]]:
    """``each`` mutants of every class, over all small parents, in a fixed random order."""
    rnd = random.Random(SEED)
    by_class: dict[int, list[tuple[Parent, Mutant]]] = {}
    for p in (*synthetic(), *programs()):
        for m in mutants(p.kernel):
            by_class.setdefault(m.number, []).append((p, m))
    found = [pair for n in sorted(by_class) for pair in rnd.sample(by_class[n], min(each, len(by_class[n])))]
    rnd.shuffle(found)
    yield from found


def worst(parent: Parent, k: x.Kernel) -> tuple[Outcome, int] | None:
    """The first launch that is not clean, or the last; None: there is no code, or no launch may start."""
    try:
        code = compiled(k, keep_loads=True)
    except CakeError:
        return None
    last = None
    for n, values in enumerate(parent.launches):
        try:
            last = examine(code, launch_of(k, values, parent.ctas), seeds=2, warps=1), n
        except CakeError:
            continue
        if last[0].verdict != "clean":
            break
    return last


def mutant_rows(each: int, seconds: float, keep: bool) -> dict[str, Any]:
    """Counts by class, and what differs."""
    counts: dict[int, Counter[str]] = {}
    differences: list[dict[str, Any]] = []
    kinds: Counter[str] = Counter()
    began = time.time()
    for parent, m in chosen(each):
        if time.time() - began > seconds:
            break
        launches, known = unrolled(parent, m.kernel)
        real = known or truth(parent, m.kernel, launches)
        found = worst(parent, m.kernel)
        said = found[0].verdict if found else "not emitted"
        kind = "stale" if (real.why, said) == ("stale", "clean") else real.kind
        counts.setdefault(m.number, Counter())[f"{kind} {said}"] += 1
        if found and said == "broken":
            kinds[found[0].kind] += 1
        if found is None or real.kind not in MEANT or said == MEANT[real.kind]:
            continue
        if real.why == "stale" and said == "clean":
            continue  # which fill was meant is not in the code
        row = {"parent": parent.name, "class": m.number, "what": m.what, "truth": real.kind, "why": real.why}
        row |= {"ptx": said, "findings": [str(f) for f in found[0].findings] or [found[0].why]}
        differences.append(row)
        print(row, flush=True)
        if keep:
            remember(parent, m, found[1], said)
    classes = {n: {"title": CLASSES.get(n, ""), **c} for n, c in sorted(counts.items())}
    seconds = round(time.time() - began)
    return {"each": each, "seconds": seconds, "classes": classes, "kinds": kinds, "differences": differences}


def remember(parent: Parent, m: Mutant, launch: int, said: str) -> None:
    """Store a disagreement, shrunk as long as the interpreter and the other engines go on differing."""
    values = parent.launches[launch]

    def differs(k: x.Kernel) -> bool:
        if interpreted(k, values, parent.ctas) != said:
            return False
        try:
            launches, known = unrolled(parent, k)
            real = known or truth(parent, k, launches)
        except CakeError:
            return False
        return real.kind in MEANT and MEANT[real.kind] != said

    small = shrink(m.kernel, differs)
    name = f"{parent.name}_{m.number}_{abs(hash(m.what)) % 10_000:04}"
    all_say = {engine: ask(small, values, parent.ctas) for engine, ask in ASK.items()}
    write(name, f"{parent.name}, {CLASSES.get(m.number, '')}: {m.what}", small, values, parent.ctas, all_say)


# ---- tables -------------------------------------------------------------------------------------------------------------

CELLS = (
    *(
        "broken broken",
        "broken policy",
        "stale clean",
        "broken clean",
        "harmless clean",
        "harmless policy",
        "harmless broken",
    ),
    *("policy policy", "policy clean", "policy broken"),
)


def table(head: list[str], rows: list[list[Any]]) -> str:
    """As Markdown."""
    lines = ["| " + " | ".join(head) + " |", "| --- |" + " ---: |" * (len(head) - 1)]
    return "\n".join([*lines, *("| " + " | ".join(str(c) for c in row) + " |" for row in rows)])


def page(summary: dict[str, Any]) -> str:
    """The part of docs/verifier.md."""
    programs_ = summary["litmus"]
    agree = sum(len({r[e] for e in ("order", "ptx")}) == 1 for r in programs_)
    other = ", ".join(
        sorted(
            f"{r['program'][:3].rstrip('_')} ({r['order']}, {r['ptx']})" for r in programs_ if r["order"] != r["ptx"]
        )
    )
    text = [
        f"Litmus programs: order reading and interpreter say the same of {agree} of {len(programs_)} launches"
        + (f"; not of {other}." if other else "."),
        "",
    ]
    examples = [
        [r["program"], r["order"], r["oracle"], r["ptx"], r["schedules"], r["steps"]] for r in summary["examples"]
    ]
    text += [table(["example, small", "order", "oracle", "interpreter", "schedules", "steps"], examples), ""]
    missing = [
        [
            name,
            r["left out"],
            r.get("broken", 0),
            r.get("policy", 0),
            ", ".join(f"{n} x `{o}`" for o, n in r["not missed"].items()),
        ]
        for name, r in summary["missing"].items()
    ]
    text += [table(["instruction left out of the code of", "each of", "broken", "policy", "not missed"], missing), ""]
    rows, total = [], Counter[str]()
    for n, c in summary["mutants"]["classes"].items():
        counts = {k: v for k, v in c.items() if k != "title"}
        total.update(counts)
        rows.append(
            [f"{n} {c['title']}", sum(counts.values()), *(counts.get(cell, "") for cell in CELLS), _rest(counts) or ""]
        )
    rows.append(["**all**", sum(total.values()), *(total[cell] for cell in CELLS), _rest(total)])
    head = [
        "mutants: engines above the code, interpreter",
        "judged",
        *(c.replace(" ", ", ") for c in CELLS),
        "no code, or undecided",
    ]
    return "\n".join([*text, table(head, rows)])


def _rest(counts: dict[str, int]) -> int:
    return sum(v for k, v in counts.items() if k not in CELLS)


def put(text: str) -> None:
    """Replace the part of the page."""
    before, rest = PAGE.read_text().split(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.split(END)[1]}")


def main() -> None:
    """The command line."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--each", type=int, default=20)
    options.add_argument("--seconds", type=float, default=600)
    options.add_argument("--out", type=Path, default=RESULTS)
    options.add_argument("--page", action="store_true", help="write the tables of docs/verifier.md")
    options.add_argument("--store", action="store_true", help="store new disagreements")
    options.add_argument(
        "--parts", default="litmus,examples,missing,mutants", help="the others stay as they are in --out"
    )
    given = options.parse_args()
    os.nice(10)
    summary: dict[str, Any] = json.loads(given.out.read_text()) if given.out.exists() else {}
    summary |= {"engines": ENGINES, "seed": SEED}
    parts: dict[str, Callable[[], Any]] = {
        "litmus": litmus_rows,
        "examples": example_rows,
        "missing": missing_rows,
        "mutants": lambda: mutant_rows(given.each, given.seconds, given.store),
    }
    for name in filter(None, given.parts.split(",")):
        summary[name] = parts[name]()
        print(f"{name}: done", flush=True)
        given.out.write_text(json.dumps(summary, indent=1) + "\n")
    text = page(json.loads(given.out.read_text()))
    if given.page:
        put(text)
    print(text)


if __name__ == "__main__":
    main()
