"""Attention forward beside cuDNN and FlashAttention, and which constants suit which shape.

    python benchmarks/attention.py build DIRECTORY [--d 64,128,256]     anywhere: builds the candidates, a directory each
    python benchmarks/attention.py run DIRECTORY --out OUT [--only 128-causal] ...     on a GPU: writes OUT/attention.json

Candidates are points of examples/attention.cake, with tiles drawn from a counter, as it has them, or in order. For each cell every
candidate of its width is checked against float64 and timed from a cold L2; the best few are paired with cuDNN, since a hot card ranks
them by energy too, and the one with the best ratio is measured by the protocol (pairs that alternate, outputs exchanged half-way, noise
floor) beside cuDNN and FlashAttention, both as torch has them. Packed sequences go to what torch's nested tensors and varlen_attn call.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.judging import within_bounds
from benchmarks.problems import PROBLEMS
from benchmarks.problems.problem import poisoned, random_tensor
from cake.diagnostics import CakeError
from cake.evaluate import errors
from cake.evaluate.intervals import geometric_mean
from cake.evaluate.pairs import FLUSH_BYTES, compare, paired, timed
from cake.evaluate.record import environment, write_json
from cake.runtime import load

SOURCE = Path(__file__).resolve().parent.parent / "examples" / "attention.cake"
DRAWN, IN_ORDER = "tiles dynamic(load):", "tiles persistent:"
WIDTHS = (64, 128, 256)
CANDIDATES: dict[int, tuple[dict[str, Any], ...]] = {
    64: (
        {"DRAWN": True, "WGS": 3, "BN": 128, "Q_STAGES": 2, "KV_STAGES": 2, "HG": 1},
        {"DRAWN": True, "WGS": 3, "BN": 128, "Q_STAGES": 2, "KV_STAGES": 3, "HG": 16},
        {"DRAWN": True, "WGS": 3, "BN": 112, "Q_STAGES": 2, "KV_STAGES": 3, "HG": 1},
        {"DRAWN": True, "WGS": 2, "BN": 128, "Q_STAGES": 2, "KV_STAGES": 3, "HG": 1},
        {"DRAWN": True, "WGS": 2, "BN": 176, "Q_STAGES": 2, "KV_STAGES": 2, "HG": 1},
        {"DRAWN": False, "WGS": 3, "BN": 128, "Q_STAGES": 2, "KV_STAGES": 2, "HG": 1},
        {"DRAWN": False, "WGS": 2, "BN": 128, "Q_STAGES": 1, "KV_STAGES": 2, "HG": 1},
    ),
    128: (
        {"DRAWN": True, "BN": 128, "Q_STAGES": 2, "HG": 1},
        {"DRAWN": True, "BN": 128, "Q_STAGES": 2, "HG": 16},
        {"DRAWN": True, "BN": 160, "Q_STAGES": 2, "HG": 1},
        {"DRAWN": True, "BN": 176, "Q_STAGES": 1, "HG": 1},
        {"DRAWN": False, "BN": 128, "Q_STAGES": 2, "HG": 1},
        {"DRAWN": False, "BN": 160, "Q_STAGES": 2, "HG": 1},
        {"DRAWN": False, "BN": 128, "Q_STAGES": 1, "HG": 1},
        {"DRAWN": False, "BN": 176, "Q_STAGES": 1, "HG": 16},
    ),
    256: (
        {"DRAWN": True, "BN": 80, "Q_STAGES": 1, "HG": 1},
        {"DRAWN": True, "BN": 80, "Q_STAGES": 1, "HG": 16},
        {"DRAWN": True, "BN": 64, "Q_STAGES": 1, "HG": 1},
        {"DRAWN": False, "BN": 80, "Q_STAGES": 1, "HG": 1},
        {"DRAWN": False, "BN": 64, "Q_STAGES": 1, "HG": 1},
    ),
}
ROUNDS, FINALISTS, FINAL_PAIRS, PAIRS, FLASH_PAIRS = 5, 3, 8, 30, 10


@dataclass(frozen=True)
class Cell:
    """One shape: ``lengths`` are those of its sequences, of queries and keys alike."""

    name: str
    d: int
    causal: bool
    h: int
    hk: int
    lengths: tuple[int, ...]

    @property
    def dense(self) -> bool:
        """Whether all sequences are equally long."""
        return len(set(self.lengths)) == 1

    @property
    def work(self) -> float:
        """Floating point operations: two products of each query with each key that it sees."""
        pairs = sum(n * (n + 1) / 2 if self.causal else n * n for n in self.lengths)
        return 4.0 * self.h * self.d * pairs


def cell(d: int, causal: bool, b: int, h: int, hk: int, t: int) -> Cell:
    """A dense batch of ``b`` sequences of ``t`` tokens, with ``h`` heads of queries and ``hk`` of keys."""
    heads = f"{h}" if h == hk else f"{h}of{hk}"
    return Cell(f"{d}{'-causal' if causal else ''}-{b}x{heads}x{t}", d, causal, h, hk, (t,) * b)


MIXED = (7211, 513, 3968, 1024, 6111, 2047, 4500, 129)
EVEN = (2048, 1900, 1777, 1650, 1500, 1400, 1300, 1200, 1100, 1000, 900, 801, 700, 600, 1, 350)
CELLS = (
    cell(128, False, 4, 16, 16, 4096),
    cell(128, False, 2, 16, 16, 8192),
    cell(128, True, 4, 16, 16, 4096),
    cell(128, True, 2, 16, 16, 8192),
    cell(128, True, 1, 16, 16, 16384),
    cell(128, True, 8, 16, 16, 2048),
    cell(128, True, 4, 32, 8, 4096),
    Cell("128-causal-mixed", 128, True, 16, 16, MIXED),
    Cell("128-even", 128, False, 16, 4, EVEN),
    cell(64, False, 4, 32, 32, 4096),
    cell(64, True, 4, 32, 32, 4096),
    cell(64, True, 1, 32, 32, 16384),
    Cell("64-causal-mixed", 64, True, 32, 8, MIXED),
    cell(256, False, 4, 8, 8, 4096),
    cell(256, True, 4, 8, 8, 4096),
)


def label(point: dict[str, Any], causal: bool) -> str:
    """Directory of a candidate."""
    words = [f"d{point['D']}", "causal" if causal else "full", "drawn" if point["DRAWN"] else "ordered"]
    return "-".join(words + [f"{n.lower()}{v}" for n, v in point.items() if n not in ("D", "DRAWN")])


def build(directory: Path, widths: list[int]) -> None:
    """One artifact a candidate, with and without a causal mask; registers and spills are printed."""
    from cake.codegen.build import build as compile_kernel
    from cake.codegen.build import write
    from cake.compiler import expand_text

    text = SOURCE.read_text(encoding="utf-8")
    assert DRAWN in text
    for d in widths:
        for chosen in CANDIDATES[d]:
            for causal in (False, True):
                point = {"D": d, **chosen}
                constants = {n: v for n, v in point.items() if n != "DRAWN"} | {"CAUSAL": causal, "LSE": False}
                source = text if point["DRAWN"] else text.replace(DRAWN, IN_ORDER)
                name = label(point, causal)
                try:
                    artifact = compile_kernel(expand_text(source, str(SOURCE), constants=constants))
                except CakeError as e:
                    print(name, e, flush=True)
                    continue
                write(artifact, directory / name)
                (directory / name / "point.json").write_text(json.dumps({**point, "CAUSAL": causal, "LSE": False}))
                r = artifact.report
                print(f"{name}: {r.registers} registers, {r.spill_store_bytes} B spilled, {r.code_bytes} B", flush=True)


# ---- arguments and peers --------------------------------------------------------------------------------------------


def arguments(torch: Any, of: Cell) -> list[Any]:
    """What the kernel takes, its output poisoned."""
    generator = torch.Generator(device="cuda")
    device = generator.device
    generator.manual_seed(of.d + sum(of.lengths) + of.h)
    tokens = sum(of.lengths)
    q, k, v = (random_tensor(torch, (tokens, heads, of.d), generator, torch.bfloat16) for heads in (of.h, of.hk, of.hk))
    cu = torch.tensor([0, *of.lengths]).cumsum(0).int().to(device)
    y = poisoned(torch, (tokens, of.h, of.d), device, torch.bfloat16)
    return [q, k, v, cu, cu.clone(), max(of.lengths), math.log2(math.e) / of.d**0.5, y]


def dense_peer(torch: Any, of: Cell, given: list[Any], backend: str) -> Callable[[], Any]:
    """torch's SDPA by one backend, on the same values as a batch [B, H, T, D]; gives Y as the kernel has it."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    b = len(of.lengths)
    q, k, v = (x.view(b, -1, *x.shape[1:]).transpose(1, 2).contiguous() for x in given[:3])
    chosen = getattr(SDPBackend, backend)

    def call() -> Any:
        with sdpa_kernel(chosen):
            return torch.nn.functional.scaled_dot_product_attention(
                q, k, v, is_causal=of.causal, enable_gqa=of.h != of.hk
            )

    return call


def packed_peer(torch: Any, of: Cell, given: list[Any], backend: str) -> Callable[[], Any]:
    """What torch calls for packed sequences: the operators under nested tensors (cuDNN) and varlen_attn (FlashAttention)."""
    q, k, v, cu_q, cu_k, longest = given[:6]
    if backend == "CUDNN_ATTENTION":
        return lambda: torch.ops.aten._cudnn_attention_forward(
            q, k, v, None, cu_q, cu_k, longest, longest, False, 0.0, of.causal, False
        )[0]
    return lambda: torch.ops.aten._flash_attention_forward(
        q, k, v, cu_q, cu_k, longest, longest, 0.0, of.causal, False
    )[0]


def peer(torch: Any, of: Cell, given: list[Any], backend: str) -> tuple[Callable[[], Any], Any]:
    """The peer's call and its Y, [T, H, D]. Raises what torch raises where the backend does not take the shape."""
    with torch.no_grad():
        call = (dense_peer if of.dense else packed_peer)(torch, of, given, backend)
        y = call()
    torch.cuda.synchronize()
    return call, y.transpose(1, 2).reshape(given[7].shape) if of.dense else y.reshape(given[7].shape)


PEERS = {"cuDNN": "CUDNN_ATTENTION", "FlashAttention": "FLASH_ATTENTION"}


# ---- the run --------------------------------------------------------------------------------------------------------


class Ours:
    """One candidate on a cell's arguments, with two outputs that it can change between."""

    def __init__(self, torch: Any, kernel: Any, point: dict[str, Any], given: list[Any]) -> None:
        counter = [torch.zeros(1, dtype=torch.int32, device=given[0].device)] if point["DRAWN"] else []
        self._kernel = kernel
        self._sets = [[*given, *counter], [*given[:7], given[7].clone(), *counter]]
        self.current = 0

    def __call__(self) -> None:
        """Write the current output."""
        self._kernel(*self._sets[self.current])

    def other(self) -> None:
        """Write the other output."""
        self._kernel(*self._sets[1 - self.current])

    def swap(self) -> None:
        """Exchange the two."""
        self.current = 1 - self.current


def measure(torch: Any, built: dict[str, tuple[Any, dict[str, Any]]], of: Cell, flush: Any) -> dict[str, Any]:
    """One cell: every candidate checked and timed, the best beside the peers."""
    given = arguments(torch, of)
    constants = {"D": of.d, "CAUSAL": of.causal, "LSE": False}
    references = PROBLEMS["attention"].reference(torch, given, constants)
    result: dict[str, Any] = {**asdict(of), "candidates": {}, "peers": {}}
    peers: dict[str, Callable[[], Any]] = {}
    theirs: dict[str, errors.Error] = {}
    for name, backend in PEERS.items():
        try:
            peers[name], y = peer(torch, of, given, backend)
            theirs[name] = errors.measure(torch, y, references[0][0])
        except RuntimeError as e:
            result["peers"][name] = {"error": str(e).splitlines()[0]}
            print(f"    {name}: {str(e).splitlines()[0]}", flush=True)
    right: list[tuple[float, str, Ours]] = []
    for name, (kernel, point) in built.items():
        if (point["D"], point["CAUSAL"]) != (of.d, of.causal):
            continue
        ours = Ours(torch, kernel, point, given)
        poisoned_again(given)
        ours()
        torch.cuda.synchronize()
        found = within_bounds(torch, PROBLEMS["attention"], given, constants, references)
        ok = found["worst"] <= 1 and not found["not_finite"]
        us = statistics.median(timed(torch, (ours,), flush)[0] for _ in range(ROUNDS))
        result["candidates"][name] = {"us": us, "right": ok, **found}
        print(f"    {name}: {us:.0f} us{'' if ok else f' WRONG {found}'}", flush=True)
        if ok:
            right.append((us, name, ours))
    if not right or not peers:
        return result
    first = next(iter(peers.values()))

    def ratio(ours: Ours) -> float:
        a, b = paired(torch, ours, first, pairs=FINAL_PAIRS, flush=flush)
        return statistics.median(y / x for x, y in zip(a, b, strict=True))

    right.sort(key=lambda r: r[0])
    scores = {name: ratio(ours) for _, name, ours in right[:FINALISTS]}
    result["finalists"] = scores
    chosen = max(scores, key=scores.__getitem__)
    ours = next(o for _, name, o in right if name == chosen)
    result["chosen"] = chosen
    for name, call in peers.items():
        pairs = PAIRS if name == "cuDNN" or "cuDNN" not in peers else FLASH_PAIRS
        c = compare(torch, ours, call, pairs=pairs, swap=ours.swap, twin=ours.other)
        result["peers"][name] = {
            **asdict(c),
            "significant": c.significant,
            "tflops": of.work / c.ours_us.median / 1e6,
            "peer_tflops": of.work / c.peer_us.median / 1e6,
        }
    mine = errors.measure(torch, given[7], references[0][0])
    result["errors"] = {name: errors.beside(mine, e) for name, e in theirs.items()}
    return result


def poisoned_again(given: list[Any]) -> None:
    """The output as nobody has written it."""
    given[7].fill_(float("nan"))


def line(r: dict[str, Any]) -> str:
    """A cell's result on one line."""
    parts = [f"{r['name']}"]
    for name, c in r["peers"].items():
        if "ratio" in c:
            ratio, noise, error = c["ratio"], c["noise"], r["errors"][name]["ratio"]
            parts.append(
                f"{c['tflops']:.0f} TFLOP/s, {name} {c['peer_tflops']:.0f}, {ratio['median']:.3f} "
                f"[{ratio['low']:.3f}, {ratio['high']:.3f}] noise [{noise['low']:.3f}, {noise['high']:.3f}] "
                f"error x {error['normwise']:.2f}"
            )
    return "; ".join([*parts, str(r.get("chosen"))])


def summary(cells: list[dict[str, Any]]) -> None:
    """Geometric means over cells, and the least ratio, by peer: of all widths, and of D=128. cuDNN is no fair peer for packed
    sequences (10 TFLOP/s under nested tensors), so those cells count beside FlashAttention only."""
    for name in PEERS:
        own = [c for c in cells if "ratio" in c.get("peers", {}).get(name, {})]
        if name == "cuDNN":
            own = [c for c in own if len(set(c["lengths"])) == 1]
        for title, part in ((name, own), (f"{name}, D=128", [c for c in own if c["d"] == 128])):
            if not part:
                continue
            mean = geometric_mean([(s["ours_us"], s["peer_us"]) for s in (c["peers"][name]["samples"] for c in part)])
            least = min(part, key=lambda c: c["peers"][name]["ratio"]["median"])
            print(
                f"{title}: geometric mean {mean.median:.4f} [{mean.low:.4f}, {mean.high:.4f}] of {len(part)} cells, "
                f"least {least['peers'][name]['ratio']['median']:.3f} at {least['name']}"
            )


def run(directory: Path, out: Path, only: list[str]) -> None:
    """Every cell whose name contains one of ``only``; the file is rewritten after each."""
    import torch

    built = {}
    for path in sorted(p.parent for p in directory.glob("*/point.json")):
        built[path.name] = (load(path), json.loads((path / "point.json").read_text()))
    flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    results: dict[str, Any] = {"environment": environment(torch), "cells": []}
    for of in CELLS:
        if only and not any(text in of.name for text in only):
            continue
        try:
            found = measure(torch, built, of, flush)
        except (CakeError, RuntimeError) as e:
            found = {**asdict(of), "error": str(e), "peers": {}}
        results["cells"].append(found)
        write_json(out / "attention.json", results)
        print(found.get("error") or line(found), flush=True)
        torch.cuda.empty_cache()
    summary(results["cells"])


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("build", "run"))
    parser.add_argument("directory", type=Path)
    parser.add_argument("--out", type=Path, default=Path("out"))
    parser.add_argument("--d", type=lambda t: [int(n) for n in t.split(",")], default=list(WIDTHS))
    parser.add_argument("--only", action="append", default=[], help="cells whose name has this in it (repeatable)")
    options = parser.parse_args()
    if options.what == "build":
        build(options.directory, options.d)
    else:
        run(options.directory, options.out, options.only)


if __name__ == "__main__":
    main()
