"""H955 and H956: occupancy from a report, and registers that tiles hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from cake.codegen.report import Report
from cake.compiler import expand_file, expand_text
from cake.diagnostics.codes import explain
from cake.hints import built_hints
from cake.hints.occupancy import occupancy
from cake.hints.registers import predicted_hints, pressure
from cake.ir import expanded as x

ROOT = Path(__file__).parents[2]


def report(registers: int, shared: int = 0, **more: int) -> Report:
    return Report(kernel="k", registers=registers, dynamic_shared_bytes=shared, **more)  # type: ignore[arg-type]


def of_threads(threads: int, target: str = "sm_90a") -> x.Kernel:
    kernel = expand_file(ROOT / "examples" / "softmax.cake", kernel="softmax_long", target="sm_90a")
    return kernel.model_copy(update={"threads": threads, "target": target})


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "ctas", "limit"),
    [
        (32, 16, 65536, 3, "shared memory"),  # what Nsight Compute says of this launch on an H200
        (32, 16, 0, 32, "the number of CTAs"),
        (256, 72, 512, 3, "registers"),
        (256, 64, 512, 4, "registers"),
        (256, 16, 0, 8, "threads"),
        (384, 168, 229440, 1, "registers"),
        (128, 32, 115712, 2, "shared memory"),
        (128, 32, 115713, 1, "shared memory"),
    ],
)
def test_ctas_an_sm(threads: int, registers: int, shared: int, ctas: int, limit: str) -> None:
    found = occupancy(of_threads(threads), report(registers, shared))
    assert found.ctas == ctas and found.by[limit] == ctas and limit in found.text


def test_fewer_fit_an_ampere_consumer_chip() -> None:
    assert occupancy(of_threads(256, "sm_86"), report(40)).ctas == 6
    assert occupancy(of_threads(32, "sm_86"), report(16)).ctas == 16


def test_one_more_cta_by_little() -> None:
    (d,) = built_hints(of_threads(256), report(72, 512))
    assert d.code == "H955" and d.message.endswith("it would hold 4 with 64 registers a thread instead of 72")
    assert d.help is not None and "`registers 64`" in d.help
    assert not built_hints(of_threads(256), report(80, 512))  # sixteen too many
    (d,) = built_hints(of_threads(128), report(32, 117_000))
    assert d.message.endswith("it would hold 2 with 115,712 bytes of shared memory instead of 117,000")
    assert not built_hints(of_threads(128), report(32, 130_000))


def test_chosen_registers_are_left_alone() -> None:
    kernel = of_threads(256).model_copy(update={"launch_registers": 72})
    assert not built_hints(kernel, report(72, 512))


def test_tiles_that_are_held() -> None:
    kernel = expand_file(ROOT / "examples" / "gemm.cake")
    load, math = pressure(kernel)
    assert (load.held, load.budget) == (0, 40)
    assert (math.tiles, math.budget, math.text) == ({"acc": 128}, 232, "math 128 of 232 (acc)")
    attention = {p.role: p for p in pressure(expand_file(ROOT / "examples" / "attention.cake"))}["math"]
    assert dict(attention.parts)["o"] == dict(attention.parts)["s"] == 64 and dict(attention.parts)["p"] == 32


def test_a_tile_over_its_budget_is_told_before_it_is_built() -> None:
    page = explain("H956")
    assert page.fail is not None and page.good is not None
    (d,) = predicted_hints(expand_text(page.fail))
    assert "take 192 registers a thread here, and it may have 184" in d.message
    assert not predicted_hints(expand_text(page.good))


def test_spills_are_told_beside_what_is_held() -> None:
    kernel = expand_file(ROOT / "examples" / "gemm.cake")
    spilled = report(168, 229440, stack_bytes=64, spill_store_bytes=96, spill_load_bytes=128)
    (d,) = [h for h in built_hints(kernel, spilled) if h.code == "H956"]
    assert any("96 bytes stored and 128 bytes loaded" in fact for fact in d.facts)
    assert any("acc 128" in fact for fact in d.facts) and d.labels[0].span is not None
