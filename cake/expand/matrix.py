"""Matrix operations: wgmma and its waits, mma, ldmatrix, stmatrix."""

from __future__ import annotations

from cake.diagnostics import Label, Span
from cake.expand import expressions as ex
from cake.expand.context import Abort, Flight, Group, RoleContext
from cake.expand.emission import check_reads, check_writes, emit_op, key, keys
from cake.expand.functions import Context, arguments, function
from cake.expand.moves import check_filled, check_points, note_generic, reference, role_of
from cake.expand.values import Reference, Scalar, Storage, Tile, TileVar, Value, describe
from cake.facts import show
from cake.ir import expanded as x
from cake.ir import surface as s
from cake.ir.dtypes import DTYPES
from cake.ir.expr import Expr, Reg, boolean, integer
from cake.ir.layout import Layout, TileType, shape_problem

FRAG = Layout(kind="frag")
SIXTEEN = ("bf16", "f16")
EIGHT = ("e4m3", "e5m2")


def accumulator(ctx: RoleContext, e: s.Expr, op: str, warps: int) -> tuple[Reg, TileType]:
    """The d operand: a declared f32 frag tile of an instance with ``warps`` warps."""
    value = ex.typed(ctx, e)
    if not isinstance(value, TileVar):
        ctx.refuse("T011", f"`{op}` accumulates into a declared register tile, not {describe(value)}", e.span)
    tile = ex.as_tile(ctx, value, e.span)
    if tile.type.layout.kind != "frag" or tile.dtype != "f32":
        ctx.refuse("T007", f"`{op}` accumulates into f32 frag tiles, not {tile.type}", e.span)
    if ctx.role.warps != warps:
        ctx.refuse(
            "W709",
            f"`{op}` needs instances of {warps} warp{'s' if warps > 1 else ''}; role `{ctx.role.name}` has {ctx.role.warps}",
            e.span,
        )
    return value.reg, tile.type


def operand(ctx: RoleContext, e: s.Expr) -> Reference | Tile:
    """A matrix operand in memory or registers."""
    value = ex.typed(ctx, e)
    if isinstance(value, Storage):
        value = ex.whole(value)
    if isinstance(value, Reference):
        if value.storage.space != "shared" or value.domain is not None:
            ctx.refuse("T013", "a matrix operand is a block of shared memory or a register tile", e.span)
        return value
    return ex.as_tile(ctx, value, e.span)


def matrix_shape(ctx: RoleContext, value: Reference | Tile, span: Span) -> tuple[int, int]:
    """Rows and columns of an operand."""
    shape = value.shape if isinstance(value, Reference) else value.type.shape
    if len(shape) != 2:
        ctx.refuse("T006", f"a matrix operand has two axes, not {len(shape)}", span)
    return shape[0], shape[1]


def check_product(
    ctx: RoleContext,
    op: str,
    d: TileType,
    a: tuple[int, int],
    b: tuple[int, int],
    e: s.Call,
) -> None:
    """d [M, N] = a [M, K] @ b [K, N]."""
    if a[1] != b[0]:
        flipped = b[1] == a[1]
        ctx.refuse(
            "T012",
            f"`{op}` contracts {a[1]} columns of a with {b[0]} rows of b",
            e.span,
            facts=(f"a is [{a[0]}, {a[1]}]", f"b is [{b[0]}, {b[1]}]"),
            help="b is [K, N]: a row-major [N, K] tile is written with `.T`" if flipped else None,
        )
    if (a[0], b[1]) != (d.rows, d.cols):
        ctx.refuse(
            "T006",
            f"the product is [{a[0]}, {b[1]}] and the accumulator [{d.rows}, {d.cols}]",
            e.span,
        )


def same_type(ctx: RoleContext, op: str, a: str, b: str, allowed: tuple[str, ...], span: Span) -> None:
    """Both operands have one of the allowed dtypes, and the same."""
    if a != b or a not in allowed:
        ctx.refuse("T005", f"`{op}` multiplies two {' or '.join(allowed)} operands, not {a} and {b}", span)


def note_contraction(ctx: RoleContext, a: Reference | Tile, b: Reference | Tile, span: Span) -> None:
    """Remember which storage axes are contracted, to compare the dims they come from once every fill is known."""
    if isinstance(a, Reference) and isinstance(b, Reference):
        ctx.kernel.contractions.append((span, (a.storage.name, a.axes[1]), (b.storage.name, b.axes[0])))


@function("wgmma")
def wgmma(ctx: Context, e: s.Call) -> None:
    """``wgmma(d, a, b[, use_acc=])``: one committed group."""
    bound = arguments(ctx, e, ("d", "a", "b"), ("use_acc",))
    ctx = role_of(ctx, e)
    reg, d = accumulator(ctx, bound["d"], "wgmma", 4)
    a, b = operand(ctx, bound["a"]), operand(ctx, bound["b"])
    if not isinstance(b, Reference):
        ctx.refuse("T011", "the b operand of `wgmma` is in shared memory", bound["b"].span)
    a_dtype = a.storage.dtype if isinstance(a, Reference) else a.dtype
    same_type(ctx, "wgmma", a_dtype, b.storage.dtype, SIXTEEN + EIGHT, e.span)
    a_shape, b_shape = matrix_shape(ctx, a, bound["a"].span), matrix_shape(ctx, b, bound["b"].span)
    check_product(ctx, "wgmma", d, a_shape, b_shape, e)
    k_step = 16 if a_dtype in SIXTEEN else 32
    if a_shape[1] % k_step:
        ctx.refuse("W709", f"wgmma contracts {k_step} {a_dtype} values at a time; {a_shape[1]} is no multiple", e.span)
    if not 8 <= d.cols <= 256 or d.cols % 8:
        ctx.refuse("W709", f"wgmma has 8 to 256 columns in steps of 8, not {d.cols}", e.span)
    for value, span in ((a, bound["a"].span), (b, bound["b"].span)):
        if isinstance(value, Reference):
            _shared_operand(ctx, value, a_dtype, value is b, span)
    if isinstance(a, Tile) and not isinstance(a.expr, Reg):
        a = ex.materialise(ctx, a, bound["a"].span, "a")
    note_contraction(ctx, a, b, e.span)
    if isinstance(a, Reference):
        check_filled(ctx, a, bound["a"].span)
    check_filled(ctx, b, bound["b"].span)
    use: Expr | None = ex.condition(ctx, bound["use_acc"]) if "use_acc" in bound else None
    if use == boolean(True):
        use = None
    reads = frozenset(keys(a.expr)) if isinstance(a, Tile) else frozenset()
    check_reads(ctx, set(reads), e.span)
    name = key(reg)
    accumulates = use is None or use != boolean(False)
    if accumulates and name not in ctx.state.assigned:
        if name.split("[")[0] in ctx.doubtful:
            raise Abort
        ctx.refuse(
            "T010",
            f"`{name}` accumulates before it has a value",
            e.span,
            help="write `use_acc=` with a condition that is false at first, or give it a value such as `= 0.0`",
        )
    _same_accumulator(ctx, name, reads, e.span)
    operands: dict[str, x.Ref | Expr] = {
        "d": reg,
        "a": a.ref if isinstance(a, Reference) else a.expr,
        "b": b.ref,
    }
    if use is not None:
        operands["use_acc"] = use
    ctx.emit(x.Fence(what="wgmma", reason="wgmma", span=e.span))
    emit_op(
        ctx,
        x.Op(op="wgmma", operands=operands, type=d, completion=x.ByGroup(queue="wgmma"), span=e.span),
    )
    ctx.emit(x.Commit(queue="wgmma", reason="wgmma", span=e.span))
    group = Group(name, reads, e.span)
    ctx.state.flights = frozenset((*f, group) for f in ctx.state.flights)


def _same_accumulator(ctx: RoleContext, name: str, reads: frozenset[str], span: Span) -> None:
    for flight in ctx.state.flights:
        for group in flight:
            if name in group.reads or group.writes in reads:
                ctx.refuse(
                    "D206",
                    f"`{name}` is overwritten while a wgmma in flight reads it as its a operand"
                    if name in group.reads
                    else f"the a operand `{group.writes}` is still being written by a wgmma in flight",
                    span,
                    labels=(Label(span=group.span, text="issued here"),),
                    help="wait for that group first",
                )


def _shared_operand(ctx: RoleContext, ref: Reference, dtype: str, is_b: bool, span: Span) -> None:
    check_points(ctx, ref, span)
    info = ctx.kernel.buffers[ref.storage.name]
    size = DTYPES[dtype].bytes
    if info.swizzle == 0:
        ctx.refuse(
            "W708",
            f"`{info.name}` feeds wgmma and must be swizzled",
            span,
            labels=(Label(span=info.span, text="declared here"),),
            help="declare it `swizzle(128)`",
        )
    row_major_k = ref.transposed if is_b else not ref.transposed
    if dtype in EIGHT and not row_major_k:
        ctx.refuse("W709", "8-bit wgmma operands are K-major: b is the `.T` of a row-major [N, K] tile", span)
    panel = info.swizzle // size
    kept = [sub for sub in ref.subs if isinstance(sub, x.Range)]
    rows, cols = kept[-2], kept[-1]
    if not ctx.facts.divides(8, rows.start):
        ctx.refuse(
            "W708",
            f"row {show(rows.start)} is not a multiple of 8, where a swizzle atom starts",
            span,
            facts=ctx.facts.explain(_multiple(rows.start, 8)),
        )
    step = 16 if row_major_k and dtype in SIXTEEN else 32 if row_major_k else panel
    if ctx.facts.constant(cols.start) is None:
        step = panel  # the address of a panel is computed; a place within it is part of the instruction's constants
    if not ctx.facts.divides(step, cols.start):
        ctx.refuse(
            "W708",
            f"column {show(cols.start)} of a wgmma operand must be a multiple of {step}",
            span,
            facts=ctx.facts.explain(_multiple(cols.start, step)),
        )
    if not row_major_k and cols.size % panel and cols.size > panel:
        ctx.refuse("W708", f"{cols.size} columns are not whole panels of {panel}", span)


def _multiple(e: Expr, n: int) -> Expr:
    from cake.ir.expr import Apply

    return Apply(op="==", args=(Apply(op="%", args=(e, integer(n)), dtype="i32"), integer(0)), dtype="bool")


@function("wgmma.wait")
def wgmma_wait(ctx: Context, e: s.Call) -> None:
    """``wgmma.wait(tile)`` or ``wgmma.wait(keep=n)``."""
    bound = arguments(ctx, e, (), ("tile", "keep"))
    ctx = role_of(ctx, e)
    if len(bound) != 1:
        ctx.refuse("T003", "`wgmma.wait` takes a tile, or `keep=n`", e.span)
    if "keep" in bound:
        keep = ex.constant_int(ctx, bound["keep"], "`keep`", low=0)
    else:
        value = ex.typed(ctx, bound["tile"])
        if not isinstance(value, TileVar):
            ctx.refuse("T011", f"`wgmma.wait` takes the accumulator to wait for, not {describe(value)}", e.span)
        keep = _newest(ctx, key(value.reg), e.span)
    complete(ctx, keep, e.span)


def _newest(ctx: RoleContext, name: str, span: Span) -> int:
    """Groups newer than the newest one that writes ``name``; the least over the possible queues is safe for all."""
    found = []
    for flight in ctx.state.flights:
        for newer, group in enumerate(reversed(flight)):
            if group.writes == name:
                found.append(newer)
                break
    if not found:
        if name.split("[")[0] in ctx.doubtful or "wgmma" in ctx.broken:
            raise Abort
        ctx.refuse("T024", f"no wgmma in flight writes `{name}`", span, help="remove the wait, or name another tile")
    return min(found)


def complete(ctx: RoleContext, keep: int, span: Span) -> None:
    """Emit the wait and take the finished groups off the queues."""
    done: set[str] = set()
    left: set[str] = set()
    flights: set[Flight] = set()
    for flight in ctx.state.flights:
        cut = max(0, len(flight) - keep)
        done |= {g.writes for g in flight[:cut]}
        left |= {g.writes for g in flight[cut:]}
        flights.add(flight[cut:])
    ctx.emit(x.GroupWait(queue="wgmma", keep=keep, ready=tuple(sorted(done - left)), span=span))
    ctx.state.flights = frozenset(flights)
    ctx.leaving = span if left else None


# ---- fragments ------------------------------------------------------------------------------------------------------


def fragment(ctx: RoleContext, ref: Reference, transposed: bool, span: Span, hint: str, reason: str) -> Tile:
    """Load a block of shared memory as a frag tile; ``transposed``: the tile of the block's transpose."""
    dtype = ref.storage.dtype
    if ref.storage.space != "shared" or ref.domain is not None:
        ctx.refuse("T013", "`ldmatrix` reads a block of shared memory", span)
    if dtype not in SIXTEEN:
        ctx.refuse("T005", f"`ldmatrix` loads 16-bit floats, not {dtype}", span)
    rows, cols = matrix_shape(ctx, ref, span)
    if transposed:
        ref, rows, cols = ref.transpose(), cols, rows
    kind = TileType(dtype=dtype, shape=(rows, cols), layout=FRAG)
    problem = shape_problem(kind, ctx.role.warps)
    if hint == "b" and rows % 8 == 0 and cols % 16 == 0:
        problem = None
    if problem:
        ctx.refuse("T015", f"the fragment [{rows}, {cols}] cannot exist: {problem}", span)
    _aligned_rows(ctx, ref, span)
    check_points(ctx, ref, span)
    check_filled(ctx, ref, span)
    note_generic(ctx, ref)
    name = ctx.fresh(hint)
    ctx.tiles[name] = kind
    reg = Reg(name=name, dtype=dtype)
    emit_op(ctx, x.Op(op="ldmatrix", operands={"dst": reg, "src": ref.ref}, type=kind, reason=reason, span=span))
    return Tile(reg, kind)


def _aligned_rows(ctx: RoleContext, ref: Reference, span: Span) -> None:
    kept = [sub for sub in ref.subs if isinstance(sub, x.Range)]
    for sub in kept:
        if not ctx.facts.divides(8, sub.start):
            ctx.refuse("W708", f"the block starts at {show(sub.start)}, not at a multiple of 8", span)


@function("ldmatrix")
def ldmatrix(ctx: Context, e: s.Call) -> Value:
    """``ldmatrix(ref)``: frag of the block; ``ldmatrix(ref.T)``: frag of its transpose."""
    bound = arguments(ctx, e, ("ref",))
    ctx = role_of(ctx, e)
    ref = reference(ctx, bound["ref"], "the source of `ldmatrix`")
    return fragment(ctx, ref, False, e.span, "frag", "written")


@function("stmatrix")
def stmatrix(ctx: Context, e: s.Call) -> None:
    """``stmatrix(ref, tile)``; ``stmatrix(ref.T, tile)`` stores the transpose."""
    bound = arguments(ctx, e, ("ref", "tile"))
    ctx = role_of(ctx, e)
    ref = reference(ctx, bound["ref"], "the destination of `stmatrix`")
    if ref.storage.space != "shared" or ref.domain is not None:
        ctx.refuse("T013", "`stmatrix` writes a block of shared memory", e.span)
    value = ex.typed(ctx, bound["tile"])
    if isinstance(value, Scalar):
        ctx.refuse("T011", "`stmatrix` stores a register tile", e.span)
    tile = ex.as_tile(ctx, value, e.span)
    if tile.dtype not in SIXTEEN or tile.dtype != ref.storage.dtype:
        ctx.refuse(
            "T005",
            f"`stmatrix` stores 16-bit floats of the buffer's type {ref.storage.dtype}, not {tile.dtype}",
            e.span,
            help=f"cast: `{ref.storage.dtype}(…)`",
        )
    if tile.type.layout.kind != "frag":
        ctx.refuse("T007", f"`stmatrix` stores frag tiles, not {tile.type.layout}", e.span)
    if tuple(ref.shape[-2:]) != tile.type.shape or len(ref.shape) != 2:
        ctx.refuse("T006", f"a tile {list(tile.type.shape)} into a block {list(ref.shape)}", e.span)
    _aligned_rows(ctx, ref, e.span)
    check_points(ctx, ref, e.span)
    note_generic(ctx, ref)
    if ctx.fill is not None:
        from cake.expand.pipelines import note_write

        note_write(ctx, ref, "stmatrix", e.span)
    emit_op(
        ctx,
        x.Op(op="stmatrix", operands={"dst": ref.ref, "value": tile.expr}, type=tile.type, span=e.span),
    )


@function("mma")
def mma(ctx: Context, e: s.Call) -> None:
    """``mma(d, a, b)``: d += a @ b on one warp; operands in shared memory go through ldmatrix."""
    bound = arguments(ctx, e, ("d", "a", "b"))
    ctx = role_of(ctx, e)
    reg, d = accumulator(ctx, bound["d"], "mma", 1)
    a, b = operand(ctx, bound["a"]), operand(ctx, bound["b"])
    if not isinstance(b, Reference):
        ctx.not_built("the transpose of a register tile as the b operand of `mma`", bound["b"].span)
    a_dtype = a.storage.dtype if isinstance(a, Reference) else a.dtype
    same_type(ctx, "mma", a_dtype, b.storage.dtype, SIXTEEN, e.span)
    a_shape, b_shape = matrix_shape(ctx, a, bound["a"].span), matrix_shape(ctx, b, bound["b"].span)
    check_product(ctx, "mma", d, a_shape, b_shape, e)
    if a_shape[1] % 16:
        ctx.refuse("W709", f"mma contracts 16 values at a time; {a_shape[1]} is no multiple", e.span)
    note_contraction(ctx, a, b, e.span)
    if isinstance(a, Reference):
        a = fragment(ctx, a, False, e.span, "a", "mma")
    elif not isinstance(a.expr, Reg):
        a = ex.materialise(ctx, a, bound["a"].span, "a")
    right = fragment(ctx, b, True, e.span, "b", "mma")
    check_writes(ctx, {key(reg)}, e.span)
    emit_op(ctx, x.Op(op="mma", operands={"d": reg, "a": a.expr, "b": right.expr}, type=d, span=e.span))
