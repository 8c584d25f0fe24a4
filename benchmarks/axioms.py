"""Probe what the verifier believes about the hardware (docs/axioms.md), many rounds under delays.

    python benchmarks/axioms.py build DIRECTORY                          anywhere: compiles the probes
    python benchmarks/axioms.py run DIRECTORY --out OUT [--seeds N]      on an H200: runs them, writes OUT/axioms.json

``run`` needs no compiler. Each probe runs in a process of its own, which is ended if it does not finish: a probe limits its
waits, and a hung device still must not take the others along. Exit code 1 if a probe refutes its axiom or is stuck.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.axioms.launch import run as launch
from tests.axioms.launch import verdict
from tests.axioms.table import PROBES
from tests.ops.compare import raw

INDEX = "axioms.json"
SECONDS = 60.0
"""Of one probe with all its seeds."""

# ---- building -------------------------------------------------------------------------------------------------------


def build(directory: Path, only: list[str]) -> int:
    """Compile every probe; the number that failed."""
    from cake.codegen.build import build as build_kernel
    from cake.codegen.build import write
    from tests.axioms.kernels import KERNELS

    directory.mkdir(parents=True, exist_ok=True)
    index: dict[str, Any] = {}
    failed = 0
    for probe in PROBES.values():
        if _wanted(probe.name, only):
            (directory / f"{probe.name}.cubin").write_bytes(probe.cubin())
            index[probe.name] = {"kind": "cuda", "axiom": probe.axiom, "title": probe.title}
    for kernel_probe in KERNELS.values():
        if not _wanted(kernel_probe.name, only):
            continue
        try:
            write(build_kernel(kernel_probe.kernel()), directory / kernel_probe.name, ("cubin", "expand"))
        except Exception:
            print(f"{kernel_probe.name}: {traceback.format_exc().splitlines()[-1]}")
            failed += 1
            continue
        arrays: dict[str, Any] = {}
        scalars = []
        for number, (arguments, expected) in enumerate(kernel_probe.launches()):
            arrays[f"{number}/x"], arrays[f"{number}/expected"] = raw(arguments["x"]), raw(expected)
            scalars.append({n: v for n, v in arguments.items() if isinstance(v, int)})
        np.savez_compressed(directory / kernel_probe.name / "data.npz", **arrays)
        row = {"kind": "cake", "axiom": kernel_probe.axiom, "title": kernel_probe.title}
        index[kernel_probe.name] = row | {"dtype": kernel_probe.dtype, "scalars": scalars}
    (directory / INDEX).write_text(json.dumps(index, indent=1) + "\n")
    print(f"{len(index)} probes built, {failed} failed")
    return failed


def _wanted(name: str, only: list[str]) -> bool:
    return not only or any(o in name for o in only)


# ---- in the child ---------------------------------------------------------------------------------------------------


def run_cuda(directory: str, name: str, seeds: int, result: str) -> None:
    """One probe with several seeds."""
    probe = PROBES[name]
    cubin = (Path(directory) / f"{name}.cubin").read_bytes()
    totals = {"violations": 0, "checks": 0, "timeouts": 0, "observed": 0}
    for seed in range(seeds):
        counts = launch(probe, cubin, seed + 1)
        for key, value in counts.items():
            totals[key] += value
        if counts["timeouts"]:
            break
    Path(result).write_text(json.dumps({"verdict": verdict(probe, totals), **totals}))


def run_cake(directory: str, row: dict[str, Any], name: str, result: str) -> None:
    """One kernel with its launches: how many elements of each differ."""
    import torch

    from benchmarks.conformance import _bits, _tensor
    from cake.runtime import load

    kernel = load(Path(directory) / name)
    differs: dict[str, int] = {}
    with np.load(Path(directory) / name / "data.npz") as data:
        for number, scalars in enumerate(row["scalars"]):
            given, expected = data[f"{number}/x"], data[f"{number}/expected"]
            x, y = _tensor(torch, given, row["dtype"]), _tensor(torch, np.full_like(expected, 0x5A), row["dtype"])
            kernel(x=x, y=y, **scalars)
            torch.cuda.synchronize()
            wrong = int((_bits(torch, y, expected) != expected).sum())
            differs[", ".join(f"{n}={v}" for n, v in scalars.items()) or str(number)] = wrong
    text = {"verdict": "refuted" if any(differs.values()) else "holds", "checks": len(differs), "differs": differs}
    Path(result).write_text(json.dumps(text))


# ---- in the parent --------------------------------------------------------------------------------------------------


def run(directory: Path, out: Path, only: list[str], seeds: int) -> int:
    """Run every probe that was built; the number that are refuted, stuck or failed."""
    index = json.loads((directory / INDEX).read_text())
    results: dict[str, Any] = {}
    context = multiprocessing.get_context("spawn")
    for name, row in index.items():
        if not _wanted(name, only):
            continue
        with tempfile.TemporaryDirectory() as scratch:
            result = Path(scratch) / "result.json"
            start = time.time()
            if row["kind"] == "cuda":
                child = context.Process(target=run_cuda, args=(str(directory), name, seeds, str(result)))
            else:
                child = context.Process(target=run_cake, args=(str(directory), row, name, str(result)))
            child.start()
            child.join(SECONDS)
            if child.is_alive():
                child.kill()
                child.join(10)
            if result.exists():
                found = json.loads(result.read_text())
            else:
                found = {
                    "verdict": "failed",
                    "error": f"no result after {time.time() - start:.0f} s, exit {child.exitcode}",
                }
        results[name] = {
            "axiom": row["axiom"],
            "title": row["title"],
            "seconds": round(time.time() - start, 1),
            **found,
        }
        print(_line(name, results[name]), flush=True)
    out.mkdir(parents=True, exist_ok=True)
    record = {"device": _device(), "seeds": seeds, "probes": results}
    (out / "axioms.json").write_text(json.dumps(record, indent=1) + "\n")
    return sum(r["verdict"] not in ("holds", "observed") for r in results.values())


def _line(name: str, r: dict[str, Any]) -> str:
    numbers = ", ".join(f"{r[k]} {k}" for k in ("checks", "violations", "timeouts", "observed") if r.get(k))
    wrong = {k: v for k, v in r.get("differs", {}).items() if v}
    more = f", wrong elements {wrong}" if wrong else ""
    return f"{r['axiom']:<5} {name:<24} {r['verdict']:<9} {numbers}{more} {r.get('error', '')}".rstrip()


def _device() -> str:
    from cake.runtime.driver import driver

    return driver().device_name(0)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["build", "run"])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--out", type=Path, default=Path("."), help="where axioms.json goes")
    parser.add_argument("--only", action="append", default=[], help="probes whose name contains this (repeatable)")
    parser.add_argument("--seeds", type=int, default=5, help="launches of each probe")
    options = parser.parse_args()
    if options.action == "build":
        return min(build(options.directory, options.only), 1)
    return min(run(options.directory, options.out, options.only, options.seeds), 1)


if __name__ == "__main__":
    sys.exit(main())
