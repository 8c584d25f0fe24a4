"""Groups of matrix products and of bulk stores: waited for not at all, too late, or but for too many."""

from __future__ import annotations

from collections.abc import Iterator

from cake.ir import surface as s
from cake.ir.printer import format_expr
from cake.verify.repairs.finding import Finding, cures
from cake.verify.repairs.text import Repair, Statement, Text


@cures("D206", "D202", "D201", "D203", "D213", "W713", "P101")
def products(text: Text, found: Finding) -> Iterator[Repair]:
    """A wait that lets fewer groups go on, comes earlier, or is made at all."""
    waits = found.near(t for t in text.statements if t.function == "wgmma.wait")
    tiles = [w for w in found.words if _is_tile(found, text, w)]
    for wait in waits:
        yield from _fewer(text, wait, tiles)
        if wait.index:
            yield text.move(wait, wait.index - 1, "wait for the group before its operands are used")
    for user in found.statements(text):
        for tile in tiles if found.code == "D206" else ():
            yield text.before(user, f"wgmma.wait({tile})", f"wait for the group that writes `{tile}`")
        yield text.before(user, "wgmma.wait(keep=0)", "wait for the group before its operands are used")
        for i in range(user.index - 1, max(-1, user.index - 4), -1):
            if text.of(user, i).is_method("", "release"):
                for words in (*(f"wgmma.wait({tile})" for tile in tiles), "wgmma.wait(keep=0)"):
                    yield text.before(text.of(user, i), words, "wait for the group before its stage is given back")
    for issue in found.near(t for t in text.statements if t.function == "wgmma"):
        assert issue.call is not None
        target = format_expr(issue.call.args[0]) if issue.call.args else ""
        last = text.of(issue, _run(issue))
        behind = text.of(last, last.index + 1) if last.index + 1 < len(last.block) else None
        if behind is None or behind.function != "wgmma.wait":
            for keep in ("1", "0"):
                yield text.after(last, f"wgmma.wait(keep={keep})", "wait for the groups whose stages are given back")
            yield text.after(last, f"wgmma.wait({target})", f"wait for the group that writes `{target}`")
        for around in issue.outward():
            if isinstance(around.node, s.For):
                yield text.after(around, f"wgmma.wait({target})", f"wait for the groups that write `{target}`")
                break


def _is_tile(found: Finding, text: Text, word: str) -> bool:
    kernel = found.kernel(text)
    assigned = {d.name for t in text.statements if t.kernel is kernel for d in [t.node] if isinstance(d, s.Declare)}
    return word in assigned


def _run(issue: Statement) -> int:
    """The last of the products that follow each other."""
    last = issue.index
    for i in range(issue.index + 1, len(issue.block)):
        node = issue.block[i]
        if not (
            isinstance(node, s.ExprStmt) and isinstance(node.expr, s.Call) and format_expr(node.expr.func) == "wgmma"
        ):
            break
        last = i
    return last


def _fewer(text: Text, wait: Statement, tiles: list[str]) -> Iterator[Repair]:
    assert wait.call is not None
    keep = next((int(w.value.value) for w in wait.call.kwargs if w.name == "keep" and isinstance(w.value, s.Number)), 0)
    for fewer in range(keep - 1, -1, -1):
        yield text.put(wait.call, f"wgmma.wait(keep={fewer})", "let fewer groups stay in flight")
    if keep:
        for tile in tiles:
            yield text.put(wait.call, f"wgmma.wait({tile})", f"wait for the group that writes `{tile}`")


@cures("D207", "D202", "D213", "D201", "F310", "T019", "T014", "T001")
def stores(text: Text, found: Finding) -> Iterator[Repair]:
    """A bulk store whose buffer is used again."""
    for store in found.near(t for t in text.statements if t.function in ("tma.store", "tma.reduce")):
        for words in ("tma.store.wait_read()", "tma.store.wait()"):
            yield text.after(store, words, "wait until the bulk stores have read the buffer")
        for i in range(store.index + 1, min(len(store.block), store.index + 4)):
            if text.of(store, i).function.startswith("tma.store.wait"):
                yield text.move(text.of(store, i), store.index + 1, "wait for the store right after it")
        if store.index:
            yield text.move(store, store.index - 1, "start the store before the wait for it")
        for line in found.lines[:1]:
            user = text.at(line)
            if user is not None:
                yield text.before(user, "tma.store.wait_read()", "wait until the bulk stores have read the buffer")
