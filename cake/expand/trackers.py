"""Trackers: a running best over the columns of tiles, as ordinary register tiles and one operation that updates them.

``best: argmax[64] frag group(4)`` is two tiles of one partial value a thread, ``best.top`` (f32[64, 4]) and ``best.col``
(i32[64, 4]): definite assignment and the in-flight checks see them as any other tile. ``clear`` assigns both, ``add`` is the
operation ``track``, and ``take`` combines the threads that share a row by two ordinary reductions.
"""

from __future__ import annotations

from cake.diagnostics import Span
from cake.expand import expressions as ex
from cake.expand.context import RoleContext
from cake.expand.emission import emit_op
from cake.expand.functions import arguments
from cake.expand.reductions import reduce_tile
from cake.expand.values import Poison, Tile, TileVar, Tracker, TrackerMethod, Value, describe
from cake.ir import expanded as x
from cake.ir import surface as s
from cake.ir.expr import Apply, Const, Expr, integer
from cake.ir.layout import QUAD, Layout, TileType, shape_problem

KINDS = ("argmax", "argmin")
GROUPS = (1, 2, 4, 8)
METHODS = ("clear", "add", "take")
NOWHERE = 2**31 - 1
"""The column of a candidate that does not count: no column is larger."""


def declare(ctx: RoleContext, stmt: s.Declare) -> None:
    """``best: argmax[rows] frag [group(g)]``."""
    function = stmt.type.dtype
    if function not in KINDS:
        ctx.not_built(f"the tracker `{function}`", stmt.span)
    if stmt.value is not None:
        ctx.refuse(
            "T020",
            "a tracker has no initial value",
            stmt.value.span,
            help=f"write `{stmt.name}.clear()` where it starts",
        )
    if len(stmt.type.dims) != 1:
        ctx.refuse("T015", f"`{function}` takes the number of rows", stmt.type.span, help=f"write `{function}[64]`")
    rows = ex.constant_int(ctx, stmt.type.dims[0], "the rows of a tracker")
    group = 1
    framed = False
    for a in stmt.attrs:
        if a.name == "frag" and not a.args:
            framed = True
        elif a.name == "group" and len(a.args) == 1:
            group = ex.constant_int(ctx, a.args[0], "`group`")
            if group not in GROUPS:
                ctx.refuse("T015", f"`group({group})`: columns are compared in groups of 1, 2, 4 or 8", a.span)
        elif a.name in ("rowwise", "spread"):
            ctx.not_built(f"a tracker of {a.name} tiles", a.span)
        else:
            ctx.refuse("T015", f"a tracker has `frag` and `group(g)`, not `{a.name}`", a.span)
    if not framed:
        ctx.refuse("T015", "a tracker needs the layout of the tiles it follows", stmt.span, help="append `frag`")
    tracker = Tracker(stmt.name, function, rows, group)
    top, column = _tiles(tracker)
    problem = shape_problem(top.type, ctx.role.warps)
    if problem:
        ctx.refuse("T015", f"a tracker of {rows} rows cannot exist: {problem}", stmt.span)
    old = ctx.env.get(stmt.name)
    if old is not None and not isinstance(old, Poison) and old != tracker:
        ctx.refuse("T020", f"`{stmt.name}` is already {describe(old)}", stmt.span, help="use another name")
    from cake.expand.statements import check_name

    check_name(ctx, stmt.name, stmt.span)
    ctx.tiles[top.name], ctx.tiles[column.name] = top.type, column.type
    ctx.env[stmt.name] = tracker


def _tiles(tracker: Tracker) -> tuple[TileVar, TileVar]:
    layout = Layout(kind="frag")
    return (
        TileVar(f"{tracker.name}.top", TileType(dtype="f32", shape=(tracker.rows, QUAD), layout=layout)),
        TileVar(f"{tracker.name}.col", TileType(dtype="i32", shape=(tracker.rows, QUAD), layout=layout)),
    )


def method(ctx: RoleContext, callee: TrackerMethod, e: s.Call) -> Value | None:
    """``best.clear()``, ``best.add(tile, first_column)``; ``take`` belongs to an assignment of two names."""
    match callee.name:
        case "clear":
            arguments(ctx, e, ())
            clear(ctx, callee.tracker, e.span)
            return None
        case "add":
            add(ctx, callee.tracker, e)
            return None
        case "take":
            ctx.refuse(
                "T011", "`take` gives two results", e.span, help=f"write `value, column = {callee.tracker.name}.take()`"
            )
    ctx.refuse("T014", f"a tracker has `clear`, `add` and `take`, not `{callee.name}`", e.span)


def clear(ctx: RoleContext, tracker: Tracker, span: Span) -> None:
    """Forget everything: nothing is worse than the first value, and the column of nothing is 0, as in NumPy."""
    worst = float("-inf") if tracker.function == "argmax" else float("inf")
    for tile, value in zip(_tiles(tracker), (Const(value=worst, dtype="f32"), integer(0)), strict=True):
        emit_op(
            ctx,
            x.Op(op="assign", operands={"dst": tile.reg, "value": value}, type=tile.type, reason="tracker", span=span),
        )


def _started(ctx: RoleContext, tracker: Tracker, span: Span) -> None:
    if f"{tracker.name}.top" not in ctx.state.assigned:
        ctx.refuse(
            "T010",
            f"tracker `{tracker.name}` is used before it is cleared on some path",
            span,
            help=f"write `{tracker.name}.clear()` where it starts",
        )


def add(ctx: RoleContext, tracker: Tracker, e: s.Call) -> None:
    """Follow the columns of a tile, the first of which is column ``first_column`` of the whole."""
    bound = arguments(ctx, e, ("tile", "first_column"))
    tile = ex.as_tile(ctx, ex.typed(ctx, bound["tile"]), bound["tile"].span)
    if tile.dtype != "f32":
        ctx.refuse("T005", f"a tracker follows f32 tiles, not {tile.dtype}", e.span, help="cast: `f32(…)`")
    if tile.type.layout.kind != "frag":
        ctx.refuse("T007", f"tracker `{tracker.name}` follows frag tiles, and this one is {tile.type.layout}", e.span)
    if tile.type.rows != tracker.rows:
        ctx.refuse("T006", f"tracker `{tracker.name}` has {tracker.rows} rows and the tile {tile.type.rows}", e.span)
    cols = tile.type.cols
    if cols % (QUAD * max(2, tracker.group)):
        ctx.refuse(
            "T015",
            f"a thread holds {cols // QUAD} columns of this tile, which are no whole groups of {tracker.group}",
            e.span,
            help=f"use `group({max(g for g in GROUPS if cols % (QUAD * max(2, g)) == 0)})`" if cols % 8 == 0 else None,
        )
    first = ex.int_expr(ctx, bound["first_column"], "as the first column")
    _started(ctx, tracker, e.span)
    top, column = _tiles(tracker)
    operands: dict[str, x.Ref | Expr] = {"best": top.reg, "column": column.reg, "value": tile.expr, "first": first}
    emit_op(
        ctx,
        x.Op(
            op="track",
            operands=operands,
            attrs={"function": tracker.function, "group": tracker.group},
            type=tile.type,
            span=e.span,
        ),
    )


def take(ctx: RoleContext, tracker: Tracker, e: s.Call) -> tuple[Tile, Tile]:
    """The best value of each row and its column: the extremum over the threads of the row, then the lowest column that has it."""
    arguments(ctx, e, ())
    _started(ctx, tracker, e.span)
    top, column = _tiles(tracker)
    function = tracker.function[3:]
    best = reduce_tile(ctx, Tile(top.reg, top.type), function, 1, None, e.span)
    has_it = Apply(op="==", args=(top.reg, best.expr), dtype="bool")
    candidates = Apply(op="where", args=(has_it, column.reg, integer(NOWHERE)), dtype="i32")
    return best, reduce_tile(ctx, Tile(candidates, column.type), "min", 1, None, e.span)
