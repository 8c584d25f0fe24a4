"""Check and time built kernels on a GPU, in one run that no hang can stop.

    python benchmarks/gpu_smoke.py build DIRECTORY             anywhere: builds the examples, one directory each
    python benchmarks/gpu_smoke.py run DIRECTORY --out OUT     on a GPU: checks and times every kernel in DIRECTORY
    compute-sanitizer python benchmarks/gpu_smoke.py once DIRECTORY     small shapes, in one process

``run`` needs no compiler. Each kernel runs in a process of its own; a shape that hangs or faults is recorded and the
rest go on.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import host_time
from benchmarks.judging import accuracy, beside_peer, built, constants_of, error_text, fresh, manifest_of, within_bounds
from benchmarks.problems import PROBLEMS, Constants, Problem, Shape, poison
from cake.diagnostics import CakeError
from cake.evaluate.pairs import PAIRS
from cake.evaluate.record import environment, write_json
from cake.runtime import errors as codes
from cake.runtime import load, watchdog

CHECK_SECONDS = 60.0
TIME_SECONDS = 240.0
FILES = ("cu", "cubin", "expand")
FAILURES = 4  # shapes of one kernel that may fail before the rest are left out


KNN_FEW = {"WGS": 1, "SPLIT": 264, "PARTS": 128, "CLASSES": 1, "TEAM": 8, "CTAS": 2, "STAGES": 2}
KNN_SOME = {"WGS": 4, "SPLIT": 33, "PARTS": 32, "SAMPLE": 16, "TEAM": 4}
KNN_MANY = {"WGS": 4, "SPLIT": 4, "PARTS": 8, "SAMPLE": 16, "TEAM": 1}

# Which example and kernel or sequence, at which constants, by the directory's name.
POINTS: dict[str, tuple[str, str | None, dict[str, Any]]] = {
    "gemm": ("gemm", None, {}),
    "gemm-128": ("gemm", None, {"BN": 128, "STAGES": 6}),
    "gemm-192": ("gemm", None, {"BN": 192}),
    "gemm-cluster": ("gemm_cluster", None, {}),
    "gemm-cluster-1": ("gemm_cluster", None, {"CLUSTER": 1}),
    "gemm-cluster-4": ("gemm_cluster", None, {"CLUSTER": 4}),
    "gemm-cluster-128": ("gemm_cluster", None, {"BN": 128, "STAGES": 6}),
    "gemm-cluster-176": (
        "gemm_cluster",
        None,
        {"MATH": 3, "BN": 176, "CHUNK": 176, "STAGES": 3, "OUT": 1, "CLUSTER": 1},
    ),
    "gemm-cluster-48": (
        "gemm_cluster",
        None,
        {"MATH": 1, "BN": 48, "CHUNK": 48, "STAGES": 12, "OUT": 1, "CLUSTER": 1},
    ),
    "gemm_split": ("gemm_split", None, {}),
    "gemm_split-2": ("gemm_split", None, {"SPLIT": 2, "BN": 96, "STAGES": 6}),
    "gemm_split-8": ("gemm_split", None, {"SPLIT": 8, "MATH": 1, "BN": 32, "STAGES": 12}),
    "gemm_pingpong-176": ("gemm_pingpong", None, {"BN": 176, "CHUNK": 16, "STAGES": 5}),
    "gemm-bias-gelu": ("gemm_bias_gelu", None, {}),
    "gemm-bias-gelu-192": ("gemm_bias_gelu", None, {"BN": 192}),
    "batched-gemm": ("batched_gemm", None, {}),
    "batched-gemm-256": ("batched_gemm", None, {"BN": 256, "STAGES": 4}),
    "softmax": ("softmax", "softmax", {}),
    "softmax-8192": ("softmax", "softmax", {"COLS": 8192, "ROWS": 1, "WARPS": 8}),
    "softmax_long": ("softmax", "softmax_long", {}),
    "rmsnorm": ("rmsnorm", None, {}),
    "rmsnorm-8192": ("rmsnorm", None, {"COLS": 8192, "ROWS": 1}),
    "rmsnorm-16384": ("rmsnorm", None, {"COLS": 16384, "ROWS": 1, "WARPS": 8, "REGS": 96}),
    "layernorm": ("layernorm", None, {}),
    "layernorm-8192": ("layernorm", None, {"COLS": 8192, "ROWS": 1, "WARPS": 8}),
    "attention": ("attention", None, {"CAUSAL": False}),
    "attention-causal": ("attention", None, {}),
    "attention-64": ("attention", None, {"D": 64, "WGS": 3, "KV_STAGES": 3, "LSE": True}),
    "attention-256": ("attention", None, {"D": 256, "BN": 80, "Q_STAGES": 1}),
    "attention-backward": ("attention_backward", None, {}),
    "attention-backward-full": ("attention_backward", None, {"CAUSAL": False, "HG": 1}),
    "attention-backward-64": ("attention_backward", None, {"D": 64}),
    "attention-backward-64-full": ("attention_backward", None, {"D": 64, "CAUSAL": False, "HG": 1}),
    "gemm_pingpong": ("gemm_pingpong", None, {}),
    "gemm_pingpong-192": ("gemm_pingpong", None, {"BN": 192, "STAGES": 4}),
    "gemm_pingpong-split": ("gemm_pingpong", None, {"SPLIT": 4}),
    "gemm_pingpong-split-8": ("gemm_pingpong", None, {"BM": 64, "SPLIT": 8, "STAGES": 6}),
    "gemm_pingpong-64": ("gemm_pingpong", None, {"BM": 64, "BN": 256, "STAGES": 4}),
    "kmeans": ("kmeans", "assign", {}),
    "kmeans-64": ("kmeans", "assign", {"D": 64}),
    "kmeans-256": ("kmeans", "assign", {"D": 256, "BN": 64, "POINTS": 1}),
    "kmeans-norms": ("kmeans", "half_norms", {}),
    "kmeans-step": ("kmeans", "kmeans_step", {}),
    "kmeans-step-64": ("kmeans", "kmeans_step", {"D": 64, "ADDERS": 1}),
    "kmeans-step-256": ("kmeans", "kmeans_step", {"D": 256, "WGS": 2, "BN": 64}),
    "kmeans-update": ("kmeans", "kmeans_update", {}),
    "kmeans-update-256": ("kmeans", "kmeans_update", {"D": 256, "WARPS": 4, "EACH": 32}),
    "gemm_streamk": ("gemm_streamk", None, {}),
    "gemm_streamk-64": ("gemm_streamk", None, {"BN": 64, "STAGES": 8}),
    "gemm_streamk-192": ("gemm_streamk", None, {"BN": 192}),
    "knn": ("knn", "knn", {**KNN_SOME, "K": 10}),
    "knn-64": ("knn", "knn", {**KNN_MANY, "D": 64, "K": 16}),
    "knn-256": ("knn", "knn", {**KNN_SOME, "D": 256, "K": 5, "WGS": 2, "STAGES": 2}),
    "knn-many-1": ("knn", "knn", {**KNN_MANY, "K": 1}),
    "knn-many-32": ("knn", "knn", {**KNN_MANY, "K": 32}),
    "knn-few": ("knn", "knn_few", KNN_FEW),
    "knn-few-32": ("knn", "knn_few", {**KNN_FEW, "K": 32, "CTAS": 1, "SPLIT": 132, "STAGES": 4}),
}


def expanded(name: str) -> Any:
    """The kernel or sequence that ``build`` builds under this name."""
    from cake.compiler import expand_file, expand_steps, parse, select
    from cake.ir import surface as s

    stem, unit, constants = POINTS[name]
    path = Path(__file__).resolve().parent.parent / "examples" / f"{stem}.cake"
    file = parse(path.read_text(encoding="utf-8"), str(path))
    chosen = select(file, unit)
    if isinstance(chosen, s.Sequence):
        return expand_steps(file, chosen, constants)
    return expand_file(path, kernel=unit, constants=constants)


def build_all(directory: Path, names: list[str]) -> int:
    """Build into one directory each; the number of failures."""
    from cake.codegen.build import build, write
    from cake.codegen.sequences import build_sequence, write_sequence
    from cake.ir.sequences import Sequence

    failed = 0
    for name in POINTS:
        if names and name not in names:
            continue
        try:
            unit = expanded(name)
            if isinstance(unit, Sequence):
                sequence = build_sequence(unit)
                write_sequence(sequence, directory / name, FILES)
                reports = [a.report for a in sequence.artifacts]
            else:
                artifact = build(unit)
                write(artifact, directory / name, FILES)
                reports = [artifact.report]
        except CakeError as e:
            failed += 1
            print(f"{name}: not built")
            for d in e.diagnostics:
                print(f"  {d.code}: {d.message} {' | '.join(d.facts)}")
            continue
        print(f"{name}:\n" + "".join(f"{report.render()}\n\n" for report in reports))
    return failed


# ---- in the child ----------------------------------------------------------------------------------------------------


def call_of(torch: Any, kernel: Any, tensors: list[Any]) -> tuple[Callable[[], None], list[Any]]:
    """A call of a kernel or a sequence with these arguments, and workspace that is zero before it and has to be after. Other workspace
    is poisoned."""
    if not hasattr(kernel, "workspace"):
        return lambda: kernel(*tensors), []
    workspace, zero = kernel.workspace(*tensors), {t.name for t in kernel.sequence.temps if t.zero}
    for name in workspace.keys() - zero:
        poison(torch, workspace[name])
    return lambda: kernel(*tensors, workspace=workspace), [workspace[name] for name in zero]


def same(torch: Any, a: Any, b: Any) -> bool:
    """Whether two tensors have the same bits, NaN included."""
    return bool(torch.equal(*(t.contiguous().view(torch.uint8) for t in (a, b))))


def _check_one(torch: Any, kernel: Any, problem: Problem, shape: Shape, constants: Constants) -> dict[str, Any]:
    """Poisoned outputs, fresh inputs twice, inputs unchanged, the second call right too, whether bit for bit alike is noted."""
    record: dict[str, Any] = {"shape": shape}
    for seed in (1, 2):
        tensors = fresh(torch, problem, shape, seed, constants)
        outputs = problem.outputs(constants)
        kept = [
            t for i, t in enumerate(tensors) if i not in (*outputs, *problem.scratch) and isinstance(t, torch.Tensor)
        ]
        before = [t.clone() for t in kept]
        call, zeros = call_of(torch, kernel, tensors)
        call()
        torch.cuda.synchronize()
        record |= within_bounds(torch, problem, tensors, constants)
        first = [tensors[i].clone() for i in outputs]
        for i in outputs:
            poison(torch, tensors[i])
        call()
        torch.cuda.synchronize()
        record["repeatable"] = all(same(torch, x, tensors[i]) for x, i in zip(first, outputs, strict=True))
        again = record if record["repeatable"] else within_bounds(torch, problem, tensors, constants)
        record["inputs_kept"] = all(same(torch, x, y) for x, y in zip(before, kept, strict=True))
        record["workspace_kept"] = not any(bool(t.any()) for t in zeros)
        record["ok"] = all(r["worst"] <= 1 and not r["not_finite"] for r in (record, again))
        record["ok"] &= record["inputs_kept"] and record["workspace_kept"]
        if not record["ok"]:
            break
    return record


def check_shapes(directory: str, problem_name: str, shapes: list[Shape], progress: str) -> None:
    """Check shapes in order, a line of JSON each. A CUDA error poisons the process, so it ends there."""
    import torch

    kernel = load(directory)
    problem, constants = PROBLEMS[problem_name], constants_of(directory)
    for shape in shapes:
        try:
            record = _check_one(torch, kernel, problem, tuple(shape), constants)
        except CakeError as e:
            record = {"shape": shape, "ok": False, "error": [f"{d.code}: {d.message} {d.facts}" for d in e.diagnostics]}
        with open(progress, "a", encoding="utf-8") as f:
            f.write(json.dumps(record) + "\n")
        if any(c.startswith(codes.CUDA_CALL) for c in record.get("error", ())):
            raise RuntimeError(record["error"][0])


def time_shapes(directory: str, problem_name: str, shapes: list[Shape], pairs: int, progress: str) -> None:
    """Time shapes in order against the peer, a line of JSON each; the peer writes an output of its own."""
    import torch

    kernel = load(directory)
    problem, constants = PROBLEMS[problem_name], constants_of(directory)
    for shape in shapes:
        ours = fresh(torch, problem, tuple(shape), 3, constants)
        result, peer = beside_peer(torch, problem, kernel, ours, constants, pairs)
        again, errors = accuracy(torch, problem, ours, peer, constants)  # of what the timed calls left
        work = problem.work(tuple(shape), constants)
        record = {
            "shape": shape,
            "unit": problem.unit,
            "rate": work / result.ours_us.median / 1e6,
            "peer_rate": work / result.peer_us.median / 1e6,
            "peer": problem.peer_name,
            "significant": result.significant,
            "recheck": again,
            "errors": errors,
            **asdict(result),
        }
        with open(progress, "a", encoding="utf-8") as f:
            f.write(json.dumps(record) + "\n")


def host_times(directory: str, problem_name: str) -> dict[str, float]:
    """Host microseconds of one call on the smallest shape: ours, with addresses that change, and the peer's."""
    import torch

    kernel = load(directory)
    problem, constants = PROBLEMS[problem_name], constants_of(directory)
    sets = [fresh(torch, problem, problem.checked(constants)[0], seed, constants) for seed in range(4)]
    peer = problem.peer(torch, sets[0], constants)
    once = sets[0]
    turn = iter(range(1 << 60))
    functions = {
        "call_us": lambda: kernel(*once),
        "four_sets_us": lambda: kernel(*sets[next(turn) & 3]),
        "peer_us": peer,
    }
    samples = host_time.measure(functions, torch.cuda.synchronize)
    return {name: statistics.median(values) for name, values in samples.items()}


# ---- in the parent ---------------------------------------------------------------------------------------------------


def survive(
    function: Any, directory: Path, problem: Problem, shapes: list[Shape], timeout: float, *more: Any
) -> list[Any]:
    """Run a child over shapes; where it hangs or dies, record that for the shape it was at and go on with the rest."""
    done: list[Any] = []
    left = list(shapes)
    while left:
        if sum(not r.get("ok", True) for r in done) >= FAILURES:
            done += [{"shape": s, "ok": False, "error": [f"not run: {FAILURES} shapes failed before"]} for s in left]
            break
        with tempfile.NamedTemporaryFile("r", suffix=".jsonl") as progress:
            failure = None
            try:
                watchdog.run(
                    function,
                    str(directory),
                    problem.name,
                    left,
                    *more,
                    progress.name,
                    timeout=timeout,
                    what=f"{directory.name} on {left[0]} and on",
                )
            except CakeError as e:
                failure = e.diagnostics[0]
            lines = [json.loads(line) for line in Path(progress.name).read_text().splitlines()]
        done += lines
        left = left[len(lines) :]
        reported = bool(lines) and not lines[-1].get("ok", True)
        if failure is not None and left and not (reported and failure.code == codes.CRASHED):
            done.append(
                {"shape": left[0], "ok": False, "error": [f"{failure.code}: {failure.message}", *failure.facts]}
            )
            left = left[1:]
    return done


def run_all(artifacts: Path, out: Path, names: list[str], pairs: int, timing: bool) -> int:
    """Check and time every artifact; the number of kernels that are wrong."""
    import torch

    results: dict[str, Any] = {"environment": environment(torch), "kernels": {}}
    wrong = 0
    for directory in built(artifacts):
        if names and directory.name not in names:
            continue
        manifest = manifest_of(directory)
        problem = PROBLEMS.get(manifest["name"])
        if problem is None:
            print(f"{directory.name}: no problem is called {manifest['name']}")
            continue
        begin = time.time()
        constants = manifest["constants"]
        checks = survive(check_shapes, directory, problem, list(problem.checked(constants)), CHECK_SECONDS)
        good = all(c["ok"] for c in checks)
        wrong += not good
        entry: dict[str, Any] = {"manifest": manifest, "checks": checks}
        print(f"\n{directory.name}: {sum(c['ok'] for c in checks)} of {len(checks)} shapes right")
        for c in checks:
            if not c["ok"]:
                print(f"  {c['shape']}: {c.get('error') or {k: v for k, v in c.items() if k != 'shape'}}")
        if good and not all(c["repeatable"] for c in checks):
            print("  results differ between runs of the same inputs")
        if good and timing and problem.timed(constants):
            entry["host"] = _host(directory, problem)
            entry["times"] = survive(
                time_shapes, directory, problem, list(problem.timed(constants)), TIME_SECONDS, pairs
            )
            _table(entry)
        entry["seconds"] = time.time() - begin
        results["kernels"][directory.name] = entry
        write_json(out / "gpu_smoke.json", results)
    write_json(out / "gpu_smoke.json", results)
    return wrong


def run_once(artifacts: Path, names: list[str], limit: int = 300_000) -> int:
    """Run every artifact on some small shapes in this process, for compute-sanitizer; the number of wrong shapes."""
    import torch

    wrong = 0
    for directory in built(artifacts):
        if names and directory.name not in names:
            continue
        kernel, constants = load(directory), constants_of(directory)
        problem = PROBLEMS[manifest_of(directory)["name"]]
        small = [s for s in problem.checked(constants) if problem.work(s, constants) < limit * 1000]
        shapes = small[:: max(1, len(small) // 6)][:6]
        for shape in shapes:
            record = _check_one(torch, kernel, problem, tuple(shape), constants)
            wrong += not record["ok"]
        print(f"{directory.name}: {len(shapes)} shapes")
    return wrong


def _host(directory: Path, problem: Problem) -> Any:
    try:
        return watchdog.run(host_times, str(directory), problem.name, timeout=CHECK_SECONDS)
    except CakeError as e:
        return {"error": str(e)}


def _table(entry: dict[str, Any]) -> None:
    print(f"  host: {entry['host']}")
    print(f"  {'shape':>22} {'ours':>9} {'peer':>9}  ratio [95%]           noise [95%]           SM MHz")
    for t in entry["times"]:
        shape = "x".join(map(str, t["shape"]))
        if "ratio" not in t:
            print(f"  {shape:>22} {t['error'][0]}")
            continue
        ratio, noise = t["ratio"], t["noise"]
        print(
            f"  {shape:>22} {t['rate']:8.2f} {t['peer_rate']:8.2f} {t['unit']}  "
            f"{ratio['median']:.3f} [{ratio['low']:.3f}, {ratio['high']:.3f}]  "
            f"{noise['median']:.3f} [{noise['low']:.3f}, {noise['high']:.3f}]  {t['clocks'].get('sm_mhz')}"
        )
        print(f"  {'error':>22} {error_text(t['errors'])}")


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["build", "run", "once"])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--out", type=Path, default=Path("."), help="where gpu_smoke.json goes")
    parser.add_argument("--only", action="append", default=[], help="a kernel by its directory's name (repeatable)")
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--no-timing", action="store_true")
    options = parser.parse_args()
    if options.action == "build":
        return min(build_all(options.directory, options.only), 1)
    if options.action == "once":
        return min(run_once(options.directory, options.only), 1)
    return min(run_all(options.directory, options.out, options.only, options.pairs, not options.no_timing), 1)


if __name__ == "__main__":
    sys.exit(main())
