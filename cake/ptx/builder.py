"""Writes a reduced program from structured statements, with loops rotated as a compiler rotates them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cake.ptx.flow import Event, Node, Operand, Program, Set
from cake.ptx.values import Function, Value, same


class Builder:
    """A program under construction."""

    def __init__(self) -> None:
        self.nodes: list[Node] = [Node()]
        self._temporaries = 0

    @property
    def here(self) -> Node:
        """The block being written."""
        return self.nodes[-1]

    def temporary(self) -> str:
        """A new register."""
        self._temporaries += 1
        return f"t{self._temporaries}"

    def compute(self, f: Function, *args: Operand, step: bool = False, compares: bool = False) -> Operand:
        """A new register with the function's value; a literal where the operands are literals."""
        if not any(isinstance(a, str) for a in args):
            value = f(*args)
            if type(value) in (int, bool):
                return int(value) if type(value) is int else bool(value)
        name = self.temporary()
        self.here.steps.append(Set(name, f, args, step, compares))
        return name

    def constant(self, value: Value) -> Operand:
        """A register that holds a value which is no number."""
        return self.compute(lambda: value)

    def assign(self, name: str, value: Operand, step: bool = True) -> None:
        """``name := value``."""
        self.here.steps.append(Set(name, same, (value,), step))

    def event(
        self,
        *head: Any,
        args: tuple[Operand, ...] = (),
        star: bool = False,
        where: Any = None,
        extra: tuple[Operand, ...] = (),
    ) -> None:
        """A letter."""
        self.here.steps.append(Event(head, args, star=star, where=where, extra=extra))

    def end(self) -> None:
        """The thread ends here; what is written next is not reached."""
        self.here.then = None
        self.nodes.append(Node())

    def _follow(self) -> int:
        """Close the block; the next one follows it."""
        at = len(self.nodes)
        self.here.then = at
        self.nodes.append(Node())
        return at

    @contextmanager
    def when(self, predicate: Operand, otherwise: bool = False) -> Iterator[None]:
        """What is written inside runs where the predicate holds (``otherwise``: where it does not)."""
        head = self.here
        head.predicate = predicate
        inner = len(self.nodes)
        self.nodes.append(Node())
        yield
        after = len(self.nodes)
        self.here.then = after
        self.nodes.append(Node())
        head.then, head.other = (after, inner) if otherwise else (inner, after)

    def open_loop(self) -> int:
        """The head of a loop."""
        return self._follow()

    def close_loop(self, head: int, again: Operand) -> None:
        """Back to ``head`` where ``again`` holds."""
        end = self.here
        at = len(self.nodes)
        end.predicate, end.then, end.other = again, head, at
        self.nodes.append(Node())

    def program(self) -> Program:
        """What was written."""
        return Program(self.nodes)
