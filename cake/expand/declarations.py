"""Declarations of a kernel: parameters and dims, conditions, definitions, tiles, roles, pipelines, buffers, turns."""

from __future__ import annotations

import difflib

from cake.diagnostics import Label, Span
from cake.expand import clusters
from cake.expand import expressions as ex
from cake.expand.context import Abort, BufferInfo, KernelContext, RingInfo, RoleInfo, TilesInfo
from cake.expand.resources import tile_bytes
from cake.expand.values import Poison, RingName, Scalar, Storage, TurnName, Value
from cake.ir import expanded as x
from cake.ir import surface as s
from cake.ir.dtypes import DTYPES, DTypeName
from cake.ir.expr import Apply, Const, Expr, Sym, integer, symbols
from cake.ir.printer import format_expr

PREDICATES = {"increasing": 1, "within": 3, "unique": 1, "finite": 1, "zero": 1}


def declare_name(ctx: KernelContext, name: str, value: Value, span: Span) -> None:
    """Enter a kernel-level name, once (T002)."""
    if name in ctx.env and not isinstance(ctx.env[name], Poison):
        ctx.refuse(
            "T002",
            f"`{name}` is declared twice",
            span,
            labels=(Label(span=ctx.spans.get(name), text="first here"),),
            help="use another name",
        )
    ctx.env[name] = value
    ctx.spans[name] = span


def dtype_of(ctx: KernelContext, t: s.TypeRef) -> DTypeName:
    """The dtype named by a type, or T015 with the nearest."""
    if t.dtype in DTYPES:
        return DTYPES[t.dtype].name
    near = difflib.get_close_matches(t.dtype, list(DTYPES), n=1)
    ctx.refuse(
        "T015",
        f"there is no type `{t.dtype}`",
        t.span,
        help=f"did you mean `{near[0]}`?" if near else f"types are {', '.join(DTYPES)}",
    )


def present(ctx: KernelContext, guard: s.Expr | None) -> bool:
    """Whether ``… if CONST`` keeps a declaration."""
    if guard is None:
        return True
    value = ex.constant(ctx, guard, "the condition of a declaration")
    if not isinstance(value, bool):
        ctx.refuse("T005", "the condition of a declaration is a bool", guard.span)
    return value


# ---- parameters -----------------------------------------------------------------------------------------------------


def bind_params(ctx: KernelContext) -> None:
    """Tensors, scalars and dims. A name that stands in a shape and is nothing else is a run-time dim."""
    params: list[s.Param] = []
    for p in ctx.kernel.params:
        try:
            if present(ctx, p.guard):
                params.append(p)
        except Abort:
            continue
    taken = {p.name for p in params}
    _find_dims(ctx, params, taken)
    for p in params:
        try:
            _param(ctx, p)
        except Abort:
            ctx.env[p.name] = Poison()


def _find_dims(ctx: KernelContext, params: list[s.Param], taken: set[str]) -> None:
    names: dict[str, Span] = {}
    for p in params:
        for d in p.type.dims:
            for node in s.walk(d):
                if isinstance(node, s.Name) and node.name not in ctx.env and node.name not in ("cdiv", "min", "max"):
                    names.setdefault(node.name, node.span)
    for name, span in names.items():
        if name in taken:
            continue
        declare_name(ctx, name, Scalar(Sym(name=name)), span)
        ctx.facts.declare(name, 1)
        where = _standing(params, name)
        if where is not None:
            ctx.dims[name] = x.Dim(name=name, tensor=where[0], axis=where[1], scale=where[2], offset=where[3])
        else:
            ctx.error(
                "T013",
                f"no argument determines the dim `{name}`",
                span,
                help=f"let `{name}` stand alone in a shape, pass it as a scalar, or make it a const",
            )


def _standing(params: list[s.Param], name: str) -> tuple[str, int, int, int] | None:
    """Where a dim can be read: an axis that is the dim, else one that is ``a * dim + b`` with numbers a and b."""
    for p in params:
        for axis, d in enumerate(p.type.dims):
            if isinstance(d, s.Name) and d.name == name:
                return p.name, axis, 1, 0
    for p in params:
        for axis, d in enumerate(p.type.dims):
            affine = _affine(d, name)
            if affine is not None and affine[0] > 0:
                return p.name, axis, *affine
    return None


def _affine(e: s.Expr, name: str) -> tuple[int, int] | None:
    match e:
        case s.Name(name=n):
            return (1, 0) if n == name else None
        case s.Number(value=v):
            return (0, v) if isinstance(v, int) else None
        case s.Binary(op="+" | "-", left=left, right=right):
            a, b = _affine(left, name), _affine(right, name)
            if a is None or b is None:
                return None
            sign = 1 if e.op == "+" else -1
            return a[0] + sign * b[0], a[1] + sign * b[1]
        case s.Binary(op="*", left=left, right=right):
            a, b = _affine(left, name), _affine(right, name)
            if a is None or b is None or (a[0] and b[0]):
                return None
            return (a[0] * b[1] + b[0] * a[1], a[1] * b[1])
    return None


def _param(ctx: KernelContext, p: s.Param) -> None:
    dtype = dtype_of(ctx, p.type)
    if not p.type.dims:
        if p.direction != "in" or p.attrs:
            ctx.refuse("T015", f"`{p.name}` is a scalar, which is an input without attributes", p.span)
        declare_name(ctx, p.name, Scalar(Sym(name=p.name, dtype=dtype)), p.span)
        ctx.scalars.append(x.ScalarParam(name=p.name, dtype=dtype, span=p.span))
        return
    strided = False
    for a in p.attrs:
        if a.name != "strided" or a.args:
            ctx.refuse("T015", f"a tensor has no attribute `{a.name}`", a.span, help="`strided` admits any strides")
        strided = True
    if strided:
        ctx.refuse("T099", "`strided` tensors are part of the language but not built yet", p.span)
    shape = tuple(ex.int_expr(ctx, d, "as an extent") for d in p.type.dims)
    for d, e in zip(p.type.dims, shape, strict=True):
        if isinstance(e, Const) and int(e.value) < 1:
            ctx.refuse("T015", f"an extent of `{p.name}` is {e.value}", d.span)
    storage = Storage(p.name, dtype, "global", shape, p.direction, p.span)
    declare_name(ctx, p.name, storage, p.span)
    ctx.storages[p.name] = storage
    ctx.tensors.append(x.Tensor(name=p.name, dtype=dtype, shape=shape, direction=p.direction, span=p.span))


# ---- conditions -----------------------------------------------------------------------------------------------------


def bind_conditions(ctx: KernelContext) -> None:
    """``where``: constants are checked now, the rest become host guards; ``assume``: recorded for the facts and the manifest."""
    for w in ctx.kernel.wheres:
        for c in w.conditions:
            try:
                _where(ctx, c)
            except Abort:
                continue
    for a in ctx.kernel.assumes:
        for p in a.predicates:
            try:
                _assume(ctx, p)
            except Abort:
                continue


def _where(ctx: KernelContext, e: s.Expr) -> None:
    value = ex.scalar(ctx, e, "in `where`")
    if value.dtype != "bool":
        ctx.refuse("T005", "`where` takes conditions", e.span)
    decided = ctx.facts.prove(value.expr)
    if isinstance(value.expr, Const) or (decided is not None and not symbols(value.expr)):
        truth = value.expr.value if isinstance(value.expr, Const) else decided
        if not truth:
            ctx.error(
                "T009",
                f"this point of the search set is excluded by `where {format_expr(e)}`",
                e.span,
                facts=tuple(f"{n} = {v}" for n, v in ctx.constants.items()),
            )
        return
    ctx.guards.append(x.Condition(text=format_expr(e), expr=value.expr, span=e.span))
    ctx.facts.assume(value.expr)


def _assume(ctx: KernelContext, e: s.Expr) -> None:
    text = format_expr(e)
    if isinstance(e, s.Call) and isinstance(e.func, s.Name) and e.func.name in PREDICATES:
        name = e.func.name
        if len(e.args) != PREDICATES[name] or e.kwargs:
            ctx.refuse(
                "T003", f"`{name}` takes {PREDICATES[name]} argument{'s' if PREDICATES[name] > 1 else ''}", e.span
            )
        tensor = e.args[0]
        if not isinstance(tensor, s.Name):
            ctx.refuse("T011", f"`{name}` speaks of a tensor", tensor.span)
        if tensor.name not in ctx.storages:
            if any(p.name == tensor.name for p in ctx.kernel.params):
                return  # the parameter does not exist at this point of the search set
            ctx.refuse("T011", f"`{name}` speaks of a tensor", tensor.span)
        args = tuple(ex.int_expr(ctx, a, "as a bound") for a in e.args[1:])
        ctx.assumes.append(
            x.Condition(text=text, form=name, tensor=tensor.name, args=args, span=e.span)  # type: ignore[arg-type]
        )
        return
    if isinstance(e, s.Binary) and e.op == "==" and isinstance(e.left, s.Index) and isinstance(e.left.base, s.Name):
        index = e.left
        base = index.base
        assert isinstance(base, s.Name)
        if base.name in ctx.storages and len(index.subs) == 1 and not isinstance(index.subs[0], s.Slice):
            at = ex.int_expr(ctx, index.subs[0])
            value = ex.int_expr(ctx, e.right)
            ctx.assumes.append(x.Condition(text=text, form="element", tensor=base.name, args=(at, value), span=e.span))
            return
    known = ", ".join(PREDICATES)
    ctx.refuse(
        "T003",
        "`assume` takes a predicate on a tensor, or an equality of an element",
        e.span,
        help=f"predicates: {known}; conditions on dims and scalars go into `where`",
    )


def bind_definitions(ctx: KernelContext) -> None:
    """Kernel-level definitions: uniform scalars that every role computes alike."""
    for d in ctx.kernel.defines:
        try:
            value = ex.scalar(ctx, d.value, f"in the definition of `{d.name}`")
            symbol = Sym(name=d.name, dtype=value.dtype)
            declare_name(ctx, d.name, Scalar(symbol), d.span)
            ctx.definitions.append((d.name, value.expr, d.span))
            if DTYPES[value.dtype].kind in ("int", "bool"):
                ctx.facts.define(d.name, value.expr)
        except Abort:
            ctx.env.setdefault(d.name, Poison())


# ---- tiles ----------------------------------------------------------------------------------------------------------


def bind_tiles(ctx: KernelContext) -> None:
    """The work list: schedule, axes and extents."""
    t = ctx.kernel.tiles
    if t is None:
        ctx.refuse(
            "T018",
            f"kernel `{ctx.kernel.name}` has no `tiles`",
            ctx.kernel.span,
            help="declare the work: `tiles once:`",
        )
    schedule = t.schedule.name
    drawer: str | None = None
    if schedule == "clc":
        ctx.error(
            "T099", f"`tiles {schedule}` is part of the language but not built yet", t.span, help="use persistent"
        )
        schedule = "persistent"
    elif schedule == "dynamic":
        from cake.expand import dynamic

        drawer, schedule = dynamic.drawer(ctx, t), "persistent"
    elif schedule not in ("once", "persistent") or t.schedule.args:
        ctx.refuse(
            "T022",
            f"there is no schedule `{schedule}`",
            t.schedule.span,
            help="once, persistent, dynamic(role), clc(role)",
        )
    if not t.axes:
        ctx.refuse("T022", "`tiles` needs an axis", t.span, help="`i in extent`")
    extents: dict[str, Expr] = {}
    walked: dict[str, Expr] = {}
    sizes: dict[str, int] = {}
    positions: Expr = integer(1)
    for axis in t.axes:
        if axis.name in extents:
            ctx.refuse("T002", f"axis `{axis.name}` is declared twice", axis.span)
        extents[axis.name] = walked[axis.name] = ex.int_expr(ctx, axis.extent, "as an extent")
        for a in axis.attrs:
            n = _axis_attr(ctx, a)
            if a.name == "cluster" and n > 1:
                walked[axis.name] = clusters.along(ctx, extents[axis.name], n, sizes, a.span)
                sizes[axis.name] = n
        counted = walked[axis.name]
        positions = counted if positions == integer(1) else Apply(op="*", args=(positions, counted), dtype="i32")
    for item in t.items:
        if not isinstance(item, s.Where) and item.name in ctx.env:
            ctx.error("T002", f"`{item.name}` is already declared", item.span, help="use another name")
    clustered, size = next(iter(sizes.items()), (None, 1))
    ctx.tiles = TilesInfo(schedule, t.axes, extents, positions, t, walked, clustered, size, drawer)


def _axis_attr(ctx: KernelContext, a: s.Attr) -> int:
    if a.name not in ("cluster", "grouped") or len(a.args) != 1:
        ctx.refuse("T015", f"an axis has `cluster(c)` and `grouped(g)`, not `{a.name}`", a.span)
    return ex.constant_int(ctx, a.args[0], f"`{a.name}`")


# ---- roles ----------------------------------------------------------------------------------------------------------


def bind_roles(ctx: KernelContext) -> None:
    """Roles in order; a role of four warps starts at a multiple of four, so setmaxnreg and wgmma find whole warpgroups."""
    warp = 0
    for r in ctx.kernel.roles:
        instances = ex.constant_int(ctx, r.instances, "the number of instances") if r.instances is not None else 1
        warps = ex.constant_int(ctx, r.warps, "`warps`")
        registers = ex.constant_int(ctx, r.registers, "`registers`") if r.registers is not None else None
        if r.name in ctx.roles:
            ctx.refuse("T002", f"role `{r.name}` is declared twice", r.span)
        if warps % 4 == 0:
            warp = -(-warp // 4) * 4
        ctx.roles[r.name] = RoleInfo(r.name, warps, instances, registers, warp, r.span)
        warp += warps * instances
    if not ctx.roles:
        ctx.refuse("T018", f"kernel `{ctx.kernel.name}` has no role", ctx.kernel.span, help="`role math: warps 4`")


def bind_pipelines(ctx: KernelContext) -> None:
    """Pipelines: their endpoints, and their fields as buffers named ``pipeline.field``."""
    for p in ctx.kernel.pipelines:
        try:
            _pipeline(ctx, p)
        except Abort:
            ctx.env.setdefault(p.name, Poison())


def _pipeline(ctx: KernelContext, p: s.Pipeline) -> None:
    for name in (*p.producers, *p.consumers):
        if name not in ctx.roles and not (name == "store" and p.consumers == ("store",)):
            near = difflib.get_close_matches(name, [*ctx.roles, "store"], n=1)
            ctx.refuse(
                "T001", f"there is no role `{name}`", p.span, help=f"did you mean `{near[0]}`?" if near else None
            )
    if p.one and (len(p.consumers) != 1 or p.consumers == ("store",)):
        ctx.refuse("T015", "`one` gives each stage to one instance of one role", p.span, help="`-> one role`")
    if set(p.producers) & set(p.consumers):
        ctx.refuse("T099", "rings whose producer is their consumer are part of the language but not built yet", p.span)
    stages = ex.constant_int(ctx, p.stages, "the number of stages")
    across = p.across is not None and clusters.together(ctx, p)
    store = p.consumers == ("store",)
    if store and len(p.producers) > 1:
        ctx.refuse("T015", "a store ring belongs to the instances of one role", p.span)
    instances = ctx.roles[p.producers[0]].instances if store else 1
    ring = RingInfo(p.name, stages, p.producers, p.consumers, {}, one=p.one, across=across, span=p.span)
    for f in p.fields:
        if not present(ctx, f.guard):
            continue
        if f.name in ring.fields:
            ctx.refuse("T002", f"field `{f.name}` is declared twice", f.span)
        name = f"{p.name}.{f.name}"
        buffer(ctx, name, f.type, f.attrs, stages, instances, f.span, ring=not store)
        ring.fields[f.name] = name
    if store and not ring.fields:
        ctx.refuse("T015", "a store ring needs a field", p.span)
    ring.longer = tuple(sorted({ctx.buffers[b].slots for b in ring.fields.values()} - {stages}))
    declare_name(ctx, p.name, RingName(p.name), p.span)
    ctx.rings[p.name] = ring


def buffer(
    ctx: KernelContext,
    name: str,
    kind: s.TypeRef,
    attrs: tuple[s.Attr, ...],
    slots: int,
    instances: int,
    span: Span,
    ring: bool = False,
) -> None:
    """Declare a shared buffer and its storage. ``ring``: it is a field that consumers give back, so it may linger."""
    dtype = dtype_of(ctx, kind)
    shape = tuple(ex.constant_int(ctx, d, "an extent of a buffer") for d in kind.dims)
    if not shape:
        ctx.refuse("T015", f"`{name}` needs a shape", kind.span, help=f"`{dtype}[1]` for a single element")
    info = BufferInfo(name, dtype, shape, slots=slots, instances=instances, span=span)
    for a in attrs:
        match a.name:
            case "swizzle":
                info.swizzle = ex.constant_int(ctx, a.args[0], "the swizzle", low=0) if len(a.args) == 1 else -1
                if info.swizzle not in (0, 32, 64, 128):
                    ctx.refuse("W708", "swizzles are 32, 64 and 128 bytes, and 0 for none", a.span)
            case "pad":
                if len(a.args) != 1:
                    ctx.refuse("T015", "write `pad(n)` with the elements to add to each row", a.span)
                info.pad = ex.constant_int(ctx, a.args[0], "the padding")
            case "alias":
                target = a.args[0].name if len(a.args) == 1 and isinstance(a.args[0], s.Name) else None
                if target not in ctx.buffers:
                    ctx.refuse("T001", "`alias` names a buffer declared before", a.span)
                info.alias = target
            case "linger":
                if not ring:
                    ctx.refuse(
                        "T015", "fields that consumers give back linger, not plain buffers or store rings", a.span
                    )
                if len(a.args) != 1:
                    ctx.refuse("T015", "write `linger(n)` with the number of later releases", a.span)
                info.linger = ex.constant_int(ctx, a.args[0], "`linger`")
                info.slots += info.linger
            case "tmem":
                ctx.refuse("T099", f"`{a.name}` is part of the language but not built yet", a.span)
            case _:
                ctx.refuse(
                    "T015",
                    f"a buffer has no attribute `{a.name}`",
                    a.span,
                    help="swizzle(n), pad(n), alias(other), linger(n)",
                )
    if tile_bytes(info) > ctx.target.shared_bytes:
        ctx.refuse(
            "W701",
            f"`{name}` has {tile_bytes(info):,} bytes and {ctx.target.name} offers {ctx.target.shared_bytes:,} of shared memory",
            span,
            help="smaller tiles",
        )
    _check_swizzle(ctx, info, span)
    ctx.buffers[name] = info
    ctx.storages[name] = Storage(name, dtype, "shared", tuple(integer(n) for n in shape), "inout", span)


def _check_swizzle(ctx: KernelContext, info: BufferInfo, span: Span) -> None:
    if not info.swizzle:
        return
    row = info.shape[-1] * DTYPES[info.dtype].bytes
    if info.pad:
        ctx.refuse("W708", "a buffer is padded or swizzled, not both", span)
    if len(info.shape) < 2 or (row > info.swizzle and row % info.swizzle):
        ctx.refuse(
            "W708",
            f"rows of {row} bytes are neither within nor whole panels of a {info.swizzle}-byte swizzle",
            span,
        )
    if row < info.swizzle:
        ctx.refuse(
            "W708",
            f"rows of {row} bytes are narrower than the {info.swizzle}-byte swizzle",
            span,
            help=f"use swizzle({row})" if row in (32, 64) else None,
        )
    rows = 1
    for n in info.shape[:-1]:
        rows *= n
    if rows % 8:
        ctx.refuse("W708", f"{rows} rows are not whole swizzle atoms of 8", span)


def bind_buffers(ctx: KernelContext) -> None:
    """Plain shared memory."""
    for b in ctx.kernel.smems:
        try:
            if present(ctx, b.guard):
                buffer(ctx, b.name, b.type, b.attrs, 1, 1, b.span)
                declare_name(ctx, b.name, ctx.storages[b.name], b.span)
        except Abort:
            ctx.env.setdefault(b.name, Poison())


def bind_turns(ctx: KernelContext) -> None:
    """Turns belong to roles."""
    for t in ctx.kernel.turns:
        if t.role not in ctx.roles:
            near = difflib.get_close_matches(t.role, list(ctx.roles), n=1)
            hint = f"did you mean `{near[0]}`?" if near else None
            ctx.error("T001", f"there is no role `{t.role}`", t.span, help=hint)
            ctx.env.setdefault(t.name, Poison())
            continue
        try:
            declare_name(ctx, t.name, TurnName(t.name), t.span)
            ctx.turns[t.name] = t.role
        except Abort:
            continue
