"""Diagnostics as JSON: one object whose ``version`` changes if the meaning of a field ever does.

Every field of the schema is present, also when it is null or empty, so that readers need no defaults.
"""

from __future__ import annotations

from collections.abc import Iterable

from cake.diagnostics.model import Diagnostic, Record

VERSION = 1


class Report(Record):
    """The findings of one run."""

    version: int = VERSION
    diagnostics: tuple[Diagnostic, ...]


def to_json(diagnostics: Iterable[Diagnostic], *, indent: int | None = None) -> str:
    """The findings as JSON text; the same findings always give the same text."""
    return Report(diagnostics=tuple(diagnostics)).model_dump_json(indent=indent)


def from_json(text: str) -> tuple[Diagnostic, ...]:
    """The findings in a text made by :func:`to_json`."""
    report = Report.model_validate_json(text)
    if report.version != VERSION:
        raise ValueError(f"the report has version {report.version}, and this reader knows {VERSION}")
    return report.diagnostics
