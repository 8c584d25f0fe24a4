"""Diagnostics as text for people: message, excerpt of the source with the place marked, and the way out."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TextIO

from cake.diagnostics.fixes import apply_fix
from cake.diagnostics.model import Diagnostic, Fix, Label, Span

_EXCERPT = 140
"""Columns of a source line that are shown; longer lines are cut around the place."""

_FIXED = 400
"""Columns of a changed line that are shown: it is to be read, and copied, to its end."""

_SEVERITY_STYLE = {"error": "bold red", "warning": "bold yellow", "hint": "bold cyan"}


@dataclass(slots=True)
class _Page:
    """Text in pieces with styles, so that plain and coloured output are the same text."""

    pieces: list[tuple[str, str]] = field(default_factory=list)

    def add(self, text: str, style: str = "") -> None:
        self.pieces.append((_printable(text), style))

    def end(self) -> None:
        self.pieces.append(("\n", ""))


def _printable(text: str) -> str:
    """Text that cannot move the cursor or hide anything."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " if c in "\t\u00a0" else "\ufffd" for c in text)


def render(diagnostics: Iterable[Diagnostic], sources: Mapping[str, str] | None = None) -> str:
    """The findings as plain text. ``sources`` gives the texts of files; without one there is no excerpt."""
    return "".join(text for text, _ in _pieces(diagnostics, sources or {}))


def show(
    diagnostics: Iterable[Diagnostic], sources: Mapping[str, str] | None = None, stream: TextIO | None = None
) -> None:
    """Write the findings to ``stream`` (standard error), in colour if it is a terminal that has colours."""
    stream = stream or sys.stderr
    if not stream.isatty():
        stream.write(render(diagnostics, sources))
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(file=stream, highlight=False, soft_wrap=True)
    for text, style in _pieces(diagnostics, sources or {}):
        console.print(Text(text, style=style), end="")


def summary(diagnostics: Iterable[Diagnostic]) -> str:
    """How many findings of each severity there are, in words."""
    counts: dict[str, int] = {}
    for diagnostic in diagnostics:
        counts[diagnostic.severity] = counts.get(diagnostic.severity, 0) + 1
    parts = [
        f"{counts[kind]} {kind}{'s' if counts[kind] > 1 else ''}"
        for kind in ("error", "warning", "hint")
        if kind in counts
    ]
    return ", ".join(parts) or "no findings"


def _pieces(diagnostics: Iterable[Diagnostic], sources: Mapping[str, str]) -> list[tuple[str, str]]:
    page = _Page()
    lines = {file: text.replace("\r\n", "\n").split("\n") for file, text in sources.items()}
    for i, diagnostic in enumerate(diagnostics):
        if i:
            page.end()
        _diagnostic(page, diagnostic, lines, sources)
    return page.pieces


def _diagnostic(
    page: _Page, diagnostic: Diagnostic, lines: Mapping[str, list[str]], sources: Mapping[str, str]
) -> None:
    style = _SEVERITY_STYLE[diagnostic.severity]
    page.add(f"{diagnostic.severity}[{diagnostic.code}]", style)
    page.add(f": {diagnostic.message}", "bold")
    page.end()
    places = [(diagnostic.span, "", "^", style)] if diagnostic.span else []
    places += [(label.span, label.text, "-", "blue") for label in diagnostic.labels if label.span]
    gutter = max((len(str(span.line)) for span, *_ in places), default=1)
    file = None
    for span, text, mark, mark_style in places:
        if span.file != file:
            arrow = "-->" if file is None else ":::"
            page.add(" " * gutter + arrow, "blue")
            page.add(f" {span.file}:{span.line}:{span.column}")
            page.end()
            file = span.file
        _excerpt(page, span, text, mark, mark_style, gutter, lines.get(span.file))
    _notes(page, diagnostic, gutter, [label for label in diagnostic.labels if not label.span])
    if diagnostic.fix is not None:
        _fix(page, diagnostic.fix, gutter, sources)


def _excerpt(page: _Page, span: Span, text: str, mark: str, style: str, gutter: int, lines: list[str] | None) -> None:
    if lines is None or not 1 <= span.line <= len(lines):
        if text:
            page.add(f"{' ' * gutter} = at {span.line}:{span.column}: {text}")
            page.end()
        return
    line = lines[span.line - 1]
    start = span.column - 1
    end = span.end_column - 1 if span.end_line == span.line else max(len(line), start + 1)
    cut = 0
    if len(line) > _EXCERPT:
        cut = max(0, min(start - _EXCERPT // 4, len(line) - _EXCERPT))
        end = min(end, cut + _EXCERPT)
    shown = line[cut : cut + _EXCERPT]
    page.add(" " * gutter + " |", "blue")
    page.end()
    page.add(f"{span.line:>{gutter}} | ", "blue")
    page.add(shown)
    page.end()
    page.add(" " * gutter + " | ", "blue")
    more = f" (to line {span.end_line})" if span.end_line > span.line else ""
    page.add(" " * (start - cut) + mark * max(1, end - start) + more + (f" {text}" if text else ""), style)
    page.end()


def _notes(page: _Page, diagnostic: Diagnostic, gutter: int, unplaced: list[Label]) -> None:
    notes: list[tuple[str, str]] = []
    if diagnostic.contract:
        notes.append(("contract", diagnostic.contract))
    notes += [("note", label.text) for label in unplaced]
    notes += [("fact", fact) for fact in diagnostic.facts]
    for name, text in notes:
        _note(page, gutter, name, text)
    if diagnostic.witness:
        _note(page, gutter, "witness", "")
        width = len(str(len(diagnostic.witness)))
        for i, step in enumerate(diagnostic.witness, 1):
            page.add(f"{' ' * gutter}     {i:>{width}}. ", "dim")
            page.add(step)
            page.end()
    if diagnostic.help:
        _note(page, gutter, "help", diagnostic.help)


def _note(page: _Page, gutter: int, name: str, text: str) -> None:
    page.add(" " * gutter + " = ", "blue")
    page.add(f"{name}:", "bold")
    first, *rest = text.split("\n")
    page.add(f" {first}" if first else "")
    page.end()
    for line in rest:
        page.add(" " * (gutter + 3 + len(name) + 2) + line)
        page.end()


def _fix(page: _Page, fix: Fix, gutter: int, sources: Mapping[str, str]) -> None:
    _note(page, gutter, "fix", fix.message + (" (checked)" if fix.verified else ""))
    for file in dict.fromkeys(edit.span.file for edit in fix.edits):
        source = sources.get(file)
        if source is None:
            continue
        edits = tuple(edit for edit in fix.edits if edit.span.file == file)
        old = source.replace("\r\n", "\n")
        try:
            new = apply_fix(old, Fix(message="", edits=edits))
        except ValueError:
            continue
        for line in _changed(old.split("\n"), new.split("\n"), edits[0].span.line):
            shown = line if len(line) <= _FIXED else f"{line[:_FIXED]} …"
            page.add(f"{' ' * gutter}     {shown}", "green" if line[0] == "+" else "red")
            page.end()


def _changed(old: list[str], new: list[str], first: int) -> list[str]:
    """The lines that differ, from the first edited line on; the rest of a large file is not compared."""
    start = max(0, first - 1)
    tail = 0
    while tail < min(len(old), len(new)) - start and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    a, b = old[start : len(old) - tail], new[start : len(new) - tail]
    return [line for line in difflib.ndiff(a, b) if line[0] in "-+"] if len(a) + len(b) < 200 else []
