"""What an expression of the surface language may denote while a kernel is expanded."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from cake.diagnostics import Span
from cake.ir import expanded as x
from cake.ir.dtypes import DTypeName
from cake.ir.expr import Const, Expr, Reg
from cake.ir.layout import TileType


@dataclass(frozen=True)
class Scalar:
    """A uniform scalar. ``literal``: a compile-time number, which adapts to the dtype of what it meets."""

    expr: Expr
    literal: bool = False

    @property
    def dtype(self) -> DTypeName:
        """The dtype (for a literal: what it would be on its own)."""
        return self.expr.dtype

    @property
    def constant(self) -> bool | int | float | None:
        """The value, if it is known now."""
        return self.expr.value if isinstance(self.expr, Const) else None


@dataclass(frozen=True)
class Tile:
    """A register tile expression over the domain ``type``. ``symbolic``: it has no register leaf and costs none."""

    expr: Expr
    type: TileType
    symbolic: bool = False

    @property
    def dtype(self) -> DTypeName:
        """The element type."""
        return self.type.dtype


@dataclass(frozen=True)
class TileVar:
    """A register tile with leading axes, or one not yet subscripted; reading it whole gives a Tile."""

    name: str
    type: TileType
    lead: tuple[int, ...] = ()

    @property
    def reg(self) -> Reg:
        """The register leaf."""
        return Reg(name=self.name, dtype=self.type.dtype, lead=self.lead)


@dataclass(frozen=True)
class Storage:
    """A tensor or a shared buffer: where references start. ``extents`` are expressions for tensors, constants for buffers."""

    name: str
    dtype: DTypeName
    space: Literal["global", "shared"]
    extents: tuple[Expr, ...]
    direction: Literal["in", "out", "inout"] = "inout"
    span: Span | None = None


@dataclass(frozen=True)
class Reference:
    """A storage with subscripts. ``subs`` has one entry an axis; ``domain`` is the shape and layout of the index tiles, if any.
    ``peer``: the rank of the CTA whose shared memory is meant, if not this one's."""

    storage: Storage
    subs: tuple[x.Sub, ...]
    slot: x.Slot | None = None
    transposed: bool = False
    domain: TileType | None = None
    handle: Handle | None = None
    peer: Expr | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The kept axes of a block view, in source order, transposition applied."""
        kept = tuple(s.size for s in self.subs if isinstance(s, x.Range))
        return (*kept[:-2], kept[-1], kept[-2]) if self.transposed and len(kept) > 1 else kept

    @property
    def axes(self) -> tuple[int, ...]:
        """Which axis of the storage each kept axis is, transposition applied."""
        kept = tuple(i for i, s in enumerate(self.subs) if isinstance(s, x.Range))
        return (*kept[:-2], kept[-1], kept[-2]) if self.transposed and len(kept) > 1 else kept

    @property
    def ref(self) -> x.Ref:
        """The expanded reference."""
        return x.Ref(base=self.storage.name, slot=self.slot, subs=self.subs, transposed=self.transposed, peer=self.peer)

    def transpose(self) -> Reference:
        """The view with its two last axes swapped."""
        return replace(self, transposed=not self.transposed)


@dataclass(eq=False)
class Handle:
    """A stage that is being filled or is held. ``origin``: the handle that this one is another name of."""

    name: str
    ring: str
    slot: x.Slot
    role: Literal["fill", "wait", "store"]
    origin: Handle | None = None
    stored: int = 0
    span: Span | None = None

    @property
    def root(self) -> Handle:
        """The handle of the wait that gave the stage."""
        return self.origin or self


@dataclass(frozen=True)
class Record:
    """A tile of the work list: its fields are scalars named ``<name>.<field>``."""

    name: str
    fields: dict[str, Expr] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class RingName:
    """A pipeline, by name."""

    name: str


@dataclass(frozen=True)
class TurnName:
    """A turn, by name."""

    name: str


@dataclass(frozen=True)
class RoleName:
    """A role, by name."""

    name: str


@dataclass(frozen=True)
class Function:
    """An operation or function, by its dotted name."""

    name: str


@dataclass(frozen=True)
class Method:
    """A method of a pipeline."""

    ring: str
    name: str


@dataclass(frozen=True)
class Tracker:
    """A running argmax, argmin or topk over the columns of tiles of ``rows`` rows, compared in groups of ``group`` columns.
    ``entries``: how many of the best a topk keeps."""

    name: str
    function: str
    rows: int
    group: int
    entries: int = 1


@dataclass(frozen=True)
class TrackerMethod:
    """A method of a tracker."""

    tracker: Tracker
    name: str


@dataclass(frozen=True)
class Of:
    """The method of a field that names the same field in another CTA of the cluster."""

    reference: Reference


@dataclass(frozen=True)
class Namespace:
    """The part of an operation's name before the dot (``tma``, ``wgmma``)."""

    name: str


@dataclass(frozen=True)
class Poison:
    """The value of a statement that was refused: uses of it are not reported again."""


@dataclass(frozen=True)
class Unassigned:
    """A name that has a value on some paths only."""

    name: str


Value = (
    Scalar
    | Tile
    | TileVar
    | Storage
    | Reference
    | Handle
    | Record
    | RingName
    | TurnName
    | RoleName
    | Function
    | Method
    | Tracker
    | TrackerMethod
    | Of
    | Namespace
    | Poison
    | Unassigned
)


def describe(value: Value) -> str:
    """What a value is, in the author's words."""
    match value:
        case Scalar():
            return f"a uniform {value.dtype} scalar"
        case Tile() | TileVar():
            return f"a register tile {value.type}"
        case Storage(space="global"):
            return f"the tensor `{value.name}`"
        case Storage():
            return f"the buffer `{value.name}`"
        case Reference():
            return f"a reference to `{value.storage.name}`"
        case Handle():
            return f"a stage of pipeline `{value.ring}`"
        case Record():
            return "a tile of the work list"
        case RingName():
            return f"the pipeline `{value.name}`"
        case TurnName():
            return f"the turn `{value.name}`"
        case RoleName():
            return f"the role `{value.name}`"
        case Function() | Namespace():
            return f"the operation `{value.name}`"
        case Method():
            return f"the method `{value.ring}.{value.name}`"
        case Tracker():
            return f"the tracker `{value.name}`"
        case TrackerMethod():
            return f"the method `{value.tracker.name}.{value.name}`"
        case Of():
            return f"the method `{value.reference.storage.name}.of`"
        case _:
            return "a refused value"
