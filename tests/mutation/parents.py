"""The kernels that mutants are made of, each with the launches on which truth and checker are asked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from cake.ir import expanded as x
from cake.ir.dtypes import numpy_dtype
from cake.ir.expr import Const
from tests.expanded.gemm import gemm
from tests.litmus.catalogue import kernel as litmus
from tests.litmus.catalogue import verdicts
from tests.mutation.kernels import SOURCES, Source, walks
from tests.mutation.kernels import zeros as arguments
from tests.mutation.rings import Ring, copies, exchange, ring, stores, turns

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


GEMMS = {"gemm_64x2": (64, 2), "gemm_64x3": (64, 3), "gemm_128x2": (128, 2)}
"""Products of ``tests.expanded.gemm``: columns and stages."""


def _product(name: str) -> Parent:
    bn, stages = GEMMS[name]
    k = gemm(bn=bn, stages=stages)
    sizes = ((128, bn, 64), (200, bn, 64 * stages + 8))
    launches = tuple(arguments(k, dict(zip("MNK", size, strict=True))) for size in sizes)
    return Parent(name, "corpus", k, launches)


@cache
def corpus() -> tuple[Parent, ...]:
    """Kernels of files: the examples and the expert corpus at small points."""
    return (*map(_product, GEMMS), *(_read(s, "corpus") for s in SOURCES))


@cache
def walking() -> tuple[Parent, ...]:
    """Instances that take every n-th tile of a walk."""
    return tuple(_read(s, "synthetic") for s in walks())


def _read(s: Source, family: str) -> Parent:
    k = s.expanded()
    return Parent(s.name, family, k, tuple(arguments(k, size) for size in s.sizes), s.ctas)


def parents() -> tuple[Parent, ...]:
    """All of them."""
    return (*synthetic(), *walking(), *programs(), *corpus())
