"""The generated source as a whole: parameters, names, roles, line directives, the golden GEMM; and what only ptxas
decides."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from cake.codegen import emit, nvrtc, parameters
from cake.codegen.report import disassemble, report
from cake.compiler import expand_file
from cake.diagnostics import CakeError, Span
from cake.ir import expanded as x
from tests.codegen import probes
from tests.codegen.build import COL, ROW, ap, assign, cast, elems, kernel, let, reg, store, sym, tensor, tile
from tests.examples import EXAMPLES
from tests.expanded.gemm import gemm

GOLDEN = Path(__file__).parent / "golden" / "gemm.cu"

try:
    nvrtc.bindings()
    NVRTC = True
except CakeError:
    NVRTC = False
compiles = pytest.mark.skipif(not NVRTC, reason="NVRTC is not installed")


def test_golden_gemm() -> None:
    """The text of the GEMM. After a change on purpose: CAKE_UPDATE_GOLDEN=1 pytest tests/codegen/test_emit.py"""
    source = emit(gemm())
    if os.environ.get("CAKE_UPDATE_GOLDEN"):
        GOLDEN.write_text(source)
    assert source == GOLDEN.read_text()


def test_parameters() -> None:
    k = gemm()
    assert [(p.kind, p.name) for p in parameters(k)] == [
        ("tensor", "a"), ("tensor", "b"), ("tensor", "c"), ("dim", "M"), ("dim", "K"), ("dim", "N"),
        ("map", "a.map"), ("map", "b.map"), ("map", "c.map"),
    ]  # fmt: skip
    strided = kernel("k", (), tensors=(tensor("x", "f32", "A", "B", "C", strided=True),))
    strides = [p for p in parameters(strided) if p.kind == "stride"]
    assert [(p.name, p.axis, p.ctype) for p in strides] == [("x", 0, "int64_t"), ("x", 1, "int64_t")]


def test_names_cannot_clash() -> None:
    """Symbols, tiles and tensors called like C++ words, like each other, like what the emitter uses itself."""
    t = tile("f32", 64, 8)
    body: list[x.Node] = [
        let("lane", 1),
        let("for", ap("+", sym("lane"), sym("int"))),
        let("at", sym("for")),
        let("limit", ap("+", sym("at"), 1)),
        let("t.x", sym("limit")),
        let("t_x", sym("t.x")),
        assign(reg("float"), cast(ap("+", ap("+", COL, sym("t_x")), sym("lane")), "f32")),
        store(
            x.Ref(base="p", subs=elems(ROW, COL)),
            reg("float"),
            t,
            where=ap("<", ap("+", ROW, sym("limit")), sym("int")),
        ),
    ]
    k = kernel("kernel", body, tensors=(tensor("p", "f32", "int", 8, out=True),), tiles={"float": t})
    source = emit(k)
    names = re.findall(r"(?:const int|float) (\w+)(?: =|\[)", source)
    assert {"lane_", "for_", "t_x", "t_x_", "float_"} <= set(names)
    if NVRTC:
        nvrtc.compile_source(source, "sm_90a", name="k.cu")


def test_renaming_changes_no_code() -> None:
    if not NVRTC:
        pytest.skip("NVRTC is not installed")
    k = gemm(bn=128)
    text = k.model_dump_json()
    renamed = x.Kernel.model_validate_json(
        text.replace('"acc"', '"sum"').replace('"t.first"', '"begin"').replace('"ab.', '"ring.')
    )
    sass = [disassemble(nvrtc.compile_source(emit(q), "sm_90a", name="k.cu").cubin)[0] for q in (k, renamed)]
    if sass[0] is None:
        pytest.skip("nvdisasm is not installed")
    assert sass[0] == sass[1]


def test_line_directives() -> None:
    """Lines that make code for a statement with a span belong to it; the others to the generated file, at their own
    number."""
    span = Span(file="row.cake", line=7, column=1, end_line=7, end_column=2)
    t = tile("f32", 64, 8)
    body: list[x.Node] = [
        let("n", 3),
        assign(reg("v"), cast(ROW, "f32")).model_copy(update={"span": span}),
        store(x.Ref(base="y", subs=elems(ROW, COL)), reg("v"), t),
    ]
    source = emit(
        kernel("k", body, tensors=(tensor("y", "f32", 64, 8, out=True),), tiles={"v": t}), "k.cu"
    ).splitlines()
    at = source.index('#line 7 "row.cake"')
    assert "v[" in source[at + 1]
    back = next(n for n in range(at + 1, len(source)) if source[n].startswith("#line"))
    assert source[back] == f'#line {back + 2} "k.cu"'
    assert "#line" not in emit(
        kernel("k", body, tiles={"v": t}, tensors=(tensor("y", "f32", 64, 8, out=True),)), lines=False
    )


def test_gaps_between_roles() -> None:
    base = kernel("k", (x.SyncWarp(),), warps=4)
    one = base.roles[0]
    roles = (one.model_copy(update={"name": "a", "warps": 1}), one.model_copy(update={"name": "b", "first_warp": 4}))
    source = emit(base.model_copy(update={"roles": roles, "threads": 288}))
    assert "if (warp_id < 1)\n        role_a(" in source
    assert "else if (warp_id >= 4 && warp_id < 8)\n        role_b(" in source


def test_scalars_live_where_they_are_used() -> None:
    """A scalar set in a branch and used after it is a variable of the function; one used in its block is a constant
    there."""
    body: list[x.Node] = [
        let("a", 1),
        x.If(cond=ap(">", sym("M"), 1), then=(let("a", 2), let("b", ap("+", sym("a"), 1)), let("c", sym("b")))),
        store(x.Ref(base="y", subs=elems(sym("a"))), cast(sym("c"), "f32"), None),
    ]
    source = emit(kernel("k", body, tensors=(tensor("y", "f32", "M", out=True),)))
    assert "    int a;\n" in source and "    int c;\n" in source and "const int b = a + 1;" in source


def test_what_has_no_emission_is_refused() -> None:
    """With a diagnostic, not a wrong kernel."""
    t = tile("f32", 64, 8)
    cases: list[tuple[list[x.Node], str]] = [
        ([x.Wait(barrier="bar", slot=x.Slot(cursor="c"))], "stages"),
        ([assign(reg("v"), reg("v", cols=(0, 4)))], "broadcast"),
    ]
    for body, word in cases:
        k = kernel(
            "k", body, tiles={"v": t}, cursors={"c": 3}, barriers=(x.Barrier(name="bar", count=1, slots=2, offset=0),)
        )
        with pytest.raises(CakeError) as e:
            emit(k)
        assert e.value.diagnostics[0].code == "G020" and word in e.value.diagnostics[0].message


# ---- what only ptxas decides ----------------------------------------------------------------------------------------

PROBES: dict[str, tuple[Callable[[], x.Kernel], str, int]] = {
    "gemm": (gemm, "sm_90a", 168),
    "kmeans": (probes.kmeans, "sm_90a", 96),
    "attention": (probes.attention, "sm_90a", 168),
    "gemm_ampere": (probes.ampere, "sm_80", 128),
}


@compiles
@pytest.mark.parametrize("name", PROBES)
def test_probes(name: str) -> None:
    """No wgmma group is serialised (that would raise), nothing spills, registers stay within what was measured to be
    enough."""
    build, target, registers = PROBES[name]
    k = build()
    c = nvrtc.compile_source(emit(k), target, name=f"{name}.cu")
    r = report(c.cubin, kernel=k.name, log=c.log, sass="")
    assert not c.diagnostics
    assert not r.spills and r.stack_bytes == 0 and r.registers <= registers


@compiles
def test_gemm_main_loop() -> None:
    """One iteration: four HGMMA, one wait, and few instructions around them; no division, no moves to uniform
    registers."""
    c = nvrtc.compile_source(emit(gemm()), "sm_90a", name="gemm.cu")
    sass, note = disassemble(c.cubin)
    if sass is None:
        pytest.skip(note or "")
    lines = [line for line in sass.splitlines() if re.search(r"HGMMA|BRA|TRYWAIT|^\s*/\*[0-9a-f]{4}\*/", line)]
    products = [n for n, line in enumerate(lines) if "HGMMA" in line]
    assert len(products) == 4
    start = max(n for n in range(products[0]) if "TRYWAIT" in lines[n])
    end = next(
        n for n in range(products[-1], len(lines)) if "BRA" in lines[n] and "L_x" in lines[n] and n > products[-1] + 6
    )
    body = lines[start:end]
    assert len(body) < 60
    assert not any(word in line for line in body for word in ("R2UR", "I2F", "MUFU", "LDL", "STL"))


@compiles
def test_a_row_for_an_accumulator_takes_no_moves() -> None:
    """k-means: what the accumulators start from is loaded into both rows of a thread, so that nothing stands between the turn at the
    tensor cores and the product."""
    k = expand_file(EXAMPLES / "kmeans.cake", kernel="assign")
    c = nvrtc.compile_source(emit(k), "sm_90a", name="assign.cu")
    sass, note = disassemble(c.cubin)
    if sass is None:
        pytest.skip(note or "")
    lines = sass.splitlines()
    product = next(n for n, line in enumerate(lines) if "HGMMA" in line)
    turn = max(n for n in range(product) if "BAR.SYNC" in lines[n])
    assert not any(re.search(r"\b(IMAD\.)?MOV", line) for line in lines[turn:product])
