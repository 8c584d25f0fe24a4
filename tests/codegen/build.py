"""Small expanded kernels, one operation form each: what the emitter must be able to say, compiled in test_forms.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cake.ir import expanded as x
from cake.ir.dtypes import DTYPES
from cake.ir.expr import Apply, Axis, Const, Expr, Reg, Sym, boolean, integer
from cake.ir.layout import Layout, TileType

FRAG, ROWWISE = Layout(kind="frag"), Layout(kind="rowwise")
PERWARP, UNIFORM = Layout(kind="perwarp"), Layout(kind="uniform")
ROW, COL, LIN = Axis(axis="row"), Axis(axis="col"), Axis(axis="lin")


def spread(v: int) -> Layout:
    """The layout spread(v)."""
    return Layout(kind="spread", vector=v)


def tile(dtype: str, *shape: int, layout: Layout = FRAG) -> TileType:
    """A tile type."""
    return TileType(dtype=dtype, shape=shape, layout=layout)  # type: ignore[arg-type]


def f32(value: float) -> Const:
    """An f32 literal."""
    return Const(value=value, dtype="f32")


def sym(name: str, dtype: str = "i32") -> Sym:
    """A scalar."""
    return Sym(name=name, dtype=dtype)  # type: ignore[arg-type]


def as_expr(value: Expr | int | float) -> Expr:
    """Numbers become literals."""
    if isinstance(value, bool):
        return boolean(value)
    if isinstance(value, int):
        return integer(value)
    return f32(value) if isinstance(value, float) else value


_BOOL = ("==", "!=", "<", "<=", ">", ">=", "and", "or", "not")


def ap(op: str, *args: Expr | int | float, dtype: str | None = None) -> Apply:
    """An elementwise operation; the dtype is the operands' unless the op or ``dtype`` says otherwise."""
    exprs = tuple(as_expr(a) for a in args)
    kind = dtype or ("bool" if op in _BOOL else exprs[1 if op == "where" else 0].dtype)
    return Apply(op=op, args=exprs, dtype=kind)  # type: ignore[arg-type]


def cast(value: Expr, dtype: str) -> Apply:
    """A cast."""
    return ap("cast", value, dtype=dtype)


def reg(name: str, dtype: str = "f32", **part: Any) -> Reg:
    """A register tile."""
    return Reg(name=name, dtype=dtype, **part)  # type: ignore[arg-type]


def let(name: str, value: Expr | int, dtype: str = "i32") -> x.Let:
    """A scalar definition."""
    return x.Let(name=name, dtype=dtype, value=as_expr(value))  # type: ignore[arg-type]


def box(*subs: tuple[Expr | int, int]) -> tuple[x.Sub, ...]:
    """Slices."""
    return tuple(x.Range(start=as_expr(s), size=n) for s, n in subs)


def elems(*subs: Expr | int) -> tuple[x.Sub, ...]:
    """Subscripts: index tiles where they have an axis or register leaf, points otherwise."""
    from cake.ir.expr import is_scalar

    exprs = [as_expr(s) for s in subs]
    return tuple(x.Point(at=e) if is_scalar(e) else x.Elem(index=e) for e in exprs)


def assign(dst: Reg, value: Expr | int | float) -> x.Op:
    """dst = value."""
    return x.Op(op="assign", operands={"dst": dst, "value": as_expr(value)})


def load(dst: Reg, src: x.Ref, where: Expr | None = None, other: Expr | None = None, **attrs: Any) -> x.Op:
    """dst = load(src)."""
    operands: dict[str, Any] = {"dst": dst, "src": src}
    operands |= {k: v for k, v in (("where", where), ("other", other)) if v is not None}
    return x.Op(op="load", operands=operands, attrs=attrs)


def store(dst: x.Ref, value: Expr, type: TileType | None, where: Expr | None = None, **attrs: Any) -> x.Op:
    """store(dst, value)."""
    operands: dict[str, Any] = {"dst": dst, "value": value} | ({"where": where} if where is not None else {})
    return x.Op(op="store", operands=operands, type=type, attrs=attrs)


def reduce(dst: Reg, value: Expr, type: TileType, function: str = "sum", axis: int = 1, scope: str = "warp") -> x.Op:
    """dst = function(value, axis)."""
    attrs: dict[str, Any] = {"function": function, "axis": axis, "scope": scope}
    return x.Op(op="reduce", operands={"dst": dst, "value": value}, type=type, attrs=attrs)


def tensor(name: str, dtype: str, *shape: Expr | int | str, out: bool = False, strided: bool = False) -> x.Tensor:
    """A tensor parameter; strings name dims."""
    extents = tuple(sym(s) if isinstance(s, str) else as_expr(s) for s in shape)
    return x.Tensor(name=name, dtype=dtype, shape=extents, direction="out" if out else "in", strided=strided)  # type: ignore[arg-type]


def buffer(name: str, dtype: str, *shape: int, offset: int = 0, **more: Any) -> x.Buffer:
    """A shared buffer."""
    size = DTYPES[dtype].bytes * (shape[-1] + more.get("pad", 0))
    for n in shape[:-1]:
        size *= n
    slots = more.get("slots", 1)
    return x.Buffer(
        name=name,
        dtype=dtype,  # type: ignore[arg-type]
        shape=shape,
        offset=offset,
        slot_bytes=size,
        instance_bytes=size * slots,
        **more,  # type: ignore[arg-type]
    )


def kernel(
    name: str,
    body: Sequence[x.Node],
    *,
    tensors: tuple[x.Tensor, ...] = (),
    tiles: dict[str, TileType] | None = None,
    buffers: tuple[x.Buffer, ...] = (),
    warps: int = 4,
    instances: int = 1,
    target: str = "sm_90a",
    cursors: dict[str, int] | None = None,
    solo: bool = False,
    **more: Any,
) -> x.Kernel:
    """A kernel of one role that runs ``body`` once."""
    dims: dict[str, x.Dim] = {}
    for t in tensors:
        for axis, extent in enumerate(t.shape):
            if isinstance(extent, Sym):
                dims.setdefault(extent.name, x.Dim(name=extent.name, tensor=t.name, axis=axis))
    shared = max((b.offset + b.instance_bytes * b.instances for b in buffers), default=0)
    role = x.Role(
        name="work",
        first_warp=0,
        warps=warps,
        instances=instances,
        var="w" if instances > 1 else None,
        solo=solo,
        tiles=tiles or {},
        cursors=cursors or {},
        body=(*body, x.Exit(reason="exit")),  # type: ignore[arg-type]
    )
    one = integer(1)
    return x.Kernel(
        name=name,
        target=target,
        tensors=tensors,
        dims=tuple(dims.values()),
        positions=one,
        grid=one,
        threads=32 * warps * instances,
        shared_bytes=shared + 8 * sum(b.slots for b in more.get("barriers", ())),
        buffers=buffers,
        roles=(role,),
        **more,
    )
