"""Single accesses: made twice, into another field, past the end of a tensor, without a value for what is left out."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cake.ir import surface as s
from cake.ir.printer import format_expr
from cake.verify.repairs.finding import Finding, cures
from cake.verify.repairs.text import Repair, Text

COPIES = ("tma.load", "cp_async", "tma.store")
TYPES = ("T005", "T006", "T007", "T008", "T014", "T019")


@cures("D203", "O502", "P104", "P103", "T019", "D209")
def twice(text: Text, found: Finding) -> Iterator[Repair]:
    """A copy that is made twice."""
    for copy in found.statements(text):
        if copy.function in COPIES:
            yield text.drop(copy, "copy it once")


@cures(
    "D203",
    "D209",
    "T005",
    "T006",
    "T007",
    "T008",
    "T014",
    "W707",
    "W708",
    "W709",
    "N802",
    "D201",
    "D208",
    "P104",
    "O501",
)
def fields(text: Text, found: Finding) -> Iterator[Repair]:
    """Another field of the same stage."""
    stages = {f.name: p for k in text.parsed.kernels for p in k.pipelines for f in p.fields}
    nearby = [*found.statements(text), *(t for t in found.near(text.statements) if t.function in (*COPIES, "wgmma"))]
    for here in dict.fromkeys(nearby):
        if here.call is None:
            continue
        for node in s.walk(here.call):
            if isinstance(node, s.Attribute) and isinstance(node.base, s.Name) and node.name in stages:
                for other in stages[node.name].fields:
                    if other.name != node.name:
                        yield text.put(node, f"{node.base.name}.{other.name}", f"use the field `{other.name}`")


@cures("O503", "O506", "D209")
def masks(text: Text, found: Finding) -> Iterator[Repair]:
    """A predicate that keeps an access inside its tensor."""
    for here in found.statements(text):
        for call in s.walk(here.node):
            if not (
                isinstance(call, s.Call)
                and format_expr(call.func) in ("load", "store", "atomic.add", "atomic.max", "atomic.min")
            ):
                continue
            target = call.args[0] if call.args else None
            if not (isinstance(target, s.Index) and isinstance(target.base, s.Name)):
                continue
            param = next((p for p in here.kernel.params if p.name == format_expr(target.base)), None)
            if param is None or len(param.type.dims) != len(target.subs):
                continue
            for words in _inside(text, target, param, found):
                yield _masked(text, call, words)


def _inside(text: Text, target: s.Index, param: s.Param, found: Finding) -> Iterator[str]:
    """Conditions: for the axis that the finding names, then for all axes."""
    axis = re.search(r"past axis (\d+)", found.diagnostic.message)
    each = [
        f"{format_expr(sub)} < {format_expr(extent)}"
        for sub, extent in zip(target.subs, param.type.dims, strict=True)
        if not isinstance(sub, s.Slice)
    ]
    pairs = [(sub, extent) for sub, extent in zip(target.subs, param.type.dims, strict=True)]
    if axis is not None and int(axis.group(1)) < len(pairs):
        sub, extent = pairs[int(axis.group(1))]
        yield f"{format_expr(sub)} < {format_expr(extent)}"
    if each:
        yield " and ".join(each)
        moving = [e for e, (sub, _) in zip(each, pairs, strict=False) if not isinstance(sub, s.Attribute | s.Number)]
        if moving and len(moving) < len(each):
            yield " and ".join(moving)


def _masked(text: Text, call: s.Call, words: str) -> Repair:
    given = next((k for k in call.kwargs if k.name == "where"), None)
    message = "leave out what lies past the end"
    if given is not None:
        return text.put(given.value, f"{format_expr(given.value)} and {words}", message)
    arguments = [format_expr(a) for a in call.args] + [f"{k.name}={format_expr(k.value)}" for k in call.kwargs]
    return text.put(call, f"{format_expr(call.func)}({', '.join([*arguments, f'where={words}'])})", message)


@cures("O501", "O502", "O503", "O506", "M401", "T013", "T019")
def factors(text: Text, found: Finding) -> Iterator[Repair]:
    """An index of a tile that lacks the size of the tile: as the other accesses of the kernel write it."""
    products: dict[str, list[str]] = {}
    for t in text.statements:
        for node in s.walk(t.node):
            if isinstance(node, s.Binary) and node.op == "*":
                products.setdefault(format_expr(node.left), []).append(format_expr(node))
    for here in (
        *found.statements(text),
        *(t for t in found.near(text.statements) if t.function in ("store", "tma.store")),
    ):
        if here.call is None or not here.call.args or not isinstance(here.call.args[0], s.Index):
            continue
        for sub in here.call.args[0].subs:
            for node in s.walk(sub):
                if isinstance(node, s.Attribute) and format_expr(node) in products:
                    for whole in dict.fromkeys(products[format_expr(node)]):
                        yield text.put(node, whole, "count elements, not tiles")
