"""Faults made by editing an expanded kernel: every statement passes through a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cake.ir import expanded as x

Change = Callable[[x.Stmt], "x.Stmt | list[x.Stmt] | None"]


def _body(body: tuple[x.Stmt, ...], change: Change) -> tuple[x.Stmt, ...]:
    result: list[x.Stmt] = []
    for node in body:
        if isinstance(node, x.For):
            node = node.model_copy(update={"body": _body(node.body, change)})
        elif isinstance(node, x.If):
            then, orelse = _body(node.then, change), _body(node.orelse, change)
            node = node.model_copy(update={"then": then, "orelse": orelse})
        new = change(node)
        result += new if isinstance(new, list) else [] if new is None else [new]
    return tuple(result)


def edit(kernel: x.Kernel, change: Change, role: str | None = None) -> x.Kernel:
    """``kernel`` with ``change`` applied to each statement of ``role`` (None: of every role): a node, several, or
    None to drop it."""
    roles = tuple(
        r.model_copy(update={"body": _body(r.body, change)}) if role in (None, r.name) else r for r in kernel.roles
    )
    return kernel.model_copy(update={"roles": roles})


def is_arrive(node: x.Stmt, barrier: str) -> bool:
    """An arrival on ``barrier``."""
    return isinstance(node, x.Arrive) and node.barrier == barrier


def with_count(kernel: x.Kernel, barrier: str, count: int) -> x.Kernel:
    """``kernel`` with another arrival count."""
    barriers = tuple(b.model_copy(update={"count": count}) if b.name == barrier else b for b in kernel.barriers)
    return kernel.model_copy(update={"barriers": barriers})


def updated(node: Any, **values: Any) -> Any:
    """A changed copy."""
    return node.model_copy(update=values)
