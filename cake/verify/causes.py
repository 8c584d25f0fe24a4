"""Causes behind what a launch shows.

- a deadlock, or bytes that do not balance: a copy and its wait are under different conditions (O505); roles that fill and empty
  a pipeline count their trips by different expressions (P111, also one fill too many: D213); a turn is not taken evenly (P112);
- an element that nothing writes: a bound rounds down and drops a ragged edge (O508);
- two writes of an element: a block store crosses the end of a sequence (O503).

A stage that is filled again too early (D202, D208) was given back too early: the places that do so are shown with it.

The launch is the proof; the cause is read from the program. A finding whose cause is not one of these stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cake.diagnostics import Diagnostic, Label, Span
from cake.facts.show import show
from cake.ir import expanded as x
from cake.ir.evaluate import evaluate
from cake.ir.expr import Apply, Const, Expr, walk
from cake.verify.control import LOAD, Inner, Reader, Site, leaves, sites, text

STUCK = frozenset({"P101", "P103", "P104"})
TWICE = frozenset({"O502", "M401"})
REUSED = frozenset({"D202", "D207", "D208"})


def refine(kernel: x.Kernel, found: Sequence[Diagnostic], values: Mapping[str, int]) -> list[Diagnostic]:
    """The findings of a launch, those with a known cause replaced by it. ``values``: the launch's dims and scalars."""
    env = {n: v for n, v in kernel.constants.items() if not isinstance(v, str)} | dict(values)
    stuck = [d for d in found if d.code in STUCK]
    over = [d for d in found if d.code == "D213"]
    if stuck:
        cause = _predicates(kernel, stuck) or _trips(kernel, stuck, env) or _turn(kernel, stuck)
    else:
        cause = _trips(kernel, over, env) if over else None
    if cause is not None:
        return [cause, *(d for d in found if d.code not in STUCK and d.code[0] not in "DFO")]
    result = list(found)
    for i, d in enumerate(result):
        if d.code in TWICE:
            result[i] = _sequence(kernel, d) or d
        elif d.code == "O501":
            result[i] = _dropped(kernel, d, env) or d
        elif d.code in REUSED:
            result[i] = _released(kernel, d)
    return result


def _said(found: Iterable[Diagnostic]) -> str:
    return " ".join(line for d in found for line in (d.message, *d.witness))


def _names(said: str, name: str) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.])", said) is not None


def _released(kernel: x.Kernel, d: Diagnostic) -> Diagnostic:
    """With the places that give back stages of the pipelines that it names."""
    said = " ".join((d.message, *d.witness))
    rings = [r for r in kernel.rings if any(_names(said, field) for field in r.fields)]
    spans = [s.node.span for r in rings for s in sites(kernel) if r.empty and _arrives(s.node, r.empty)]
    known = {_key(span) for span in (d.span, *(label.span for label in d.labels))}
    new = [span for span in dict.fromkeys(spans) if span is not None and _key(span) not in known]
    return d.model_copy(update={"labels": (*d.labels, *(Label(span=span, text="given back here") for span in new[:3]))})


# ---- O505 -----------------------------------------------------------------------------------------------------------


def _predicates(kernel: x.Kernel, stuck: list[Diagnostic]) -> Diagnostic | None:
    """A copy, its announcement and its waits that are not all under the same conditions."""
    said = _said(stuck)
    every = list(sites(kernel))
    for barrier in kernel.barriers:
        if not _names(said, barrier.name):
            continue
        copies = [s for s in every if _completes_on(s.node, barrier.name)]
        others = [s for s in every if isinstance(s.node, x.Wait) and s.node.barrier == barrier.name]
        others += [s for s in every if _announces(s.node, barrier.name)]
        for copy in copies:
            for other in others:
                lone = _lone(copy, other)
                if lone is not None:
                    return _told(copy, other, lone, stuck[0])
    return None


def _completes_on(node: x.Stmt, barrier: str) -> bool:
    return isinstance(node, x.Op) and isinstance(node.completion, x.ByBarrier) and node.completion.barrier == barrier


def _announces(node: x.Stmt, barrier: str) -> bool:
    return isinstance(node, x.Arrive) and node.barrier == barrier and node.form != "arrive"


def _lone(copy: Site, other: Site) -> Expr | None:
    """A condition that one of the two is under and the other is not, the same for a whole tile."""
    mine, theirs = _uniform(copy), _uniform(other)
    for key in mine.keys() ^ theirs.keys():
        return (mine | theirs)[key]
    return None


def _uniform(site: Site) -> dict[tuple[str, bool], Expr]:
    indices = site.index_names
    return {(text(e), way): e for e, way in site.conditions if not leaves(e) & indices}


def _told(copy: Site, other: Site, condition: Expr, stuck: Diagnostic) -> Diagnostic:
    what = "the wait for it" if isinstance(other.node, x.Wait) else "the announcement of its bytes"
    assert isinstance(copy.node, x.Op)
    return Diagnostic(
        code="O505",
        severity="error",
        message=f"a copy into `{copy.node.ref('dst').base}` and {what} are not under the same condition: one of them depends on "
        f"`{show(condition)}`",
        span=copy.node.span or stuck.span,
        labels=(Label(span=other.node.span, text=what),),
        witness=(stuck.message, *stuck.witness),
        help="let one condition decide about the copy, its bytes and its waits, or about none of them",
    )


# ---- P111 -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trips:
    """How often a place is passed in a tile: the loops round it that do not walk tiles."""

    role: str
    loops: tuple[Inner, ...]
    span: Span | None

    @property
    def key(self) -> str:
        """Equal for equal counts."""
        return " ".join(f"{text(i.lo)}..{text(i.hi)}" for i in self.loops)

    @property
    def text(self) -> str:
        """The counts in words; one that depends on loaded data by the name of its loop."""
        return " x ".join(self._shown(i) for i in self.loops) or "1"

    @staticmethod
    def _shown(inner: Inner) -> str:
        words = show(_length(inner))
        return f"(range of `{inner.node.var}`)" if LOAD in words else words

    def count(self, env: Mapping[str, Any]) -> int | None:
        """The number in a launch, if dims and scalars decide it."""
        total = 1
        for inner in self.loops:
            length = _length(inner)
            if not leaves(length) <= set(env):
                return None
            total *= max(0, int(evaluate(length, dict(env))))
        return total


def _length(inner: Inner) -> Expr:
    if isinstance(inner.lo, Const) and inner.lo.value == 0:
        return inner.hi
    return Apply(op="-", args=(inner.hi, inner.lo), dtype="i32")


def _trips(kernel: x.Kernel, found: list[Diagnostic], env: Mapping[str, Any]) -> Diagnostic | None:
    """A pipeline that is filled and emptied by loops of different lengths, and what the launch made of it."""
    said, every = _said(found), list(sites(kernel))
    for ring in kernel.rings:
        if ring.full is None or not (
            found[0].code == "D213" or any(b and _names(said, b) for b in (ring.full, ring.empty))
        ):
            continue
        fills = {t.key: t for t in (_passes(s) for s in every if _arrives(s.node, ring.full))}
        takes = {
            t.key: t for t in (_passes(s) for s in every if isinstance(s.node, x.Wait) and s.node.barrier == ring.full)
        }
        if not fills or not takes or fills.keys() & takes.keys():
            continue
        fill, take = next(iter(fills.values())), next(iter(takes.values()))
        if not any(leaves(e) for i in (*fill.loops, *take.loops) for e in (i.lo, i.hi)):
            continue  # numbers, not two expressions that were meant to agree
        counts = fill.count(env), take.count(env)
        if None not in counts and counts[0] == counts[1]:
            continue
        return Diagnostic(
            code="P111",
            severity="error",
            message=f"`{fill.role}` fills `{ring.name}` {fill.text} times a tile and `{take.role}` takes out {take.text}"
            + (f": here {counts[0]} and {counts[1]}" if None not in counts else ""),
            span=take.loops[-1].node.span if take.loops else found[0].span,
            labels=(
                *(Label(span=i.node.span, text=f"the loop of `{fill.role}`") for i in fill.loops[-1:]),
                Label(span=fill.span, text="filled here"),
                Label(span=take.span, text="taken out here"),
            ),
            witness=(found[0].message, *found[0].witness),
            help="count the trips once, in a definition of the kernel or of the tiles, and let both roles use it",
        )
    return None


def _passes(site: Site) -> Trips:
    name = site.role.name if site.role is not None else "entry"
    return Trips(name, tuple(i for i in site.loops if not i.tiles), site.node.span)


def _arrives(node: x.Stmt, barrier: str) -> bool:
    return isinstance(node, x.Arrive) and node.barrier == barrier and node.form != "expect"


# ---- P112 -----------------------------------------------------------------------------------------------------------


def _turn(kernel: x.Kernel, stuck: list[Diagnostic]) -> Diagnostic | None:
    """An instance waits for a turn that is never passed on."""
    turns = {s.node.barrier for s in sites(kernel) if isinstance(s.node, x.Named) and s.node.index is not None}
    for d in stuck:
        for name in sorted(turns):
            if f"waits at barrier `{name}`" in d.message:
                return Diagnostic(
                    code="P112",
                    severity="error",
                    message=f"an instance waits for its turn at `{name}`, which nobody passes on any more",
                    span=d.span,
                    labels=d.labels,
                    witness=(d.message, *d.witness),
                    help="every instance takes the turn as often as the first one, or once less, and those before it no less often",
                )
    return None


# ---- O508 -----------------------------------------------------------------------------------------------------------


def _dropped(kernel: x.Kernel, d: Diagnostic, env: Mapping[str, Any]) -> Diagnostic | None:
    """A bound that rounds down, where this launch has a remainder."""
    places: list[tuple[Expr, Span | None]] = [(kernel.positions, None)]
    places += [(e, s.node.span) for s in sites(kernel) if isinstance(s.node, x.For) for e in s.exprs[:2]]
    for bound, span in places:
        for node in walk(bound):
            if not (isinstance(node, Apply) and node.op == "//" and isinstance(node.args[1], Const)):
                continue
            if not (leaves(node.args[0]) and leaves(node.args[0]) <= set(env)):
                continue
            value, unit = int(evaluate(node.args[0], dict(env))), int(node.args[1].value)
            if unit > 1 and value % unit:
                return Diagnostic(
                    code="O508",
                    severity="error",
                    message=f"`{show(node)}` rounds down, so the last {value % unit} of {value} are dropped: {d.message}",
                    span=span or d.span,
                    labels=() if d.span is None or span is None else (Label(span=d.span, text="written here"),),
                    witness=(d.message, *d.witness),
                    help=f"round up with `cdiv`, and mask the last part; or demand `where {show(node.args[0])} % {unit} == 0`",
                )
    return None


# ---- O503 -----------------------------------------------------------------------------------------------------------


def _sequence(kernel: x.Kernel, d: Diagnostic) -> Diagnostic | None:
    """A block store whose start comes from offsets of sequences, and that meets what another tile writes."""
    spans = {_key(d.span), *(_key(label.span) for label in d.labels)}
    for store, offsets in _ragged_stores(kernel):
        if _key(store.span) in spans and store.span is not None:
            base = store.ref("dst").base
            return Diagnostic(
                code="O503",
                severity="error",
                message=f"a block store to `{base}` crosses the end of a sequence (the offsets are in `{offsets}`), into rows of the "
                "next one",
                span=store.span,
                labels=d.labels,
                witness=(d.message, *d.witness),
                help="store the last block of a sequence by elements, with `where=`: a block store clips at the tensor's end only",
            )
    return None


def _key(span: Span | None) -> tuple[int, int] | None:
    return None if span is None else (span.line, span.column)


def _ragged_stores(kernel: x.Kernel) -> Iterator[tuple[x.Op, str]]:
    """Block stores that start at rows counted from loaded offsets, which never decrease."""
    increasing = {a.tensor for a in kernel.assumes if a.form == "increasing"}
    for role in kernel.roles:
        reader = Reader(kernel, role)
        for site in reader.walk(role.body):
            node = site.node
            if not (isinstance(node, x.Op) and node.op == "tma.store"):
                continue
            for sub in node.ref("dst").subs:
                start = sub.start if isinstance(sub, x.Range) else None
                for name in leaves(reader.expand(start)) if start is not None else ():
                    tensor = name[len(LOAD) :].split("[")[0] if name.startswith(LOAD) else ""
                    if tensor in increasing:
                        yield node, tensor
