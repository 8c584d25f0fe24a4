"""Where the litmus programs register: name to builder."""

from __future__ import annotations

from collections.abc import Callable

from cake.ir.expanded import Kernel

PROGRAMS: dict[str, Callable[[], Kernel]] = {}


def program(name: str) -> Callable[[Callable[[], Kernel]], Callable[[], Kernel]]:
    """Register a builder under ``name`` (its number in the table, a letter for a variant, a few words)."""

    def add(builder: Callable[[], Kernel]) -> Callable[[], Kernel]:
        assert name not in PROGRAMS, name
        PROGRAMS[name] = builder
        return builder

    return add
