"""Fields that linger: slots and cursors of their own, and how long they may be read."""

from __future__ import annotations

from typing import Any

import numpy as np

from cake.compiler import check_text, expand_text
from cake.ir import expanded as x
from cake.machine import run
from cake.machine.order import check as order
from tests.expand.cases import Case, check, parametrised

SOURCE = """
kernel k(a: f32[M, 64], h: f32[M], out y: f32[M, 64]) for sm_90a:
    where M % 16 == 0
    tiles once:
        i in 1
    role load: warps 1
    role math: warps 1
    pipeline p[2] load -> math:
        a: f32[16, 64]
        h: f32[16]{linger}
    do load:
        for t in tiles:
            for j in range(M // 16):
                with p.fill() as s:
                    tma.load(s.a, a[16 * j : 16 * j + 16, :])
                    tma.load(s.h, h[16 * j : 16 * j + 16])
    do math:
        v: f32[16, 64] frag
        for t in tiles:
            for j in range(M // 16):
                s = p.wait()
                v = load(s.a[rows(v), cols(v)])
                p.release()
                {read}
                store(y[16 * j + rows(v), cols(v)], v * f, where=16 * j + rows(v) < M)
"""
READ = "f = load(s.h[rows(v)])"


def source(read: str = READ, linger: str = " linger(1)") -> str:
    """A field that is read after its stage was given back."""
    return SOURCE.format(read=read, linger=linger)


def values() -> dict[str, Any]:
    """Seven stages."""
    rng = np.random.default_rng(0)
    return {
        "a": rng.standard_normal((112, 64), dtype=np.float32),
        "h": rng.standard_normal(112, dtype=np.float32),
        "y": np.zeros((112, 64), np.float32),
    }


def test_slots_and_cursors() -> None:
    kernel = expand_text(source())
    assert (kernel.buffer("p.a").slots, kernel.buffer("p.h").slots) == (2, 3)
    assert {n: c for r in kernel.roles for n, c in r.cursors.items()} == {
        "p.fill": 2, "p.fill.3": 3, "p.wait": 2, "p.wait.3": 3, "s": 2, "s.3": 3,
    }  # fmt: skip


def test_values_and_order() -> None:
    kernel, given = expand_text(source()), values()
    for seed in range(3):
        out = run(kernel, given, seed=seed).outputs["y"]
        assert np.array_equal(out, given["a"] * given["h"][:, None])
    assert order(kernel, given) == []


def test_without_the_extra_slot_the_read_is_late() -> None:
    """What linger is for: with as many slots as stages the refill overtakes the read."""
    kernel = expand_text(source())
    short = [b.model_copy(update={"slots": 2}) if b.name == "p.h" else b for b in kernel.buffers]
    roles = [_two(r) for r in kernel.roles]
    kernel = kernel.model_copy(update={"buffers": tuple(short), "roles": tuple(roles)})
    assert {f.code for f in order(kernel, values())} & {"D202", "F302"}


def _two(role: x.Role) -> x.Role:
    return role.model_copy(update={"cursors": dict.fromkeys(role.cursors, 2)})


CASES = [
    Case("without linger", "D212", source(READ + "  # here", ""), ("given back",)),
    Case("too late", "D212", source("q = p.wait()\n                p.release()\n                " + READ + "  # here"), ("lingers until 1",), alone=False),
    Case("the other field", "D212", source(READ + "\n                z = load(s.a[rows(v), cols(v)])  # here"), ("given back",)),
    Case("argument", "T015", source(linger=" linger  # here"), ("linger(n)",), alone=False),
    Case("zero", "T008", source(linger=" linger(0)  # here"), ("at least 1",), alone=False),
    Case("plain buffer", "T015", source().replace("    do load:", "    smem b: f32[16] linger(1)  # here\n    do load:"), ("plain",)),
]  # fmt: skip


@parametrised(CASES)
def test_misuse(case: Case) -> None:
    check(case)


def test_a_kept_handle_is_read_an_iteration_later() -> None:
    """linger(2): one more release lies between."""
    text = (
        source("f = load(s.h[rows(v)])", " linger(2)")
        .replace(
            "            for j in range(M // 16):\n                s = p.wait()",
            "            old = p.wait()\n            p.release()\n            for j in range(1, M // 16):\n                s = p.wait()",
        )
        .replace("f = load(s.h[rows(v)])", "f = load(old.h[rows(v)])\n                old = s")
    )
    assert check_text(text) == []
    check(
        Case(
            "kept",
            "D212",
            text.replace("old.h[rows(v)])", "old.h[rows(v)])  # here").replace("linger(2)", "linger(1)"),
            ("linger",),
            alone=False,
        )
    )
