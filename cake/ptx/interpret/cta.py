"""A CTA with what it synchronises by, and words of global memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from cake.ptx.interpret.barriers import ClusterBarrier, MBarrier, Named, Pool
from cake.ptx.interpret.clocks import Clock, Knowledge
from cake.ptx.interpret.shadow import Access, Memory
from cake.ptx.interpret.warps import Warp, Watched


@dataclass(eq=False)
class Cta:
    """``end``: what its exits know; ``words``: known integers in shared memory; ``flights``: operations that touch its
    memory; ``touches``: what other CTAs did here, as components and epochs; ``done``: it has ended."""

    number: int
    rank: int
    cluster: ClusterBarrier
    memory: Memory
    warps: list[Warp]
    end: Clock
    barriers: dict[int, MBarrier] = field(default_factory=dict)
    named: dict[int, Named] = field(default_factory=dict)
    pool: Pool = field(default_factory=Pool)
    words: dict[int, int] = field(default_factory=dict)
    flights: dict[Access, None] = field(default_factory=dict)
    touches: list[tuple[int, int, str]] = field(default_factory=list)
    done: bool = False


class Word(Watched):
    """A word of global memory that threads synchronise by. ``message``: scope, CTA and knowledge of its last release."""

    def __init__(self) -> None:
        self.message: tuple[str, int, Knowledge] | None = None
