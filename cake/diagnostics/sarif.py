"""Diagnostics as SARIF 2.1.0, the form that code hosts and editors read from static checkers."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from cake import __version__
from cake.diagnostics.codes import explain
from cake.diagnostics.model import Diagnostic, Fix, Span

_LEVELS = {"error": "error", "warning": "warning", "hint": "note"}


def to_sarif(diagnostics: Iterable[Diagnostic], *, indent: int | None = None) -> str:
    """The findings as one run of the tool ``cake``."""
    found = list(diagnostics)
    rules = [_rule(code) for code in sorted({d.code for d in found})]
    run = {
        "tool": {"driver": {"name": "cake", "version": __version__, "rules": rules}},
        "columnKind": "unicodeCodePoints",
        "results": [_result(d) for d in found],
    }
    log = {"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [run]}
    return json.dumps(log, indent=indent)


def _rule(code: str) -> dict[str, Any]:
    try:
        page = explain(code)
    except KeyError:
        return {"id": code}
    return {
        "id": code,
        "shortDescription": {"text": page.title},
        "fullDescription": {"text": page.text},
        "defaultConfiguration": {"level": _LEVELS[page.severity]},
    }


def _result(diagnostic: Diagnostic) -> dict[str, Any]:
    lines = [diagnostic.message]
    lines += [f"fact: {fact}" for fact in diagnostic.facts]
    lines += [f"{i}. {step}" for i, step in enumerate(diagnostic.witness, 1)]
    if diagnostic.help:
        lines.append(f"help: {diagnostic.help}")
    result: dict[str, Any] = {
        "ruleId": diagnostic.code,
        "level": _LEVELS[diagnostic.severity],
        "message": {"text": "\n".join(lines)},
        "locations": [_location(diagnostic.span)] if diagnostic.span else [],
    }
    related = [
        {"id": i, "message": {"text": label.text}, **_location(label.span)}
        for i, label in enumerate(diagnostic.labels)
        if label.span
    ]
    if related:
        result["relatedLocations"] = related
    if diagnostic.fix:
        result["fixes"] = [_fix(diagnostic.fix)]
    return result


def _location(span: Span) -> dict[str, Any]:
    return {"physicalLocation": {"artifactLocation": {"uri": span.file}, "region": _region(span)}}


def _region(span: Span) -> dict[str, int]:
    return {
        "startLine": span.line,
        "startColumn": span.column,
        "endLine": span.end_line,
        "endColumn": span.end_column,
    }


def _fix(fix: Fix) -> dict[str, Any]:
    changes: dict[str, list[dict[str, Any]]] = {}
    for edit in fix.edits:
        replacement = {"deletedRegion": _region(edit.span), "insertedContent": {"text": edit.replacement}}
        changes.setdefault(edit.span.file, []).append(replacement)
    return {
        "description": {"text": fix.message},
        "artifactChanges": [
            {"artifactLocation": {"uri": file}, "replacements": replacements} for file, replacements in changes.items()
        ],
    }
