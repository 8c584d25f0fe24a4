"""Compile CUDA C++ to a cubin with NVRTC from its Python wheel: no CUDA toolkit, no files, no processes.

NVRTC contains ptxas; the cubin is what is shipped, because PTX from an NVRTC newer than the driver is refused at load.
Every failure is a ``CakeError`` that points at the author's line.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from cake.codegen import messages
from cake.codegen.messages import Locate, PtxLines
from cake.diagnostics import CakeError, Diagnostic

BASE_OPTIONS = (
    "--std=c++17",
    "--device-as-default-execution-space",
    "--generate-line-info",
    "--ptxas-options=--verbose",
    "--ptxas-options=--warn-on-spills",
    "--ptxas-options=--warn-on-local-memory-usage",
)
"""What every compilation uses. Line info maps PTX and SASS back to the ``.cake`` file; it does not change the code."""

INSTALL = "pip install 'nvidia-cuda-nvrtc>=13.0,<14' 'cuda-bindings>=13.0,<14'"


@dataclass(frozen=True)
class Compiled:
    """The result of a compilation. ``log`` is what NVRTC and ptxas said; ``diagnostics`` are findings that were
    allowed or do not block."""

    cubin: bytes
    ptx: str
    log: str
    compiler_version: str
    seconds: float
    options: tuple[str, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()


def _fail(code: str, message: str, help: str, *facts: str) -> CakeError:
    return CakeError(Diagnostic(code=code, severity="error", message=message, facts=facts, help=help))


def _load() -> Any:
    """The ``cuda.bindings.nvrtc`` module."""
    from cuda.bindings import nvrtc  # may be absent, and imports slowly

    return nvrtc


@cache
def bindings() -> Any:
    """NVRTC, loaded and answering; G001 where it is not installed."""
    try:
        nvrtc = _load()
        result = nvrtc.nvrtcVersion()
    except Exception as e:  # ImportError, or whatever the loader of the shared library raises
        raise _fail(
            "G001", "NVRTC is not installed, so kernels cannot be compiled here.", INSTALL, f"{type(e).__name__}: {e}"
        ) from e
    if int(result[0]) != 0:
        raise _fail("G001", "NVRTC is installed but does not answer.", INSTALL, str(result[0]))
    return nvrtc


@cache
def compiler_version() -> str:
    """Version and build of the NVRTC that is loaded, as it writes them into PTX: part of the cache key."""
    nvrtc = bindings()
    _, major, minor = nvrtc.nvrtcVersion()
    version = f"NVRTC {major}.{minor}"
    status, _, ptx, _ = _run("", "version", ("--gpu-architecture=compute_80",), {})
    if status == 0:
        for line in ptx.splitlines()[:8]:
            if "Build ID" in line:
                version += f" {line.split(':')[-1].strip()}"
    return version


def architectures() -> tuple[int, ...]:
    """Compute capabilities NVRTC can compile for, as ``major * 10 + minor``."""
    result = bindings().nvrtcGetSupportedArchs()
    return tuple(int(a) for a in result[1])


def arch_known(arch: str) -> bool:
    """Whether ``sm_90a`` and the like name an architecture of this NVRTC."""
    digits = arch.removeprefix("sm_").rstrip("af")
    return arch.startswith("sm_") and digits.isdigit() and int(digits) in architectures()


def _fetch(nvrtc: Any, program: Any, what: str) -> bytes:
    """One of the program's outputs: Log, PTX or CUBIN, without its terminating zero."""
    size = getattr(nvrtc, f"nvrtcGet{what}Size")(program)
    if int(size[0]) != 0 or size[1] == 0:
        return b""
    buffer = bytearray(size[1])
    getattr(nvrtc, "nvrtcGetProgramLog" if what == "ProgramLog" else f"nvrtcGet{what}")(program, buffer)
    return bytes(buffer) if what == "CUBIN" else bytes(buffer).replace(b"\0", b"")


def _run(source: str, name: str, options: tuple[str, ...], headers: Mapping[str, str]) -> tuple[int, bytes, str, str]:
    """One NVRTC program: (result code, cubin, PTX, log)."""
    nvrtc = bindings()
    status, program = nvrtc.nvrtcCreateProgram(
        source.encode(),
        name.encode(),
        len(headers),
        [text.encode() for text in headers.values()],
        [path.encode() for path in headers],
    )
    if int(status) != 0:
        raise _fail("G006", "NVRTC could not create a program.", "see the fact", str(status))
    try:
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), [o.encode() for o in options])
        log = _fetch(nvrtc, program, "ProgramLog").decode(errors="replace").strip()
        if int(status) != 0:
            return int(status), b"", "", log
        ptx = _fetch(nvrtc, program, "PTX").decode(errors="replace")
        return 0, _fetch(nvrtc, program, "CUBIN"), ptx, log
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def all_options(arch: str, options: Collection[str] = ()) -> tuple[str, ...]:
    """Every option of a compilation, in order."""
    return (f"--gpu-architecture={arch}", *BASE_OPTIONS, *options)


def compile_source(
    source: str,
    arch: str,
    *,
    name: str,
    options: Collection[str] = (),
    headers: Mapping[str, str] | None = None,
    allow: Collection[str] = (),
    locate: Locate = messages.line_span,
) -> Compiled:
    """Compile ``source`` for the architecture ``arch`` (``sm_90a`` for Hopper).

    ``name`` is the file that messages name where no ``#line`` does. ptxas's C75xx remarks (wgmma serialised,
    setmaxnreg ignored) raise, unless ``allow`` has their code: then they are warnings of the result. ``locate`` turns
    a line into a span.
    """
    headers = headers or {}
    bindings()
    if not arch_known(arch):
        known = ", ".join(f"sm_{a}" for a in architectures())
        raise _fail(
            "G003",
            f"{compiler_version()} cannot compile for {arch}.",
            f"name a target that this NVRTC knows, or install a newer one: {INSTALL}",
            f"known: {known}; Hopper's own instructions need sm_90a",
        )
    flags = all_options(arch, options)
    begin = time.perf_counter()
    status, cubin, ptx, log = _run(source, name, flags, headers)
    seconds = time.perf_counter() - begin
    found = messages.parse(log)
    if status != 0:
        raise CakeError(*_failed(status, log, found, source, name, arch, options, headers, locate))
    compiled = Compiled(
        cubin=cubin, ptx=ptx, log=log, compiler_version=compiler_version(), seconds=seconds, options=flags
    )
    return with_remarks(compiled, source, allow, locate)


def with_remarks(compiled: Compiled, source: str, allow: Collection[str], locate: Locate) -> Compiled:
    """The compilation with ptxas's C75xx remarks as warnings; those whose code is not in ``allow`` raise."""
    lines = PtxLines(compiled.ptx, messages.author_files(source))
    remarks = dict.fromkeys(d for m in messages.parse(compiled.log) if (d := messages.from_ptxas(m, lines, locate)))
    blocking = [d for d in remarks if d.code not in allow]
    if blocking:
        raise CakeError(*blocking)
    return replace(compiled, diagnostics=tuple(d.model_copy(update={"severity": "warning"}) for d in remarks))


def _failed(
    status: int,
    log: str,
    found: list[messages.Message],
    source: str,
    name: str,
    arch: str,
    options: Collection[str],
    headers: Mapping[str, str],
    locate: Locate,
) -> list[Diagnostic]:
    """The findings of a failed compilation. Where ptxas failed, the PTX is generated once more to trace its line
    numbers."""
    lines: PtxLines | None = None
    if any(m.stage == "ptxas" for m in found):
        virtual = tuple(o for o in all_options(arch.replace("sm_", "compute_"), options) if "ptxas" not in o)
        again, _, ptx, _ = _run(source, name, virtual, headers)
        if again == 0:
            lines = PtxLines(ptx, messages.author_files(source))
    out = messages.failures(found, source, name, lines, locate)
    if not out:
        result = bindings().nvrtcGetErrorString(bindings().nvrtcResult(status))[1]
        text = result.decode() if isinstance(result, bytes) else str(result)
        out.append(
            Diagnostic(
                code="G005" if "OPTION" in text else "G006",
                severity="error",
                message=f"NVRTC failed: {text}.",
                facts=tuple(log.splitlines()[:8]),
                help="see what the compiler said",
            )
        )
    if "OPTION" in str(bindings().nvrtcResult(status)):
        out = [d.model_copy(update={"code": "G005"}) for d in out]
    return list(dict.fromkeys(out))
