"""flash-kmeans and flashlib, the peers of kmeans.py: calls of their assignment, update and iteration, and a grid of configurations
of flashlib's Triton kernel, compiled by many processes at once.

Both libraries' kernels are the same loop (a program holds BLOCK_N points and walks the centroids in blocks of BLOCK_K);
flash-kmeans adds the norms of the points, which flashlib leaves out. So the grid is of flashlib's. Every argument of them but the
pointers is a constant of the Triton kernel: each shape is compiled anew.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

Config = dict[str, int]
Cell = tuple[int, int, int, int]
"""Batches, points, centroids, depth."""

GRID: tuple[Config, ...] = tuple(
    {"BLOCK_N": n, "BLOCK_K": k, "num_warps": w, "num_stages": s}
    for n, k, w, s in itertools.product((64, 128, 256), (64, 128), (4, 8), (1, 2, 3, 4))
)
"""48 configurations; it has those that either library chooses on an H200 at these shapes."""

FEW: tuple[Config, ...] = tuple(
    dict(zip(("BLOCK_N", "BLOCK_K", "num_warps", "num_stages"), c, strict=True))
    for c in ((128, 64, 4, 1), (128, 64, 4, 3), (128, 64, 8, 3), (128, 128, 8, 1), (128, 128, 8, 2), (64, 128, 4, 4))
)
"""Those among which an iteration's assignment is chosen."""

UPDATE_BLOCKS = (64, 128, 256)
"""Points a program of the update; the libraries choose the last."""

MOST_PROCESSES = 16


def _without_tqdm() -> None:
    """The libraries import tqdm for their own benchmarks only."""
    try:
        import tqdm  # type: ignore[import-untyped]  # noqa: F401
    except ImportError:
        stub = types.ModuleType("tqdm")
        stub.trange = range  # type: ignore[attr-defined]
        stub.tqdm = lambda items, *_, **__: items  # type: ignore[attr-defined]
        sys.modules["tqdm"] = stub


def flashlib() -> tuple[Any, Any] | None:
    """flashlib's modules of assignment and update; None where it cannot be imported."""
    _without_tqdm()
    try:
        from flashlib.primitives.kmeans.triton import assign, update
    except ImportError as e:
        print(f"flashlib: {e}", flush=True)
        return None
    return assign, update


def flash_kmeans() -> tuple[Any, Any] | None:
    """The same of flash-kmeans."""
    _without_tqdm()
    try:
        from flash_kmeans import assign_euclid_triton, centroid_update_triton
    except ImportError as e:
        print(f"flash-kmeans: {e}", flush=True)
        return None
    return assign_euclid_triton, centroid_update_triton


# ---- calls ----------------------------------------------------------------------------------------------------------


def assign_call(library: Any, x: Any, c: Any, norms: Any, out: Any, config: Config | None) -> Callable[[], Any]:
    """flashlib's assignment alone, with |c|^2 at hand; None: the configuration that the library chooses."""
    return lambda: library[0].euclid_assign_triton(x, c, out=out, c_sq=norms, config=config)


def older_assign_call(library: Any, x: Any, c: Any, norms: Any, out: Any, config: Config | None) -> Callable[[], Any]:
    """flash-kmeans' assignment alone, with |c|^2 and |x|^2 (in the type of x, as it makes them) at hand."""
    points = (x**2).sum(dim=-1)
    return lambda: library[0].euclid_assign_triton(x, c, points, out=out, c_sq=norms, config=config)


def update_call(torch: Any, library: Any, x: Any, ids: Any, c: Any, block: int) -> Callable[[], Any]:
    """flashlib's update with buffers that are there already: sort, sums of runs, means and how far they moved."""
    b, k, d = c.shape
    sums = torch.zeros((b, k, d), dtype=torch.float32, device=x.device)
    counts = torch.zeros((b, k), dtype=torch.int32, device=x.device)
    new, moved = torch.empty_like(c), torch.empty((b, k), dtype=torch.float32, device=x.device)

    def call() -> Any:
        library[1].triton_lloyd_centroid_step_euclid(
            x, ids, c, BLOCK_N=block, sums_buf=sums, cnts_buf=counts, new_buf=new, shift_buf=moved
        )
        return new

    return call


def older_update_call(library: Any, x: Any, ids: Any, c: Any) -> Callable[[], Any]:
    """flash-kmeans' update, as its iteration calls it."""
    return lambda: library[1].triton_centroid_update_sorted_euclid(x, ids, c)


def step_call(torch: Any, library: Any, x: Any, c: Any, config: Config | None, block: int) -> Callable[[], Any]:
    """flashlib's iteration."""
    ids = torch.empty(x.shape[:2], dtype=torch.int32, device=x.device)
    update = update_call(torch, library, x, ids, c, block)

    def call() -> Any:
        library[0].euclid_assign_triton(x, c, out=ids, config=config)
        return update()

    return call


def older_step_call(library: Any, x: Any, c: Any) -> Callable[[], Any]:
    """flash-kmeans' iteration (norms of the points are made once, before the first)."""
    points = (x**2).sum(dim=-1)

    def call() -> Any:
        ids = library[0].euclid_assign_triton(x, c, points)
        new = library[1].triton_centroid_update_sorted_euclid(x, ids, c)
        return new, (new - c).norm(dim=-1).max()

    return call


# ---- compiling the grid ---------------------------------------------------------------------------------------------

Job = tuple[str, Cell, Config]
"""Which kernel, for which shape, and its constants (none: those that the library chooses)."""


def _compile(job: Job) -> str | None:
    """One configuration for one shape, into Triton's cache; what went wrong, if anything did."""
    import torch

    kind, (b, n, k, d), config = job
    library = flash_kmeans() if kind.startswith("older") else flashlib()
    if library is None:
        return f"{kind}: not there"
    x, f, i = torch.bfloat16, torch.float32, torch.int32
    points, centroids, labels = (n * d, d, 1), (k * d, d, 1), (n, 1)
    strides: tuple[int, ...]
    try:
        if not config:
            config = library[0]._heuristic_euclid_config(n, k, d, device=torch.device("cuda"), dtype=x)
        if kind == "assign":
            strides = (*points, *centroids, k, 1, *labels)
            library[0]._euclid_assign_kernel.warmup(x, x, f, i, b, n, k, d, *strides, grid=(1,), **config)
        elif kind == "older assign":
            strides = (*points, *centroids, *labels, k, 1, *labels)
            kernel = library[0]._euclid_assign_kernel
            kernel.warmup(x, x, x, f, i, b, n, k, d, *strides, D_PAD=d, grid=(1,), **config)
        else:
            width = {"D_PAD" if kind.startswith("older") else "BLOCK_D": d}
            strides = (*points, *labels, *labels, *centroids, k, 1)
            kernel = library[1]._centroid_update_chunk_kernel
            kernel.warmup(x, i, i, f, i, *strides, b, n, d, k, grid=(1,), **width, **config)
    except Exception as e:  # a configuration that does not fit is one that cannot win
        return f"{job}: {type(e).__name__}: {str(e)[:120]}"
    return None


def jobs(cells: Sequence[Cell], grid: Sequence[Config], updates: bool) -> list[Job]:
    """What a run compiles: the grid, and with ``updates`` the kernels that add points."""
    out: list[Job] = [("assign", cell, config) for cell in cells for config in (*grid, {})]
    out += [("older assign", cell, {}) for cell in cells]
    for cell in cells if updates else ():
        out += [("update", cell, {"BLOCK_N": size}) for size in UPDATE_BLOCKS]
        out.append(("older update", cell, {"BLOCK_N": UPDATE_BLOCKS[-1]}))
    return out


def compile_all(wanted: Sequence[Job]) -> list[str]:
    """Compile by as many processes as there are processors; the messages of what failed."""
    count = max(1, min(MOST_PROCESSES, os.cpu_count() or 1, len(wanted)))
    with multiprocessing.get_context("spawn").Pool(count) as pool:
        return [m for m in pool.imap_unordered(_compile, wanted, chunksize=2) if m]
