"""The state of an expansion: what a kernel declares, and where the walk through a role's body is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn

from cake.diagnostics import Findings, Fix, Label, Span
from cake.expand.values import Handle, Storage, Value
from cake.facts import Facts
from cake.ir import expanded as x
from cake.ir import surface as s
from cake.ir.dtypes import DTypeName
from cake.ir.expr import Expr
from cake.ir.layout import TileType
from cake.ir.targets import Target


class Abort(Exception):
    """The statement at hand was refused and a diagnostic recorded; the walk goes on with the next one."""


@dataclass
class BufferInfo:
    """A shared buffer before its offset is known. ``generic_reads`` etc. accumulate while roles are expanded."""

    name: str
    dtype: DTypeName
    shape: tuple[int, ...]
    swizzle: int = 0
    pad: int = 0
    slots: int = 1
    instances: int = 1
    alias: str | None = None
    linger: int = 0
    span: Span | None = None


@dataclass
class RingInfo:
    """A pipeline. ``arrivals``: contributions to the full barrier by each producer role's instances, known once its fills are
    expanded. ``mechanisms``: the operations that fill it, by role (a scan of the text, so that releases know whether the async
    proxy refills the stage before the producer is expanded). ``multicast``: the buffers of which peers of the cluster write a part,
    so that releases go to all of them (from the same scan); ``generic``: those that some consumer reads with ordinary loads.
    ``longer``: slots of the fields that linger, each number once; such fields are reached through cursors of their own.
    ``derived``: not written by the author. ``one``: each stage goes to one instance of the consumer. ``across``: the CTAs of a
    cluster fill and give back their stages together, and read one another's."""

    name: str
    stages: int
    producers: tuple[str, ...]
    consumers: tuple[str, ...]
    fields: dict[str, str]
    mechanisms: dict[str, set[str]] = field(default_factory=dict)
    arrivals: dict[str, int] = field(default_factory=dict)
    multicast: set[str] = field(default_factory=set)
    generic: set[str] = field(default_factory=set)
    longer: tuple[int, ...] = ()
    derived: bool = False
    one: bool = False
    across: bool = False
    span: Span | None = None

    @property
    def store(self) -> bool:
        """True for rings that the bulk-store engine drains."""
        return self.consumers == ("store",)

    @property
    def refilled_async(self) -> bool:
        """True if some fill writes through the async proxy."""
        return any("tma.load" in kinds for kinds in self.mechanisms.values())


@dataclass
class RoleInfo:
    """A role and its place among the warps of the CTA."""

    name: str
    warps: int
    instances: int
    registers: int | None
    first_warp: int
    span: Span | None = None


@dataclass
class TilesInfo:
    """The work list: its axes, and the statements that decode a position into the fields of a tile. ``walked``: what each axis
    counts in the walk: its values, or clusters of ``cluster`` neighbours on the axis ``clustered``. ``drawer``: the role that
    draws positions (``dynamic``)."""

    schedule: str
    axes: tuple[s.Axis, ...]
    extents: dict[str, Expr]
    positions: Expr
    declaration: s.Tiles
    walked: dict[str, Expr]
    clustered: str | None = None
    cluster: int = 1
    drawer: str | None = None


class KernelContext:
    """Everything declared by one kernel at one point of its search set."""

    def __init__(self, file: s.File, kernel: s.Kernel, target: Target, findings: Findings) -> None:
        self.file = file
        self.kernel = kernel
        self.target = target
        self.findings = findings
        self.facts = Facts()
        self.env: dict[str, Value] = {}
        self.spans: dict[str, Span] = {}
        self.constants: dict[str, bool | int | float] = {}
        self.storages: dict[str, Storage] = {}
        self.tensors: list[x.Tensor] = []
        self.scalars: list[x.ScalarParam] = []
        self.dims: dict[str, x.Dim] = {}
        self.guards: list[x.Condition] = []
        self.assumes: list[x.Condition] = []
        self.definitions: list[tuple[str, Expr, Span]] = []
        self.buffers: dict[str, BufferInfo] = {}
        self.rings: dict[str, RingInfo] = {}
        self.roles: dict[str, RoleInfo] = {}
        self.turns: dict[str, str] = {}
        self.tiles: TilesInfo | None = None
        self.maps: dict[tuple[Any, ...], x.TensorMap] = {}
        self.named: list[x.NamedBarrier] = [x.NamedBarrier(name="cta", id=0, threads=0)]
        self.next_named = 1
        self.axis_dims: dict[tuple[str, int], tuple[str, Span]] = {}
        self.contractions: list[tuple[Span, tuple[str, int], tuple[str, int]]] = []

    def error(
        self,
        code: str,
        message: str,
        span: Span | None,
        *,
        labels: tuple[Label, ...] = (),
        facts: tuple[str, ...] = (),
        help: str | None = None,
        fix: Fix | None = None,
    ) -> None:
        """Record a finding and go on."""
        self.findings.error(code, message, span, labels=labels, facts=facts, help=help, fix=fix)

    def refuse(self, code: str, message: str, span: Span | None, **more: Any) -> NoReturn:
        """Record a finding and abandon the statement."""
        self.error(code, message, span, **more)
        raise Abort

    def named_barrier(self, name: str, threads: int, size: int, per_instance: bool, span: Span | None) -> str:
        """Declare ``size`` hardware barrier ids under ``name``, once; returns the name."""
        if all(b.name != name for b in self.named):
            self.named.append(
                x.NamedBarrier(
                    name=name, id=self.next_named, size=size, threads=threads, per_instance=per_instance, span=span
                )
            )
            self.next_named += size
        return name


@dataclass(frozen=True)
class Group:
    """A wgmma group in flight: the accumulator it writes and the register tiles it reads, by key (see ``emission.key``)."""

    writes: str
    reads: frozenset[str] = frozenset()
    span: Span | None = None


Flight = tuple[Group, ...]
"""The wgmma groups in flight, oldest first."""


@dataclass
class State:
    """What is known at a point of a role's program. ``held``: stages each pipeline's handle queue holds. ``flights``: the possible
    contents of the wgmma queue. ``assigned``: register tiles with a value on every path. ``released``: stages given back on some
    path, with the most stages of the same pipeline that were given back after them."""

    held: dict[str, int] = field(default_factory=dict)
    flights: frozenset[Flight] = frozenset({()})
    assigned: frozenset[str] = frozenset()
    released: dict[Handle, int] = field(default_factory=dict)

    def copy(self) -> State:
        """An independent copy."""
        return State(dict(self.held), self.flights, self.assigned, dict(self.released))


class RoleContext:
    """The walk through the body of one role. ``out`` receives the expanded statements."""

    def __init__(self, kernel: KernelContext, role: RoleInfo, var: str | None) -> None:
        self.kernel = kernel
        self.role = role
        self.var = var
        self.facts = kernel.facts.copy()
        self.env: dict[str, Value] = dict(kernel.env)
        self.out: list[x.Stmt] = []
        self.state = State()
        self.tiles: dict[str, TileType] = {}
        self.cursors: dict[str, int] = {}
        self.counter = 0
        self.solo = False
        self.fill: FillState | None = None
        self.queues: dict[str, list[Handle]] = {}
        self.given_back: dict[str, list[Span]] = {}
        self.leaving: Span | None = None
        self.generic: set[str] = set()
        self.releases: dict[tuple[Any, ...], Any] | None = None
        self.first_pass: dict[tuple[Any, ...], Any] | None = None
        self.counts: dict[tuple[Any, ...], Any] = {}
        self.first_condition: Expr | None = None
        self.path: tuple[int, ...] = ()
        self.control: list[str] = []
        self.doubtful: set[str] = set()
        self.broken: set[str] = set()
        self.loop_variables: list[str] = []
        self.unstored: dict[str, Handle] = {}
        self.bulk = False
        self.loads: dict[str, list[tuple[Expr, Expr]]] = {}
        self.hint: str | None = None

    @contextmanager
    def under(self, control: str) -> Iterator[None]:
        """Inside a run-time condition or loop, in words: moves of a fill may not depend on it."""
        self.control.append(control)
        try:
            yield
        finally:
            self.control.pop()

    @property
    def threads(self) -> int:
        """Threads of an instance."""
        return 32 * self.role.warps

    def emit(self, *nodes: x.Stmt) -> None:
        """Append statements to the program."""
        self.out.extend(nodes)

    def fresh(self, hint: str) -> str:
        """A new name for a derived variable; the dot keeps it apart from every written name."""
        self.counter += 1
        return f"{hint}.{self.counter}"

    @contextmanager
    def block(self) -> Iterator[list[x.Stmt]]:
        """Collect the statements emitted inside into a list of their own."""
        saved, self.out = self.out, []
        try:
            yield self.out
        finally:
            self.out = saved

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Facts assumed inside do not outlive the block."""
        saved = self.facts
        self.facts = saved.copy()
        try:
            yield
        finally:
            self.facts = saved

    def refuse(self, code: str, message: str, span: Span | None, **more: Any) -> NoReturn:
        """Record a finding and abandon the statement."""
        self.kernel.refuse(code, message, span, **more)

    def error(self, code: str, message: str, span: Span | None, **more: Any) -> None:
        """Record a finding and go on."""
        self.kernel.error(code, message, span, **more)

    def not_built(self, what: str, span: Span | None) -> NoReturn:
        """Refuse a construct of the language that Cake cannot expand yet."""
        self.refuse(
            "T099",
            f"{what} is part of the language but not built yet",
            span,
            help="`docs/language.md` marks what runs today",
        )


@dataclass
class FillState:
    """A fill in progress: what has been written to the stage, to prove that every byte is written exactly once. ``depth``: how
    many run-time conditions and loops the fill itself is in. ``symbolic``: what it writes is not all known."""

    handle: Handle
    ring: RingInfo
    bytes: int = 0
    boxes: list[tuple[str, tuple[tuple[int, int], ...], Span | None]] = field(default_factory=list)
    kinds: set[str] = field(default_factory=set)
    symbolic: bool = False
    depth: int = 0
