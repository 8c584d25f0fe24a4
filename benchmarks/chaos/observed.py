"""Synthetic kernels made observable: what is written depends on the iteration, and what is read goes to memory.

The parents of ``tests/mutation`` are judged by their events, so they move one line again and again and drop what they read. On
hardware only a difference in the outputs shows. Here each fill, each store of a constant and each read gets its own values:
sources have a row (or a block of rows) for each iteration, constants become numbers of the iteration, and after each read of
shared memory the registers are stored to a row of their own of an ``inout`` tensor.
"""

from __future__ import annotations

from cake.ir import expanded as x
from cake.ir.expr import Apply, Axis, Const, Expr, Sym, integer
from cake.ir.layout import TileType
from tests.mutation.site import Site, sites

TILES, SLABS = 3, 5
"""Trip counts: enough for every ring of the suite to turn, odd so that parities differ at the end."""

SPAN = 8
"""Iterations of the inner loop that numbers leave room for, so that a trip too many stays inside."""

ROWS = SPAN * (TILES + 1)


def _plus(*terms: Expr) -> Expr:
    out: Expr = integer(0)
    for term in terms:
        out = term if out == integer(0) else Apply(op="+", args=(out, term), dtype="i32")
    return out


def _times(e: Expr, factor: int) -> Expr:
    return e if factor == 1 else Apply(op="*", args=(e, integer(factor)), dtype="i32")


def iteration(site: Site) -> Expr:
    """The number of the iteration that a statement is in, below ``ROWS``."""
    number: Expr = integer(0)
    for loop in site.loops:
        number = _plus(_times(number, SPAN), Sym(name=loop.var)) if number != integer(0) else Sym(name=loop.var)
    return number


def _who(kernel: x.Kernel, site: Site) -> Expr:
    """Numbers the executing instances of all CTAs."""
    assert site.role is not None
    role = kernel.roles[site.role]
    cta = Sym(name="%cta") if kernel.positions != integer(1) else integer(0)
    rank = Sym(name="%rank") if kernel.cluster > 1 else integer(0)
    out = _plus(_times(cta, kernel.cluster), rank) if cta != integer(0) else rank
    if role.instances > 1:
        assert role.var is not None
        out = _plus(_times(out, role.instances), Sym(name=role.var)) if out != integer(0) else Sym(name=role.var)
    return out


def _copies(kernel: x.Kernel) -> int:
    positions = kernel.positions
    assert isinstance(positions, Const)
    return int(positions.value) * kernel.cluster


def observed(kernel: x.Kernel) -> x.Kernel:
    """The same protocol with values that tell iterations and places apart."""
    smem = {b.name for b in kernel.buffers}
    kernel = _distinct_sources(_distinct_stores(kernel, smem))
    reads = [s for s in sites(kernel, x.Op) if s.node.op in ("load", "ldmatrix") and s.node.ref("src").base in smem]
    tensors: list[x.Tensor] = []
    for number, before in reversed(list(enumerate(reads))):
        site = next(s for s in sites(kernel) if s.role == before.role and s.path == before.path)
        assert site.role is not None
        role, dst = kernel.roles[site.role], site.node.reg("dst")
        tile = role.tiles[dst.name]
        name = f"seen{number}"
        block = _plus(_times(_who(kernel, site), ROWS), iteration(site))
        row = _plus(_times(block, tile.rows), Axis(axis="row")) if tile.rows > 1 else _plus(block, Axis(axis="row"))
        ref = x.Ref(base=name, subs=(x.Elem(index=row), x.Elem(index=Axis(axis="col"))))
        kind = TileType(dtype=tile.dtype, shape=tile.shape, layout=tile.layout)
        store = x.Op(op="store", operands={"dst": ref, "value": dst}, type=kind)
        rows = _copies(kernel) * role.instances * ROWS * tile.rows
        shape = (integer(rows), integer(tile.cols))
        tensors.append(x.Tensor(name=name, dtype=tile.dtype, shape=shape, direction="inout"))
        kernel = site.put(site.node, store)
    # what is not covered by every launch is no output that must be written
    known = tuple(t.model_copy(update={"direction": "inout"}) if t.direction == "out" else t for t in kernel.tensors)
    return kernel.model_copy(update={"tensors": (*known, *reversed(tensors))})


def _distinct_stores(kernel: x.Kernel, smem: set[str]) -> x.Kernel:
    """Constants stored become numbers of place and iteration."""
    found = [s for s in sites(kernel, x.Op) if s.node.op == "store" and isinstance(s.node.operands["value"], Const)]
    for number, before in enumerate(found):
        site = next(s for s in sites(kernel) if s.role == before.role and s.path == before.path)
        tag = _plus(_times(_plus(_times(_who(kernel, site), ROWS), iteration(site)), 512), Axis(axis="col"))
        value = Apply(op="cast", args=(_plus(tag, integer(1 + 128 * number)),), dtype="f32")
        kernel = site.update(operands={**site.node.operands, "value": value})
    return kernel


def _distinct_sources(kernel: x.Kernel) -> x.Kernel:
    """Copies from global memory read the rows of their iteration."""
    heights: dict[str, int] = {}
    found = [s for s in sites(kernel, x.Op) if s.node.op in ("tma.load", "cp_async")]
    for before in found:
        site = next(s for s in sites(kernel) if s.role == before.role and s.path == before.path)
        src = site.node.ref("src")
        first = src.subs[0]
        assert isinstance(first, x.Range)
        start = _plus(first.start, _times(iteration(site), first.size))
        heights[src.base] = first.size
        moved = x.Ref(base=src.base, subs=(x.Range(start=start, size=first.size), *src.subs[1:]))
        kernel = site.update(operands={**site.node.operands, "src": moved})
    tensors = tuple(
        t.model_copy(update={"shape": (integer(heights[t.name] * ROWS), *t.shape[1:])}) if t.name in heights else t
        for t in kernel.tensors
    )
    return kernel.model_copy(update={"tensors": tensors})
