"""TMA copies (PTX ISA 9.7.9.27.5). Coordinates run from the last axis to the first. A region larger than the map's
box (rows wider than the swizzle, stored as panels; more rows than a box may have) is copied box by box."""

from __future__ import annotations

import itertools

from cake.codegen.address import Part, SharedView, scalar_part
from cake.codegen.context import RoleContext
from cake.codegen.elementwise import SUM
from cake.codegen.errors import unsupported
from cake.codegen.ops.registry import op
from cake.ir import expanded as x

L2_POLICY = {
    "evict_normal": 0x1000000000000000,
    "evict_first": 0x12F0000000000000,
    "evict_last": 0x14F0000000000000,
}
"""Cache policies as createpolicy.fractional makes them for the whole access."""


def policy(node: x.Op) -> int | None:
    """The cache policy that the op's ``l2`` attribute names."""
    hint = node.attrs.get("l2")
    if hint is None:
        return None
    if hint not in L2_POLICY:
        raise unsupported(f"The L2 hint {hint}.", f"one of {', '.join(L2_POLICY)}", node.span)
    return L2_POLICY[str(hint)]


def _map(role: RoleContext, node: x.Op) -> x.TensorMap:
    return next(m for m in role.kernel.maps if m.name == node.attrs["map"])


def _boxes(role: RoleContext, node: x.Op, tensor: x.Ref, shared: x.Ref | None) -> list[tuple[str, list[str]]]:
    """(shared address, coordinates from the last axis to the first) of each box."""
    tensor_map = _map(role, node)
    sizes = [s.size if isinstance(s, x.Range) else 1 for s in tensor.subs]
    starts = [s.start if isinstance(s, x.Range) else s.at for s in tensor.subs if not isinstance(s, x.Elem)]
    counts = [-(-size // box) for size, box in zip(sizes, tensor_map.box, strict=True)]
    kept = [n for n, s in enumerate(tensor.subs) if isinstance(s, x.Range)]
    out: list[tuple[str, list[str]]] = []
    view = SharedView(role, shared) if shared is not None else None
    for steps in itertools.product(*(range(n) for n in counts)):
        coordinates = []
        for start, step, box in zip(starts, steps, tensor_map.box, strict=True):
            text = role.expr(start, SUM)
            coordinates.append(f"{text} + {step * box}" if step else text)
        address = ""
        if view is not None:
            moved = {n: steps[n] * tensor_map.box[n] for n in kept}
            address = view.base
            offset = _offset(role, view, sizes, kept, moved if any(steps) else {})
            address += f" + {offset}" if offset else ""
        out.append((address, coordinates[::-1]))
    return out


def _offset(role: RoleContext, view: SharedView, sizes: list[int], kept: list[int], moved: dict[int, int]) -> str:
    """Byte offset in the view of a box moved along the kept axes of the tensor."""
    ranges = [s for s in view.ref.subs if isinstance(s, x.Range)]
    wide = [n for n in kept if sizes[n] > 1 or moved.get(n)]
    shared_wide = [n for n, s in enumerate(view.ref.subs) if isinstance(s, x.Range) and s.size > 1]
    if not moved:
        axes = {}
    elif len(kept) == len(ranges):
        axes = dict(zip(kept, [n for n, s in enumerate(view.ref.subs) if isinstance(s, x.Range)], strict=True))
    elif len(wide) == len(shared_wide):
        axes = dict(zip(wide, shared_wide, strict=True))
    else:
        raise unsupported("A copy between views of different rank.", "give both sides the same kept axes")
    subs, row_const = view.ref.subs, 0
    for n in range(len(subs) - 1):
        row_const = row_const * view.buffer.shape[n] + next((d for t, d in moved.items() if axes.get(t) == n), 0)
    start_row, start_col, _, _ = view.starts()
    row = Part(start_row.uniform, start_row.multiple, "", 1, start_row.reg + row_const)
    col_move = next((d for t, d in moved.items() if axes.get(t) == len(subs) - 1), 0)
    last = subs[-1]
    assert isinstance(last, x.Range | x.Point)
    col = scalar_part(role, last.start if isinstance(last, x.Range) else last.at)
    col = Part(col.uniform, col.multiple, "", 1, start_col.reg + col_move)
    return view.block_offset(row, col)


def _pointer(role: RoleContext, node: x.Op) -> str:
    return f"p.{role.unit.names.get('map', _map(role, node).name)}"


def _barrier(role: RoleContext, node: x.Op) -> str:
    if not isinstance(node.completion, x.ByBarrier):
        raise unsupported("A tma.load that completes by group.", "tma.load completes on an mbarrier", node.span)
    return role.barrier(node.completion.barrier, node.completion.slot)


@op("tma.load")
def _load(role: RoleContext, node: x.Op) -> None:
    rank = len(node.ref("src").subs)
    mask, hint = int(node.attrs.get("multicast", 0)), policy(node)
    name = _load_function(role, rank, mask != 0, hint is not None)
    for address, coordinates in _boxes(role, node, node.ref("src"), node.ref("dst")):
        extra = ([f"{mask:#x}"] if mask else []) + ([f"{hint:#x}ull"] if hint is not None else [])
        args = [address, _pointer(role, node), _barrier(role, node), *coordinates, *extra]
        role.line(f"{name}({', '.join(args)});")


def _coordinates(rank: int, first: int) -> tuple[str, str, str]:
    """Parameters, PTX vector and asm inputs of ``rank`` coordinates from operand ``first``."""
    names = [f"c{i}" for i in range(rank)]
    return (
        ", ".join(f"int {n}" for n in names),
        ", ".join(f"%{first + i}" for i in range(rank)),
        ", ".join(f'"r"({n})' for n in names),
    )


def _load_function(role: RoleContext, rank: int, multicast: bool, hint: bool) -> str:
    name = f"tma_load_{rank}d{'_multicast' if multicast else ''}{'_hint' if hint else ''}"
    parameters, vector, inputs = _coordinates(rank, 3)
    at = 3 + rank
    mods, operands = "", ""
    if multicast:
        mods, operands = ".multicast::cluster", f", %{at}"
        parameters, inputs, at = f"{parameters}, uint16_t mask", f'{inputs}, "h"(mask)', at + 1
    if hint:
        mods, operands = f"{mods}.L2::cache_hint", f"{operands}, %{at}"
        parameters, inputs = f"{parameters}, uint64_t policy", f'{inputs}, "l"(policy)'
    return role.unit.function(
        name,
        f"""// Copy a box of `map` to shared memory; its bytes complete on `barrier`.
__device__ __forceinline__ void {name}(uint32_t dst, const TensorMap *map, uint32_t barrier, {parameters})
{{
    asm volatile(
        "cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes{mods} "
        "[%0], [%1, {{{vector}}}], [%2]{operands};"
        :: "r"(dst), "l"(map), "r"(barrier), {inputs} : "memory");
}}""",
    )


def _out_function(role: RoleContext, rank: int, reduce: str | None, hint: bool) -> str:
    name = f"tma_{f'reduce_{reduce}' if reduce else 'store'}_{rank}d{'_hint' if hint else ''}"
    parameters, vector, inputs = _coordinates(rank, 2)
    mods, operands = "", ""
    if hint:
        mods, operands = ".L2::cache_hint", f", %{2 + rank}"
        parameters, inputs = f"{parameters}, uint64_t policy", f'{inputs}, "l"(policy)'
    head = "cp.reduce.async.bulk.tensor" if reduce else "cp.async.bulk.tensor"
    kind = f".{reduce}.tile" if reduce else ".tile"
    return role.unit.function(
        name,
        f"""// {"Combine" if reduce else "Copy"} a shared tile into a box of `map`, as part of the bulk group.
__device__ __forceinline__ void {name}(const TensorMap *map, uint32_t src, {parameters})
{{
    asm volatile(
        "{head}.{rank}d.global.shared::cta{kind}.bulk_group{mods} [%0, {{{vector}}}], [%1]{operands};"
        :: "l"(map), "r"(src), {inputs} : "memory");
}}""",
    )


def _out(role: RoleContext, node: x.Op, reduce: str | None) -> None:
    hint = policy(node)
    name = _out_function(role, len(node.ref("dst").subs), reduce, hint is not None)
    for address, coordinates in _boxes(role, node, node.ref("dst"), node.ref("src")):
        extra = [f"{hint:#x}ull"] if hint is not None else []
        role.line(f"{name}({', '.join([_pointer(role, node), address, *coordinates, *extra])});")


@op("tma.store")
def _store(role: RoleContext, node: x.Op) -> None:
    _out(role, node, None)


@op("tma.reduce")
def _reduce(role: RoleContext, node: x.Op) -> None:
    _out(role, node, str(node.attrs["function"]))


@op("tma.prefetch")
def _prefetch(role: RoleContext, node: x.Op) -> None:
    src = node.ref("src")
    rank = len(src.subs)
    parameters, vector, inputs = _coordinates(rank, 1)
    name = role.unit.function(
        f"tma_prefetch_{rank}d",
        f"""// Bring a box of `map` into L2.
__device__ __forceinline__ void tma_prefetch_{rank}d(const TensorMap *map, {parameters})
{{
    asm volatile(
        "cp.async.bulk.prefetch.tensor.{rank}d.L2.global.tile [%0, {{{vector}}}];" :: "l"(map), {inputs} : "memory");
}}""",
    )
    for _, coordinates in _boxes(role, node, src, None):
        role.line(f"{name}({', '.join([_pointer(role, node), *coordinates])});")
