"""Exchanges between lanes of a warp in whole kernels: what expansion derives is right for all trip counts, nothing of it can be left
out, and a text without it is refused with a fix."""

from __future__ import annotations

import pytest

from cake.compiler import check_text
from cake.diagnostics.fixes import apply_fix
from cake.expand import kernel as expansion
from cake.expand.lanes import WHY
from cake.ir import expanded as x
from cake.verify import verify
from cake.verify.closure import explore
from cake.verify.skeleton import Unfit, plan
from tests.expand.test_lanes import TEXT, made
from tests.machine.edit import edit


def crossing() -> x.Kernel:
    """Each tile is turned round in shared memory: what is read at the end of one tile is overwritten at the start of the next."""
    return made(read="s[0, 63 - cols(v)]")


def test_derived_order_is_proved() -> None:
    verdict = verify(crossing())
    assert verdict.status == "safe" and verdict.proved
    verdict = verify(made("store(s[0, cols(v)], v)", "s[0, cols(v)]"))
    assert verdict.status == "safe" and verdict.proved, "no meeting at all: each lane has its own elements"


@pytest.mark.parametrize("which", [0, 1])
def test_nothing_of_it_can_be_left_out(which: int) -> None:
    """Within a tile, and from one tile to the next; and no graph of states closes over it."""
    seen: list[x.Stmt] = []

    def change(node: x.Stmt) -> x.Stmt | None:
        if not isinstance(node, x.SyncWarp) or node.reason != WHY:
            return node
        seen.append(node)
        return None if len(seen) == which + 1 else node

    k = edit(crossing(), change)
    assert len(seen) == 2
    verdict = verify(k)
    assert verdict.status == "unsafe" and verdict.codes == ("D216",)
    assert verdict.diagnostics[0].contract == "lanes of a warp order what they exchange through memory"
    with pytest.raises(Unfit):
        explore(plan(k), max_steps=20_000, seconds=20.0)


def test_a_text_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were nothing derived, the finding names both statements, and its fix puts a barrier between them."""
    monkeypatch.setattr(expansion.lanes, "ordered", lambda role, shared: role)
    lines = TEXT.format(
        warps=1, vector=2, write="store(s[0, cols(v)], v)", between="", read="s[0, 63 - cols(v)]", after="sync()"
    ).splitlines()
    text = "\n".join(line for line in lines if line.strip()) + "\n"
    (found,) = check_text(text, verify="quick")
    assert found.code == "D216" and found.span is not None
    read = text.splitlines()[found.span.line - 1]
    assert "v = load(s[" in read
    assert [label.span.line - found.span.line for label in found.labels if label.span is not None] == [-1, 0]
    assert found.fix is not None and found.fix.verified
    fixed = apply_fix(text, found.fix)
    assert [line.strip() for line in fixed.splitlines()][found.span.line - 1 :][:2] == ["sync()", read.strip()]
    assert check_text(fixed, verify="quick") == []
