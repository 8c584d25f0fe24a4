"""``cake build``: expand, compile through the cache, and write the artifact; of every kernel of a file where none is
named."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cake.cli import sources
from cake.cli.outcome import UsageError, error
from cake.cli.progress import working
from cake.cli.settings import Settings, take, unknown
from cake.diagnostics import CakeError, Diagnostic

EMITS = ("cu", "ptx", "cubin", "sass", "expand")
_CODE = re.compile(r"[A-Z]\d{3}")

Outcome = tuple[list[Diagnostic], dict[str, Any], str]
"""Findings, the JSON result, and the text."""


def listed(values: Sequence[str]) -> list[str]:
    """The items of options that may be repeated and separated by commas."""
    return [item.strip() for value in values for item in value.split(",") if item.strip()]


@dataclass(frozen=True)
class _Order:
    """One kernel to build. ``kernel``: None for the only one of a file."""

    source: sources.Source
    kernel: str | None
    settings: Settings
    target: str | None
    emits: tuple[str, ...]
    allowed: tuple[str, ...]
    directory: Path


def build_file(
    file: str,
    settings: Settings,
    *,
    kernel: str | None,
    target: str | None,
    emit: Sequence[str],
    output: str | None,
    allow: Sequence[str],
) -> Outcome:
    """Build one kernel or, where the file has several and none is named, all of them, a directory each."""
    emits = tuple(dict.fromkeys(listed(emit))) or ("cu", "cubin", "expand")
    for name in emits:
        if name not in EMITS:
            raise UsageError(f"there is no output called `{name}`", f"choose from {', '.join(EMITS)}")
    allowed = tuple(code.upper() for code in listed(allow))
    for code in allowed:
        if not _CODE.fullmatch(code):
            raise UsageError(f"`{code}` is no code of a diagnostic", "codes look like W713")
    source = sources.read(file)
    constants, sequences = _contents(source)
    base = Path(output) if output is not None else Path("build") / source.stem
    if len(constants) > 1 and output is None and kernel is not None:
        base /= kernel
    order = _Order(source, kernel, settings, target, emits, allowed, base)
    if len(constants) > 1 and kernel is None:
        found, result, text = _build_all(order, constants)
    else:
        found, result, text = _build_one(order)
    if sequences:
        result["skipped"] = sequences
        text += f"\nskipped    {', '.join(sequences)}: sequences are not built yet"
    return found, result, text


def _contents(source: sources.Source) -> tuple[dict[str, list[str]], list[str]]:
    """The kernels of a file with the names of their constants, and its sequences."""
    if source.expanded:
        return {}, []
    from cake.compiler import duplicates
    from cake.expand.constants import declared

    parsed = sources.parse_surface(source)
    for name in duplicates([k.name for k in parsed.kernels]):
        raise error("T002", f"`{name}` is declared twice", "use another name")
    kernels = {k.name: [c.name for c in declared(parsed, k)] for k in parsed.kernels}
    return kernels, [s.name for s in parsed.sequences]


def _build_all(order: _Order, kernels: dict[str, list[str]]) -> Outcome:
    """Every kernel, with those settings that it declares. What is wrong with one does not keep the others from being
    built."""
    for name in order.settings:
        if not any(name in constants for constants in kernels.values()):
            unknown([name], ", ".join(kernels), {"constants": sorted({c for cs in kernels.values() for c in cs})})
    found: list[Diagnostic] = []
    built: list[dict[str, Any]] = []
    texts: list[str] = []
    for name, constants in kernels.items():
        settings = take(order.settings, constants)
        one = replace(order, kernel=name, settings=settings, directory=order.directory / name)
        try:
            findings, result, text = _build_one(one)
        except CakeError as problem:
            found += problem.diagnostics
            continue
        found += findings
        built.append(result)
        texts.append(text)
    return found, {"kernels": built}, "\n\n".join(texts)


def _build_one(order: _Order) -> Outcome:
    """One kernel: findings that do not block, the JSON result, and the report."""
    from cake.codegen.build import UNPROVED, build, write

    expanded, _ = sources.expand(order.source, order.kernel, order.settings, order.target)
    directory = order.directory
    start = time.perf_counter()
    with working(f"compiling {expanded.name} for {expanded.target}"), sources.trusted(order.source):
        artifact = build(expanded, allow=order.allowed)
        if directory.exists() and not directory.is_dir():
            raise error("G010", f"{directory} is not a directory", "choose another directory with -o")
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
        "compiler": artifact.compiler_version,
        "proved": artifact.stamp.proved,
        "unproved": unproved,
        "seconds": round(seconds, 3),
    }
    lines = [artifact.report.render(), f"written    {directory}: {', '.join([*files, 'manifest.json'])}"]
    if UNPROVED in unproved:
        lines.append(f"unproved   {UNPROVED}: no verifier has decided this kernel (stamped in manifest.json)")
    return list(artifact.diagnostics), result, "\n".join(lines)
