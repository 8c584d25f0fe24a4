"""A sequence for one choice of constants: kernels launched in order on shared arguments, with workspace that the caller owns.

It is to its kernels what the expanded kernel is to its statements: dims, scalars, tensors and guards by the same names and
types, so that whatever binds the arguments of a kernel binds those of a sequence.
"""

from __future__ import annotations

from cake.diagnostics import Record, Span
from cake.ir.dtypes import DTypeName
from cake.ir.expanded import Attribute, Condition, Dim, Kernel, ScalarParam, Tensor
from cake.ir.expr import Expr, substitute


class Workspace(Record):
    """A ``temp``: memory that one launch of the sequence writes and a later one reads. ``zero``: it is zero before the first
    call, and the kernels leave it so."""

    name: str
    dtype: DTypeName
    shape: tuple[Expr, ...]
    zero: bool = False
    span: Span | None = None


class Launch(Record):
    """One step. ``tensors``: for each tensor parameter of the kernel, the sequence's tensor or workspace; ``scalars``: for each
    scalar parameter, an expression over the sequence's scalars and dims; ``dims``: the kernel's dims as expressions over the
    sequence's."""

    kernel: Kernel
    tensors: dict[str, str]
    scalars: dict[str, Expr] = {}
    dims: dict[str, Expr] = {}
    span: Span | None = None


class Sequence(Record):
    """Kernels in order. ``guards`` are those of its kernels, in terms of the sequence's dims and scalars."""

    name: str
    target: str
    constants: dict[str, Attribute] = {}
    tensors: tuple[Tensor, ...]
    scalars: tuple[ScalarParam, ...] = ()
    dims: tuple[Dim, ...] = ()
    guards: tuple[Condition, ...] = ()
    temps: tuple[Workspace, ...] = ()
    steps: tuple[Launch, ...]
    span: Span | None = None

    def tensor(self, name: str) -> Tensor | None:
        """The tensor parameter ``name``, if there is one."""
        return next((t for t in self.tensors if t.name == name), None)

    @property
    def assumes(self) -> tuple[Condition, ...]:
        """What the kernels assume of tensors that the caller passes."""
        found: dict[tuple[object, ...], Condition] = {}
        for step in self.steps:
            for a in step.kernel.assumes:
                name = step.tensors.get(a.tensor or "")
                if name is None or self.tensor(name) is None:
                    continue
                values = {**step.dims, **step.scalars}
                args = tuple(substitute(e, values) for e in a.args)
                found.setdefault((a.form, name, args), a.model_copy(update={"tensor": name, "args": args}))
        return tuple(found.values())
