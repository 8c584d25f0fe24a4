"""Words for small expanded kernels: one role, some buffers, a prologue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import ml_dtypes
import numpy as np

from cake.ir import expanded as x
from cake.ir.dtypes import DTYPES, DTypeName, numpy_dtype
from cake.ir.expr import Apply, Axis, Const, Expr, Reg, Sym, integer
from cake.ir.layout import Layout, TileType

BF16 = ml_dtypes.bfloat16
FRAG = Layout(kind="frag")
ROWWISE = Layout(kind="rowwise")
PERWARP = Layout(kind="perwarp")
UNIFORM = Layout(kind="uniform")
ROW, COL, LIN = Axis(axis="row"), Axis(axis="col"), Axis(axis="lin")


def spread(vector: int) -> Layout:
    """spread(vector)."""
    return Layout(kind="spread", vector=vector)


def tile(dtype: DTypeName, rows: int, cols: int, layout: Layout) -> TileType:
    """A tile type."""
    return TileType(dtype=dtype, shape=(rows, cols), layout=layout)


def i32(op: str, *args: Expr | int) -> Expr:
    """An integer operation."""
    return Apply(op=op, args=tuple(integer(a) if isinstance(a, int) else a for a in args), dtype="i32")


def test(op: str, a: Expr | int, b: Expr | int) -> Expr:
    """A comparison of integers."""
    return Apply(op=op, args=tuple(integer(v) if isinstance(v, int) else v for v in (a, b)), dtype="bool")


def f32(value: float) -> Const:
    """An f32 literal."""
    return Const(value=value, dtype="f32")


def cast(value: Expr, dtype: DTypeName) -> Expr:
    """A cast."""
    return Apply(op="cast", args=(value,), dtype=dtype)


def box(base: str, *subs: tuple[Expr | int, int], slot: x.Slot | None = None, transposed: bool = False) -> x.Ref:
    """A block reference: (start, size) an axis; size 0 is a point."""
    made: list[x.Sub] = []
    for start, size in subs:
        at = integer(start) if isinstance(start, int) else start
        made.append(x.Range(start=at, size=size) if size else x.Point(at=at))
    return x.Ref(base=base, slot=slot, subs=tuple(made), transposed=transposed)


def elements(base: str, *subs: Expr | int, slot: x.Slot | None = None) -> x.Ref:
    """An element reference: index tiles are Elem, uniform subscripts Point."""
    made: list[x.Sub] = []
    for sub in subs:
        e = integer(sub) if isinstance(sub, int) else sub
        made.append(x.Point(at=e) if isinstance(e, Const | Sym) else x.Elem(index=e))
    return x.Ref(base=base, slot=slot, subs=tuple(made))


def op(
    name: str, type: TileType | None = None, executor: str = "lanes", completion: Any = None, **operands: Any
) -> x.Op:
    """An operation; keyword arguments starting with ``_`` are attributes."""
    attrs = {k[1:]: v for k, v in operands.items() if k.startswith("_")}
    values = {k: v for k, v in operands.items() if not k.startswith("_")}
    return x.Op.model_validate(
        {"op": name, "type": type, "executor": executor, "completion": completion, "operands": values, "attrs": attrs}
    )


def load(name: str, type: TileType, src: x.Ref, **more: Any) -> x.Op:
    """Load into a register tile."""
    return op("load", type, dst=Reg(name=name, dtype=type.dtype), src=src, **more)


def store(dst: x.Ref, value: Expr, type: TileType, **more: Any) -> x.Op:
    """Store a tile."""
    return op("store", type, dst=dst, value=value, **more)


def assign(name: str, type: TileType, value: Expr) -> x.Op:
    """Assign to a register tile."""
    return op("assign", type, dst=Reg(name=name, dtype=type.dtype), value=value)


def buffer(name: str, dtype: DTypeName, *shape: int, **more: Any) -> dict[str, Any]:
    """A buffer to be placed."""
    return {"name": name, "dtype": dtype, "shape": shape, **more}


def tensor(name: str, dtype: DTypeName, *shape: int, out: bool = False, inout: bool = False) -> x.Tensor:
    """A tensor parameter of constant shape."""
    direction: Literal["in", "out", "inout"] = "out" if out else "inout" if inout else "in"
    return x.Tensor(name=name, dtype=dtype, shape=tuple(integer(n) for n in shape), direction=direction)


def placed(buffers: list[dict[str, Any]]) -> tuple[tuple[x.Buffer, ...], int]:
    """Buffers one after another at multiples of 1024 bytes, and the bytes they take."""
    at, result = 0, []
    for b in buffers:
        shape, pad = b["shape"], b.get("pad", 0)
        item = DTYPES[b["dtype"]].bytes
        size = int(np.prod(shape[:-1], dtype=int)) * (shape[-1] + pad) * item
        size = -(-size // 1024) * 1024
        slots, instances = b.get("slots", 1), b.get("instances", 1)
        more = {"offset": at, "slot_bytes": size, "instance_bytes": size * slots, **b}
        result.append(x.Buffer.model_validate(more))
        at = max(at, more["offset"] + size * slots * instances)
    return tuple(result), at


def kernel(
    tensors: list[x.Tensor],
    body: Sequence[Any],
    *,
    warps: int = 4,
    tiles: dict[str, TileType] | None = None,
    buffers: list[dict[str, Any]] | None = None,
    barriers: dict[str, tuple[int, int]] | None = None,
    cursors: dict[str, int] | None = None,
    roles: list[x.Role] | None = None,
    cluster: int = 1,
    grid: int = 1,
    **more: Any,
) -> x.Kernel:
    """A kernel of one role ``r`` (or ``roles``). ``barriers``: name to (count, slots)."""
    made, size = placed(buffers or [])
    declared = []
    for name, (count, slots) in (barriers or {}).items():
        declared.append(x.Barrier(name=name, count=count, slots=slots, offset=size))
        size += 8 * slots
    if roles is None:
        role = x.Role(
            name="r", first_warp=0, warps=warps, var="w", tiles=tiles or {}, cursors=cursors or {}, body=tuple(body)
        )
        roles = [role]
    threads = 32 * max(r.first_warp + r.warps * r.instances for r in roles)
    entry: list[x.Stmt] = [x.Init(executor="one", barrier=b.name) for b in declared]
    if declared:
        entry.append(x.Fence(executor="one", what="mbarrier_init"))
        entry.append(x.Named(barrier="cta"))
    if cluster > 1:
        entry.append(x.Cluster())
    named = more.pop("named", ())
    return x.Kernel(
        name="small",
        target="sm_90a",
        tensors=tuple(tensors),
        positions=integer(grid),
        grid=integer(grid),
        cluster=cluster,
        threads=threads,
        shared_bytes=size,
        buffers=made,
        barriers=tuple(declared),
        named=(
            x.NamedBarrier(name="cta", id=0, threads=threads),
            x.NamedBarrier(name="r", id=1, threads=32 * roles[0].warps),
            *named,
        ),
        entry=tuple(entry),
        roles=tuple(roles),
        **more,
    )


def empty(dtype: DTypeName, *shape: int) -> Any:
    """An array for an output."""
    return np.zeros(shape, dtype=numpy_dtype(dtype))
