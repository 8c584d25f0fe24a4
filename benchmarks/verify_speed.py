"""How long the verifier takes and how far its verdicts reach: a table over the examples and the expert corpus.

    python -m benchmarks.verify_speed [--quick | --full] [--page] [--out FILE.json] [FILE...]

*Warm* is a decision within a process that has loaded everything, on a kernel that it has not seen (no stored verdict, no compiled
program, no layouts of buffers): seconds of processor time, and of the wall clock, both of the quickest of a few. *Fresh* is a new
process that checks the file without stored verdicts, with compiled bytecode. ``events``: what all launches reported to the order
reading, with what it did not ask for; ``graph``: states and tiles of the loop graph where it closed, and runs along it. ``spin`` is
how long this machine takes for a loop of a million rounds in Python, by the clock of the processor: on a busy one hyperthreads and
frequencies make all processor times longer.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cake.compiler import check_file
from cake.ir import expanded as x
from cake.ir.parser import parse_all, read_source
from cake.machine.memory import layout_of
from cake.machine.order.shadow import places
from cake.verify import Effort, Verdict, verify

TIMES = 3
ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "verify-speed.json"
PAGE = ROOT / "docs" / "verifier.md"
BEGIN, END = "<!-- speed: begin -->", "<!-- speed: end -->"


@dataclass(frozen=True)
class Taken:
    """Seconds of the processor and of the wall clock."""

    cpu: float
    wall: float


def kernels(path: Path) -> list[x.Kernel]:
    """The kernels of a file that expand, at their chosen constants, for their first target."""
    parsed, _ = parse_all(read_source(path), str(path))
    found: list[x.Kernel] = []
    if parsed is not None:
        check_file(parsed, found)
    return list({k.name: k for k in reversed(found)}.values())[::-1]


def fresh(path: Path, bytecode: str) -> Taken:
    """A new process of ``cake check``; ``bytecode``: where compiled modules are kept."""
    best = Taken(float("inf"), float("inf"))
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = bytecode
    command = [sys.executable, "-c", "from cake.cli import main; main()", "check", "--no-hints", str(path)]
    for _ in range(TIMES):
        with tempfile.TemporaryDirectory() as cache:
            before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            subprocess.run(command, env={**environment, "CAKE_CACHE": cache}, capture_output=True, check=False)
            wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        best = Taken(min(best.cpu, cpu), min(best.wall, wall))
    return best


def decided(kernel: x.Kernel, effort: Effort) -> tuple[Verdict, Taken]:
    """The verdict, and what it took at best."""
    best = Taken(float("inf"), float("inf"))
    for _ in range(TIMES if effort == "quick" else 1):
        layout_of.cache_clear()
        places.cache_clear()
        new = kernel.model_copy()  # programs are kept by identity
        cpu, wall = time.process_time(), time.perf_counter()
        verdict = verify(new, effort=effort)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        best = Taken(min(best.cpu, cpu), min(best.wall, wall))
    return verdict, best


def spin() -> float:
    """Seconds of processor time for a million rounds of an empty loop."""
    start = time.process_time()
    for _ in range(1_000_000):
        pass
    return time.process_time() - start


def measured(files: list[Path], efforts: list[Effort]) -> list[dict[str, Any]]:
    """A row for each kernel and effort, and for each file."""
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as bytecode:
        for path in files:
            name = str(path.resolve().relative_to(ROOT)) if path.resolve().is_relative_to(ROOT) else path.name
            found = kernels(path)
            for kernel in found:
                for effort in efforts:
                    v, taken = decided(kernel, effort)
                    kept = v.model_dump(include={"status", "claim", "runs", "events", "nodes", "edges", "walks"})
                    kept |= {"cpu": round(taken.cpu, 3), "wall": round(taken.wall, 3), "spin": round(spin(), 4)}
                    rows.append({"file": name, "kernel": kernel.name, "effort": effort, **kept})
                    print(line(rows[-1]), flush=True)
            if found and "quick" in efforts:
                taken = fresh(path, bytecode)
                kept = {"cpu": round(taken.cpu, 3), "wall": round(taken.wall, 3), "spin": round(spin(), 4)}
                rows.append({"file": name, "effort": "check", **kept})
                print(line(rows[-1]), flush=True)
    return rows


def line(row: dict[str, Any]) -> str:
    """A row for the terminal."""
    times = f"{row['cpu']:>7.3f} {row['wall']:>7.3f} {row['spin']:>7.4f}"
    if "kernel" not in row:
        return f"{Path(row['file']).name:<22} check {'':<36} {times}"
    claim = row["claim"] if len(row["claim"]) < 60 else row["claim"][:57] + "..."
    graph = f"{row['nodes']}, {row['edges']}, {row['walks']}" if row["edges"] else ""
    reach = f"{row['status']:<8} {row['runs']:>5} {row['events']:>8} {graph:>11}"
    return f"{row['kernel']:<22} {row['effort']:<6} {reach} {times}  {claim}"


def table(rows: list[dict[str, Any]]) -> str:
    """The table of the page: a file, then its kernels."""
    out = [
        "| | claim | runs | events | loop graph | CPU s | wall s |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for path in dict.fromkeys(r["file"] for r in rows):
        own = [r for r in rows if r["file"] == path]
        for r in (r for r in own if r["effort"] == "check"):
            out.append(f"| `cake check {path}`, fresh | | | | | {r['cpu']:.2f} | {r['wall']:.2f} |")
        for r in (r for r in own if r["effort"] == "quick"):
            graph = f"{r['nodes']} states, {r['edges']} tiles, {r['walks']} runs" if r["edges"] else ""
            claim = r["claim"].split(" (")[0]
            cells = (
                f"{r['kernel']}, warm",
                claim,
                r["runs"],
                r["events"],
                graph,
                f"{r['cpu']:.3f}",
                f"{r['wall']:.3f}",
            )
            out.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(out)


def page(record: dict[str, Any]) -> None:
    """Put the table into the page."""
    text = PAGE.read_text()
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    spins = sorted(r["spin"] for r in record["rows"])
    intro = (
        f"Measured on {record['cores']} cores at a load of {record['load'][1]:.1f}, where a million rounds of an empty loop in Python "
        f"took {1000 * spins[len(spins) // 2]:.0f} ms of processor time (median)."
    )
    PAGE.write_text(f"{before}{BEGIN}\n{intro}\n\n{table(record['rows'])}\n{END}{after}")


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--out", type=Path, help="also write the rows as JSON")
    parser.add_argument("--page", action="store_true", help="write the rows and the table of docs/verifier.md")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--quick", action="store_true", help="only what `cake check` does")
    which.add_argument("--full", action="store_true", help="only what `cake build` does")
    options = parser.parse_args()
    folders = ("examples", "examples/corpus")
    files = options.files or [f for folder in folders for f in sorted((ROOT / folder).glob("*.cake"))]
    efforts: list[Effort] = ["full"] if options.full else ["quick"] if options.quick else ["quick", "full"]
    print(
        f"{'kernel':<22} {'effort':<6} {'verdict':<8} {'runs':>5} {'events':>8} {'graph':>11} {'cpu':>7} {'wall':>7} {'spin':>7}  claim"
    )
    rows = measured(files, efforts)
    record = {"cores": os.cpu_count(), "load": os.getloadavg(), "python": sys.version.split()[0], "rows": rows}
    out = options.out or (RESULTS if options.page else None)
    if out is not None:
        out.write_text(json.dumps(record, indent=1) + "\n")
    if options.page:
        page(record)


if __name__ == "__main__":
    main()
