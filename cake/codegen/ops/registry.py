"""The registry of op emissions."""

from __future__ import annotations

from collections.abc import Callable

from cake.codegen.context import RoleContext
from cake.ir import expanded as x

Emit = Callable[[RoleContext, x.Op], None]
OPS: dict[str, Emit] = {}


def op(name: str) -> Callable[[Emit], Emit]:
    """Register the emission of an op."""

    def register(f: Emit) -> Emit:
        OPS[name] = f
        return f

    return register
