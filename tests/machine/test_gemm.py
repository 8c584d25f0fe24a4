"""The GEMM expanded by hand, over ragged shapes and many schedules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cake import machine
from tests.expanded.gemm import gemm
from tests.machine.small import BF16

KERNEL = gemm()


def arguments(m: int, n: int, k: int) -> dict[str, Any]:
    rng = np.random.default_rng(m * 31 + n * 7 + k)
    a, b = rng.standard_normal((m, k)), rng.standard_normal((n, k))
    return {"a": a.astype(BF16), "b": b.astype(BF16), "c": np.zeros((m, n), BF16)}


def check(args: dict[str, Any], c: Any) -> None:
    exact = args["a"].astype(np.float32) @ args["b"].astype(np.float32).T
    np.testing.assert_allclose(c.astype(np.float32), exact, rtol=1 / 128, atol=1e-3)


@pytest.mark.parametrize(
    ("m", "n", "k"), [(128, 256, 64), (1, 8, 8), (128, 256, 8), (300, 520, 200), (129, 264, 72), (700, 8, 328)]
)
def test_shapes(m: int, n: int, k: int) -> None:
    args = arguments(m, n, k)
    check(args, machine.run(KERNEL, args).outputs["c"])


def test_schedules_agree_bit_for_bit() -> None:
    args = arguments(300, 520, 200)
    first = machine.run(KERNEL, args).outputs["c"]
    check(args, first)
    for seed in range(1, 20):
        again = machine.run(KERNEL, args, seed=seed).outputs["c"]
        assert np.array_equal(first.view(np.uint16), again.view(np.uint16)), f"seed {seed}"


@pytest.mark.parametrize("ctas", [1, 3, 100])
def test_number_of_clusters(ctas: int) -> None:
    args = arguments(400, 520, 136)
    result = machine.run(KERNEL, args, ctas=ctas)
    check(args, result.outputs["c"])
    assert result.clusters == min(ctas, 12)


def test_arguments_stay_untouched() -> None:
    args = arguments(128, 256, 64)
    machine.run(KERNEL, args)
    assert not args["c"].astype(np.float32).any()


def test_large() -> None:
    """Many tiles a CTA and many rounds of each ring."""
    args = arguments(512, 512, 512)
    product = machine.run(KERNEL, args).outputs["c"].astype(np.float32)
    expected = args["a"].astype(np.float32) @ args["b"].astype(np.float32).T
    assert np.abs(product - expected).max() <= 2**-8 * np.abs(expected).max()


def test_observed_stream() -> None:
    recorder = machine.Recorder()
    args = arguments(300, 264, 136)
    check(args, machine.run(KERNEL, args, observer=recorder).outputs["c"])
    assert [e.id for e in recorder.events] == list(range(len(recorder.events)))
    agents = recorder.setups[0].agents
    assert len(agents) == 2 * 12 * 2 and agents[0].name == "w0.0.L"
    assert len(recorder.of("begin")) == len(recorder.of("exit")) == len(agents)
    waits: Any = recorder.of("wait")
    passes: Any = recorder.of("pass")
    assert len(waits) == len(passes)
    assert all(p.found == p.intended for p in passes)
    issues: Any = recorder.of("issue")
    done: Any = recorder.of("done")
    assert len(done) == 2 * len(issues)
    contributions: Any = recorder.of("contrib")
    assert all(c.intended == c.phase for c in contributions)
    stores = [i for i in issues if i.op.op == "tma.store"]
    assert all(
        e.region.spans[0][1] - e.region.spans[0][0] == 8192 for i in stores for e in i.effects if e.operand == "src"
    )
    written: Any = [e for e in recorder.of("access") if e.effect.operand == "dst"]  # type: ignore[attr-defined]
    assert {sum(hi - lo for lo, hi in e.effect.region.spans) for e in written} == {2048}
