"""Mutants of the checker itself: effects dropped or changed, rules disabled (docs/verification.md 2.4).

An effect is what the machine tells the order reading about an access of an operation. Each is dropped, moved to the other proxy,
made a read, or its time changed, in the stream; each code is silenced; and a list of the engine's own decisions is negated. A
mutant is *killed* by the first program whose verdict changes: a litmus program or one of the details (frozen codes, both profiles),
a kernel of the corpus, or one of the mutants whose truth the two engines know.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from cake.diagnostics import CakeError
from cake.ir import expanded as x
from cake.ir import ops
from cake.machine import events as ev
from cake.machine import unset
from cake.machine.meanings import matrix
from cake.machine.order import check, conflicts, flags, lanes, phases, protocol, races, reader, shadow
from cake.machine.order import clocks as clock_module
from cake.machine.order import leaving as leaving_module
from cake.machine.order import registers as register_module
from cake.machine.reach import Crossing
from cake.verify.oracle import assault
from tests.litmus import build as b
from tests.litmus import test_neighbours
from tests.litmus.catalogue import kernel as litmus
from tests.litmus.catalogue import verdicts
from tests.litmus.details import catalogue
from tests.machine.edit import edit
from tests.mutation.classes import mutants
from tests.mutation.judge import unrolled
from tests.mutation.parents import Parent, corpus, synthetic, zeros

check_module = sys.modules["cake.machine.order.check"]
Change = Callable[[str, ev.Effect], ev.Effect | None]
Patch = Callable[[], Any]


@dataclass(frozen=True)
class Case:
    """A program with the codes that it must give. ``exact``: these codes; else: none, or some."""

    name: str
    kernel: x.Kernel
    launches: tuple[dict[str, Any], ...]
    ctas: int
    profile: str
    expected: tuple[str, ...]
    exact: bool

    def holds(self) -> bool:
        """The checker says what it must."""
        codes: set[str] = set()
        try:
            for values in self.launches:
                found = check(self.kernel, values, ctas=self.ctas, profile=self.profile)  # type: ignore[arg-type]
                codes |= {d.code for d in found}
        except Exception:
            return False
        return codes == set(self.expected) if self.exact else bool(codes) == bool(self.expected)


SAMPLED = (
    "tma_load_s2_l1_w1x1",
    "tma_wgmma_s3_l1_w4x1",
    "mixed_load_s2_l0_w2x1",
    "turns_s2_x2",
    "stores_s3_w2",
    "tma_wgmma_s2_l1_w4x1_split",
)
"""Parents of the broken mutants that may kill."""


def cases(each: int = 1) -> list[Case]:
    """Litmus programs, kernels of the corpus and rings that are right, and broken mutants (``each`` of a class and parent)."""
    found: list[Case] = []
    for name, row in verdicts().items():
        k = litmus(name)
        for size, codes in row.expected():
            found.append(Case(name, k, ({**zeros(k), **size},), row.ctas, "conservative", tuple(codes), True))
            loose = codes if row.practice is None else row.practice
            found.append(Case(f"{name} practice", k, ({**zeros(k), **size},), row.ctas, "practice", tuple(loose), True))
    for d in catalogue():
        values = (zeros(d.kernel),)
        loose = list(d.codes if d.practice is None else d.practice)
        found.append(Case(d.name, d.kernel, values, d.ctas, "conservative", d.codes, True))
        found.append(Case(f"{d.name} practice", d.kernel, values, d.ctas, "practice", tuple(loose), True))
    for p in synthetic():
        if p.name in SAMPLED:
            found.append(Case(p.name, p.kernel, p.launches[-2:], p.ctas, "conservative", (), False))
    for p in corpus():
        if p.name in ("gemm_64x2", "rmsnorm", "softmax_long", "attention_80"):
            found.append(Case(p.name, p.kernel, p.launches[:1], 1, "conservative", (), False))
    found += [
        Case(f"cp.async feeds {n}", _fed(n), (zeros(_fed(n)),), 1, "conservative", ("F301",), True) for n in ("a", "w")
    ]
    for name, node in _touches().items():
        k = _in_flight(node)
        found.append(Case(f"{name} in flight", k, (zeros(k),), 1, "conservative", ("any",), False))
    for p in synthetic():
        if p.name in SAMPLED:
            found += _broken(p, each)
    for p in corpus():
        if p.name in ("gemm_64x2", "attention_80"):
            found += _broken(p, 12, (28,))
    return found


def _touches() -> dict[str, x.Op]:
    """Accesses to accumulators, one kind each."""
    whole = b.TileType(dtype="f32", shape=(64, 8), layout=b.FRAG)
    acc, other = b.Reg(name="acc", dtype="f32"), b.Reg(name="v", dtype="f32")
    zero = b.Const(value=0.0, dtype="f32")
    sums: dict[str, x.Attribute] = {"function": "sum", "axis": 1, "scope": "warp"}
    out = b.elements("out")
    return {
        "assign.dst": x.Op(op="assign", operands={"dst": acc, "value": zero}, type=whole),
        "assign.value": x.Op(op="assign", operands={"dst": other, "value": acc}, type=whole),
        "reduce.value": x.Op(
            op="reduce", operands={"dst": b.Reg(name="t", dtype="f32"), "value": acc}, attrs=sums, type=whole
        ),
        "load.dst": x.Op(op="load", operands={"dst": acc, "src": b.elements("in")}, type=whole),
        "store.value": x.Op(op="store", operands={"dst": out, "value": acc}, type=whole),
    }


def _in_flight(touch: x.Op) -> x.Kernel:
    """Litmus 06 with an access to the accumulators between the wgmma's commit and its wait."""
    k = edit(litmus("06_tma_load_wait_wgmma"), lambda n: [touch, n] if isinstance(n, x.GroupWait) else n, "math")
    tiles = {"v": (64, 8), "t": (64, 1)}
    more = {n: b.TileType(dtype="f32", shape=s, layout=b.FRAG) for n, s in tiles.items()}
    roles = tuple(r.model_copy(update={"tiles": {**r.tiles, **more}}) if r.name == "math" else r for r in k.roles)
    shape = (b.integer(64), b.integer(8))
    tensors = (
        *k.tensors,
        x.Tensor(name="in", dtype="f32", shape=shape),
        x.Tensor(name="out", dtype="f32", shape=shape, direction="out"),
    )
    return k.model_copy(update={"roles": roles, "tensors": tensors})


def _fed(name: str) -> x.Kernel:
    """Litmus 19 with a fence after the copies, but one operand copied again without: only that operand shows it."""
    rows = {"a": 64, "w": 8}[name]

    def again(node: x.Stmt) -> Any:
        if not isinstance(node, x.Fence) or node.what != "async_shared":
            return node
        copy = b.cp_async(b.box(name, (0, rows), (0, 64)), b.box(f"g{name}", (0, rows), (0, 64)))
        meet, wait = b.sync("role"), b.gwait("cp_async", executor="lanes")
        return [node, meet, copy, b.commit("cp_async", "lanes"), wait]

    return edit(litmus("19_cp_async_wgmma_fence"), again)


def _broken(p: Parent, each: int, numbers: tuple[int, ...] | None = None) -> Iterator[Case]:
    """Mutants that the oracle breaks and the checker refuses, the one launch that shows it."""
    taken: dict[int, int] = {}
    for m in mutants(p.kernel, numbers):
        if taken.get(m.number, 0) >= each or m.number == 45:
            continue
        launches, said = unrolled(p, m.kernel)
        if said is not None:
            continue
        for values, launch in zip(p.launches, launches, strict=True):
            if assault(launch, range(2)).broken and _refused(m.kernel, values):
                taken[m.number] = taken.get(m.number, 0) + 1
                yield Case(
                    f"{p.name} / {m.number} {m.what}", m.kernel, (values,), p.ctas, "conservative", ("any",), False
                )
                break


def _refused(kernel: x.Kernel, values: dict[str, Any]) -> bool:
    try:
        return bool(check(kernel, values, ctas=1))
    except Exception:
        return False


# ---- effects --------------------------------------------------------------------------------------------------------


@contextmanager
def effects(change: Change) -> Iterator[None]:
    """The order reading hears ``change(op, effect)`` instead of each effect (None: nothing)."""
    original = reader.Order.event

    def event(self: reader.Order, e: ev.Event) -> None:
        if isinstance(e, ev.Access):
            name = e.site.node.op if e.site is not None and isinstance(e.site.node, x.Op) else ""
            new = change(name, e.effect)
            if new is None:
                return
            if new is not e.effect:
                e = replace(e, effect=new)
        elif isinstance(e, ev.Issue):
            kept = [n for n in (change(e.op.op, f) for f in e.effects) if n is not None]
            if len(kept) != len(e.effects) or any(a is not b for a, b in zip(kept, e.effects, strict=True)):
                e = replace(e, effects=tuple(kept))
        original(self, e)

    with patched(reader.Order, "event", event):
        yield


@contextmanager
def at_issue(row: ops.OpRow, effect: ops.Effect) -> Iterator[None]:
    """The order reading hears an effect that lasts until a later completion as an access of the issuing threads."""
    original = reader.Order.event

    def event(self: reader.Order, e: ev.Event) -> None:
        if not isinstance(e, ev.Issue):
            return original(self, e)
        ended = [f for f in e.effects if _meant(row, effect, e.op.op, f)]
        original(self, replace(e, effects=tuple(f for f in e.effects if f not in ended)))
        for f in ended:
            for agent in e.agents:
                told = replace(f, part=None)
                original(self, ev.Access(e.id, e.site, agent, told, atomic=f.mode == "rw"))

    with patched(reader.Order, "event", event):
        yield


@contextmanager
def weights(change: Callable[[int], int]) -> Iterator[None]:
    """The order reading hears arrivals of another weight."""
    original = reader.Order.event

    def event(self: reader.Order, e: ev.Event) -> None:
        original(self, replace(e, weight=change(e.weight)) if isinstance(e, ev.Contrib) else e)

    with patched(reader.Order, "event", event):
        yield


def _meant(row: ops.OpRow, e: ops.Effect, op: str, f: ev.Effect) -> bool:
    return op == row.name and f.operand == e.operand and f.mode in (e.mode, *e.mode)


def _changed(row: ops.OpRow, e: ops.Effect, how: str) -> Change:
    def change(op: str, f: ev.Effect) -> ev.Effect | None:
        if not _meant(row, e, op, f):
            return f
        if how == "dropped":
            return None
        if how == "a read":
            return replace(f, mode="r")
        return replace(f, proxy="generic" if f.proxy == "async" else "async")

    return change


def effect_mutants() -> Iterator[tuple[str, Patch]]:
    """Every effect of every row: dropped; the other proxy; a read for a write; over at once."""
    for row in ops.OPS.values():
        for e in row.effects:
            hows = ["dropped"]
            if e.proxy != "register":
                hows.append("other proxy")
            if e.mode != "r":
                hows.append("a read")
            for how in hows:
                yield f"{row.name}.{e.operand}: {how}", partial(effects, _changed(row, e, how))
            if e.time == "done":
                yield f"{row.name}.{e.operand}: at issue", partial(at_issue, row, e)


# ---- rules ----------------------------------------------------------------------------------------------------------


@contextmanager
def patched(owner: Any, name: str, value: Any) -> Iterator[None]:
    """``owner.name`` is something else for a while."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextmanager
def silent(code: str) -> Iterator[None]:
    """Findings of one code are not made, by the order reading or by the execution."""
    original = reader.Order.finish
    execute = check_module.run

    def run(*args: Any, **more: Any) -> Any:
        try:
            return execute(*args, **more)
        except CakeError as error:
            raise CakeError(*(d for d in error.diagnostics if d.code != code)) from None

    def finish(self: reader.Order, *, complete: bool) -> None:
        original(self, complete=complete)
        self.findings = [d for d in self.findings if d.code != code]

    with patched(reader.Order, "finish", finish), patched(check_module, "run", run):
        yield


CODES = (
    *("C601", "D201", "D202", "D203", "D204", "D205", "D206", "D207", "D208", "D209", "D210", "D213", "D214", "D216"),
    *("F301", "F302", "F303", "F304", "F305", "F306", "F308", "F310", "M401", "M402", "M404", "M405", "O503"),
    *("P101", "P102", "P103", "P104", "P105", "P106", "P107", "P113", "P114", "P115", "P116", "P117", "P120"),
    *("W702", "W703", "W710"),
)
"""Codes that the order reading and the execution make of one launch."""


def _no_row(row: int) -> Patch:
    def join(self: Any, other: Any) -> None:
        kept = self.rows[row].copy()
        ORIGINAL_JOIN(self, other)
        self.rows[row] = kept

    return lambda: patched(clock_module.Clock, "join", join)


def _no_bit(bit: int) -> Patch:
    def join(self: Any, other: Any) -> None:
        kept = self.bits[bit]
        ORIGINAL_JOIN(self, other)
        self.bits[bit] = kept

    return lambda: patched(clock_module.Clock, "join", join)


ORIGINAL_JOIN = clock_module.Clock.join
ORIGINAL_PROBLEM = conflicts.problem


def _blind(found: str) -> Patch:
    def problem(*args: Any) -> Any:
        said = ORIGINAL_PROBLEM(*args)
        return None if said == found else said

    return lambda: patched(races, "problem", problem)


EQUIVALENT = {
    "argreduce.index": "integers: no operand of a wgmma, and registers conflict with nothing else",
    "track.column": "integers: no operand of a wgmma, and registers conflict with nothing else",
    "topk.column": "integers: no operand of a wgmma, and registers conflict with nothing else",
    "mma.d: a read": "a wgmma updates f32 registers and never only reads them, so a read of them conflicts as a write does",
    "registers: never waited": "forgets what both halves of a warp know to be finished: memory, no verdict",
}
"""Mutants (by the start of their names) that no program can tell from the checker, and why."""


def equivalent(name: str) -> str:
    """Why a mutant changes no verdict; empty if a program must tell."""
    return next((why for start, why in EQUIVALENT.items() if name.startswith(start)), "")


def rule_mutants() -> Iterator[tuple[str, Patch]]:
    """Each code silenced, each kind of problem unseen, each decision of the engine negated."""
    for code in CODES:
        yield f"code {code} silenced", partial(silent, code)
    for found in ("unordered", "semantics", "scope", "fence", "misplaced", "refill", "flight", "landing", "proxies"):
        yield f"problem {found} unseen", _blind(found)
    for row in range(clock_module.ROWS):
        yield f"clock row {row} does not travel", _no_row(row)
    for bit in range(clock_module.BITS):
        yield f"clock set {bit} does not travel", _no_bit(bit)
    log = phases.PhaseLog
    yield "D1: all contributions are separated", lambda: patched(log, "add", _always_separated)
    yield "D3: no announcement is late", lambda: patched(log, "late_announcements", lambda self, s: [])
    yield "D4: nobody is lapped", lambda: patched(log, "lapped", lambda self, i, p: [])
    yield "a phase is always known", lambda: patched(log, "knows", lambda self, c, p: True)
    yield "a phase is never known", lambda: patched(log, "knows", lambda self, c, p: False)
    yield "initialisation is always known", lambda: patched(log, "initialised", lambda self, r: True)
    yield "the init fence is always known", lambda: patched(log, "fence_known", lambda self, r: True)
    yield "letters are not delivered", lambda: patched(phases.Letter, "deliver", lambda self, *a: None)
    yield "copies tell nothing", lambda: patched(phases.Letter, "landed", lambda self, m: None)
    yield "D1 for ids: no suspects", lambda: patched(protocol.Protocol, "_mixed", lambda self, *a: None)
    yield "nothing is compared", lambda: patched(races, "compared", lambda a, b: False)
    yield "sisters are never named", lambda: patched(races.Races, "_sister", lambda self, e, c: False)
    yield "siblings are never named", lambda: patched(races.Races, "_siblings", lambda self, p: False)
    yield "D10: every read is fresh", lambda: patched(races.Races, "_fresh", lambda self, w, a: None)
    yield "reads are forgotten", lambda: patched(shadow.Cell, "read", lambda self, a: None)
    yield "writes are forgotten", lambda: patched(shadow.Cell, "write", lambda self, a: None)
    yield "D9: exits know everything", lambda: patched(leaving_module.Leaving, "finish", lambda self: [])
    yield "D9: nothing touches", lambda: patched(leaving_module.Leaving, "issue", lambda self, e, b: None)
    yield (
        "D9: nothing is remote",
        lambda: patched(leaving_module.Leaving, "reach", lambda self, *a: self.remote.append(a[:3])),
    )
    yield "registers: no access", lambda: patched(register_module.Registers, "access", lambda self, *a: None)
    yield "registers: no issue", lambda: patched(register_module.Registers, "issue", lambda self, *a: None)
    yield "registers: no fence", lambda: patched(register_module.Registers, "fence", lambda self, *a: None)
    yield "registers: never waited", lambda: patched(register_module.Registers, "waited", lambda self, *a: None)
    yield "registers: all are set", lambda: patched(unset.Uses, "step", lambda self, i, a: None)
    yield "registers: none is ever set", lambda: patched(unset, "_set", lambda i, r: None)
    yield "registers: a part stands for its tile", lambda: patched(unset, "_is_set", lambda k, r: k is not None)
    yield "registers: every product adds", lambda: patched(matrix.Wgmma, "accumulates", lambda self, s: True)
    yield "registers: no product adds", lambda: patched(matrix.Wgmma, "accumulates", lambda self, s: False)
    yield "fences do nothing", lambda: patched(reader.Order, "_fence", lambda self, e: None)
    yield "joins do nothing", lambda: patched(reader.Order, "_join", lambda self, e: None)
    yield "group waits do nothing", lambda: patched(reader.Order, "_gwait", lambda self, e: None)
    yield "arrivals weigh nothing", lambda: weights(lambda n: 0)
    yield "arrivals weigh twice", lambda: weights(lambda n: 2 * n)
    yield "M402: values need no order", lambda: patched(flags.Flags, "_unordered", lambda self, *a: None)
    yield "M402: no wait returns early", lambda: patched(flags.Flags, "_early", lambda self, *a: None)
    yield "M402: no value is missed", lambda: patched(flags.Flags, "_lapped", lambda self, *a: None)
    yield "M402: stores publish", lambda: patched(flags.Flags, "_unpublished", lambda self, *a: None)
    yield "C601: one lane will do", lambda: patched(reader, "divergent", lambda k: [])
    yield "lanes: nothing is kept", lambda: patched(lanes.Lanes, "access", lambda self, a: None)
    yield "lanes: a meeting tells nothing", lambda: patched(lanes.Lanes, "met", lambda self, c: None)
    yield "lanes: a message tells nothing", lambda: patched(lanes.Lanes, "heard", lambda self, c, m: None)
    yield "lanes: a message tells all", lambda: patched(lanes.Lanes, "heard", lambda self, c, m: self.met(c))
    yield "lanes: all cross", lambda: patched(lanes, "crossing", lambda a, b: Crossing(0, 1, 0, 4))
    yield "flags are not seen", lambda: patched(reader.Order, "_observe", lambda self, r, c: None)


def _always_separated(self: phases.PhaseLog, source: Any, clock: Any) -> bool:
    self.sources.append(source)
    if source.event.intended is not None and source.event.weight:
        self.intended.setdefault(source.event.intended, []).append(source.event)
    return True


def killer(patch: Patch, programs: list[Case]) -> str:
    """The first program (or test of neighbouring programs) that a checker mutant fails; empty if it survives."""
    with patch():
        for case in programs:
            if not case.holds():
                return case.name
        for name, function in vars(test_neighbours).items():
            if name.startswith("test_") and not inspect.signature(function).parameters:
                try:
                    function()
                except Exception:
                    return f"tests/litmus/test_neighbours.py {name}"
    return ""
