"""What integers say of a tile expression is what its elements show; and steps that nobody can see change nothing."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cake import machine
from cake.ir.expr import Apply, Axis, Expr, Reg, Sym, boolean, integer
from cake.machine.intervals import bounds, shifted
from cake.machine.order.reader import Order
from cake.machine.registers import compile_tile
from tests.machine import small as s

ROWS, COLS = 16, 8
TILE = s.tile("i32", ROWS, COLS, s.FRAG)
A, B = Sym(name="a"), Sym(name="b")


def apply(op: str, *args: Expr, dtype: str = "i32") -> Apply:
    return Apply(op=op, args=args, dtype=dtype)  # type: ignore[arg-type]


def compare(op: str, *args: Expr) -> Apply:
    return apply(op, *args, dtype="bool")


INDICES = [
    A,
    s.ROW,
    s.COL,
    Axis(axis="lin"),
    apply("+", A, s.ROW),
    apply("+", apply("*", integer(4), s.ROW), apply("+", B, s.COL)),
    apply("-", A, s.COL),
    apply("//", apply("+", A, s.ROW), integer(3)),
    apply("%", apply("+", A, s.COL), integer(5)),
    apply("min", apply("*", A, s.ROW), B),
    apply("max", s.COL, apply("-", B, s.ROW)),
]
VALUES = list(itertools.product((-7, 0, 3, 40), (-2, 5)))


def instance(a: int, b: int) -> Any:
    return SimpleNamespace(env={"a": a, "b": b}, tiles={})


@pytest.mark.parametrize("expr", INDICES, ids=str)
def test_bounds_are_those_of_the_elements(expr: Expr) -> None:
    found, elements = bounds(expr, TILE, 1), compile_tile(expr, TILE, 1)
    assert found is not None
    for a, b in VALUES:
        array = np.broadcast_to(elements(instance(a, b)), TILE.shape)
        low, high = found(instance(a, b)) or (None, None)
        assert low is not None and high is not None
        assert low <= array.min() and array.max() <= high


PREDICATES = [
    *(compare(op, apply("+", A, s.ROW), B) for op in ("<", "<=", ">", ">=")),
    compare("and", compare("<", s.ROW, A), compare(">=", s.COL, B)),
    compare("or", compare("<", s.ROW, A), compare(">", s.COL, B)),
    compare("not", compare("<", s.ROW, A)),
    boolean(True),
]


@pytest.mark.parametrize("expr", PREDICATES, ids=str)
def test_a_predicate_that_is_decided_is_decided_for_all(expr: Expr) -> None:
    found, elements = bounds(expr, TILE, 1), compile_tile(expr, TILE, 1)
    assert found is not None
    decided = 0
    for a, b in VALUES:
        array, said = np.broadcast_to(elements(instance(a, b)), TILE.shape), found(instance(a, b))
        if said == (1, 1):
            assert array.all()
        elif said == (0, 0):
            assert not array.any()
        decided += said in ((0, 0), (1, 1))
    assert decided


def test_nothing_is_said_of_registers_nor_of_what_wraps() -> None:
    assert bounds(apply("+", Reg(name="v", dtype="i32"), A), TILE, 1) is None
    rows = bounds(apply("*", A, s.ROW), TILE, 1)
    assert rows is not None and rows(instance(1 << 30, 0)) is None


@pytest.mark.parametrize("expr", INDICES, ids=str)
def test_shifted_is_the_index(expr: Expr) -> None:
    split = shifted(expr)
    if split is None:
        assert isinstance(expr, Apply)
        return
    scalar, fixed = split
    for a, b in VALUES:
        whole = compile_tile(expr, TILE, 1)(instance(a, b))
        parts = [np.asarray(0 if scalar is None else scalar({"a": a, "b": b}))]
        parts += [] if fixed is None else [compile_tile(fixed, TILE, 1)(instance(a, b))]
        assert np.array_equal(np.broadcast_to(sum(parts), TILE.shape), np.broadcast_to(whole, TILE.shape))


def copied() -> Any:
    t = s.tile("f32", ROWS, COLS, s.FRAG)
    return s.kernel(
        [s.tensor("a", "f32", ROWS, COLS), s.tensor("c", "f32", ROWS, COLS, out=True)],
        [
            s.load("v", t, s.elements("a", s.ROW, s.COL)),
            s.store(s.elements("c", s.ROW, s.COL), Reg(name="v", dtype="f32"), t),
        ],
        warps=1,
        tiles={"v": t},
    )


class Counting(Order):
    """The order reading, and how many accesses it was told of."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []

    def event(self, event: machine.Event) -> None:
        if event.kind == "access":
            self.told.append(event.effect.region.tensor)  # type: ignore[attr-defined]
        super().event(event)


def test_the_order_reading_is_not_told_of_inputs_and_a_recorder_is() -> None:
    a = np.arange(ROWS * COLS, dtype=np.float32).reshape(ROWS, COLS)
    order, recorder = Counting(), machine.Recorder()
    for observer in (order, recorder):
        found = machine.run(copied(), {"a": a, "c": np.zeros_like(a)}, observer=observer)
        assert np.array_equal(found.outputs["c"], a)
    assert order.findings == [] and set(order.told) == {"c"}
    assert {e.effect.region.tensor for e in recorder.of("access")} == {"a", "c"}  # type: ignore[attr-defined]
