"""Every way a compilation can fail is a diagnostic on the author's line."""

from __future__ import annotations

from pathlib import Path

import pytest

from cake.codegen import messages, nvrtc
from cake.diagnostics import CakeError, Diagnostic
from tests.codegen.sources import SCALE, SERIAL

try:
    nvrtc.bindings()
except CakeError:
    pytest.skip("NVRTC is not installed", allow_module_level=True)


def failed(source: str, arch: str = "sm_90a", **options: object) -> list[Diagnostic]:
    with pytest.raises(CakeError) as e:
        nvrtc.compile_source(source, arch, name="k.cu", **options)  # type: ignore[arg-type]
    assert all(d.help and d.severity == "error" for d in e.value.diagnostics)
    return list(e.value.diagnostics)


def place(d: Diagnostic) -> tuple[str, int] | None:
    return (d.span.file, d.span.line) if d.span else None


def test_compiles() -> None:
    c = nvrtc.compile_source(SCALE, "sm_90a", name="k.cu")
    assert c.cubin.startswith(b"\x7fELF")
    assert ".target sm_90a" in c.ptx
    assert "Used" in c.log and "\0" not in c.log
    assert c.compiler_version.startswith("NVRTC ")
    assert not c.diagnostics


def test_an_error_points_at_the_cake_line() -> None:
    (d,) = failed(SCALE.replace("x[at] * s", "x[at] * t"))
    assert d.code == "G002" and place(d) == ("dir/scale.cake", 10)
    assert '"t" is undefined' in d.message


def test_an_error_in_code_of_no_line_points_at_the_nearest() -> None:
    source = SCALE + '#line 20 "k.cu"\nint f() { return nothing; }\n'
    (d,) = failed(source)
    assert place(d) == ("dir/scale.cake", 10)
    (d,) = failed("int f() { return nothing; }\n" + SCALE)
    assert d.span is None and "k.cu:1" in d.facts[0]


def test_a_ptx_error_points_at_the_cake_line() -> None:
    found = failed(SCALE.replace("int at =", 'asm volatile("foo.bar;"); int at ='))
    assert {d.code for d in found} == {"G004"}
    assert {place(d) for d in found} == {("dir/scale.cake", 9)}
    assert any("foo" in d.message for d in found)


def test_too_much_shared_memory() -> None:
    source = (
        'extern "C" __global__ void k() { __shared__ char b[300000]; b[threadIdx.x] = 1; b[5] = b[threadIdx.x + 7]; }'
    )
    (d,) = failed(source)
    assert d.code == "W701"


def test_serialised_wgmma() -> None:
    found = failed(SERIAL)
    assert {d.code for d in found} == {"W713"}
    assert ("dir/serial.cake", 20) in {place(d) for d in found}
    assert any("C7511" in d.facts[0] for d in found)
    c = nvrtc.compile_source(SERIAL, "sm_90a", name="k.cu", allow=("W713",))
    assert {d.severity for d in c.diagnostics} == {"warning"}


def test_ignored_setmaxnreg() -> None:
    source = (
        'extern "C" __global__ void k() {\n#line 4 "a.cake"\n asm volatile("setmaxnreg.inc.sync.aligned.u32 232;"); }'
    )
    (d,) = failed(source)
    assert d.code == "G007" and place(d) == ("a.cake", 4)


def test_architectures_and_options() -> None:
    (d,) = failed(SCALE, "sm_33")
    assert d.code == "G003" and "sm_90" in d.facts[0]
    (d,) = failed(SCALE, "hopper")
    assert d.code == "G003"
    (d,) = failed(SCALE, options=("--no-such-option",))
    assert d.code == "G005"


def test_headers() -> None:
    c = nvrtc.compile_source(
        '#include "a.cuh"\nextern "C" __global__ void k(int* p) { *p = A; }',
        "sm_80",
        name="k.cu",
        headers={"a.cuh": "#define A 1\n"},
    )
    assert c.cubin


def test_missing_nvrtc(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> object:
        raise ImportError("no module named cuda")

    monkeypatch.setattr(nvrtc, "_load", missing)
    nvrtc.bindings.cache_clear()
    try:
        (d,) = failed(SCALE)
    finally:
        nvrtc.bindings.cache_clear()
    assert d.code == "G001" and d.help and "pip install" in d.help


def test_columns_are_read_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "k.cake"
    path.write_text("first\n    second line\n")
    span = messages.line_span(str(path), 2)
    assert (span.column, span.end_column) == (5, 16)
    assert messages.line_span("missing.cake", 3).line == 3


@pytest.mark.parametrize("log", ["", "\n\n", "ptxas info : ", "a(1): error:", "x" * 10000, "ptxas fatal   : odd"])
def test_any_log_parses(log: str) -> None:
    messages.parse(log)
