"""The library's front door: text to diagnostics, to expanded kernels, to artifacts, to callables."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from cake.diagnostics import CakeError, Diagnostic, Findings
from cake.expand.constants import Value
from cake.expand.kernel import Expansions, expand_kernel
from cake.expand.sequences import expand_sequence
from cake.expand.wellformed import problems
from cake.ir import expanded as x
from cake.ir import surface as s
from cake.ir.parser import parse, parse_all, read_source

if TYPE_CHECKING:
    from cake.ir.sequences import Sequence
    from cake.runtime import LoadedKernel, LoadedSequence
    from cake.verify.engine import Effort
    from cake.verify.verdict import Verdict


Verdicts = list[tuple[x.Kernel, "Verdict"]]


def check_text(text: str, file: str = "<string>", *, verify: Effort | None = None) -> list[Diagnostic]:
    """Every finding in a source text: syntax, then each kernel at its chosen constants, for each of its targets.
    ``verify``: also the verifier's, with so much effort."""
    return decide_text(text, file, verify)[0]


def decide_text(text: str, file: str, effort: Effort | None = None) -> tuple[list[Diagnostic], Verdicts]:
    """Every finding in a source text, and the verdicts on its kernels; findings have fixes that were tried."""
    parsed, found = parse_all(text, file)
    if parsed is None or any(f.severity == "error" for f in found):
        return found, []
    kernels: list[x.Kernel] = []
    found = [*found, *check_file(parsed, kernels)]
    if effort is None:
        return found, []
    if any(f.severity == "error" for f in found):
        from cake.verify.fixes import with_fixes

        return with_fixes(text, file, found), []
    from cake.verify.store import decide

    decided = [(kernel, decide(kernel, effort=effort)) for kernel in kernels]
    new = [d for _, verdict in decided for d in verdict.diagnostics]
    if new:
        from cake.verify.fixes import with_fixes

        new = with_fixes(text, file, new)
    return [*found, *(d for i, d in enumerate(new) if d not in new[:i])], decided


def check_file(file: s.File, kernels: list[x.Kernel] | None = None) -> list[Diagnostic]:
    """Findings of every kernel of a parsed file, at its chosen constants, for each of its targets. ``kernels``: gets the
    expanded ones that are well."""
    findings = Findings()
    named: list[s.Kernel | s.Sequence] = [*file.kernels, *file.sequences]
    for name in duplicates([k.name for k in named]):
        again = [k for k in named if k.name == name][-1]
        findings.error("T002", f"`{name}` is declared twice", again.span, help="use another name")
    expansions = Expansions(file)
    for kernel in file.kernels:
        for target in kernel.targets or ("",):
            expanded, found = expansions.of(kernel, target=target or None)
            for d in found:
                findings.add(d)
            if expanded is not None and kernels is not None:
                kernels.append(expanded)
    for sequence in file.sequences:
        for d in expand_sequence(file, sequence, expansions=expansions)[1]:
            findings.add(d)
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
        if name in {q.name for q in file.sequences}:
            hint = f"its steps are {', '.join(dict.fromkeys(t.name for q in file.sequences if q.name == name for t in q.steps))}"
            findings.error("T001", f"`{name}` is a sequence, and a kernel is needed here", None, help=hint)
            raise CakeError(*findings.items)
        names += [q.name for q in file.sequences]
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean `{near[0]}`?" if near else f"it has {', '.join(names) or 'none'}"
        findings.error("T001", f"there is no kernel `{name}` in the file", None, help=hint)
    raise CakeError(*findings.items)


def select(file: s.File, name: str | None) -> s.Kernel | s.Sequence:
    """The kernel or sequence called ``name``. Without a name the only sequence, because that is what its kernels are for, else
    the only kernel."""
    for sequence in file.sequences:
        if sequence.name == name or (name is None and len(file.sequences) == 1):
            return sequence
    return select_kernel(file, name)


def expand_steps(
    file: s.File, sequence: s.Sequence, constants: Mapping[str, Value] | None = None, target: str | None = None
) -> Sequence:
    """Check and expand a sequence; CakeError with every finding if one blocks."""
    result, found = expand_sequence(file, sequence, constants, target)
    if result is None:
        raise CakeError(*found)
    return result


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
    if Path(path).suffix == ".json":
        return read_expanded(read_json(path), str(path))
    return expand_text(read_source(path), str(path), kernel=kernel, constants=constants, target=target)


def check_path(path: str | os.PathLike[str], *, verify: Effort | None = None) -> list[Diagnostic]:
    """Every finding in a file: a `.cake` source, or an expanded kernel's JSON. ``verify``: also the verifier's, with so
    much effort."""
    try:
        if Path(path).suffix == ".json":
            kernel = read_expanded(read_json(path), str(path))
            if verify is None:
                return []
            from cake.verify.store import decide

            return list(decide(kernel, effort=verify).diagnostics)
        return check_text(read_source(path), str(path), verify=verify)
    except CakeError as error:
        return list(error.diagnostics)


def compile_file(
    path: str | os.PathLike[str],
    *,
    kernel: str | None = None,
    target: str | None = None,
    **constants: Value,
) -> LoadedKernel | LoadedSequence:
    """A callable for one kernel or sequence of a file (by default the only sequence, else the only kernel): expand, compile
    (through the cache), load at the first call."""
    from cake.codegen.build import build
    from cake.codegen.sequences import build_sequence
    from cake.runtime import load

    if Path(path).suffix != ".json":
        file = parse(read_source(path), str(path))
        chosen = select(file, kernel)
        if isinstance(chosen, s.Sequence):
            return load(build_sequence(expand_steps(file, chosen, constants, target)))
    return load(build(expand_file(path, kernel=kernel, constants=constants, target=target)))


# ---- expanded kernels as JSON ---------------------------------------------------------------------------------------


def read_json(path: str | os.PathLike[str]) -> str:
    """The text of an expanded kernel's file, which may be larger than any source (S009 where it cannot be read)."""
    name = os.fspath(path)
    try:
        return Path(path).read_bytes().decode("utf-8-sig")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "it is not text in UTF-8"
        found = Diagnostic(code="S009", severity="error", message=f"{name} cannot be read: {reason}")
        raise CakeError(found) from None


def read_expanded(text: str, file: str = "<string>") -> x.Kernel:
    """The expanded kernel in a JSON text: the kernel itself, or what ``cake expand --json`` prints. X003 with what is
    wrong otherwise."""
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _not_expanded(file, f"the text is not JSON: {error}") from None
    if isinstance(record, dict) and isinstance(record.get("result"), dict) and "kernel" in record["result"]:
        record = record["result"]["kernel"]
    try:
        kernel = x.Kernel.model_validate_json(json.dumps(record))
    except ValidationError as error:
        places = [f"{'.'.join(map(str, e['loc'])) or 'it'}: {e['msg']}" for e in error.errors()[:6]]
        raise _not_expanded(file, f"{error.error_count()} fields are not as the schema has them", *places) from None
    except RecursionError:
        raise _not_expanded(file, "its statements are nested too deep") from None
    wrong = problems(kernel)
    if wrong:
        raise _not_expanded(file, wrong[0], *wrong[1:6])
    return kernel


def _not_expanded(file: str, why: str, *facts: str) -> CakeError:
    return CakeError(
        Diagnostic(
            code="X003",
            severity="error",
            message=f"{file} is not an expanded kernel: {why}",
            facts=facts,
            help="`cake expand FILE --json` prints one",
        )
    )
