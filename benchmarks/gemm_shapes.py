"""Matrix products of awkward shapes beside cuBLAS: few tiles, long K, tails; the best schedule of each shape.

    python benchmarks/gemm_shapes.py build DIRECTORY            anywhere: builds the candidates, a directory each
    python benchmarks/gemm_shapes.py run DIRECTORY --out OUT    on a GPU: writes OUT/gemm-shapes.json

Candidates are points of gemm_cluster.cake (cooperative), gemm_pingpong.cake, gemm_split.cake (K divided within a cluster) and
gemm_streamk.cake: for each shape those that a count of waves and slabs ranks first. All of them are checked against float64 and
timed from a cold L2; the best few are paired with cuBLAS and the one with the best ratio is measured by the protocol (pairs that
alternate, outputs exchanged half-way, noise floor).
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.judging import constants_of, error_text, within_bounds
from benchmarks.problems import PROBLEMS, Constants, Shape
from cake.diagnostics import CakeError
from cake.evaluate import errors
from cake.evaluate.intervals import geometric_mean
from cake.evaluate.pairs import FLUSH_BYTES, PAIRS, compare, paired, timed
from cake.evaluate.record import environment, write_json
from cake.runtime import load

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
SHAPES: tuple[Shape, ...] = (
    (128, 128, 16384),
    (256, 256, 8192),
    (512, 512, 8192),
    (1024, 1024, 8192),
    (1152, 1152, 16384),
    (64, 4096, 4096),
    (128, 4096, 4096),
    (256, 4096, 4096),
    (192, 12288, 4096),
    (640, 5120, 5120),
    (333, 4096, 2048),
    (768, 3072, 768),
    (1000, 1000, 1000),
    (1408, 4096, 2048),
    (1536, 1536, 4096),
    (2000, 2000, 2000),
    (2560, 2560, 2560),
    (3072, 3072, 1024),
    (4096, 512, 8192),
    (4111, 1032, 520),
)
"""M, N, K."""
ROUNDS, FINALISTS, FINAL_PAIRS = 7, 3, 10
SMS = 132
SHARED = 232448 - 2048
"""Bytes of shared memory that a CTA has for its stages."""
Candidate = tuple[str, Constants]


def _cdiv(a: int, b: int) -> int:
    return -(-a // b)


def _slab(warpgroups: int, columns: int) -> float:
    """Cycles of a slab of 64: products (2048 multiplications a cycle), or its bytes (78 a cycle and SM, as measured)."""
    return max(warpgroups * 2.0 * columns, 128 * (64 * warpgroups + columns) / 78)


def _stages(room: int, slab: int) -> int:
    return max((n for n in (3, 4, 5, 6, 8, 12) if n * slab <= room), default=0)


def _leaves(columns: int) -> tuple[int, int]:
    """Columns that leave together, and slots for them: whole rows without a swizzle where they collide in pairs only."""
    if columns % 32:
        return columns, 1
    return (64, 2) if columns % 64 == 0 else (32, 4)


Ranked = list[tuple[float, Candidate]]
"""Candidates with the cycles that the count expects, best first."""


def cooperative(shape: Shape) -> Ranked:
    """Points of gemm_cluster: the sizes of tiles that divide best among the SMs come first."""
    m, n, k = shape
    found = []
    for math, bn, cluster in itertools.product((1, 2, 3), range(32, 257, 16), (1, 2)):
        if (math == 3 and bn > 192) or (math > 1 and cluster > 1):
            continue
        waves = _cdiv(_cdiv(_cdiv(m, 64 * math), cluster) * cluster * _cdiv(n, bn), SMS)
        chunk, out = _leaves(bn)
        stages = _stages(SHARED - out * 128 * math * chunk, 128 * (64 * math + bn))
        if stages:
            point: Constants = {
                "MATH": math,
                "BN": bn,
                "CHUNK": chunk,
                "STAGES": stages,
                "GROUP": 8,
                "CLUSTER": cluster,
            }
            cycles = waves * _cdiv(k, 64) * _slab(math, bn) + 3.2 * math * bn + 300 * cluster
            found.append((cycles, ("gemm_cluster", {**point, "OUT": out})))
    return sorted(found, key=lambda f: f[0])


RESIDENT = {2: 66, 4: 30, 8: 15}
"""Clusters of so many CTAs that an H200 runs at once (``cuOccupancyMaxActiveClusters``): those of 4 and 8 do not fill its GPCs."""


def divided(shape: Shape) -> Ranked:
    """Points of gemm_split that finish in one wave. Adding up takes some 5000 cycles."""
    m, n, k = shape
    found = []
    for math, bn, split in itertools.product((1, 2), (32, 64, 96, 128, 160, 192), RESIDENT):
        stages = _stages(SHARED - 64 * math * (bn + 8) * 4, 128 * (64 * math + bn))
        if stages and _cdiv(m, 64 * math) * _cdiv(n, bn) <= RESIDENT[split]:
            point: Constants = {"MATH": math, "BN": bn, "STAGES": stages, "GROUP": 4, "SPLIT": split}
            cycles = _cdiv(_cdiv(k, 64), split) * _slab(math, bn) + 5000
            found.append((cycles, ("gemm_split", point)))
    return sorted(found, key=lambda f: f[0])


def alternating(shape: Shape) -> Ranked:
    """Points of gemm_pingpong: an epilogue runs under the products of the next tile."""
    m, n, k = shape
    found = []
    for bn in (128, 144, 160, 176, 192):
        waves = _cdiv(_cdiv(m, 128) * _cdiv(n, bn), SMS)
        chunk = 16 if bn % 32 else 32
        stages = min(6, _stages(SHARED - 4 * 128 * 2 * chunk, 128 * (128 + bn)))
        point: Constants = {"BM": 128, "BN": bn, "CHUNK": chunk, "STAGES": stages, "GROUP": 8, "SPLIT": 1}
        found.append((waves * _cdiv(k, 64) * _slab(2, bn) + 6.4 * bn, ("gemm_pingpong", point)))
    return sorted(found, key=lambda f: f[0])


def candidates(shape: Shape) -> list[Candidate]:
    """What is tried for a shape."""
    ranked = sorted(cooperative(shape) + divided(shape)[:6], key=lambda f: f[0])
    chosen = [c for cycles, c in ranked[:9] if cycles < 1.25 * ranked[0][0]]
    even: list[Constants] = [{"BN": 128, "STAGES": 6}, {"BN": 256, "STAGES": 4}]
    return chosen + [c for _, c in alternating(shape)[:2]] + [("gemm_streamk", c) for c in even]


def label(stem: str, constants: Constants) -> str:
    """Directory of a candidate."""
    return "-".join([stem, *(f"{n.lower()}{v}" for n, v in constants.items())])


def build(directory: Path) -> None:
    """One artifact a candidate; registers and spills are printed."""
    from cake.codegen.build import build as compile_kernel
    from cake.codegen.build import write
    from cake.compiler import expand_file

    every = {label(*c): c for shape in SHAPES for c in candidates(shape)}
    for name, (stem, constants) in every.items():
        try:
            artifact = compile_kernel(expand_file(EXAMPLES / f"{stem}.cake", constants=constants))
        except CakeError as e:
            print(name, e, flush=True)
            continue
        write(artifact, directory / name, ("cubin", "expand"))
        print(
            f"{name}: {artifact.report.registers} registers, {artifact.report.spill_store_bytes} B spilled", flush=True
        )


class Ours:
    """One candidate on a shape's operands, with two outputs that it can change between."""

    def __init__(self, torch: Any, kernel: Any, constants: Constants, operands: list[Any]) -> None:
        self._kernel = kernel
        self.scratch = scratch(torch, kernel.kernel.name, constants, operands)
        self.outputs = [torch.empty_like(operands[2]) for _ in range(2)]
        self._operands = operands[:2]
        self.current = 0

    def __call__(self) -> None:
        """Write the current output."""
        self._kernel(*self._operands, self.outputs[self.current], *self.scratch)

    def other(self) -> None:
        """Write the other output."""
        self._kernel(*self._operands, self.outputs[1 - self.current], *self.scratch)

    def swap(self) -> None:
        """Exchange the two."""
        self.current = 1 - self.current


def scratch(torch: Any, name: str, constants: Constants, operands: list[Any]) -> list[Any]:
    """What a schedule takes after its output: room for partial sums, and flags that are zero."""
    (m, k), (n, _), device = operands[0].shape, operands[1].shape, operands[0].device
    if name == "gemm_streamk":
        tiles = -(-m // constants["BM"]) * -(-n // constants["BN"]) * -(-k // constants["BK"])
        units = min(torch.cuda.get_device_properties(device).multi_processor_count, tiles)
        shape, flags = (units, 2, 64 * constants["BN"]), (units, 2)
    elif name == "gemm_pingpong" and constants["SPLIT"] > 1:
        flags = (-(-m // constants["BM"]), -(-n // constants["BN"]))
        shape = (*flags, constants["BM"] * constants["BN"])
    else:
        return []
    return [torch.full(shape, float("nan"), device=device), torch.zeros(flags, dtype=torch.int32, device=device)]


def measure(torch: Any, built: dict[str, Any], shape: Shape, flush: Any) -> dict[str, Any]:
    """One shape: every candidate checked and timed, the best beside cuBLAS."""
    problem = PROBLEMS["gemm"]
    generator = torch.Generator(device="cuda")
    generator.manual_seed(sum(shape))
    operands = problem.arguments(torch, shape, generator, {})
    references = problem.reference(torch, operands, {})
    theirs = torch.empty_like(operands[2])
    outputs = [theirs, torch.empty_like(theirs)]

    def peer() -> None:
        torch.mm(operands[0], operands[1].T, out=outputs[0])

    result: dict[str, Any] = {"shape": shape, "candidates": {}}
    right: list[tuple[float, str, Ours]] = []
    for name in (label(*c) for c in candidates(shape)):
        kernel = built[name]
        ours = Ours(torch, kernel, kernel.artifact.kernel.constants, operands)
        ours.outputs[0].fill_(float("nan"))
        ours()
        torch.cuda.synchronize()
        found = within_bounds(torch, problem, [*operands[:2], ours.outputs[0]], {}, references)
        ok = (
            found["worst"] <= 1
            and not found["not_finite"]
            and all(int(t.count_nonzero()) == 0 for t in ours.scratch[1:])
        )
        us = statistics.median(timed(torch, (ours,), flush)[0] for _ in range(ROUNDS))
        result["candidates"][name] = {"us": us, "right": ok, **found}
        if ok:
            right.append((us, name, ours))
        else:
            print(f"    {name}: WRONG {found}", flush=True)
    right.sort(key=lambda r: r[0])

    def ratio(ours: Ours) -> float:
        a, b = paired(torch, ours, peer, pairs=FINAL_PAIRS, flush=flush)
        return statistics.median(y / x for x, y in zip(a, b, strict=True))

    _, chosen, ours = max(right[:FINALISTS], key=lambda r: ratio(r[2]))

    def swap() -> None:
        ours.swap()
        outputs.reverse()

    c = compare(torch, ours, peer, pairs=PAIRS, swap=swap, twin=ours.other)
    mine = errors.measure(torch, ours.outputs[0], references[0][0])
    result |= {
        "chosen": chosen,
        **asdict(c),
        "errors": errors.beside(mine, errors.measure(torch, theirs, references[0][0])),
    }
    work = 2e-6 * shape[0] * shape[1] * shape[2]
    result |= {"tflops": work / c.ours_us.median, "peer_tflops": work / c.peer_us.median}
    return result


def line(r: dict[str, Any]) -> str:
    """A shape's result on one line."""
    ratio, noise, name = r["ratio"], r["noise"], "x".join(map(str, r["shape"]))
    return (
        f"{name:>16}: {r['ours_us']['median']:7.1f} us, {r['tflops']:.0f} TFLOP/s, cuBLAS {r['peer_tflops']:.0f}, "
        f"{ratio['median']:.3f} [{ratio['low']:.3f}, {ratio['high']:.3f}] noise [{noise['low']:.3f}, {noise['high']:.3f}] "
        f"{r['chosen']} {error_text([r['errors']])}"
    )


def run(directory: Path, out: Path, only: list[str]) -> None:
    """Every shape whose name contains one of ``only``; the file is rewritten after each."""
    import torch

    built = {p.parent.name: load(p.parent) for p in sorted(directory.glob("*/manifest.json"))}
    assert all(constants_of(directory / name) for name in built)
    flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    results: dict[str, Any] = {"environment": environment(torch), "shapes": []}
    for shape in SHAPES:
        if only and not any(text in "x".join(map(str, shape)) for text in only):
            continue
        results["shapes"].append(measure(torch, built, shape, flush))
        write_json(out / "gemm-shapes.json", results)
        print(line(results["shapes"][-1]), flush=True)
    mean = geometric_mean([(r["samples"]["ours_us"], r["samples"]["peer_us"]) for r in results["shapes"]])
    print(f"geometric mean {mean.median:.4f} [{mean.low:.4f}, {mean.high:.4f}] of {len(results['shapes'])} shapes")


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("build", "run"))
    parser.add_argument("directory", type=Path)
    parser.add_argument("--out", type=Path, default=Path("out"))
    parser.add_argument("--only", action="append", default=[], help="shapes MxNxK that contain this (repeatable)")
    options = parser.parse_args()
    if options.what == "build":
        build(options.directory)
    else:
        run(options.directory, options.out, options.only)


if __name__ == "__main__":
    main()
