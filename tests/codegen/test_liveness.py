"""What is pinned: tiles computed since the last issue or wait and still needed."""

from __future__ import annotations

import re

from cake.codegen import emit
from cake.ir import expanded as x
from cake.ir.expr import integer
from tests.codegen.build import COL, ROW, ap, assign, box, buffer, cast, elems, kernel, reg, store, tile


def test_only_live_tiles_are_pinned() -> None:
    b = buffer("b", "bf16", 64, 64, swizzle=128)
    group: tuple[x.Node, ...] = (
        x.Fence(what="wgmma"),
        x.Op(
            op="wgmma",
            operands={
                "d": reg("d"),
                "a": reg("p", "bf16"),
                "b": x.Ref(base="b", subs=box((0, 64), (0, 64)), transposed=True),
            },
        ),
        x.Commit(queue="wgmma"),
        x.GroupWait(queue="wgmma", keep=0, ready=("d",)),
    )
    body = [
        assign(reg("d"), 0.0),
        assign(reg("scratch"), cast(ap("+", ROW, COL), "f32")),
        assign(reg("later"), cast(COL, "f32")),
        assign(reg("p", "bf16"), cast(reg("scratch"), "bf16")),
        x.For(var="i", lo=integer(0), hi=integer(3), step=integer(1), body=group),  # type: ignore[arg-type]
        store(x.Ref(base="y", subs=elems(ROW, COL)), ap("+", reg("d"), reg("later")), tile("f32", 64, 64)),
    ]
    tiles = {name: tile("f32", 64, 64) for name in ("d", "scratch", "later")} | {"p": tile("bf16", 64, 64)}
    k = kernel("k", body, tiles=tiles, buffers=(b, buffer("y", "f32", 64, 64, offset=8192)))
    pinned = re.findall(r"^\s+(?:pin\((\w+)\)|(wgmma_wait))", emit(k), re.MULTILINE)
    assert [a or b for a, b in pinned] == ["d", "later", "p_", "wgmma_wait", "d"]
