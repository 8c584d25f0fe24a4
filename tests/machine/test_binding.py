"""Binding a launch: dims, shapes, dtypes, guards, assumptions, empty outputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cake import machine
from cake.diagnostics import CakeError
from cake.ir import expanded as x
from cake.ir.binding import bind
from cake.ir.expr import Sym, integer
from tests.expanded.gemm import gemm
from tests.machine import small as s

KERNEL = gemm()


def refused(**changes: Any) -> tuple[str, ...]:
    shapes: dict[str, tuple[int, ...]] = {"a": (128, 64), "b": (256, 64), "c": (128, 256)}
    dtypes = dict.fromkeys(shapes, "bf16")
    shapes.update(changes.get("shapes", {}))
    dtypes.update(changes.get("dtypes", {}))
    for name in changes.get("without", ()):
        del shapes[name]
    with pytest.raises(CakeError) as caught:
        bind(KERNEL, shapes, dtypes, changes.get("scalars", {}))
    return tuple(f"{d.code} {d.message}" for d in caught.value.diagnostics)


def test_dims_are_bound() -> None:
    values = bind(KERNEL, {"a": (100, 64), "b": (72, 64), "c": (100, 72)}, dict.fromkeys("abc", "bf16"), {})
    assert (values["M"], values["N"], values["K"], values["BM"]) == (100, 72, 64, 128)


def test_refusals() -> None:
    assert refused(without=("b",)) == ("R001 gemm needs the argument `b`",)
    assert refused(scalars={"d": 1}) == ("R001 gemm has no parameter `d`",)
    assert refused(dtypes={"b": "f16"}) == ("R003 `b` is f16; gemm takes bf16",)
    assert refused(shapes={"b": (256, 64, 1)}) == ("R002 `b` has 3 axes; gemm takes 2",)
    wrong = refused(shapes={"b": (256, 72), "c": (128, 255)})
    assert wrong == (
        "R002 `b` has shape [256, 72]; it should be [256, 64]",
        "R002 `c` has shape [128, 255]; it should be [128, 256]",
    )
    assert refused(shapes={"a": (128, 60), "b": (256, 60)}) == ("R005 gemm needs K % 8 == 0",)
    (zero, *_) = refused(shapes={"a": (128, 0), "b": (256, 0)})
    assert zero.startswith("R004 `a` is empty (shape [128, 0])")


def test_empty_outputs_return_at_once() -> None:
    arguments = {"a": s.empty("bf16", 0, 64), "b": s.empty("bf16", 8, 64), "c": s.empty("bf16", 0, 8)}
    result = machine.run(KERNEL, arguments)
    assert result.clusters == 0 and result.outputs["c"].shape == (0, 8)


def kernel_with(*assumes: x.Condition, **more: Any) -> x.Kernel:
    tensors = [s.tensor("t", "i32", 4), s.tensor("c", "i32", 1, out=True)]
    return s.kernel(tensors, [x.Exit()], warps=1, assumes=assumes, **more)


def test_scaled_dims_and_scalars() -> None:
    kernel = s.kernel([], [x.Exit()], warps=1).model_copy(
        update={
            "tensors": (x.Tensor(name="t", dtype="i32", shape=(s.i32("+", s.i32("*", Sym(name="B"), 2), 1),)),),
            "dims": (x.Dim(name="B", tensor="t", axis=0, scale=2, offset=1),),
            "scalars": (x.ScalarParam(name="f", dtype="f32"), x.ScalarParam(name="i", dtype="i32")),
        }
    )
    assert bind(kernel, {"t": (9,)}, {"t": "i32"}, {"f": 0.1, "i": 3}) == {"B": 4, "f": np.float32(0.1), "i": 3}
    for shape, scalars in (((8,), {"f": 1, "i": 3}), ((9,), {"f": 1, "i": 1 << 31}), ((9,), {"f": 1, "i": 1.5})):
        with pytest.raises(CakeError):
            bind(kernel, {"t": shape}, {"t": "i32"}, scalars)


CONDITIONS: list[tuple[x.Condition, list[int], list[int]]] = [
    (x.Condition(text="increasing(t)", form="increasing", tensor="t"), [0, 0, 2, 5], [0, 3, 2, 5]),
    (
        x.Condition(text="within(t, 0, 5)", form="within", tensor="t", args=(integer(0), integer(5))),
        [0, 4, 1, 2],
        [0, 5, 1, 2],
    ),
    (x.Condition(text="unique(t)", form="unique", tensor="t"), [3, 1, 2, 0], [3, 1, 3, 0]),
    (x.Condition(text="zero(t)", form="zero", tensor="t"), [0, 0, 0, 0], [0, 0, 1, 0]),
    (
        x.Condition(text="t[1] == 7", form="element", tensor="t", args=(integer(1), integer(7))),
        [0, 7, 0, 0],
        [7, 0, 0, 0],
    ),
]


@pytest.mark.parametrize(("condition", "good", "bad"), CONDITIONS, ids=lambda v: getattr(v, "text", ""))
def test_assumptions_are_checked(condition: x.Condition, good: list[int], bad: list[int]) -> None:
    kernel = kernel_with(condition)
    machine.run(kernel, {"t": np.array(good, np.int32), "c": s.empty("i32", 1)})
    with pytest.raises(CakeError) as caught:
        machine.run(kernel, {"t": np.array(bad, np.int32), "c": s.empty("i32", 1)})
    assert caught.value.diagnostics[0].message == f"small assumes {condition.text}"
