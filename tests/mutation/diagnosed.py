"""What is said of a mutant of a source text: whether the first finding names the changed operation, and whether a fix cures it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cake.compiler import decide_text
from cake.diagnostics import Diagnostic, Span
from cake.diagnostics.fixes import apply_fix
from cake.ir.parser import parse_all
from tests.docs.support import blocks
from tests.mutation.surface import Mutant, Source, mutants
from tests.verify.chain import CHAIN
from tests.verify.faults.surface import FAULTS

ROOT = Path(__file__).parents[2]
FOLDERS = ("examples", "examples/corpus")
MORE = ("tests/ir/examples/kda.cake", "tests/ir/examples/rows.cake")
REFUSED = ("copy_blocks", "histogram")
"""Kernels of the language's page that show a feature at the price of an output that is not whole (O501), or of padding (N802)."""


@dataclass(frozen=True)
class Diagnosis:
    """``codes`` of the findings that block (none: accepted). ``named``: a place of the first one is the changed operation's;
    ``somewhere``: of any of them. ``fixed``: a fix gives an accepted text; ``restored``: one that says what the parent says."""

    codes: tuple[str, ...]
    named: bool = False
    somewhere: bool = False
    fixed: bool = False
    restored: bool = False
    message: str = ""


@cache
def sources() -> tuple[Source, ...]:
    """The texts that mutants are made of: the examples, the expert corpus, two kernels more, those of the language's page, and the
    small ones that verdicts are tested with."""
    paths = [p for folder in FOLDERS for p in sorted((ROOT / folder).glob("*.cake"))] + [ROOT / name for name in MORE]
    found = [(str(p.relative_to(ROOT)), p.read_text()) for p in paths]
    page = [b for b in blocks(ROOT / "docs/language.md") if b.mark == "" and b.name.split(":")[0] not in REFUSED]
    found += [(f"language {b.name.split(':')[0]}", b.text) for b in page]
    found += [(f"small {name}", fault.good) for name, fault in FAULTS.items()]
    found.append(("small chain", CHAIN))
    texts: dict[str, str] = {}
    for name, text in found:
        if text not in texts.values() and not parse_all(text, name)[1]:
            texts[name] = text
    return tuple(Source(name, text) for name, text in texts.items())


def errors(text: str, name: str) -> list[Diagnostic]:
    """The findings that block a text, fixes tried."""
    return [d for d in decide_text(text, name, "quick")[0] if d.severity == "error"]


def population() -> Iterator[Mutant]:
    """All mutants of the texts."""
    for source in sources():
        yield from mutants(source)


def diagnosed(m: Mutant, parent: str) -> Diagnosis:
    """Judge one."""
    found = errors(m.text, m.source)
    if not found:
        return Diagnosis(())
    hits = [bool(lines(d) & m.places) for d in found]
    fixed = restored = False
    for d in found:
        if d.fix is None:
            continue
        text = apply_fix(m.text, d.fix)
        if not errors(text, m.source):
            fixed = True
            restored = restored or parse_all(text, m.source)[0] == parse_all(parent, m.source)[0]
    return Diagnosis(tuple(d.code for d in found), hits[0], any(hits), fixed, restored, found[0].message)


def lines(d: Diagnostic) -> set[int]:
    """The lines that a finding's places name: those of a statement or expression, the head of a block."""
    spans = [d.span, *(label.span for label in d.labels)]
    return {
        n
        for span in spans
        if span is not None
        for n in range(span.line, (span.end_line if short(span) else span.line) + 1)
    }


def short(span: Span) -> bool:
    """It is of a statement or expression, not of a block."""
    return span.end_line - span.line < 3
