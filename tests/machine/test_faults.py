"""Deliberate faults in the GEMM: each one hangs with a finding, or gives a wrong result in some schedule."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cake import machine
from cake.compiler import expand_text
from cake.diagnostics import CakeError, Diagnostic
from cake.ir import expanded as x
from tests.expanded.gemm import gemm
from tests.machine.edit import edit, is_arrive, updated, with_count
from tests.machine.small import BF16

KERNEL = gemm()


def arguments(m: int = 200, n: int = 264, k: int = 456) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((m, k)), rng.standard_normal((n, k))
    return {"a": a.astype(BF16), "b": b.astype(BF16), "c": np.zeros((m, n), BF16)}


def findings(kernel: x.Kernel, seed: int = 0) -> tuple[Diagnostic, ...]:
    with pytest.raises(CakeError) as caught:
        machine.run(kernel, arguments(), seed=seed, ctas=1)
    return caught.value.diagnostics


def wrong_seeds(kernel: x.Kernel, seeds: range) -> list[int]:
    """The schedules whose result differs from the right one (or that stop)."""
    args = arguments()
    right = machine.run(KERNEL, args, ctas=1).outputs["c"].view(np.uint16)
    wrong = []
    for seed in seeds:
        try:
            result = machine.run(kernel, args, seed=seed, ctas=1).outputs["c"].view(np.uint16)
        except CakeError:
            wrong.append(seed)
            continue
        if not np.array_equal(right, result):
            wrong.append(seed)
    return wrong


def test_dropped_release_is_a_deadlock() -> None:
    kernel = edit(KERNEL, lambda n: None if is_arrive(n, "ab.empty") else n)
    for seed in (0, 1, 5):
        (found,) = findings(kernel, seed)
        assert found.code == "P101"
        text = "\n".join(found.witness)
        assert "waits for ab.empty[0] phase 0; phase 0 is in progress and lacks 8 of 8 arrivals" in text
        assert "load, t.pos=0, k=4 (w0.0.L)" in text
        assert "math[0]" in text and "waits for ab.full[0] phase 1" in text
        assert found.message.startswith("deadlock: ")


def test_dropped_tail_release_hangs_later() -> None:
    def change(node: x.Stmt) -> x.Stmt | None:
        return None if is_arrive(node, "ab.empty") and node.slot.back == 1 else node  # type: ignore[union-attr]

    assert findings(edit(KERNEL, change))[0].code == "P101"


def test_dropped_acquire_shows() -> None:
    kernel = edit(KERNEL, lambda n: None if isinstance(n, x.Wait) and n.barrier == "ab.empty" else n)
    assert len(wrong_seeds(kernel, range(1, 9))) >= 6


def test_early_release_shows() -> None:
    """Release of the newest stage before its wgmma has finished."""

    def change(node: x.Stmt) -> x.Stmt:
        if isinstance(node, x.GroupWait) and node.queue == "wgmma" and node.keep == 1:
            return updated(node, keep=2)
        return node

    assert wrong_seeds(edit(KERNEL, change), range(1, 25))


def test_dropped_wgmma_wait_shows() -> None:
    kernel = edit(KERNEL, lambda n: None if isinstance(n, x.GroupWait) and n.ready else n)
    assert len(wrong_seeds(kernel, range(8))) >= 6


@pytest.mark.parametrize(("count", "code"), [(7, "P103"), (9, "P101")])
def test_wrong_empty_count(count: int, code: str) -> None:
    kernel = with_count(KERNEL, "ab.empty", count)
    if code == "P101":
        (found,) = findings(kernel)
        assert found.code == code and f"lacks 1 of {count} arrivals" in "\n".join(found.witness)
    else:
        codes = set()
        for seed in range(8):
            try:
                machine.run(kernel, arguments(), seed=seed, ctas=1)
            except CakeError as error:
                codes |= {d.code for d in error.diagnostics}
        assert codes and codes <= {"P103", "P101"}


def test_excess_arrival() -> None:
    kernel = edit(KERNEL, lambda n: updated(n, weight=2) if is_arrive(n, "ab.full") else n)
    (found,) = findings(kernel)
    assert found.code == "P103"
    assert "2 arrivals on ab.full[0], but phase 0 has room for 1 of 1" in found.message
    assert any("load, t.pos=0, k=0" in fact for fact in found.facts)


@pytest.mark.parametrize("delta", [-16, 16])
def test_wrong_bytes(delta: int) -> None:
    def change(node: x.Stmt) -> x.Stmt:
        return updated(node, bytes=node.bytes + delta) if is_arrive(node, "ab.full") else node  # type: ignore[union-attr]

    found = findings(edit(KERNEL, change))
    assert [d.code for d in found][:2] == ["P101", "P104"]
    assert f"16 more bytes {'announced than landed' if delta > 0 else 'landed than announced'}" in found[1].message


def test_announcement_without_arrival() -> None:
    kernel = edit(KERNEL, lambda n: updated(n, form="expect") if is_arrive(n, "ab.full") else n)
    (found, *_) = findings(kernel)
    assert found.code == "P101" and "lacks 1 of 1 arrivals" in "\n".join(found.witness)


def test_store_ring_without_reuse_wait_shows() -> None:
    kernel = edit(KERNEL, lambda n: None if isinstance(n, x.GroupWait) and n.queue == "bulk" else n)
    assert wrong_seeds(kernel, range(1, 25))


def test_store_without_barrier_shows() -> None:
    """The bulk store may read before the other warps have written their rows."""
    last: list[x.Stmt] = []

    def change(node: x.Stmt) -> x.Stmt | None:
        drop = isinstance(node, x.Named) and bool(last) and isinstance(last[-1], x.Fence)
        last.append(node)
        return None if drop else node

    assert wrong_seeds(edit(KERNEL, change, "math"), range(1, 25))


def test_registers_over_the_pool() -> None:
    kernel = edit(KERNEL, lambda n: updated(n, count=240) if isinstance(n, x.SetMaxNReg) and n.form == "inc" else n)
    (found,) = findings(kernel)
    assert found.code == "W702"
    assert "wants 240 a thread" in found.message


def test_use_before_init() -> None:
    kernel = KERNEL.model_copy(update={"entry": KERNEL.entry[1:]})
    assert findings(kernel)[0].code == "P113"


def test_named_barrier_with_too_few_threads() -> None:
    named = tuple(updated(b, threads=96) if b.name == "math" else b for b in KERNEL.named)
    assert findings(KERNEL.model_copy(update={"named": named}), 1)[0].code in ("P115", "P101")


def test_step_limit() -> None:
    with pytest.raises(CakeError) as caught:
        machine.run(KERNEL, arguments(), max_steps=100)
    assert caught.value.diagnostics[0].code == "U906"


DIVIDES = """\
kernel divides(x: f32[M, 128], out y: f32[M, 128]) for sm_90a:
    tiles once:
        m in M

    role r: warps 4

    do r:
        v: f32[1, 128] spread(1)
        for t in tiles:
            k = 8 // (M // 64)
            for i in range(k):
                v = load(x[t.m, cols(v)])
                store(y[t.m, cols(v)], v)
"""


@pytest.mark.parametrize(
    "text", [DIVIDES, DIVIDES.replace("            k = 8 // (M // 64)\n", "").replace("(k)", "(8 // (M // 64))")]
)
def test_division_by_zero(text: str) -> None:
    """Of a scalar, and of a bound: a finding, no error of the machine's own."""
    kernel = expand_text(text)
    x, y = np.ones((64, 128), np.float32), np.zeros((64, 128), np.float32)
    assert machine.run(kernel, {"x": x, "y": y}).outputs["y"].all()
    with pytest.raises(CakeError) as caught:
        machine.run(kernel, {"x": x[:63], "y": y[:63]})
    assert [d.code for d in caught.value.diagnostics] == ["N807"]
