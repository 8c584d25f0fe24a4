"""The diagnostic schema: one object that text, JSON and editor renderings derive from.

A diagnostic has a stable ``code`` (its page is printed by ``cake explain CODE``), a one-sentence message in the terms of
the kernel, a primary span, labelled related spans, the contract that was violated, the derived facts it rests on, a
witness and, where one can be computed, a fix.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

Severity = Literal["error", "warning", "hint"]


class Record(BaseModel):
    """Base of every immutable record in Cake: frozen, strict about unknown fields, JSON-serialisable
    (infinities as strings)."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


class Span(Record):
    """A half-open region of source text. Lines and columns count from 1; ``end_column`` is exclusive."""

    file: str
    line: int
    column: int
    end_line: int
    end_column: int

    def to(self, other: Span) -> Span:
        """The span from the start of this one to the end of ``other``."""
        return Span(
            file=self.file,
            line=self.line,
            column=self.column,
            end_line=other.end_line,
            end_column=other.end_column,
        )


class Label(Record):
    """A related place with a few words on its part in the finding."""

    span: Span | None
    text: str


class Edit(Record):
    """Replace the text of ``span`` (empty span: insert) by ``replacement``."""

    span: Span
    replacement: str


class Fix(Record):
    """A rewrite that cures the finding. ``verified`` is set only after the result was checked again."""

    message: str
    edits: tuple[Edit, ...]
    verified: bool = False


class Diagnostic(Record):
    """One finding. ``facts`` and ``witness`` are lines of text, in order; ``help`` is the way out in words."""

    code: str
    severity: Severity
    message: str
    span: Span | None = None
    labels: tuple[Label, ...] = ()
    contract: str | None = None
    facts: tuple[str, ...] = ()
    witness: tuple[str, ...] = ()
    help: str | None = None
    fix: Fix | None = None


class CakeError(Exception):
    """Raised when an operation cannot go on; carries every finding made so far."""

    def __init__(self, *diagnostics: Diagnostic) -> None:
        self.diagnostics: tuple[Diagnostic, ...] = diagnostics
        super().__init__("; ".join(f"{d.code}: {d.message}" for d in diagnostics))

    def __reduce__(self) -> tuple[type[CakeError], tuple[Diagnostic, ...]]:
        """From its diagnostics, not its text: processes of a pool hand errors on by pickling them."""
        return type(self), self.diagnostics


class Findings:
    """Collects diagnostics so that several independent mistakes are reported in one run."""

    def __init__(self) -> None:
        self.items: list[Diagnostic] = []

    def add(self, diagnostic: Diagnostic) -> None:
        """Record a finding; an identical one (same code, span and message) is kept once."""
        if diagnostic not in self.items:
            self.items.append(diagnostic)

    def error(
        self,
        code: str,
        message: str,
        span: Span | None,
        *,
        labels: tuple[Label, ...] = (),
        facts: tuple[str, ...] = (),
        help: str | None = None,
        fix: Fix | None = None,
    ) -> None:
        """Record a blocking finding."""
        self.add(
            Diagnostic(
                code=code,
                severity="error",
                message=message,
                span=span,
                labels=labels,
                facts=facts,
                help=help,
                fix=fix,
            )
        )

    @property
    def errors(self) -> list[Diagnostic]:
        """The blocking findings."""
        return [d for d in self.items if d.severity == "error"]

    def raise_errors(self) -> None:
        """Raise CakeError with all findings if any of them blocks."""
        if self.errors:
            raise CakeError(*self.items)
