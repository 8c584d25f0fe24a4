"""What executes an instruction, and what a schedule chooses among."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from cake.ptx.interpret.program import Operand, Step
from cake.ptx.interpret.warps import Fiber, Watched

if TYPE_CHECKING:
    from cake.ptx.interpret.machine import Machine


@dataclass(frozen=True)
class Handler:
    """Who executes an instruction. ``run`` returns what the fiber is blocked on, or None. ``sync``: a schedule may
    choose before it. ``collective``: needs its warp together. ``results``, ``values``: operands by place that it sets,
    and that only matter if its results do; ``ignored`` ones never matter, nor vectors of a ``vectors`` instruction."""

    run: Callable[[Machine, Fiber, Step, int], Watched | None]
    sync: bool = True
    collective: bool = False
    results: tuple[int, ...] = ()
    values: tuple[int, ...] = ()
    ignored: tuple[int, ...] = ()
    vectors: bool = False

    def roles(self, s: Step) -> tuple[list[Operand], list[Operand], list[Operand]]:
        """Operands set, of value only, and needed."""
        out: tuple[list[Operand], list[Operand], list[Operand]] = ([], [], [])
        for n, operand in enumerate(s.args):
            if n not in self.ignored and not (self.vectors and isinstance(operand, tuple)):
                out[0 if n in self.results else 1 if n in self.values else 2].append(operand)
        return out


class Landing(Protocol):
    """A part of an asynchronous operation that ends at a time of its own choosing. ``number`` counts issues."""

    number: int

    def land(self, m: Machine) -> None:
        """It ends."""


class Choice(Protocol):
    """A schedule."""

    name: str

    def pick(self, fibers: list[Fiber], landings: list[Landing]) -> Fiber | Landing:
        """Who goes next; one of both lists is not empty."""
