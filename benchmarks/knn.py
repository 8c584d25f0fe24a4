"""Nearest neighbours beside flashlib's Triton kernel and torch, and which constants suit which shape.

    python benchmarks/knn.py build DIRECTORY [--d 128] [--k 8,32]      anywhere: builds the candidates, a directory each
    python benchmarks/knn.py run DIRECTORY --out OUT [--q 64] [--n 1048576] ...     on a GPU: writes OUT/knn.json

Every candidate whose queries and parts give the GPU enough CTAs is checked and timed from a cold L2; the best of a shape is
compared with the peers by the protocol (pairs that alternate, medians, intervals). A call is the whole sequence: norms of the
database, search, merge with exact distances, as flashlib's is with the distances that it returns. flashlib is compared if it can
be imported (`PYTHONPATH` with the unpacked wheel).
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cake.diagnostics import CakeError
from cake.evaluate.pairs import FLUSH_BYTES, compare, timed
from cake.evaluate.record import environment, write_json
from cake.runtime import load

SOURCE = Path(__file__).resolve().parent.parent / "examples" / "knn.cake"
DEPTHS, COUNTS = (64, 128), (1, 8, 16, 32)
QUERIES, ROWS = (64, 1024, 8192), (65536, 262144, 1048576)
CANDIDATES: tuple[dict[str, int], ...] = (
    {"WGS": 1, "SPLIT": 132},
    {"WGS": 4, "SPLIT": 33},
    {"WGS": 3, "SPLIT": 22},
    {"WGS": 4, "SPLIT": 4},
    {"WGS": 3, "SPLIT": 3},
    {"WGS": 2, "SPLIT": 2},
    {"WGS": 4, "SPLIT": 4, "BN": 64},
    {"WGS": 4, "SPLIT": 4, "GROUP": 2},
    {"WGS": 4, "SPLIT": 4, "GROUP": 8},
)
ROUNDS, PAIRS = 7, 12
SCORES = 1 << 28
"""Scores that the reference and torch make at once."""


def build(directory: Path, depths: list[int], counts: list[int]) -> None:
    """One artifact a candidate; registers and spills are printed."""
    from cake.codegen.sequences import build_sequence, write_sequence
    from cake.compiler import expand_steps, parse, select
    from cake.ir import surface as s

    file = parse(SOURCE.read_text(encoding="utf-8"), str(SOURCE))
    sequence = select(file, "knn")
    assert isinstance(sequence, s.Sequence)
    for d in depths:
        for k in counts:
            for chosen in CANDIDATES:
                name = f"d{d}-k{k}-" + "-".join(f"{n.lower()}{v}" for n, v in chosen.items())
                try:
                    made = build_sequence(expand_steps(file, sequence, {"D": d, "K": k, **chosen}))
                except CakeError as e:
                    print(name, e, flush=True)
                    continue
                write_sequence(made, directory / name)
                (directory / name / "point.json").write_text(json.dumps({"D": d, "K": k, **chosen}))
                r = made.artifacts[1].report
                print(f"{name}: {r.registers} registers, {r.spill_store_bytes} B spilled, {r.code_bytes} B", flush=True)


def fits(point: dict[str, int], queries: int, rows: int) -> bool:
    """Whether the candidate gives every SM a CTA, in few enough waves that its lists are worth their work."""
    ctas = -(-queries // (64 * point["WGS"])) * point["SPLIT"]
    return 64 <= ctas <= 1200 and rows >= 128 * point["SPLIT"]


# ---- reference and peers --------------------------------------------------------------------------------------------


def chunks(queries: int, rows: int) -> Iterator[slice]:
    """Ranges of queries whose scores fit."""
    step = max(1, SCORES // rows)
    for at in range(0, queries, step):
        yield slice(at, min(queries, at + step))


def nearest(torch: Any, q: Any, x: Any, k: int) -> Any:
    """The k least squared distances of each query, ascending, in float64."""
    out = torch.empty((q.shape[0], k), dtype=torch.float64, device=q.device)
    wide = x.double()
    norms = wide.square().sum(dim=1)
    for part in chunks(q.shape[0], x.shape[0] * 4):
        own = q[part].double()
        score = norms - 2.0 * (own @ wide.T)
        out[part] = torch.topk(score, k, dim=1, largest=False, sorted=True)[0] + own.square().sum(dim=1, keepdim=True)
    return out


def judge(torch: Any, q: Any, x: Any, distance: Any, row: Any, expected: Any) -> dict[str, Any]:
    """How far the result is from the reference: distances beside those of the reference at the same rank, each beside that of its
    own row, and rows that are out of range or twice there. Scores are f32 sums, so that rows may trade places whose distances
    differ by less than 2**-19 of |q| |x| and |x|^2."""
    valid = (row >= 0) & (row < x.shape[0])
    own = torch.empty_like(expected)
    for part in chunks(q.shape[0], row.shape[1] * x.shape[1] * 4):
        picked = x[row[part].long().clamp(0, x.shape[0] - 1)].double()
        own[part] = (q[part].double()[:, None, :] - picked).square().sum(dim=2)
    size = x.double().square().sum(dim=1).amax().sqrt()
    bound = 2.0**-19 * (size * size + 2.0 * size * q.double().square().sum(dim=1, keepdim=True).sqrt())
    ordered = torch.sort(row, dim=1)[0]
    return {
        "rank": float(((own - expected).abs() / bound).amax()),
        "distance": float(((distance.double() - own).abs() / (own.abs() * 2.0**-18 + 1e-30)).amax()),
        "invalid": int((~valid).sum()),
        "twice": int((ordered[:, 1:] == ordered[:, :-1]).sum()),
    }


def right(found: dict[str, Any]) -> bool:
    """Whether everything is within bounds."""
    return bool(found["rank"] <= 1 and found["distance"] <= 1 and not found["invalid"] and not found["twice"])


def torch_peer(torch: Any, q: Any, x: Any, k: int) -> Callable[[], Any]:
    """Matrix products and topk, in chunks whose scores fit."""
    distance = torch.empty((q.shape[0], k), dtype=torch.float32, device=q.device)
    row = torch.empty((q.shape[0], k), dtype=torch.int64, device=q.device)

    def call() -> None:
        norms = x.float().square().sum(dim=1)
        for part in chunks(q.shape[0], x.shape[0]):
            score = (q[part] @ x.T).float().mul_(-2.0).add_(norms)
            torch.topk(score, k, dim=1, largest=False, out=(distance[part], row[part]))
        distance.add_(q.float().square().sum(dim=1, keepdim=True))

    return call


def flashlib_peer(q: Any, x: Any, k: int) -> Callable[[], Any] | None:
    """flashlib's flash_knn with distances, as it chooses its configuration; None where it is not installed."""
    try:
        from flashlib.primitives.knn import flash_knn
    except ImportError:
        return None
    return lambda: flash_knn(q, x, k)


# ---- the run --------------------------------------------------------------------------------------------------------


def steps(
    torch: Any, kernel: Any, q: Any, x: Any, w: dict[str, Any], out: tuple[Any, Any], flush: Any
) -> dict[str, float]:
    """Microseconds of each kernel of the sequence, medians."""
    norms, part, merge = kernel.steps
    calls = (
        lambda: norms(x, w["half"]),
        lambda: part(q, x, w["half"], w["score"], w["id"]),
        lambda: merge(w["score"], w["id"], q, x, *out),
    )
    samples = [timed(torch, calls, flush) for _ in range(ROUNDS)]
    return dict(zip(("norms", "part", "merge"), map(statistics.median, zip(*samples, strict=True)), strict=True))


def cell(torch: Any, built: dict[str, Any], d: int, k: int, queries: int, rows: int, flush: Any) -> dict[str, Any]:
    """One shape: every candidate checked and timed, the best beside the peers."""
    generator = torch.Generator(device="cuda")
    generator.manual_seed(d + k + queries + rows)
    q, x = (
        torch.randn((n, d), generator=generator, device="cuda", dtype=torch.float32).to(torch.bfloat16)
        for n in (queries, rows)
    )
    expected = nearest(torch, q, x, k)
    result: dict[str, Any] = {"D": d, "K": k, "Q": queries, "N": rows, "candidates": {}}
    out = (
        torch.empty((queries, k), dtype=torch.float32, device="cuda"),
        torch.empty((queries, k), dtype=torch.int32, device="cuda"),
    )
    best, call = math.inf, None
    for name, (kernel, point) in built.items():
        if point["D"] != d or point["K"] != k or not fits(point, queries, rows):
            continue
        out[0].fill_(float("nan")), out[1].fill_(-7)
        w = kernel.workspace(q, x, *out)
        kernel(q, x, *out, workspace=w)
        torch.cuda.synchronize()
        found = judge(torch, q, x, *out, expected)

        def mine(kernel: Any = kernel, w: Any = w) -> None:
            kernel(q, x, *out, workspace=w)

        time = statistics.median(timed(torch, (mine,), flush)[0] for _ in range(ROUNDS))
        parts = steps(torch, kernel, q, x, w, out, flush)
        result["candidates"][name] = {"us": time, "steps": parts, "errors": found, "right": right(found)}
        told = " ".join(f"{n} {t:.0f}" for n, t in parts.items())
        print(f"    {name}: {time:.0f} us ({told}) {'' if right(found) else f'WRONG {found}'}", flush=True)
        if right(found) and time < best:
            best, call, result["chosen"] = time, mine, name
    if call is None:
        return result
    for name, peer in (("flashlib", flashlib_peer(q, x, k)), ("torch", torch_peer(torch, q, x, k))):
        if peer is None:
            continue
        if name == "flashlib":
            values, ids = peer()
            result["flashlib_errors"] = judge(torch, q, x, values, ids, expected)
        c = compare(torch, call, peer, pairs=PAIRS if name == "flashlib" else 4)
        result[name] = asdict(c)
        print(
            f"D={d} K={k} Q={queries} N={rows} {result['chosen']}: {c.ours_us.median:.0f} us, {name} {c.peer_us.median:.0f} us, "
            f"{c.ratio.median:.2f} [{c.ratio.low:.2f}, {c.ratio.high:.2f}]",
            flush=True,
        )
    work = 2.0 * queries * rows * d
    result["TFLOP/s"] = work / best / 1e6
    return result


def run(directory: Path, out: Path, select: dict[str, list[int]]) -> None:
    """Every selected shape; the file is rewritten after each."""
    import torch

    built = {}
    for path in sorted(p.parent for p in directory.glob("*/point.json")):
        point = {"BN": 128, "GROUP": 4, **json.loads((path / "point.json").read_text())}
        if point["D"] in select["d"] and point["K"] in select["k"]:
            built[path.name] = (load(path), point)
    flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    results: dict[str, Any] = {"environment": environment(torch), "cells": []}
    for d in select["d"]:
        for k in select["k"]:
            for queries in select["q"]:
                for rows in select["n"]:
                    try:
                        results["cells"].append(cell(torch, built, d, k, queries, rows, flush))
                    except (CakeError, RuntimeError) as e:
                        print(f"D={d} K={k} Q={queries} N={rows}: {e}", flush=True)
                        results["cells"].append({"D": d, "K": k, "Q": queries, "N": rows, "error": str(e)})
                    write_json(out / "knn.json", results)
    for name in ("flashlib", "torch"):
        ratios = [c[name]["ratio"]["median"] for c in results["cells"] if name in c]
        if ratios:
            print(f"{name}: geometric mean {statistics.geometric_mean(ratios):.2f}, least {min(ratios):.2f}")


def numbers(text: str) -> list[int]:
    """Numbers separated by commas."""
    return [int(n) for n in text.split(",")]


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("build", "run"))
    parser.add_argument("directory", type=Path)
    parser.add_argument("--out", type=Path, default=Path("out"))
    for name, values in (("d", DEPTHS), ("k", COUNTS), ("q", QUERIES), ("n", ROWS)):
        parser.add_argument(f"--{name}", type=numbers, default=list(values))
    given = parser.parse_args()
    if given.what == "build":
        build(given.directory, given.d, given.k)
    else:
        run(given.directory, given.out, {n: getattr(given, n) for n in "dkqn"})


if __name__ == "__main__":
    main()
