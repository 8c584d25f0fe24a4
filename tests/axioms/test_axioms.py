"""The probes of docs/axioms.md: they compile anywhere, and on a GPU none of them contradicts what the verifier rests on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cake.codegen.build import build, write
from cake.diagnostics import CakeError
from cake.machine.run import run as simulate
from tests.axioms.kernels import KERNELS
from tests.axioms.launch import run, verdict
from tests.axioms.table import PROBES

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def device() -> Iterator[None]:
    """A Hopper device, or the test is skipped."""
    from cake.runtime import driver as module

    try:
        found = module.driver()
    except CakeError as e:
        pytest.skip(e.diagnostics[0].message)
    if (found.attribute(0, "major"), found.attribute(0, "minor")) != (9, 0):
        pytest.skip("needs sm_90")
    yield


def test_every_axiom_has_its_probe() -> None:
    """A1 to A11; the page names each probe."""
    axioms = {p.axiom for p in PROBES.values()} | {p.axiom for p in KERNELS.values()}
    assert {f"A{n}" for n in range(1, 12)} <= axioms
    page = (ROOT / "docs" / "axioms.md").read_text()
    assert [name for name in (*PROBES, *KERNELS) if f"`{name}`" not in page] == []


@pytest.mark.parametrize("source", sorted({p.source for p in PROBES.values()}))
def test_probes_compile(source: str) -> None:
    probe = next(p for p in PROBES.values() if p.source == source)
    assert len(probe.cubin()) > 1000


@pytest.mark.parametrize("name", KERNELS)
def test_the_simulator_agrees_with_the_expectation(name: str) -> None:
    probe = KERNELS[name]
    kernel = probe.kernel()
    for arguments, expected in list(probe.launches())[::5]:
        found = simulate(kernel, arguments).outputs["y"]
        assert np.array_equal(found.astype(np.float32), expected.astype(np.float32))


@pytest.mark.gpu
@pytest.mark.parametrize("name", [n for n, p in PROBES.items() if p.claims])
def test_axiom_holds(name: str, device: None) -> None:
    probe = PROBES[name]
    cubin = probe.cubin()
    for seed in (1, 2, 3):
        counts = run(probe, cubin, seed)
        assert verdict(probe, counts) == "holds", counts
        assert counts["checks"]


@pytest.mark.gpu
@pytest.mark.parametrize("name", KERNELS)
def test_copy_engine(name: str, device: None, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from benchmarks.conformance import _bits, _tensor
    from cake.runtime import load
    from tests.ops.compare import raw

    probe = KERNELS[name]
    kernel: Any = load(write(build(probe.kernel()), tmp_path))
    for arguments, expected in probe.launches():
        x, y = _tensor(torch, raw(arguments["x"]), probe.dtype), _tensor(torch, raw(arguments["y"]), probe.dtype)
        kernel(x=x, y=y, **{n: v for n, v in arguments.items() if isinstance(v, int)})
        torch.cuda.synchronize()
        assert np.array_equal(_bits(torch, y, raw(expected)), raw(expected)), arguments.get("c0")
