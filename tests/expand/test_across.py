"""Pipelines whose stages the CTAs of a cluster fill together: what is derived, values, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cake.compiler import expand_text
from cake.expand.prune import flatten
from cake.ir import expanded as x
from cake.machine import run
from cake.verify.engine import verify
from tests.expand.compare import skeleton
from tests.expand.kernels import codes
from tests.verify.joined import JOINED


def nodes(kernel: x.Kernel, role: str) -> list[x.Stmt]:
    return flatten(next(r for r in kernel.roles if r.name == role).body)


def changed(kernel: x.Kernel, change: Callable[[x.Stmt], x.Stmt]) -> x.Kernel:
    """The kernel with each synchronising statement replaced."""

    def walk(body: tuple[x.Stmt, ...]) -> tuple[x.Stmt, ...]:
        return tuple(n.model_copy(update={"body": walk(n.body)}) if isinstance(n, x.For) else change(n) for n in body)

    roles = tuple(r.model_copy(update={"body": walk(r.body)}) for r in kernel.roles)
    return kernel.model_copy(update={"roles": roles})


@pytest.mark.parametrize("parts", [2, 4])
def test_every_cta_is_told_and_tells(parts: int) -> None:
    kernel = expand_text(JOINED, constants={"PARTS": parts})
    assert (kernel.barrier("sums.full").count, kernel.barrier("sums.empty").count) == (2 * parts, parts)
    told = [n for role in ("add", "join") for n in nodes(kernel, role) if isinstance(n, x.Arrive)]
    assert len(told) == 2 and all(n.peers == tuple(range(parts)) and n.scope == "cluster" for n in told)
    waits = [n for role in ("add", "join") for n in nodes(kernel, role) if isinstance(n, x.Wait)]
    assert len(waits) == 2 and all(n.scope == "cluster" for n in waits)
    ends = [n for role in ("add", "join") for n in nodes(kernel, role) if isinstance(n, x.Cluster)]
    assert [n.reason for n in ends] == ["cluster end", "cluster end"], "no CTA leaves while others read it"


def test_one_cta_is_an_ordinary_pipeline() -> None:
    plain = JOINED.replace(" across(z)", "").replace(".of((t.z + i + 1) % PARTS)", "")
    assert skeleton(expand_text(JOINED, constants={"PARTS": 1})) == skeleton(expand_text(plain, constants={"PARTS": 1}))


@pytest.mark.parametrize(("parts", "m", "n"), [(1, 3, 260), (2, 5, 516), (4, 9, 300), (4, 1, 4)])
def test_values(parts: int, m: int, n: int) -> None:
    values = np.random.default_rng(m).standard_normal((m, n), dtype=np.float32)
    kernel = expand_text(JOINED, constants={"PARTS": parts})
    for seed in (0, 1):
        found = run(kernel, {"x": values, "y": np.full(n, np.nan, np.float32)}, seed=seed, ctas=parts).outputs["y"]
        np.testing.assert_allclose(found, values.sum(axis=0, dtype=np.float64), rtol=1e-5, atol=1e-5)


def test_it_is_safe() -> None:
    assert verify(expand_text(JOINED), effort="full").status == "safe"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"scope": "cta"}, "F304"),  # permission alone: what others stored need not be seen
        ({"peers": (0,)}, "P101"),  # others wait for ever
    ],
    ids=["scope", "peers"],
)
def test_what_is_derived_is_needed(change: dict[str, Any], code: str) -> None:
    def weaker(n: x.Stmt) -> x.Stmt:
        return n.model_copy(update=change) if isinstance(n, x.Arrive) and n.reason == "filled" else n

    verdict = verify(changed(expand_text(JOINED), weaker), effort="full")
    assert verdict.status == "unsafe" and code in {d.code for d in verdict.diagnostics}


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("across(z)", "across(m)", "T003"),
        ("add -> join across(z)", "add -> one join across(z)", "T015"),
        ("store(o.s[cols(v)], v)", "tma.load(o.s, x[t.z, t.n * 256 : t.n * 256 + 256])", "T015"),
        ("(t.z + i + 1) % PARTS", "t.z + i + 1", "O503"),
        ("sums[1] add -> join across(z)", "sums[1] add -> join", "T014"),
        ("store(o.s[cols(v)], v)", "store(o.s.of(0)[cols(v)], v)", "T014"),
        (
            "            with sums.fill() as o:\n    ",
            "            if t.z > 0:\n                with sums.fill() as o:\n        ",
            "C604",
        ),
    ],
    ids=["no axis", "one", "TMA", "outside", "not across", "store", "condition"],
)
def test_refused(old: str, new: str, code: str) -> None:
    assert JOINED.count(old) == 1
    assert code in codes(JOINED.replace(old, new))


def test_only_loads_reach_other_ctas() -> None:
    text = JOINED.replace(
        "total = load(s.s[c])", "tma.store(y[t.n * 256 : t.n * 256 + 256], s.s.of(0))\n            total = load(s.s[c])"
    )
    assert "T011" in codes(text)
