"""Raising a finding of the machine: always with the node it happened at."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from cake.diagnostics import CakeError, Diagnostic, Label, Span

if TYPE_CHECKING:
    from cake.machine.tape import Step


DIVISOR = "demand with `where` what makes the divisor positive, or divide under a condition"
"""The way out of a division by zero (N807)."""


def place(step: Step) -> str:
    """Where a dynamic step is, in words: ``math[1], t.pos=2, k=3``."""
    inst = step.tape.instance
    where = inst.name
    if step.iteration:
        where += ", " + ", ".join(f"{name}={value}" for name, value in step.iteration)
    return where


def fail(
    code: str,
    message: str,
    span: Span | None,
    *,
    facts: tuple[str, ...] = (),
    witness: tuple[str, ...] = (),
    labels: tuple[Label, ...] = (),
    help: str | None = None,
) -> NoReturn:
    """Stop the machine with one finding."""
    raise CakeError(
        Diagnostic(
            code=code,
            severity="error",
            message=message,
            span=span,
            facts=facts,
            witness=witness,
            labels=labels,
            help=help,
        )
    )


def fail_at(code: str, message: str, step: Step, **more: tuple[str, ...] | str | None) -> NoReturn:
    """Stop the machine with a finding at a step; the place becomes a fact."""
    facts = (f"at {place(step)}", *more.pop("facts", ()))  # type: ignore[misc]
    fail(code, message, step.code.node.span, facts=facts, **more)  # type: ignore[arg-type]
