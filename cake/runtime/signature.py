"""The order of a kernel's arguments, and the key under which a call with given arguments is remembered."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from cake.ir import expanded as x
from cake.ir.binding import Bindable
from cake.ir.expr import Apply, Const, Expr, Sym

Key = tuple[Any, ...]

_PACK = {"f32": "f", "tf32": "f", "f16": "f", "bf16": "f", "e4m3": "f", "e5m2": "f"}
_PACK |= {"i64": "q", "i32": "i", "i8": "b", "u8": "B", "bool": "?"}


def signature(kernel: Bindable) -> tuple[str, ...]:
    """Parameter names in the order of declaration: by place in the source where every parameter has one, else tensors
    before scalars."""
    parameters: list[x.Tensor | x.ScalarParam] = [*kernel.tensors, *kernel.scalars]
    if all(p.span is not None for p in parameters):
        parameters.sort(key=lambda p: (p.span.line, p.span.column) if p.span else (0, 0))
    return tuple(p.name for p in parameters)


def describe(kernel: Bindable) -> str:
    """The call as one writes it, with types: what to pass."""
    text = {s.name: f"{s.name}: {s.dtype}" for s in kernel.scalars}
    for t in kernel.tensors:
        axes = ", ".join(_axis(e) for e in t.shape)
        text[t.name] = f"{'' if t.direction == 'in' else t.direction + ' '}{t.name}: {t.dtype}[{axes}]"
    return f"{kernel.name}({', '.join(text[n] for n in signature(kernel))})"


def _axis(e: Expr) -> str:
    """An extent as text."""
    if isinstance(e, Sym):
        return e.name
    if isinstance(e, Const):
        return str(e.value)
    if isinstance(e, Apply) and len(e.args) == 2:
        left, right = map(_axis, e.args)
        return f"{e.op}({left}, {right})" if e.op.isidentifier() else f"({left} {e.op} {right})"
    return "..."


def scalar_packer(kernel: Bindable, order: tuple[str, ...]) -> Callable[..., bytes]:
    """A function of the scalars, in order, to their bits: what tells calls apart (-0.0 is not 0.0). struct.error and
    OverflowError for values that do not fit."""
    dtypes = {s.name: s.dtype for s in kernel.scalars}
    return struct.Struct("=" + "".join(_PACK[dtypes[n]] for n in order if n in dtypes)).pack


def torch_key(kernel: x.Kernel, order: tuple[str, ...]) -> Callable[..., Key]:
    """A function (stream, *arguments) -> key for torch tensors. Written out for the number of arguments, because it
    is most of a call's host time. Types of scalars enter so that a one-element tensor never passes for a number."""
    tensors = {t.name for t in kernel.tensors}
    names = {name: f"a{i}" for i, name in enumerate(order)}
    parts = ["s"]
    for name, variable in names.items():
        if name in tensors:
            methods = ("data_ptr()", "shape", "stride()", "dtype", "get_device()")
            parts += [f"{variable}.{m}" for m in methods]
        else:
            parts.append(f"type({variable})")
    scalars = [v for n, v in names.items() if n not in tensors]
    if scalars:
        parts.append(f"pack({', '.join(scalars)})")
    text = f"lambda s, {', '.join(names.values())}: ({', '.join(parts)},)"
    function: Callable[..., Key] = eval(text, {"pack": scalar_packer(kernel, order)})
    return function
