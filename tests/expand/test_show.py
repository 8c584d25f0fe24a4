"""The text of ``cake expand``: stable, complete, and with a reason for what is derived."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cake.compiler import expand_file
from cake.expand.show import show_kernel
from cake.expand.show_program import statements, walk
from cake.ir import expanded as x
from cake.ir.expr import Sym, integer
from cake.ir.parser import parse_file
from tests.litmus.catalogue import kernel as litmus
from tests.litmus.registry import PROGRAMS

ROOT = Path(__file__).parents[2]
GOLDEN = Path(__file__).parent / "golden" / "gemm.txt"
GEMM = ROOT / "tests" / "ir" / "examples" / "gemm.cake"
KERNELS = [
    (ROOT / "tests" / "ir" / "examples" / f"{name}.cake", k.name)
    for name in ("gemm", "rows", "kda", "decode")
    for k in parse_file(ROOT / "tests" / "ir" / "examples" / f"{name}.cake").kernels
]


def test_gemm_is_as_recorded() -> None:
    """Run this file as a module to record the text anew, and read the difference."""
    assert show_kernel(expand_file(GEMM)) == GOLDEN.read_text()


def test_gemm_says_what_matters() -> None:
    text = show_kernel(expand_file(GEMM))
    for pattern in (
        r"4-7 +math\[0\]  232 registers",
        r"ab\.full\[4\] count 1 @229376 +# arrivals: 1 by load, line 25",
        r"ab\.empty\[4\] count 8 @229408 +# arrivals: 2 x 4 warps of math, line 25",
        r"1-2 +math, 128 threads +# instance w uses 1 \+ w",
        r"@196608 +cs\.c\[2\] x 2 instances: bf16\[64, 64\] swizzle\(128\) +# 2 x 2 x 8192 bytes",
        r"b\.map: b, box \[256, 64\], swizzle 128 +# 32768 bytes",
        r"maxnreg 168 +# .*floor8\(65536 / 384\)",
        r"one: wait ab\.empty\[slot of ab\.fill\] phase n - 1 +# acquire: .*, line 36",
        r"one: arrive ab\.full\[slot of ab\.fill\] expect 49152 bytes +# announce: 16384 \+ 32768, line 36",
        r"lanes: issue 4 x m64n256k16 wgmma acc \+= .* use_acc k > 0 +# line 45",
        r"warp: arrive ab\.empty\[slot of ab\.wait - 2\] +# release",
        r"one: gwait bulk\.read keep 0 +# drain",
        r"guard K % 8 == 0 +# checked on the host, line 12",
    ):
        assert re.search(pattern, text), pattern


@pytest.mark.parametrize(("path", "name"), KERNELS, ids=[name for _, name in KERNELS])
def test_every_statement_has_a_line_and_derived_ones_a_reason(path: Path, name: str) -> None:
    kernel = expand_file(path, kernel=name)
    text = show_kernel(kernel)
    assert text == show_kernel(x.Kernel.model_validate_json(kernel.model_dump_json()))
    for role in kernel.roles:
        lines = [line for line in statements(kernel, role, role.body) if line.text != "else:"]
        nodes = list(walk(role.body))
        assert len(lines) == len(nodes)
        for line, node in zip(lines, nodes, strict=True):
            assert line.span == node.span
            assert line.reason or node.reason == "written"
            assert line.text in text


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_programs_written_by_hand_can_be_shown(name: str) -> None:
    """Clusters, flags, peers: whatever the expanded IR can say has a text."""
    assert litmus(name).name in show_kernel(litmus(name))


def test_rare_forms() -> None:
    kernel = litmus(sorted(PROGRAMS)[0])
    slot = x.Slot(cursor="c", back=1)
    body: tuple[x.Stmt, ...] = (
        x.Arrive(barrier="b", slot=slot, form="expect", bytes=64, sem="relaxed", scope="cluster"),
        x.Arrive(barrier="b", weight=3, peers=(0, 1)),
        x.Wait(barrier="b", slot=x.Slot(back=2), ahead=1, sem="relaxed"),
        x.Cursor(cursor="c", form="set", by=4),
        x.Cursor(cursor="d", form="copy", source="c", back=2),
        x.Fence(what="thread", scope="gpu", reason="some new rule"),
        x.For(var="i", lo=integer(2), hi=Sym(name="n"), step=integer(3), piece=1, body=()),
        x.Cluster(sem="relaxed", form="arrive"),
    )
    lines = [(line.text, line.reason) for line in statements(kernel, None, body)]
    assert lines == [
        ("lanes: expect b[slot of c - 1] 64 bytes, no arrival relaxed.cluster", ""),
        ("lanes: arrive b x 3 at ranks 0, 1", ""),
        ("lanes: wait b[stage 2] phase n + 1 relaxed", ""),
        ("c = 4", ""),
        ("d = c - 2", ""),
        ("lanes: fence.thread gpu", "some new rule"),
        ("for i in range(2, n, 3):", "piece 1 of the split loop"),
        ("lanes: cluster.arrive relaxed", ""),
    ]


if __name__ == "__main__":
    GOLDEN.parent.mkdir(exist_ok=True)
    GOLDEN.write_text(show_kernel(expand_file(GEMM)))
