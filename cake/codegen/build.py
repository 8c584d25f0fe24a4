"""From an expanded kernel to an artifact: emit, compile (through the cache), report, and write to a directory.

An artifact is all that a launch needs and all that a reader may ask about it: the kernel itself, the cubin, what each
launch parameter means, the resources, and a stamp that says what has been proved. Until a verifier has passed a
kernel its artifact is stamped unproved.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

import cake
from cake import cache as cache_module
from cake.codegen import elf, messages, nvrtc
from cake.codegen.parameters import Parameter
from cake.codegen.parameters import parameters as parameters_of
from cake.codegen.report import Report, disassemble, report
from cake.diagnostics import CakeError, Diagnostic, Record, Span
from cake.ir import expanded as x

Emit = Literal["cu", "ptx", "cubin", "sass", "expand"]
EMITS: tuple[Emit, ...] = ("cu", "ptx", "cubin", "sass", "expand")
LOADABLE: tuple[Emit, ...] = ("cu", "cubin", "expand")
"""What ``write`` writes unless told otherwise: enough to launch, and the source to read."""

FORMAT = 1
UNPROVED = "U909"
"""No verifier has decided this kernel."""


class ParameterInfo(Record):
    """One launch parameter in order: what it carries (``kind``: tensor, scalar, dim, stride or map), of what, its C++
    type, its size in bytes as the cubin has it, and a stride's axis. A chaos build has its seed besides (kind seed)."""

    kind: str
    name: str
    ctype: str
    bytes: int
    axis: int | None = None


class Stamp(Record):
    """What is known about the kernel's correctness: ``claim`` says how far it was decided that it is safe; ``proved``: for
    all trip counts. Otherwise ``unproved`` has the codes of what is not known, and ``reasons`` a line for each."""

    proved: bool = False
    unproved: tuple[str, ...] = (UNPROVED,)
    claim: str = ""
    reasons: tuple[str, ...] = ()


class Artifact(Record):
    """A compiled kernel. ``entry`` is its symbol in the cubin. ``chaos``: the seed that a launch of a chaos build
    (``cake.codegen.chaos``) uses unless told otherwise; None for a plain build."""

    kernel: x.Kernel
    entry: str
    source: str
    ptx: str
    cubin: bytes
    report: Report
    stamp: Stamp = Stamp()
    parameters: tuple[ParameterInfo, ...]
    compiler_version: str
    chaos: int | None = None
    diagnostics: tuple[Diagnostic, ...] = ()

    @property
    def kernel_hash(self) -> str:
        """The content hash of the kernel."""
        return kernel_hash(self.kernel)


def kernel_hash(kernel: x.Kernel) -> str:
    """SHA-256 of the kernel's canonical JSON."""
    return hashlib.sha256(json.dumps(kernel.model_dump(mode="json"), sort_keys=True).encode()).hexdigest()


def _error(code: str, message: str, help: str, *facts: str, span: Span | None = None) -> CakeError:
    return CakeError(Diagnostic(code=code, severity="error", message=message, help=help, facts=facts, span=span))


def build(
    kernel: x.Kernel,
    *,
    stamp: Stamp | None = None,
    options: Collection[str] = (),
    allow: Collection[str] = (),
    cache: cache_module.Cache | None = None,
    use_cache: bool = True,
    source: str | None = None,
    parameters: Sequence[Parameter] | None = None,
    translation: bool | None = None,
    chaos: int | None = None,
) -> Artifact:
    """Emit and compile ``kernel``. ``allow`` has codes of compiler remarks that may stand (W713). ``source`` and
    ``parameters`` replace the emitter's, for code written by hand. ``translation``: refuse compiled code that does not
    say what ``kernel`` says (P119); by default where the emitter wrote the source. ``chaos``: with delays and poison, and
    this seed stored for launches; all seeds share one compilation."""
    translation = source is None if translation is None else translation
    if source is None:
        from cake.codegen import emit
        from cake.codegen.chaos import poisoned

        source = emit(kernel, chaos=chaos is not None)
    if parameters is None:
        parameters = parameters_of(kernel, chaos=chaos is not None)
    flags = list(options)
    if kernel.launch_registers is not None and "__maxnreg__" not in source:
        flags.append(f"--maxrregcount={kernel.launch_registers}")
    try:
        cache = cache or cache_module.Cache()
        compiled, resources = _compile(kernel, source, flags, allow, cache, use_cache)
        if translation:
            said = kernel if chaos is None else poisoned(kernel)
            _require_translation(said, compiled.ptx, cache if use_cache else None)
    except CakeError as e:
        raise CakeError(*(_placed(d, kernel) for d in e.diagnostics)) from e
    return Artifact(
        kernel=kernel,
        entry=resources.kernel,
        source=source,
        ptx=compiled.ptx,
        cubin=compiled.cubin,
        report=resources,
        stamp=stamp or Stamp(),
        parameters=_contract(kernel, parameters, resources),
        compiler_version=compiled.compiler_version,
        diagnostics=compiled.diagnostics,
        chaos=chaos,
    )


def _compile(
    kernel: x.Kernel,
    source: str,
    options: Sequence[str],
    allow: Collection[str],
    cache: cache_module.Cache,
    use_cache: bool,
) -> tuple[nvrtc.Compiled, Report]:
    """The compilation and its report, from the cache where it has them. Remarks are read from the log again on a hit,
    so that ``allow`` needs no part in the key."""
    flags = nvrtc.all_options(kernel.target, options)
    name = f"{kernel.name}.cu"
    version = nvrtc.compiler_version()
    key = cache_module.key_of(
        source,
        arch=kernel.target,
        options=flags,
        compiler=version,
        headers={"name": name, "dynamic": str(kernel.shared_bytes)},
    )
    locate = _locator(kernel)
    entry = cache.get(key) if use_cache else None
    if entry is not None:
        with contextlib.suppress(KeyError, ValidationError, UnicodeDecodeError):
            compiled = nvrtc.Compiled(
                cubin=entry["cubin"],
                ptx=entry["ptx"].decode(),
                log=entry["log"].decode(),
                compiler_version=version,
                seconds=0.0,
                options=flags,
            )
            resources = Report.model_validate_json(entry["report"])
            if resources.opcodes is not None or resources.note is None:
                return nvrtc.with_remarks(compiled, source, allow, locate), resources
    compiled = nvrtc.compile_source(
        source, kernel.target, name=name, options=options, allow={"W713", "G007", "G008"}, locate=locate
    )
    resources = report(
        compiled.cubin, kernel=_entry(compiled.cubin), log=compiled.log, dynamic_shared=kernel.shared_bytes
    )
    if use_cache:
        cache.put(
            key,
            {
                "cubin": compiled.cubin,
                "ptx": compiled.ptx.encode(),
                "log": compiled.log.encode(),
                "report": resources.model_dump_json().encode(),
            },
        )
    return nvrtc.with_remarks(compiled, source, allow, locate), resources


def _require_translation(kernel: x.Kernel, ptx: str, cache: cache_module.Cache | None) -> None:
    """P119 where the PTX does not say what the kernel says. The cache remembers the pairs that passed."""
    from cake.ptx.check import VERSION, require

    if cache is None:
        require(kernel, ptx)
        return
    options = ("translation", str(VERSION))
    key = cache_module.key_of(ptx, arch=kernel.target, options=options, compiler=kernel_hash(kernel))
    if cache.get(key) is None:
        require(kernel, ptx)
        cache.put(key, {"translation": b"agrees"})


def _entry(cubin: bytes) -> str:
    """The symbol of the one kernel in a cubin."""
    names = [k.name for k in elf.kernels(cubin)]
    if len(names) != 1:
        raise _error(
            "G009",
            f"The compiled code has {len(names)} kernels; a launch needs exactly one.",
            "the emitter wrote this code, so this is a defect of Cake",
            f"kernels: {', '.join(names) or 'none'}",
        )
    return names[0]


def _contract(kernel: x.Kernel, parameters: Sequence[Parameter], resources: Report) -> tuple[ParameterInfo, ...]:
    """Parameters with the sizes that the cubin has: emitter and launcher must mean the same list."""
    sizes = resources.parameter_bytes
    if len(sizes) != len(parameters):
        raise _error(
            "G009",
            f"The compiled kernel takes {len(sizes)} parameters, but {len(parameters)} are to be passed.",
            "the emitter wrote this code, so this is a defect of Cake",
            f"sizes in the cubin: {list(sizes)}",
            f"to be passed: {', '.join(f'{p.kind} {p.name}' for p in parameters)}",
            span=kernel.span,
        )
    out = tuple(
        ParameterInfo(kind=p.kind, name=p.name, ctype=p.ctype, bytes=n, axis=p.axis)
        for p, n in zip(parameters, sizes, strict=True)
    )
    for p in out:
        expected = {"tensor": (8,), "dim": (4,), "map": (128,), "stride": (8,), "seed": (4,)}.get(p.kind)
        if expected and p.bytes not in expected:
            raise _error(
                "G009",
                f"Parameter {p.name} ({p.kind}) takes {p.bytes} bytes in the compiled kernel, not {expected[0]}.",
                "the emitter wrote this code, so this is a defect of Cake",
                span=kernel.span,
            )
    return out


def _statements(body: Sequence[Any]) -> Iterator[x.Node]:
    for s in body:
        yield s
        if isinstance(s, x.For):
            yield from _statements(s.body)
        elif isinstance(s, x.If):
            yield from _statements(s.then)
            yield from _statements(s.orelse)


def _placed(found: Diagnostic, kernel: x.Kernel) -> Diagnostic:
    """A finding without a place points at the kernel, or at its first wgmma if it is about those."""
    if found.span is not None:
        return found
    span = kernel.span
    if found.code == "W713":
        for role in kernel.roles:
            for s in _statements(role.body):
                if isinstance(s, x.Op) and s.op == "wgmma" and s.span is not None:
                    return found.model_copy(update={"span": s.span})
    return found.model_copy(update={"span": span})


def _locator(kernel: x.Kernel) -> messages.Locate:
    """Turns a line into the span of the statement that starts there, where the kernel has one."""
    spans: dict[tuple[str, int], Span] = {}
    for body in (kernel.entry, *(role.body for role in kernel.roles)):
        for s in _statements(body):
            if s.span is not None:
                spans.setdefault((s.span.file, s.span.line), s.span)

    def locate(file: str, line: int) -> Span | None:
        return spans.get((file, line)) or messages.line_span(file, line)

    return locate


# ---- directories ----------------------------------------------------------------------------------------------------


def manifest(artifact: Artifact) -> dict[str, Any]:
    """What ``manifest.json`` says."""
    k = artifact.kernel
    return {
        "format": FORMAT,
        "name": k.name,
        "entry": artifact.entry,
        "target": k.target,
        "kernel_sha256": artifact.kernel_hash,
        "constants": dict(k.constants),
        "parameters": [p.model_dump() for p in artifact.parameters],
        "dims": [d.model_dump() for d in k.dims],
        "guards": [g.text for g in k.guards],
        "assumes": [a.text for a in k.assumes],
        "resources": artifact.report.model_dump(mode="json"),
        "compiler": artifact.compiler_version,
        "cake": cake.__version__,
        "proved": artifact.stamp.proved,
        "unproved": list(artifact.stamp.unproved),
        "claim": artifact.stamp.claim,
        "reasons": list(artifact.stamp.reasons),
        "diagnostics": [d.model_dump(mode="json") for d in artifact.diagnostics],
        "chaos": artifact.chaos,
    }


def write(artifact: Artifact, directory: Path | str, emit: Collection[str] = LOADABLE) -> Path:
    """Write the files that ``emit`` names and ``manifest.json`` (last, so that a directory with a manifest is whole).
    Launching from a directory needs ``cubin`` and ``expand``."""
    unknown = sorted(set(emit) - set(EMITS))
    if unknown:
        raise _error("G011", f"There is no output called {unknown[0]}.", f"choose from {', '.join(EMITS)}")
    out = Path(directory)
    name = artifact.kernel.name
    files: dict[str, bytes] = {}
    if "cu" in emit:
        files[f"{name}.cu"] = artifact.source.encode()
    if "ptx" in emit:
        files[f"{name}.ptx"] = artifact.ptx.encode()
    if "cubin" in emit:
        files[f"{name}.cubin"] = artifact.cubin
    if "expand" in emit:
        files[f"{name}.expanded.json"] = artifact.kernel.model_dump_json(indent=1).encode()
    if "sass" in emit:
        sass, note = disassemble(artifact.cubin)
        if sass is None:
            raise _error(
                "G012", "The SASS cannot be written.", "pip install 'nvidia-cuda-nvdisasm>=13.0,<14'", note or ""
            )
        files[f"{name}.sass"] = sass.encode()
    record = manifest(artifact)
    record["files"] = {path: hashlib.sha256(data).hexdigest() for path, data in files.items()}
    try:
        out.mkdir(parents=True, exist_ok=True)
        for path, data in files.items():
            replace_file(out / path, data)
        replace_file(out / "manifest.json", json.dumps(record, indent=1).encode() + b"\n")
    except OSError as e:
        raise _error(
            "G010", f"The artifact cannot be written to {out}: {e.strerror}.", "choose another directory"
        ) from e
    return out


def replace_file(path: Path, data: bytes) -> None:
    """Write a file at once or not at all."""
    handle, temporary = tempfile.mkstemp(prefix=".tmp-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as f:
            f.write(data)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def read(directory: Path | str) -> Artifact:
    """The artifact of a directory that ``write`` wrote; its files are checked against the manifest."""
    where = Path(directory)

    def refuse(why: str, *facts: str) -> CakeError:
        return _error("G010", f"{where} does not hold a usable artifact: {why}.", "build the kernel again", *facts)

    try:
        record = json.loads((where / "manifest.json").read_bytes())
        name = record["name"]
        if record.get("format") != FORMAT:
            raise refuse(f"its format is {record.get('format')}, this Cake reads {FORMAT}")
        data = {path: (where / path).read_bytes() for path in record["files"]}
        for path, digest in record["files"].items():
            if hashlib.sha256(data[path]).hexdigest() != digest:
                raise refuse(f"{path} is not the file that was written")
        for suffix in ("cubin", "expanded.json"):
            if f"{name}.{suffix}" not in data:
                raise refuse(f"it was written without {name}.{suffix}")
        return Artifact(
            kernel=x.Kernel.model_validate_json(data[f"{name}.expanded.json"]),
            entry=record["entry"],
            source=data.get(f"{name}.cu", b"").decode(),
            ptx=data.get(f"{name}.ptx", b"").decode(),
            cubin=data[f"{name}.cubin"],
            report=Report.model_validate(record["resources"]),
            stamp=Stamp(
                proved=record["proved"],
                unproved=tuple(record["unproved"]),
                claim=record.get("claim", ""),
                reasons=tuple(record.get("reasons", ())),
            ),
            parameters=tuple(ParameterInfo.model_validate(p) for p in record["parameters"]),
            compiler_version=record["compiler"],
            chaos=record.get("chaos"),
        )
    except OSError as e:
        raise refuse(f"{e.filename or where}: {e.strerror}") from e
    except (KeyError, TypeError, ValueError) as e:
        raise refuse("its manifest is damaged", f"{type(e).__name__}: {e}") from e
