"""Block moves: TMA loads, stores, reductions and prefetches, cut into the copies that the hardware makes.

A swizzled row wider than the swizzle is stored as panels, and a box has at most 256 elements an axis (PTX ISA, "Tensor
dimension, size and format"; CUDA driver API, cuTensorMapEncodeTiled), so one written move may become several copies.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cake.diagnostics import Label, Span
from cake.expand import clusters
from cake.expand import expressions as ex
from cake.expand.context import RoleContext
from cake.expand.emission import emit_op
from cake.expand.functions import Context, arguments, function
from cake.expand.moves import check_points, hint, reference, role_of
from cake.expand.values import Reference
from cake.facts import show
from cake.ir import expanded as x
from cake.ir import surface as s
from cake.ir.dtypes import DTYPES
from cake.ir.expr import Apply, Const, Expr, Sym, integer, walk
from cake.ir.ops import TMA_TARGETS

BOX_LIMIT = 256
REDUCIBLE = {
    "add": ("f32", "f16", "bf16", "i32", "i64"),
    "min": ("f16", "bf16", "i32", "i64"),
    "max": ("f16", "bf16", "i32", "i64"),
}
"""Types that the bulk reductions combine (PTX ISA 9.7.9.25, cp.reduce.async.bulk: f32 has no min and max)."""


@dataclass(frozen=True)
class Copy:
    """One hardware copy: the shared block, the global box, and its bytes."""

    shared: x.Ref
    tensor: x.Ref
    box: tuple[int, ...]
    bytes: int


def _shift(start: Expr, by: int) -> Expr:
    if by == 0:
        return start
    if isinstance(start, Const):
        return integer(int(start.value) + by)
    return Apply(op="+", args=(start, integer(by)), dtype="i32")


def copies(ctx: RoleContext, shared: Reference, tensor: Reference, span: Span) -> Iterator[Copy]:
    """Cut a move between ``shared`` and ``tensor`` into hardware copies; a flat buffer takes its box in one."""
    if _flat(shared, tensor):
        box, whole = _box(tensor, list(tensor.shape)), _part(tensor, [0] * len(tensor.shape), list(tensor.shape))
        if max(box) > BOX_LIMIT:
            ctx.refuse("W707", f"a box has at most 256 elements along an axis, and this one {max(box)}", span)
        yield Copy(
            shared=_part(shared, [0], list(shared.shape)),
            tensor=whole,
            box=box,
            bytes=DTYPES[tensor.storage.dtype].bytes * _product(list(box)),
        )
        return
    info = ctx.kernel.buffers[shared.storage.name]
    size = DTYPES[info.dtype].bytes
    rows = [sub for sub in shared.subs if isinstance(sub, x.Range)]
    inner = rows[-1].size
    panel = info.swizzle // size if info.swizzle else inner
    if info.swizzle and inner > panel and inner % panel:
        ctx.refuse("W708", f"{inner} columns are not whole panels of {panel}", span)
    width = min(panel, inner, BOX_LIMIT)
    height = min(rows[-2].size, BOX_LIMIT) if len(rows) > 1 else 1
    if inner % width or (len(rows) > 1 and rows[-2].size % height):
        ctx.refuse("W707", f"a box of {[r.size for r in rows]} elements cannot be cut into boxes of at most 256", span)
    if inner > width and not info.swizzle and any(r.size > 1 for r in rows[:-1]):
        ctx.refuse(
            "W707", f"a row of {inner} elements is more than a box holds", span, help="swizzle the buffer, or copy less"
        )
    if any(r.size > BOX_LIMIT for r in rows[:-2]):
        ctx.refuse("W707", "a box has at most 256 elements along an axis", span)
    for at_row in range(0, rows[-2].size if len(rows) > 1 else 1, height):
        for at_col in range(0, inner, width):
            offsets = [0] * (len(rows) - 2) + ([at_row, at_col] if len(rows) > 1 else [at_col])
            sizes = [r.size for r in rows[:-2]] + ([height, width] if len(rows) > 1 else [width])
            yield Copy(
                shared=_part(shared, offsets, sizes),
                tensor=_part(tensor, offsets, sizes),
                box=_box(tensor, sizes),
                bytes=size * _product(sizes),
            )


def _flat(shared: Reference, tensor: Reference) -> bool:
    """Whether a line of a buffer holds a box of several axes, row after row: boxes without a swizzle are dense (PTX ISA 5.5)."""
    return len(shared.shape) == 1 < len(_squeeze(tensor.shape)) and isinstance(shared.subs[-1], x.Range)


def _product(sizes: list[int]) -> int:
    total = 1
    for n in sizes:
        total *= n
    return total


def _part(ref: Reference, offsets: list[int], sizes: list[int]) -> x.Ref:
    subs: list[x.Sub] = []
    kept = iter(zip(offsets, sizes, strict=True))
    for sub in ref.subs:
        if isinstance(sub, x.Range):
            by, size = next(kept)
            subs.append(x.Range(start=_shift(sub.start, by), size=size))
        else:
            subs.append(sub)
    return x.Ref(base=ref.storage.name, slot=ref.slot, subs=tuple(subs))


def _box(tensor: Reference, sizes: list[int]) -> tuple[int, ...]:
    kept = iter(sizes)
    return tuple(next(kept) if isinstance(sub, x.Range) else 1 for sub in tensor.subs)


def tensor_map(ctx: RoleContext, tensor: Reference, box: tuple[int, ...], swizzle: int, span: Span) -> str:
    """The descriptor for boxes of this shape; checks the rules of cuTensorMapEncodeTiled (W707)."""
    kernel = ctx.kernel
    key = (tensor.storage.name, box, swizzle)
    if key in kernel.maps:
        return kernel.maps[key].name
    size = DTYPES[tensor.storage.dtype].bytes
    if DTYPES[tensor.storage.dtype].tensor_map is None:
        ctx.refuse("W707", f"TMA does not move {tensor.storage.dtype}", span)
    if len(box) > 5:
        ctx.refuse("W707", f"TMA moves tensors of at most 5 axes; `{tensor.storage.name}` has {len(box)}", span)
    if box[-1] * size % 16:
        ctx.refuse(
            "W707",
            f"the innermost extent of a box is a multiple of 16 bytes; {box[-1]} {tensor.storage.dtype} are {box[-1] * size}",
            span,
        )
    stride: Expr = integer(size)
    for axis in range(len(box) - 1, 0, -1):
        stride = Apply(op="*", args=(stride, tensor.storage.extents[axis]), dtype="i32")
        if not ctx.facts.divides(16, stride):
            ctx.refuse(
                "W707",
                f"axis {axis - 1} of `{tensor.storage.name}` strides {show(stride)} bytes, which must be a multiple of 16 for TMA",
                span,
                help=f"demand it: `where {show(tensor.storage.extents[axis])} % {16 // size} == 0`",
            )
    taken = {m.name for m in kernel.maps.values()}
    base = f"{tensor.storage.name}.map"
    name = base if base not in taken else next(f"{base}{i}" for i in range(2, 99) if f"{base}{i}" not in taken)
    kernel.maps[key] = x.TensorMap(name=name, tensor=tensor.storage.name, box=box, swizzle=swizzle)  # type: ignore[arg-type]
    return name


def check_pair(ctx: RoleContext, shared: Reference, tensor: Reference, span: Span) -> None:
    """Both sides of a block move: spaces, dtypes, shapes, and the atoms of the swizzle."""
    if ctx.kernel.target.name not in TMA_TARGETS:
        ctx.refuse(
            "W711", f"TMA does not exist on {ctx.kernel.target.name}", span, help="use `cp_async` or element moves"
        )
    if shared.storage.space != "shared" or tensor.storage.space != "global":
        ctx.refuse("T013", "TMA moves between a tensor and shared memory", span)
    if shared.transposed or tensor.transposed:
        ctx.refuse("T013", "block moves keep the order of the axes; put `.T` where the block is read", span)
    if any(isinstance(sub, x.Elem) for sub in (*shared.subs, *tensor.subs)):
        ctx.refuse("T013", "block moves take slices; index tiles are for `load` and `store`", span)
    if shared.storage.dtype != tensor.storage.dtype:
        ctx.refuse("T005", f"a block move keeps the type: {tensor.storage.dtype} and {shared.storage.dtype}", span)
    if not tensor.shape or 0 in tensor.shape:
        ctx.refuse("T013", f"slice every axis of `{tensor.storage.name}` with constant extents", span)
    flat = _flat(shared, tensor) and _product(list(shared.shape)) == _product(list(tensor.shape))
    if not flat and _squeeze(shared.shape) != _squeeze(tensor.shape):
        ctx.refuse(
            "T006",
            f"the block {list(shared.shape)} of `{shared.storage.name}` and the box {list(tensor.shape)} of "
            f"`{tensor.storage.name}` differ",
            span,
        )
    if not flat and len(shared.shape) != len(tensor.shape):
        ctx.refuse(
            "T006",
            "both sides of a block move must keep the same number of axes",
            span,
            help="index with a scalar to drop an axis",
        )
    check_points(ctx, shared, span)
    info = ctx.kernel.buffers[shared.storage.name]
    check_start(ctx, tensor, span)
    if info.pad:
        ctx.refuse("W707", f"TMA writes dense rows; `{info.name}` is padded", span, help="swizzle it instead")
    rows = [sub for sub in shared.subs if isinstance(sub, x.Range)]
    full = [int(n.value) for n in shared.storage.extents if isinstance(n, Const)]
    if len(rows) > 1 and rows[-1].size != full[-1]:
        panel = info.swizzle // DTYPES[info.dtype].bytes if info.swizzle else 0
        if not panel or rows[-1].size % panel or not ctx.facts.divides(panel, rows[-1].start):
            ctx.refuse("W707", "a TMA block covers whole rows, or whole swizzle panels of them", span)
    if info.swizzle and len(rows) > 1 and not ctx.facts.divides(8, rows[-2].start):
        ctx.refuse(
            "W708",
            f"the block starts at row {show(rows[-2].start)}, inside a swizzle atom of 8 rows",
            span,
            labels=(Label(span=info.span, text="swizzled here"),),
        )


def check_start(ctx: RoleContext, tensor: Reference, span: Span) -> None:
    """Along its innermost axis a box starts at a multiple of 16 bytes (W707, axiom A11)."""
    inner, step = tensor.subs[-1], 16 // DTYPES[tensor.storage.dtype].bytes
    if isinstance(inner, x.Range) and not ctx.facts.divides(step, inner.start):
        ctx.refuse(
            "W707",
            f"the box starts at column {show(inner.start)} of `{tensor.storage.name}`, which must be a multiple of {step} (16 bytes): "
            "TMA traps on any other",
            span,
            help=f"demand it: `where {show(inner.start)} % {step} == 0`; or move elements",
        )


def _squeeze(shape: tuple[int, ...]) -> list[int]:
    return [n for n in shape if n != 1]


def note_dims(ctx: RoleContext, shared: Reference, tensor: Reference, span: Span) -> None:
    """Remember which dim each axis of a buffer is cut from."""
    if _flat(shared, tensor):
        return
    for axis, source in zip(shared.axes, tensor.axes, strict=True):
        extent = tensor.storage.extents[source]
        names = {n.name for n in walk(extent) if isinstance(n, Sym)}
        if len(names) == 1:
            ctx.kernel.axis_dims.setdefault((shared.storage.name, axis), (names.pop(), span))


@function("tma.load")
def tma_load(ctx: Context, e: s.Call) -> None:
    """``tma.load(dst, src[, multicast=axis, l2=hint])`` inside a fill."""
    bound = arguments(ctx, e, ("dst", "src"), ("multicast", "l2"))
    ctx = role_of(ctx, e)
    shared, tensor = reference(ctx, bound["dst"], "the destination"), reference(ctx, bound["src"], "the source")
    check_pair(ctx, shared, tensor, e.span)
    if tensor.storage.direction == "out":
        ctx.refuse("O504", f"`{tensor.storage.name}` is an output and is not read", e.span, help="declare it `inout`")
    share = clusters.multicast(ctx, bound["multicast"]) if "multicast" in bound else 1
    if share > 1 and _flat(shared, tensor):
        ctx.refuse("W707", "the CTAs of a cluster load shares of a block's rows, and a flat buffer has none", e.span)
    fill = ctx.fill
    if fill is None or shared.handle is not fill.handle:
        ctx.refuse(
            "T019",
            "`tma.load` completes on the barrier of a fill, and this destination is no field of the stage being filled",
            e.span,
            help="write `with p.fill() as s:` around it and load into a field of `s`",
        )
    from cake.expand.pipelines import note_write

    note_write(ctx, shared, "tma.load", e.span)
    note_dims(ctx, shared, tensor, e.span)
    swizzle = ctx.kernel.buffers[shared.storage.name].swizzle
    attrs = hint(ctx, bound.get("l2"))
    if share > 1:
        shared, tensor = clusters.share(ctx, shared, tensor, share, e.span)
        attrs["multicast"] = (1 << share) - 1
    for i, copy in enumerate(copies(ctx, shared, tensor, e.span)):
        fill.bytes += copy.bytes * share
        emit_op(
            ctx,
            x.Op(
                op="tma.load",
                executor="one",
                operands={"dst": copy.shared, "src": copy.tensor},
                attrs={"map": tensor_map(ctx, tensor, copy.box, swizzle, e.span), **attrs},
                completion=x.ByBarrier(barrier=f"{fill.ring.name}.full", slot=fill.handle.slot, bytes=copy.bytes),
                reason="written" if i == 0 else "panel",
                span=e.span,
            ),
        )


def _drain(ctx: RoleContext, e: s.Call, op: str, extra: tuple[str, ...]) -> None:
    bound = arguments(ctx, e, ("dst", "src", *extra), ("l2",))
    tensor, shared = reference(ctx, bound["dst"], "the destination"), reference(ctx, bound["src"], "the source")
    check_pair(ctx, shared, tensor, e.span)
    if tensor.storage.direction == "in":
        ctx.refuse("T013", f"`{tensor.storage.name}` is an input", e.span, help="declare it `out` or `inout`")
    for sub in tensor.subs:
        # Loads may start before a tensor; for writes the ISA's bulk copies trap there (CUDA C++ Programming Guide,
        # "Using TMA to transfer multi-dimensional arrays"; seen on an H200 as an illegal instruction).
        start = sub.start if isinstance(sub, x.Range) else sub.at if isinstance(sub, x.Point) else None
        if start is None:
            continue
        claim = Apply(op="<=", args=(integer(0), start), dtype="bool")
        if ctx.facts.prove(claim) is not True:
            ctx.refuse(
                "O503",
                f"`{op}` may start at {show(start)}, before `{tensor.storage.name}`: its end is clipped, its start is not",
                e.span,
                facts=ctx.facts.explain(claim),
                help="guard it with `if`, or state what makes the start at least 0 in `where` or `assume`",
            )
    attrs: dict[str, x.Attribute] = dict(hint(ctx, bound.get("l2")))
    if extra:
        function_name = bound["op"].name if isinstance(bound["op"], s.Name) else ""
        if function_name not in ("add", "min", "max"):
            ctx.refuse("T003", "`tma.reduce` combines by add, min or max", bound["op"].span)
        if tensor.storage.dtype not in REDUCIBLE[function_name]:
            ctx.refuse(
                "T005",
                f"`tma.reduce` has no {function_name} of {tensor.storage.dtype}",
                e.span,
                help=f"it takes {', '.join(REDUCIBLE[function_name])}; elements of other types are combined by `atomic`",
            )
        attrs["function"] = function_name
    if shared.handle is not None and shared.handle.role == "fill":
        ctx.refuse("D201", "the stage is still being filled", e.span, help="store it from its consumer")
    if shared.handle is not None and shared.handle.role == "store":
        if ctx.fill is not None:
            ctx.refuse("T019", "a store ring's stage is stored after its `with` block", e.span, help="dedent the store")
        shared.handle.stored += 1
        ctx.unstored.pop(shared.handle.ring, None)
    swizzle = ctx.kernel.buffers[shared.storage.name].swizzle
    for i, copy in enumerate(copies(ctx, shared, tensor, e.span)):
        emit_op(
            ctx,
            x.Op(
                op=op,
                executor="one",
                operands={"dst": copy.tensor, "src": copy.shared},
                attrs={"map": tensor_map(ctx, tensor, copy.box, swizzle, e.span), **attrs},
                completion=x.ByGroup(queue="bulk"),
                reason="written" if i == 0 else "panel",
                span=e.span,
            ),
        )
    ctx.emit(x.Commit(executor="one", queue="bulk", reason=op, span=e.span))
    ctx.bulk = True


@function("tma.store")
def tma_store(ctx: Context, e: s.Call) -> None:
    """``tma.store(dst, src)``: one bulk group."""
    _drain(role_of(ctx, e), e, "tma.store", ())


@function("tma.reduce")
def tma_reduce(ctx: Context, e: s.Call) -> None:
    """``tma.reduce(dst, src, add|min|max)``: one bulk group."""
    _drain(role_of(ctx, e), e, "tma.reduce", ("op",))


@function("tma.store.wait_read", "tma.store.wait")
def store_wait(ctx: Context, e: s.Call) -> None:
    """``tma.store.wait_read([keep=n])``: sources read; ``tma.store.wait([keep=n])``: writes complete."""
    bound = arguments(ctx, e, (), ("keep",))
    ctx = role_of(ctx, e)
    assert isinstance(e.func, s.Attribute)
    keep = ex.constant_int(ctx, bound["keep"], "`keep`", low=0) if "keep" in bound else 0
    ctx.emit(x.GroupWait(executor="one", queue="bulk", keep=keep, read=e.func.name == "wait_read", span=e.span))


@function("tma.prefetch")
def tma_prefetch(ctx: Context, e: s.Call) -> None:
    """``tma.prefetch(src)``: bring a box into L2."""
    bound = arguments(ctx, e, ("src",))
    ctx = role_of(ctx, e)
    tensor = reference(ctx, bound["src"], "the source")
    if tensor.storage.space != "global" or not tensor.shape or 0 in tensor.shape:
        ctx.refuse("T013", "`tma.prefetch` takes a box of a tensor with constant extents", e.span)
    if any(n > BOX_LIMIT for n in tensor.shape):
        ctx.refuse("W707", "a box has at most 256 elements along an axis", e.span)
    check_start(ctx, tensor, e.span)
    box = _box(tensor, list(tensor.shape))
    emit_op(
        ctx,
        x.Op(
            op="tma.prefetch",
            executor="one",
            operands={"src": tensor.ref},
            attrs={"map": tensor_map(ctx, tensor, box, 0, e.span)},
            span=e.span,
        ),
    )


@function("cp_async")
def cp_async(ctx: Context, e: s.Call) -> None:
    """``cp_async(dst, src)``: part of self-rings, which are not built yet."""
    arguments(ctx, e, ("dst", "src"))
    role_of(ctx, e).not_built("`cp_async`, which fills rings whose producer is their consumer,", e.span)
