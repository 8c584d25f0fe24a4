"""How long the commands take in fresh processes: `cake check` and `cake build` with and without their caches (the
translation check included), and `cake run` of a GEMM of 512 cubed.

python benchmarks/cli_speed.py [--out benchmarks/results]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RUNS = 7


def seconds(arguments: list[str], cache: str) -> float:
    """Wall seconds of one command in a process of its own."""
    environment = {**os.environ, "CAKE_CACHE": cache}
    begin = time.perf_counter()
    subprocess.run(
        [sys.executable, "-c", "from cake.cli import main; main()", *arguments],
        cwd=ROOT,
        env=environment,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return time.perf_counter() - begin


def main() -> None:
    """Measure and write the samples."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    options = parser.parse_args()
    samples: dict[str, list[float]] = {}
    for name in ("gemm", "attention"):
        source = f"examples/{name}.cake"
        with tempfile.TemporaryDirectory() as out:
            for run in range(RUNS):
                with tempfile.TemporaryDirectory() as cache:
                    samples.setdefault(f"check {name}, no cache", []).append(seconds(["check", source], cache))
                    samples.setdefault(f"check {name}, cached", []).append(seconds(["check", source], cache))
                    if run < 3:
                        build = ["build", source, "-o", out]
                        samples.setdefault(f"build {name}, no cache", []).append(seconds(build, cache))
                        samples.setdefault(f"build {name}, cached", []).append(seconds(build, cache))
    with tempfile.TemporaryDirectory() as cache:
        run_512 = ["run", "examples/gemm.cake", "M=512", "N=512", "K=512"]
        samples["run gemm 512x512x512"] = [seconds(run_512, cache) for _ in range(RUNS)]
    record = {"python": platform.python_version(), "cores": os.cpu_count(), "load": os.getloadavg(), "seconds": samples}
    (options.out / "cli-speed.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    for what, values in samples.items():
        print(f"{what:28} median {statistics.median(values):.2f} s of {len(values)}")


if __name__ == "__main__":
    main()
