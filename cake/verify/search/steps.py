"""What a launch executes, instance by instance: straight lists of dynamic steps with their operands evaluated.

Control of a launch in the fragment (docs/verification.md 1.3, F-a) depends on launch values only, so each role instance has one
list, whatever the schedule; its warps walk it at their own pace.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from cake.ir import expanded as x

Slot = tuple[int, str, int]
"""An mbarrier: CTA, name, slot."""

Pick = Callable[[tuple[int, ...], str], int | None]
"""The region that some warps of an instance touch (lane L, lanes R, LR, or a lane by its number), None for nothing."""

ELECTED = frozenset({"L", "LR", "0"})
"""Parts of a warp that have the elected lane."""


class Undecided(Exception):
    """The launch is outside what this engine can read; the text says why."""


class Fault(Exception):
    """Something that is wrong in every schedule, found while the program is unrolled."""


@dataclass(frozen=True)
class Tag:
    """Which fill of a ring a value is: the ring's field and the position counted since the kernel's start."""

    base: str
    position: int


@dataclass(slots=True)
class Touch:
    """One access of a step. ``asynchronous``: by the async proxy. ``tag``: the fill that it writes, or means to read."""

    mode: str
    asynchronous: bool
    pick: Pick
    space: str
    cta: int
    base: str
    tag: Tag | None = None
    source: bool = False


@dataclass(slots=True, eq=False)
class Step:
    """A dynamic step of an instance; which fields mean something depends on ``kind``."""

    kind: str
    executor: x.Executor
    alone: bool
    path: str
    iteration: tuple[int, ...]
    node: x.Node
    barriers: tuple[Slot, ...] = ()
    phase: int = 0
    meant: int | None = None
    form: str = ""
    weight: int = 0
    bytes: int = 0
    sem: str = "release"
    scope: str = "cta"
    ident: int = 0
    count: int = 0
    queue: str = ""
    keep: int = 0
    read: bool = False
    what: str = ""
    width: int = 0
    triggered: bool = False
    touches: list[Touch] = field(default_factory=list)
    flag: tuple[str, int] | None = None
    value: int = 0
    adds: bool = True
    """wgmma: to what the accumulators hold."""

    def text(self) -> str:
        """For a witness: what and where."""
        at = f" {list(self.iteration)}" if self.iteration else ""
        what = f"{self.barriers[0][1]}[{self.barriers[0][2]}]" if self.barriers else self.queue or self.what
        name = self.node.op if isinstance(self.node, x.Op) else self.kind
        return f"{self.path}{at} {name} {what}".rstrip()


@dataclass(eq=False)
class Instance:
    """A role instance in one CTA (role None: a CTA's entry)."""

    cluster: int
    cta: int
    rank: int
    role: x.Role | None
    index: int
    first_warp: int
    warps: int
    steps: list[Step] = field(default_factory=list)

    @property
    def solo(self) -> bool:
        """Only one lane runs the body."""
        return self.role is not None and self.role.solo

    @property
    def name(self) -> str:
        """For a witness."""
        role = self.role.name if self.role is not None else "entry"
        return f"cta{self.cta}.{role}[{self.index}]"


@dataclass(eq=False)
class Agent:
    """Some warps that go together (``warps``: their numbers in the instance), or a part of them: the elected lane (``half`` L), the
    others (R), or one lane (its number). ``program``: the steps
    that they execute; ``touched``: for each, its accesses and their regions."""

    number: int
    cluster: int
    cta: int
    instance: Instance
    warps: tuple[int, ...]
    half: str
    program: list[Step] = field(default_factory=list)
    touched: list[list[tuple[Touch, int]]] = field(default_factory=list)

    @property
    def lanes(self) -> int:
        """Threads of one warp that it stands for."""
        return {"R": 31, "LR": 32}.get(self.half, 1)

    @property
    def name(self) -> str:
        """For a witness."""
        part = "" if self.half == "LR" else f".{self.half}" if self.half.isdigit() else self.half
        return f"{self.instance.name}.w{self.warps[0]}{part}"

    def threads(self, step: Step) -> int:
        """Threads that execute ``step`` as this agent."""
        if step.alone or step.executor == "one":
            return 1
        if step.executor == "warp":
            return len(self.warps)
        return self.lanes * len(self.warps)

    def add(self, step: Step, warps: tuple[int, ...]) -> None:
        """One more step; ``warps``: their numbers where the step belongs."""
        self.program.append(step)
        found = [(t, t.pick(warps, self.half)) for t in step.touches]
        self.touched.append([(t, region) for t, region in found if region is not None])

    def executes(self, step: Step) -> bool:
        """Whether it is among a step's executors."""
        if step.alone or step.executor == "one":
            return 0 in self.warps and self.half in ELECTED
        return step.executor == "lanes" or self.half in ELECTED
