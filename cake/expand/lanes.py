"""Order among the lanes of a warp: where lanes write to shared memory and other lanes read it, or the other way round,
`bar.warp.sync` goes in between (PTX ISA 9.7.13.2), unless a barrier does already.

Program order is of one thread (8.9.1), so a warp's exchange with itself needs it as an exchange between warps needs
`sync()`, which authors write. The order reading checks the outcome lane by lane (D216).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from cake.expand.prune import flatten
from cake.ir import expanded as x
from cake.ir.expr import Sym, symbols
from cake.ir.layout import TileType
from cake.ir.ops import OPS

WHY = "lanes of a warp exchange data"


@dataclass(frozen=True)
class _Touch:
    """An access to a buffer by all lanes, since the warp was last brought together. ``ref`` and ``type`` say which lane
    has which element; None once a scalar in them has changed."""

    base: str
    writes: bool
    atomic: bool
    ref: x.Ref | None
    type: TileType | None


_State = frozenset[_Touch]


class _Pass:
    def __init__(self, role: x.Role, shared: frozenset[str]) -> None:
        self.role, self.shared = role, shared

    def body(self, body: tuple[x.Stmt, ...], state: _State) -> tuple[tuple[x.Stmt, ...], _State]:
        """A list of statements with what it lacks, and what it leaves behind."""
        out: list[x.Stmt] = []
        for node in body:
            if isinstance(node, x.For):
                inner, again = state, {node.var}.union(*(_sets(n) for n in flatten(node.body)))
                while True:
                    new, after = self.body(node.body, inner)
                    wider = inner | _after(after, again)
                    if wider == inner:
                        break
                    inner = wider
                out.append(node.model_copy(update={"body": new}))
                state = inner | after
            elif isinstance(node, x.If):
                then, left = self.body(node.then, state)
                orelse, right = self.body(node.orelse, state)
                out.append(node.model_copy(update={"then": then, "orelse": orelse}))
                state = left | right
            else:
                if self._together(node):
                    state = frozenset()
                touches = self._touches(node)
                if any(self._cross(old, new) for old in state for new in touches):
                    out.append(x.SyncWarp(reason=WHY, span=node.span))
                    state = frozenset()
                out.append(node)
                state = _after(state, _sets(node)) | touches
        return tuple(out), state

    def _together(self, node: x.Stmt) -> bool:
        """Whether a statement orders the memory of the whole warp."""
        return isinstance(node, x.SyncWarp | x.Cluster) or (isinstance(node, x.Named) and node.form == "sync")

    def _touches(self, node: x.Stmt) -> _State:
        if not isinstance(node, x.Op) or node.executor != "lanes" or node.reason != "written":
            return frozenset()  # what is derived brings the order that it needs
        found = set()
        for e in OPS[node.op].effects:
            ref = node.operands.get(e.operand)
            if isinstance(ref, x.Ref) and ref.base in self.shared and ref.peer is None and e.proxy == "generic":
                own = ref if node.op in ("load", "store") and self._of_one_lane(node.type) else None
                found.add(_Touch(ref.base, e.mode != "r", e.mode == "rw", own, node.type))
        return frozenset(found)

    def _of_one_lane(self, tile: TileType | None) -> bool:
        """Whether each element is held by one thread only."""
        if tile is None or tile.layout.kind != "spread":
            return False
        return tile.rows * tile.cols % (self.role.threads * tile.layout.vector) == 0

    def _cross(self, old: _Touch, new: _Touch) -> bool:
        """Whether lanes may meet in a buffer that one of both writes."""
        if old.base != new.base or not (old.writes or new.writes) or (old.atomic and new.atomic):
            return False
        return old.ref is None or old.ref != new.ref or old.type != new.type


def _sets(node: x.Stmt) -> set[str]:
    """Scalars and cursors that a statement sets."""
    match node:
        case x.For():
            return {node.var}
        case x.Let():
            return {node.name}
        case x.Cursor():
            return {node.cursor}
        case x.Op():
            return {o.name for o in node.operands.values() if isinstance(o, Sym)}
    return set()


def _after(state: _State, changed: set[str]) -> _State:
    """What is left of it when these have changed: the same subscripts no longer name the same elements."""
    if not changed:
        return state
    return frozenset(replace(t, ref=None) if t.ref is not None and _names(t.ref) & changed else t for t in state)


def _names(ref: x.Ref) -> set[str]:
    names = {ref.slot.cursor} if ref.slot is not None and ref.slot.cursor is not None else set()
    for s in ref.subs:
        names |= symbols(s.at if isinstance(s, x.Point) else s.start if isinstance(s, x.Range) else s.index)
    return names


def ordered(role: x.Role, shared: frozenset[str]) -> x.Role:
    """``role`` with its warps brought together between accesses to ``shared`` buffers that cross lanes."""
    if role.solo:
        return role
    body, _ = _Pass(role, shared).body(role.body, frozenset())
    return role.model_copy(update={"body": body})
