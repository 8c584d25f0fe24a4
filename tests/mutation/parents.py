"""The kernels that mutants are made of, each with the launches on which truth and checker are asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from cake.compiler import expand_file, expand_text
from cake.ir import expanded as x
from cake.ir.dtypes import numpy_dtype
from cake.ir.expr import Const
from tests.expanded.gemm import gemm
from tests.litmus.catalogue import kernel as litmus
from tests.litmus.catalogue import verdicts
from tests.mutation.rings import Ring, copies, exchange, ring, stores, turns
from tests.verify.chain import CHAIN

ROOT = Path(__file__).parents[2]
BF16 = ml_dtypes.bfloat16
Values = dict[str, Any]


@dataclass(frozen=True)
class Parent:
    """A kernel that is right, and a grid of launches. ``family``: synthetic, litmus or corpus."""

    name: str
    family: str
    kernel: x.Kernel
    launches: tuple[Values, ...]
    ctas: int = 1


def zeros(kernel: x.Kernel) -> Values:
    """Arguments of a kernel whose extents are constants."""
    shapes = {t.name: tuple(int(e.value) for e in t.shape if isinstance(e, Const)) for t in kernel.tensors}
    return {t.name: np.zeros(shapes[t.name], numpy_dtype(t.dtype)) for t in kernel.tensors}


def grid(kernel: x.Kernel, sizes: Iterable[tuple[int, int]]) -> tuple[Values, ...]:
    """Launches over (tiles, slabs)."""
    return tuple({**zeros(kernel), "tiles": t, "slabs": s} for t, s in sizes)


RINGS = (
    Ring(1),
    Ring(2),
    Ring(3),
    Ring(2, lag=1),
    Ring(3, lag=1),
    Ring(4, lag=2),
    Ring(2, warps=2),
    Ring(2, instances=2),
    Ring(2, producers=2),
    Ring(3, producers=2, lag=1),
    Ring(2, split=True),
    Ring(2, fill="mixed"),
    Ring(2, fill="mixed", warps=2),
    Ring(2, fill="stores", warps=2),
    Ring(1, fill="stores"),
    Ring(2, reader="store"),
    Ring(3, reader="store", lag=1),
    Ring(2, reader="wgmma", warps=4),
    Ring(3, reader="wgmma", warps=4, lag=1),
    Ring(2, reader="wgmma", warps=4, lag=1, instances=2),
    Ring(2, reader="wgmma", warps=4, split=True, lag=1),
    Ring(4),
    Ring(4, lag=1),
    Ring(3, lag=2),
    Ring(3, warps=2, lag=1),
    Ring(2, instances=2, lag=1),
    Ring(2, instances=3),
    Ring(3, producers=2),
    Ring(3, split=True),
    Ring(2, split=True, lag=1),
    Ring(3, fill="mixed"),
    Ring(3, fill="mixed", lag=1),
    Ring(2, fill="stores"),
    Ring(3, fill="stores", warps=2, lag=1),
    Ring(3, reader="store"),
    Ring(4, reader="store", lag=2),
    Ring(2, reader="wgmma", warps=4, instances=2),
)
LITMUS = (
    "01",
    "05",
    "06",
    "10",
    "12",
    "13b",
    "15",
    "16",
    "19",
    "21",
    "22",
    "24",
    "26",
    "28",
    "31",
    "34b",
    "38b",
    "39b",
    "40b",
)


@cache
def synthetic() -> tuple[Parent, ...]:
    """Rings, turns, store rings, exchanges."""
    found = []
    for r in RINGS:
        s = r.stages
        k = ring(r)
        found.append(Parent(r.name, "synthetic", k, grid(k, ((1, 1), (1, s + 2), (2, s), (s + 1, r.lag + 1)))))
    for k in (
        turns(2, 2),
        turns(1, 3),
        turns(3, 2),
        stores(2, 1),
        stores(3, 2),
        stores(4, 1),
        exchange(2),
        exchange(4),
        copies(0),
        copies(1),
    ):
        found.append(Parent(k.name, "synthetic", k, grid(k, ((1, 1), (1, 4), (3, 2)))))
    return tuple(found)


@cache
def programs() -> tuple[Parent, ...]:
    """The safe litmus programs."""
    table = verdicts()
    found = []
    for name, row in table.items():
        if name.split("_")[0] in LITMUS:
            k = litmus(name)
            found.append(Parent(name, "litmus", k, (zeros(k),), row.ctas))
    return tuple(found)


def _example(path: str, kernel: str | None, constants: dict[str, Any]) -> x.Kernel:
    return expand_file(ROOT / path, kernel=kernel, constants=constants)


def _z(*shape: int, dtype: Any = BF16) -> Any:
    return np.zeros(shape, dtype)


def _gemm(k: x.Kernel, sizes: Iterable[tuple[int, int, int]]) -> tuple[Values, ...]:
    return tuple({"a": _z(m, kk), "b": _z(n, kk), "c": _z(m, n)} for m, n, kk in sizes)


def _attention(bn: int) -> tuple[x.Kernel, tuple[Values, ...]]:
    k = _example("examples/attention.cake", "attention", {"D": 64, "BN": bn})
    cu_q, cu_k = np.array([0, 100], np.int32), np.array([0, 180], np.int32)
    first = {"q": _z(100, 1, 64), "k": _z(180, 1, 64), "v": _z(180, 1, 64), "cu_q": cu_q, "cu_k": cu_k}
    return k, ({**first, "max_q": 100, "scale_log2": 1.0, "y": _z(100, 1, 64)},)


def _kda() -> tuple[x.Kernel, tuple[Values, ...]]:
    k = _example("tests/ir/examples/kda.cake", None, {})
    t, chunks = 70, 2
    cu = np.array([0, t], np.int32)
    values: Values = {n: _z(t, 1, 128) for n in ("u", "w", "qg", "kd", "o")}
    values |= {"attn": _z(t, 1, 64), "e": _z(chunks, 1, 128, dtype=np.float32), "cu": cu}
    values |= {n: _z(1, 1, 128, 128, dtype=np.float32) for n in ("s0", "s1")}
    return k, (values,)


def _decode() -> tuple[x.Kernel, tuple[Values, ...]]:
    k = _example("tests/ir/examples/decode.cake", "decode_part", {"STAGES": 3, "Z": 1})
    table = np.arange(16, dtype=np.int32).reshape(1, 16)
    base = {"q": _z(1, 8, 128), "kc": _z(16, 16, 1, 128), "vc": _z(16, 16, 1, 128), "table": table}
    base |= {"scale_log2": 1.0, "po": _z(1, 8, 1, 128, dtype=np.float32), "pl": _z(1, 8, 1, dtype=np.float32)}
    return k, tuple({**base, "lens": np.array([n], np.int32)} for n in (120,))


def _norms() -> tuple[x.Kernel, tuple[Values, ...]]:
    k = _example("tests/ir/examples/kmeans.cake", "half_norms", {"D": 128})
    return k, ({"c": _z(1, 9, 128), "half": _z(1, 9, dtype=np.float32)},)


def _chain() -> tuple[x.Kernel, tuple[Values, ...]]:
    k = expand_text(CHAIN.replace("warps 4", "warps 2"))
    sizes = ((1, 2), (1, 3), (2, 2))
    flat = {"y": np.float32, "part": np.float32}
    return k, tuple(
        {"x": _z(r, s, 128, dtype=np.float32), "flags": _z(r, dtype=np.int32)}
        | {n: _z(r, 128, dtype=d) for n, d in flat.items()}
        for r, s in sizes
    )


def _corpus() -> dict[str, Callable[[], tuple[x.Kernel, tuple[Values, ...]]]]:
    def of_gemm(**points: int) -> Callable[[], tuple[x.Kernel, tuple[Values, ...]]]:
        def make() -> tuple[x.Kernel, tuple[Values, ...]]:
            k = gemm(**points)
            return k, _gemm(k, ((128, points["bn"], 64), (200, points["bn"], 64 * points["stages"] + 8)))

        return make

    def rows(path: str, name: str, n: int) -> Callable[[], tuple[x.Kernel, tuple[Values, ...]]]:
        def make() -> tuple[x.Kernel, tuple[Values, ...]]:
            k = _example(path, name, {})
            more = {"g": _z(n), "eps": 1e-5} if name == "rmsnorm" else {}
            return k, ({"x": _z(2, n), "y": _z(2, n), **more},)

        return make

    return {
        "gemm_64x2": of_gemm(bn=64, stages=2),
        "gemm_64x3": of_gemm(bn=64, stages=3),
        "gemm_128x2": of_gemm(bn=128, stages=2),
        "softmax_long": rows("examples/softmax.cake", "softmax_long", 8200),
        "rmsnorm": rows("examples/rmsnorm.cake", "rmsnorm", 1000),
        "attention_80": lambda: _attention(80),
        "attention_128": lambda: _attention(128),
        "kda": _kda,
        "decode": _decode,
        "half_norms": _norms,
        "chain": _chain,
    }


@cache
def corpus() -> tuple[Parent, ...]:
    """Kernels of the examples at small points."""
    found = []
    for name, make in _corpus().items():
        kernel, launches = make()
        found.append(Parent(name, "corpus", kernel, launches, 2 if name == "chain" else 1))
    return tuple(found)


def parents() -> tuple[Parent, ...]:
    """All of them."""
    return (*synthetic(), *programs(), *corpus())
