"""``cake fmt``: sources in the one canonical form. A file is replaced only by a text that means the same."""

from __future__ import annotations

import contextlib
import difflib
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cake.cli import sources
from cake.cli.outcome import error
from cake.diagnostics import CakeError, Diagnostic


def format_files(files: Sequence[str], *, check: bool, diff: bool) -> tuple[list[Diagnostic], dict[str, Any], str, int]:
    """Format files in place; ``check`` and ``diff`` write nothing. Findings, result, text and exit code."""
    found: list[Diagnostic] = []
    changed: list[str] = []
    diffs: dict[str, str] = {}
    texts: list[str] = []
    for name in files:
        try:
            source = sources.read(name)
            new = formatted(source)
            if new == source.text:
                texts += [new] if name == "-" and not (check or diff) else []
                continue
            changed.append(name)
            if diff:
                diffs[name] = _diff(source, new)
                texts.append(diffs[name])
            if not (check or diff):
                if source.path is None:
                    texts.append(new)
                else:
                    _replace(source.path, new)
        except CakeError as problem:
            found += problem.diagnostics
    if not diff and "-" not in files:
        verb = "would be formatted" if check else "formatted"
        texts += [f"{name}: {verb}" for name in changed]
        if not changed and not found:
            texts.append(f"{len(files)} {'file is' if len(files) == 1 else 'files are'} in the canonical form")
    code = 1 if found or (check and changed) else 0
    return found, {"files": list(files), "changed": changed, "diffs": diffs}, "\n".join(texts), code


def formatted(source: sources.Source) -> str:
    """The canonical text of a source; X001 if it would not mean the same, which is a defect of the printer."""
    from cake.ir.parser import parse
    from cake.ir.printer import format_file

    if source.expanded:
        raise error("S009", f"{source.file} is an expanded kernel; fmt takes .cake sources")
    parsed = parse(source.text, source.file)
    new = format_file(parsed)
    if parse(new, source.file) != parsed:
        raise error("X001", f"formatting {source.file} would change what it means", "please report the file")
    return new


def _diff(source: sources.Source, new: str) -> str:
    old_lines, new_lines = source.text.splitlines(), new.splitlines()
    lines = difflib.unified_diff(old_lines, new_lines, source.file, f"{source.file} (formatted)", lineterm="")
    return "\n".join(lines)


def _replace(path: Path, text: str) -> None:
    """Write a file whole or not at all, keeping its mode; a link keeps pointing at its file."""
    path = path.resolve()
    temporary = None
    try:
        mode = path.stat().st_mode & 0o7777
        if not os.access(path, os.W_OK):
            raise PermissionError(13, "Permission denied")
        handle, temporary = tempfile.mkstemp(prefix=".cake-", dir=path.parent)
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as stream:
            stream.write(text)
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except OSError as problem:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        raise error("X004", f"{path} cannot be written: {problem.strerror}") from None
