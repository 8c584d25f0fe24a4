"""Random changes of a kernel's surface tree: what a careless author might write."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from cake.ir import surface as s

BINARY = ["+", "-", "*", "/", "//", "%", "==", "!=", "<", "<=", ">", ">=", "and", "or"]
DTYPES = ["f32", "bf16", "f16", "i32", "e4m3", "bool", "u8", "i64", "tf32"]
BODIES = ("body", "orelse")


def rebuilt(node: s.Node, change: Callable[[s.Node], s.Node]) -> s.Node:
    """The tree with ``change`` applied to every node, children first."""
    new: dict[str, Any] = {}
    for name, value in node.__dict__.items():
        if isinstance(value, s.Node):
            new[name] = rebuilt(value, change)
        elif isinstance(value, tuple) and any(isinstance(v, s.Node) for v in value):
            new[name] = tuple(rebuilt(v, change) if isinstance(v, s.Node) else v for v in value)
    return change(node.model_copy(update=new) if new else node)


def replaced(kernel: s.Kernel, old: s.Node, new: s.Node) -> s.Kernel:
    """The kernel with one node (by identity) replaced."""
    if old is kernel:
        return kernel
    out = _swap(kernel, old, new)
    assert isinstance(out, s.Kernel)
    return out


def _swap(node: s.Node, old: s.Node, new: s.Node) -> s.Node:
    if node is old:
        return new
    changed: dict[str, Any] = {}
    for name, value in node.__dict__.items():
        if isinstance(value, s.Node):
            other = _swap(value, old, new)
            if other is not value:
                changed[name] = other
        elif isinstance(value, tuple) and any(isinstance(v, s.Node) for v in value):
            parts = tuple(_swap(v, old, new) if isinstance(v, s.Node) else v for v in value)
            if any(a is not b for a, b in zip(parts, value, strict=True)):
                changed[name] = parts
    return node.model_copy(update=changed) if changed else node


def mutated(kernel: s.Kernel, rng: random.Random, times: int) -> s.Kernel:
    """The kernel after a few random changes."""
    for _ in range(times):
        kernel = rng.choice(CHANGES)(kernel, rng)
    return kernel


def _pick(kernel: s.Kernel, rng: random.Random, *kinds: type[s.Node]) -> Any:
    nodes = [n for n in s.walk(kernel) if isinstance(n, kinds)]
    return rng.choice(nodes) if nodes else None


def _names(kernel: s.Kernel) -> list[str]:
    return sorted({n.name for n in s.walk(kernel) if isinstance(n, s.Name | s.Attribute)} | {"nothing"})


def rename(kernel: s.Kernel, rng: random.Random) -> s.Kernel:
    """Another name, of a use or of a declaration."""
    kinds = (
        s.Name,
        s.Attribute,
        s.Define,
        s.Role,
        s.Pipeline,
        s.Field,
        s.Smem,
        s.Turn,
        s.Declare,
        s.Kwarg,
        s.Attr,
        s.Axis,
    )
    node = _pick(kernel, rng, *kinds)
    return (
        kernel if node is None else replaced(kernel, node, node.model_copy(update={"name": rng.choice(_names(kernel))}))
    )


def number(kernel: s.Kernel, rng: random.Random) -> s.Kernel:
    """Another number."""
    node = _pick(kernel, rng, s.Number)
    if node is None:
        return kernel
    value = rng.choice([0, 1, node.value + 1, max(0, node.value - 1), node.value * 2, 1.5, 7, 100000, 2**40])
    return replaced(kernel, node, s.Number(value=value, span=node.span))


def expression(kernel: s.Kernel, rng: random.Random) -> s.Kernel:
    """One expression in the place of another."""
    kinds = (s.Name, s.Number, s.Binary, s.Call, s.Index, s.Attribute, s.Unary)
    old, new = _pick(kernel, rng, *kinds), _pick(kernel, rng, *kinds)
    return kernel if old is None else replaced(kernel, old, new)


def operator(kernel: s.Kernel, rng: random.Random) -> s.Kernel:
    """Another operator, or the operands exchanged."""
    node = _pick(kernel, rng, s.Binary)
    if node is None:
        return kernel
    if rng.random() < 0.3:
        return replaced(kernel, node, node.model_copy(update={"left": node.right, "right": node.left}))
    return replaced(kernel, node, node.model_copy(update={"op": rng.choice(BINARY)}))


def arguments(kernel: s.Kernel, rng: random.Random) -> s.Kernel:
    """Arguments dropped, doubled or exchanged."""
    node = _pick(kernel, rng, s.Call)
    if node is None:
        return kernel
    args, kwargs = list(node.args), list(node.kwargs)
    target: list[Any] = kwargs if kwargs and rng.random() < 0.5 else args
    if target:
        at = rng.randrange(len(target))
        match rng.randrange(3):
            case 0:
                target.pop(at)
            case 1:
                target.append(target[at])
            case _:
                target.append(target.pop(at))
    return replaced(kernel, node, node.model_copy(update={"args": tuple(args), "kwargs": tuple(kwargs)}))


def subscripts(kernel: s.Kernel, rng: random.Random) -> s.Kernel:
    """Subscripts dropped, doubled, or made slices."""
    node = _pick(kernel, rng, s.Index)
    if node is None:
        return kernel
    subs = list(node.subs)
    at = rng.randrange(len(subs))
    match rng.randrange(3):
        case 0 if len(subs) > 1:
            subs.pop(at)
        case 1:
            subs.append(subs[at])
        case _:
            subs[at] = s.Slice(span=node.span)
    return replaced(kernel, node, node.model_copy(update={"subs": tuple(subs)}))


def statements(kernel: s.Kernel, rng: random.Random) -> s.Kernel:
    """A statement dropped, doubled, moved, or taken from elsewhere."""
    blocks = [(n, f) for n in s.walk(kernel) for f in BODIES if n.__dict__.get(f)]
    if not blocks:
        return kernel
    node, name = rng.choice(blocks)
    body = list(node.__dict__[name])
    at = rng.randrange(len(body))
    match rng.randrange(5):
        case 0:
            body.pop(at)
        case 1:
            body.insert(rng.randrange(len(body) + 1), body[at])
        case 2:
            body.insert(rng.randrange(len(body)), body.pop(at))
        case 3:
            other, field = rng.choice(blocks)
            body.insert(at, rng.choice(other.__dict__[field]))
        case _:
            inner = body[at]
            if isinstance(inner, s.For | s.With):
                body[at : at + 1] = inner.body
    return replaced(kernel, node, node.model_copy(update={name: tuple(body) or (s.Pass(span=node.span),)}))


def declarations(kernel: s.Kernel, rng: random.Random) -> s.Kernel:
    """A declaration dropped or doubled."""
    lists = [
        f
        for f in ("params", "consts", "wheres", "assumes", "defines", "roles", "pipelines", "smems", "turns", "dos")
        if getattr(kernel, f)
    ]
    if not lists:
        return kernel
    field = rng.choice(lists)
    items = list(getattr(kernel, field))
    at = rng.randrange(len(items))
    if rng.random() < 0.6:
        items.pop(at)
    else:
        items.append(items[at])
    return kernel.model_copy(update={field: tuple(items)})


def tiles(kernel: s.Kernel, rng: random.Random) -> s.Kernel:
    """An item of the work list dropped or moved."""
    if kernel.tiles is None or not kernel.tiles.items:
        return kernel
    items = list(kernel.tiles.items)
    at = rng.randrange(len(items))
    item = items.pop(at)
    if rng.random() < 0.5:
        items.insert(rng.randrange(len(items) + 1), item)
    return kernel.model_copy(update={"tiles": kernel.tiles.model_copy(update={"items": tuple(items)})})


def types(kernel: s.Kernel, rng: random.Random) -> s.Kernel:
    """Another dtype, other dims, or attributes dropped."""
    if rng.random() < 0.4:
        node = _pick(kernel, rng, s.Field, s.Smem, s.Declare, s.Param, s.Axis)
        if node is None or not node.attrs:
            return kernel
        return replaced(kernel, node, node.model_copy(update={"attrs": node.attrs[1:]}))
    node = _pick(kernel, rng, s.TypeRef)
    if rng.random() < 0.5:
        return replaced(kernel, node, node.model_copy(update={"dtype": rng.choice(DTYPES)}))
    dims = node.dims[1:] if rng.random() < 0.5 else (*node.dims, *node.dims[:1])
    return replaced(kernel, node, node.model_copy(update={"dims": dims}))


def ends(kernel: s.Kernel, rng: random.Random) -> s.Kernel:
    """The endpoints of a pipeline exchanged."""
    node = _pick(kernel, rng, s.Pipeline)
    if node is None:
        return kernel
    return replaced(kernel, node, node.model_copy(update={"producers": node.consumers, "consumers": node.producers}))


CHANGES: list[Callable[[s.Kernel, random.Random], s.Kernel]] = [
    rename,
    rename,
    number,
    number,
    expression,
    operator,
    arguments,
    subscripts,
    statements,
    statements,
    declarations,
    tiles,
    types,
    ends,
]
