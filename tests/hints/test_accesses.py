"""H952 and H953: banks and sectors, against the counters of an H200 and on kernels whose conflicts are known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cake.codegen import emit
from cake.codegen.emit import access_widths
from cake.compiler import expand_file, expand_text
from cake.diagnostics import Diagnostic
from cake.hints.accesses import access_hints
from cake.hints.banks import of_addresses
from cake.hints.lanes import Requests, held
from cake.hints.sectors import traffic
from cake.hints.watch import watch
from cake.ir import expanded as x
from cake.ir.layout import Layout, RegisterMap

ROOT = Path(__file__).parents[2]
MEASURED: dict[str, Any] = json.loads((Path(__file__).with_name("wavefronts.json")).read_text(encoding="utf-8"))

COPY = """\
kernel k(x: {dtype}[M, N], out y: {dtype}[M, N]) for sm_90a:
    where M % {rows} == 0, N % {cols} == 0

    tiles once:
        m in M // {rows}
        n in N // {cols}

    role group: warps 4

    smem block: {dtype}[{rows}, {cols}] {layout}

    do group:
        v: {dtype}[{rows}, {cols}] {spread}
        for t in tiles:
            r = t.m * {rows} + rows(v)
            c = t.n * {cols} + cols(v)
            v = load(x[r, c])
            store(block[rows(v), cols(v)], v)
            sync()
            v = load(block[{index}])
            store(y[r, c], v)
"""


def hints(kernel: x.Kernel) -> list[Diagnostic]:
    seen = watch(kernel)
    assert seen is not None
    return access_hints(kernel, seen)


def copy(**changes: Any) -> x.Kernel:
    """A tile through shared memory, read back as ``index`` says."""
    plain = {"dtype": "f32", "rows": 32, "cols": 32, "layout": "", "spread": "spread(1)", "index": "cols(v), rows(v)"}
    return expand_text(COPY.format(**{**plain, **changes}))


@pytest.mark.parametrize("name", MEASURED["counted"])
def test_model_counts_as_the_device_does(name: str) -> None:
    instruction, digits = name.split()
    size = int(digits)
    for offsets, counted in zip(MEASURED["offsets"], MEASURED["counted"][name], strict=True):
        at = np.array([[o // size * size % 32768 for o in offsets]])
        on = np.ones_like(at, dtype=bool)
        if "global" in instruction:
            assert traffic(Requests(at, on, size), 1).touched == counted
            continue
        if "matrix" in instruction:
            at, on = at.reshape(4, 8), on.reshape(4, 8)
        assert of_addresses(at, on, size, loads=instruction == "ld.shared").wavefronts == counted


def test_lanes_that_do_nothing_meet_nobody() -> None:
    at = np.arange(32)[None, :] * 128
    on = np.zeros((1, 32), dtype=bool)
    assert of_addresses(at, on, 4, loads=True).wavefronts == 0
    on[0, :3] = True
    assert of_addresses(at, on, 4, loads=True).wavefronts == 3


@pytest.mark.parametrize(
    ("changes", "degree"),
    [
        ({}, 32),
        ({"layout": "pad(1)"}, None),
        ({"layout": "pad(2)"}, 2),
        ({"layout": "pad(16)"}, 16),
        ({"index": "rows(v), cols(v)"}, None),
        ({"spread": "spread(4)", "index": "rows(v), 31 - cols(v)"}, 4),
        ({"dtype": "bf16", "cols": 64, "rows": 64, "index": "cols(v), rows(v)"}, 32),
        ({"dtype": "bf16", "cols": 64, "rows": 64, "layout": "swizzle(128)", "index": "cols(v), rows(v)"}, 4),
    ],
)
def test_degree_of_a_transposing_read(changes: dict[str, Any], degree: int | None) -> None:
    found = hints(copy(**changes))
    if degree is None:
        assert not found
        return
    (d,) = found
    assert d.code == "H952" and d.severity == "hint" and f"has {degree}-way bank conflicts" in d.message
    assert d.span is not None and d.labels[0].span is not None


def test_the_way_out_is_free_of_conflicts() -> None:
    (d,) = hints(copy())
    assert d.help is not None and "pad(1)" in d.help
    (d,) = hints(copy(dtype="bf16", cols=64, rows=64))
    assert d.help is not None and "pad(" in d.help
    layout = d.help.split("] ")[-1].strip("`")
    assert not hints(copy(dtype="bf16", cols=64, rows=64, layout=layout))


def test_matrices_of_ldmatrix_are_phases() -> None:
    text = """\
kernel k(x: bf16[M, 64], out y: f32[M]) for sm_90a:
    tiles once:
        m in cdiv(M, 16)

    role one: warps 1

    smem left: bf16[16, 64] pad(8)

    do one:
        v: bf16[16, 64] spread(8)
        for t in tiles:
            r = t.m * 16 + rows(v)
            v = load(x[r, cols(v)], where=r < M)
            store(left[rows(v), cols(v)], v)
            sync()
            s = sum(f32(ldmatrix(left)), axis=1)
            store(y[t.m * 16 + rows(s)], s, where=t.m * 16 + rows(s) < M)
"""
    assert not hints(expand_text(text))
    (d,) = hints(expand_text(text.replace(" pad(8)", "")))
    assert "`ldmatrix` from `left` has 8-way bank conflicts: 128 wavefronts where 16 would do" in d.message
    assert d.help is not None and d.help.endswith("pad(8)`")
    assert not hints(expand_text(text.replace("pad(8)", "swizzle(128)")))


def test_buffers_of_the_engines_are_swizzled_not_padded() -> None:
    text = (ROOT / "examples" / "gemm.cake").read_text(encoding="utf-8")
    assert not hints(expand_text(text))
    (d,) = hints(expand_text(text.replace("c: bf16[64, 64] swizzle(128)", "c: bf16[64, 64]")))
    assert d.code == "H952" and "`stmatrix` to `cs.c`" in d.message
    assert d.help is not None and "swizzle(128)" in d.help


def test_sectors_of_a_transposed_load() -> None:
    kernel = expand_text(
        COPY.format(
            dtype="f32", rows=32, cols=32, layout="pad(1)", spread="spread(1)", index="cols(v), rows(v)"
        ).replace("v = load(x[r, c])", "v = load(x[t.m * 32 + cols(v), t.n * 32 + rows(v)])")
    )
    (d,) = hints(kernel)
    assert (
        d.code == "H953"
        and "`load` from `x` touches 32 sectors of 32 bytes a request where its bytes fill 4" in d.message
    )


def test_a_predicate_that_splits_vectors_is_told() -> None:
    text = """\
kernel k(x: bf16[M, N], n: i32[M], out y: bf16[M, N]) for sm_90a:
    where N % 8 == 0, N <= 1024

    tiles once:
        m in M

    role row: warps 4

    do row:
        v: bf16[1, 1024] spread(8)
        for t in tiles:
            i = load(n[t.m])
            v = load(x[t.m, cols(v)], where=cols(v) < N)
            u = f32(v)
            v = load(x[t.m, cols(v)], where=u >= 0.0 and cols(v) < N, other=0.0)
            store(y[t.m, cols(v)], v, where=cols(v) < N and i > 0)
"""
    (d,) = hints(expand_text(text))
    assert d.code == "H953" and d.help is not None and "predicate comes from a tile" in d.help


def test_widths_are_those_of_the_emitted_code() -> None:
    kernel = expand_file(ROOT / "examples" / "softmax.cake", kernel="softmax")
    widths = set(access_widths(kernel).values())
    assert widths >= {8} and "load_global_nc<4>" in emit(kernel)  # eight bf16 are four words


@pytest.mark.parametrize("layout", [Layout(kind="frag"), Layout(kind="spread", vector=4), Layout(kind="rowwise")])
def test_held_is_the_register_map(layout: Layout) -> None:
    rows, cols, valid = held(128, 16, layout, 128)
    registers = RegisterMap(128, 16, layout, 128)
    assert valid.all()
    for thread, register in ((0, 0), (5, 3), (37, 7), (127, registers.count - 1)):
        assert (rows[thread, register], cols[thread, register]) == registers.element(thread, register)
