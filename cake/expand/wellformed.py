"""What an expanded kernel must have before any reader takes it: names that exist, operands that their rows ask for.

Expansion gives nothing else; a kernel written or changed by hand as JSON may. Whether its protocol is right is not
asked here: such kernels are what the machine and the verifier are tried on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from cake.diagnostics import Span
from cake.expand.prune import flatten
from cake.ir import expanded as x
from cake.ir.dtypes import DTYPES
from cake.ir.elementwise import ELEMENTWISE
from cake.ir.expr import Apply, Expr, Reg, Sym, walk
from cake.ir.ops import OPS

BUILT_IN = {"%cta", "%grid", "%rank", "%sms", "%resident", "%clusters"}

MOST_THREADS, MOST_SHARED, MOST_CTAS = 4096, 1 << 20, 64
"""Far past every device: what a target offers is checked elsewhere; these keep a reader from counting for ever."""


def problems(kernel: x.Kernel) -> list[str]:
    """What is wrong, one sentence each; none for every kernel that expansion made."""
    return list(dict.fromkeys(_Check(kernel).run()))


class _Check:
    def __init__(self, kernel: x.Kernel) -> None:
        self.k = kernel
        self.host = {d.name for d in kernel.dims} | {s.name for s in kernel.scalars} | set(kernel.constants) | BUILT_IN
        self.barriers = {b.name for b in kernel.barriers}
        self.named = {n.name for n in kernel.named}
        self.maps = {m.name: m for m in kernel.maps}
        self.ranks = {b.name: len(b.shape) for b in kernel.buffers} | {t.name: len(t.shape) for t in kernel.tensors}
        self.tiles: set[str] = set()
        self.cursors: set[str] = set()
        self.scalars: set[str] = set()

    def run(self) -> Iterator[str]:
        yield from self.declarations()
        yield from self.body("the entry", self.k.entry)
        for role in self.k.roles:
            self.tiles, self.cursors = set(role.tiles), set(role.cursors)
            self.scalars = self.host | set(_defined(role.body)) | ({role.var} if role.var else set())
            yield from self.body(f"role {role.name}", role.body)

    def declarations(self) -> Iterator[str]:
        k = self.k
        kinds: dict[str, Iterable[str]] = {
            "parameter or buffer": [p.name for group in (k.tensors, k.scalars, k.buffers) for p in group],
            "mbarrier": [b.name for b in k.barriers],
            "named barrier": [n.name for n in k.named],
            "tensor map": [m.name for m in k.maps],
            "role": [r.name for r in k.roles],
        }
        for kind, names in kinds.items():
            yield from (f"the {kind} `{n}` is declared twice" for n, count in Counter(names).items() if count > 1)
        for d in k.dims:
            tensor = k.tensor(d.tensor)
            if tensor is None or not 0 <= d.axis < len(tensor.shape) or d.scale == 0:
                yield f"dim `{d.name}` cannot be read from axis {d.axis} of `{d.tensor}`"
        for m in k.maps:
            if (t := k.tensor(m.tensor)) is None or len(m.box) != len(t.shape):
                yield f"tensor map `{m.name}` has no tensor `{m.tensor}` with {len(m.box)} axes"
        for e in (k.positions, k.grid, *(e for t in k.tensors for e in t.shape), *(g.expr for g in k.guards if g.expr)):
            yield from self.expression("the launch", e, self.host)
        yield from self.memory()
        yield from self.warps()

    def memory(self) -> Iterator[str]:
        for b in self.k.buffers:
            tile = DTYPES[b.dtype].bytes
            for extent in b.shape[:-1]:
                tile *= extent
            tile *= (b.shape[-1] if b.shape else 1) + b.pad
            end = b.offset + (b.instances - 1) * b.instance_bytes + (b.slots - 1) * b.slot_bytes + tile
            if b.offset < 0 or min(b.shape, default=1) < 1 or b.slots < 1 or end > self.k.shared_bytes:
                yield f"buffer `{b.name}` ends at {end}, outside the {self.k.shared_bytes} bytes of shared memory"
        for m in self.k.barriers:
            if m.slots < 1 or m.count < 1 or m.offset < 0 or m.offset + 8 * m.slots > self.k.shared_bytes:
                yield f"mbarrier `{m.name}` needs a count, slots and 8 bytes a slot inside shared memory"

    def warps(self) -> Iterator[str]:
        if not self.k.roles or self.k.threads < 32 or self.k.threads % 32 or self.k.threads > MOST_THREADS:
            yield f"{self.k.threads} threads are no whole warps of a role"
        if not 0 <= self.k.shared_bytes <= MOST_SHARED or not 1 <= self.k.cluster <= MOST_CTAS:
            yield f"no device has {self.k.shared_bytes} bytes of shared memory and clusters of {self.k.cluster} CTAs"
        owner: dict[int, str] = {}
        for r in self.k.roles:
            if r.warps < 1 or r.instances < 1 or r.warps * r.instances > MOST_THREADS // 32:
                yield f"role `{r.name}` cannot have {r.instances} instances of {r.warps} warps"
                continue
            for w in range(r.first_warp, r.first_warp + r.warps * r.instances):
                if w in owner or not 0 <= w < self.k.threads // 32:
                    yield f"warp {w} of role `{r.name}` is outside the CTA or belongs to another role"
                owner[w] = r.name
            barriers = [n for n in flatten(r.body) if isinstance(n, x.Named | x.Cluster)]
            if any(r.solo or n.executor != "lanes" for n in barriers):
                yield f"one lane of role `{r.name}` comes to a barrier, which takes whole warps (PTX ISA, .aligned)"

    # ---- programs ---------------------------------------------------------------------------------------------------

    def body(self, place: str, body: Sequence[x.Stmt]) -> Iterator[str]:
        for s in body:
            where = f"{place}{_line(s.span)}: {s.kind}"
            yield from self.statement(where, s)
            if isinstance(s, x.For):
                yield from self.body(place, s.body)
            elif isinstance(s, x.If):
                yield from self.body(place, s.then)
                yield from self.body(place, s.orelse)

    def statement(self, where: str, s: x.Stmt) -> Iterator[str]:
        if isinstance(s, x.Init | x.Wait | x.Arrive):
            yield from self.name(where, "mbarrier", s.barrier, self.barriers)
        if isinstance(s, x.Wait | x.Arrive):
            yield from self.slot(where, s.slot)
        if isinstance(s, x.Arrive) and any(not 0 <= rank < self.k.cluster for rank in s.peers or ()):
            yield f"{where}: a cluster of {self.k.cluster} CTAs lacks a rank of {list(s.peers or ())}"
        if isinstance(s, x.Named):
            yield from self.name(where, "named barrier", s.barrier, self.named)
        if isinstance(s, x.Cursor):
            yield from self.name(where, "cursor", s.cursor, self.cursors)
            if s.form == "copy":
                yield from self.name(where, "cursor", s.source or "", self.cursors)
        expressions: list[Expr | None] = []
        if isinstance(s, x.For):
            expressions = [s.lo, s.hi, s.step]
        elif isinstance(s, x.If):
            expressions = [s.cond]
        elif isinstance(s, x.Let):
            expressions = [s.value]
        elif isinstance(s, x.Named):
            expressions = [s.index]
        elif isinstance(s, x.Op):
            yield from self.operation(f"{where.removesuffix('op')}{s.op}", s)
        for e in expressions:
            if e is not None:
                yield from self.expression(where, e, self.scalars)

    def operation(self, where: str, s: x.Op) -> Iterator[str]:
        row = OPS.get(s.op)
        if row is None:
            yield f"{where}: there is no such operation"
            return
        yield from (f"{where} lacks the operand `{n}`" for n in row.operands if n not in s.operands)
        allowed = {*row.operands, *row.optional, "index"}
        yield from (f"{where} has no operand `{n}`" for n in s.operands if n not in allowed)
        mask = s.attrs.get("multicast", 0)
        if not isinstance(mask, int) or mask >> self.k.cluster:
            yield f"{where}: multicast mask {mask} names ranks past a cluster of {self.k.cluster} CTAs"
        if "map" in s.attrs:
            yield from self.name(where, "tensor map", str(s.attrs["map"]), self.maps)
        elif "map" in row.attrs:
            yield f"{where} lacks its tensor map"
        if isinstance(s.completion, x.ByBarrier):
            yield from self.name(where, "mbarrier", s.completion.barrier, self.barriers)
            yield from self.slot(where, s.completion.slot)
        elif s.completion is None and row.completes and s.op != "cp_async":
            yield f"{where} does not say what its completion signals"
        for value in s.operands.values():
            if isinstance(value, x.Ref):
                yield from self.reference(where, value)
            else:
                yield from self.expression(where, value, self.scalars)

    def reference(self, where: str, ref: x.Ref) -> Iterator[str]:
        rank = self.ranks.get(ref.base)
        if rank is None:
            yield f"{where}: there is no tensor or buffer `{ref.base}`"
        elif len(ref.subs) != rank:
            yield f"{where}: `{ref.base}` has {rank} axes and {len(ref.subs)} subscripts"
        if ref.slot is not None:
            yield from self.slot(where, ref.slot)
        for sub in ref.subs:
            e = sub.at if isinstance(sub, x.Point) else sub.start if isinstance(sub, x.Range) else sub.index
            yield from self.expression(where, e, self.scalars)

    def expression(self, where: str, e: Expr, scalars: set[str]) -> Iterator[str]:
        for node in walk(e):
            if isinstance(node, Sym):
                yield from self.name(where, "scalar", node.name, scalars)
            elif isinstance(node, Reg):
                yield from self.name(where, "register tile", node.name, self.tiles)
            elif isinstance(node, Apply):
                row = ELEMENTWISE.get(node.op)
                if row is None or row.arity != len(node.args):
                    yield f"{where}: there is no `{node.op}` of {len(node.args)} values"

    def slot(self, where: str, slot: x.Slot) -> Iterator[str]:
        if slot.cursor is not None:
            yield from self.name(where, "cursor", slot.cursor, self.cursors)

    def name(self, where: str, kind: str, name: str, known: Iterable[str]) -> Iterator[str]:
        if name not in known:
            yield f"{where}: there is no {kind} `{name}`"


def _line(span: Span | None) -> str:
    return f", line {span.line}" if span is not None else ""


def _defined(body: Sequence[x.Stmt]) -> Iterator[str]:
    """Scalars that some statement of a body gives a value."""
    for s in body:
        if isinstance(s, x.Let):
            yield s.name
        elif isinstance(s, x.For):
            yield s.var
            yield from _defined(s.body)
        elif isinstance(s, x.If):
            yield from _defined(s.then)
            yield from _defined(s.orelse)
        elif isinstance(s, x.Op):
            yield from (v.name for v in s.operands.values() if isinstance(v, Sym))
