"""``cake build``: expand, compile through the cache, and write the artifact; of every kernel of a file where none is
named."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cake.cli import sources
from cake.cli.outcome import UsageError, error
from cake.cli.progress import working
from cake.cli.settings import Settings, take, unknown
from cake.diagnostics import CakeError, Diagnostic
from cake.ir.sequences import Sequence as Steps

if TYPE_CHECKING:
    from cake.codegen.build import Artifact, Stamp
    from cake.ir.expanded import Kernel

EMITS = ("cu", "ptx", "cubin", "sass", "expand")
_CODE = re.compile(r"[A-Z]\d{3}")

Outcome = tuple[list[Diagnostic], list[Diagnostic], dict[str, Any], str]
"""Findings, hints, the JSON result, and the text."""


def listed(values: Sequence[str]) -> list[str]:
    """The items of options that may be repeated and separated by commas."""
    return [item.strip() for value in values for item in value.split(",") if item.strip()]


@dataclass(frozen=True)
class _Order:
    """One kernel or sequence to build. ``kernel``: None for the only one of a file."""

    source: sources.Source
    kernel: str | None
    settings: Settings
    target: str | None
    emits: tuple[str, ...]
    allowed: tuple[str, ...]
    directory: Path
    hints: bool
    chaos: int | None = None


def build_file(
    file: str,
    settings: Settings,
    *,
    kernel: str | None,
    target: str | None,
    emit: Sequence[str],
    output: str | None,
    allow: Sequence[str],
    chaos: int | None = None,
    hints: bool = False,
) -> Outcome:
    """Build one kernel or sequence or, where the file has several and none is named, all of them, a directory each.
    ``chaos``: with delays and poison, seeded."""
    emits = tuple(dict.fromkeys(listed(emit))) or ("cu", "cubin", "expand")
    for name in emits:
        if name not in EMITS:
            raise UsageError(f"there is no output called `{name}`", f"choose from {', '.join(EMITS)}")
    allowed = tuple(code.upper() for code in listed(allow))
    for code in allowed:
        if not _CODE.fullmatch(code):
            raise UsageError(f"`{code}` is no code of a diagnostic", "codes look like W713")
    source = sources.read(file)
    constants = _contents(source)
    base = Path(output) if output is not None else Path("build") / source.stem
    if len(constants) > 1 and output is None and kernel is not None:
        base /= kernel
    order = _Order(source, kernel, settings, target, emits, allowed, base, hints, chaos)
    if len(constants) > 1 and kernel is None:
        return _build_all(order, constants)
    return _build_one(order)


def _contents(source: sources.Source) -> dict[str, list[str]]:
    """The kernels and sequences of a file, with the names of their constants."""
    if source.expanded:
        return {}
    from cake.compiler import duplicates
    from cake.expand.constants import declared

    parsed = sources.parse_surface(source)
    for name in duplicates([*(k.name for k in parsed.kernels), *(q.name for q in parsed.sequences)]):
        raise error("T002", f"`{name}` is declared twice", "use another name")
    kernels = {k.name: [c.name for c in declared(parsed, k)] for k in parsed.kernels}
    steps = {q.name: [n for step in q.steps for n in kernels.get(step.name, ())] for q in parsed.sequences}
    return {**kernels, **steps}


def _build_all(order: _Order, kernels: dict[str, list[str]]) -> Outcome:
    """Every kernel and sequence, with those settings that it declares. What is wrong with one does not keep the others
    from being built."""
    for name in order.settings:
        if not any(name in constants for constants in kernels.values()):
            unknown([name], ", ".join(kernels), {"constants": sorted({c for cs in kernels.values() for c in cs})})
    found: list[Diagnostic] = []
    advice: list[Diagnostic] = []
    built: list[dict[str, Any]] = []
    texts: list[str] = []
    for name, constants in kernels.items():
        settings = take(order.settings, constants)
        one = replace(order, kernel=name, settings=settings, directory=order.directory / name)
        try:
            findings, hints, result, text = _build_one(one)
        except CakeError as problem:
            found += [d for d in problem.diagnostics if d not in found]  # a sequence repeats those of its kernels
            continue
        found += findings
        advice += [d for d in hints if d not in advice]
        built.append(result)
        texts.append(text)
    sequences = [row for row in built if "sequence" in row]
    result = {"kernels": [row for row in built if "kernel" in row], **({"sequences": sequences} if sequences else {})}
    return found, advice, result, "\n\n".join(texts)


def _build_one(order: _Order) -> Outcome:
    """One kernel or sequence: findings that do not block, the JSON result, and the report."""
    from cake.codegen.build import build, write

    expanded = sources.expand_any(order.source, order.kernel, order.settings, order.target)
    directory = order.directory
    if directory.exists() and not directory.is_dir():
        raise error("G010", f"{directory} is not a directory", "choose another directory with -o")
    if isinstance(expanded, Steps):
        return _build_sequence(expanded, order)
    start = time.perf_counter()
    stamp = _stamp(expanded, order)
    with working(f"compiling {expanded.name} for {expanded.target}"), sources.trusted(order.source):
        artifact = build(expanded, allow=order.allowed, stamp=stamp, chaos=order.chaos)
        write(artifact, directory, order.emits)
    seconds = time.perf_counter() - start
    suffixes = {"expand": "expanded.json"}
    files = [f"{expanded.name}.{suffixes.get(e, e)}" for e in order.emits]
    unproved = list(artifact.stamp.unproved)
    result = {
        "kernel": expanded.name,
        "target": expanded.target,
        "constants": dict(expanded.constants),
        "directory": str(directory),
        "files": [*files, "manifest.json"],
        "resources": artifact.report.model_dump(mode="json"),
        **_uses(artifact),
        "compiler": artifact.compiler_version,
        "proved": artifact.stamp.proved,
        "unproved": unproved,
        "claim": artifact.stamp.claim,
        "chaos": artifact.chaos,
        "seconds": round(seconds, 3),
    }
    lines = [_report(artifact), f"written    {directory}: {', '.join([*files, 'manifest.json'])}"]
    lines.append(_said(artifact.stamp))
    lines += _disturbed(order.chaos)
    return list(artifact.diagnostics), _advice(order, artifact), result, "\n".join(lines)


def _report(artifact: Artifact) -> str:
    """What a kernel uses, in lines: what the compiler says, how many CTAs that lets an SM hold, and the registers that tiles hold
    in each role."""
    from cake.hints.occupancy import occupancy
    from cake.hints.registers import pressure

    tiles = ", ".join(p.text for p in pressure(artifact.kernel))
    more = [f"occupancy  {occupancy(artifact.kernel, artifact.report).text}", f"tiles      {tiles}"]
    return "\n".join([artifact.report.render(), *more])


def _uses(artifact: Artifact) -> dict[str, Any]:
    """The same for the JSON result."""
    from cake.hints.occupancy import occupancy
    from cake.hints.registers import pressure

    resident = occupancy(artifact.kernel, artifact.report)
    return {
        "occupancy": {
            "ctas": resident.ctas,
            "warps": resident.warps,
            "of_warps": resident.most_warps,
            "by": resident.by,
        },
        "tiles": [
            {"role": p.role, "registers": p.held, "budget": p.budget, "parts": dict(p.parts)}
            for p in pressure(artifact.kernel)
        ],
    }


def _advice(order: _Order, *artifacts: Artifact) -> list[Diagnostic]:
    from cake.hints import built_hints

    return [d for a in artifacts for d in built_hints(a.kernel, a.report)] if order.hints else []


def _stamp(kernel: Kernel, order: _Order) -> Stamp:
    """What the verifier says of a kernel; CakeError if it may not be built."""
    from cake.verify.stamps import checked_stamp

    with working(f"verifying {kernel.name}"), sources.trusted(order.source):
        return checked_stamp(kernel, order.allowed)


def _said(stamp: Stamp) -> str:
    """A stamp as a line."""
    if stamp.unproved:
        return f"unproved   {', '.join(stamp.reasons or stamp.unproved)} (stamped in manifest.json)"
    return f"{'proved' if stamp.proved else 'verified':<10} safe: {stamp.claim}"


def _disturbed(chaos: int | None) -> list[str]:
    """What a chaos build says of itself."""
    text = f"chaos      seed {chaos}: delays around synchronisation, shared memory starts as NaN; not for use"
    return [] if chaos is None else [text]


def _build_sequence(sequence: Steps, order: _Order) -> Outcome:
    """Every kernel of a sequence, and the manifest that says how they follow one another."""
    from cake.codegen.sequences import MANIFEST, build_sequence, place, write_sequence

    start = time.perf_counter()
    with working(f"compiling {sequence.name} for {sequence.target}"), sources.trusted(order.source):
        stamps = [_stamp(step.kernel, order) for step in sequence.steps]
        artifact = build_sequence(sequence, allow=order.allowed, stamps=stamps, chaos=order.chaos)
        write_sequence(artifact, order.directory, order.emits)
    places = [place(n, step.kernel.name) for n, step in enumerate(sequence.steps)]
    result = {
        "sequence": sequence.name,
        "target": sequence.target,
        "constants": dict(sequence.constants),
        "directory": str(order.directory),
        "files": [MANIFEST, *(f"{p}/manifest.json" for p in places)],
        "steps": [
            {"kernel": a.kernel.name, "directory": p, "resources": a.report.model_dump(mode="json"), **_uses(a)}
            for a, p in zip(artifact.artifacts, places, strict=True)
        ],
        "proved": not artifact.unproved,
        "unproved": list(artifact.unproved),
        "chaos": order.chaos,
        "seconds": round(time.perf_counter() - start, 3),
    }
    lines = [f"sequence   {sequence.name}"]
    lines += [_report(part) for part in artifact.artifacts]
    lines.append(f"written    {order.directory}: {MANIFEST}, {', '.join(f'{p}/' for p in places)}")
    lines += [f"{part.kernel.name}: {_said(part.stamp)}" for part in artifact.artifacts]
    lines += _disturbed(order.chaos)
    return list(artifact.diagnostics), _advice(order, *artifact.artifacts), result, "\n".join(lines)
