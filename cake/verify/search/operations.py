"""What each operation touches. Written from the PTX ISA's words on each instruction, not from the op table, so that a missing
effect there is seen here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cake.ir import expanded as x
from cake.ir.dtypes import DTYPES
from cake.ir.layout import TileType
from cake.verify.search.steps import Fault, Pick, Step, Tag, Touch, Undecided
from cake.verify.search.tiles import WARP, first_holder, held_by, replicated, several_lanes, value

if TYPE_CHECKING:
    from cake.verify.search.lower import Walk

Array = np.ndarray[Any, Any]

MEMORY = {
    "load": (("src", "r"),),
    "load_scalar": (("src", "r"),),
    "store": (("dst", "w"),),
    "atomic": (("dst", "a"),),
    "signal": (("flag", "w"),),
    "wait_until": (("flag", "r"),),
    "ldmatrix": (("src", "r"),),
    "stmatrix": (("dst", "w"),),
    "tma.load": (("dst", "w"),),
    "tma.store": (("src", "r"), ("dst", "w")),
    "tma.reduce": (("src", "r"), ("dst", "a")),
    "cp_async": (("dst", "w"),),
    "wgmma": (("a", "r"), ("b", "r")),
}
"""Memory operands and how they are used (a: an atomic update). Inputs of the launch are never written, so reads of them are left
out where the operation is asynchronous and dropped elsewhere."""

ASYNC_PROXY = {"tma.load", "tma.store", "tma.reduce", "wgmma"}
"""Operations of the async proxy (PTX ISA 9.7.9.27.1.2, 9.7.15.4). cp.async is generic (9.7.9.25.3)."""

ISSUED = {*ASYNC_PROXY, "cp_async"}

ROWS_A_WARP = 16
"""wgmma reads 16 rows of A for each warp of its warpgroup (PTX ISA 9.7.15.5.1); here each reads all, as 9.7.15.6.2 retires all."""


def touches_of(walk: Walk, step: Step, node: x.Op) -> None:
    """Fill in the step of an operation."""
    step.kind = "issue" if node.op in ISSUED else "access"
    if node.op == "load_scalar":
        walk.env[node.sym("dst").name] = walk.load_scalar(node)
    if node.op == "wgmma":
        step.width = 4
        scale = node.expr("use_acc")
        step.adds = scale is None or walk.scalar(scale) in (True, 1)
    elif node.op in ("ldmatrix", "stmatrix", "mma", "topk"):
        step.width = 1
    if node.executor != "lanes" or step.alone:
        step.width = 0
    for name, mode in MEMORY.get(node.op, ()):
        operand = node.operands.get(name)
        if isinstance(operand, x.Ref):
            _operand(walk, step, node, name, operand, mode)
    if node.op in ("signal", "wait_until"):
        _flag(walk, step, node)
    if isinstance(node.completion, x.ByGroup):
        step.queue = node.completion.queue
    elif isinstance(node.completion, x.ByBarrier):
        _landing(walk, step, node, node.completion)


def _landing(walk: Walk, step: Step, node: x.Op, done: x.ByBarrier) -> None:
    mask = int(node.attrs.get("multicast", 0) or 0)
    ranks = tuple(r for r in range(walk.launch.kernel.cluster) if mask >> r & 1) if mask else None
    step.barriers = walk.barrier(done.barrier, done.slot, ranks)
    if node.op == "cp_async":
        step.triggered, step.form = True, "triggered"
        return
    ref = node.ref("dst")
    sizes = tuple(1 if isinstance(s, x.Point) else s.size for s in ref.subs if not isinstance(s, x.Elem))
    step.bytes = walk.box_bytes(sizes, walk.launch.kernel.buffer(ref.base).dtype)


def _flag(walk: Walk, step: Step, node: x.Op) -> None:
    ref = node.ref("flag")
    index = tuple(np.asarray(walk.integer(s.at)) for s in ref.subs if isinstance(s, x.Point))
    wanted = node.expr("value")
    assert wanted is not None
    where = walk.launch.regions.of_tensor(ref.base, index)
    step.kind = node.op
    step.flag = (ref.base, int(where[0]) if where.size else -1)
    step.value = walk.integer(wanted)
    step.touches = []


def _operand(walk: Walk, step: Step, node: x.Op, name: str, ref: x.Ref, mode: str) -> None:
    kernel, launch = walk.launch.kernel, walk.launch
    tensor = kernel.tensor(ref.base)
    if tensor is not None and tensor.direction == "in":
        return
    asynchronous = node.op in ASYNC_PROXY
    mask = int(node.attrs.get("multicast", 0) or 0) if name == "dst" else 0
    cta = walk.instance.cta
    base = cta - walk.instance.rank
    ctas = [base + r for r in range(kernel.cluster) if mask >> r & 1] if mask else [cta]
    if ref.peer is not None:
        ctas = [base + walk.integer(ref.peer)]
    tag = None
    if tensor is None and ref.slot is not None and ref.base in launch.rings:
        tag = Tag(ref.base, walk.number(ref.slot))
    for owner in ctas:
        pick = _elements(walk, step, node, ref, owner) if _by_elements(ref) else _box(walk, step, node, ref, owner)
        space = "shared" if tensor is None else "global"
        step.touches.append(Touch(mode, asynchronous, pick, space, owner, ref.base, tag))


def _by_elements(ref: x.Ref) -> bool:
    return not any(isinstance(s, x.Range) for s in ref.subs)


def _slot(walk: Walk, ref: x.Ref) -> int:
    slots = walk.launch.kernel.buffer(ref.base).slots
    return 0 if ref.slot is None else walk.position(ref.slot) % slots


def _domain(walk: Walk, node: x.Op) -> TileType | None:
    """The register tile whose holders make the access."""
    if node.op in ISSUED:
        return None
    if node.type is not None:
        return node.type
    if node.op == "ldmatrix":
        reg = node.reg("dst")
    elif node.op == "stmatrix":
        reg = node.reg("value")
    else:
        return None
    assert walk.instance.role is not None
    whole = walk.instance.role.tiles[reg.name]
    shape = list(whole.shape[len(reg.lead) :])
    for axis, bounds in ((-2, reg.rows), (-1, reg.cols)):
        if bounds is not None:
            shape[axis] = bounds[1] - bounds[0]
    return TileType(dtype=whole.dtype, shape=tuple(shape), layout=whole.layout)


def _dealt(walk: Walk, node: x.Op, sizes: tuple[int, ...], dtype: str) -> Array:
    """cp.async: which thread copies each element (16-byte pieces, round robin)."""
    piece = int(node.attrs.get("bytes", 16) or 16) // DTYPES[dtype].bytes
    count = int(np.prod(sizes))
    return (np.arange(count) // piece % (WARP * walk.instance.warps)).reshape(sizes)


def _box(walk: Walk, step: Step, node: x.Op, ref: x.Ref, cta: int) -> Pick:
    launch = walk.launch
    starts = tuple(
        walk.integer(s.at if isinstance(s, x.Point) else s.start) for s in ref.subs if not isinstance(s, x.Elem)
    )
    sizes = tuple(1 if isinstance(s, x.Point) else s.size for s in ref.subs if not isinstance(s, x.Elem))
    kept = tuple(s.size for s in ref.subs if isinstance(s, x.Range))
    where = node.expr("where")
    mask = None if where is None else value(where, walk.env, node.type, walk.instance.warps)
    shared = launch.kernel.tensor(ref.base) is None
    slot = _slot(walk, ref) if shared else 0
    if shared:
        extents = launch.kernel.buffer(ref.base).shape
        if any(a < 0 or a + n > m for a, n, m in zip(starts, sizes, extents, strict=True)):
            raise Fault("O503: a box leaves its buffer")
    domain = _domain(walk, node)
    threads: Array | None = None
    if node.op == "cp_async" and not step.alone and node.executor == "lanes":
        threads = _dealt(walk, node, sizes, launch.kernel.buffer(ref.base).dtype)
    elif domain is not None and node.executor == "lanes" and not step.alone:
        holders = np.broadcast_to(first_holder(domain, walk.instance.warps), domain.shape)
        threads = (holders.swapaxes(-1, -2) if ref.transposed else holders).reshape(sizes)
    reads = node.op in ("load", "ldmatrix")
    everyone = threads is None or (domain is not None and replicated(domain) and reads)
    if mask is not None and kept:
        mask = np.broadcast_to(mask, kept[::-1] if ref.transposed else kept)
        mask = (mask.swapaxes(-1, -2) if ref.transposed else mask).reshape(sizes)
    shared_lanes = domain is not None and several_lanes(domain) and reads
    instance = walk.instance.index
    grid = tuple(np.arange(a, a + n) for a, n in zip(starts, sizes, strict=True))

    def make(warps: tuple[int, ...], half: str) -> Array:
        if reads and half.isdigit() and threads is not None and domain is not None:
            held = np.broadcast_to(held_by(domain, walk.instance.warps, warps, int(half)), domain.shape)
            chosen: Array | None = (held.swapaxes(-1, -2) if ref.transposed else held).reshape(sizes)
        else:
            chosen = _chosen(threads, warps, "LR" if shared_lanes else half, everyone)
        if mask is not None:
            chosen = mask if chosen is None else chosen & mask
        if shared:
            index = tuple(slice(a, a + n) for a, n in zip(starts, sizes, strict=True))
            addresses = launch.regions.maps[ref.base].addresses[index]
            return launch.regions.of_buffer(
                cta, ref.base, instance, slot, addresses if chosen is None else addresses[chosen]
            )
        whole = np.broadcast_arrays(*np.ix_(*grid))
        return launch.regions.of_tensor(ref.base, tuple(a if chosen is None else a[chosen] for a in whole))

    key = (
        ref.base,
        cta,
        instance,
        slot,
        starts,
        sizes,
        ref.transposed,
        domain,
        node.op == "cp_async",
        everyone,
        step.alone,
    )
    return _picker(walk, key if mask is None else (*key, mask.tobytes()), make)


def _elements(walk: Walk, step: Step, node: x.Op, ref: x.Ref, cta: int) -> Pick:
    launch, warps_all = walk.launch, walk.instance.warps
    tile = node.type
    shared = launch.kernel.tensor(ref.base) is None
    index: list[Array] = []
    extents = launch.kernel.buffer(ref.base).shape if shared else launch.shapes[ref.base]
    for sub in ref.subs:
        at = value(sub.at if isinstance(sub, x.Point) else sub.index, walk.env, tile, warps_all)  # type: ignore[union-attr]
        if at is None:
            raise Undecided(f"U901: the elements of {ref.base} depend on data")
        index.append(at)
    where = node.expr("where")
    mask = None if where is None else value(where, walk.env, tile, warps_all)
    shape = tile.shape if tile is not None else ()
    flat = [np.broadcast_to(a, shape) for a in index]
    inside = np.ones(shape, dtype=bool) if mask is None else np.broadcast_to(mask, shape).astype(bool)
    if any(((a < 0) | (a >= n))[inside].any() for a, n in zip(flat, extents, strict=True)):
        if mask is None and where is not None:
            raise Undecided(f"U901: the predicate of an access to {ref.base} depends on data")
        raise Fault(f"O503: an element outside {ref.base}")
    threads = None
    if tile is not None and node.executor == "lanes" and not step.alone:
        threads = np.broadcast_to(first_holder(tile, warps_all), shape)
    reads = node.op == "load"
    everyone = threads is None or (reads and tile is not None and replicated(tile))
    shared_lanes = reads and tile is not None and several_lanes(tile)
    slot = _slot(walk, ref) if shared else 0
    instance = walk.instance.index

    def make(warps: tuple[int, ...], half: str) -> Array:
        if reads and half.isdigit() and threads is not None and tile is not None:
            chosen: Array | None = np.broadcast_to(held_by(tile, warps_all, warps, int(half)), shape)
        else:
            chosen = _chosen(threads, warps, "LR" if shared_lanes else half, everyone)
        chosen = inside if chosen is None else chosen & inside
        picked = tuple(a[chosen] for a in flat)
        if not shared:
            return launch.regions.of_tensor(ref.base, picked)
        addresses = launch.regions.maps[ref.base].addresses[picked]
        return launch.regions.of_buffer(cta, ref.base, instance, slot, addresses)

    key = (ref.base, cta, instance, slot, tile, reads, step.alone, *(np.asarray(a).tobytes() for a in index))
    key = (*key, everyone, node.executor) if mask is None else (*key, everyone, node.executor, mask.tobytes())
    return _picker(walk, key, make)


def _chosen(threads: Array | None, warps: tuple[int, ...], half: str, everyone: bool) -> Array | None:
    """Where some warps, or a part of them, make an access, None for everywhere."""
    if threads is None or everyone:
        return None
    mine = np.isin(threads // WARP, warps)
    if half == "L":
        mine &= threads % WARP == 0
    elif half == "R":
        mine &= threads % WARP != 0
    elif half.isdigit():
        mine &= threads % WARP == int(half)
    return mine


def _picker(walk: Walk, key: tuple[Any, ...], make: Any) -> Pick:
    """Regions by executor; all that may be asked for are made now, since the atoms are cut when all are known."""
    regions = walk.launch.regions
    wanted = walk.picks
    table: dict[tuple[tuple[int, ...], str], int] = {}
    for warps, half in wanted:
        number = regions.number((key, warps, half), lambda w=warps, h=half: make(w, h))
        if regions.granules[number].size:
            table[warps, half] = number
    return lambda warps, half: table.get((warps, half))
