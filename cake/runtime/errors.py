"""The codes of a refused launch, in one place. R001-R005 (arguments, shapes, dtypes, zero dims, guards) are those of
``cake.ir.binding``, R021 (assumptions about values) that of the simulator."""

from __future__ import annotations

from cake.diagnostics import CakeError, Diagnostic, Span

NOT_A_TENSOR = "R006"
STRIDES = "R007"
ALIGNMENT = "R008"
DEVICE = "R009"
OVERLAP = "R010"
TOO_LARGE = "R011"
TENSOR_MAP = "R012"
GRID = "R013"
TARGET = "R014"
RESOURCES = "R015"
NO_DRIVER = "R016"
NO_DEVICE = "R017"
CUDA_CALL = "R018"
TIMEOUT = "R019"
CRASHED = "R020"
READ_ONLY = "R022"
NOT_PREPARED = "R023"


def refusal(code: str, message: str, help: str, *facts: str, span: Span | None = None) -> Diagnostic:
    """The diagnostic of a refused launch."""
    return Diagnostic(code=code, severity="error", message=message, help=help, facts=facts, span=span)


def error(code: str, message: str, help: str, *facts: str, span: Span | None = None) -> CakeError:
    """The same as an exception."""
    return CakeError(refusal(code, message, help, *facts, span=span))
