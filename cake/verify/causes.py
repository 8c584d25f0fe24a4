"""Causes behind what a launch shows: a deadlock because a copy and its wait are under different conditions (O505), two writes of
an element because a block store crosses the end of a sequence (O503).

The launch is the proof; the cause is read from the program. A finding whose cause is not one of these stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from cake.diagnostics import Diagnostic, Label, Span
from cake.facts.show import show
from cake.ir import expanded as x
from cake.ir.expr import Expr
from cake.verify.control import LOAD, Reader, Site, leaves, sites, text

STUCK = frozenset({"P101", "P103", "P104"})
TWICE = frozenset({"O502", "M401"})


def refine(kernel: x.Kernel, found: Sequence[Diagnostic]) -> list[Diagnostic]:
    """The findings of a launch, those with a known cause replaced by it."""
    result = list(found)
    stuck = [d for d in found if d.code in STUCK]
    if stuck:
        cause = _predicates(kernel, stuck)
        if cause is not None:
            result = [cause, *(d for d in found if d.code not in STUCK and d.code[0] not in "DFO")]
    for i, d in enumerate(result):
        if d.code in TWICE:
            result[i] = _sequence(kernel, d) or d
    return result


# ---- O505 -----------------------------------------------------------------------------------------------------------


def _predicates(kernel: x.Kernel, stuck: list[Diagnostic]) -> Diagnostic | None:
    """A copy, its announcement and its waits that are not all under the same conditions."""
    said = " ".join([*(d.message for d in stuck), *(w for d in stuck for w in d.witness)])
    every = list(sites(kernel))
    for barrier in kernel.barriers:
        if not re.search(rf"(?<![\w.]){re.escape(barrier.name)}(?![\w.])", said):
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
