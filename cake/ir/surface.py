"""The surface IR: what is parsed and what is printed, one immutable class per construct of the language.

Every node has a ``span``; nodes that stand on a line of their own also have ``comments``. Neither takes part in
comparison or hashing: two nodes are equal when they say the same, wherever they were written. Unions are told apart by
the literal field ``kind``, so text and JSON are equivalent.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self, TypeVar, Union

from pydantic import ConfigDict, model_validator
from pydantic import Field as _field

from cake.diagnostics import Record, Span

NOWHERE = Span(file="", line=0, column=0, end_line=0, end_column=0)
"""The span of a node that was not written in any file."""

TRIVIA = frozenset({"span", "comments", "else_comments"})
"""The fields that are kept and printed but never compared."""

BinaryOp = Literal["+", "-", "*", "/", "//", "%", "==", "!=", "<", "<=", ">", ">=", "and", "or"]


class Comments(Record):
    """Comment texts, each with its ``#``: own lines before a node, the rest of its line, own lines below it."""

    before: tuple[str, ...] = ()
    after: str | None = None
    below: tuple[str, ...] = ()


NO_COMMENTS = Comments()


class Node(Record):
    """Base of the surface nodes; compares by meaning, not by place."""

    # Schemas refer to each other in one large cycle; each is built when it is first used to validate.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    span: Span = _field(default=NOWHERE, repr=False)

    @classmethod
    def trusted(cls, **fields: Any) -> Self:
        """A node from fields that are known to be right.

        The parser makes its nodes so: building the schemas that validate takes longer than reading a kernel.
        """
        return cls.model_construct(**fields)

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented if not isinstance(other, Node) else False
        mine, its = self.__dict__, other.__dict__
        return all(value == its[name] for name, value in mine.items() if name not in TRIVIA)

    def __hash__(self) -> int:
        return hash((type(self), *(value for name, value in self.__dict__.items() if name not in TRIVIA)))


class Line(Node):
    """A node with lines of its own, and so with comments."""

    comments: Comments = _field(default=NO_COMMENTS, repr=False)


# -- expressions -------------------------------------------------------------------------------------------------------


class Name(Node):
    """A name in an expression."""

    kind: Literal["name"] = "name"
    name: str


class Number(Node):
    """A literal, never negative; ``text`` is its spelling, which printing keeps."""

    kind: Literal["number"] = "number"
    value: int | float
    text: str = ""

    @model_validator(mode="before")
    @classmethod
    def _spell(cls, data: Any) -> Any:
        if isinstance(data, dict) and isinstance(data.get("value"), bool):
            raise ValueError("a literal is a number")
        if isinstance(data, dict) and not data.get("text") and "value" in data:
            value = data["value"]
            text = repr(value)
            # The grammar wants digits and a point before an exponent's sign; repr agrees except for 1e+22.
            return {**data, "text": text.replace("e+", "e")}
        return data

    @model_validator(mode="after")
    def _check(self) -> Number:
        if self.value < 0 or not math.isfinite(self.value):
            raise ValueError("a literal is a finite number >= 0; write a sign as Unary")
        return self


class Bool(Node):
    """``True`` or ``False``."""

    kind: Literal["bool"] = "bool"
    value: bool


class Unary(Node):
    """``-operand`` (``neg``) or ``not operand``."""

    kind: Literal["unary"] = "unary"
    op: Literal["neg", "not"]
    operand: Expr


class Binary(Node):
    """``left op right``: arithmetic, one comparison, ``and``, ``or``."""

    kind: Literal["binary"] = "binary"
    op: BinaryOp
    left: Expr
    right: Expr


class Attribute(Node):
    """``base.name``."""

    kind: Literal["attribute"] = "attribute"
    base: Expr
    name: str


class Kwarg(Node):
    """``name=value`` in a call."""

    name: str
    value: Expr


class Call(Node):
    """``func(args, kwargs)``; positional arguments come first."""

    kind: Literal["call"] = "call"
    func: Expr
    args: tuple[Expr, ...] = ()
    kwargs: tuple[Kwarg, ...] = ()


class Slice(Node):
    """``lo : hi : step`` as a subscript; each part may be missing."""

    kind: Literal["slice"] = "slice"
    lo: Expr | None = None
    hi: Expr | None = None
    step: Expr | None = None


class Index(Node):
    """``base[subs]``; there is at least one subscript."""

    kind: Literal["index"] = "index"
    base: Expr
    subs: tuple[Sub, ...]


Expr = Annotated[
    Union[Name, Number, Bool, Unary, Binary, Attribute, Call, Index],  # noqa: UP007 - forward references
    _field(discriminator="kind"),
]
Sub = Annotated[
    Union[Name, Number, Bool, Unary, Binary, Attribute, Call, Index, Slice],  # noqa: UP007
    _field(discriminator="kind"),
]


# -- types and declarations --------------------------------------------------------------------------------------------


class TypeRef(Node):
    """``dtype[dims]``; no dims: a scalar."""

    dtype: str
    dims: tuple[Expr, ...] = ()


class Attr(Node):
    """``name`` or ``name(args)`` after a type, an axis or ``tiles``."""

    name: str
    args: tuple[Expr, ...] = ()


class Param(Node):
    """A parameter: ``[out | inout] name: type attrs [if guard]``."""

    direction: Literal["in", "out", "inout"] = "in"
    name: str
    type: TypeRef
    attrs: tuple[Attr, ...] = ()
    guard: Expr | None = None


class Const(Line):
    """``const name: {choices} = value``; no choices: the value is fixed."""

    kind: Literal["const"] = "const"
    name: str
    choices: tuple[Expr, ...] = ()
    value: Expr


class Where(Line):
    """``where conditions``."""

    kind: Literal["where"] = "where"
    conditions: tuple[Expr, ...]


class Assume(Line):
    """``assume predicates``: what the data must satisfy."""

    kind: Literal["assume"] = "assume"
    predicates: tuple[Expr, ...]


class Define(Line):
    """``name = value`` at kernel level or in ``tiles``: a uniform scalar every role sees."""

    kind: Literal["define"] = "define"
    name: str
    value: Expr


class Axis(Line):
    """``name in extent attrs`` in ``tiles``."""

    kind: Literal["axis"] = "axis"
    name: str
    extent: Expr
    attrs: tuple[Attr, ...] = ()


TileItem = Annotated[Union[Axis, Define, Where], _field(discriminator="kind")]  # noqa: UP007


class Tiles(Line):
    """The work list of the CTA; ``items`` keep the order of the source, on which definitions depend."""

    schedule: Attr
    items: tuple[TileItem, ...]

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The axes, slowest first."""
        return tuple(item for item in self.items if isinstance(item, Axis))

    @property
    def defines(self) -> tuple[Define, ...]:
        """The definitions, in order."""
        return tuple(item for item in self.items if isinstance(item, Define))

    @property
    def wheres(self) -> tuple[Where, ...]:
        """The conditions that drop tiles."""
        return tuple(item for item in self.items if isinstance(item, Where))


class Role(Line):
    """``role name[instances]: warps n, registers m``."""

    name: str
    instances: Expr | None = None
    warps: Expr
    registers: Expr | None = None


class Field(Line):
    """A field of a pipeline's stage record."""

    name: str
    type: TypeRef
    attrs: tuple[Attr, ...] = ()
    guard: Expr | None = None


class Pipeline(Line):
    """``pipeline name[stages] producers -> [one] consumers [across(axis)]`` with the fields of its stage."""

    name: str
    stages: Expr
    producers: tuple[str, ...]
    consumers: tuple[str, ...]
    one: bool = False
    across: str | None = None
    fields: tuple[Field, ...] = ()


class Smem(Line):
    """A buffer in shared memory."""

    name: str
    type: TypeRef
    attrs: tuple[Attr, ...] = ()
    guard: Expr | None = None


class Turn(Line):
    """``turn name: role``: instances of the role enter one after another."""

    name: str
    role: str


# -- statements --------------------------------------------------------------------------------------------------------


class Declare(Line):
    """``name: type attrs [= value]``: a register tile or tracker."""

    kind: Literal["declare"] = "declare"
    name: str
    type: TypeRef
    attrs: tuple[Attr, ...] = ()
    value: Expr | None = None


class Assign(Line):
    """``targets = value``."""

    kind: Literal["assign"] = "assign"
    targets: tuple[str, ...]
    value: Expr


class ExprStmt(Line):
    """An operation for its effect."""

    kind: Literal["expr"] = "expr"
    expr: Expr


class Pass(Line):
    """``pass``."""

    kind: Literal["pass"] = "pass"


class For(Line):
    """``for var in iter [split(…)]: body``."""

    kind: Literal["for"] = "for"
    var: str
    iter: Expr
    split: tuple[Expr, ...] = ()
    body: tuple[Stmt, ...]


class With(Line):
    """``with expr [as name]: body``: a fill or a turn."""

    kind: Literal["with"] = "with"
    expr: Expr
    name: str | None = None
    body: tuple[Stmt, ...]


class Branch(Line):
    """One ``if`` or ``elif`` with its block."""

    cond: Expr
    body: tuple[Stmt, ...]


class If(Line):
    """``if … elif … else``; no ``orelse``: nothing happens otherwise."""

    kind: Literal["if"] = "if"
    branches: tuple[Branch, ...]
    orelse: tuple[Stmt, ...] = ()
    else_comments: Comments = _field(default=NO_COMMENTS, repr=False)


Stmt = Annotated[
    Union[Declare, Assign, ExprStmt, Pass, For, With, If],  # noqa: UP007
    _field(discriminator="kind"),
]


class Do(Line):
    """``do role [as var]: body``: the program of each instance of a role."""

    role: str
    var: str | None = None
    body: tuple[Stmt, ...]


# -- files -------------------------------------------------------------------------------------------------------------


class Kernel(Line):
    """One launch."""

    name: str
    params: tuple[Param, ...]
    targets: tuple[str, ...]
    consts: tuple[Const, ...] = ()
    wheres: tuple[Where, ...] = ()
    assumes: tuple[Assume, ...] = ()
    defines: tuple[Define, ...] = ()
    tiles: Tiles | None = None
    roles: tuple[Role, ...] = ()
    pipelines: tuple[Pipeline, ...] = ()
    smems: tuple[Smem, ...] = ()
    turns: tuple[Turn, ...] = ()
    dos: tuple[Do, ...] = ()


class Temp(Line):
    """Workspace of a sequence, given by the caller."""

    name: str
    type: TypeRef
    attrs: tuple[Attr, ...] = ()


class Step(Line):
    """The launch of the kernel ``name`` in a sequence; keyword arguments fix constants."""

    name: str
    args: tuple[Expr, ...] = ()
    kwargs: tuple[Kwarg, ...] = ()


class Sequence(Line):
    """Kernels run in order, with workspace."""

    name: str
    params: tuple[Param, ...]
    temps: tuple[Temp, ...] = ()
    steps: tuple[Step, ...] = ()


class File(Line):
    """A source file; its own comments are those that belong to nothing else."""

    consts: tuple[Const, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    sequences: tuple[Sequence, ...] = ()


N = TypeVar("N", bound=Node)


def children(node: Node) -> Iterator[Node]:
    """The nodes directly below ``node``, in the order of its fields."""
    for value in node.__dict__.values():
        if isinstance(value, Node):
            yield value
        elif isinstance(value, tuple):
            yield from (item for item in value if isinstance(item, Node))


def walk(node: Node) -> Iterator[Node]:
    """``node`` and everything below it, parents first."""
    pending = [node]
    while pending:
        current = pending.pop()
        yield current
        pending.extend(reversed(list(children(current))))


def strip_spans(node: N) -> N:
    """A copy of ``node`` without places and comments."""
    changes: dict[str, Any] = {}
    for name, value in node.__dict__.items():
        if name in TRIVIA:
            changes[name] = NOWHERE if name == "span" else NO_COMMENTS
        elif isinstance(value, Node):
            changes[name] = strip_spans(value)
        elif isinstance(value, tuple):
            changes[name] = tuple(strip_spans(item) if isinstance(item, Node) else item for item in value)
    return node.model_copy(update=changes)


def same(a: Node, b: Node) -> bool:
    """Whether two nodes say the same; this is what ``==`` means for nodes."""
    return a == b
