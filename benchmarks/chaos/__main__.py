"""The command line of the chaos benchmark."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

SEEDS = 20
WANTED = 200


def main() -> int:
    """Build or run; the exit code is 1 if something that must be right was not."""
    import benchmarks.chaos as package

    parser = argparse.ArgumentParser(description=package.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["build", "run"])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--jobs", type=int, default=2, help="build: processes")
    parser.add_argument("--mutants", type=int, default=WANTED, help="build: mutants of each verdict")
    parser.add_argument("--out", type=Path, default=Path("."), help="run: where chaos.json goes")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="run: seeds of each kernel")
    parser.add_argument("--workers", type=int, default=6, help="run: processes that use the GPU at once")
    parser.add_argument(
        "--only", action="append", default=[], help="run: kernels whose name contains this (repeatable)"
    )
    parser.add_argument("--minutes", type=float, default=8.0, help="run: after these the rest is left out")
    options = parser.parse_args()
    if options.action == "build":
        from benchmarks.chaos.choice import build_all

        shutil.rmtree(options.directory, ignore_errors=True)
        options.directory.mkdir(parents=True)
        made = build_all(options.directory, options.mutants, options.jobs)
        size = sum(f.stat().st_size for f in options.directory.rglob("*") if f.is_file()) / 2**20
        print(f"{len(made.items)} kernels, {len(made.refused)} refused, {size:.1f} MiB, {made.seconds:.0f} s")
        return 0
    from benchmarks.chaos.running import run_all

    return run_all(options)


if __name__ == "__main__":
    sys.exit(main())
