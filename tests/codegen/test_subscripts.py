"""Subscripts that are no sums of axes and scalars, in the generated code's addresses."""

from __future__ import annotations

import numpy as np
import pytest

from cake.ir import expanded as x
from cake.ir.expr import Expr
from tests.codegen.build import COL, ROW, ap, assign, cast, elems, kernel, reg, store, tensor, tile
from tests.codegen.emulator import run

COLS = 8
TURNED = ap("%", ap("+", ap("+", ROW, COL), 3), COLS)
SWAPPED = ap("where", ap("<", COL, 4), ap("+", COL, 4), ap("-", COL, 4))
row, col = np.indices((64, COLS))


@pytest.mark.parametrize(
    ("subscript", "at"), [(TURNED, (row + col + 3) % COLS), (SWAPPED, (col + 4) % COLS)], ids=["remainder", "choice"]
)
def test_last_subscript(subscript: Expr, at: np.ndarray) -> None:
    """A remainder by a power of two and a choice become `&` and `?:`, which C binds less tightly than the `+` before them."""
    t = tile("f32", 64, COLS)
    body = [
        assign(reg("v"), cast(ap("+", ap("*", ROW, COLS), COL), "f32")),
        store(x.Ref(base="y", subs=elems(ROW, subscript)), reg("v"), t),
    ]
    out = np.zeros(64 * COLS, np.float32)
    run(kernel("k", body, tensors=(tensor("y", "f32", 64, COLS, out=True),), tiles={"v": t}), {"y": out})
    assert (out.reshape(64, COLS)[row, at] == COLS * row + col).all()
