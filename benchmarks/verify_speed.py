"""How long the verifier takes and how far its verdicts reach: a table over the examples and the specification's kernels.

    python benchmarks/verify_speed.py [--quick | --full] [--out FILE.json] [FILE...]

Seconds are of processor time within a process that has loaded everything, the least of three decisions with the machine's own
caches emptied before each; ``check`` is a fresh ``cake check`` of the file without stored verdicts (wall clock, the least of
three). ``events``: what all launches reported to the order reading; ``graph``: states and tiles of the loop graph where it
closed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
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


def kernels(path: Path) -> list[x.Kernel]:
    """The kernels of a file that expand, at their chosen constants, for their first target."""
    parsed, _ = parse_all(read_source(path), str(path))
    found: list[x.Kernel] = []
    if parsed is not None:
        check_file(parsed, found)
    return list({k.name: k for k in reversed(found)}.values())[::-1]


def fresh(path: Path) -> float:
    """Seconds of a fresh ``cake check``."""
    best = float("inf")
    for _ in range(TIMES):
        with tempfile.TemporaryDirectory() as cache:
            start = time.perf_counter()
            command = [sys.executable, "-c", "from cake.cli import main; main()", "check", "--no-hints", str(path)]
            subprocess.run(command, env={**os.environ, "CAKE_CACHE": cache}, capture_output=True, check=False)
            best = min(best, time.perf_counter() - start)
    return best


def decided(kernel: x.Kernel, effort: Effort) -> Verdict:
    """The verdict that took least."""
    found: list[Verdict] = []
    for _ in range(TIMES if effort == "quick" else 1):
        layout_of.cache_clear()
        places.cache_clear()
        found.append(verify(kernel, effort=effort))
    return min(found, key=lambda v: v.seconds)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--out", type=Path, help="also write the rows as JSON")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--quick", action="store_true", help="only what `cake check` does")
    which.add_argument("--full", action="store_true", help="only what `cake build` does")
    options = parser.parse_args()
    files = options.files or [
        *sorted((ROOT / "examples").glob("*.cake")),
        *sorted((ROOT / "tests/ir/examples").glob("*.cake")),
    ]
    efforts: list[Effort] = []
    if not options.full:
        efforts.append("quick")
    if not options.quick:
        efforts.append("full")
    print(f"{'kernel':<22} {'effort':<6} {'verdict':<8} {'runs':>5} {'events':>8} {'graph':>11} {'seconds':>8}  claim")
    rows: list[dict[str, Any]] = []
    for path in files:
        found = kernels(path)
        for kernel in found:
            for effort in efforts:
                v = decided(kernel, effort)
                claim = v.claim if len(v.claim) < 60 else v.claim[:57] + "..."
                graph = f"{v.nodes}, {v.edges}" if v.edges else ""
                line = f"{kernel.name:<22} {effort:<6} {v.status:<8} {v.runs:>5} {v.events:>8} {graph:>11} {v.seconds:>8.3f}  {claim}"
                print(line, flush=True)
                kept = v.model_dump(include={"status", "claim", "runs", "events", "nodes", "edges", "seconds"})
                rows.append({"file": path.name, "kernel": kernel.name, "effort": effort, **kept})
        if found and not options.full:
            seconds = fresh(path)
            print(f"{path.name:<22} check {'':<35} {seconds:>8.3f}", flush=True)
            rows.append({"file": path.name, "effort": "check", "seconds": round(seconds, 3)})
    if options.out is not None:
        record = {"cores": os.cpu_count(), "load": os.getloadavg(), "python": sys.version.split()[0], "rows": rows}
        options.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
