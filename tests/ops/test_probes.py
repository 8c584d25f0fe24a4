"""What ptxas accepts around wgmma, so that a compiler that changes its mind shows; Cake refuses what it does not."""

from __future__ import annotations

import pytest

from cake.codegen import nvrtc
from cake.compiler import expand_text
from cake.diagnostics import CakeError
from tests.ops.probes import PROBES, Probe, remarks

try:
    nvrtc.bindings()
    NVRTC = True
except CakeError:
    NVRTC = False


@pytest.mark.skipif(not NVRTC, reason="NVRTC is not installed")
@pytest.mark.parametrize("probe", PROBES, ids=lambda p: p.name)
def test_ptxas(probe: Probe) -> None:
    """The remarks are exactly those on record: none where the groups stay asynchronous."""
    assert remarks(probe) == probe.serialised


@pytest.mark.parametrize("probe", [p for p in PROBES if p.guards], ids=lambda p: p.name)
def test_refused(probe: Probe) -> None:
    """A run-time guard in a steady loop is W713, before any compiler is asked."""
    with pytest.raises(CakeError) as error:
        expand_text(probe.source, "probe.cake")
    first = error.value.diagnostics[0]
    assert first.code == "W713" and "split" in (first.help or "")
