"""The op table: every operation once, with its operands, its effects and the hardware it runs on.

Readers: the checker and expander (names, targets), the machine (effects), the cost model (resource), the emitter (PTX), the
documentation (generated from here). The typing rule, the NumPy meaning and the CUDA emission are registered under the op's
name elsewhere (``cake.expand``, ``cake.machine``, ``cake.codegen``); a test holds the key sets equal.

Effects are per warp and say which operand is read or written, through which proxy, and when: at ``issue``, or at the
operation's later completion ("done"). Sources are sections of the PTX ISA 9.0.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from cake.ir.expanded import Executor, Queue

Mode = Literal["r", "w", "rw"]
Proxy = Literal["generic", "async", "register"]
Time = Literal["issue", "done"]
Width = Literal["thread", "warp", "warpgroup"]

AMPERE = frozenset({"sm_80", "sm_86", "sm_89"})
HOPPER = frozenset({"sm_90a"})
BLACKWELL = frozenset({"sm_100a"})
ALL = AMPERE | HOPPER | BLACKWELL
TMA_TARGETS = HOPPER | BLACKWELL


@dataclass(frozen=True)
class Effect:
    """One access. ``operand`` names the operand; registers have proxy "register"."""

    operand: str
    mode: Mode
    proxy: Proxy = "generic"
    time: Time = "issue"


@dataclass(frozen=True)
class OpRow:
    """One operation of the expanded IR.

    ``surface``: how authors write it (empty: derived only). ``executor``: who executes it. ``width``: the threads that must
    execute it together (a collective joins its members' control order). ``completes``: the queue or "barrier" its completion
    signals, None if it is synchronous. ``resource``: what it occupies, for the cost model.

    How far the NumPy meaning and the hardware may differ, for ``reason``: not at all (both bounds 0), or, where floats are
    added up, by ``roundings`` units of 2^-23 (``narrow_roundings`` where the operands have 8 bits) of the sum of the addends'
    magnitudes for each addend. A result narrower than f32 is rounded once more.
    """

    name: str
    summary: str
    operands: tuple[str, ...]
    effects: tuple[Effect, ...]
    surface: str = ""
    attrs: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    executor: Executor = "lanes"
    width: Width = "thread"
    targets: frozenset[str] = ALL
    completes: tuple[Queue | Literal["barrier"], ...] = ()
    resource: str = "issue"
    roundings: float = 0
    narrow_roundings: float = 0
    reason: str = "moves bits"
    ptx: str = ""
    isa: str = ""
    notes: tuple[str, ...] = field(default=())


def _r(operand: str, proxy: Proxy = "generic", time: Time = "issue") -> Effect:
    return Effect(operand, "r", proxy, time)


def _w(operand: str, proxy: Proxy = "generic", time: Time = "issue") -> Effect:
    return Effect(operand, "w", proxy, time)


_F32_SUM = (
    "products are exact in f32, sums come in another order; tensor cores align the addends of a step to the greatest and truncate, "
    "one unit an addend (8-bit operands: to 13 bits of mantissa on Hopper)"
)
_ATOMIC_SUM = "the order of float additions differs between runs; global f32 additions flush subnormals (PTX ISA, red)"

OPS: dict[str, OpRow] = {
    row.name: row
    for row in (
        # -- registers ------------------------------------------------------------------------------------------------
        OpRow(
            "assign",
            "An elementwise expression into a register tile.",
            ("dst", "value"),
            (_r("value", "register"), _w("dst", "register")),
            surface="name = expression",
            resource="alu",
            reason="each operation's own bound (elementwise table)",
        ),
        OpRow(
            "reduce",
            "Sum, minimum or maximum along one axis: within a thread (scope thread, one partial value a thread), or within the "
            "threads of a warp that share the axis (scope warp).",
            ("dst", "value"),
            (_r("value", "register"), _w("dst", "register")),
            surface="sum|max|min(x, axis=a[, to=P])",
            attrs=("function", "axis", "scope"),
            resource="alu",
            roundings=1,
            reason="sums in f32, in another order: each adds half an ulp an addend; narrower types are rounded at the end; min and max "
            "are exact, with NaN and zeros as in the elementwise table",
            ptx="shfl.sync.bfly.b32",
            isa="9.7.9.6 shfl.sync",
        ),
        OpRow(
            "argreduce",
            "The extremum along the columns and the lowest column that attains it, within the threads of a warp that share a row.",
            ("dst", "index", "value"),
            (_r("value", "register"), _w("dst", "register"), _w("index", "register")),
            surface="value, column = argmax|argmin(x, axis=1)",
            attrs=("function", "scope"),
            resource="alu",
            reason="exact; the sign of a zero is that of any of the zeros that tie",
            notes=("NaN never wins; in a row of NaN and of the worst value only, the column is any",),
            ptx="shfl.sync.bfly.b32",
            isa="9.7.9.6 shfl.sync",
        ),
        OpRow(
            "track",
            "A running extremum, one partial value a thread: where a column of `value` is better than `best` (strictly, so ties stay "
            "with the column added first; NaN is never better), it becomes `best` and `first` plus its number becomes `column`.",
            ("best", "column", "value", "first"),
            (_r("value", "register"), Effect("best", "rw", "register"), Effect("column", "rw", "register")),
            surface="best.add(tile, first_column)",
            attrs=("function", "group"),
            resource="alu",
            reason="compares and moves; the sign of a zero is unspecified",
            notes=(
                "group: so many columns are compared by their extremum first, and only where it wins are they looked at one by one",
            ),
        ),
        OpRow(
            "topk",
            "A running list of the best columns of each row, best first: each column of `value`, in increasing order, that is greater "
            "than the last of the list (strictly, so ties stay with the column added first; NaN never is) and not less than the "
            "row's `floor` goes before the first entry that it is greater than, `first` plus its number into `column`, and the last "
            "entry is dropped.",
            ("best", "column", "value", "first"),
            (_r("value", "register"), Effect("best", "rw", "register"), Effect("column", "rw", "register")),
            optional=("floor",),
            surface="best.add(tile, first_column[, floor=])",
            attrs=("group",),
            width="warp",
            resource="alu",
            reason="exact: compares and moves",
            notes=(
                "group: so many columns of a thread are compared by their maximum first",
                "where fewer columns than entries were greater than -inf, the rest of the list is -inf with column -1",
            ),
            ptx="redux.sync.or.b32, vote.sync.ballot.b32, shfl.sync.{idx,up}.b32",
            isa="9.7.9.6 shfl.sync; 9.7.13.9 vote.sync; 9.7.13.12 redux.sync",
        ),
        # -- element moves --------------------------------------------------------------------------------------------
        OpRow(
            "load",
            "Load the elements that the index tiles name; where the predicate is false the element is `other` (0 if left out).",
            ("dst", "src"),
            (_r("src"), _w("dst", "register")),
            optional=("where", "other"),
            surface="load(ref[, where=, other=, l2=])",
            attrs=("vector", "l2"),
            resource="lsu",
            ptx="ld.global / ld.shared, vectorised",
            isa="9.7.9.8 ld",
        ),
        OpRow(
            "load_scalar",
            "Load one element as a uniform scalar: every thread of the instance reads it.",
            ("dst", "src"),
            (_r("src"),),
            optional=("where", "other"),
            surface="load(ref with scalar subscripts)",
            resource="lsu",
            ptx="ld.global / ld.shared",
            isa="9.7.9.8 ld",
        ),
        OpRow(
            "store",
            "Store the elements of a tile where the predicate is true; a replicated value is stored by its first holder.",
            ("dst", "value"),
            (_r("value", "register"), _w("dst")),
            optional=("where",),
            surface="store(ref, value[, where=])",
            attrs=("vector",),
            resource="lsu",
            ptx="st.global / st.shared, vectorised",
            isa="9.7.9.11 st",
        ),
        OpRow(
            "atomic",
            "Atomically combine each element with memory (relaxed, gpu scope).",
            ("dst", "value"),
            (_r("value", "register"), Effect("dst", "rw")),
            optional=("where",),
            surface="atomic.add|max|min(ref, value[, where=])",
            attrs=("function", "vector"),
            resource="lsu",
            roundings=1,
            reason=_ATOMIC_SUM,
            notes=("max and min of f32: NaN is unspecified, and so is the sign of a zero",),
            ptx="red.relaxed.gpu; from sm_90 on .v2 and .v4 where f32 is added to global memory",
            isa="9.7.13.6 red",
        ),
        # -- flags between CTAs ------------------------------------------------------------------------------------------
        OpRow(
            "draw",
            "Take a number from a counter: its old value, while it goes up by one, or back to zero from `last` (relaxed, gpu scope).",
            ("dst", "counter", "last"),
            (Effect("counter", "rw"),),
            executor="one",
            resource="lsu",
            ptx="atom.relaxed.gpu.global.inc.u32",
            isa="9.7.13.5 atom",
            notes=("derived by `tiles dynamic(role)`; after last + 1 draws the counter is zero again",),
        ),
        OpRow(
            "signal",
            "Publish a global word: store `value` with release semantics at gpu scope.",
            ("flag", "value"),
            (_w("flag"),),
            surface="signal(ref, value)",
            executor="one",
            resource="lsu",
            ptx="st.release.gpu.global",
            isa="9.7.9.11 st; 8.8 Release and Acquire Patterns",
        ),
        OpRow(
            "wait_until",
            "Spin on a global word until it equals `value`, with acquire semantics at gpu scope.",
            ("flag", "value"),
            (_r("flag"),),
            surface="wait_until(ref, value)",
            executor="one",
            resource="lsu",
            ptx="ld.acquire.gpu.global",
            isa="9.7.9.8 ld; 8.8 Release and Acquire Patterns",
        ),
        # -- matrix fragments -----------------------------------------------------------------------------------------
        OpRow(
            "ldmatrix",
            "Load a 16-bit shared tile as frag, optionally transposed.",
            ("dst", "src"),
            (_r("src"), _w("dst", "register")),
            surface="ldmatrix(ref)",
            width="warp",
            resource="lsu",
            ptx="ldmatrix.sync.aligned.m8n8.x4[.trans].shared.b16",
            isa="9.7.14.5.15 ldmatrix",
        ),
        OpRow(
            "stmatrix",
            "Store a 16-bit frag tile to shared memory, optionally transposed.",
            ("dst", "value"),
            (_r("value", "register"), _w("dst")),
            surface="stmatrix(ref, tile)",
            width="warp",
            targets=TMA_TARGETS,
            resource="lsu",
            ptx="stmatrix.sync.aligned.m8n8.x4[.trans].shared.b16",
            isa="9.7.14.5.16 stmatrix",
        ),
        OpRow(
            "mma",
            "d += a @ b.T on a warp's tensor core: d [M, N] f32 frag, a [M, K] frag, b [N, K] frag (the B operand is the transpose "
            "of a frag tile).",
            ("d", "a", "b"),
            (_r("a", "register"), _r("b", "register"), Effect("d", "rw", "register")),
            surface="mma(d, a, b)",
            width="warp",
            resource="tensor",
            roundings=1.5,
            reason=_F32_SUM,
            ptx="mma.sync.aligned.m16n8k16.row.col.f32.{bf16,f16}",
            isa="9.7.14.5.14 mma",
        ),
        OpRow(
            "wgmma",
            "d = a @ b (+ d): d [M, N] frag, a [M, K] shared or frag, b [K, N] shared; one committed group.",
            ("d", "a", "b"),
            (
                _r("a", "async", "done"),
                _r("b", "async", "done"),
                Effect("d", "rw", "register", "done"),
            ),
            optional=("use_acc",),
            surface="wgmma(d, a, b[, use_acc=])",
            width="warpgroup",
            targets=HOPPER,
            completes=("wgmma",),
            resource="tensor",
            roundings=1.5,
            narrow_roundings=1536,
            reason=_F32_SUM,
            ptx="wgmma.mma_async.sync.aligned.m64nNk16",
            isa="9.7.15.5 wgmma.mma_async",
        ),
        # -- block moves ----------------------------------------------------------------------------------------------
        OpRow(
            "tma.load",
            "Copy a box of a tensor to shared memory; what lies outside the tensor reads as zero.",
            ("dst", "src"),
            (_r("src", "async", "done"), _w("dst", "async", "done")),
            surface="tma.load(dst, src[, multicast=axis, l2=hint])",
            attrs=("map", "l2", "multicast"),
            executor="one",
            targets=TMA_TARGETS,
            completes=("barrier",),
            resource="tma",
            ptx="cp.async.bulk.tensor.Nd.shared::cluster.global.tile.mbarrier::complete_tx::bytes",
            isa="9.7.9.27.5.2 cp.async.bulk.tensor",
            notes=(
                "multicast: mask of the ranks that receive the box and the bytes, each at the same offsets (0 or left out: this CTA)",
            ),
        ),
        OpRow(
            "tma.store",
            "Copy a shared tile to a box of a tensor; what lies past the tensor's ends is not written. The box may not start before "
            "the tensor.",
            ("dst", "src"),
            (_r("src", "async", "done"), _w("dst", "async", "done")),
            surface="tma.store(dst, src)",
            attrs=("map", "l2"),
            executor="one",
            targets=TMA_TARGETS,
            completes=("bulk",),
            resource="tma",
            ptx="cp.async.bulk.tensor.Nd.global.shared::cta.tile.bulk_group",
            isa="9.7.9.27.5.2 cp.async.bulk.tensor",
        ),
        OpRow(
            "tma.reduce",
            "Combine a shared tile into a box of a tensor, element by element; boxes as for tma.store.",
            ("dst", "src"),
            (_r("src", "async", "done"), Effect("dst", "rw", "async", "done")),
            surface="tma.reduce(dst, src, add|min|max)",
            attrs=("map", "function"),
            executor="one",
            targets=TMA_TARGETS,
            completes=("bulk",),
            resource="tma",
            roundings=1,
            reason=_ATOMIC_SUM,
            ptx="cp.reduce.async.bulk.tensor.Nd.global.shared::cta.add.tile.bulk_group",
            isa="9.7.9.27.5.3 cp.reduce.async.bulk.tensor",
        ),
        OpRow(
            "tma.prefetch",
            "Bring a box of a tensor into L2.",
            ("src",),
            (),
            surface="tma.prefetch(src)",
            attrs=("map",),
            executor="one",
            targets=TMA_TARGETS,
            resource="tma",
            ptx="cp.async.bulk.prefetch.tensor.Nd.L2.global.tile",
            isa="9.7.9.27.5.4 cp.async.bulk.prefetch.tensor",
        ),
        OpRow(
            "cp_async",
            "Copy a box to shared memory in 16-byte pieces, dealt to the instance's threads; outside the tensor reads as zero.",
            ("dst", "src"),
            (_r("src"), _w("dst", "generic", "done")),
            surface="cp_async(dst, src)",
            attrs=("bytes",),
            completes=("cp_async", "barrier"),
            resource="lsu",
            ptx="cp.async.cg.shared.global 16",
            isa="9.7.9.25.3 cp.async",
        ),
    )
}


@dataclass(frozen=True)
class SyncRow:
    """A synchronising statement of the expanded IR, by its ``kind``: what it is, its PTX and its ISA section."""

    kind: str
    summary: str
    ptx: str
    isa: str


SYNC: dict[str, SyncRow] = {
    row.kind: row
    for row in (
        SyncRow("init", "initialise mbarriers", "mbarrier.init.shared::cta.b64", "9.7.13.15.9 mbarrier.init"),
        SyncRow(
            "wait", "wait for a phase of an mbarrier", "mbarrier.try_wait.parity", "9.7.13.15.16 mbarrier.try_wait"
        ),
        SyncRow(
            "arrive",
            "arrive on an mbarrier, announce bytes",
            "mbarrier.arrive[.expect_tx]",
            "9.7.13.15.13 mbarrier.arrive",
        ),
        SyncRow("named", "named barrier", "barrier.cta.sync / .arrive", "9.7.13.1 barrier.cta"),
        SyncRow("cluster", "cluster barrier", "barrier.cluster.arrive / .wait", "9.7.13.4 barrier.cluster"),
        SyncRow("syncwarp", "order the lanes of a warp", "bar.warp.sync", "9.7.13.2 bar.warp.sync"),
        SyncRow(
            "fence",
            "order between proxies or threads",
            "fence.proxy.async / wgmma.fence / fence",
            "9.7.13.5 membar, fence",
        ),
        SyncRow(
            "commit",
            "close a group",
            "wgmma.commit_group / cp.async.bulk.commit_group",
            "9.7.15.6.1 wgmma.commit_group",
        ),
        SyncRow(
            "gwait", "wait for groups", "wgmma.wait_group / cp.async.bulk.wait_group", "9.7.15.6.2 wgmma.wait_group"
        ),
        SyncRow("setmaxnreg", "move registers between roles", "setmaxnreg.sync.aligned.u32", "9.7.20.5 setmaxnreg"),
        SyncRow("exit", "the role ends", "exit", "9.7.12.6 exit"),
    )
}
