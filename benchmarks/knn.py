"""Nearest neighbours beside flashlib's Triton kernel and torch, and which constants suit which shape.

    python benchmarks/knn.py build DIRECTORY [--cells 0,3-5]             anywhere: builds the candidates, a directory each
    python benchmarks/knn.py run DIRECTORY --out OUT [--cells 0,3-5]     on a GPU: writes OUT/knn.json

Every candidate for a cell is checked and timed from a cold L2; the best of a cell is compared with the peers by the protocol
(pairs that alternate, medians, intervals). A call is the whole sequence: norms of the database, sample, search, merge with exact
distances, as flashlib's is with the distances that it returns. flashlib is compared if it can be imported (`PYTHONPATH` with the
unpacked wheel).
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
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cake.diagnostics import CakeError
from cake.evaluate.pairs import FLUSH_BYTES, compare, timed
from cake.evaluate.record import environment, write_json
from cake.runtime import load

SOURCE = Path(__file__).resolve().parent.parent / "examples" / "knn.cake"


class Cell(NamedTuple):
    """A shape: queries, rows of the database, depth, neighbours."""

    queries: int
    rows: int
    d: int
    k: int

    def __str__(self) -> str:
        return f"Q={self.queries} N={self.rows} D={self.d} K={self.k}"

    @property
    def goal(self) -> float:
        """How many times as fast as flashlib it should be."""
        return 3.0 if self.k >= 8 and self.rows >= 262144 else 2.0


CELLS = tuple(
    Cell(*c)
    for c in (
        (64, 65536, 128, 8),
        (64, 1048576, 128, 8),
        (64, 65536, 128, 32),
        (64, 1048576, 128, 32),
        (1024, 65536, 128, 8),
        (1024, 1048576, 128, 8),
        (1024, 65536, 128, 32),
        (1024, 1048576, 128, 32),
        (8192, 65536, 128, 8),
        (8192, 1048576, 128, 8),
        (8192, 65536, 128, 32),
        (8192, 1048576, 128, 32),
        (64, 1000003, 64, 16),
        (100, 262144, 128, 10),
        (64, 1048576, 128, 1),
        (1000, 300007, 128, 16),
        (1024, 262144, 64, 8),
        (500, 262144, 256, 5),
        (8192, 262144, 64, 16),
        (4096, 100003, 128, 1),
    )
)

FEW = {"WGS": 1, "SPLIT": 132, "PARTS": 128, "CLASSES": 1, "TEAM": 8}
PAIR = {**FEW, "WGS": 2}
SOME = {"WGS": 4, "SPLIT": 33, "PARTS": 32, "TEAM": 4}
MANY = {"WGS": 4, "SPLIT": 4, "PARTS": 8, "TEAM": 1}
HALF = {"WGS": 4, "SPLIT": 33, "PARTS": 8, "TEAM": 1}
CANDIDATES: dict[str, tuple[str, int, dict[str, int]]] = {
    "few-1": ("knn_few", 128, {**FEW, "SAMPLE": 1}),
    "few-4": ("knn_few", 128, {**FEW, "SAMPLE": 4}),
    "few-4-deep": ("knn_few", 128, {**FEW, "SAMPLE": 4, "STAGES": 6}),
    "few-twice": ("knn_few", 128, {**FEW, "SAMPLE": 4, "CTAS": 2, "SPLIT": 264, "STAGES": 2}),
    "pair-1": ("knn_few", 128, {**PAIR, "SAMPLE": 1}),
    "pair-4": ("knn_few", 128, {**PAIR, "SAMPLE": 4}),
    "pair-4-deep": ("knn_few", 128, {**PAIR, "SAMPLE": 4, "STAGES": 6}),
    "some-4": ("knn", 1024, {**SOME, "SAMPLE": 4}),
    "some-16": ("knn", 1024, {**SOME, "SAMPLE": 16}),
    "some-narrow": ("knn", 1024, {**SOME, "WGS": 3, "SPLIT": 22, "PARTS": 16, "SAMPLE": 16}),
    "some-fused": ("knn_few", 1024, {**SOME, "SAMPLE": 4}),
    "half-1": ("knn", 4096, {**HALF, "SAMPLE": 1}),
    "half-4": ("knn", 4096, {**HALF, "SAMPLE": 4}),
    "many-4": ("knn", 8192, {**MANY, "SAMPLE": 4}),
    "many-16": ("knn", 8192, {**MANY, "SAMPLE": 16}),
    "many-narrow": ("knn", 8192, {**MANY, "WGS": 3, "SPLIT": 3, "SAMPLE": 16}),
}
"""Sequence, the most queries for which it is tried (and more than an eighth of it), constants."""
ROUNDS, PAIRS = 7, 12
SCORES = 1 << 28
"""Scores that the reference and torch make at once."""
CHECKED = 1024
"""Queries whose neighbours are looked for in float64 besides; of the others only distances and rows are checked."""


def fits(most: int, cell: Cell) -> bool:
    """Whether a candidate is tried on a cell."""
    return most // 8 < cell.queries <= most


def build(directory: Path, cells: list[Cell]) -> None:
    """One artifact for each candidate, depth and number of neighbours; registers and spills are printed."""
    from cake.codegen.sequences import build_sequence, write_sequence
    from cake.compiler import expand_steps, parse, select
    from cake.ir import surface as s

    file = parse(SOURCE.read_text(encoding="utf-8"), str(SOURCE))
    wanted = {(c.d, c.k, name): None for c in cells for name, (_, most, _) in CANDIDATES.items() if fits(most, c)}
    for d, k, name in wanted:
        label, (which, _, chosen) = f"d{d}-k{k}-{name}", CANDIDATES[name]
        sequence = select(file, which)
        assert isinstance(sequence, s.Sequence)
        if d == 256:
            chosen = {**chosen, "WGS": min(chosen["WGS"], 2), "STAGES": 2}
        try:
            made = build_sequence(expand_steps(file, sequence, {"D": d, "K": k, **chosen}))
        except CakeError as e:
            print(label, e, flush=True)
            continue
        write_sequence(made, directory / label)
        (directory / label / "point.json").write_text(json.dumps({"D": d, "K": k, "name": name, **chosen}))
        told = ", ".join(
            f"{a.kernel.name} {r.registers}" + (f" ({r.spill_store_bytes} B spilled)" if r.spill_store_bytes else "")
            for a in made.artifacts
            for r in (a.report,)
        )
        print(f"{label}: registers {told}", flush=True)


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


def judge(torch: Any, q: Any, x: Any, distance: Any, row: Any, some: Any, expected: Any) -> dict[str, Any]:
    """How far the result is from the reference: distances of the queries ``some`` beside those of the reference at the same rank,
    each beside that of its own row, and rows that are out of range or twice there. Scores are f32 sums, so that rows may trade
    places whose distances differ by less than 2**-19 of |q| |x| and |x|^2."""
    valid = (row >= 0) & (row < x.shape[0])
    own = torch.empty(row.shape, dtype=torch.float64, device=q.device)
    for part in chunks(q.shape[0], row.shape[1] * x.shape[1] * 4):
        picked = x[row[part].long().clamp(0, x.shape[0] - 1)].double()
        own[part] = (q[part].double()[:, None, :] - picked).square().sum(dim=2)
    size = x.double().square().sum(dim=1).amax().sqrt()
    bound = 2.0**-19 * (size * size + 2.0 * size * q.double().square().sum(dim=1, keepdim=True).sqrt())
    ordered = torch.sort(row, dim=1)[0]
    return {
        "rank": float(((own[some] - expected).abs() / bound[some]).amax()),
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
    *norms, probe, scan, merge = kernel.steps
    half = [w["half"]] if norms else []
    calls = {
        "norms": lambda: norms[0](x, *half),
        "sample": lambda: probe(q, x, *half, w["peak"]),
        "scan": lambda: scan(q, x, *half, w["peak"], w["score"], w["id"]),
        "merge": lambda: merge(w["score"], w["id"], q, x, *out),
    }
    if not norms:
        del calls["norms"]
    samples = [timed(torch, tuple(calls.values()), flush) for _ in range(ROUNDS)]
    return dict(zip(calls, map(statistics.median, zip(*samples, strict=True)), strict=True))


def measure(torch: Any, built: dict[str, Any], cell: Cell, flush: Any) -> dict[str, Any]:
    """One cell: every candidate checked and timed, the best beside the peers."""
    queries, rows, d, k = cell
    generator = torch.Generator(device="cuda")
    generator.manual_seed(d + k + queries + rows)
    q, x = (
        torch.randn((n, d), generator=generator, device="cuda", dtype=torch.float32).to(torch.bfloat16)
        for n in (queries, rows)
    )
    some = torch.randperm(queries, generator=generator, device="cuda")[:CHECKED]
    expected = nearest(torch, q[some], x, k)
    result: dict[str, Any] = {"D": d, "K": k, "Q": queries, "N": rows, "candidates": {}}
    out = (
        torch.empty((queries, k), dtype=torch.float32, device="cuda"),
        torch.empty((queries, k), dtype=torch.int32, device="cuda"),
    )
    best, call = math.inf, None
    for name, (kernel, point) in built.items():
        if (point["D"], point["K"]) != (d, k) or not fits(CANDIDATES[point["name"]][1], cell):
            continue
        out[0].fill_(float("nan")), out[1].fill_(-7)
        w = kernel.workspace(q, x, *out)
        kernel(q, x, *out, workspace=w)
        torch.cuda.synchronize()
        found = judge(torch, q, x, *out, some, expected)

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
            result["flashlib_errors"] = judge(torch, q, x, values, ids, some, expected)
        c = compare(torch, call, peer, pairs=PAIRS if name == "flashlib" else 4)
        result[name] = asdict(c)
        print(
            f"{cell} {result['chosen']}: {c.ours_us.median:.0f} us, {name} {c.peer_us.median:.0f} us, "
            f"{c.ratio.median:.2f} [{c.ratio.low:.2f}, {c.ratio.high:.2f}]",
            flush=True,
        )
    work = 2.0 * queries * rows * d
    result["TFLOP/s"] = work / best / 1e6
    return result


def run(directory: Path, out: Path, cells: list[Cell]) -> None:
    """Every selected cell; the file is rewritten after each."""
    import torch

    built = {}
    for path in sorted(p.parent for p in directory.glob("*/point.json")):
        point = json.loads((path / "point.json").read_text())
        if any((point["D"], point["K"]) == (c.d, c.k) for c in cells):
            built[path.name] = (load(path), point)
    flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    results: dict[str, Any] = {"environment": environment(torch), "cells": []}
    for cell in cells:
        try:
            results["cells"].append(measure(torch, built, cell, flush))
        except (CakeError, RuntimeError) as e:
            print(f"{cell}: {e}", flush=True)
            results["cells"].append({**cell._asdict(), "error": str(e)})
        write_json(out / "knn.json", results)
    for name in ("flashlib", "torch"):
        ratios = [c[name]["ratio"]["median"] for c in results["cells"] if name in c]
        if ratios:
            print(f"{name}: geometric mean {statistics.geometric_mean(ratios):.2f}, least {min(ratios):.2f}")


def numbers(text: str) -> list[Cell]:
    """Cells by number: ``0,3-5``."""
    parts = [p.split("-") for p in text.split(",")]
    return [CELLS[n] for p in parts for n in range(int(p[0]), int(p[-1]) + 1)]


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("build", "run"))
    parser.add_argument("directory", type=Path)
    parser.add_argument("--out", type=Path, default=Path("out"))
    parser.add_argument("--cells", type=numbers, default=list(CELLS))
    given = parser.parse_args()
    if given.what == "build":
        build(given.directory, given.cells)
    else:
        run(given.directory, given.out, given.cells)


if __name__ == "__main__":
    main()
