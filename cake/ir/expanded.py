"""The expanded IR: the program that the hardware will run, with everything derived made explicit.

The machine, the verifier, the cost model and the emitter read only this. It is a program (loops and conditions stay), for one
choice of constants and one target. Every node says why it is there (``reason``: "written", or the rule that derived it),
where it came from (``span``) and which threads execute it (``executor``).

Positions and slots. A ring is reached through *cursors*: integers that count fills or waits since the kernel's start. Position
p of a ring of S stages is slot ``p % S``, and its barriers are then in phase ``p // S``. A handle (``s = ab.wait()``) is a
cursor variable that keeps a copy of a position.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from cake.diagnostics import Record, Span
from cake.ir.dtypes import DTypeName
from cake.ir.expr import Expr, Reg, Sym
from cake.ir.layout import TileType

Executor = Literal["lanes", "warp", "one"]
"""``lanes``: every thread of the instance; ``warp``: the elected lane of each warp; ``one``: the elected lane of the first
warp of the instance (in the entry: of warp 0 of the CTA)."""

Queue = Literal["wgmma", "bulk", "cp_async"]
"""Group queues. wgmma belongs to the warpgroup; bulk and cp_async to the executing thread."""

Semantics = Literal["relaxed", "acquire", "release"]
Scope = Literal["cta", "cluster", "gpu"]
Attribute = bool | int | float | str

# ---- references -----------------------------------------------------------------------------------------------------


class Slot(Record):
    """Which slot of a ring: position ``cursor - back``, or the constant position ``back`` where ``cursor`` is None."""

    cursor: str | None = None
    back: int = 0


class Point(Record):
    """A uniform subscript; drops the axis."""

    kind: Literal["point"] = "point"
    at: Expr


class Range(Record):
    """A slice ``start : start + size``; keeps the axis."""

    kind: Literal["range"] = "range"
    start: Expr
    size: int


class Elem(Record):
    """An index tile: for each element of the statement's domain, the index along this axis."""

    kind: Literal["elem"] = "elem"
    index: Expr


Sub = Annotated[Point | Range | Elem, Field(discriminator="kind")]


class Ref(Record):
    """A tensor or shared buffer with one subscript an axis. Block operations use points and ranges, element operations
    points and elems. ``slot`` selects the ring slot (buffers with ``slots > 1``); per-instance buffers are those of the
    executing instance. ``transposed`` swaps the two kept axes of the view. ``peer``: the rank in the cluster whose shared
    memory is meant (``mapa``; None: this CTA's own)."""

    kind: Literal["ref"] = "ref"
    base: str
    slot: Slot | None = None
    subs: tuple[Sub, ...] = ()
    transposed: bool = False
    peer: Expr | None = None


# ---- statements -----------------------------------------------------------------------------------------------------


class Node(Record):
    """What every statement has."""

    executor: Executor = "lanes"
    reason: str = "written"
    span: Span | None = None


class For(Node):
    """``for var in range(lo, hi, step)``; the step may be a scalar that the body sets (tiles drawn as it goes). ``role`` says
    what it walks: the CTA's tiles or a written range; ``piece`` is the ordinal of a split loop's piece."""

    kind: Literal["for"] = "for"
    var: str
    lo: Expr
    hi: Expr
    step: Expr
    role: Literal["tiles", "range"] = "range"
    piece: int | None = None
    body: tuple[Stmt, ...]


class If(Node):
    """A condition decided at run time; uniform over the instance."""

    kind: Literal["if"] = "if"
    cond: Expr
    then: tuple[Stmt, ...]
    orelse: tuple[Stmt, ...] = ()


class Let(Node):
    """A uniform scalar variable takes a value."""

    kind: Literal["let"] = "let"
    name: str
    dtype: DTypeName
    value: Expr


class Cursor(Node):
    """``advance``: position += by, or += count where that is given (stages that others consume). ``copy``: cursor := source -
    back (a handle). ``set``: cursor := by."""

    kind: Literal["cursor"] = "cursor"
    cursor: str
    form: Literal["advance", "copy", "set"] = "advance"
    by: int = 1
    count: Expr | None = None
    source: str | None = None
    back: int = 0


class Init(Node):
    """mbarrier.init of every slot of ``barrier`` with its count."""

    kind: Literal["init"] = "init"
    barrier: str


class Wait(Node):
    """Block until phase ``position // slots + ahead`` of the slot has completed (a parity wait that loops until it succeeds).
    Consumers wait with ahead 0, producers with ahead -1: the first acquire of a slot waits for phase -1, which a fresh barrier
    has passed."""

    kind: Literal["wait"] = "wait"
    barrier: str
    slot: Slot = Slot()
    ahead: int = 0
    sem: Semantics = "acquire"
    scope: Scope = "cta"


class Arrive(Node):
    """Contribute to the current phase of the slot's barrier. ``form`` arrive: ``weight`` arrivals; expect: announce
    ``bytes`` without arriving; arrive_expect: both at once. ``peers``: ranks of the cluster whose barrier receives it
    (None: this CTA's)."""

    kind: Literal["arrive"] = "arrive"
    barrier: str
    slot: Slot = Slot()
    form: Literal["arrive", "expect", "arrive_expect"] = "arrive"
    weight: int = 1
    bytes: int = 0
    peers: tuple[int, ...] | None = None
    sem: Semantics = "release"
    scope: Scope = "cta"


class Named(Node):
    """A named barrier: id ``base id + index``, for the declared number of threads. ``sync`` blocks, ``arrive`` does not."""

    kind: Literal["named"] = "named"
    barrier: str
    index: Expr | None = None
    form: Literal["sync", "arrive"] = "sync"


class Cluster(Node):
    """Half of a cluster barrier, or both."""

    kind: Literal["cluster"] = "cluster"
    form: Literal["arrive", "wait", "sync"] = "sync"
    sem: Literal["relaxed", "release_acquire"] = "release_acquire"


class SyncWarp(Node):
    """Order the lanes of each warp."""

    kind: Literal["syncwarp"] = "syncwarp"


class Fence(Node):
    """``async_shared`` / ``async_global``: my generic accesses before later async-proxy ones. ``mbarrier_init``: publish
    initialised barriers. ``wgmma``: registers before the next wgmma reads them. ``thread``: a fence of ``scope``."""

    kind: Literal["fence"] = "fence"
    what: Literal["async_shared", "async_global", "mbarrier_init", "wgmma", "thread"]
    scope: Scope = "cta"


class Commit(Node):
    """Close the group of operations issued since the last commit."""

    kind: Literal["commit"] = "commit"
    queue: Queue


class GroupWait(Node):
    """Block until at most ``keep`` of this agent's newest groups are unfinished. ``read``: unfinished reads only (the sources
    may be reused). ``ready``: register tiles that the wait makes readable."""

    kind: Literal["gwait"] = "gwait"
    queue: Queue
    keep: int = 0
    read: bool = False
    ready: tuple[str, ...] = ()


class SetMaxNReg(Node):
    """Give registers to the pool (dec) or take them (inc), all warps of the role."""

    kind: Literal["setmaxnreg"] = "setmaxnreg"
    form: Literal["inc", "dec"]
    count: int


class Exit(Node):
    """The role's program ends here; derived at the end of every role, so that what must have drained can be said."""

    kind: Literal["exit"] = "exit"


class ByBarrier(Record):
    """Completes as bytes on the slot of an mbarrier (tx), or as an arrival triggered by completion."""

    kind: Literal["barrier"] = "barrier"
    barrier: str
    slot: Slot = Slot()
    bytes: int = 0


class ByGroup(Record):
    """Completes with the group that the next commit closes."""

    kind: Literal["group"] = "group"
    queue: Queue


Completion = Annotated[ByBarrier | ByGroup, Field(discriminator="kind")]


class Op(Node):
    """An operation of the op table (``cake.ir.ops``): it moves or computes data. ``type`` is the domain of an elementwise
    operation, load, store or reduction. Operand names, attributes and their meaning are the row's."""

    kind: Literal["op"] = "op"
    op: str
    operands: dict[str, Ref | Expr]
    attrs: dict[str, Attribute] = {}
    type: TileType | None = None
    completion: Completion | None = None

    def ref(self, name: str) -> Ref:
        """The operand ``name``, which is a reference."""
        value = self.operands[name]
        assert isinstance(value, Ref), f"{self.op}.{name} is not a reference"
        return value

    def reg(self, name: str) -> Reg:
        """The operand ``name``, which is a register tile."""
        value = self.operands[name]
        assert isinstance(value, Reg), f"{self.op}.{name} is not a register tile"
        return value

    def sym(self, name: str) -> Sym:
        """The operand ``name``, which is a scalar variable."""
        value = self.operands[name]
        assert isinstance(value, Sym), f"{self.op}.{name} is not a scalar variable"
        return value

    def expr(self, name: str) -> Expr | None:
        """The operand ``name`` as an expression; None where it was left out."""
        value = self.operands.get(name)
        assert not isinstance(value, Ref), f"{self.op}.{name} is a reference"
        return value


Stmt = Annotated[
    For
    | If
    | Let
    | Cursor
    | Init
    | Wait
    | Arrive
    | Named
    | Cluster
    | SyncWarp
    | Fence
    | Commit
    | GroupWait
    | SetMaxNReg
    | Exit
    | Op,
    Field(discriminator="kind"),
]
For.model_rebuild()
If.model_rebuild()

# ---- declarations ---------------------------------------------------------------------------------------------------


class Tensor(Record):
    """A tensor parameter, row-major; ``strided`` admits any strides with a unit last one."""

    name: str
    dtype: DTypeName
    shape: tuple[Expr, ...]
    direction: Literal["in", "out", "inout"] = "in"
    strided: bool = False
    span: Span | None = None


class ScalarParam(Record):
    """A scalar launch parameter."""

    name: str
    dtype: DTypeName
    span: Span | None = None


class Dim(Record):
    """A run-time dim and where the host reads it: extent ``axis`` of ``tensor`` is ``scale * dim + offset``."""

    name: str
    tensor: str
    axis: int
    scale: int = 1
    offset: int = 0


class Condition(Record):
    """A host guard (``where``) or a data assumption (``assume``), with the text the author wrote. ``form`` names the predicate
    of an assumption on tensors (increasing, within, unique, finite, zero), with its tensor and arguments; "expr" is a boolean
    expression over dims, scalars and constants."""

    text: str
    form: Literal["expr", "increasing", "within", "unique", "finite", "zero", "element"] = "expr"
    expr: Expr | None = None
    tensor: str | None = None
    args: tuple[Expr, ...] = ()
    span: Span | None = None


class Buffer(Record):
    """Shared memory: ``instances x slots`` tiles of ``shape`` at ``offset`` (bytes from the 1024-byte aligned base).

    A row of a tile (its last axis) wider than ``swizzle`` bytes is stored as panels of exactly that width, one after another;
    ``pad`` elements follow each row of an unswizzled tile. ``slot_bytes`` and ``instance_bytes`` are the strides.
    """

    name: str
    dtype: DTypeName
    shape: tuple[int, ...]
    swizzle: Literal[0, 32, 64, 128] = 0
    pad: int = 0
    slots: int = 1
    instances: int = 1
    offset: int
    slot_bytes: int
    instance_bytes: int
    alias: str | None = None
    span: Span | None = None


class Barrier(Record):
    """An mbarrier for each slot, 8 bytes apart at ``offset``; ``count`` arrivals complete a phase."""

    name: str
    count: int
    slots: int = 1
    offset: int
    span: Span | None = None


class NamedBarrier(Record):
    """Hardware barrier ids ``id .. id + size - 1``, each for ``threads`` threads. ``per_instance``: instance w of the executing
    role uses id + w where no index is given."""

    name: str
    id: int
    size: int = 1
    threads: int
    per_instance: bool = False
    span: Span | None = None


class TensorMap(Record):
    """A TMA descriptor passed as a ``__grid_constant__`` parameter. ``box`` has one extent an axis of the tensor, in the
    tensor's (row-major) axis order; out-of-bounds elements read as zero and are not written."""

    name: str
    tensor: str
    box: tuple[int, ...]
    swizzle: Literal[0, 32, 64, 128] = 0


class Ring(Record):
    """How a pipeline's slots are reached: its fields (buffers) and barriers. ``store`` rings have no barriers."""

    name: str
    slots: int
    kind: Literal["mbarrier", "store"]
    fields: tuple[str, ...]
    full: str | None = None
    empty: str | None = None
    span: Span | None = None


class Role(Record):
    """Contiguous warps that run one program. ``solo``: only the elected lane of the first warp runs the body. ``var`` is the
    symbol of the instance index. ``tiles``: register tiles of the program; ``cursors``: cursor variables and the number of
    stages of the ring each one walks."""

    name: str
    first_warp: int
    warps: int
    instances: int = 1
    solo: bool = False
    var: str | None = None
    registers: int | None = None
    tiles: dict[str, TileType] = {}
    cursors: dict[str, int] = {}
    body: tuple[Stmt, ...]
    span: Span | None = None

    @property
    def threads(self) -> int:
        """Threads of one instance."""
        return 32 * self.warps


class Kernel(Record):
    """One launch. ``threads`` a CTA, ``cluster`` CTAs a cluster. ``positions`` is the number of tiles in the walk; ``grid`` the
    number of clusters, an expression over dims, scalars, ``%sms`` and ``%resident`` (CTAs that fit an SM together), or
    ``%clusters`` (clusters that the device holds together).
    ``launch_registers`` caps the registers of a thread at launch (``.maxnreg``); None leaves it to ptxas.
    Nothing here needs the surface text."""

    name: str
    target: str
    constants: dict[str, Attribute] = {}
    tensors: tuple[Tensor, ...]
    scalars: tuple[ScalarParam, ...] = ()
    dims: tuple[Dim, ...] = ()
    guards: tuple[Condition, ...] = ()
    assumes: tuple[Condition, ...] = ()
    schedule: Literal["once", "persistent"] = "once"
    positions: Expr
    grid: Expr
    cluster: int = 1
    threads: int
    launch_registers: int | None = None
    shared_bytes: int = 0
    buffers: tuple[Buffer, ...] = ()
    barriers: tuple[Barrier, ...] = ()
    named: tuple[NamedBarrier, ...] = ()
    rings: tuple[Ring, ...] = ()
    maps: tuple[TensorMap, ...] = ()
    entry: tuple[Stmt, ...] = ()
    roles: tuple[Role, ...]
    span: Span | None = None

    def buffer(self, name: str) -> Buffer:
        """The buffer ``name``; KeyError if there is none."""
        for b in self.buffers:
            if b.name == name:
                return b
        raise KeyError(name)

    def tensor(self, name: str) -> Tensor | None:
        """The tensor parameter ``name``, if there is one."""
        return next((t for t in self.tensors if t.name == name), None)

    def barrier(self, name: str) -> Barrier:
        """The mbarrier ``name``; KeyError if there is none."""
        for b in self.barriers:
            if b.name == name:
                return b
        raise KeyError(name)
