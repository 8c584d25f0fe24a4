"""Which register tiles are still needed at the points where computed tiles are pinned.

Pinning a dead tile would hold its registers for nothing. Backward over the structured program; a loop is walked until
what its next iteration needs no longer grows.
"""

from __future__ import annotations

from cake.codegen.scoping import blocks, leaves, pins_here
from cake.ir import expanded as x
from cake.ir.expr import Const, Reg

Live = frozenset[str]


def reads(node: x.Node) -> set[str]:
    """Tiles whose present value a statement needs."""
    if isinstance(node, x.GroupWait):
        return set(node.ready)
    if not isinstance(node, x.Op):
        return set()
    written = {"dst", "index"}
    use = node.operands.get("use_acc")
    if node.op == "wgmma" and isinstance(use, Const) and not use.value:
        written.add("d")
    return {
        leaf.name
        for name, value in node.operands.items()
        if not (name in written and isinstance(value, Reg))
        for leaf in leaves(value)
        if isinstance(leaf, Reg)
    }


def overwrites(node: x.Node) -> set[str]:
    """Tiles that a statement sets as a whole."""
    if not isinstance(node, x.Op):
        return set()
    return {
        value.name
        for name, value in node.operands.items()
        if name in ("dst", "index") and isinstance(value, Reg) and not (value.lead or value.rows or value.cols)
    }


class Liveness:
    """``at[id(node)]``: tiles needed when a pinning statement begins (for equal objects, wherever they stand)."""

    def __init__(self, body: tuple[x.Stmt, ...]) -> None:
        self.at: dict[int, Live] = {}
        self._walk(body, frozenset())

    def asked(self, node: x.Node) -> bool:
        """True for the statements that are kept: those that pin."""
        return pins_here(node)

    def needed(self, node: x.Node) -> Live:
        """Tiles needed when one of these begins."""
        return self.at.get(id(node), frozenset())

    def _walk(self, body: tuple[x.Stmt, ...], live: Live) -> Live:
        for node in reversed(body):
            if isinstance(node, x.For):
                while True:
                    entry = live | self._walk(node.body, live)
                    if entry == live:
                        break
                    live = entry
            elif isinstance(node, x.If):
                live = frozenset().union(*(self._walk(b, live) for b in blocks(node)))
            live = (live - overwrites(node)) | reads(node)
            if self.asked(node):
                self.at[id(node)] = self.needed(node) | live
        return live
