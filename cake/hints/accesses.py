"""H952 and H953: how the lanes of each move fall on banks and sectors, at the fullest step of one launch of whole tiles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cake.codegen.emit import access_widths
from cake.diagnostics import CakeError, Diagnostic, Label
from cake.hints import banks
from cake.hints.lanes import Requests, element_requests, matrix_requests
from cake.hints.sectors import SECTOR, traffic
from cake.hints.watch import Step, Watch
from cake.ir import expanded as x
from cake.ir.dtypes import DTYPES
from cake.ir.expr import Reg, walk
from cake.ir.layout import TileType
from cake.machine.memory import BufferLayout
from cake.machine.program import statements

LEAST, EXCESS = 2, 16
"""A move is worth a hint from so many times the ideal number of sectors, or wavefronts of some phase, on, and so many more of
them in a step of the instance."""

MATRIX = ("ldmatrix", "stmatrix")


@dataclass(frozen=True)
class Move:
    """One move of the program, and its instructions at its fullest step. ``tiles``: of the role."""

    step: Step
    node: x.Op
    requests: Requests
    tiles: dict[str, TileType]

    @property
    def base(self) -> str:
        """The tensor or buffer."""
        return self.step.footprint.base

    @property
    def where(self) -> str:
        """What the move does, in words."""
        stores = self.node.op in ("store", "stmatrix", "atomic")
        return f"`{self.node.op}` {'to' if stores else 'from'} `{self.base}`"


def access_hints(kernel: x.Kernel, watch: Watch) -> list[Diagnostic]:
    """The hints about moves; none where the emitter refuses the kernel."""
    try:
        widths = access_widths(kernel)
    except CakeError:
        return []
    moves = list(_moves(kernel, watch, widths))
    found: dict[tuple[str, object], Diagnostic] = {}
    for d in (*_bank_hints(kernel, moves), *_sector_hints(kernel, moves)):
        found.setdefault((d.code, d.span), d)  # a statement that was unrolled says it once
    return list(found.values())


def _moves(kernel: x.Kernel, watch: Watch, widths: dict[int, int]) -> Iterator[Move]:
    roles = {role.name: role for role in kernel.roles}
    for step in watch.steps.values():
        node = step.site.node
        if not isinstance(node, x.Op) or node.executor != "lanes" or step.site.role not in roles:
            continue
        role = roles[step.site.role]
        if node.op in MATRIX:
            ref = node.ref("src" if node.op == "ldmatrix" else "dst")
            yield Move(step, node, matrix_requests(step.footprint, transposed=ref.transposed), role.tiles)
        elif node.op in ("load", "store", "atomic"):
            width = 1 if node.op == "atomic" else widths.get(id(node), 1)
            found = element_requests(step.footprint, role.threads, width, stores=node.op != "load")
            yield Move(step, node, found, role.tiles)


# ---- shared memory --------------------------------------------------------------------------------------------------


def _bank_hints(kernel: x.Kernel, moves: list[Move]) -> Iterator[Diagnostic]:
    shared = [m for m in moves if m.step.footprint.start is not None and m.node.op != "atomic"]
    for move in shared:
        start = move.step.footprint.start
        assert start is not None
        buffer = kernel.buffer(move.base)
        found = banks.cost(BufferLayout(buffer), start, move.requests)
        if found.worst < LEAST or found.wavefronts < found.ideal + EXCESS:
            continue
        others = [m.requests for m in shared if m.base == move.base]
        better = banks.better(buffer, others, engines=buffer.name in _engine_buffers(kernel))
        size = move.requests.width * DTYPES[buffer.dtype].bytes
        shape = f"{buffer.dtype}[{', '.join(map(str, buffer.shape))}]"
        what = "rows of matrices" if move.node.op in MATRIX else "accesses"
        yield Diagnostic(
            code="H952",
            severity="hint",
            message=f"{move.where} has {found.worst}-way bank conflicts: {found.wavefronts} wavefronts where {found.ideal} would do",
            span=move.node.span,
            labels=(Label(span=buffer.span, text=f"`{buffer.name}` has {banks.layout_text(buffer)}"),),
            facts=(
                f"{what} of {size} bytes; up to {found.worst} different words of one phase lie in one bank",
                move.step.text,
            ),
            help=f"without conflicts: `{buffer.name.split('.')[-1]}: {shape} {banks.layout_text(better)}`"
            if better is not None
            else "lay the tile out so that the lanes of a phase reach different banks",
        )


def _engine_buffers(kernel: x.Kernel) -> set[str]:
    """Shared buffers that TMA or wgmma use."""
    found = set()
    for role in kernel.roles:
        for node in statements(role.body):
            if isinstance(node, x.Op) and (node.op == "wgmma" or node.op.startswith("tma.")):
                found |= {v.base for v in node.operands.values() if isinstance(v, x.Ref)}
    return found


# ---- global memory --------------------------------------------------------------------------------------------------


def _sector_hints(kernel: x.Kernel, moves: list[Move]) -> Iterator[Diagnostic]:
    for move in moves:
        tensor = kernel.tensor(move.base)
        if tensor is None or move.step.footprint.start is not None:
            continue
        found = traffic(move.requests, DTYPES[tensor.dtype].bytes)
        if found.touched < max(LEAST * found.ideal, found.ideal + EXCESS):
            continue
        yield Diagnostic(
            code="H953",
            severity="hint",
            message=f"{move.where} touches {found.worst} sectors of {SECTOR} bytes a request where its bytes fill "
            f"{found.worst_ideal}",
            span=move.node.span,
            facts=(
                f"{found.requests} requests touch {found.touched} sectors; {found.ideal} would hold what they move",
                f"{move.requests.width * DTYPES[tensor.dtype].bytes} bytes a lane, from a tile in "
                f"{move.step.footprint.domain.layout}",
                move.step.text,
            ),
            help=_way_out(move, DTYPES[tensor.dtype].bytes),
        )


def _way_out(move: Move, size: int) -> str:
    layout, where = move.step.footprint.domain.layout, move.node.expr("where")
    vector = max(1, 16 // size)
    if move.requests.width < layout.vector:
        apart = f"so that each of the {layout.vector} elements of a vector is an access of its own"
        wide = (
            [n for n in walk(where) if isinstance(n, Reg) and move.tiles[n.name].cols > 1] if where is not None else []
        )
        if wide:
            return f"the predicate comes from a tile, {apart}: test a scalar instead, or read a place that is always inside"
        return f"an index comes from a tile, {apart}: take it as a scalar where it is one for all columns"
    if layout.kind == "spread":
        return "let neighbouring columns of the tile index the tensor's last axis"
    if move.node.op == "load":
        return f"bring the tile to shared memory by TMA, or load it into a tile in `spread({vector})`"
    return f"stage the tile in shared memory and let TMA store it, or store a tile in `spread({vector})`"
