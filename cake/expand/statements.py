"""The walk through a role's body, statement by statement. Loops are in ``loops``."""

from __future__ import annotations

import math

from cake.diagnostics import Label, Span
from cake.expand import expressions as ex
from cake.expand import trackers
from cake.expand.context import Abort, RoleContext, State
from cake.expand.emission import emit_op
from cake.expand.functions import invoke
from cake.expand.values import (
    Handle,
    Method,
    Poison,
    Reference,
    Scalar,
    Tile,
    TileVar,
    Tracker,
    TrackerMethod,
    TurnName,
    Unassigned,
    Value,
    describe,
)
from cake.ir import expanded as x
from cake.ir import surface as s
from cake.ir.dtypes import DTYPES
from cake.ir.expr import Apply, Const, Expr, Reg, Sym, integer, symbols
from cake.ir.layout import Layout, TileType, register_map, shape_problem


def run_block(ctx: RoleContext, body: tuple[s.Stmt, ...]) -> None:
    """Expand statements in order; a refused one is skipped and its targets poisoned, so that others are still checked."""
    for stmt in body:
        try:
            run_statement(ctx, stmt)
        except Abort:
            _suspect(ctx, stmt)
        ctx.hint = None


def _suspect(ctx: RoleContext, stmt: s.Stmt) -> None:
    """What a refused statement would have done is no longer known, and what follows from it is not reported: the names it
    assigns, the tiles its operations write, the stages it waits for or releases, the groups it waits for, its part of a fill."""
    if ctx.fill is not None:
        ctx.fill.symbolic = True
    for node in s.walk(stmt):
        match node:
            case s.Assign(targets=names):
                ctx.env.update(dict.fromkeys(names, Poison()))
            case s.Declare(name=name) | s.For(var=name):
                ctx.env[name] = Poison()
            case s.Call(func=s.Attribute(base=s.Name(name=base), name=method)) if method in ("wait", "release"):
                ctx.broken.add(base)
                if base == "wgmma":
                    ctx.state.flights = frozenset({()})
            case s.Call(args=(first, *_)):
                while isinstance(first, s.Index):
                    first = first.base
                if isinstance(first, s.Name):
                    ctx.doubtful.add(first.name)


def run_statement(ctx: RoleContext, stmt: s.Stmt) -> None:
    """Expand one statement."""
    from cake.expand.loops import run_for

    match stmt:
        case s.Declare():
            declare(ctx, stmt)
        case s.Assign():
            assign(ctx, stmt)
        case s.ExprStmt():
            if not isinstance(stmt.expr, s.Call):
                ctx.refuse("T011", "an expression alone has no effect", stmt.span, help="assign it to a name")
            value = invoke(ctx, stmt.expr)
            if value is not None and not isinstance(value, Handle):
                ctx.refuse("T011", "the result of this operation is not used", stmt.span, help="assign it to a name")
        case s.Pass():
            pass
        case s.For():
            run_for(ctx, stmt)
        case s.With():
            run_with(ctx, stmt)
        case s.If():
            run_if(ctx, stmt.branches, stmt.orelse, stmt.span)


# ---- variables ------------------------------------------------------------------------------------------------------


def layout_of(ctx: RoleContext, attrs: tuple[s.Attr, ...], span: Span) -> Layout:
    """The layout among a declaration's attributes."""
    found: Layout | None = None
    for a in attrs:
        if a.name not in ("frag", "rowwise", "spread"):
            ctx.refuse(
                "T015", f"a register tile has a layout, not `{a.name}`", a.span, help="frag, rowwise or spread(v)"
            )
        if found is not None:
            ctx.refuse("T015", "a register tile has one layout", a.span)
        if a.name == "spread":
            if len(a.args) != 1:
                ctx.refuse("T015", "write `spread(v)` with the elements of a vector", a.span)
            found = Layout(kind="spread", vector=ex.constant_int(ctx, a.args[0], "the vector of spread"))
        else:
            if a.args:
                ctx.refuse("T015", f"`{a.name}` takes no arguments", a.span)
            found = Layout(kind=a.name)  # type: ignore[arg-type]
    if found is None:
        ctx.refuse("T015", "a register tile needs a layout", span, help="append frag, rowwise or spread(v)")
    return found


def too_large(ctx: RoleContext, kind: TileType) -> str | None:
    """Why a tile cannot be held in registers, in a few words; None if one thread has room for its part."""
    words = math.prod(kind.lead) * register_map(kind, ctx.threads).count * DTYPES[kind.dtype].bits / 32
    most = ctx.kernel.target.registers_per_thread
    return None if words <= most else f"it takes {words:,.0f} registers a thread, which has {most}"


def declare(ctx: RoleContext, stmt: s.Declare) -> None:
    """``name: type layout [= value]``."""
    if stmt.type.dtype in trackers.KINDS:
        trackers.declare(ctx, stmt)
        return
    if stmt.type.dtype not in DTYPES:
        import difflib

        near = difflib.get_close_matches(stmt.type.dtype, list(DTYPES), n=1)
        ctx.refuse(
            "T015",
            f"there is no type `{stmt.type.dtype}`",
            stmt.type.span,
            help=f"did you mean `{near[0]}`?" if near else ", ".join(DTYPES),
        )
    dims = tuple(ex.constant_int(ctx, d, "an extent of a register tile") for d in stmt.type.dims)
    kind = TileType(dtype=stmt.type.dtype, shape=dims, layout=layout_of(ctx, stmt.attrs, stmt.span))  # type: ignore[arg-type]
    problem = shape_problem(kind, ctx.role.warps) or too_large(ctx, kind)
    if problem:
        ctx.refuse("T015", f"the tile {kind} cannot exist: {problem}", stmt.span)
    bound = ctx.env.get(stmt.name)
    if isinstance(bound, TileVar) and bound.type != kind:
        ctx.refuse("T020", f"`{stmt.name}` is already {describe(bound)}", stmt.span, help="use another name")
    if stmt.name in ctx.tiles and ctx.tiles[stmt.name] != kind:
        ctx.refuse(
            "T020", f"`{stmt.name}` is already a tile {ctx.tiles[stmt.name]}", stmt.span, help="use another name"
        )
    check_name(ctx, stmt.name, stmt.span)
    ctx.tiles[stmt.name] = kind
    ctx.env[stmt.name] = TileVar(stmt.name, kind)
    if stmt.value is not None:
        write_tile(ctx, ctx.env[stmt.name], ex.typed(ctx, stmt.value), stmt.value.span, stmt.span)  # type: ignore[arg-type]


def _same_variable(name: str, a: Value, b: Value) -> bool:
    """Two values of a name live in one variable of the program, which then has the right one on either path."""
    if isinstance(a, Handle) and isinstance(b, Handle):
        return a.ring == b.ring and a.slot == b.slot
    if isinstance(a, Scalar) and isinstance(b, Scalar):
        return a.dtype == b.dtype and a.expr == b.expr == Sym(name=name, dtype=a.expr.dtype)
    return False


def check_name(ctx: RoleContext, name: str, span: Span) -> None:
    """A local name does not hide what the kernel declares, nor the variable of a loop around it (T002)."""
    if name in ctx.loop_variables or name == ctx.var:
        what = "the number of the instance" if name == ctx.var else "the variable of a loop around this"
        ctx.refuse("T002", f"`{name}` is {what}", span, help="use another name")
    if name in ctx.kernel.env and not isinstance(ctx.kernel.env[name], Poison):
        ctx.refuse(
            "T002",
            f"`{name}` is already {describe(ctx.kernel.env[name])}",
            span,
            labels=(Label(span=ctx.kernel.spans[name], text="declared here"),) if name in ctx.kernel.spans else (),
            help="use another name",
        )


def assign(ctx: RoleContext, stmt: s.Assign) -> None:
    """``name = value`` and ``a, b = argmax(…)``."""
    if len(stmt.targets) > 1:
        _assign_pair(ctx, stmt)
        return
    name = stmt.targets[0]
    old = ctx.env.get(name)
    check_name(ctx, name, stmt.span)
    if isinstance(stmt.value, s.Call) and not isinstance(old, TileVar | Handle):
        callee = stmt.value.func
        method_call = isinstance(callee, s.Attribute) and callee.name == "wait"
        if method_call or dotted_quietly(ctx, callee) == "load":
            ctx.hint = name
    elif isinstance(old, Handle) and isinstance(stmt.value, s.Call):
        ctx.hint = name
    value = ex.typed(ctx, stmt.value)
    ctx.hint = None
    bind(ctx, name, old, value, stmt)


def dotted_quietly(ctx: RoleContext, e: s.Expr) -> str | None:
    """The name of the operation a callee denotes, without findings."""
    return e.name if isinstance(e, s.Name) and e.name == "load" else None


def bind(ctx: RoleContext, name: str, old: Value | None, value: Value, stmt: s.Assign) -> None:
    """Give ``name`` a value, emitting what that takes."""
    span = stmt.span
    if isinstance(old, TileVar):
        write_tile(ctx, old, value, stmt.value.span, span)
        return
    match value:
        case Scalar():
            _bind_scalar(ctx, name, old, value, span)
        case Tile() | TileVar():
            tile = ex.as_tile(ctx, value, stmt.value.span)
            if old is not None and not isinstance(old, Tile | Unassigned | Poison):
                ctx.refuse("T020", f"`{name}` is {describe(old)} and cannot become {describe(value)}", span)
            if tile.symbolic:
                ctx.env[name] = tile
                return
            if name in ctx.tiles and ctx.tiles[name] != tile.type:
                ctx.refuse("T020", f"`{name}` is a tile {ctx.tiles[name]} and cannot become {tile.type}", span)
            ctx.tiles[name] = tile.type
            variable = TileVar(name, tile.type)
            ctx.env[name] = variable
            write_tile(ctx, variable, tile, stmt.value.span, span)
        case Handle():
            _bind_handle(ctx, name, old, value, span)
        case Reference():
            ctx.env[name] = value
        case _:
            ctx.refuse("T011", f"{describe(value)} cannot be assigned to a name", stmt.value.span)


def _bind_scalar(ctx: RoleContext, name: str, old: Value | None, value: Scalar, span: Span) -> None:
    if old is not None and not isinstance(old, Scalar | Unassigned | Poison):
        ctx.refuse("T020", f"`{name}` is {describe(old)} and cannot become {describe(value)}", span)
    if isinstance(old, Scalar) and old.dtype != value.dtype:
        ctx.refuse("T020", f"`{name}` is a {old.dtype} scalar and cannot become {value.dtype}", span)
    ex.check_range(ctx, value, value.dtype, span)
    symbol = Sym(name=name, dtype=value.dtype)
    if value.expr == symbol:
        ctx.env[name] = Scalar(symbol)
        return
    drop_dependents(ctx, name)
    ctx.emit(x.Let(name=name, dtype=symbol.dtype, value=value.expr, span=span))
    if isinstance(old, Scalar):
        ctx.facts.forget(name)
    if DTYPES[value.dtype].kind == "int" and name not in symbols(value.expr):
        ctx.facts.define(name, value.expr)
    ctx.env[name] = Scalar(symbol)


def drop_dependents(ctx: RoleContext, name: str) -> None:
    """Symbolic values that mention a symbol lose their meaning when it changes: using one later is an error, not a surprise."""
    for other, value in list(ctx.env.items()):
        if other == name:
            continue
        if (isinstance(value, Tile) and value.symbolic and name in symbols(value.expr)) or (
            isinstance(value, Reference) and _mentions(value, name)
        ):
            ctx.env[other] = Unassigned(other)


def _mentions(ref: Reference, name: str) -> bool:
    for sub in ref.subs:
        e = sub.at if isinstance(sub, x.Point) else sub.index if isinstance(sub, x.Elem) else sub.start
        if name in symbols(e):
            return True
    return False


def _bind_handle(ctx: RoleContext, name: str, old: Value | None, value: Handle, span: Span) -> None:
    if old is not None and not isinstance(old, Handle | Unassigned | Poison):
        ctx.refuse("T020", f"`{name}` is {describe(old)} and cannot become {describe(value)}", span)
    from cake.expand.pipelines import drop_stage, field_cursor, handle_cursor

    cursor = handle_cursor(ctx, name, ctx.kernel.rings[value.ring])
    if value.slot.cursor == cursor:
        ctx.env[name] = value
        return
    if value.slot.cursor is None or value.role != "wait":
        ctx.refuse("T011", "only a held stage can be kept under another name", span)
    ring = ctx.kernel.rings[value.ring]
    ex.check_held(ctx, value, span, max((slots - ring.stages for slots in ring.longer), default=0))
    drop_stage(ctx, cursor)
    for slots in (ring.stages, *ring.longer):
        copy, source = (field_cursor(c, ring, slots) for c in (cursor, value.slot.cursor))
        ctx.cursors[copy] = slots
        ctx.emit(x.Cursor(cursor=copy, form="copy", source=source, reason="handle", span=span))
    ctx.env[name] = Handle(name, value.ring, x.Slot(cursor=cursor), "wait", value.root, span=span)


def write_tile(ctx: RoleContext, target: TileVar, value: Value, value_span: Span, span: Span) -> None:
    """Assign to a declared tile: broadcast, in the tile's type."""
    kind = TileType(dtype=target.type.dtype, shape=target.type.shape[-2:], layout=target.type.layout)
    if isinstance(value, Scalar):
        expr: Expr = ex.adapt(ctx, value, kind.dtype, value_span)
    else:
        tile = ex.as_tile(ctx, value, value_span)
        if tile.dtype != kind.dtype:
            ctx.refuse(
                "T005",
                f"`{target.name}` is {kind.dtype}, the value {tile.dtype}",
                value_span,
                help=f"cast: `{kind.dtype}(…)`",
            )
        ex.join_layout(ctx, kind, tile.type, value_span)
        if any(n not in (1, m) for m, n in zip(kind.shape, tile.type.shape, strict=True)):
            ctx.refuse(
                "T006",
                f"a value of shape {list(tile.type.shape)} does not broadcast to `{target.name}` {list(kind.shape)}",
                value_span,
            )
        if tile.type.shape != kind.shape and not tile.symbolic and not isinstance(tile.expr, Reg):
            tile = ex.materialise(ctx, tile, value_span)
        if _retarget(ctx, target, tile, kind):
            return
        expr = tile.expr
    for lead in _leads(target):
        reg = Reg(name=target.name, dtype=kind.dtype, lead=lead)
        emit_op(ctx, x.Op(op="assign", operands={"dst": reg, "value": expr}, type=kind, span=span))


def _leads(target: TileVar) -> list[tuple[int, ...]]:
    leads: list[tuple[int, ...]] = [target.lead]
    for extent in target.type.lead[len(target.lead) :]:
        leads = [(*lead, i) for lead in leads for i in range(extent)]
    return leads


def _retarget(ctx: RoleContext, target: TileVar, tile: Tile, kind: TileType) -> bool:
    """Let the operation that made a derived tile write the variable itself, which saves a copy."""
    reg = tile.expr
    if not (isinstance(reg, Reg) and "." in reg.name and reg.rows is None and reg.cols is None):
        return False
    if target.type.lead or not ctx.out:
        return False
    last = ctx.out[-1]
    if not (isinstance(last, x.Op) and last.operands.get("dst") == reg and last.op in ("load", "reduce", "ldmatrix")):
        return False
    if tile.type != kind:
        if not (_row_of_shared(ctx, last) and kind.layout.kind == "frag"):
            return False
        last = last.model_copy(update={"type": kind})
    ctx.out.pop()
    ctx.tiles.pop(reg.name, None)
    ctx.state.assigned -= {reg.name}
    named = Reg(name=target.name, dtype=kind.dtype)
    emit_op(ctx, last.model_copy(update={"operands": {**last.operands, "dst": named}}))
    return True


def _row_of_shared(ctx: RoleContext, op: x.Op) -> bool:
    """Whether an operation loads one row from shared memory, which may as well be loaded for all rows of an accumulator. ptxas reads
    it once and moves it to a thread's second row there; of a copy that is made later it makes moves right before the product."""
    if op.op != "load" or op.type is None or op.type.shape[-2] != 1 or "where" in op.operands:
        return False
    ref = op.ref("src")
    return ref.base in ctx.kernel.buffers and ref.peer is None


def _assign_pair(ctx: RoleContext, stmt: s.Assign) -> None:
    from cake.expand.reductions import arg_pair

    value = stmt.value
    name = value.func.name if isinstance(value, s.Call) and isinstance(value.func, s.Name) else None
    tracker: Tracker | None = None
    if isinstance(value, s.Call) and isinstance(value.func, s.Attribute) and value.func.name == "take":
        callee = ex.typed(ctx, value.func)
        if not isinstance(callee, TrackerMethod):
            ctx.refuse("T014", "only a tracker has `take`", value.span)
        tracker = callee.tracker
    known = tracker is not None or name in ("argmax", "argmin")
    if not isinstance(value, s.Call) or not known or len(stmt.targets) != 2:
        ctx.refuse("T003", "two targets take the results of `argmax`, `argmin` or a tracker's `take`", stmt.span)
    results = arg_pair(ctx, value) if tracker is None else trackers.take(ctx, tracker, value)
    for target, tile in zip(stmt.targets, results, strict=True):
        check_name(ctx, target, stmt.span)
        old = ctx.env.get(target)
        if isinstance(old, TileVar):
            write_tile(ctx, old, tile, stmt.value.span, stmt.span)
        else:
            ctx.tiles[target] = tile.type
            ctx.env[target] = TileVar(target, tile.type)
            write_tile(ctx, TileVar(target, tile.type), tile, stmt.value.span, stmt.span)


# ---- with -----------------------------------------------------------------------------------------------------------


def run_with(ctx: RoleContext, stmt: s.With) -> None:
    """A fill, or a turn."""
    from cake.expand.pipelines import fill

    if isinstance(stmt.expr, s.Call) and isinstance(stmt.expr.func, s.Attribute) and stmt.expr.func.name == "fill":
        callee = ex.typed(ctx, stmt.expr.func)
        if isinstance(callee, Method):
            fill(ctx, ctx.kernel.rings[callee.ring], stmt, stmt.expr)
            return
    value = ex.typed(ctx, stmt.expr)
    if not isinstance(value, TurnName):
        ctx.refuse("T011", f"`with` takes a fill or a turn, not {describe(value)}", stmt.expr.span)
    if ctx.kernel.turns[value.name] != ctx.role.name:
        ctx.refuse("T024", f"turn `{value.name}` belongs to role `{ctx.kernel.turns[value.name]}`", stmt.expr.span)
    if stmt.name:
        ctx.refuse("T011", "a turn has no value to name", stmt.span)
    n = ctx.role.instances
    if n == 1:
        run_block(ctx, stmt.body)
        return
    me = Sym(name=instance_symbol(ctx))
    barrier = ctx.kernel.named_barrier(value.name, 2 * ctx.threads, n, False, stmt.span)
    ctx.emit(x.Named(barrier=barrier, index=me, reason="enter the turn", span=stmt.span))
    run_block(ctx, stmt.body)
    follower = Apply(op="%", args=(Apply(op="+", args=(me, integer(1)), dtype="i32"), integer(n)), dtype="i32")
    ctx.emit(x.Named(barrier=barrier, index=follower, form="arrive", reason="pass the turn", span=stmt.span))


def instance_symbol(ctx: RoleContext) -> str:
    """The symbol of the instance index, whether the author named it or not."""
    return ctx.var or "%instance"


# ---- if -------------------------------------------------------------------------------------------------------------


def run_if(ctx: RoleContext, branches: tuple[s.Branch, ...], orelse: tuple[s.Stmt, ...], span: Span) -> None:
    """``if … elif … else``: decided conditions are resolved, the others become run-time branches."""
    if not branches:
        run_block(ctx, orelse)
        return
    branch = branches[0]
    cond = ex.condition(ctx, branch.cond)
    if isinstance(cond, Const):
        if cond.value:
            run_block(ctx, branch.body)
        else:
            run_if(ctx, branches[1:], orelse, span)
        return
    before_env, before = dict(ctx.env), ctx.state.copy()
    queues = {name: list(q) for name, q in ctx.queues.items()}
    unstored = dict(ctx.unstored)
    with ctx.scope(), ctx.under("condition"), ctx.block() as then:
        ctx.facts.assume(cond)
        run_block(ctx, branch.body)
    env_a, state_a, unstored_a = ctx.env, ctx.state, ctx.unstored
    ctx.env, ctx.state, ctx.queues, ctx.unstored = dict(before_env), before.copy(), queues, unstored
    with ctx.scope(), ctx.under("condition"), ctx.block() as other:
        ctx.facts.assume(Apply(op="not", args=(cond,), dtype="bool"))
        run_if(ctx, branches[1:], orelse, span)
    ctx.unstored.update(unstored_a)
    _rule_s(ctx, before, state_a, [*then, *other], branch.cond)
    _join(ctx, env_a, state_a, branch, span)
    for name in scalars_set([*then, *other]):
        if name in before_env:
            ctx.facts.forget(name)
    ctx.emit(x.If(cond=cond, then=tuple(then), orelse=tuple(other), span=branch.cond.span))


def scalars_set(nodes: list[x.Stmt]) -> set[str]:
    """Scalar variables that some statement assigns."""
    found: set[str] = set()
    for node in nodes:
        match node:
            case x.Let():
                found.add(node.name)
            case x.Op(op="load_scalar"):
                found.add(node.sym("dst").name)
            case x.For():
                found.add(node.var)
                found |= scalars_set(list(node.body))
            case x.If():
                found |= scalars_set([*node.then, *node.orelse])
    return found


def contains_wgmma(nodes: list[x.Stmt]) -> bool:
    """True if a wgmma or its wait is among the statements."""
    for node in nodes:
        match node:
            case x.Op(op="wgmma") | x.GroupWait(queue="wgmma"):
                return True
            case x.For() if contains_wgmma(list(node.body)):
                return True
            case x.If() if contains_wgmma([*node.then, *node.orelse]):
                return True
    return False


def _rule_s(ctx: RoleContext, before: State, after: State, nodes: list[x.Stmt], cond: s.Expr) -> None:
    if not contains_wgmma(nodes):
        return
    idle = frozenset({()})
    if before.flights == idle and after.flights == idle and ctx.state.flights == idle:
        return
    ctx.error(
        "W713",
        "a run-time condition contains a wgmma or its wait while another group is in flight: ptxas would serialise them all",
        cond.span,
        help="split the loop where the condition changes, `for i in range(…) split(…)`, so that each piece decides it",
    )


def _join(ctx: RoleContext, env_a: dict[str, Value], state_a: State, branch: s.Branch, span: Span) -> None:
    state_b = ctx.state
    for ring in sorted(set(state_a.held) | set(state_b.held)):
        a, b = state_a.held.get(ring, 0), state_b.held.get(ring, 0)
        if a != b and ring not in ctx.broken:
            ctx.error(
                "P109",
                f"{a} stages of `{ring}` are held if the condition is true and {b} if not",
                branch.cond.span,
                help="wait and release on both sides, or outside the condition",
            )
    state_b.flights |= state_a.flights
    state_b.assigned &= state_a.assigned
    for handle, later in state_a.released.items():
        state_b.released[handle] = max(later, state_b.released.get(handle, 0))
    env_b = ctx.env
    joined: dict[str, Value] = {}
    for name in [*env_a, *(n for n in env_b if n not in env_a)]:
        mine, its = env_a.get(name), env_b.get(name)
        if mine is None or its is None:
            value = mine if mine is not None else its
            joined[name] = value if isinstance(value, TileVar) else Unassigned(name)
        elif isinstance(mine, Unassigned | Poison):
            joined[name] = mine
        elif isinstance(its, Unassigned | Poison) or mine == its or _same_variable(name, mine, its):
            joined[name] = its
        else:
            joined[name] = Unassigned(name)
    ctx.env = joined
