"""The GEMM fixture is ordered as it needs to be, over shapes; each of its mutations is found and named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cake.ir import expanded as x
from cake.ir.expr import Apply, integer
from cake.machine.order import check
from tests.expanded.gemm import gemm
from tests.machine.edit import edit, is_arrive, updated, with_count
from tests.machine.small import BF16

KERNEL = gemm(bn=128)


def arguments(m: int, n: int, k: int) -> dict[str, Any]:
    """Zeros: the order of events does not depend on the values."""
    return {"a": np.zeros((m, k), BF16), "b": np.zeros((n, k), BF16), "c": np.zeros((m, n), BF16)}


def codes(kernel: x.Kernel, m: int = 256, n: int = 256, k: int = 456, seed: int = 0) -> list[str]:
    """The codes found, each once, in order: 2 x 2 tiles of 8 slabs unless stated, by one CTA."""
    return list(dict.fromkeys(d.code for d in check(kernel, arguments(m, n, k), ctas=1, seed=seed)))


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize(("m", "n"), [(128, 128), (200, 264), (384, 128)])
@pytest.mark.parametrize("k", [64, 128, 320])
def test_safe(stages: int, m: int, n: int, k: int) -> None:
    assert codes(gemm(bn=128, stages=stages), m, n, k) == []


def test_safe_in_other_schedules_and_with_two_ctas() -> None:
    assert check(gemm(), arguments(256, 512, 200), ctas=2) == []
    for seed in range(1, 8):
        assert codes(KERNEL, 200, 264, 200, seed=seed) == []


def test_a_single_stage_with_a_lag_of_one_deadlocks() -> None:
    assert codes(gemm(bn=128, stages=1)) == ["P101"]


# ---- mutations -------------------------------------------------------------------------------------------------------


def _drop(kernel: x.Kernel, which: Callable[[x.Stmt], bool]) -> x.Kernel:
    return edit(kernel, lambda node: None if which(node) else node)


def _is_tail(node: x.Stmt) -> bool:
    return isinstance(node, x.Arrive) and node.barrier == "ab.empty" and node.slot.back == 1


def _is_wait(node: x.Stmt, barrier: str) -> bool:
    return isinstance(node, x.Wait) and node.barrier == barrier


def _is_group(node: x.Stmt, queue: str, keep: int) -> bool:
    return isinstance(node, x.GroupWait) and node.queue == queue and node.keep == keep


def _early(node: x.Stmt) -> x.Stmt:
    """The release comes before the wait for the wgmma that reads the stage."""
    if not (isinstance(node, x.For) and node.var == "k"):
        return node
    *head, wait, release = node.body
    return updated(node, body=(*head, release, wait))


def _more_bytes(by: int) -> x.Kernel:
    def change(node: x.Stmt) -> x.Stmt:
        return updated(node, bytes=node.bytes + by) if isinstance(node, x.Arrive) and node.bytes else node

    return edit(KERNEL, change)


def _keep(node: x.Stmt) -> x.Stmt:
    return updated(node, keep=2) if _is_group(node, "bulk", 1) else node


def _barriers(first: bool) -> x.Kernel:
    """Drop every second barrier of the store ring: that after the bulk wait, or that before the store."""
    seen = [0]

    def change(node: x.Stmt) -> x.Stmt | None:
        if isinstance(node, x.Named) and node.barrier == "math":
            seen[0] += 1
            return None if (seen[0] % 2 == 1) == first else node
        return node

    return edit(KERNEL, change, "math")


def _longer(node: x.Stmt) -> x.Stmt:
    """One slab more in a loop over k."""
    if isinstance(node, x.For) and node.var == "k":
        return updated(node, hi=Apply(op="+", args=(node.hi, integer(1)), dtype="i32"))
    return node


def _last_fill(node: x.Stmt) -> x.Stmt | list[x.Stmt]:
    """After the last tile, one more fill (of the first slab of the tensors)."""
    if not (isinstance(node, x.For) and node.role == "tiles"):
        return node
    inner = next(n for n in node.body if isinstance(n, x.For))
    fill = tuple(n for n in inner.body if not isinstance(n, x.Let))
    zero = [x.Let(name=name, dtype="i32", value=integer(0)) for name in ("t.m0", "t.n0", "k0")]
    return [node, *zero, *fill]


def _leader() -> x.Kernel:
    """One warp of each instance releases for the four."""
    change = edit(KERNEL, lambda n: updated(n, executor="one") if is_arrive(n, "ab.empty") else n, "math")
    return with_count(change, "ab.empty", 2)


def _rewait() -> x.Kernel:
    """The stage's wait comes after the wgmma that reads it."""

    def change(node: x.Stmt) -> x.Stmt | list[x.Stmt] | None:
        if _is_wait(node, "ab.full"):
            return None
        if isinstance(node, x.Commit) and node.queue == "wgmma":
            return [node, x.Wait(barrier="ab.full", slot=x.Slot(cursor="s"))]
        return node

    return edit(KERNEL, change, "math")


# Three are safe, and the axioms say why: every wgmma joins its warpgroup and its group's completion retires the
# reads of all four warps (E14, A1), so any one warp may release; and a relaxed arrival carries permission, which is
# all that a release after completed async reads needs (E5, A5).
MUTANTS: dict[str, tuple[Callable[[], x.Kernel], list[str]]] = {
    "tail release dropped": (lambda: _drop(KERNEL, _is_tail), ["P101"]),
    "release dropped": (lambda: _drop(KERNEL, lambda n: isinstance(n, x.If)), ["P101"]),
    "release before the wgmma wait": (lambda: edit(KERNEL, _early, "math"), ["D202"]),
    "release by the leader": (_leader, []),
    "syncwarp before release dropped": (lambda: _drop(KERNEL, lambda n: isinstance(n, x.SyncWarp)), []),
    "full wait dropped": (lambda: _drop(KERNEL, lambda n: _is_wait(n, "ab.full")), ["P103", "P106"]),
    "full wait after the wgmma": (_rewait, ["D201"]),
    "empty wait dropped": (lambda: _drop(KERNEL, lambda n: _is_wait(n, "ab.empty")), ["P103"]),
    "too many bytes announced": (lambda: _more_bytes(16), ["P104", "P101"]),
    "too few bytes announced": (lambda: _more_bytes(-16), ["P104", "P101"]),
    "empty count + 1": (lambda: with_count(KERNEL, "ab.empty", 9), ["P103", "P101"]),
    "empty count - 1": (lambda: with_count(KERNEL, "ab.empty", 7), ["P103", "P106"]),
    "full count + 1": (lambda: with_count(KERNEL, "ab.full", 2), ["P103", "P101"]),
    "store ring keeps two": (lambda: edit(KERNEL, _keep), ["D207"]),
    "no barrier after the bulk wait": (lambda: _barriers(True), ["D207"]),
    "no barrier before the store": (lambda: _barriers(False), ["D204"]),
    "no async fence": (lambda: _drop(KERNEL, lambda n: isinstance(n, x.Fence) and n.what == "async_shared"), ["F301"]),
    "no drain": (lambda: _drop(KERNEL, lambda n: _is_group(n, "bulk", 0)), ["D213"]),
    "no wgmma wait in the loop": (lambda: _drop(KERNEL, lambda n: _is_group(n, "wgmma", 1)), ["D202"]),
    "no wgmma wait before the epilogue": (
        lambda: _drop(KERNEL, lambda n: _is_group(n, "wgmma", 0)),
        ["D202", "D206", "D213"],
    ),
    "no wgmma fence": (lambda: _drop(KERNEL, lambda n: isinstance(n, x.Fence) and n.what == "wgmma"), ["F306"]),
    "one fill too many in the last tile": (lambda: edit(KERNEL, _last_fill, "load"), ["D213"]),
    "one slab too many filled": (lambda: edit(KERNEL, _longer, "load"), ["D213"]),
    "one slab too many used": (lambda: edit(KERNEL, _longer, "math"), ["P101"]),
    "relaxed release": (
        lambda: edit(KERNEL, lambda n: updated(n, sem="relaxed") if is_arrive(n, "ab.empty") else n),
        [],
    ),
    "relaxed full wait": (
        lambda: edit(KERNEL, lambda n: updated(n, sem="relaxed") if _is_wait(n, "ab.full") else n),
        ["F305"],
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_mutant(name: str) -> None:
    build, expected = MUTANTS[name]
    assert codes(build()) == expected
