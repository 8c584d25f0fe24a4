"""The fix of H951: the statement's lines go, and what is left is checked again before it is shown."""

from __future__ import annotations

from cake.diagnostics import Diagnostic, Edit, Fix, Span
from cake.diagnostics.fixes import apply_fix
from cake.verify.fixes import check


def with_removals(text: str, file: str, found: list[Diagnostic]) -> list[Diagnostic]:
    """The hints, with a fix for each superfluous statement that has lines of its own. The fixes hold together: each was tried
    with those before it."""
    before = check(text, file)
    gone: tuple[Edit, ...] = ()
    result = []
    for d in found:
        edit = _removal(text, file, d)
        if edit is not None:
            whole = Fix(message="", edits=(*gone, edit))
            if _as_good(text, file, whole, before):
                gone = whole.edits
                d = d.model_copy(update={"fix": Fix(message=d.help or "", edits=(edit,), verified=True)})
        result.append(d)
    return result


def _as_good(text: str, file: str, fix: Fix, before: set[str]) -> bool:
    try:
        return check(apply_fix(text, fix), file) <= before
    except ValueError:
        return False


def _removal(text: str, file: str, d: Diagnostic) -> Edit | None:
    """The lines of a statement, if nothing else stands on them."""
    span = d.span
    if d.code != "H951" or span is None or span.file != file:
        return None
    lines = text.split("\n")
    first, last = lines[span.line - 1], lines[span.end_line - 1]
    after = last[span.end_column - 1 :].split("#")[0]
    if first[: span.column - 1].strip() or after.strip() or span.end_line >= len(lines):
        return None
    whole = Span(file=file, line=span.line, column=1, end_line=span.end_line + 1, end_column=1)
    return Edit(span=whole, replacement="")
