"""Choose constants by measuring every declared point of a kernel, shape by shape, and compare the choice with the peer.

    python benchmarks/tune.py build DIRECTORY [--only gemm]     anywhere: builds all points of the examples' search sets
    python benchmarks/tune.py run DIRECTORY --out OUT           on a GPU: one process a kernel, under a watchdog

Points are timed in turn, from a cold L2, in rounds, so that drift of the clocks meets all alike. The best few of each
shape are then paired with the peer, since a hot card ranks them by energy too, and the one with the best ratio is
measured by the protocol (pairs, intervals, noise floor).
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.judging import accuracy, beside_peer, constants_of, error_text, fresh, peer_arguments
from benchmarks.problems import PROBLEMS, Constants, Problem, Shape
from cake.diagnostics import CakeError
from cake.evaluate.intervals import geometric_mean
from cake.evaluate.pairs import FLUSH_BYTES, PAIRS, compare, paired, timed
from cake.evaluate.record import environment, write_json
from cake.runtime import load, watchdog

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"

# Which example and kernel, and the constants that are part of the problem rather than of the choice.
TUNED: dict[str, tuple[str, str, dict[str, Any]]] = {
    "gemm": ("gemm", "gemm", {}),
    "gemm_cluster": ("gemm_cluster", "gemm_cluster", {}),
    "gemm_pingpong": ("gemm_pingpong", "gemm_pingpong", {}),
    "attention": ("attention", "attention", {"D": 128, "WGS": 2, "KV_STAGES": 2, "CAUSAL": False, "LSE": False}),
    "attention-causal": ("attention", "attention", {"D": 128, "WGS": 2, "KV_STAGES": 2, "CAUSAL": True, "LSE": False}),
    "softmax": ("softmax", "softmax", {}),
    "kmeans": ("kmeans", "assign", {"D": 128}),
    "kmeans-64": ("kmeans", "assign", {"D": 64}),
    "kmeans-256": ("kmeans", "assign", {"D": 256}),
    "rmsnorm": ("rmsnorm", "rmsnorm", {}),
    "layernorm": ("layernorm", "layernorm", {}),
}
ROUNDS = 7
FINALISTS = 4
FINAL_PAIRS = 12
SECONDS = 240.0


def build_points(directory: Path, names: list[str]) -> None:
    """One artifact for each point that the checker accepts."""
    from cake.codegen.build import build, write
    from cake.compiler import parse, select_kernel
    from cake.expand.constants import points
    from cake.expand.kernel import expand_kernel
    from cake.verify import verify

    for name, (stem, kernel_name, fixed) in TUNED.items():
        path = EXAMPLES / f"{stem}.cake"
        if (names and name not in names) or not path.exists():
            continue
        file = parse(path.read_text(), str(path))
        kernel = select_kernel(file, kernel_name)
        built = 0
        for point in points(file, kernel):
            if any(point.get(k, v) != v for k, v in fixed.items()):
                continue
            expanded, _ = expand_kernel(file, kernel, point)
            if expanded is None:
                continue
            verdict = verify(expanded, effort="quick")
            if verdict.status == "unsafe":
                print(f"{name} {point}: {', '.join(verdict.codes)}")
                continue
            try:
                artifact = build(expanded)
            except CakeError as e:
                print(f"{name} {point}: {e}")
                continue
            if artifact.report.spills:
                print(f"{name} {point}: spills")
                continue
            write(artifact, directory / name / f"{built:03d}", ("cubin", "expand"))
            built += 1
        print(f"{name}: {built} points", flush=True)


def tune(directory: str, problem_name: str, pairs: int, progress: str) -> None:
    """Tune every timed shape of one kernel; a line of JSON each."""
    artifacts = sorted(p.parent for p in Path(directory).glob("*/manifest.json"))
    kernels = [(load(a), constants_of(a)) for a in artifacts]
    problem = PROBLEMS[problem_name]
    shapes: dict[Shape, None] = {}
    for _, constants in kernels:
        shapes.update(dict.fromkeys(problem.timed(constants)))
    for shape in shapes:
        able = [(k, c) for k, c in kernels if shape in problem.timed(c)]
        record = tune_shape(problem, shape, able, pairs)
        with open(progress, "a", encoding="utf-8") as f:
            f.write(json.dumps(record) + "\n")


def tune_shape(problem: Problem, shape: Shape, able: list[tuple[Any, Constants]], pairs: int) -> dict[str, Any]:
    """Measure every point that takes the shape, and the best against the peer."""
    import torch

    flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    ours = fresh(torch, problem, shape, 3, able[0][1])
    times = rounds(torch, able, ours, flush)
    medians = [statistics.median(t) for t in times]
    order = sorted(range(len(able)), key=medians.__getitem__)
    constants = able[order[0]][1]
    call = problem.peer(torch, peer_arguments(problem, ours, constants), constants)

    def ratio(i: int) -> float:
        a, b = paired(torch, lambda: able[i][0](*ours), call, pairs=FINAL_PAIRS, flush=flush)
        return statistics.median(y / x for x, y in zip(a, b, strict=True))

    best, constants = able[max(order[:FINALISTS], key=ratio)]
    result, peer = beside_peer(torch, problem, best, ours, constants, pairs)
    again, errors = accuracy(torch, problem, ours, peer, constants)  # of what the timed calls left
    rival = None
    if problem.rival is not None:
        other = problem.rival(torch, peer, constants)
        rival = asdict(compare(torch, lambda: best(*ours), other, pairs=pairs))
    work = problem.work(shape, constants)
    return {
        "shape": shape,
        "rival": rival,
        "constants": constants,
        "unit": problem.unit,
        "rate": work / result.ours_us.median / 1e6,
        "peer_rate": work / result.peer_us.median / 1e6,
        "peer": problem.peer_name,
        "recheck": again,
        "errors": errors,
        "points": [{"constants": able[i][1], "us": medians[i], "samples": times[i]} for i in order],
        **asdict(result),
    }


def rounds(torch: Any, able: list[tuple[Any, Constants]], ours: list[Any], flush: Any) -> list[list[float]]:
    """Each point's times, in microseconds; the first round warms up."""
    times: list[list[float]] = [[] for _ in able]
    for round_ in range(ROUNDS + 1):
        taken = timed(torch, [functools.partial(kernel, *ours) for kernel, _ in able], flush)
        if round_:
            for mine, us in zip(times, taken, strict=True):
                mine.append(us)
    return times


def run_all(directory: Path, out: Path, names: list[str], pairs: int) -> int:
    """Tune every kernel found; the number that failed."""
    import tempfile

    import torch

    results: dict[str, Any] = {"environment": environment(torch), "kernels": {}}
    failed = 0
    for name, (_, problem, _fixed) in TUNED.items():
        if (names and name not in names) or not (directory / name).exists():
            continue
        with tempfile.NamedTemporaryFile("r", suffix=".jsonl") as progress:
            try:
                watchdog.run(
                    tune, str(directory / name), problem, pairs, progress.name, timeout=SECONDS, what=f"tuning {name}"
                )
            except CakeError as e:
                failed += 1
                print(f"{name}: {e}")
            records = [json.loads(line) for line in Path(progress.name).read_text().splitlines()]
        results["kernels"][name] = records
        write_json(out / "tune.json", results)
        if len(records) > 1:
            cells = [(r["samples"]["ours_us"], r["samples"]["peer_us"]) for r in records]
            mean = geometric_mean(cells)
            print(
                f"{name}: geometric mean {mean.median:.4f} [{mean.low:.4f}, {mean.high:.4f}] of {len(records)} shapes"
            )
        for r in records:
            ratio = r["ratio"]
            chosen = {k: v for k, v in r["constants"].items() if k in r["points"][0]["constants"]}
            print(
                f"{name} {'x'.join(map(str, r['shape'])):>20} {r['rate']:8.2f} {r['peer_rate']:8.2f} {r['unit']} "
                f"{ratio['median']:.3f} [{ratio['low']:.3f}, {ratio['high']:.3f}] noise {r['noise']['median']:.3f} "
                f"{chosen}"
                + (
                    f" torch.compile {r['rival']['ratio']['median']:.3f} [{r['rival']['ratio']['low']:.3f}]"
                    if r["rival"]
                    else ""
                )
                + f" error: {error_text(r['errors'])}",
                flush=True,
            )
    return failed


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["build", "run"])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--out", type=Path, default=Path("."), help="where tune.json goes")
    parser.add_argument("--only", action="append", default=[], help="a kernel by name (repeatable)")
    parser.add_argument("--pairs", type=int, default=PAIRS)
    options = parser.parse_args()
    if options.action == "build":
        build_points(options.directory, options.only)
        return 0
    return min(run_all(options.directory, options.out, options.only, options.pairs), 1)


if __name__ == "__main__":
    sys.exit(main())
