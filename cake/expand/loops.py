"""Loops: the tile walk, ranges, split pieces and unrolling.

A range loop is expanded twice. The first pass assumes the first iteration: it checks definite assignment there and records what
each release gives back. The second pass stands for every iteration: it starts from what the first one left (stages held, groups
in flight) and must end in the same state, so that counts are constants.
"""

from __future__ import annotations

from typing import Any

from cake.expand import clusters, dynamic
from cake.expand import expressions as ex
from cake.expand.context import RoleContext, State
from cake.expand.functions import arguments
from cake.expand.pipelines import drop_stage, where_held
from cake.expand.statements import check_name, drop_dependents, run_block
from cake.expand.values import Handle, Poison, Record, Scalar, Tile, TileVar, Unassigned, Value, describe
from cake.ir import expanded as x
from cake.ir import surface as s
from cake.ir.expr import Apply, Const, Expr, Sym, boolean, integer

ROUNDS = 6  # passes over a loop until the possible wgmma queues stop growing


def run_for(ctx: RoleContext, stmt: s.For) -> None:
    """``for var in range(…) | unroll(n) | tiles``."""
    it = stmt.iter
    if isinstance(it, s.Index):
        base = it.base
        if isinstance(base, s.Name) and base.name == "tiles":
            if stmt.split:
                ctx.refuse("T022", "the tile walk is not split", stmt.span)
            run_tiles(ctx, stmt, part_of_tiles(ctx, it))
            return
    if isinstance(it, s.Name) and it.name == "tiles":
        if stmt.split:
            ctx.refuse("T022", "the tile walk is not split", stmt.span)
        if "tiles" in ctx.loop_variables:
            ctx.refuse(
                "T022", "walks of the tiles do not nest", stmt.span, help="walk a range inside, or one after the other"
            )
        ctx.loop_variables.append("tiles")
        try:
            run_tiles(ctx, stmt)
        finally:
            ctx.loop_variables.pop()
        return
    name = it.func.name if isinstance(it, s.Call) and isinstance(it.func, s.Name) else None
    if not isinstance(it, s.Call) or name not in ("range", "unroll"):
        ctx.refuse("T022", "`for` walks `range(…)`, `unroll(n)` or `tiles`", it.span)
    check_name(ctx, stmt.var, stmt.span)
    old = ctx.env.get(stmt.var)
    if old is not None and not isinstance(old, Scalar | Unassigned | Poison):
        ctx.refuse(
            "T020",
            f"`{stmt.var}` is {describe(old)} and cannot become a loop variable",
            stmt.span,
            help="use another name",
        )
    ctx.loop_variables.append(stmt.var)
    try:
        if name == "unroll":
            if stmt.split:
                ctx.refuse("T022", "an unrolled loop is not split", stmt.span)
            run_unroll(ctx, stmt, it)
        else:
            run_range(ctx, stmt, it)
    finally:
        ctx.loop_variables.pop()


# ---- tiles ----------------------------------------------------------------------------------------------------------


def part_of_tiles(ctx: RoleContext, e: s.Index) -> tuple[Expr, int]:
    """``tiles[w::n]``: every n-th tile of the CTA's list, from the w-th."""
    tiles = ctx.kernel.tiles
    assert tiles is not None
    sub = e.subs[0] if len(e.subs) == 1 else None
    if not isinstance(sub, s.Slice) or sub.lo is None or sub.hi is not None or sub.step is None:
        ctx.refuse("T022", "a part of the tiles is every n-th from the w-th", e.span, help="write `tiles[w::2]`")
    first = ex.int_expr(ctx, sub.lo, "as the first tile")
    every = ex.constant_int(ctx, sub.step, "the step of `tiles[w::n]`")
    if tiles.schedule == "once" or tiles.drawer is not None:
        ctx.refuse("T022", "the list of tiles that is divided is that of `tiles persistent`", e.span)
    if any(isinstance(i, s.Where) for i in tiles.declaration.items):
        ctx.not_built("a part of tiles of which `where` drops some", e.span)
    inside = Apply(
        op="and", args=(_compare("<=", integer(0), first), _compare("<", first, integer(every))), dtype="bool"
    )
    if ctx.facts.prove(inside) is not True:
        ctx.refuse(
            "T022",
            f"the first of every {every} tiles has a number below {every}",
            e.span,
            help="use the instance's number",
        )
    return first, every


def _compare(op: str, a: Expr, b: Expr) -> Expr:
    return Apply(op=op, args=(a, b), dtype="bool")


def run_tiles(ctx: RoleContext, stmt: s.For, part: tuple[Expr, int] | None = None) -> None:
    """``for t in tiles``: decode each position into the tile's fields, drop what `where` drops, run the body. ``part``: every
    n-th tile of the CTA, from one on."""
    tiles = ctx.kernel.tiles
    assert tiles is not None
    check_name(ctx, stmt.var, stmt.span)
    prefix = stmt.var
    position = Sym(name=f"{prefix}.pos")
    before_env, before = dict(ctx.env), ctx.state.copy()
    entry = before.copy()
    step = Sym(name="%grid")
    for _ in range(ROUNDS):
        saved = ctx.counter
        ctx.env, ctx.state = dict(before_env), entry.copy()
        with ctx.scope(), ctx.block() as body:
            ctx.facts.declare(position.name, 0, tiles.positions)
            ctx.loads = {}
            if tiles.schedule == "once":
                ctx.emit(
                    x.Let(
                        name=position.name,
                        dtype="i32",
                        value=Sym(name="%cta"),
                        reason="tiles",
                        span=tiles.declaration.span,
                    )
                )
            decode(ctx, prefix, position, stmt)
            if tiles.drawer is not None:
                step = dynamic.advance(ctx, tiles, prefix, position)
        _tile_end(ctx, before, stmt)
        if ctx.state.flights <= entry.flights:
            break
        entry.flights |= ctx.state.flights
        ctx.counter = saved
    ctx.env, ctx.state = before_env, State(before.held, entry.flights | ctx.state.flights, before.assigned)
    if tiles.schedule == "once":
        ctx.emit(*body)
        return
    lo: Expr = Sym(name="%cta")
    hop: Expr = step
    if part is not None:
        first, every = part
        lo = _op("+", lo, first if first == integer(0) else _mul(first, step))
        hop = _mul(step, integer(every))
    ctx.emit(
        x.For(
            var=position.name,
            lo=lo,
            hi=tiles.positions,
            step=hop,
            role="tiles",
            body=tuple(body),
            span=stmt.span,
        )
    )


def _tile_end(ctx: RoleContext, before: State, stmt: s.For) -> None:
    for ring in sorted(set(ctx.state.held) | set(before.held)):
        left, had = ctx.state.held.get(ring, 0), before.held.get(ring, 0)
        if left > had and ring not in ctx.broken:
            ctx.error(
                "P109",
                f"{left - had} stage{'s' if left - had > 1 else ''} of `{ring}` still held at the end of a tile",
                stmt.span,
                labels=where_held(ctx, ring),
                help=f"give back what the last iterations kept: `{ring}.release()` after the loop",
            )
            ctx.state.held[ring] = had
    for ring, handle in ctx.unstored.items():
        ctx.error(
            "T019",
            f"a stage of `{ring}` was filled and never stored",
            handle.span,
            help="follow the fill with `tma.store(dst, s.field)`",
        )
    ctx.unstored.clear()


def decode(ctx: RoleContext, prefix: str, position: Sym, stmt: s.For) -> None:
    """Emit the fields of a tile in the order of their declaration, then the body."""
    tiles = ctx.kernel.tiles
    assert tiles is not None
    fields: dict[str, Expr] = {}
    for name, value in axis_values(ctx, prefix, position):
        symbol = Sym(name=f"{prefix}.{name}")
        ctx.emit(x.Let(name=symbol.name, dtype="i32", value=value, reason="tiles", span=tiles.declaration.span))
        if name in tiles.extents:
            ctx.facts.declare(symbol.name, 0, clusters.bound(ctx, tiles, name))
            fields[name] = symbol
    outer: dict[str, Value] = dict(ctx.env)
    for name, e in fields.items():
        ctx.env[name] = Scalar(e)
    _items(ctx, prefix, fields, [i for i in tiles.declaration.items if not isinstance(i, s.Axis)], outer, stmt)


def _items(
    ctx: RoleContext,
    prefix: str,
    fields: dict[str, Expr],
    items: list[s.Define | s.Where | s.Axis],
    outer: dict[str, Value],
    stmt: s.For,
) -> None:
    for i, item in enumerate(items):
        if isinstance(item, s.Define):
            name = f"{prefix}.{item.name}"
            ctx.hint = name if isinstance(item.value, s.Call) and _is_load(item.value) else None
            value = ex.scalar(ctx, item.value, f"in the definition of `{item.name}`")
            ctx.hint = None
            symbol = Sym(name=name, dtype=value.dtype)
            if value.expr != symbol:
                ctx.emit(x.Let(name=name, dtype=symbol.dtype, value=value.expr, reason="tiles", span=item.span))
                if symbol.dtype in ("i32", "i64"):
                    ctx.facts.define(name, value.expr)
            fields[item.name] = symbol
            ctx.env[item.name] = Scalar(symbol)
        elif isinstance(item, s.Where):
            cond: Expr = boolean(True)
            for c in item.conditions:
                one = ex.condition(ctx, c)
                cond = one if cond == boolean(True) else Apply(op="and", args=(cond, one), dtype="bool")
            if cond == boolean(True):
                continue
            with ctx.scope(), ctx.block() as kept:
                ctx.facts.assume(cond)
                _items(ctx, prefix, fields, items[i + 1 :], outer, stmt)
            ctx.emit(x.If(cond=cond, then=tuple(kept), reason="tiles", span=item.span))
            return
    ctx.env = {**outer, prefix: Record(prefix, dict(fields))}
    run_block(ctx, stmt.body)


def _is_load(e: s.Call) -> bool:
    return isinstance(e.func, s.Name) and e.func.name == "load"


def axis_values(ctx: RoleContext, prefix: str, position: Sym) -> list[tuple[str, Expr]]:
    """The axes' values from a position. The last axis is fastest; `grouped(g)` on an axis walks g of its values before the next
    axis steps: group, next axis, member, later axes. The last group may have fewer members. Along a clustered axis the walk counts
    clusters, and a group is of as many clusters as hold g values."""
    tiles = ctx.kernel.tiles
    assert tiles is not None
    out: list[tuple[str, Expr]] = []

    def put(name: str, value: Expr) -> None:
        """An axis has its value; one along which CTAs form clusters counts clusters first."""
        if name == tiles.clustered:
            out.append((f"{name}.cluster", value))
            value = _op("+", _mul(Sym(name=f"{prefix}.{name}.cluster"), integer(tiles.cluster)), clusters.RANK)
        out.append((name, value))

    rest: Expr = position
    names = [a.name for a in tiles.axes]
    group = {a.name: _grouped(ctx, a) for a in tiles.axes}
    if tiles.clustered is not None:
        group[tiles.clustered] = -(-group[tiles.clustered] // tiles.cluster)
    i = 0
    while i < len(names):
        name = names[i]
        grouped = group[name] > 1 and i + 1 < len(names)
        span = 2 if grouped else 1
        inner: Expr = integer(1)
        for later in names[i + span :]:
            inner = _mul(inner, tiles.walked[later])
        if not grouped:
            last = i + 1 == len(names)
            put(name, rest if last else _op("//", rest, inner))
            if not last:
                out.append((f"{name}.rest", _op("%", rest, inner)))
                rest = Sym(name=f"{prefix}.{name}.rest")
            i += 1
            continue
        following, size = names[i + 1], group[name]
        block = _mul(_mul(tiles.walked[following], integer(size)), inner)
        first, count, within = (Sym(name=f"{prefix}.{name}.{part}") for part in ("first", "count", "within"))
        out.append((f"{name}.first", _mul(_op("//", rest, block), integer(size))))
        out.append((f"{name}.count", _op("min", _op("-", tiles.walked[name], first), integer(size))))
        out.append((f"{name}.within", _op("%", rest, block)))
        per_next = _mul(count, inner)
        put(following, _op("//", within, per_next))
        member = _op("//", _op("%", within, per_next), inner) if inner != integer(1) else _op("%", within, per_next)
        put(name, _op("+", first, member))
        if i + 2 < len(names):
            out.append((f"{name}.rest", _op("%", within, inner)))
            rest = Sym(name=f"{prefix}.{name}.rest")
        i += 2
    return out


def _grouped(ctx: RoleContext, axis: s.Axis) -> int:
    for a in axis.attrs:
        if a.name == "grouped":
            return ex.constant_int(ctx, a.args[0], "the size of a group")
    return 1


def _op(op: str, a: Expr, b: Expr) -> Expr:
    if op in ("//", "%") and b == integer(1):
        return a if op == "//" else integer(0)
    return Apply(op=op, args=(a, b), dtype="i32")


def _mul(a: Expr, b: Expr) -> Expr:
    if a == integer(1):
        return b
    return a if b == integer(1) else Apply(op="*", args=(a, b), dtype="i32")


# ---- unroll ---------------------------------------------------------------------------------------------------------


def run_unroll(ctx: RoleContext, stmt: s.For, call: s.Call) -> None:
    """``for i in unroll(n)``: the body n times with a constant."""
    n = ex.constant_int(ctx, arguments(ctx, call, ("n",))["n"], "the count of `unroll`", low=0)
    if n > 4096:
        ctx.refuse("T022", f"{n} copies of the body are too many", stmt.span, help="use range")
    path = ctx.path
    for i in range(n):
        ctx.path = (*path, i)
        ctx.env[stmt.var] = Scalar(integer(i), literal=True)
        run_block(ctx, stmt.body)
    ctx.path = path
    ctx.env[stmt.var] = Unassigned(stmt.var)


# ---- range ----------------------------------------------------------------------------------------------------------


def run_range(ctx: RoleContext, stmt: s.For, call: s.Call) -> None:
    """``for i in range([a,] b[, step]) [split(x, y)]``."""
    if call.kwargs or not 1 <= len(call.args) <= 3:
        ctx.refuse("T003", "`range` takes an end, a start and an end, or those and a step", call.span)
    values = [ex.int_expr(ctx, a, "as a bound of `range`") for a in call.args]
    lo, hi = (integer(0), values[0]) if len(values) == 1 else (values[0], values[1])
    step = ex.constant_int(ctx, call.args[2], "the step of `range`") if len(values) == 3 else 1
    lo, hi = _name_bound(ctx, stmt, lo, "lo"), _name_bound(ctx, stmt, hi, "hi")
    if not stmt.split:
        piece(ctx, stmt, lo, hi, step, None)
        return
    if step != 1:
        ctx.refuse("T022", "a split loop has step 1", call.span)
    start, path = lo, ctx.path
    bounds = [ex.int_expr(ctx, e, "as a split") for e in stmt.split]
    for i, bound in enumerate([*bounds, hi]):
        end = bound
        if i < len(bounds):
            end = _clamp(ctx, start, bound, hi)
            end = _name_bound(ctx, stmt, end, f"split{i + 1}")
        ctx.path = (*path, i)
        piece(ctx, stmt, start, end, 1, i)
        start = end
    ctx.path = path


def _name_bound(ctx: RoleContext, stmt: s.For, bound: Expr, part: str) -> Expr:
    """Evaluate a bound once, before the loop, unless it is a constant or a variable."""
    known = ctx.facts.constant(bound)
    if known is not None:
        return integer(known)
    if isinstance(bound, Sym):
        return bound
    name = ctx.fresh(f"{stmt.var}.{part}")
    ctx.emit(x.Let(name=name, dtype="i32", value=bound, reason="loop bound", span=stmt.span))
    ctx.facts.define(name, bound)
    return Sym(name=name)


def _clamp(ctx: RoleContext, start: Expr, bound: Expr, hi: Expr) -> Expr:
    out = bound
    if ctx.facts.prove(Apply(op="<=", args=(bound, hi), dtype="bool")) is not True:
        out = Apply(op="min", args=(out, hi), dtype="i32")
    if ctx.facts.prove(Apply(op="<=", args=(start, out), dtype="bool")) is not True:
        out = Apply(op="max", args=(start, out), dtype="i32")
    return out


def piece(ctx: RoleContext, stmt: s.For, lo: Expr, hi: Expr, step: int, number: int | None) -> None:
    """One loop over [lo, hi)."""
    runs = ctx.facts.prove(Apply(op="<", args=(lo, hi), dtype="bool"))
    if runs is False:
        return
    length = ctx.facts.difference(hi, lo)
    if length is not None and length <= step:
        single(ctx, stmt, lo)
        return
    before_env, before = dict(ctx.env), ctx.state.copy()
    assigned = assigned_names(stmt.body)
    for name in assigned:
        value = ctx.env.get(name)
        if isinstance(value, Scalar):
            ctx.facts.forget(name)
        elif isinstance(value, Handle) and value.slot.cursor is not None:
            drop_stage(ctx, value.slot.cursor)
        drop_dependents(ctx, name)
    drop_dependents(ctx, stmt.var)
    before_env = {n: ctx.env.get(n, v) for n, v in before_env.items()}
    var = Sym(name=stmt.var)
    saved_first, saved_condition, saved_releases = ctx.first_pass, ctx.first_condition, ctx.releases
    saved_counts = ctx.counts
    counter = ctx.counter
    # First iteration.
    ctx.releases = {}
    ctx.first_pass = ctx.first_condition = None
    with ctx.scope(), ctx.under("loop"), ctx.block():
        ctx.env = {**before_env, stmt.var: Scalar(var)}
        _declare(ctx, var, lo, hi, step)
        # As a range of one value rather than an equality: the loop variable then stays in every question asked.
        ctx.facts.declare(var.name, lo, Apply(op="+", args=(lo, integer(1)), dtype="i32"))
        run_block(ctx, stmt.body)
    first, recorded, queues = ctx.state, ctx.releases, ctx.queues
    carried = {
        n: h for n in assigned if isinstance(h := ctx.env.get(n), Handle) and isinstance(before_env.get(n), Handle)
    }
    # Every iteration.
    near = {h.root for h in carried.values()}
    since = {h: n if h in near else ex.FAR for h, n in first.released.items()}
    entry = State(dict(first.held), before.flights | first.flights, before.assigned | first.assigned, since)
    ctx.first_pass, ctx.releases = recorded, None
    ctx.first_condition = Apply(op=">", args=(var, lo), dtype="bool")
    for _ in range(ROUNDS):
        ctx.counter, ctx.queues = counter, {n: list(q) for n, q in queues.items()}
        ctx.state, ctx.counts = entry.copy(), {}
        with ctx.scope(), ctx.under("loop"), ctx.block() as body:
            ctx.env = {**before_env, **carried, stmt.var: Scalar(var)}
            _declare(ctx, var, lo, hi, step)
            run_block(ctx, stmt.body)
        if ctx.state.flights <= entry.flights:
            break
        entry.flights |= ctx.state.flights
    after = ctx.state
    _stable(ctx, before, first, after, runs is True, stmt)
    profile = {site: (recorded.get(site), count) for site, count in ctx.counts.items()}
    ctx.first_pass, ctx.first_condition, ctx.releases = saved_first, saved_condition, saved_releases
    ctx.counts = saved_counts
    _enclosing(ctx, profile, stmt)
    ctx.emit(x.For(var=stmt.var, lo=lo, hi=hi, step=integer(step), piece=number, body=tuple(body), span=stmt.span))
    if runs is not True:
        after.flights |= before.flights
        after.assigned = before.assigned
        ctx.env = {n: before_env.get(n, Unassigned(n) if not isinstance(v, TileVar) else v) for n, v in ctx.env.items()}
    for name in assigned:
        if isinstance(ctx.env.get(name), Scalar):
            ctx.facts.forget(name)
        elif isinstance(ctx.env.get(name), Tile) and name not in before_env:
            ctx.env[name] = Unassigned(name)
    ctx.env[stmt.var] = Unassigned(stmt.var)
    ctx.facts.forget(stmt.var)


def _enclosing(ctx: RoleContext, profile: dict[tuple[Any, ...], Any], stmt: s.For) -> None:
    """What a loop's releases give back does not depend on the iteration of a loop around it (P109): only a loop's own first
    iteration is told apart from the others."""
    for site, counts in profile.items():
        key = ("loop", *site)
        ctx.counts[key] = counts
        if ctx.releases is not None:
            ctx.releases[key] = counts
        elif ctx.first_pass is not None and ctx.first_pass.get(key, counts) != counts:
            ctx.error(
                "P109",
                "a release in this loop gives back another number of stages in the first iteration of the loop around it",
                stmt.span,
                help="release what the inner loop kept after it, or make the two loops one",
            )
            return


def _declare(ctx: RoleContext, var: Sym, lo: Expr, hi: Expr, step: int) -> None:
    ctx.facts.forget(var.name)
    ctx.facts.declare(var.name, lo, hi)
    if step > 1:
        offset = Apply(op="-", args=(var, lo), dtype="i32")
        remainder = Apply(op="%", args=(offset, integer(step)), dtype="i32")
        ctx.facts.assume(Apply(op="==", args=(remainder, integer(0)), dtype="bool"))


def _stable(ctx: RoleContext, before: State, first: State, after: State, runs: bool, stmt: s.For) -> None:
    for ring in sorted({*before.held, *first.held, *after.held}):
        a, b, c = (st.held.get(ring, 0) for st in (before, first, after))
        if ring in ctx.broken:
            after.held[ring] = b
        elif b != c:
            ctx.error(
                "P109",
                f"each iteration holds {c - b:+d} stages of `{ring}` compared with the one before",
                stmt.span,
                labels=where_held(ctx, ring),
                facts=(f"{a} held before the loop, {b} after its first iteration, {c} after the next",),
                help="release what each iteration waits for; to keep more than one, split the first iterations off",
            )
            after.held[ring] = b
        elif not runs and a != c:
            ctx.error(
                "P109",
                f"{c} stages of `{ring}` are held after the loop, or {a} if it does not run at all",
                stmt.span,
                labels=where_held(ctx, ring),
                help="show that it runs (`where` on the dims), or release inside the loop",
            )


def single(ctx: RoleContext, stmt: s.For, lo: Expr) -> None:
    """A piece of exactly one iteration: straight code."""
    drop_dependents(ctx, stmt.var)
    if isinstance(lo, Const):
        ctx.env[stmt.var] = Scalar(integer(int(lo.value)))
    else:
        ctx.facts.forget(stmt.var)
        ctx.emit(x.Let(name=stmt.var, dtype="i32", value=lo, reason="single iteration", span=stmt.span))
        ctx.facts.define(stmt.var, lo)
        ctx.env[stmt.var] = Scalar(Sym(name=stmt.var))
    run_block(ctx, stmt.body)
    ctx.env[stmt.var] = Unassigned(stmt.var)


def assigned_names(body: tuple[s.Stmt, ...]) -> list[str]:
    """Names that statements of a body assign, in order."""
    found: dict[str, None] = {}
    for stmt in body:
        for node in s.walk(stmt):
            if isinstance(node, s.Assign):
                found.update(dict.fromkeys(node.targets))
            elif isinstance(node, s.For):
                found[node.var] = None
    return list(found)
