"""How long the verifier takes and how far its verdicts reach: a table over the examples and the specification's kernels.

    python benchmarks/verify_speed.py [--quick | --full] [FILE...]

Seconds are of processor time within a process that has loaded everything; ``check`` is a fresh ``cake check`` of the file
without stored verdicts (wall clock).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cake.compiler import check_file
from cake.ir import expanded as x
from cake.ir.parser import parse_all, read_source
from cake.verify import Effort, verify

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
    with tempfile.TemporaryDirectory() as cache:
        start = time.perf_counter()
        command = [sys.executable, "-c", "from cake.cli import main; main()", "check", str(path)]
        subprocess.run(command, env={**os.environ, "CAKE_CACHE": cache}, capture_output=True, check=False)
        return time.perf_counter() - start


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("files", nargs="*", type=Path)
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
    print(f"{'kernel':<22} {'effort':<6} {'verdict':<8} {'runs':>5} {'seconds':>8}  claim")
    for path in files:
        found = kernels(path)
        for kernel in found:
            for effort in efforts:
                v = verify(kernel, effort=effort)
                claim = v.claim if len(v.claim) < 70 else v.claim[:67] + "..."
                print(f"{kernel.name:<22} {effort:<6} {v.status:<8} {v.runs:>5} {v.seconds:>8.3f}  {claim}", flush=True)
        if found and not options.full:
            print(f"{path.name:<22} check                  {fresh(path):>8.3f}", flush=True)


if __name__ == "__main__":
    main()
