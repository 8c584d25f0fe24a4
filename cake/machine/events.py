"""What the executor tells an observer: one record for each thing an agent, an asynchronous operation or a barrier does.

The values reading needs none of this; the order reading (clocks, races, visibility) is a function of this stream alone.
Records follow docs/verification.md 1.5. Their order in the stream is one legal execution: whatever an event depends
on has been emitted before it.

**Agents.** Each warp is two agents, ``w<cta>.<warp>.L`` (the elected lane, lane 0) and ``.R`` (the other 31); each
asynchronous operation is an agent ``a<id>`` of its own. A statement of executor ``lanes`` is executed by L and R of
each warp of the instance, ``warp`` by L of each warp, ``one`` by L of the first warp. Both L and R of a warp report
the access of the whole warp: an access by all lanes has to be right under both clocks.

**Sites.** Every agent of an instance walks the same sequence of dynamic steps (the instance's *tape*);
``Site.number`` is the step's place in it. Events of several agents at one site are the same step.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from cake.diagnostics import Span
from cake.ir import expanded as x

if TYPE_CHECKING:
    from cake.machine.reach import Reach

Mode = Literal["r", "w", "rw"]
Proxy = Literal["generic", "async", "register"]
Part = Literal["reads", "writes"]

# ---- who ------------------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Agent:
    """Half of a warp. ``index`` numbers the warp agents of the batch from 0; ``cta`` and ``cluster`` number the
    simulated CTAs and clusters from 0; ``rank`` is the CTA's rank in its cluster; ``warp`` counts from the CTA's
    first."""

    index: int
    cluster: int
    cta: int
    rank: int
    warp: int
    half: Literal["L", "R"]
    role: str
    instance: int

    @property
    def name(self) -> str:
        """``w<cta>.<warp>.L`` or ``.R``."""
        return f"w{self.cta}.{self.warp}.{self.half}"

    def __repr__(self) -> str:
        return self.name


@dataclass(slots=True, eq=False)
class AsyncOp:
    """An asynchronous operation: issued by ``issuer`` and then on its own. A wgmma is one for each warp of the
    warpgroup."""

    id: int
    op: str
    issuer: Agent

    @property
    def name(self) -> str:
        """``a<id>``."""
        return f"a{self.id}"

    def __repr__(self) -> str:
        return self.name


@dataclass(slots=True, eq=False)
class Site:
    """A dynamic step: the node, the values of the enclosing loop variables (outermost first), the instance that runs
    it, its place on the instance's tape and the node's static place in the program (``math.3.0.2``)."""

    node: x.Node
    iteration: tuple[tuple[str, int], ...]
    cta: int
    role: str
    instance: int
    number: int
    path: str

    @property
    def place(self) -> int:
        """How far it is in an agent's program: the entry's steps, then its role's."""
        return self.number if self.role == "entry" else self.number + (1 << 40)

    @property
    def span(self) -> Span | None:
        """Where the node was written."""
        return self.node.span


# ---- where ----------------------------------------------------------------------------------------------------------

Spans = tuple[tuple[int, int], ...]
"""Sorted, disjoint half-open intervals."""


@dataclass(slots=True, frozen=True)
class SharedRegion:
    """Bytes of a CTA's shared memory (``spans``, absolute from its base, after swizzle). ``buffer`` and ``slot`` say
    through which declaration they were named; ``position`` is the number of the fill that the reference meant, counted
    since the kernel's start (a fill and the reads of that fill have the same one), None for buffers that are not ring
    fields."""

    cta: int
    spans: Spans
    buffer: str
    slot: int = 0
    position: int | None = None

    space: ClassVar[str] = "shared"


@dataclass(slots=True, frozen=True)
class GlobalRegion:
    """Elements of a tensor: ``box`` (half-open ranges, clipped to the tensor; empty if any range is) or, for element
    moves, ``spans`` of row-major element numbers."""

    tensor: str
    box: tuple[tuple[int, int], ...] | None = None
    spans: Spans | None = None

    space: ClassVar[str] = "global"


@dataclass(slots=True, frozen=True)
class RegisterRegion:
    """A part of a register tile: the rows and columns named, of one warp of the instance."""

    cta: int
    role: str
    instance: int
    warp: int
    tile: str
    lead: tuple[int, ...] = ()
    rows: tuple[int, int] | None = None
    cols: tuple[int, int] | None = None

    space: ClassVar[str] = "register"


Region = SharedRegion | GlobalRegion | RegisterRegion


@dataclass(slots=True, frozen=True)
class Effect:
    """One access of an operation: through which proxy, and (asynchronous operations) in which part it ends. ``reach``: which
    lane touches which bytes, of an access to shared memory by all lanes of a warp, where lanes of its role may cross."""

    operand: str
    mode: Mode
    region: Region
    proxy: Proxy
    part: Part | None = None
    reach: Reach | None = field(default=None, compare=False, repr=False)


BarrierKey = tuple[int, str, int]
"""An mbarrier: CTA, declaration, slot."""

NamedKey = tuple[int, int]
"""A named barrier: CTA, hardware id."""


# ---- what -----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Event:
    """``id`` is the place in the stream. ``site`` is None for what no statement does (begin, phase, done)."""

    id: int
    site: Site | None

    kind: ClassVar[str] = ""


@dataclass(slots=True)
class Begin(Event):
    """The agent starts (the entry, then its role)."""

    agent: Agent
    kind: ClassVar[str] = "begin"


@dataclass(slots=True)
class Exit(Event):
    """The agent's program has ended."""

    agent: Agent
    kind: ClassVar[str] = "exit"


@dataclass(slots=True)
class Access(Event):
    """A synchronous access, at this instant. ``atomic`` for read-modify-write instructions and flags. ``word``: the value
    that a signal stores or a ``wait_until`` has seen."""

    agent: Agent
    effect: Effect
    atomic: bool = False
    word: int | None = None
    kind: ClassVar[str] = "access"


@dataclass(slots=True)
class Issue(Event):
    """``agent`` starts ``op``. Its effects last from here to the done event of their part. ``barrier``: the key that
    receives the bytes, for each destination CTA; ``queue``: the group queue it joins. ``agents``: all that issue it
    together (wgmma: L and R of the warp)."""

    agent: Agent
    agents: tuple[Agent, ...]
    op: AsyncOp
    effects: tuple[Effect, ...]
    barriers: tuple[BarrierKey, ...] = ()
    bytes: int = 0
    queue: str | None = None
    kind: ClassVar[str] = "issue"


@dataclass(slots=True)
class Done(Event):
    """All effects of ``part`` have happened. Reads are done no later than writes; the byte contribution follows the
    writes."""

    op: AsyncOp
    part: Part
    kind: ClassVar[str] = "done"


@dataclass(slots=True)
class Init(Event):
    """An mbarrier is initialised (again)."""

    agent: Agent
    barrier: BarrierKey
    count: int
    kind: ClassVar[str] = "init"


@dataclass(slots=True)
class Contrib(Event):
    """A contribution to the phase that is current (``phase``). ``form``: arrive, expect, tx (bytes of a finished
    copy) or triggered (an arrival that a completion makes). ``by`` is an agent, or the operation for tx and
    triggered. ``intended`` is the phase that the contributor's ring position belongs to (None where it has none)."""

    by: Agent | AsyncOp
    barrier: BarrierKey
    form: Literal["arrive", "expect", "tx", "triggered"]
    phase: int
    weight: int = 0
    bytes: int = 0
    sem: x.Semantics = "release"
    scope: x.Scope = "cta"
    intended: int | None = None
    kind: ClassVar[str] = "contrib"


@dataclass(slots=True)
class Phase(Event):
    """Phase ``index`` of the barrier has completed; ``contributions`` are the ids of its Contrib events, the last one
    closing."""

    barrier: BarrierKey
    index: int
    contributions: tuple[int, ...]
    kind: ClassVar[str] = "phase"


@dataclass(slots=True)
class Wait(Event):
    """The agent begins to wait for phase ``intended`` (-1: the one a fresh barrier has passed; None: its cursor was set
    back, and only the parity says what it waits for)."""

    agent: Agent
    barrier: BarrierKey
    intended: int | None
    sem: x.Semantics
    scope: x.Scope
    kind: ClassVar[str] = "wait"


@dataclass(slots=True)
class Pass(Event):
    """The wait returns. ``found`` is the phase that had last completed; the wait is right if it is the intended one."""

    agent: Agent
    barrier: BarrierKey
    intended: int | None
    found: int
    sem: x.Semantics
    scope: x.Scope
    kind: ClassVar[str] = "pass"


@dataclass(slots=True)
class NamedArrive(Event):
    """An agent reaches a named barrier. ``count`` is the thread count it states, ``threads`` how many threads it
    stands for."""

    agent: Agent
    barrier: NamedKey
    form: Literal["sync", "arrive"]
    count: int
    threads: int
    generation: int
    kind: ClassVar[str] = "nb"


@dataclass(slots=True)
class NamedGeneration(Event):
    """The barrier's count is complete; those of ``synced`` go on (``arrived`` never stopped)."""

    barrier: NamedKey
    generation: int
    synced: tuple[Agent, ...]
    arrived: tuple[Agent, ...]
    kind: ClassVar[str] = "nb_gen"


@dataclass(slots=True)
class ClusterArrive(Event):
    """An agent arrives at the cluster barrier."""

    agent: Agent
    generation: int
    sem: Literal["relaxed", "release_acquire"]
    kind: ClassVar[str] = "cl_arrive"


@dataclass(slots=True)
class ClusterWait(Event):
    """An agent's wait for the cluster barrier returns."""

    agent: Agent
    generation: int
    sem: Literal["relaxed", "release_acquire"]
    kind: ClassVar[str] = "cl_wait"


@dataclass(slots=True)
class ClusterGeneration(Event):
    """All live threads of the cluster have arrived (``exited`` ones count as arrived)."""

    cluster: int
    generation: int
    kind: ClassVar[str] = "cl_gen"


@dataclass(slots=True)
class Commit(Event):
    """The agent closes group ``group`` of its queue with these operations (perhaps none)."""

    agent: Agent
    queue: str
    group: int
    ops: tuple[AsyncOp, ...]
    kind: ClassVar[str] = "commit"


@dataclass(slots=True)
class GroupWait(Event):
    """The agent's group wait returns. ``ops`` are all operations of the groups it covers that no earlier wait of this
    agent and sort covered (a wgmma group holds the operations of all four warps). ``committed``: groups the agent
    committed before."""

    agent: Agent
    queue: str
    keep: int
    read: bool
    committed: int
    ops: tuple[AsyncOp, ...]
    kind: ClassVar[str] = "gwait"


@dataclass(slots=True)
class Fence(Event):
    """A fence, as the node says."""

    agent: Agent
    what: str
    scope: x.Scope
    kind: ClassVar[str] = "fence"


@dataclass(slots=True)
class Join(Event):
    """``members`` meet. ``strength``: "all" (syncwarp: C, V and F) or "control" (a .sync collective: C only)."""

    name: str
    members: tuple[Agent, ...]
    strength: Literal["all", "control"]
    kind: ClassVar[str] = "join"


@dataclass(slots=True)
class Registers(Event):
    """A warp gives registers to the pool (dec) or has received them (inc). ``amount`` is in registers, positive."""

    agent: Agent
    form: Literal["inc", "dec"]
    amount: int
    pool: int
    kind: ClassVar[str] = "reg"


@dataclass(slots=True)
class Unset(Event):
    """The step at ``site`` reads registers of ``tile`` that no step of its instance has set. It comes when the instance's first
    agent reaches the step."""

    tile: str
    kind: ClassVar[str] = "unset"


# ---- observers ------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Setup:
    """What is fixed before the first event: the kernel, its launch values, and the agents of the simulated clusters
    that are started together. ``tracked`` are the register tiles that some asynchronous operation names: only they
    are reported."""

    kernel: x.Kernel
    values: dict[str, Any]
    agents: tuple[Agent, ...]
    tracked: frozenset[str] = field(default_factory=frozenset)


class Observer(Protocol):
    """Reads the stream. ``start`` is called once for each batch of clusters that runs together, ``end`` when it has
    finished. One that has an attribute ``inputs`` that is False is not told of loads from inputs, which are the better part
    of many kernels' accesses and conflict with nothing."""

    def start(self, setup: Setup) -> None:
        """The agents of a batch exist."""

    def event(self, event: Event) -> None:
        """The next event."""

    def end(self) -> None:
        """All agents have exited and all operations are done."""


class Recorder:
    """The simplest observer: keeps every event."""

    def __init__(self) -> None:
        self.setups: list[Setup] = []
        self.events: list[Event] = []

    def start(self, setup: Setup) -> None:
        """Keep the setup."""
        self.setups.append(setup)

    def event(self, event: Event) -> None:
        """Keep the event."""
        self.events.append(event)

    def end(self) -> None:
        """Nothing to do."""

    def of(self, kind: str) -> list[Event]:
        """The events of one kind, in order."""
        return [e for e in self.events if e.kind == kind]


# ---- regions --------------------------------------------------------------------------------------------------------


def spans_of(starts: Iterable[int], size: int) -> Spans:
    """Merge equal-sized intervals at ``starts`` into sorted, disjoint spans."""
    merged: list[list[int]] = []
    for start in sorted(starts):
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], start + size)
        else:
            merged.append([start, start + size])
    return tuple((lo, hi) for lo, hi in merged)


def spans_overlap(a: Spans, b: Spans) -> bool:
    """True if some number lies in both."""
    i = j = 0
    while i < len(a) and j < len(b):
        if a[i][0] < b[j][1] and b[j][0] < a[i][1]:
            return True
        if a[i][1] <= b[j][1]:
            i += 1
        else:
            j += 1
    return False
