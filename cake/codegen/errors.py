"""What the emitter cannot say in CUDA."""

from __future__ import annotations

from cake.diagnostics import CakeError, Diagnostic, Span


def unsupported(message: str, help: str, span: Span | None = None) -> CakeError:
    """G020: a valid expanded kernel asks for a form that has no emission."""
    return CakeError(Diagnostic(code="G020", severity="error", message=message, help=help, span=span))
