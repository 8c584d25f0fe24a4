"""From the arguments of a launch to the values of its dims: shapes, dtypes, dims, scalars and guards, checked in one
place.

The machine and the runtime bind plain shapes through this, so a launch that one refuses is refused by the other with
the same words. The codes are R001 (arguments), R002 (shape), R003 (dtype), R004 (a dim is 0), R005 (guard).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from cake.diagnostics import Findings, Span
from cake.ir.dtypes import DTYPES
from cake.ir.evaluate import convert, evaluate
from cake.ir.expanded import Attribute, Condition, Dim, ScalarParam, Tensor
from cake.ir.expr import symbols

Values = dict[str, Any]


class Bindable(Protocol):
    """What takes arguments: an expanded kernel, or a sequence of them."""

    @property
    def name(self) -> str:
        """How messages call it."""

    @property
    def span(self) -> Span | None:
        """Where it was written."""

    @property
    def constants(self) -> dict[str, Attribute]:
        """The chosen constants."""

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Tensor parameters."""

    @property
    def scalars(self) -> tuple[ScalarParam, ...]:
        """Scalar parameters."""

    @property
    def dims(self) -> tuple[Dim, ...]:
        """Run-time dims."""

    @property
    def guards(self) -> tuple[Condition, ...]:
        """Conditions on dims and scalars."""


def _shape(shape: tuple[int, ...]) -> str:
    return "[" + ", ".join(map(str, shape)) + "]"


def empty_launch(kernel: Bindable, shapes: Mapping[str, tuple[int, ...]]) -> bool:
    """True if every output is empty: the launch has nothing to do."""
    outputs = [t for t in kernel.tensors if t.direction != "in"]
    return bool(outputs) and all(0 in shapes[t.name] for t in outputs)


def _arguments(kernel: Bindable, given: set[str], findings: Findings) -> bool:
    expected = [t.name for t in kernel.tensors] + [s.name for s in kernel.scalars]
    missing = [n for n in expected if n not in given]
    extra = sorted(given - set(expected))
    for name in missing:
        findings.error("R001", f"{kernel.name} needs the argument `{name}`", kernel.span)
    for name in extra:
        findings.error(
            "R001",
            f"{kernel.name} has no parameter `{name}`",
            kernel.span,
            help=f"its parameters are {', '.join(expected)}",
        )
    return not missing and not extra


def _dims(kernel: Bindable, shapes: Mapping[str, tuple[int, ...]], findings: Findings) -> Values:
    values: Values = {}
    for dim in kernel.dims:
        extent = shapes[dim.tensor][dim.axis]
        number, rest = divmod(extent - dim.offset, dim.scale)
        if rest or number < 0:
            text = f"{dim.scale} * {dim.name}" if dim.scale != 1 else dim.name
            text += f" + {dim.offset}" if dim.offset else ""
            findings.error(
                "R002", f"`{dim.tensor}` has extent {extent} on axis {dim.axis}, which is not of the form {text}", None
            )
        values[dim.name] = number
    return values


def _check_guards(kernel: Bindable, values: Values, findings: Findings) -> None:
    for guard in kernel.guards:
        if guard.expr is None or evaluate(guard.expr, values):
            continue
        used = sorted(symbols(guard.expr))
        facts = tuple(f"{name} = {values[name]}" for name in used if name in values)
        findings.error("R005", f"{kernel.name} needs {guard.text}", guard.span, facts=facts)


def bind(
    kernel: Bindable,
    shapes: Mapping[str, tuple[int, ...]],
    dtypes: Mapping[str, str],
    scalars: Mapping[str, int | float | bool],
) -> Values:
    """The values of constants, dims and scalar parameters, from the shapes and dtypes (by their Cake names) of the
    tensor arguments and the scalar arguments. CakeError with every mismatch found. A launch with only empty outputs
    binds whatever its other shapes are: ask ``empty_launch`` first."""
    findings = Findings()
    if not _arguments(kernel, set(shapes) | set(scalars), findings):
        findings.raise_errors()
    for tensor in kernel.tensors:
        if dtypes[tensor.name] != tensor.dtype:
            findings.error(
                "R003", f"`{tensor.name}` is {dtypes[tensor.name]}; {kernel.name} takes {tensor.dtype}", tensor.span
            )
        if len(shapes[tensor.name]) != len(tensor.shape):
            findings.error(
                "R002",
                f"`{tensor.name}` has {len(shapes[tensor.name])} axes; {kernel.name} takes {len(tensor.shape)}",
                tensor.span,
            )
    findings.raise_errors()

    values: Values = {n: v for n, v in kernel.constants.items() if not isinstance(v, str)}
    for scalar in kernel.scalars:
        values[scalar.name] = _scalar(scalar.name, scalars[scalar.name], scalar.dtype, scalar.span, findings)
    values.update(_dims(kernel, shapes, findings))
    findings.raise_errors()

    for tensor in kernel.tensors:
        shape = shapes[tensor.name]
        expected = tuple(evaluate(e, values) for e in tensor.shape)
        if shape != expected:
            used = sorted({n for e in tensor.shape for n in symbols(e)})
            findings.error(
                "R002",
                f"`{tensor.name}` has shape {_shape(shape)}; it should be {_shape(expected)}",
                tensor.span,
                facts=tuple(f"{n} = {values[n]}" for n in used),
            )
    findings.raise_errors()
    if not empty_launch(kernel, shapes):
        for tensor in kernel.tensors:
            if 0 in shapes[tensor.name]:
                findings.error(
                    "R004",
                    f"`{tensor.name}` is empty (shape {_shape(shapes[tensor.name])}) but not every output is",
                    tensor.span,
                    help="dims are at least 1, except that a launch whose outputs are all empty returns at once",
                )
        findings.raise_errors()
        _check_guards(kernel, values, findings)
        findings.raise_errors()
    return values


def _scalar(name: str, value: Any, dtype: str, span: Span | None, findings: Findings) -> Any:
    kind = DTYPES[dtype].kind
    if kind == "int":
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            findings.error("R003", f"`{name}` is {type(value).__name__}; an {dtype} is needed", span)
            return 0
        number = int(value.__index__())
        if convert(number, dtype) != number:
            findings.error("R003", f"`{name}` = {number} does not fit {dtype}", span)
        return number
    if kind == "bool":
        return bool(value)
    if not hasattr(value, "__float__"):
        findings.error("R003", f"`{name}` is {type(value).__name__}; an {dtype} is needed", span)
        return convert(0.0, dtype)
    return convert(float(value), dtype)
