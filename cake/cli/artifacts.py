"""``cake build``: expand, compile through the cache, and write the artifact."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cake.cli import sources
from cake.cli.outcome import UsageError, error
from cake.cli.progress import working
from cake.cli.settings import Settings
from cake.diagnostics import Diagnostic

EMITS = ("cu", "ptx", "cubin", "sass", "expand")
_CODE = re.compile(r"[A-Z]\d{3}")


def listed(values: Sequence[str]) -> list[str]:
    """The items of options that may be repeated and separated by commas."""
    return [item.strip() for value in values for item in value.split(",") if item.strip()]


def build_file(
    file: str,
    settings: Settings,
    *,
    kernel: str | None,
    target: str | None,
    emit: Sequence[str],
    output: str | None,
    allow: Sequence[str],
) -> tuple[list[Diagnostic], dict[str, Any], str]:
    """Build one kernel: findings that do not block, the JSON result, and the report."""
    emits = list(dict.fromkeys(listed(emit))) or ["cu", "cubin", "expand"]
    for name in emits:
        if name not in EMITS:
            raise UsageError(f"there is no output called `{name}`", f"choose from {', '.join(EMITS)}")
    allowed = [code.upper() for code in listed(allow)]
    for code in allowed:
        if not _CODE.fullmatch(code):
            raise UsageError(f"`{code}` is no code of a diagnostic", "codes look like W713")
    source = sources.read(file)
    expanded, _ = sources.expand(source, kernel, settings, target)
    from cake.codegen.build import UNPROVED, build, write

    start = time.perf_counter()
    with working(f"compiling {expanded.name} for {expanded.target}"), sources.trusted(source):
        artifact = build(expanded, allow=allowed)
        directory = Path(output) if output is not None else Path("build") / source.stem
        if directory.exists() and not directory.is_dir():
            raise error("G010", f"{directory} is not a directory", "choose another directory with -o")
        write(artifact, directory, emits)
    seconds = time.perf_counter() - start
    suffixes = {"expand": "expanded.json"}
    files = [f"{expanded.name}.{suffixes.get(e, e)}" for e in emits]
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
