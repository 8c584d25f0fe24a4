"""The kernels that run under chaos, each with one small launch: parents of mutants, the corpus, the examples.

Launches are ragged and small, and persistent kernels get few CTAs, so that each of these walks several tiles. Operands are small
integers where the result is then exact, so that one wrong element shows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.chaos.observed import SLABS, TILES, observed
from cake.cli.arguments import shapes
from cake.cli.companion import Companion, load
from cake.compiler import expand_file, expand_text
from cake.ir import expanded as x
from cake.ir.dtypes import DTYPES, numpy_dtype
from cake.ir.expr import Apply, integer
from examples.corpus import references
from tests.litmus.catalogue import kernel as litmus
from tests.litmus.catalogue import verdicts
from tests.mutation.parents import Parent, zeros
from tests.mutation.rings import Ring, copies, exchange, ring, stores, turns
from tests.verify.chain import CHAIN

EXAMPLES = Path(__file__).parents[2] / "examples"
CORPUS = EXAMPLES / "corpus"
FEW = 2
"""Clusters of a persistent grid."""

Values = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A kernel and the arguments of its launch. ``tolerance``: how far an output may be off, relative to the largest element of
    the reference; outputs that are not named are exact. ``clusters`` are simulated together."""

    name: str
    kernel: x.Kernel
    arguments: Values
    tolerance: Mapping[str, float] = field(default_factory=dict)
    clusters: int = FEW

    @property
    def parent(self) -> Parent:
        """As the mutation suite judges it."""
        return Parent(self.name, "chaos", self.kernel, (self.arguments,), self.clusters)


def few(kernel: x.Kernel) -> x.Kernel:
    """A persistent kernel on at most ``FEW`` clusters."""
    if kernel.schedule != "persistent":
        return kernel
    return kernel.model_copy(update={"grid": Apply(op="min", args=(kernel.grid, integer(FEW)), dtype="i32")})


# ---- synthetic ones --------------------------------------------------------------------------------------------------

RINGS = (
    Ring(1),
    Ring(2),
    Ring(3),
    Ring(2, lag=1),
    Ring(4, lag=2),
    Ring(2, warps=2),
    Ring(2, instances=2),
    Ring(2, producers=2),
    Ring(3, producers=2, lag=1),
    Ring(2, split=True),
    Ring(2, fill="mixed"),
    Ring(2, fill="mixed", warps=2),
    Ring(2, fill="stores", warps=2),
    Ring(3, reader="store"),
    Ring(3, reader="store", lag=1),
)
LITMUS = ("21", "34b")


def _values(kernel: x.Kernel) -> Values:
    """Integers that f32 and bf16 hold exactly; ``inout`` tensors begin with zeros."""
    rng = np.random.default_rng(len(kernel.name))
    out = zeros(kernel)
    for t in kernel.tensors:
        if t.direction == "in":
            limit = 128 if DTYPES[t.dtype].bytes == 2 else 1 << 20
            out[t.name] = rng.integers(-limit, limit + 1, out[t.name].shape).astype(numpy_dtype(t.dtype))
    return out | {s.name: {"tiles": TILES, "slabs": SLABS}[s.name] for s in kernel.scalars}


def synthetic() -> Iterator[Case]:
    """Rings, turns, rings of stores, exchanges, cp.async; of the litmus programs a remote write and turns."""
    made = [ring(r) for r in RINGS]
    made += [turns(2, 2), turns(1, 3), stores(2, 1), stores(3, 2), exchange(2), exchange(4), copies(0), copies(1)]
    for k in made:
        seen = observed(k)
        yield Case(k.name, seen, _values(seen), clusters=1)
    for name, row in verdicts().items():
        if name.split("_")[0] in LITMUS:
            seen = observed(litmus(name))
            yield Case(f"litmus_{name}", seen, _values(seen), clusters=row.ctas)


# ---- from sources ----------------------------------------------------------------------------------------------------


def _module(file: Path, kernel: str) -> Companion:
    if file.parent == CORPUS:
        return Companion(Path(references.__file__), references, kernel)
    found = load(file, kernel)
    assert found is not None, f"{file} has no module"
    return found


def _arguments(kernel: x.Kernel, module: Companion, dims: Mapping[str, int], exact: bool) -> Values:
    """What the module gives, in the kernel's dtypes; integers for floats where ``exact``; workspace and outputs start as zeros."""
    rng = np.random.default_rng(sum(dims.values()))
    values: Values = dict(module.call(module.find("inputs"), dict(dims), dict(kernel.constants), rng))
    for t in kernel.tensors:
        if t.name not in values:
            shape = shapes(kernel, {**kernel.constants, **dims, **values})[t.name]
            values[t.name] = np.zeros(shape, numpy_dtype(t.dtype))
        elif exact and DTYPES[t.dtype].kind == "float":
            values[t.name] = rng.integers(-3, 4, values[t.name].shape).astype(numpy_dtype(t.dtype))
    return values


def _of(name: str, file: Path, kernel: x.Kernel, dims: Mapping[str, int], tolerance: Mapping[str, float]) -> Case:
    exact = all(not tolerance.get(t.name) for t in kernel.tensors)
    return Case(name, few(kernel), _arguments(kernel, _module(file, kernel.name), dims, exact), tolerance)


SMALL: dict[str, tuple[str, dict[str, Any], dict[str, int]]] = {
    "gemm_cooperative": ("", {"BN": 64, "STAGES": 2}, {"M": 130, "N": 72, "K": 328}),
    "gemm_two_pipelines": ("", {"BN": 64, "A_STAGES": 3}, {"M": 130, "N": 136, "K": 200}),
    "gemm_one_in_flight": ("", {}, {"M": 130, "N": 136, "K": 264}),
    "gemm_multicast_pair": ("", {}, {"M": 130, "N": 136, "K": 264}),
    "blend_store_ring": ("", {"OUT": 2}, {"M": 100, "N": 200}),
    "attention_alternating": ("", {}, {"BH": 2, "S": 200}),
    "softmax_streamed": ("", {}, {"M": 18, "N": 1000}),
    "softmax": ("softmax", {"COLS": 1024, "ROWS": 1}, {"M": 3, "N": 1000}),
    "gemm_pingpong": ("", {"BM": 64, "STAGES": 3, "SPLIT": 2}, {"M": 130, "N": 136, "K": 392}),
    "gemm_split": ("", {"MATH": 1, "BN": 32, "STAGES": 3, "SPLIT": 2}, {"M": 130, "N": 72, "K": 328}),
}
"""Parents of mutants from sources: kernel (where the file has several), point and dims."""

BOUND = {"attention_alternating": {"y": 2**-6}, "softmax_streamed": {"y": 2**-8}, "softmax": {"y": 2**-8}}


def small() -> Iterator[Case]:
    """Corpus kernels and two examples at points that compile fast and launches of a few tiles."""
    for name, (kernel, point, dims) in SMALL.items():
        file = next(p for p in (CORPUS / f"{name}.cake", EXAMPLES / f"{name}.cake") if p.exists())
        expanded = expand_file(file, kernel=kernel or None, constants=point)
        yield _of(name, file, expanded, dims, BOUND.get(name, {}))


def chain() -> Case:
    """CTAs that wait for each other: the parts of a row hand their sum on."""
    kernel = expand_text(CHAIN)
    dims = {"R": 3, "S": 3}
    rng = np.random.default_rng(9)
    values = {n: np.zeros(s, np.float32 if n != "flags" else np.int32) for n, s in shapes(kernel, dims).items()}
    values["x"] = rng.integers(-1000, 1000, values["x"].shape).astype(np.float32)
    return Case("chain", few(kernel), values)


def parents() -> tuple[Case, ...]:
    """All parents of mutants."""
    return (*synthetic(), *small(), chain())


# ---- what must be right under every seed -----------------------------------------------------------------------------

POINTS: tuple[tuple[str, str | None, dict[str, Any], dict[str, int]], ...] = (
    ("gemm", None, {"BN": 128}, {"M": 300, "N": 264, "K": 200}),
    ("gemm", None, {}, {"M": 130, "N": 520, "K": 328}),
    ("gemm_cluster", None, {"BN": 128, "STAGES": 3}, {"M": 300, "N": 264, "K": 264}),
    ("gemm_cluster", None, {"CLUSTER": 4}, {"M": 650, "N": 264, "K": 136}),
    ("gemm_bias_gelu", None, {"BN": 128}, {"M": 300, "N": 264, "K": 200}),
    ("batched_gemm", None, {"BN": 64, "STAGES": 3}, {"Z": 3, "M": 130, "N": 136, "K": 264}),
    ("gemm_pingpong", None, {}, {"M": 300, "N": 264, "K": 200}),
    ("gemm_pingpong", None, {"SPLIT": 4, "STAGES": 3}, {"M": 130, "N": 264, "K": 648}),
    ("gemm_split", None, {"SPLIT": 4, "BN": 64}, {"M": 600, "N": 264, "K": 648}),
    ("gemm_split", None, {"SPLIT": 8, "MATH": 1, "BN": 32}, {"M": 300, "N": 136, "K": 1096}),
    ("softmax", "softmax", {"COLS": 1024}, {"M": 9, "N": 1000}),
    ("softmax", "softmax_long", {"COLS": 1024}, {"M": 5, "N": 2600}),
    ("rmsnorm", None, {"COLS": 1024}, {"M": 9, "N": 1000}),
    ("layernorm", None, {"COLS": 1024}, {"M": 9, "N": 1000}),
    ("attention", None, {}, {"B": 3, "H": 2, "HK": 1, "TQ": 300, "TK": 420}),
    (
        "attention",
        None,
        {"CAUSAL": False, "D": 64, "BN": 80, "LSE": True},
        {"B": 2, "H": 2, "HK": 2, "TQ": 260, "TK": 300},
    ),
    ("kmeans", "assign", {"D": 64, "WGS": 2}, {"B": 2, "N": 300, "K": 200}),
    ("kmeans", "half_norms", {}, {"B": 2, "K": 30}),
)


def _in_order() -> Case:
    """Attention with the tiles of a CTA in a fixed order."""
    file = EXAMPLES / "attention.cake"
    kernel = expand_text(file.read_text().replace("tiles dynamic(load):", "tiles persistent:"), str(file))
    dims = {"B": 3, "H": 2, "HK": 1, "TQ": 300, "TK": 420}
    return _of("attention_in_order", file, kernel, dims, {"y": 2**-6})


def right() -> Iterator[Case]:
    """The corpus at all its points and shapes, and the examples."""
    for row in json.loads((CORPUS / "corpus.json").read_text()):
        file = CORPUS / row["file"]
        for p, point in enumerate(row["points"]):
            kernel = expand_file(file, constants=point)
            for d, dims in enumerate(row["shapes"]):
                yield _of(f"{file.stem}_{p}{d}", file, kernel, dims, row["tolerance"])
    for n, (stem, name, point, dims) in enumerate(POINTS):
        file = EXAMPLES / f"{stem}.cake"
        kernel = expand_file(file, kernel=name, constants=point)
        module = _module(file, kernel.name)
        bound = module.find("tolerance")
        outputs = [t for t in kernel.tensors if t.direction != "in"]
        tolerance = {
            t.name: float(bound(t.name)) for t in outputs if bound is not None and DTYPES[t.dtype].kind == "float"
        }
        yield _of(f"{kernel.name}_{n}", file, kernel, dims, tolerance)
    yield _in_order()
