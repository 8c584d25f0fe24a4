"""Flash-KMeans beside flash-kmeans and flashlib (Triton): assignment, update of the centroids, and the iteration of both.

    python benchmarks/kmeans.py build DIRECTORY [--d 64,128,256]                     anywhere: builds the candidates
    python benchmarks/kmeans.py run DIRECTORY --out OUT --part assign|step [--cells 0,3] [--seconds 240]     on a GPU

`run` writes OUT/kmeans-PART.json after each shape and starts none after the given seconds. Candidates are checked against float64
and timed from a cold L2; the best of a shape is compared with the peers by the protocol (pairs that alternate, medians, intervals).
The peers run with the configuration that the library chooses and with the best of 48 (kmeans_peers.py; `--known`: of the fastest in
earlier results), where they can be imported: `PYTHONPATH` with the unpacked wheels. `assign` compares kernels, with the centroids'
norms at hand for both sides, and what a user calls. `step` compares the update from given labels, and the iteration: from points and
centroids to labels, centroids and how far these moved.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import kmeans_peers as peers
from benchmarks.problems.kmeans import ASSIGN, judge_means
from cake.diagnostics import CakeError
from cake.evaluate.pairs import FLUSH_BYTES, Comparison, compare, timed
from cake.evaluate.record import environment, write_json
from cake.runtime import load

SOURCE = Path(__file__).resolve().parent.parent / "examples" / "kmeans.cake"

CELLS: tuple[peers.Cell, ...] = (
    (32, 65536, 1024, 128),
    (1, 1048576, 1024, 128),
    (32, 75600, 1000, 128),
    (1, 262144, 16384, 128),
    (1, 65536, 65536, 128),
    (8, 65536, 256, 128),
    (64, 4096, 256, 128),
    (1, 65536, 4096, 128),
    (16, 32768, 500, 128),
    (4, 100000, 100, 128),
    (1, 10000, 1000, 128),
    (1, 65536, 256, 64),
    (32, 65536, 1024, 64),
    (1, 1048576, 4096, 64),
    (32, 75600, 1000, 64),
    (8, 200000, 512, 64),
    (1, 262144, 4096, 256),
    (32, 65536, 1024, 256),
    (16, 75600, 1000, 256),
    (1, 131072, 16384, 256),
    (64, 8192, 512, 256),
)
"""Batches, points, centroids, depth; the first is the headline."""
STEP_CELLS = (0, 2, 3, 5, 9, 11, 12, 16, 17, 18)
"""The numbers of those whose iteration is compared by default."""

Point = dict[str, int]

ASSIGN_POINTS: dict[int, tuple[Point, ...]] = {
    64: (
        {},
        {"STAGES": 4},
        {"BN": 64, "STAGES": 4},
        {"WGS": 3},
        {"WGS": 2, "BN": 256},
        {"WGS": 2, "BN": 128},
        {"WGS": 2, "BN": 128, "STAGES": 2, "POINTS": 1},
    ),
    128: (
        {},
        {"BN": 64, "STAGES": 4},
        {"WGS": 3, "STAGES": 4},
        {"WGS": 2},
        {"WGS": 2, "BN": 256, "STAGES": 2},
        {"WGS": 2, "BN": 64, "STAGES": 3, "POINTS": 1},
    ),
    256: (
        {"BN": 64, "POINTS": 1},
        {"WGS": 3, "BN": 64, "POINTS": 1},
        {"WGS": 3, "BN": 64, "STAGES": 4, "POINTS": 1},
        {"WGS": 2, "BN": 64},
        {"WGS": 2, "BN": 128, "STAGES": 2, "POINTS": 1},
    ),
}
STEP_POINTS: dict[int, tuple[Point, ...]] = {
    64: ({}, {"ADDERS": 1}, {"STAGES": 4}, {"WGS": 2, "BN": 128}),
    128: ({}, {"ADDERS": 1}, {"BN": 64, "STAGES": 4}, {"WGS": 3, "STAGES": 4}, {"WGS": 2}),
    256: ({"WGS": 2, "BN": 64}, {"WGS": 3, "BN": 64, "POINTS": 1}, {"BN": 64, "POINTS": 1}),
}
UPDATE_POINTS: tuple[Point, ...] = ({}, {"EACH": 32}, {"EACH": 8}, {"WARPS": 4})
SEQUENCES = {"assign": "kmeans_assign", "update": "kmeans_update", "step": "kmeans_step"}
ROUNDS, PAIRS = 5, 20
SHORT = 4
"""Configurations of the peer in a short list."""


def build(directory: Path, depths: Sequence[int]) -> None:
    """One artifact a candidate; registers and spills are printed."""
    from cake.codegen.sequences import build_sequence, write_sequence
    from cake.compiler import expand_steps, parse, select
    from cake.ir import surface as s

    file = parse(SOURCE.read_text(encoding="utf-8"), str(SOURCE))
    for d in depths:
        for kind, points in (("assign", ASSIGN_POINTS[d]), ("update", UPDATE_POINTS), ("step", STEP_POINTS[d])):
            sequence = select(file, SEQUENCES[kind])
            assert isinstance(sequence, s.Sequence)
            for point in points:
                name = "-".join([kind, f"d{d}", *(f"{n.lower()}{v}" for n, v in point.items())])
                try:
                    made = build_sequence(expand_steps(file, sequence, {"D": d, **point}))
                except CakeError as e:
                    print(name, e, flush=True)
                    continue
                write_sequence(made, directory / name)
                (directory / name / "point.json").write_text(json.dumps({"kind": kind, "D": d, **point}))
                for a in made.artifacts:
                    r = a.report
                    print(f"{name}: {r.kernel}: {r.registers} registers, {r.spill_store_bytes} B spilled", flush=True)


# ---- one shape ------------------------------------------------------------------------------------------------------


class Bench:
    """What the parts of a shape share: torch, built candidates by kind and depth, configurations of the peer that are known to be its
    fastest, memory to clear the L2 with."""

    def __init__(
        self, torch: Any, built: dict[str, dict[int, dict[str, Any]]], known: dict[peers.Cell, tuple[peers.Config, ...]]
    ) -> None:
        self.torch, self.built, self.known = torch, built, known
        self.flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
        self.flashlib, self.older = peers.flashlib(), peers.flash_kmeans()

    def median(self, call: Callable[[], Any], rounds: int = ROUNDS) -> float:
        """Microseconds from a cold L2, after one call that is not timed."""
        call()
        return statistics.median(timed(self.torch, (call,), self.flush)[0] for _ in range(rounds))

    def beside(
        self, result: dict[str, Any], name: str, ours: Callable[[], Any], peer: Callable[[], Any]
    ) -> Comparison | None:
        """The protocol, noted under ``name``."""
        try:
            c = compare(self.torch, ours, peer, pairs=PAIRS)
        except Exception as e:  # the peer's own limits: noted, and the run goes on
            result[name] = {"error": f"{type(e).__name__}: {str(e)[:300]}"}
            print(f"    {name}: {result[name]['error'][:160]}", flush=True)
            return None
        result[name] = asdict(c)
        r = c.ratio
        print(
            f"    {name}: {c.ours_us.median:.1f} us, peer {c.peer_us.median:.1f} us, {r.median:.2f} [{r.low:.2f}, {r.high:.2f}]",
            flush=True,
        )
        return c

    def best_config(
        self, x: Any, c: Any, norms: Any, ids: Any, grid: Sequence[peers.Config]
    ) -> tuple[dict[str, float], peers.Config | None]:
        """The grid's times in microseconds, and its best configuration."""
        times: dict[str, float] = {}
        best, chosen = math.inf, None
        for config in grid:
            try:
                time = self.median(peers.assign_call(self.flashlib, x, c, norms, ids, config), 3)
            except Exception:  # does not fit
                self.torch.cuda.synchronize()
                continue
            times[" ".join(map(str, config.values()))] = time
            if time < best:
                best, chosen = time, config
        return times, chosen


def nearest(torch: Any, given: Sequence[Any], ids: Any, expected: Any) -> dict[str, Any]:
    """How labels compare with float64: the loss of score by the chosen centroid, in units of what f32 sums may lose (genuine
    ties are below 1), and labels that are out of range or not the lowest of equals."""
    best, bound = expected
    chosen = ASSIGN.measure(torch, list(given), ids)  # type: ignore[misc]
    bad = torch.isnan(chosen)
    return {"loss": float(((best - chosen) / bound)[~bad].amax()) if not bad.all() else math.inf, "bad": int(bad.sum())}


def right(found: dict[str, Any]) -> bool:
    """Whether everything is within bounds."""
    return bool(not found.get("bad") and found.get("loss", 0.0) <= 1 and found.get("error", 0.0) <= 1)


def assign_cell(bench: Bench, cell: peers.Cell) -> dict[str, Any]:
    """Assignment: every candidate checked and timed, the best beside the peers."""
    torch, (b, n, k, d) = bench.torch, cell
    generator = torch.Generator(device="cuda").manual_seed(b + n + k + d)
    given = ASSIGN.arguments(torch, (b, n, k), generator, {"D": d})
    x, c, half, ids = given
    expected = ASSIGN.reference(torch, given, {"D": d})[0]
    result: dict[str, Any] = {"candidates": {}}
    best, kernel, whole = math.inf, None, None
    for name, sequence in bench.built["assign"][d].items():
        ids.fill_(-7)
        work = sequence.workspace(x, c, ids)

        def call(kernel: Any = sequence.steps[1]) -> None:
            kernel(x, c, half, ids)

        def all_of_it(sequence: Any = sequence, work: Any = work) -> None:
            sequence(x, c, ids, workspace=work)

        all_of_it()
        found = nearest(torch, given, ids, expected)
        us = bench.median(call)
        result["candidates"][name] = {"us": us, "errors": found, "right": right(found)}
        if not right(found):
            print(f"    {name}: WRONG {found}", flush=True)
        elif us < best:
            best, kernel, whole, result["chosen"] = us, call, all_of_it, name
    if kernel is None or whole is None:
        return result
    result["TFLOP/s"] = 2.0 * b * n * k * d / best / 1e6
    print(f"  assign {cell}: {result['chosen']}, {best:.1f} us, {result['TFLOP/s']:.0f} TFLOP/s", flush=True)
    own, norms = torch.empty_like(ids), -2.0 * half
    if bench.flashlib is not None:
        result["grid"], config = bench.best_config(x, c, norms, own, bench.known.get(cell, peers.GRID))
        result["config"] = config
        library = peers.assign_call(bench.flashlib, x, c, norms, own, None)
        library()
        result["flashlib_errors"] = nearest(torch, given, own, expected)
        bench.beside(result, "flashlib", kernel, library)
        bench.beside(result, "flashlib tuned", kernel, peers.assign_call(bench.flashlib, x, c, norms, own, config))
        bench.beside(result, "flashlib call", whole, lambda: bench.flashlib[0].euclid_assign_triton(x, c))  # type: ignore[index]
    if bench.older is not None:
        bench.beside(result, "flash-kmeans", kernel, peers.older_assign_call(bench.older, x, c, norms, own, None))
    return result


def step_parts(bench: Bench, sequence: Any, arguments: Sequence[Any], work: dict[str, Any]) -> dict[str, float]:
    """Microseconds of each kernel of the iteration in one pass, medians."""
    x, c, ids, new, moved = arguments
    half, sums, counts = work["half"], work["sums"], work["counts"]
    calls = (
        lambda: sequence.steps[0](c, half),
        lambda: sequence.steps[1](x, c, half, ids, sums, counts),
        lambda: sequence.steps[2](c, sums, counts, new, moved),
    )
    samples = [timed(bench.torch, calls, bench.flush) for _ in range(ROUNDS)]
    return dict(
        zip(("norms", "assign and sums", "means"), map(statistics.median, zip(*samples, strict=True)), strict=True)
    )


def step_cell(bench: Bench, cell: peers.Cell) -> dict[str, Any]:
    """The update from given labels, and the iteration: labels and sums by one kernel, or by one after the other."""
    torch, (b, n, k, d) = bench.torch, cell
    generator = torch.Generator(device="cuda").manual_seed(b + n + k + d)
    given = ASSIGN.arguments(torch, (b, n, k), generator, {"D": d})
    x, c, _, ids = given
    expected = ASSIGN.reference(torch, given, {"D": d})[0]
    new, moved = torch.empty_like(c), torch.empty((b, k), dtype=torch.float32, device="cuda")
    arguments = {"assign": (x, c, ids), "update": (x, ids, c, new, moved), "step": (x, c, ids, new, moved)}
    able: dict[str, dict[str, Callable[[], Any]]] = {kind: {} for kind in arguments}
    result: dict[str, Any] = {kind: {} for kind in arguments}
    for kind, passed in arguments.items():
        for name, sequence in bench.built[kind][d].items():
            work = sequence.workspace(*passed)

            def call(sequence: Any = sequence, passed: Any = passed, work: Any = work) -> None:
                sequence(*passed, workspace=work)

            new.fill_(math.nan), moved.fill_(math.nan)
            if kind != "update":
                ids.fill_(-7)
            call()
            found = {} if kind == "update" else nearest(torch, given, ids, expected)
            if right(found) and kind != "assign":
                found |= judge_means(torch, x, ids, c, new, moved)
            if right(found):
                able[kind][name] = call
            else:
                print(f"    {name}: WRONG {found}", flush=True)
            result[kind][name] = {"us": bench.median(call), "errors": found, "right": right(found)}
            if kind == "step":
                result[kind][name]["parts"] = step_parts(bench, sequence, passed, work)
    if not all(able.values()):
        return result
    chosen = {kind: min(calls, key=lambda name: result[kind][name]["us"]) for kind, calls in able.items()}
    assign, update, step = (able[kind][chosen[kind]] for kind in ("assign", "update", "step"))

    def apart() -> None:
        assign()
        update()

    us = {kind: result[kind][name]["us"] for kind, name in chosen.items()}
    us["apart"] = bench.median(apart)
    result |= {"chosen": chosen, "us": us}
    parts = ", ".join(f"{part} {t:.1f}" for part, t in result["step"][chosen["step"]]["parts"].items())
    print(f"  step {cell}: " + ", ".join(f"{kind} {t:.1f}" for kind, t in us.items()) + f" us ({parts})", flush=True)
    print(f"    {', '.join(chosen.values())}", flush=True)
    beside_step(bench, result, given, step if us["step"] <= us["apart"] else apart, update)
    return result


def beside_step(
    bench: Bench, result: dict[str, Any], given: Sequence[Any], step: Callable[[], Any], update: Callable[[], Any]
) -> None:
    """The update and the iteration beside the peers'."""
    torch, (x, c, _, ids) = bench.torch, given
    step()
    if bench.flashlib is not None:
        blocks = {size: peers.update_call(torch, bench.flashlib, x, ids, c, size) for size in peers.UPDATE_BLOCKS}
        times = {size: bench.median(call, 3) for size, call in blocks.items()}
        best = min(times, key=lambda size: times[size])
        result["flashlib blocks"] = times
        result["flashlib_errors"] = judge_means(torch, x, ids, c, blocks[256](), None)
        bench.beside(result, "update beside flashlib", update, blocks[256])
        bench.beside(result, "update beside flashlib tuned", update, blocks[best])
        norms = c.float().square().sum(dim=2)
        result["grid"], config = bench.best_config(x, c, norms, torch.empty_like(ids), peers.FEW)
        bench.beside(result, "step beside flashlib", step, peers.step_call(torch, bench.flashlib, x, c, None, 256))
        bench.beside(
            result, "step beside flashlib tuned", step, peers.step_call(torch, bench.flashlib, x, c, config, best)
        )
    if bench.older is not None:
        bench.beside(result, "update beside flash-kmeans", update, peers.older_update_call(bench.older, x, ids, c))
        bench.beside(result, "step beside flash-kmeans", step, peers.older_step_call(bench.older, x, c))


# ---- the run --------------------------------------------------------------------------------------------------------


def short_lists(files: Sequence[Path]) -> dict[peers.Cell, tuple[peers.Config, ...]]:
    """The peer's fastest configurations of each shape, from results of earlier runs over the whole grid."""
    lists = {}
    for cell in (c for path in files for c in json.loads(path.read_text(encoding="utf-8"))["cells"]):
        texts = sorted(cell["grid"], key=lambda text: float(cell["grid"][text]))[:SHORT]
        configs = (dict(zip(peers.GRID[0], map(int, text.split()), strict=True)) for text in texts)
        lists[cell["B"], cell["N"], cell["K"], cell["D"]] = tuple(configs)
    return lists


def run(
    directory: Path, out: Path, part: str, cells: Sequence[peers.Cell], seconds: float, known: Sequence[Path] = ()
) -> None:
    """Every selected shape; the file is rewritten after each."""
    begin = time.monotonic()
    import torch

    lists = short_lists(known)
    if peers.flashlib() is not None:
        grids = [(cell, lists.get(cell, peers.GRID) if part == "assign" else peers.FEW) for cell in cells]
        jobs = [job for cell, grid in grids for job in peers.jobs([cell], grid, part == "step")]
        failed = peers.compile_all(jobs)
        print(f"compiled {len(jobs)} in {time.monotonic() - begin:.0f} s, {len(failed)} failed", flush=True)
        print("\n".join(failed[:3]), flush=True)
    built: dict[str, dict[int, dict[str, Any]]] = {kind: {} for kind in SEQUENCES}
    depths = {d for _, _, _, d in cells}
    for path in sorted(p.parent for p in directory.glob("*/point.json")):
        point = json.loads((path / "point.json").read_text())
        if point["D"] in depths and (part == "step" or point["kind"] == "assign"):
            built[point["kind"]].setdefault(point["D"], {})[path.name] = load(path)
    bench = Bench(torch, built, lists)
    results: dict[str, Any] = {"environment": environment(torch), "part": part, "cells": []}
    if known:
        results["known"] = f"of each shape the {SHORT} fastest of the grid in {', '.join(p.name for p in known)}"
    measure = assign_cell if part == "assign" else step_cell
    for cell in cells:
        if time.monotonic() - begin > seconds:
            print(f"no time left for {cell}", flush=True)
            continue
        try:
            found = measure(bench, cell)
        except (CakeError, RuntimeError) as e:
            print(f"{cell}: {e}", flush=True)
            found = {"error": str(e)}
        results["cells"].append({**dict(zip("BNKD", cell, strict=True)), **found})
        write_json(out / f"kmeans-{part}.json", results)
        torch.cuda.empty_cache()
    names = {n for c in results["cells"] for n, v in c.items() if isinstance(v, dict) and "ratio" in v}
    for name in sorted(names):
        ratios = [c[name]["ratio"]["median"] for c in results["cells"] if "ratio" in c.get(name, {})]
        print(
            f"{name}: {len(ratios)} shapes, geometric mean {statistics.geometric_mean(ratios):.2f}, least {min(ratios):.2f}"
        )
    print(f"{time.monotonic() - begin:.0f} s")


def numbers(text: str) -> list[int]:
    """Numbers separated by commas."""
    return [int(n) for n in text.split(",")]


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("build", "run"))
    parser.add_argument("directory", type=Path)
    parser.add_argument("--out", type=Path, default=Path("out"))
    parser.add_argument("--part", choices=("assign", "step"), default="assign")
    parser.add_argument("--d", type=numbers, default=[64, 128, 256])
    parser.add_argument("--cells", type=numbers, help="numbers of shapes in CELLS")
    parser.add_argument("--seconds", type=float, default=240.0)
    parser.add_argument(
        "--known",
        type=Path,
        action="append",
        default=[],
        help="earlier results, whose fastest configurations are tried alone",
    )
    given = parser.parse_args()
    if given.what == "build":
        build(given.directory, given.d)
    else:
        usual = range(len(CELLS)) if given.part == "assign" else STEP_CELLS
        run(
            given.directory, given.out, given.part, [CELLS[i] for i in given.cells or usual], given.seconds, given.known
        )


if __name__ == "__main__":
    main()
