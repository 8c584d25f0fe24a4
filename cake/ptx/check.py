"""The automaton of the expanded kernel, and its comparison with the one of the compiled code (P119).

The expanded side follows the expanded IR's own rules: which threads run a statement, ring positions modulo twice the
number of stages, slots and parities from positions, the number of hardware instructions of each operation.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from cake.diagnostics import CakeError, Diagnostic
from cake.ir import expanded as x
from cake.ir.dtypes import DTYPES
from cake.ir.expr import Apply, Expr, Reg, walk
from cake.ir.layout import TileType, register_map
from cake.ptx import shared
from cake.ptx.builder import Builder
from cake.ptx.driver import Subject, Thread, differences
from cake.ptx.flow import Operand, Program
from cake.ptx.scalars import Scalars, evaluate, remainder_of_few, several
from cake.ptx.values import SPACE, Least, Peer, Value, mul, select, word

VERSION = 4
"""Of the check: what a cache remembers as checked by another version is checked again."""

_POLICY = {
    "evict_normal": 0x1000000000000000,
    "evict_first": 0x12F0000000000000,
    "evict_last": 0x14F0000000000000,
}
"""createpolicy.fractional for the whole access (9.7.9.19)."""


IDLE = x.Role(name="(no role)", first_warp=0, warps=1, body=())
"""The role of warps between roles: they run the prologue and end."""


class Expected:
    """The reduced program of one kind of thread. ``apart``: values of remainders are told apart."""

    def __init__(self, kernel: x.Kernel, thread: Thread, stars: frozenset[str], apart: bool = False) -> None:
        self.kernel, self.thread = kernel, thread
        self.role = kernel.roles[thread.role] if thread.role < len(kernel.roles) else IDLE
        self.out = Builder()
        self.scalars = Scalars(self.out, apart)
        if self.role.var is not None:
            self.scalars.fixed[self.role.var] = thread.instance
        self.stars = stars
        self.hopper = not kernel.target.startswith("sm_8")

    def program(self) -> Program:
        """The whole run of a thread: prologue, then its role."""
        for name, values in told_apart(self.kernel).items() if self.scalars.apart else ():
            self.scalars.split(name, values)
        self._entry = True
        self.body(self.kernel.entry)
        self._entry = False
        for name in self.role.cursors:
            self.out.assign(f"cursor {name}", 0, step=False)
        body = self.role.body
        if self.role.solo:
            setup = tuple(n for n in body if isinstance(n, x.SetMaxNReg))
            self.body(setup)
            body = tuple(n for n in body if n not in setup) if self._runs("one") else ()
        self.body(body)
        self.out.event("exit", where=self.role)
        self.out.end()
        return self.out.program()

    def _runs(self, executor: x.Executor) -> bool:
        """Whether this thread runs the statements of an executor."""
        if executor == "lanes" or (self.role.solo and not self._entry):
            return True if executor == "lanes" else self.thread.elected and self.thread.first
        if executor == "warp":
            return self.thread.elected
        return self.thread.elected and (self.thread.leader if self._entry else self.thread.first)

    # -- statements ---------------------------------------------------------------------------------------------------

    def body(self, nodes: tuple[x.Stmt, ...]) -> None:
        """A list of statements."""
        for node in nodes:
            if self._runs(node.executor):
                self.statement(node)

    def statement(self, node: x.Stmt) -> None:
        """One statement."""
        out = self.out
        if isinstance(node, x.For):
            self._for(node)
        elif isinstance(node, x.If):
            self._if(node)
        elif isinstance(node, x.Let):
            self.scalars.define(node.name, node.value)
        elif isinstance(node, x.Cursor):
            self._cursor(node)
        elif isinstance(node, x.Op):
            self._op(node)
        elif isinstance(node, x.Exit):
            out.event("exit", where=node)
            out.end()
        else:
            self._sync(node)

    def _for(self, node: x.For) -> None:
        """Guard, body, step, test: the order that compilers give a loop."""
        out, scalars = self.out, self.scalars
        # a loop over a range walked before runs as that one did, if nothing of the range was set since
        guard = scalars.condition(Apply(op="<", args=(node.lo, node.hi), dtype="bool"))
        low, high = scalars.value(node.lo), scalars.value(node.hi)
        hi = out.temporary()
        out.assign(hi, high, step=False)
        scalars.forget(assigned(node.body) | {node.var})
        with out.when(guard):
            out.assign(scalars.name(node.var), low)
            head = out.open_loop()
            with scalars.scope():
                self.body(node.body)
                step = scalars.value(node.step)  # which the body may have set
            out.assign(scalars.name(node.var), scalars.plus(scalars.name(node.var), step))
            out.close_loop(head, scalars.less(scalars.name(node.var), hi))
        scalars.forget(assigned(node.body) | {node.var})

    def _if(self, node: x.If) -> None:
        condition = self.scalars.condition(node.cond)
        with self.scalars.scope(), self.out.when(condition):
            self.body(node.then)
        if node.orelse:
            with self.scalars.scope(), self.out.when(condition, otherwise=True):
                self.body(node.orelse)
        self.scalars.forget(assigned(node.then) | assigned(node.orelse))

    def _cursor(self, node: x.Cursor) -> None:
        name, period = f"cursor {node.cursor}", 2 * self.role.cursors[node.cursor]
        if node.form == "set":
            self.out.assign(name, node.by % period, step=False)
            return
        if node.form == "advance" and node.count is not None:
            count = self.scalars.value(node.count)
            moved = self.out.compute(
                lambda p, n: None if p is None or type(n) is not int else (p + n) % period, name, count
            )
            self.out.assign(name, moved, step=False)
            return
        source, by = (name, node.by) if node.form == "advance" else (f"cursor {node.source}", -node.back)
        position = self.out.compute(lambda p: None if p is None else (p + by) % period, source)
        self.out.assign(name, position, step=False)

    def _slot(self, slot: x.Slot, slots: int, offset: int, stride: int) -> Operand:
        """``offset + stride * slot``."""
        if slots == 1:
            return offset
        back = slot.back
        if slot.cursor is None:
            return offset + stride * (back % slots)
        return self.out.compute(
            lambda p: None if p is None else offset + stride * ((p - back) % slots), f"cursor {slot.cursor}"
        )

    def _barrier(self, name: str, slot: x.Slot) -> Operand:
        b = self.kernel.barrier(name)
        return self._slot(slot, b.slots, b.offset, 8)

    def _parity(self, node: x.Wait) -> Operand:
        slots, back, ahead = self.kernel.barrier(node.barrier).slots, node.slot.back, node.ahead
        if node.slot.cursor is None:
            return (back // slots + ahead) & 1
        return self.out.compute(
            lambda p: None if p is None else ((p - back) // slots + ahead) & 1, f"cursor {node.slot.cursor}"
        )

    def _sync(self, node: x.Stmt) -> None:
        """The synchronising statements."""
        out = self.out
        if isinstance(node, x.Init):
            b = self.kernel.barrier(node.barrier)
            for i in range(b.slots):
                out.event("mbarrier.init", args=(b.offset + 8 * i, b.count), where=node)
        elif isinstance(node, x.Wait):
            args = (self._barrier(node.barrier, node.slot), self._parity(node))
            out.event("mbarrier.wait", node.sem, node.scope, args=args, where=node)
        elif isinstance(node, x.Arrive):
            self._arrive(node)
        elif isinstance(node, x.Named):
            named = next(n for n in self.kernel.named if n.name == node.barrier)
            index: Operand = 0
            if node.index is not None:
                index = self.scalars.value(node.index)
            elif named.per_instance:
                index = self.thread.instance
            out.event(f"barrier.{node.form}", args=(self.scalars.plus(index, named.id), named.threads), where=node)
        elif isinstance(node, x.Cluster):
            if node.form != "wait":
                out.event("cluster.arrive", "relaxed" if node.sem == "relaxed" else "ordered", where=node)
            if node.form != "arrive":
                out.event("cluster.wait", where=node)
        elif isinstance(node, x.SyncWarp):
            out.event("warp.sync", args=(-1,), where=node)
        elif isinstance(node, x.Fence):
            self._fence(node)
        elif isinstance(node, x.Commit):
            out.event(f"{node.queue.replace('_', '.')}.commit", where=node)
        elif isinstance(node, x.GroupWait):
            reads = (("read" if node.read else "all"),) if node.queue == "bulk" else ()
            out.event(f"{node.queue.replace('_', '.')}.wait", *reads, args=(node.keep,), where=node)
        elif isinstance(node, x.SetMaxNReg):
            out.event("setmaxnreg", node.form, args=(node.count,), where=node)

    def _arrive(self, node: x.Arrive) -> None:
        at = self._barrier(node.barrier, node.slot)
        order = (node.sem, node.scope)
        if node.form == "expect":
            self.out.event("mbarrier.expect_tx", args=(at, node.bytes), where=node)
        elif node.form == "arrive_expect":
            self.out.event("mbarrier.arrive.expect_tx", *order, args=(at, node.bytes), where=node)
        elif node.peers is None:
            self.out.event("mbarrier.arrive", *order, args=(at, node.weight), where=node)
        else:
            if order == ("release", "cluster"):  # a fence, and arrivals that it makes releases (8.8)
                self.out.event("fence", "thread", "cluster", where=node)
                order = ("relaxed", "cluster")
            for rank in node.peers:
                there = self.out.compute(lambda a, rank=rank: Peer(rank, a), at)
                self.out.event("mbarrier.arrive", *order, args=(there, node.weight), where=node)

    def _fence(self, node: x.Fence) -> None:
        if node.what == "thread":
            self.out.event("fence", "thread", node.scope, where=node)
        elif self.hopper:
            name = {
                "async_shared": "proxy.async.shared::cta",
                "async_global": "proxy.async.global",
                "mbarrier_init": "mbarrier_init.release.cluster",
                "wgmma": "wgmma",
            }[node.what]
            self.out.event("fence", name, where=node)

    # -- operations ---------------------------------------------------------------------------------------------------

    def _op(self, node: x.Op) -> None:
        name, out = node.op, self.out
        if name == "tma.load":
            self._load(node)
        elif name in ("tma.store", "tma.reduce"):
            self._store(node)
        elif name == "tma.prefetch":
            for _, starts in self._boxes(node, node.ref("src"), None):
                out.event(name, f"{len(node.ref('src').subs)}d", args=(self._map(node),), where=node, extra=starts)
        elif name == "wgmma":
            self._wgmma(node)
        elif name in ("ldmatrix", "stmatrix"):
            ref = node.ref("src" if name == "ldmatrix" else "dst")
            rows, cols = self._extent(node.reg("dst")) if name == "ldmatrix" else self._domain(node)
            for _ in range(rows // (16 * self.role.warps)):
                for _ in range(cols // 16):
                    out.event(name, "x4", ref.transposed, where=node)
                if cols % 16:
                    out.event(name, "x2", ref.transposed, where=node)
            if rows % (16 * self.role.warps):  # eight rows at the end of the right operand of mma
                for _ in range(cols // 16):
                    out.event(name, "x2", ref.transposed, where=node)
        elif name == "mma":
            rows, cols = self._extent(node.reg("d"))
            depth = self._extent(node.reg("a"))[1]
            for _ in range(rows // 16 * (cols // 8) * (depth // 16)):
                out.event("mma", "m16n8k16", node.reg("a").dtype, where=node)
        elif name == "cp_async":
            count = copies(self.kernel, node, self.role.threads)
            for _ in range(count or 1):
                out.event("cp.async", args=(16,), star="cp.async" in self.stars, where=node)
            if isinstance(node.completion, x.ByBarrier):
                at = self._barrier(node.completion.barrier, node.completion.slot)
                out.event("cp.async.arrive", args=(at,), where=node)
        elif name == "atomic":
            space = "global" if self.kernel.tensor(node.ref("dst").base) else "shared"
            for _ in range(updates(node, self.role.threads) or 1):
                out.event("red", space, star="red" in self.stars, where=node)
        elif name == "signal":
            out.event("flag", "store", "release", "gpu", where=node)
        elif name == "wait_until":
            head = out.open_loop()
            out.event("flag", "load", "acquire", "gpu", where=node)
            out.close_loop(head, out.constant(None))
        elif name == "draw":
            out.event("draw", where=node)
            self.scalars.define(node.sym("dst").name, None)
        elif name == "load_scalar":
            self._load_scalar(node)

    def _load_scalar(self, node: x.Op) -> None:
        """A word of an input: known in sampled launches only."""
        dst, src = node.sym("dst"), node.ref("src")
        tensor = self.kernel.tensor(src.base)
        if tensor is None or tensor.dtype != "i32" or tensor.strided:
            self.scalars.define(dst.name, None)
            return
        index: Operand = 0
        for sub, extent in zip(src.subs, tensor.shape, strict=True):
            scaled = self.out.compute(mul(64), index, self.scalars.value(extent))
            index = self.scalars.plus(scaled, self.scalars.value(_at(sub)))
        base = (self.kernel.tensors.index(tensor) + 1) << SPACE
        value = self.out.compute(lambda i: word(base + 4 * i) if type(i) is int else None, index)
        if (where := node.expr("where")) is not None:
            other = node.expr("other")
            rest: Operand = self.scalars.value(other) if other is not None else 0
            value = self.out.compute(select, value, rest, self.scalars.condition(where))
        self.scalars.define(dst.name, value)

    def _extent(self, reg: Reg) -> tuple[int, int]:
        """Rows and columns of a register tile or of its part."""
        tile: TileType = self.role.tiles[reg.name]
        rows = reg.rows[1] - reg.rows[0] if reg.rows else tile.rows
        cols = reg.cols[1] - reg.cols[0] if reg.cols else tile.cols
        return rows, cols

    def _domain(self, node: x.Op) -> tuple[int, int]:
        assert node.type is not None
        rows, cols = node.type.shape[-2:]
        return rows, cols

    def _start(self, ref: x.Ref, moved: dict[int, int] | None = None) -> Operand:
        """Shared address of the block that a reference names, each axis moved by so much."""
        b = self.kernel.buffer(ref.base)
        size = DTYPES[b.dtype].bytes
        base = b.offset + (b.instance_bytes * self.thread.instance if b.instances > 1 else 0)
        slot = self._slot(ref.slot, b.slots, base, b.slot_bytes) if ref.slot is not None else base
        starts: list[Operand] = []
        for n, s in enumerate(ref.subs):
            at = self.scalars.value(_at(s))
            starts.append(self.scalars.plus(at, (moved or {}).get(n, 0)))

        def address(slot: Value, *index: Value) -> Value:
            if not all(type(i) is int for i in (slot, *index)):
                return None
            return slot + shared.tile_offset(b.shape, index, size, b.swizzle, b.pad)

        at = self.out.compute(address, slot, *starts)
        if ref.peer is None:
            return at
        return self.out.compute(lambda a, rank: Peer(rank, a), at, self.scalars.value(ref.peer))

    def _map(self, node: x.Op) -> Operand:
        number = [m.name for m in self.kernel.maps].index(str(node.attrs["map"]))
        return self.out.constant(f"map {number}")

    def _boxes(self, node: x.Op, tensor: x.Ref, ref: x.Ref | None) -> list[tuple[Operand, tuple[Operand, ...]]]:
        """The shared address and the coordinates (from the last axis to the first) of each box of a copy."""
        box = next(m.box for m in self.kernel.maps if m.name == node.attrs["map"])
        sizes = [s.size if isinstance(s, x.Range) else 1 for s in tensor.subs]
        kept = [n for n, s in enumerate(tensor.subs) if isinstance(s, x.Range)]
        starts = [self.scalars.value(_at(s)) for s in tensor.subs]
        out: list[tuple[Operand, tuple[Operand, ...]]] = []
        for steps in itertools.product(*(range(math.ceil(n / b)) for n, b in zip(sizes, box, strict=True))):
            moved = [self.scalars.plus(a, n * b) for a, n, b in zip(starts, steps, box, strict=True)]
            coordinates = tuple(reversed(moved))
            if ref is None:
                out.append((0, coordinates))
                continue
            if not any(steps):
                out.append((self._start(ref), coordinates))
                continue
            ranges = [n for n, s in enumerate(ref.subs) if isinstance(s, x.Range)]
            pairs = list(zip(kept, ranges, strict=False))
            if len(kept) != len(ranges):
                wide = [n for n in kept if sizes[n] > 1]
                pairs = list(zip(wide, [n for n in ranges if _size(ref.subs[n]) > 1], strict=True))
            at = self._start(ref, {there: steps[here] * box[here] for here, there in pairs})
            out.append((at, coordinates))
        return out

    def _policy(self, node: x.Op) -> tuple[str, tuple[Operand, ...]]:
        hint = node.attrs.get("l2")
        return ("hint", (_POLICY[str(hint)],)) if hint is not None else ("no hint", ())

    def _load(self, node: x.Op) -> None:
        assert isinstance(node.completion, x.ByBarrier)
        mask = int(node.attrs.get("multicast", 0))
        hint, policy = self._policy(node)
        barrier, source = self._barrier(node.completion.barrier, node.completion.slot), self._map(node)
        for address, at in self._boxes(node, node.ref("src"), node.ref("dst")):
            args = (address, source, barrier, *((mask,) if mask else ()), *policy)
            kind = "multicast" if mask else "own"
            rank = f"{len(node.ref('src').subs)}d"
            self.out.event("tma.load", rank, kind, hint, args=args, where=node, extra=at)

    def _store(self, node: x.Op) -> None:
        hint, policy = self._policy(node)
        kind = str(node.attrs["function"]) if node.op == "tma.reduce" else "store"
        for address, at in self._boxes(node, node.ref("dst"), node.ref("src")):
            args = (self._map(node), address, *policy)
            rank = f"{len(node.ref('dst').subs)}d"
            self.out.event("tma.store", rank, kind, hint, args=args, where=node, extra=at)

    def _wgmma(self, node: x.Op) -> None:
        """One instruction for each block of 64 rows and each 32 bytes of K (9.7.15.5)."""
        a, b = node.operands["a"], node.ref("b")
        rows, cols = self._extent(node.reg("d"))
        buffer = self.kernel.buffer(b.base)
        size = DTYPES[buffer.dtype].bytes
        kind = {"f32": "tf32"}.get(buffer.dtype, buffer.dtype)
        left = _Matrix(self, a, not a.transposed) if isinstance(a, x.Ref) else None
        right = _Matrix(self, b, b.transposed)
        flags = [1, 1]
        if size == 2:
            flags += [*([int(not left.k_major)] if left is not None else []), int(not right.k_major)]
        use: Operand = 1
        if (given := node.expr("use_acc")) is not None:
            use = self.scalars.condition(given)
        for m in range(rows // 64):
            for k in range(right.steps):
                keeps = True if k > 0 or use == 1 else use
                parts = (left.at(m, k),) if left is not None else ()
                self.out.event(
                    "wgmma", f"m64n{cols}k{32 // size}", kind, "registers" if left is None else "shared", *flags,
                    args=(keeps, *parts, right.at(0, k)), where=node,
                )  # fmt: skip


class _Matrix:
    """A shared operand of a wgmma."""

    def __init__(self, expected: Expected, ref: x.Ref, k_major: bool) -> None:
        b = expected.kernel.buffer(ref.base)
        self.size, self.swizzle, self.k_major = DTYPES[b.dtype].bytes, b.swizzle, k_major
        self.panel = math.prod(b.shape[:-1]) * b.swizzle
        kept = [s.size for s in ref.subs if isinstance(s, x.Range)]
        extent = _size(ref.subs[-1]) if k_major else math.prod(kept[:-1])
        self.steps = extent * self.size // 32
        self._start, self._out = expected._start(ref), expected.out

    def at(self, m: int, k: int) -> Operand:
        """The descriptor of block ``m`` at step ``k``."""
        form = (self.k_major, self.size, self.swizzle, self.panel)
        offset = shared.block_offset(m, *form) + shared.step_offset(k, *form)
        leading = 0 if self.k_major else self.panel
        return self._out.compute(
            lambda a: shared.descriptor(a + offset, leading, self.swizzle) if type(a) is int else None, self._start
        )


def _at(sub: x.Sub) -> Expr:
    """Where a subscript of a block operation starts."""
    assert isinstance(sub, x.Point | x.Range), "an index tile in a block operation"
    return sub.start if isinstance(sub, x.Range) else sub.at


def _size(sub: x.Sub) -> int:
    return sub.size if isinstance(sub, x.Range) else 1


def copies(kernel: x.Kernel, node: x.Op, threads: int) -> int | None:
    """Instructions a thread of a cp_async; None where they differ between threads."""
    dst = node.ref("dst")
    pieces = math.prod(_size(s) for s in dst.subs) * DTYPES[kernel.buffer(dst.base).dtype].bytes // 16
    return None if pieces % threads else pieces // threads


def updates(node: x.Op, threads: int) -> int | None:
    """Instructions a thread of an atomic; None where they differ between threads or depend on a predicate."""
    t = node.type
    if t is None or node.expr("where") is not None or t.rows == 1 or t.cols in (1, 4):
        return None
    whole = t.layout.kind == "spread" and t.rows * t.cols % (threads * t.layout.vector) == 0
    if not whole and t.layout.kind not in ("frag", "rowwise"):
        return None
    if any(isinstance(n, Reg) for s in node.ref("dst").subs if isinstance(s, x.Elem) for n in walk(s.index)):
        return None  # vectors where the index is known not to change along one, elements otherwise
    return register_map(t, threads).count // int(node.attrs.get("vector") or 1)


def varying(kernel: x.Kernel) -> frozenset[str]:
    """The operations of which only the presence is compared, because a thread's number of instructions varies."""
    out: set[str] = set()
    for role in kernel.roles:
        for node in _statements(role.body):
            if not isinstance(node, x.Op):
                continue
            if node.op == "cp_async" and copies(kernel, node, role.threads) is None:
                out.add("cp.async")
            if node.op == "atomic" and updates(node, role.threads) is None:
                out.add("red")
    return frozenset(out)


def _statements(body: tuple[x.Stmt, ...]) -> Iterator[x.Stmt]:
    """Every statement, also inside loops and conditions."""
    for node in body:
        yield node
        if isinstance(node, x.For):
            yield from _statements(node.body)
        elif isinstance(node, x.If):
            yield from _statements(node.then + node.orelse)


def told_apart(kernel: x.Kernel) -> dict[str, tuple[Value, ...]]:
    """Values of coordinates and launch parameters that a program compares with several constants: each of these, and what is
    beyond."""
    names = {"%cta", "%rank"} | {d.name for d in kernel.dims} | {s.name for s in kernel.scalars if s.dtype == "i32"}
    bodies = (kernel.entry, *(r.body for r in kernel.roles))
    found = several((n.cond for body in bodies for n in _statements(body) if isinstance(n, x.If)), names)
    return {
        name: tuple(range(kernel.cluster)) if name == "%rank" else (*range(most + 1), Least(most + 1))
        for name, most in found.items()
    }


def assigned(body: tuple[x.Stmt, ...]) -> set[str]:
    """Scalars that statements set."""
    out: set[str] = set()
    for node in _statements(body):
        if isinstance(node, x.Let):
            out.add(node.name)
        elif isinstance(node, x.For):
            out.add(node.var)
        elif isinstance(node, x.Op) and node.op == "load_scalar":
            out.add(node.sym("dst").name)
    return out


# ---- the comparison -------------------------------------------------------------------------------------------------


def thread_of(kernel: x.Kernel, warp: int, elected: bool) -> Thread:
    """What a thread of a warp is in the expanded kernel. Warps between roles that none of them has belong to ``IDLE``."""
    for n, role in enumerate(kernel.roles):
        within = warp - role.first_warp
        if 0 <= within < role.warps * role.instances:
            return Thread(n, within // role.warps, within % role.warps == 0, warp == 0, elected)
    return Thread(len(kernel.roles), 0, False, warp == 0, elected)


def subject(kernel: x.Kernel) -> Subject:
    """What the comparison needs to know of a kernel."""

    stars = varying(kernel)

    def expected(thread: Thread, apart: bool = False) -> Program:
        return Expected(kernel, thread, stars, apart).program()

    # The launch passes tensors, scalars, dims, strides and maps, in that order.
    return Subject(
        name=kernel.name,
        span=kernel.span,
        warps=kernel.threads // 32,
        elects=not kernel.target.startswith("sm_8"),
        cluster=kernel.cluster,
        tensors=len(kernel.tensors),
        scalars=[*(s.name for s in kernel.scalars), *(d.name for d in kernel.dims)],
        sampled=[*(s.name for s in kernel.scalars if s.dtype == "i32"), *(d.name for d in kernel.dims)],
        thread=lambda warp, elected: thread_of(kernel, warp, elected),
        expected=expected,
        apart=bool(told_apart(kernel))
        or any(
            isinstance(n, x.Let) and remainder_of_few(n.value) for role in kernel.roles for n in _statements(role.body)
        ),
        stars=stars,
        positions=lambda known: evaluate(kernel.positions, known),
        roles=[(role.name, role.span or kernel.span) for role in (*kernel.roles, IDLE)],
    )


def check(kernel: x.Kernel, ptx: str) -> list[Diagnostic]:
    """Findings of the translation: for each role the first kind of thread whose compiled code may do another sequence
    of synchronising and data-moving instructions than the expanded kernel, or may not do one that it does."""
    return differences(subject(kernel), ptx)


def require(kernel: x.Kernel, ptx: str) -> None:
    """CakeError where the compiled code does not say what the kernel says."""
    found = check(kernel, ptx)
    if found:
        raise CakeError(*found)
