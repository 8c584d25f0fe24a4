"""Lanes of a warp that cross in shared memory (D216).

The clocks take the 31 lanes of R for one agent, and its program for the order of what it does. Program order is of one thread
only (PTX ISA 8.9.1): what lane i has written may not be there for lane j, nor what i still reads be safe from j, until the
warp has met (`bar.warp.sync`, a barrier: 9.7.13.2, 9.7.13.1) or a message has gone from all of its lanes to all of its lanes (arrivals
and waits of all of them at an mbarrier, cluster barriers). Collective instructions (`shfl`, `ldmatrix`, `mma`) bring lanes together
and order no memory.

So of each warp those accesses are kept that not all of its lanes know of, as an agent R that sees its own releases come back
would know it, and each new access is compared with them lane by lane (``cake.machine.reach``). L executes the same statements, and
what it alone does is compared by the clocks. So is cp.async, of which L and R issue operations of their own.
"""

from __future__ import annotations

from typing import NamedTuple

from cake.diagnostics import Diagnostic, Label
from cake.machine import events as ev
from cake.machine.order.clocks import Clock, R, V
from cake.machine.order.report import finding, of, steps
from cake.machine.order.shadow import Access
from cake.machine.reach import Crossing, Reach, crossing


class Key(NamedTuple):
    """What makes an access stand for another one: the same lanes touch the same bytes in the same way."""

    cta: int
    reach: tuple[str, int, int, bytes]
    mode: str
    atomic: bool


class Lanes:
    """``open``: for each agent R what its lanes have touched and not all of them know of, the latest access of each reach."""

    def __init__(self) -> None:
        self.open: dict[int, dict[Key, Access]] = {}
        self.pairs: dict[tuple[object, object], Crossing | None] = {}
        self.findings: dict[tuple[str, str], Diagnostic] = {}

    def access(self, access: Access) -> None:
        """All lanes of a warp touch shared memory (told once for the warp, of R)."""
        reach, region = access.effect.reach, access.effect.region
        assert reach is not None and isinstance(region, ev.SharedRegion)
        mine = self.open.setdefault(access.column, {})
        for old in mine.values():
            if old.effect.region.cta == region.cta and _conflict(old, access):  # type: ignore[union-attr]
                found = self._crossing(old.effect.reach, reach)
                if found is not None:
                    self._tell(old, access, found)
        mine[Key(region.cta, reach.key, access.effect.mode, access.atomic)] = access

    def met(self, column: int) -> None:
        """The lanes have met: all know what each has done."""
        self.open.pop(column, None)

    def heard(self, column: int, message: Clock) -> None:
        """All lanes have received a message."""
        mine = self.open.get(column)
        if mine:
            self.open[column] = {k: a for k, a in mine.items() if not _known(a, message)}

    def _crossing(self, earlier: Reach | None, later: Reach) -> Crossing | None:
        assert earlier is not None
        key = earlier.key, later.key
        if key not in self.pairs:
            self.pairs[key] = crossing(earlier.touched, later.touched)
        return self.pairs[key]

    def _tell(self, earlier: Access, later: Access, found: Crossing) -> None:
        assert earlier.site is not None and later.site is not None
        places = earlier.site.path, later.site.path
        if places not in self.findings:
            self.findings[places] = _finding(earlier, later, found)


def _conflict(earlier: Access, later: Access) -> bool:
    return (earlier.writes or later.writes) and not (earlier.atomic and later.atomic)


def _known(access: Access, message: Clock) -> bool:
    return message.knows(access.column, access.number, V if access.writes else R)


def _finding(earlier: Access, later: Access, found: Crossing) -> Diagnostic:
    region = later.effect.region
    assert isinstance(region, ev.SharedRegion) and later.site is not None
    warp = of(later.agent)
    first, then = (_does(a.effect.mode, lane) for a, lane in ((earlier, found.earlier), (later, found.later)))
    return finding(
        "D216",
        f"{then} `{region.buffer}`[{region.slot}] where {first} it before, and nothing orders the two lanes of {warp}",
        later.site,
        labels=tuple(
            Label(span=a.site.span if a.site is not None else None, text=f"{when}: {does} these bytes")
            for a, when, does in ((earlier, "first here", first), (later, "then", then))
        ),
        witness=(
            f"{first} `{_buffer(earlier)}`{steps(earlier.site)}",
            f"{then} `{region.buffer}`{steps(later.site)}",
            f"both touch bytes {found.first} .. {found.first + found.size - 1} of the CTA's shared memory",
        ),
        help="sync() between the two accesses: the lanes of a warp run on their own",
    )


def _does(mode: str, lane: int) -> str:
    return f"lane {lane} {'reads' if mode == 'r' else 'writes' if mode == 'w' else 'updates'}"


def _buffer(access: Access) -> str:
    region = access.effect.region
    assert isinstance(region, ev.SharedRegion)
    return region.buffer
