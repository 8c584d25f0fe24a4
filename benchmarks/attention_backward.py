"""Gradients of attention beside cuDNN and FlashAttention, and which constants suit which shape.

    python benchmarks/attention_backward.py build DIRECTORY [--d 64,128]     anywhere: builds the candidates, a directory each
    python benchmarks/attention_backward.py run DIRECTORY --out OUT [--only 128-causal] ...     on a GPU

``run`` writes OUT/attention_backward.json after each cell. Candidates are points of examples/attention_backward.cake. For each cell
every candidate of its width is checked against float64 and timed from a cold L2, whole and launch by launch; the best few are paired
with cuDNN, and the one with the best ratio is measured by the protocol (pairs that alternate, outputs exchanged half-way, noise
floor). The peers are the backward passes of torch's SDPA, without their forward; packed sequences go to FlashAttention's operator,
which is what torch has for them.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.attention import FINAL_PAIRS, FINALISTS, FLASH_PAIRS, MIXED, PAIRS, PEERS, ROUNDS, Cell, cell, summary
from benchmarks.problems.problem import poisoned, random_tensor
from cake.diagnostics import CakeError
from cake.evaluate import errors
from cake.evaluate.pairs import FLUSH_BYTES, compare, paired, timed
from cake.evaluate.record import environment, write_json
from cake.runtime import load

SOURCE = Path(__file__).resolve().parent.parent / "examples" / "attention_backward.cake"
WIDTHS = (64, 128)
CANDIDATES: dict[int, tuple[dict[str, Any], ...]] = {
    64: (
        {"HG": 1},
        {"HG": 16},
        {"HG": 16, "LATE": False},
    ),
    128: (
        {"HG": 1},
        {"HG": 16},
        {"HG": 16, "LATE": True},
    ),
}
NORMWISE, WORST = 2.0**-7, 2.0**-5
"""What is right: P and dS are rounded to bf16 before their products, O before delta, results once more; of the whole output's norm, and
of its largest element."""

CELLS = (
    cell(128, False, 4, 16, 16, 4096),
    cell(128, False, 2, 16, 16, 8192),
    cell(128, True, 4, 16, 16, 4096),
    cell(128, True, 2, 16, 16, 8192),
    cell(128, True, 1, 16, 16, 16384),
    cell(128, True, 8, 16, 16, 2048),
    cell(128, True, 4, 32, 8, 4096),
    Cell("128-causal-mixed", 128, True, 16, 16, MIXED),
    cell(64, False, 4, 32, 32, 4096),
    cell(64, True, 4, 32, 32, 4096),
    cell(64, True, 1, 32, 32, 16384),
)
OUTPUTS = ("dq", "dk", "dv")


def label(point: dict[str, Any], causal: bool) -> str:
    """Directory of a candidate."""
    words = [f"d{point['D']}", "causal" if causal else "full"]
    return "-".join(words + [f"{n.lower()}{v}" for n, v in point.items() if n != "D"])


def build(directory: Path, widths: list[int]) -> None:
    """One artifact a candidate, with and without a causal mask; registers and spills are printed."""
    from cake.codegen.sequences import build_sequence, write_sequence
    from cake.compiler import expand_steps, parse

    file = parse(SOURCE.read_text(encoding="utf-8"), str(SOURCE))
    for d in widths:
        for chosen in CANDIDATES[d]:
            for causal in (False, True):
                point = {"D": d, **chosen}
                name = label(point, causal)
                try:
                    made = build_sequence(expand_steps(file, file.sequences[0], {**point, "CAUSAL": causal}))
                except CakeError as e:
                    print(name, e, flush=True)
                    continue
                write_sequence(made, directory / name)
                (directory / name / "point.json").write_text(json.dumps({**point, "CAUSAL": causal}))
                used = [
                    f"{a.report.registers} registers, {a.report.spill_store_bytes} B spilled" for a in made.artifacts
                ]
                print(f"{name}: {'; '.join(used)}", flush=True)


# ---- arguments, reference, peers ------------------------------------------------------------------------------------


def arguments(torch: Any, of: Cell) -> tuple[list[Any], dict[str, Any]]:
    """What the sequence takes, outputs poisoned, with the float64 gradients by name. O and the log sums are float64's, rounded."""
    generator = torch.Generator(device="cuda")
    device = generator.device
    generator.manual_seed(of.d + sum(of.lengths) + of.h)
    tokens = sum(of.lengths)

    def normal(heads: int) -> Any:
        return random_tensor(torch, (tokens, heads, of.d), generator, torch.bfloat16)

    q, k, v, do = normal(of.h), normal(of.hk), normal(of.hk), normal(of.h)
    o, lse, want = reference(torch, of, q, k, v, do)
    cu = torch.tensor([0, *of.lengths]).cumsum(0).int().to(device)
    longest, scale = max(of.lengths), math.log2(math.e) / of.d**0.5
    outputs = [poisoned(torch, tuple(x.shape), device, torch.bfloat16) for x in (q, k, v)]
    return [q, k, v, o, do, lse, cu, cu.clone(), longest, longest, scale, *outputs], want


def reference(torch: Any, of: Cell, q: Any, k: Any, v: Any, do: Any) -> tuple[Any, Any, dict[str, Any]]:
    """O in bf16, the log2 of the row sums, and the gradients in float64, head by head."""
    double = [torch.zeros(x.shape, dtype=torch.float64, device=x.device) for x in (q, k, v)]
    dq, dk, dv = double
    o = torch.empty_like(q)
    lse = torch.empty((of.h, q.shape[0]), dtype=torch.float32, device=q.device)
    start, share, scale = 0, of.h // of.hk, of.d**-0.5
    for n in of.lengths:
        rows = slice(start, start + n)
        start += n
        hidden = torch.ones((n, n), dtype=torch.bool, device=q.device).triu(1) if of.causal else None
        for h in range(of.h):
            a, b, c, d = (x.double() for x in (q[rows, h], k[rows, h // share], v[rows, h // share], do[rows, h]))
            s = a @ b.T * scale
            if hidden is not None:
                s.masked_fill_(hidden, -math.inf)
            sums = s.logsumexp(dim=1, keepdim=True)
            p = s.sub_(sums).exp_()
            o[rows, h], lse[h, rows] = (p @ c).to(o.dtype), (sums[:, 0] * math.log2(math.e)).float()
            dv[rows, h // share] += p.T @ d
            dp = d @ c.T
            ds = dp.sub_((p * dp).sum(dim=1, keepdim=True)).mul_(p)
            dq[rows, h] = ds @ b * scale
            dk[rows, h // share] += ds.T @ a * scale
    return o, lse, {"dq": dq, "dk": dk, "dv": dv}


def dense_peer(torch: Any, of: Cell, given: list[Any], backend: str) -> Callable[[], Any]:
    """The backward pass of torch's SDPA by one backend, on the same values as batches [B, H, T, D]."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    b = len(of.lengths)
    q, k, v, do = (
        x.view(b, -1, *x.shape[1:]).transpose(1, 2).contiguous() for x in (given[0], given[1], given[2], given[4])
    )
    inputs = [x.requires_grad_() for x in (q, k, v)]
    with sdpa_kernel(getattr(SDPBackend, backend)):
        y = torch.nn.functional.scaled_dot_product_attention(*inputs, is_causal=of.causal, enable_gqa=of.h != of.hk)
    return lambda: torch.autograd.grad(y, inputs, do, retain_graph=True)


def packed_peer(torch: Any, of: Cell, given: list[Any], backend: str) -> Callable[[], Any]:
    """FlashAttention's operator for packed sequences."""
    if backend != "FLASH_ATTENTION":
        raise RuntimeError("no operator of torch for packed sequences")
    q, k, v, do, cu, longest = given[0], given[1], given[2], given[4], given[6], given[8]
    y, sums, seed, unused, _ = torch.ops.aten._flash_attention_forward(
        q, k, v, cu, cu, longest, longest, 0.0, of.causal, False
    )
    return lambda: torch.ops.aten._flash_attention_backward(
        do, q, k, v, y, sums, cu, cu, longest, longest, 0.0, of.causal, seed, unused
    )


def peer(torch: Any, of: Cell, given: list[Any], backend: str) -> tuple[Callable[[], Any], dict[str, Any]]:
    """The peer's call and its gradients, [T, H, D]. Raises what torch raises where the backend does not take the shape."""
    call = (dense_peer if of.dense else packed_peer)(torch, of, given, backend)
    found = call()
    torch.cuda.synchronize()
    shapes = [x.shape for x in given[:3]]
    turned = [x.transpose(1, 2).reshape(s) if of.dense else x for x, s in zip(found, shapes, strict=True)]
    return call, dict(zip(OUTPUTS, turned, strict=True))


# ---- the run --------------------------------------------------------------------------------------------------------


class Ours:
    """One candidate on a cell's arguments, with two sets of outputs that it can change between."""

    def __init__(self, torch: Any, kernel: Any, given: list[Any]) -> None:
        self._kernel = kernel
        self._workspace = kernel.workspace(*given)
        self._sets = [given, [*given[:11], *(x.clone() for x in given[11:])]]
        self.current = 0

    def __call__(self) -> None:
        """Write the current outputs."""
        self._kernel(*self._sets[self.current], workspace=self._workspace)

    def other(self) -> None:
        """Write the other outputs."""
        self._kernel(*self._sets[1 - self.current], workspace=self._workspace)

    def swap(self) -> None:
        """Exchange the two."""
        self.current = 1 - self.current

    def launches(self) -> dict[str, Callable[[], None]]:
        """Each launch of its own; `backward` then adds to a sum that nobody cleared."""
        return dict(self._kernel.launches(*self._sets[self.current], workspace=self._workspace))


def measure(torch: Any, built: dict[str, tuple[Any, dict[str, Any]]], of: Cell, flush: Any) -> dict[str, Any]:
    """One cell: every candidate checked and timed, the best beside the peers."""
    given, want = arguments(torch, of)
    result: dict[str, Any] = {**asdict(of), "candidates": {}, "peers": {}}
    peers: dict[str, Callable[[], Any]] = {}
    theirs: dict[str, dict[str, errors.Error]] = {}
    for name, backend in PEERS.items():
        try:
            peers[name], found = peer(torch, of, given, backend)
            theirs[name] = {n: errors.measure(torch, found[n], want[n]) for n in OUTPUTS}
            us = statistics.median(timed(torch, (peers[name],), flush)[0] for _ in range(ROUNDS))
            print(f"    {name}: {us:.0f} us", flush=True)
        except RuntimeError as e:
            result["peers"][name] = {"error": str(e).splitlines()[0]}
            print(f"    {name}: {str(e).splitlines()[0]}", flush=True)
    right: list[tuple[float, str, Ours]] = []
    for name, (kernel, point) in built.items():
        if (point["D"], point["CAUSAL"]) != (of.d, of.causal):
            continue
        ours = Ours(torch, kernel, given)
        for x in given[11:]:
            x.fill_(float("nan"))
        ours()
        torch.cuda.synchronize()
        off = own_errors(torch, given, want)
        ok = all(e.normwise <= NORMWISE and e.worst <= WORST for e in off.values())
        us = statistics.median(timed(torch, (ours,), flush)[0] for _ in range(ROUNDS))
        parts = {
            n: statistics.median(timed(torch, (f,), flush)[0] for _ in range(ROUNDS))
            for n, f in ours.launches().items()
        }
        result["candidates"][name] = {
            "us": us,
            "right": ok,
            "launches_us": parts,
            "normwise": {n: e.normwise for n, e in off.items()},
            "worst": {n: e.worst for n, e in off.items()},
        }
        text = " + ".join(f"{n} {x:.0f}" for n, x in parts.items())
        wrong = "" if ok else f" WRONG {result['candidates'][name]}"
        print(f"    {name}: {us:.0f} us ({text}), {2.5 * of.work / us / 1e6:.0f} TFLOP/s{wrong}", flush=True)
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
            "tflops": 2.5 * of.work / c.ours_us.median / 1e6,
            "peer_tflops": 2.5 * of.work / c.peer_us.median / 1e6,
        }
    ours()
    torch.cuda.synchronize()
    mine = own_errors(torch, given, want)
    result["errors"] = {p: {n: errors.beside(mine[n], e[n]) for n in OUTPUTS} for p, e in theirs.items()}
    return result


def own_errors(torch: Any, given: list[Any], want: dict[str, Any]) -> dict[str, errors.Error]:
    """The errors of the outputs in ``given``."""
    return {n: errors.measure(torch, x, want[n]) for n, x in zip(OUTPUTS, given[11:], strict=True)}


def line(r: dict[str, Any]) -> str:
    """A cell's result on one line."""
    parts = [f"{r['name']}"]
    for name, c in r["peers"].items():
        if "ratio" in c:
            ratio, noise = c["ratio"], c["noise"]
            off = ", ".join(f"{e['ratio']['normwise']:.2f}" for e in r["errors"][name].values())
            parts.append(
                f"{c['tflops']:.0f} TFLOP/s, {name} {c['peer_tflops']:.0f}, {ratio['median']:.3f} "
                f"[{ratio['low']:.3f}, {ratio['high']:.3f}] noise [{noise['low']:.3f}, {noise['high']:.3f}] "
                f"errors x {off}"
            )
    return "; ".join([*parts, str(r.get("chosen"))])


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
        write_json(out / "attention_backward.json", results)
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
