"""Parents from source files and small texts: the examples, the expert corpus, walks that skip tiles, CTAs that wait.

Points and sizes are the smallest at which every ring turns over and every edge is ragged somewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from cake.compiler import expand_text
from cake.ir import expanded as x
from cake.ir.dtypes import numpy_dtype
from cake.ir.evaluate import evaluate
from tests.verify.chain import CHAIN
from tests.verify.joined import JOINED

ROOT = Path(__file__).parents[2]
Values = dict[str, Any]


def zeros(kernel: x.Kernel, sizes: Mapping[str, Any]) -> Values:
    """Arguments of a launch: ``sizes`` gives dims, scalars and the tensors whose contents matter."""
    env = {**kernel.constants, **sizes}
    found: Values = {s.name: sizes.get(s.name, 1.0) for s in kernel.scalars}
    for t in kernel.tensors:
        given = sizes.get(t.name)
        shape = tuple(int(evaluate(e, env)) for e in t.shape)
        found[t.name] = np.zeros(shape, numpy_dtype(t.dtype)) if given is None else np.asarray(given, np.int32)
    return found


@dataclass(frozen=True)
class Source:
    """A kernel of a file (or a text) at a point, with the sizes of its launches."""

    name: str
    where: str
    sizes: tuple[Values, ...]
    point: Values
    kernel: str | None = None
    ctas: int = 1
    instead: tuple[str, str] = ("", "")
    """Words of the text, and others for them."""

    def expanded(self) -> x.Kernel:
        """The kernel."""
        text = (ROOT / self.where).read_text() if self.where.endswith(".cake") else self.where
        assert self.instead[0] in text
        return expand_text(text.replace(*self.instead), self.name, kernel=self.kernel, constants=self.point)


def _gemm(m: int, n: int, k: int, **more: int) -> Values:
    return {"M": m, "N": n, "K": k, **more}


def _rows(n: int) -> Values:
    return {"M": 2, "N": n}


_CHUNK = {"B": 1, "T": 70, "H": 1, "NC": 2, "cu": [0, 70]}

SOURCES = (
    Source("softmax_long", "examples/softmax.cake", (_rows(8200),), {}, "softmax_long"),
    Source("softmax", "examples/softmax.cake", (_rows(1000),), {"COLS": 1024}, "softmax"),
    Source("rmsnorm", "examples/rmsnorm.cake", (_rows(1000),), {}, "rmsnorm"),
    Source("layernorm", "examples/layernorm.cake", (_rows(1000),), {"COLS": 1024}, "layernorm"),
    Source("half_norms", "tests/ir/examples/kmeans.cake", ({"B": 1, "K": 9},), {"D": 128}, "half_norms"),
    Source("example_gemm", "examples/gemm.cake", (_gemm(130, 128, 328),), {"BN": 128, "STAGES": 3}),
    Source("gemm_bias", "examples/gemm_bias_gelu.cake", (_gemm(390, 128, 200),), {"BN": 128, "STAGES": 3}),
    Source("gemm_pairs", "examples/gemm_cluster.cake", (_gemm(130, 128, 200),), {"BN": 128, "STAGES": 3}),
    Source(
        "gemm_pingpong",
        "examples/gemm_pingpong.cake",
        (_gemm(130, 128, 264), _gemm(200, 128, 72)),
        {"BM": 64, "BN": 128, "STAGES": 3},
    ),
    Source(
        "gemm_split",
        "examples/gemm_pingpong.cake",
        (_gemm(64, 128, 520),),
        {"BM": 64, "BN": 128, "STAGES": 3, "SPLIT": 2},
        ctas=2,
    ),
    Source(
        "gemm_joined",
        "examples/gemm_split.cake",
        (_gemm(70, 32, 200),),
        {"MATH": 1, "BN": 32, "STAGES": 3, "SPLIT": 2},
    ),
    Source("kmeans", "examples/kmeans.cake", ({"B": 1, "N": 150, "K": 460},), {"WGS": 2, "BN": 64, "D": 64}, "assign"),
    *(
        Source(
            f"knn_{'fused' if fused else 'norms'}",
            "examples/knn.cake",
            ({"Q": 70, "N": 300},),
            {"WGS": 1, "STAGES": 2, "SPLIT": 1, "PARTS": 8, "CLASSES": 1, "D": 64, "FUSED": fused},
            "knn_scan",
        )
        for fused in (False, True)
    ),
    Source("cooperative", "examples/corpus/gemm_cooperative.cake", (_gemm(130, 64, 200),), {"BN": 64, "STAGES": 2}),
    Source("multicast_pair", "examples/corpus/gemm_multicast_pair.cake", (_gemm(130, 64, 200),), {}),
    Source("one_in_flight", "examples/corpus/gemm_one_in_flight.cake", (_gemm(130, 128, 264),), {}),
    Source(
        "two_pipelines", "examples/corpus/gemm_two_pipelines.cake", (_gemm(130, 64, 392),), {"BN": 64, "A_STAGES": 3}
    ),
    Source("blend", "examples/corpus/blend_store_ring.cake", ({"M": 150, "N": 64},), {"STAGES": 4, "OUT": 2}),
    Source("streamed", "examples/corpus/softmax_streamed.cake", ({"M": 5, "N": 520},), {"STAGES": 2, "OUT": 1}),
    Source("alternating", "examples/corpus/attention_alternating.cake", ({"BH": 1, "S": 200},), {}),
    *(
        Source(
            f"attention_{bn}",
            "examples/attention.cake",
            ({"TQ": 150, "TK": 180, "H": 1, "HK": 1, "B": 1, "cu_q": [0, 150], "cu_k": [0, 180], "max_q": 150},),
            {"D": 64, "BN": bn},
            instead=("tiles dynamic(load)", "tiles persistent"),  # what is drawn from a counter is data to the engines
        )
        for bn in (80, 128)
    ),
    Source(
        "gemm_streamk",
        "examples/gemm_streamk.cake",
        (_gemm(130, 128, 392, U=3),),
        {"BN": 64, "STAGES": 4},
        ctas=3,
    ),
    Source("kda", "tests/ir/examples/kda.cake", (_CHUNK,), {}),
    Source(
        "decode",
        "tests/ir/examples/decode.cake",
        ({"B": 1, "H": 8, "HK": 1, "P": 16, "PMAX": 16, "table": [list(range(16))], "lens": [120]},),
        {"STAGES": 3, "Z": 1},
        "decode_part",
    ),
    Source(
        "chain",
        CHAIN.replace("warps 4", "warps 2"),
        tuple({"R": r, "S": s} for r, s in ((1, 2), (1, 3), (2, 2))),
        {},
        ctas=2,
    ),
    Source("joined", JOINED, ({"M": 2, "N": 260},), {"PARTS": 2}),
)

WALK = """\
kernel walk(x: f32[T, S, 32], out y: f32[T, S, 32]) for sm_90a:
    const STAGES: {1, 2, 3, 4, 5} = 2
    const GROUPS: {2, 3} = 2

    tiles persistent:
        i in T

    role load: warps 1
    role use[GROUPS]: warps WARPS

    pipeline xs[STAGES] load -> one use:
        x: f32[1, 32]

    turn next: use

    do load:
        for t in tiles:
            for k in range(S):
                with xs.fill() as f:
                    tma.load(f.x, x[t.i, k : k + 1, :])

    do use as w:
        v: f32[1, 32] spread(1)
        xs.skip(w * S)
        for t in tiles[w::GROUPS]:
            with next:
                for k in range(S):
                    s = xs.wait()
                    v = load(s.x[rows(v), cols(v)])
                    xs.release()
                    store(y[t.i, k + rows(v), cols(v)], v)
            xs.skip((GROUPS - 1) * S)
"""
"""Instances that take whole tiles of one ring in turn. Where slabs and stages share no factor, every phase of every stage comes
to every instance; without the turn a wait can pass on a parity of two turns ago (P107)."""


@cache
def walks() -> tuple[Source, ...]:
    """Walks of several widths: (stages, groups, warps, tiles, slabs)."""
    found = []
    for stages, groups, warps in ((2, 2, 1), (3, 2, 1), (1, 2, 1), (2, 3, 1), (5, 2, 1), (2, 2, 2), (4, 3, 1)):
        text = WALK.replace("WARPS", str(warps))
        sizes = tuple({"T": t, "S": s} for t, s in ((1, 1), (groups + 1, 1), (3, stages + 1)))
        point = {"STAGES": stages, "GROUPS": groups}
        found.append(Source(f"walk_s{stages}_x{groups}_w{warps}", text, sizes, point))
    return tuple(found)


def sources() -> Iterator[Source]:
    """All of them."""
    yield from walks()
    yield from SOURCES
