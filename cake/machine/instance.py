"""What executes: clusters of CTAs, and in each CTA the instances of the roles (and the entry, run by every warp)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from cake.ir import expanded as x
from cake.machine.agents import Runner
from cake.machine.barriers import ClusterBarrier, MBarrier, NamedBarrier, Pool
from cake.machine.elementwise import Array
from cake.machine.faults import fail
from cake.machine.memory import Shared

if TYPE_CHECKING:
    from cake.machine.executor import Executor
    from cake.machine.flights import Flight
    from cake.machine.meanings.moves import PendingStore
    from cake.machine.tape import Tape
    from cake.machine.unset import Unset


@dataclass(eq=False)
class ClusterState:
    """The CTAs of a cluster, by rank."""

    index: int
    barrier: ClusterBarrier
    ctas: list[Cta] = field(default_factory=list)


@dataclass(eq=False)
class Cta:
    """One CTA: its shared memory and its barriers. ``index`` counts the simulated CTAs."""

    index: int
    rank: int
    cluster: ClusterState
    shared: Shared
    barriers: dict[str, list[MBarrier]]
    pool: Pool | None
    named: dict[int, NamedBarrier] = field(default_factory=dict)

    def named_barrier(self, number: int) -> NamedBarrier:
        """The hardware barrier with this id."""
        found = self.named.get(number)
        if found is None:
            found = self.named[number] = NamedBarrier((self.index, number))
        return found


class Variables(dict[str, Any]):
    """The uniform scalars of an instance; one that no statement has set is refused where it is used."""

    def __missing__(self, name: str) -> NoReturn:
        fail("D209", f"`{name}` has no value here: no statement that was executed sets it", None)


class Instance:
    """One instance of a role in one CTA (role None: the entry). ``env`` holds its uniform scalars, ``tiles`` its
    registers, ``cursors`` its ring positions; all as of the farthest step of its tape. ``counted`` is what each cursor
    would be had it never been set back: the number of the fill or wait. ``unset``: registers that no step has set."""

    __slots__ = (
        "counted",
        "cta",
        "cursors",
        "env",
        "first_warp",
        "index",
        "last_wgmma",
        "machine",
        "pending",
        "role",
        "runners",
        "solo",
        "tape",
        "tiles",
        "unset",
        "warps",
    )

    def __init__(
        self,
        machine: Executor,
        cta: Cta,
        role: x.Role | None,
        index: int,
        first_warp: int,
        warps: int,
        env: dict[str, Any],
        tiles: dict[str, Array],
    ) -> None:
        self.machine = machine
        self.cta = cta
        self.role = role
        self.index = index
        self.first_warp = first_warp
        self.warps = warps
        self.env = Variables(env)
        self.tiles = tiles
        self.unset: Unset = dict.fromkeys(tiles)
        self.cursors: dict[str, int] = {} if role is None else dict.fromkeys(role.cursors, 0)
        self.counted: dict[str, int] = dict(self.cursors)
        self.solo = role is not None and role.solo
        self.runners: list[Runner] = []
        self.last_wgmma: Flight | None = None
        self.pending: list[PendingStore] = []
        self.tape: Tape

    @property
    def role_name(self) -> str:
        """The role, or ``entry``."""
        return self.role.name if self.role is not None else "entry"

    @property
    def name(self) -> str:
        """``math[1]`` (and the CTA where several run)."""
        name = self.role_name
        if self.role is not None and self.role.instances > 1:
            name += f"[{self.index}]"
        if self.machine.cta_count > 1:
            name += f" of CTA {self.cta.index}"
        return name

    def position(self, slot: x.Slot) -> int:
        """The ring position that ``slot`` names now."""
        if slot.cursor is None:
            return slot.back
        return self.cursors[slot.cursor] - slot.back

    def number(self, slot: x.Slot) -> int:
        """Which fill or wait of the ring that is, counted since the kernel's start."""
        return slot.back if slot.cursor is None else self.counted[slot.cursor] - slot.back

    def meant(self, slot: x.Slot, slots: int, ahead: int = 0) -> int | None:
        """The phase that the position means. A cursor that was set back still means the phase of its count where slot
        and parity agree; else none that could be named."""
        position, number = self.position(slot), self.number(slot)
        agree = position % slots == number % slots and (position // slots - number // slots) % 2 == 0
        return number // slots + ahead if agree else None
