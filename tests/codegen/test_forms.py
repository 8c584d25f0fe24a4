"""Every form of every operation compiles, without spills, local memory or compiler remarks; the tables are complete."""

from __future__ import annotations

import pytest

from cake.codegen import emit, nvrtc
from cake.codegen.elementwise import ELEMENTWISE as CUDA
from cake.codegen.ops import OPS as EMITTED
from cake.codegen.report import report
from cake.codegen.sync import SYNC as SYNCHRONISED
from cake.diagnostics import CakeError
from cake.ir.elementwise import ELEMENTWISE
from cake.ir.ops import OPS, SYNC
from tests.codegen.forms import FORMS, operation_names

try:
    nvrtc.bindings()
    NVRTC = True
except CakeError:
    NVRTC = False

FAST = {
    "elementwise // i32",
    "elementwise where bf16",
    "elementwise erf f32",
    "cast e4m3 to bf16",
    "cast f32 to i8",
    "L2 hint",
    "scalars",
    "flags",
    "masked elements and strides",
    "gather and scatter by register indices",
    "atomic max f32 global",
    "wgmma n80 bf16",
    "wgmma e4m3",
    "elements of a peer's shared memory",
    "wgmma 2 blocks, MN-major A and B",
    "mma bf16 B by columns",
    "stmatrix",
    "argreduce bf16",
    "topk 5 group 4",
    "reduce across warps",
    "tma 5d",
    "tma multicast with a hint",
    "cp_async on a barrier",
    "registers between roles, named barriers by index",
}
CASES = [
    pytest.param(name, target, id=f"{name}-{target}", marks=() if name in FAST else pytest.mark.slow)
    for name, (targets, _) in FORMS.items()
    for target in targets
]


def test_tables() -> None:
    assert CUDA.keys() == ELEMENTWISE.keys()
    assert EMITTED.keys() == OPS.keys()
    assert SYNCHRONISED.keys() == SYNC.keys()


def test_every_operation_has_a_form() -> None:
    seen: set[str] = set()
    for targets, build in FORMS.values():
        seen |= operation_names(build(targets[-1]))
    assert seen == OPS.keys()
    assert set(FORMS) >= FAST


@pytest.mark.skipif(not NVRTC, reason="NVRTC is not installed")
@pytest.mark.parametrize(("name", "target"), CASES)
def test_compiles(name: str, target: str) -> None:
    kernel = FORMS[name][1](target)
    c = nvrtc.compile_source(emit(kernel), target, name="form.cu")
    r = report(c.cubin, kernel="form", log=c.log, sass="")
    assert not r.spills and r.stack_bytes == 0
    assert "warning" not in c.log.lower(), c.log
