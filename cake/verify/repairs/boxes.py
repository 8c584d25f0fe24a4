"""Block copies that are missing, written as the kernel's other accesses are.

The axis of a tensor is addressed as some other access addresses an axis of the same extent, with a slice of the right length, or as
the tiles divide that extent. So a copy of `a[M, K]` takes its rows from the tile's axis over M, its columns from the copy of `b[N, K]`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, islice, product

from cake.ir import surface as s
from cake.ir.printer import format_expr
from cake.verify.repairs.finding import Finding, cures
from cake.verify.repairs.text import Repair, Statement, Text

MOST = 10
"""Copies that are proposed for one field."""


@cures("D209", "P104", "P101", "D201")
def missing_copy(text: Text, found: Finding) -> Iterator[Repair]:
    """A field that nothing fills."""
    for fill in (t for t in found.statements(text) if isinstance(t.node, s.With)):
        assert isinstance(fill.node, s.With)
        stage, end = fill.node.name, next(t for t in text.statements if t.node is _body(fill)[-1])
        fields = {f.name: f for p in fill.kernel.pipelines if fill.is_method(p.name, "fill") for f in p.fields}
        for name in (w for w in found.words if w in fields and stage is not None):
            again = _elsewhere(text, fill, name)
            for box in dict.fromkeys([*again, *islice(_sources(text, fill, fields[name]), MOST)]):
                yield text.after(end, f"tma.load({stage}.{name}, {box})", f"fill `{name}` too")


def _body(block: Statement) -> tuple[s.Stmt, ...]:
    assert isinstance(block.node, s.With)
    return block.node.body


def _elsewhere(text: Text, fill: Statement, name: str) -> Iterator[str]:
    """What other fills copy into a field of the name."""
    for other in text.statements:
        if other.function == "tma.load" and other.call is not None and other.kernel is fill.kernel:
            target = other.call.args[0]
            if isinstance(target, s.Attribute) and target.name == name and other.around is not fill:
                yield format_expr(other.call.args[1])


def _sources(text: Text, fill: Statement, field: s.Field) -> Iterator[str]:
    """Boxes of inputs that have the field's type: of the tensor of its name, of those that nothing copies yet, of the others."""
    copied = {
        format_expr(t.call.args[1].base)
        for t in text.statements
        if t.function == "tma.load"
        and t.call is not None
        and t.role == fill.role
        and isinstance(t.call.args[1], s.Index)
    }
    inputs = [p for p in fill.kernel.params if p.direction == "in" and p.type.dtype == field.type.dtype and p.type.dims]
    for param in sorted(inputs, key=lambda p: (p.name != field.name, p.name in copied)):
        yield from _boxes(text, fill, param, field)


@cures("O501", "T019", "D213")
def missing_store(text: Text, found: Finding) -> Iterator[Repair]:
    """A filled stage of a ring of stores that is never stored."""
    for fill in found.near(t for t in text.statements if isinstance(t.node, s.With) and t.function.endswith(".fill")):
        assert isinstance(fill.node, s.With)
        ring = next(
            (p for p in fill.kernel.pipelines if fill.is_method(p.name, "fill") and p.consumers == ("store",)), None
        )
        if ring is None or fill.node.name is None:
            continue
        for other in text.statements:
            if other.function == "tma.store" and other.kernel is fill.kernel and other.call is not None:
                yield text.after(fill, format_expr(other.call), "store the stage")
        outputs = [p for p in fill.kernel.params if p.direction != "in"]
        for field in ring.fields:
            for param in outputs:
                for box in islice(_boxes(text, fill, param, field), MOST):
                    yield text.after(fill, f"tma.store({box}, {fill.node.name}.{field.name})", "store the stage")


def _boxes(text: Text, near: Statement, param: s.Param, field: s.Field) -> Iterator[str]:
    """Boxes of a tensor with the field's extents; the other axes are single values."""
    dims, extents = [format_expr(d) for d in param.type.dims], [format_expr(e) for e in field.type.dims]
    for subs in _alike(text, near, dims):
        yield f"{param.name}[{subs}]"
    for kept in combinations(range(len(dims)), len(extents)):
        sizes = dict(zip(kept, extents, strict=True))
        ways = [
            _slices(text, near, dim, sizes[axis]) if axis in sizes else _points(text, near, dim)
            for axis, dim in enumerate(dims)
        ]
        for each in product(*ways):
            yield f"{param.name}[{', '.join(each)}]"


def _alike(text: Text, near: Statement, dims: list[str]) -> Iterator[str]:
    """The subscripts of block copies of tensors that have the same axes."""
    for t in sorted(text.statements, key=lambda t: abs(t.first - near.first)):
        if t.role == near.role and t.function in ("tma.load", "tma.store") and t.call is not None:
            for node in t.call.args:
                if isinstance(node, s.Index):
                    param = next((p for p in t.kernel.params if p.name == format_expr(node.base)), None)
                    if param is not None and [format_expr(d) for d in param.type.dims] == dims:
                        yield ", ".join(format_expr(sub) for sub in node.subs)


def _subs(text: Text, near: Statement, dim: str) -> list[s.Sub]:
    """How the role's accesses (then those of other roles) address axes of an extent, the nearest first."""
    found = []
    for t in sorted(text.statements, key=lambda t: (t.role != near.role, abs(t.first - near.first))):
        if t.kernel is not near.kernel or isinstance(t.node, s.For | s.With | s.If):
            continue
        for node in s.walk(t.node):
            if isinstance(node, s.Index) and isinstance(node.base, s.Name):
                param = next((p for p in t.kernel.params if p.name == format_expr(node.base)), None)
                if param is not None and len(param.type.dims) == len(node.subs):
                    found += [u for u, d in zip(node.subs, param.type.dims, strict=True) if format_expr(d) == dim]
    return found


def _points(text: Text, near: Statement, dim: str) -> list[str]:
    """Single values on an axis."""
    known = [format_expr(u) for u in _subs(text, near, dim) if not isinstance(u, s.Slice)]
    axes = [f"{_tile(near)}.{a.name}" for a in _axes(near.kernel) if format_expr(a.extent) == dim]
    return list(dict.fromkeys([*known, *axes]))[:2]


def _slices(text: Text, near: Statement, dim: str, extent: str) -> list[str]:
    """Slices of a length on an axis. A slice of the whole axis has no length of its own."""
    if dim == extent:
        return [":"]
    known = [format_expr(u) for u in _subs(text, near, dim) if isinstance(u, s.Slice) and _length(u) == extent]
    tile = _tile(near)
    starts = [f"{tile}.{d.name}" for d in _defined(near.kernel, extent)]
    for axis in _axes(near.kernel):
        if format_expr(axis.extent) == f"cdiv({dim}, {extent})":
            product_of = f"{tile}.{axis.name} * {extent}"
            defined = [
                d.name for d in _defined(near.kernel, extent) if f"{axis.name} * {extent}" == format_expr(d.value)
            ]
            starts.insert(0, f"{tile}.{defined[0]}" if defined else product_of)
    starts += _local(near, extent)
    return list(dict.fromkeys([*known, *(f"{start} : {start} + {extent}" for start in starts)]))[:3]


def _local(near: Statement, extent: str) -> list[str]:
    """Starts that the blocks round a place have set, and loop variables in steps of the length."""
    found = []
    for level in (near, *near.outward()):
        for node in level.block[: level.index]:
            if (
                isinstance(node, s.Assign)
                and len(node.targets) == 1
                and f"{extent} *" in f"{format_expr(node.value)} *"
            ):
                found.append(node.targets[0])
        if isinstance(level.node, s.For) and level is not near and format_expr(level.node.iter).startswith("range"):
            found.append(f"{level.node.var} * {extent}")
    return found[:3]


def _multiple(value: s.Expr, extent: str) -> bool:
    """Arithmetic in which the extent is a factor."""
    nodes = list(s.walk(value))
    if any(isinstance(n, s.Call | s.Index) for n in nodes):
        return False
    products = [n for n in nodes if isinstance(n, s.Binary) and n.op == "*"]
    return any(extent in (format_expr(n.left), format_expr(n.right)) for n in products)


def _tile(near: Statement) -> str:
    """The variable that walks the tiles."""
    walks = [
        t.node.var for t in near.outward() if isinstance(t.node, s.For) and format_expr(t.node.iter).startswith("tiles")
    ]
    return walks[0] if walks else "t"


def _axes(kernel: s.Kernel) -> tuple[s.Axis, ...]:
    return kernel.tiles.axes if kernel.tiles is not None else ()


def _defined(kernel: s.Kernel, extent: str) -> list[s.Define]:
    """Definitions of the tiles that are multiples of an extent."""
    found = []
    for item in kernel.tiles.defines if kernel.tiles is not None else ():
        value = item.value
        if isinstance(value, s.Binary) and value.op == "*" and extent in map(format_expr, (value.left, value.right)):
            found.append(item)
    return found


def _length(node: s.Slice) -> str:
    """``n`` of ``lo : lo + n``."""
    hi, lo = node.hi, node.lo
    if isinstance(hi, s.Binary) and hi.op == "+" and lo is not None and hi.left == lo:
        return format_expr(hi.right)
    return ""
