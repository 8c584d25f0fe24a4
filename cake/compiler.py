"""The library's front door: text to diagnostics, to expanded kernels, to artifacts, to callables."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from pathlib import Path

from cake.diagnostics import CakeError, Diagnostic, Findings
from cake.expand.constants import Value
from cake.expand.kernel import expand_kernel
from cake.ir import expanded as x
from cake.ir import surface as s
from cake.ir.parser import parse, parse_all, read_source


def check_text(text: str, file: str = "<string>") -> list[Diagnostic]:
    """Every finding in a source text: syntax, then each kernel at its chosen constants, for each of its targets."""
    parsed, found = parse_all(text, file)
    if parsed is None or any(f.severity == "error" for f in found):
        return found
    return [*found, *check_file(parsed)]


def check_file(file: s.File) -> list[Diagnostic]:
    """Findings of every kernel of a parsed file, at its chosen constants, for each of its targets."""
    findings = Findings()
    for name in duplicates([k.name for k in (*file.kernels, *file.sequences)]):
        again = [k for k in (*file.kernels, *file.sequences) if k.name == name][-1]
        findings.error("T002", f"`{name}` is declared twice", again.span, help="use another name")
    for kernel in file.kernels:
        for target in kernel.targets or ("",):
            for d in expand_kernel(file, kernel, target=target or None)[1]:
                findings.add(d)
    for sequence in file.sequences:
        findings.error(
            "T099",
            "`sequence` is part of the language but not built yet",
            sequence.span,
            help="launch its kernels one after another",
        )
    return findings.items


def duplicates(names: list[str]) -> list[str]:
    """Names that occur more than once, in order."""
    return [n for i, n in enumerate(names) if n in names[:i]]


def select_kernel(file: s.File, name: str | None) -> s.Kernel:
    """The kernel called ``name``, or the only one; CakeError with the choices otherwise."""
    findings = Findings()
    names = [k.name for k in file.kernels]
    if name is None:
        if len(file.kernels) == 1:
            return file.kernels[0]
        if not names:
            findings.error("T018", "the file has no kernel", None)
        else:
            findings.error("T018", "the file has several kernels", None, help=f"pick one: {', '.join(names)}")
    else:
        for k in file.kernels:
            if k.name == name:
                return k
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean `{near[0]}`?" if near else f"it has {', '.join(names) or 'none'}"
        findings.error("T001", f"there is no kernel `{name}` in the file", None, help=hint)
    raise CakeError(*findings.items)


def expand_text(
    text: str,
    file: str = "<string>",
    *,
    kernel: str | None = None,
    constants: Mapping[str, Value] | None = None,
    target: str | None = None,
) -> x.Kernel:
    """Parse, check and expand one kernel; CakeError with every finding if one blocks."""
    parsed = parse(text, file)
    result, found = expand_kernel(parsed, select_kernel(parsed, kernel), constants, target)
    if result is None:
        raise CakeError(*found)
    return result


def expand_file(
    path: str | os.PathLike[str],
    *,
    kernel: str | None = None,
    constants: Mapping[str, Value] | None = None,
    target: str | None = None,
) -> x.Kernel:
    """The expanded kernel of a `.cake` file, or of an expanded kernel's JSON (`.json`)."""
    text = read_source(path)
    if Path(path).suffix == ".json":
        return x.Kernel.model_validate_json(text)
    return expand_text(text, str(path), kernel=kernel, constants=constants, target=target)
