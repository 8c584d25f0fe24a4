"""Applying fixes to text."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from cake.diagnostics.model import Diagnostic, Edit, Fix


def apply_edits(text: str, edits: Iterable[Edit]) -> str:
    """``text`` with the edits made; ValueError if two overlap or one lies outside the text.

    Lines end as they do in ``text``: spans count columns in a line without its line end.
    """
    starts = [0]
    for i, char in enumerate(text):
        if char == "\n":
            starts.append(i + 1)

    def offset(line: int, column: int) -> int:
        if not 1 <= line <= len(starts) or column < 1:
            raise ValueError(f"no position {line}:{column} in the text")
        end = starts[line] - 1 if line < len(starts) else len(text)
        at = starts[line - 1] + column - 1
        if at > end:
            raise ValueError(f"no position {line}:{column} in the text")
        return at

    places = [
        (offset(e.span.line, e.span.column), offset(e.span.end_line, e.span.end_column), e.replacement) for e in edits
    ]
    places.sort(key=lambda place: place[:2])
    pieces: list[str] = []
    done = 0
    for start, end, replacement in places:
        if start < done or end < start:
            raise ValueError("edits overlap")
        pieces += [text[done:start], replacement]
        done = end
    return "".join([*pieces, text[done:]])


def apply_fix(text: str, fix: Fix) -> str:
    """``text`` after one fix."""
    return apply_edits(text, fix.edits)


def apply_fixes(text: str, diagnostics: Iterable[Diagnostic]) -> tuple[str, int]:
    """``text`` after as many of the fixes as do not overlap, first come first served, and their number.

    A fix that overlaps one already taken is left for the next round, after the text has been checked again.
    """
    taken: list[Edit] = []
    count = 0
    for diagnostic in diagnostics:
        if diagnostic.fix is None:
            continue
        trial = [*taken, *diagnostic.fix.edits]
        try:
            apply_edits(text, trial)
        except ValueError:
            continue
        taken, count = trial, count + 1
    return apply_edits(text, taken), count


def verify_fixes(
    text: str, diagnostics: Iterable[Diagnostic], check: Callable[[str], Iterable[Diagnostic]]
) -> list[Diagnostic]:
    """The findings, with ``verified`` set on each fix after which ``check`` no longer makes the finding and no new one.

    Findings are told apart by code and message here, since a fix may move the others.
    """
    known = list(diagnostics)
    before = _count(known)
    result = []
    for diagnostic in known:
        if diagnostic.fix is not None:
            try:
                after = _count(check(apply_fix(text, diagnostic.fix)))
            except ValueError:
                after = {**before}
            key = (diagnostic.code, diagnostic.message)
            better = after.get(key, 0) < before[key]
            if better and all(count <= before.get(other, 0) for other, count in after.items()):
                diagnostic = diagnostic.model_copy(update={"fix": diagnostic.fix.model_copy(update={"verified": True})})
        result.append(diagnostic)
    return result


def _count(diagnostics: Iterable[Diagnostic]) -> dict[tuple[str, str], int]:
    counts: dict[tuple[str, str], int] = {}
    for diagnostic in diagnostics:
        key = (diagnostic.code, diagnostic.message)
        counts[key] = counts.get(key, 0) + 1
    return counts
