"""A few words for writing minimal expanded kernels, so that a litmus program shows its synchronisation and nothing
else.

Every program has the prologue that an expanded kernel has (mbarriers initialised by warp 0's elected lane, published by
``fence.mbarrier_init`` and a CTA barrier, a cluster barrier in a cluster), roles of one instance unless stated, and
one tile. Buffers are placed in order, aligned to 1024 bytes, so every swizzle is legal.
"""

from __future__ import annotations

from collections.abc import Iterable

from cake.ir import expanded as x
from cake.ir.dtypes import DTYPES, DTypeName
from cake.ir.expr import Apply, Axis, Const, Expr, Reg, Sym, boolean, integer
from cake.ir.layout import Layout, TileType

FRAG = Layout(kind="frag")
SPREAD = Layout(kind="spread", vector=1)

# ---- scalars --------------------------------------------------------------------------------------------------------


def i32(op: str, *args: Expr | int) -> Expr:
    """An integer operation."""
    return Apply(op=op, args=tuple(integer(a) if isinstance(a, int) else a for a in args), dtype="i32")


def test(op: str, left: Expr | int, right: Expr | int) -> Expr:
    """A comparison."""
    return Apply(op=op, args=tuple(integer(a) if isinstance(a, int) else a for a in (left, right)), dtype="bool")


RANK = Sym(name="%rank")
CTA = Sym(name="%cta")


def at(position: int = 0) -> x.Slot:
    """A constant ring position."""
    return x.Slot(back=position)


def cur(name: str, back: int = 0) -> x.Slot:
    """The position of a cursor, or one before it."""
    return x.Slot(cursor=name, back=back)


# ---- references -----------------------------------------------------------------------------------------------------


def box(base: str, *subs: tuple[Expr | int, int], slot: x.Slot | None = None, transposed: bool = False) -> x.Ref:
    """A block reference: one (start, size) an axis."""
    ranges = tuple(x.Range(start=integer(s) if isinstance(s, int) else s, size=n) for s, n in subs)
    return x.Ref(base=base, slot=slot, subs=ranges, transposed=transposed)


def elements(base: str, slot: x.Slot | None = None, peer: Expr | None = None) -> x.Ref:
    """The elements of a two-axis base that the statement's domain names: row and column as they are."""
    subs = (x.Elem(index=Axis(axis="row")), x.Elem(index=Axis(axis="col")))
    return x.Ref(base=base, slot=slot, subs=subs, peer=peer)


def first(base: str) -> x.Ref:
    """The first element of a two-axis base."""
    return x.Ref(base=base, subs=(x.Point(at=integer(0)), x.Point(at=integer(0))))


# ---- synchronisation ------------------------------------------------------------------------------------------------


def wait(
    barrier: str,
    slot: x.Slot,
    *,
    ahead: int = 0,
    one: bool = False,
    sem: x.Semantics = "acquire",
    scope: x.Scope = "cta",
) -> x.Wait:
    """Wait for the phase of a position."""
    return x.Wait(executor="one" if one else "lanes", barrier=barrier, slot=slot, ahead=ahead, sem=sem, scope=scope)


def arrive(
    barrier: str,
    slot: x.Slot,
    *,
    executor: x.Executor = "one",
    sem: x.Semantics = "release",
    scope: x.Scope = "cta",
    peers: tuple[int, ...] | None = None,
) -> x.Arrive:
    """One arrival."""
    return x.Arrive(executor=executor, barrier=barrier, slot=slot, sem=sem, scope=scope, peers=peers)


def expect(barrier: str, slot: x.Slot, size: int, *, arrives: bool = True) -> x.Arrive:
    """Announce bytes, arriving or not."""
    return x.Arrive(
        executor="one", barrier=barrier, slot=slot, form="arrive_expect" if arrives else "expect", bytes=size
    )


def sync(name: str, index: Expr | None = None) -> x.Named:
    """Block at a named barrier."""
    return x.Named(barrier=name, index=index)


def come(name: str, index: Expr | None = None) -> x.Named:
    """Arrive at a named barrier without blocking."""
    return x.Named(barrier=name, index=index, form="arrive")


SYNCWARP = x.SyncWarp()
CLUSTER = x.Cluster()
FENCE = x.Fence(what="async_shared")


def fence(what: str = "async_shared", executor: x.Executor = "lanes") -> x.Fence:
    """A fence by some of the threads."""
    return x.Fence.model_validate({"what": what, "executor": executor})


def commit(queue: x.Queue, executor: x.Executor = "one") -> x.Commit:
    """Close a group."""
    return x.Commit(queue=queue, executor=executor)


def gwait(
    queue: x.Queue, keep: int = 0, *, read: bool = False, executor: x.Executor = "one", ready: tuple[str, ...] = ()
) -> x.GroupWait:
    """Wait for groups."""
    return x.GroupWait(queue=queue, keep=keep, read=read, executor=executor, ready=ready)


def step(cursor: str, by: int = 1) -> x.Cursor:
    """Advance a cursor."""
    return x.Cursor(cursor=cursor, by=by)


def restart(cursor: str) -> x.Cursor:
    """Set a cursor back to 0."""
    return x.Cursor(cursor=cursor, form="set", by=0)


# ---- operations -----------------------------------------------------------------------------------------------------


def write(dst: x.Ref, width: int, value: float = 1.0, executor: x.Executor = "lanes") -> x.Op:
    """``st``: ``width`` f32 elements by the threads of the instance (or one element by one thread)."""
    tile = TileType(dtype="f32", shape=(1, width), layout=SPREAD)
    return x.Op(
        op="store", executor=executor, operands={"dst": dst, "value": Const(value=value, dtype="f32")}, type=tile
    )


def read(src: x.Ref, width: int, tile: str = "r") -> x.Op:
    """``ld``: ``width`` f32 elements by the threads of the instance."""
    kind = TileType(dtype="f32", shape=(1, width), layout=SPREAD)
    return x.Op(op="load", operands={"dst": Reg(name=tile, dtype="f32"), "src": src}, type=kind)


def read_scalar(src: x.Ref, name: str) -> x.Op:
    """``ld`` of one element, by every thread of the instance."""
    return x.Op(op="load_scalar", operands={"dst": Sym(name=name, dtype="f32"), "src": src})


def tma_load(dst: x.Ref, src: x.Ref, barrier: str, slot: x.Slot, size: int, multicast: int = 0) -> x.Op:
    """A box of a tensor into shared memory; completes as bytes."""
    attrs: dict[str, x.Attribute] = {"map": f"{src.base}.map"}
    if multicast:
        attrs["multicast"] = multicast
    done = x.ByBarrier(barrier=barrier, slot=slot, bytes=size)
    return x.Op(op="tma.load", executor="one", operands={"dst": dst, "src": src}, attrs=attrs, completion=done)


def tma_store(dst: x.Ref, src: x.Ref) -> x.Op:
    """Shared memory into a box of a tensor; joins a bulk group."""
    operands: dict[str, x.Ref | Expr] = {"dst": dst, "src": src}
    attrs: dict[str, x.Attribute] = {"map": f"{dst.base}.map"}
    return x.Op(op="tma.store", executor="one", operands=operands, attrs=attrs, completion=x.ByGroup(queue="bulk"))


def cp_async(dst: x.Ref, src: x.Ref) -> x.Op:
    """A box in 16-byte pieces by the threads of the instance; joins a cp.async group."""
    return x.Op(
        op="cp_async", operands={"dst": dst, "src": src}, attrs={"bytes": 16}, completion=x.ByGroup(queue="cp_async")
    )


def wgmma(acc: str, a: x.Ref, b: x.Ref) -> x.Op:
    """acc = a @ b, accumulators overwritten."""
    operands: dict[str, x.Ref | Expr] = {"d": Reg(name=acc, dtype="f32"), "a": a, "b": b, "use_acc": boolean(False)}
    return x.Op(op="wgmma", operands=operands, completion=x.ByGroup(queue="wgmma"))


def ldmatrix(dst: str, src: x.Ref) -> x.Op:
    """A 16-bit tile from shared memory."""
    return x.Op(op="ldmatrix", operands={"dst": Reg(name=dst, dtype="bf16"), "src": src})


def stmatrix(dst: x.Ref, value: str, shape: tuple[int, int]) -> x.Op:
    """A 16-bit tile into shared memory."""
    tile = TileType(dtype="bf16", shape=shape, layout=FRAG)
    return x.Op(op="stmatrix", operands={"dst": dst, "value": Reg(name=value, dtype="bf16")}, type=tile)


def zero(name: str, tile: TileType) -> x.Op:
    """A register tile becomes 0."""
    return x.Op(
        op="assign",
        operands={"dst": Reg(name=name, dtype=tile.dtype), "value": Const(value=0.0, dtype=tile.dtype)},
        type=tile,
    )


def signal(flag: str, value: int) -> x.Op:
    """Publish a global word."""
    return x.Op(op="signal", executor="one", operands={"flag": first(flag), "value": integer(value)})


def wait_until(flag: str, value: int) -> x.Op:
    """Spin on a global word."""
    return x.Op(op="wait_until", executor="one", operands={"flag": first(flag), "value": integer(value)})


# ---- structure ------------------------------------------------------------------------------------------------------


def loop(var: str, count: Expr | int, *body: x.Stmt) -> x.For:
    """``for var in range(count)``."""
    hi = integer(count) if isinstance(count, int) else count
    return x.For(var=var, lo=integer(0), hi=hi, step=integer(1), body=body)


def when(cond: Expr, *then: x.Stmt) -> x.If:
    """``if cond``."""
    return x.If(cond=cond, then=then)


def role(
    name: str,
    *body: x.Stmt,
    warps: int = 1,
    instances: int = 1,
    solo: bool = False,
    cursors: dict[str, int] | None = None,
    tiles: dict[str, TileType] | None = None,
) -> x.Role:
    """A role; its place among the warps is filled in by ``kernel``."""
    return x.Role(
        name=name,
        first_warp=0,
        warps=warps,
        instances=instances,
        solo=solo,
        var=f"{name}.w" if instances > 1 else None,
        cursors=cursors or {},
        tiles=tiles or {},
        body=(*body, x.Exit(reason="exit")),
    )


R32 = TileType(dtype="f32", shape=(1, 32), layout=SPREAD)
R64 = TileType(dtype="f32", shape=(1, 64), layout=SPREAD)


class Smem:
    """A shared buffer to be placed: ``shape`` elements of ``dtype`` in ``slots`` slots, or on top of ``alias``."""

    def __init__(
        self,
        shape: tuple[int, int],
        dtype: DTypeName = "f32",
        *,
        swizzle: int = 0,
        slots: int = 1,
        instances: int = 1,
        alias: str | None = None,
    ) -> None:
        self.shape, self.dtype, self.swizzle, self.slots = shape, dtype, swizzle, slots
        self.instances, self.alias = instances, alias

    @property
    def bytes(self) -> int:
        """Bytes of a slot."""
        return self.shape[0] * self.shape[1] * DTYPES[self.dtype].bytes


def kernel(
    name: str,
    roles: Iterable[x.Role],
    *,
    smem: dict[str, Smem] | None = None,
    mbarriers: dict[str, tuple[int, int]] | None = None,
    named: tuple[x.NamedBarrier, ...] = (),
    tensors: dict[str, tuple[tuple[int, int], DTypeName, str]] | None = None,
    boxes: dict[str, tuple[tuple[int, int], int]] | None = None,
    scalars: tuple[str, ...] = (),
    rings: tuple[x.Ring, ...] = (),
    cluster: int = 1,
    grid: int = 1,
    target: str = "sm_90a",
    entry: tuple[x.Stmt, ...] = (),
) -> x.Kernel:
    """Lay out warps and memory and add the prologue. ``mbarriers``: (count, slots). ``tensors``: shape, dtype,
    direction. ``boxes``: the box and swizzle of the tensor map of each tensor that the TMA uses."""
    placed: list[x.Role] = []
    warp = 0
    for r in roles:
        warp = -(-warp // 4) * 4 if r.warps == 4 else warp
        placed.append(r.model_copy(update={"first_warp": warp}))
        warp += r.warps * r.instances
    threads = 32 * warp
    where: dict[str, int] = {}
    buffers: list[x.Buffer] = []
    top = 0
    for key, s in (smem or {}).items():
        offset = where[s.alias] if s.alias else top
        where[key] = offset
        stride = -(-s.bytes // 1024) * 1024
        if not s.alias:
            top = offset + stride * s.slots * s.instances
        buffers.append(
            x.Buffer.model_validate(
                {
                    "name": key,
                    "dtype": s.dtype,
                    "shape": s.shape,
                    "swizzle": s.swizzle,
                    "slots": s.slots,
                    "instances": s.instances,
                    "offset": offset,
                    "slot_bytes": stride,
                    "instance_bytes": stride * s.slots if s.instances > 1 else 0,
                    "alias": s.alias,
                }
            )
        )
    bars: list[x.Barrier] = []
    for key, (count, slots) in (mbarriers or {}).items():
        bars.append(x.Barrier(name=key, count=count, slots=slots, offset=top))
        top += 8 * slots
    prologue: list[x.Stmt] = [x.Init(executor="one", barrier=b.name, reason="prologue") for b in bars]
    if bars:
        prologue.append(x.Fence(executor="one", what="mbarrier_init", reason="prologue"))
    prologue.append(x.Cluster(reason="prologue") if cluster > 1 else x.Named(barrier="cta", reason="prologue"))
    return x.Kernel.model_validate(
        {
            "name": name,
            "target": target,
            "tensors": tuple(
                x.Tensor.model_validate(
                    {"name": key, "dtype": d, "shape": tuple(map(integer, shape)), "direction": way}
                )
                for key, (shape, d, way) in (tensors or {}).items()
            ),
            "scalars": tuple(x.ScalarParam(name=s, dtype="i32") for s in scalars),
            "positions": integer(grid),
            "grid": integer(grid),
            "cluster": cluster,
            "threads": threads,
            "shared_bytes": top,
            "buffers": tuple(buffers),
            "barriers": tuple(bars),
            "named": (x.NamedBarrier(name="cta", id=0, threads=threads), *named),
            "rings": rings,
            "maps": tuple(
                x.TensorMap.model_validate({"name": f"{key}.map", "tensor": key, "box": b, "swizzle": swizzle})
                for key, (b, swizzle) in (boxes or {}).items()
            ),
            "entry": (*prologue, *entry),
            "roles": tuple(placed),
        }
    )
