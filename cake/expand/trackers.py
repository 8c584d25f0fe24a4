"""Trackers: a running best over the columns of tiles, as ordinary register tiles and one operation that updates them.

``best: argmax[64] frag group(4)`` is two tiles of one partial value a thread, ``best.top`` (f32[64, 4]) and ``best.col``
(i32[64, 4]): definite assignment and the in-flight checks see them as any other tile. ``clear`` assigns both, ``add`` is the
operation ``track``, and ``take`` combines the threads that share a row by two ordinary reductions.

``best: topk[64, 8] frag group(4)`` is two tiles that hold a sorted list for each row, dealt to the threads that share it
(f32[64, 8] and i32[64, 8], layout ``quad``). ``add`` is the operation ``topk``, and ``take`` gives the lists as they are.
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

KINDS = ("argmax", "argmin", "topk")
GROUPS = {"argmax": (1, 2, 4, 8), "argmin": (1, 2, 4, 8), "topk": (2, 4, 8)}
"""Columns of a thread that are compared at once; the first is the default. A topk takes at least the pairs of ``frag``."""
MOST_GROUPS = 32
"""Groups of a row that a thread of a topk can have: it notes in the bits of a word which of them hold something."""
MOST_ENTRIES = 32
"""Entries of a topk: each thread holds a quarter of each of its lists in registers."""
METHODS = ("clear", "add", "take")
NOWHERE = 2**31 - 1
"""The column of a candidate that does not count: no column is larger."""
NOTHING = {"argmax": 0, "argmin": 0, "topk": -1}
"""The column that ``take`` gives where there was nothing: 0 for the extrema, as in NumPy; no column for an entry of a list."""


def declare(ctx: RoleContext, stmt: s.Declare) -> None:
    """``best: argmax[rows] frag [group(g)]``, ``best: topk[rows, entries] frag [group(g)]``."""
    function = stmt.type.dtype
    assert function in KINDS
    if stmt.value is not None:
        ctx.refuse(
            "T020",
            "a tracker has no initial value",
            stmt.value.span,
            help=f"write `{stmt.name}.clear()` where it starts",
        )
    if len(stmt.type.dims) != (2 if function == "topk" else 1):
        what, example = "rows", "64"
        if function == "topk":
            what, example = "rows and of entries", "64, 8"
        ctx.refuse(
            "T015", f"`{function}` takes the number of {what}", stmt.type.span, help=f"write `{function}[{example}]`"
        )
    rows = ex.constant_int(ctx, stmt.type.dims[0], "the rows of a tracker")
    entries = ex.constant_int(ctx, stmt.type.dims[1], "the entries of a topk") if function == "topk" else 1
    if entries > MOST_ENTRIES:
        ctx.refuse("T015", f"a topk keeps 1 to {MOST_ENTRIES} entries a row, not {entries}", stmt.type.span)
    groups = GROUPS[function]
    group = groups[0]
    framed = False
    for a in stmt.attrs:
        if a.name == "frag" and not a.args:
            framed = True
        elif a.name == "group" and len(a.args) == 1:
            group = ex.constant_int(ctx, a.args[0], "`group`")
            if group not in groups:
                which = f"{', '.join(map(str, groups[:-1]))} or {groups[-1]}"
                ctx.refuse("T015", f"`group({group})`: columns are compared in groups of {which}", a.span)
        elif a.name in ("rowwise", "spread"):
            ctx.not_built(f"a tracker of {a.name} tiles", a.span)
        else:
            ctx.refuse("T015", f"a tracker has `frag` and `group(g)`, not `{a.name}`", a.span)
    if not framed:
        ctx.refuse("T015", "a tracker needs the layout of the tiles it follows", stmt.span, help="append `frag`")
    tracker = Tracker(stmt.name, function, rows, group, entries)
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
    lists = tracker.function == "topk"
    layout = Layout(kind="quad" if lists else "frag")
    shape = (tracker.rows, tracker.entries if lists else QUAD)
    return (
        TileVar(f"{tracker.name}.top", TileType(dtype="f32", shape=shape, layout=layout)),
        TileVar(f"{tracker.name}.col", TileType(dtype="i32", shape=shape, layout=layout)),
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
    """Forget everything: what is there is no better than any value."""
    worst = Const(value=float("inf") if tracker.function == "argmin" else float("-inf"), dtype="f32")
    for tile, value in zip(_tiles(tracker), (worst, integer(NOTHING[tracker.function])), strict=True):
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
    lists = tracker.function == "topk"
    bound = arguments(ctx, e, ("tile", "first_column"), ("floor",) if lists else ())
    tile = ex.as_tile(ctx, ex.typed(ctx, bound["tile"]), bound["tile"].span)
    if tile.dtype != "f32":
        ctx.refuse("T005", f"a tracker follows f32 tiles, not {tile.dtype}", e.span, help="cast: `f32(…)`")
    if tile.type.layout.kind != "frag":
        ctx.refuse("T007", f"tracker `{tracker.name}` follows frag tiles, and this one is {tile.type.layout}", e.span)
    if tile.type.rows != tracker.rows:
        ctx.refuse("T006", f"tracker `{tracker.name}` has {tracker.rows} rows and the tile {tile.type.rows}", e.span)
    _check_groups(ctx, tracker, tile.type.cols, e.span)
    first = ex.int_expr(ctx, bound["first_column"], "as the first column")
    _started(ctx, tracker, e.span)
    top, column = _tiles(tracker)
    operands: dict[str, x.Ref | Expr] = {"best": top.reg, "column": column.reg, "value": tile.expr, "first": first}
    if "floor" in bound:
        operands["floor"] = _floor(ctx, tracker, bound["floor"])
    attrs: dict[str, bool | int | float | str] = {"group": tracker.group}
    if not lists:
        attrs["function"] = tracker.function
    emit_op(ctx, x.Op(op="topk" if lists else "track", operands=operands, attrs=attrs, type=tile.type, span=e.span))


def _floor(ctx: RoleContext, tracker: Tracker, e: s.Expr) -> Expr:
    """One value a row, in the layout of the tiles that are followed."""
    floor = ex.as_tile(ctx, ex.typed(ctx, e), e.span)
    if (floor.dtype, floor.type.layout.kind) != ("f32", "frag") or floor.type.shape != (tracker.rows, 1):
        ctx.refuse(
            "T006",
            f"`floor=` of tracker `{tracker.name}` is one f32 a row, f32[{tracker.rows}, 1] frag, not {floor.type}",
            e.span,
            help="a reduction along axis 1 of a frag tile gives one",
        )
    return floor.expr


def _check_groups(ctx: RoleContext, tracker: Tracker, cols: int, span: Span) -> None:
    """A thread's columns of a tile are whole groups, and not too many."""

    def whole(group: int) -> bool:
        return cols % (QUAD * max(2, group)) == 0

    def few(group: int) -> bool:
        return tracker.function != "topk" or cols <= QUAD * group * MOST_GROUPS

    fitting = [g for g in GROUPS[tracker.function] if whole(g) and few(g)]
    if tracker.group in fitting:
        return
    problem = "which are no whole groups of" if not whole(tracker.group) else f"more than {MOST_GROUPS} groups of"
    ctx.refuse(
        "T015",
        f"a thread holds {cols // QUAD} columns of this tile, {problem} {tracker.group}",
        span,
        help=f"use `group({fitting[-1]})`" if fitting else "follow a narrower tile, a slice at a time",
    )


def take(ctx: RoleContext, tracker: Tracker, e: s.Call) -> tuple[Tile, Tile]:
    """The best value of each row and its column: the extremum over the threads of the row, then the lowest column that has it.
    Of a topk, the lists."""
    arguments(ctx, e, ())
    _started(ctx, tracker, e.span)
    top, column = _tiles(tracker)
    if tracker.function == "topk":
        return Tile(top.reg, top.type), Tile(column.reg, column.type)
    function = tracker.function[3:]
    best = reduce_tile(ctx, Tile(top.reg, top.type), function, 1, None, e.span)
    has_it = Apply(op="==", args=(top.reg, best.expr), dtype="bool")
    candidates = Apply(op="where", args=(has_it, column.reg, integer(NOWHERE)), dtype="i32")
    return best, reduce_tile(ctx, Tile(candidates, column.type), "min", 1, None, e.span)
