"""Reports of real cubins, and artifacts written, read and launched."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cake.cache import Cache
from cake.codegen import build as build_module
from cake.codegen import elf, nvrtc
from cake.codegen.build import Stamp, build, read, write
from cake.codegen.report import disassemble, report, tool
from cake.diagnostics import CakeError
from cake.runtime import load
from tests.codegen.sources import SCALE, SPILLS
from tests.runtime.fakes import FakeTensor, at, fake_driver
from tests.runtime.test_launch import scaled

try:
    nvrtc.bindings()
except CakeError:
    pytest.skip("NVRTC is not installed", allow_module_level=True)


def test_report_of_a_kernel_that_uses_local_memory() -> None:
    c = nvrtc.compile_source(SPILLS, "sm_90a", name="k.cu")
    r = report(c.cubin, kernel="spills", log=c.log)
    assert r.stack_bytes == 256 and r.spills and 8 < r.registers <= 64
    assert r.parameter_bytes == (8, 4)
    assert r.code_bytes > 1000
    if tool("nvdisasm"):
        assert r.opcodes and (r.count("LDL") or 0) > 0 and (r.count("LDG") or 0) >= 64
        assert "LDL" in r.render()
    assert "256 B stack" in r.render()


def test_the_report_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    c = nvrtc.compile_source(SCALE, "sm_90a", name="k.cu")
    monkeypatch.setattr("cake.codegen.report.tool", lambda name: None)
    r = report(c.cubin, kernel="scale", log=c.log)
    assert r.opcodes is None and r.note and "nvdisasm" in r.note
    assert r.note in r.render()
    assert r.spill_store_bytes == 0 and not r.spills


def test_registers_agree_with_ptxas() -> None:
    c = nvrtc.compile_source(SCALE, "sm_90a", name="k.cu")
    (k,) = elf.kernels(c.cubin)
    assert f"Used {k.registers} registers" in c.log
    assert k.max_threads == 128 and k.name == "scale"
    assert k.parameters == (8, 8, 4, 4, 4, 4, 8)


@pytest.mark.parametrize("cut", [0, 10, 100, 1000])
def test_damaged_cubins_are_value_errors(cut: int) -> None:
    c = nvrtc.compile_source(SCALE, "sm_90a", name="k.cu")
    with pytest.raises(ValueError, match="ELF"):
        elf.kernels(c.cubin[:cut])


@pytest.mark.skipif(tool("nvdisasm") is None, reason="nvdisasm is not installed")
def test_disassembly() -> None:
    sass, note = disassemble(nvrtc.compile_source(SCALE, "sm_90a", name="k.cu").cubin)
    assert sass and "FFMA" in sass and note is None
    sass, note = disassemble(b"nonsense")
    assert sass is None and note


def test_build_write_read_launch(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    kernel = scaled()
    a = build(kernel, source=SCALE, cache=cache)
    assert a.entry == "scale" and a.stamp == Stamp(proved=False, unproved=("U909",))
    where = write(a, tmp_path / "out", build_module.EMITS if tool("nvdisasm") else ("cu", "ptx", "cubin", "expand"))
    manifest = json.loads((where / "manifest.json").read_text())
    assert manifest["proved"] is False and manifest["unproved"] == ["U909"]
    assert manifest["target"] == "sm_80" and manifest["resources"]["registers"] == a.report.registers
    assert [p["kind"] for p in manifest["parameters"]] == ["tensor"] * 2 + ["scalar"] * 2 + ["dim"] * 2 + ["stride"]
    assert (where / "scale.cu").read_text() == SCALE
    b = read(where)
    assert b.kernel == kernel and b.cubin == a.cubin and b.report == a.report and b.parameters == a.parameters
    driver, library = fake_driver(capability=(8, 0))
    load(where, driver=driver)(
        FakeTensor((5, 8), dtype="float32"), FakeTensor((5, 8), dtype="float32", pointer=at(1)), 2.0, 3
    )
    assert len(library.launches) == 1


def test_the_cache_is_used_and_optional(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Cache(tmp_path)
    a = build(scaled(), source=SCALE, cache=cache)
    monkeypatch.setattr(nvrtc, "compile_source", lambda *a, **k: pytest.fail("compiled again"))
    assert build(scaled(), source=SCALE, cache=cache) == a
    monkeypatch.undo()
    assert build(scaled(), source=SCALE, use_cache=False).cubin == a.cubin


def test_parameters_must_agree(tmp_path: Path) -> None:
    for wrong in (SCALE.replace(", int M", ""), SCALE.replace("int N", "long long N")):
        with pytest.raises(CakeError) as e:
            build(scaled(), source=wrong.replace("i * M", "i"), cache=Cache(tmp_path))
        assert e.value.diagnostics[0].code == "G009"


def test_artifacts_that_cannot_be_read(tmp_path: Path) -> None:
    a = build(scaled(), source=SCALE, cache=Cache(tmp_path / "cache"))

    def code(directory: Path) -> str:
        with pytest.raises(CakeError) as e:
            read(directory)
        assert e.value.diagnostics[0].help
        return e.value.diagnostics[0].code

    assert code(tmp_path / "missing") == "G010"
    out = write(a, tmp_path / "out")
    (out / "scale.cubin").write_bytes(b"other")
    assert code(out) == "G010"
    out = write(a, tmp_path / "source only", ("cu",))
    assert code(out) == "G010"
    (out / "manifest.json").write_text("{")
    assert code(out) == "G010"
    with pytest.raises(CakeError):
        write(a, tmp_path / "x", ("exe",))  # type: ignore[arg-type]
