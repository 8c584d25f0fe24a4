"""Errors between processes."""

from __future__ import annotations

import pickle

from cake.diagnostics import CakeError, Diagnostic, Span


def test_an_error_keeps_its_findings_when_a_pool_hands_it_on() -> None:
    span = Span(file="k.cake", line=3, column=5, end_line=3, end_column=9)
    error = CakeError(Diagnostic(code="P101", severity="error", message="stuck", span=span, help="wait"))
    copy = pickle.loads(pickle.dumps(error))
    assert copy.diagnostics == error.diagnostics and str(copy) == str(error)
