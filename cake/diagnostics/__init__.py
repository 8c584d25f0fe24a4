"""Diagnostics: schema, renderers and explain pages."""

from cake.diagnostics.model import (
    CakeError,
    Diagnostic,
    Edit,
    Findings,
    Fix,
    Label,
    Record,
    Severity,
    Span,
)

__all__ = ["CakeError", "Diagnostic", "Edit", "Findings", "Fix", "Label", "Record", "Severity", "Span"]
