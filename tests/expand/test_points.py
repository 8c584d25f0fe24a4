"""Every declared point of the examples' search sets is expanded or refused with a reason; never an exception."""

from __future__ import annotations

from pathlib import Path

import pytest

from cake.expand.constants import points
from cake.expand.kernel import expand_kernel
from cake.ir.parser import parse

EXAMPLES = sorted((Path(__file__).parents[1] / "ir" / "examples").glob("*.cake"))
MOST = 48
"""Points looked at in one kernel; larger sets are sampled evenly."""


def kernels() -> list[tuple[Path, str]]:
    """Each kernel of each example."""
    return [(p, k.name) for p in EXAMPLES for k in parse(p.read_text(encoding="utf-8"), p.name).kernels]


@pytest.mark.parametrize(("path", "name"), kernels(), ids=[name for _, name in kernels()])
def test_every_point(path: Path, name: str) -> None:
    file = parse(path.read_text(encoding="utf-8"), path.name)
    kernel = next(k for k in file.kernels if k.name == name)
    declared = list(points(file, kernel))
    assert len({tuple(p.items()) for p in declared}) == len(declared)
    step = -(-len(declared) // MOST)
    for target in kernel.targets:
        for point in declared[::step]:
            result, found = expand_kernel(file, kernel, point, target)
            errors = [d for d in found if d.severity == "error"]
            assert (result is None) == bool(errors), point
            assert all(d.span is not None and d.message for d in errors)
            if result is not None:
                assert result.constants.items() >= point.items()


RUNS = {
    "gemm.cake": {"gemm"},
    "rows.cake": {"softmax", "softmax_long", "layernorm"},
    "kda.cake": {"kda_recur"},
    "decode.cake": {"decode_part", "decode_combine"},
    "kmeans.cake": {"half_norms"},
}
"""The kernels that must expand at their chosen constants."""


@pytest.mark.parametrize("file", sorted(RUNS))
def test_chosen_points(file: str) -> None:
    path = next(p for p in EXAMPLES if p.name == file)
    parsed = parse(path.read_text(encoding="utf-8"), path.name)
    for kernel in parsed.kernels:
        if kernel.name in RUNS[file]:
            result, found = expand_kernel(parsed, kernel)
            assert result is not None, [(d.code, d.message) for d in found]


def test_attention_with_a_static_schedule() -> None:
    """The skewed loop of attention becomes four pieces, whose conditions around wgmma are all decided."""
    from tests.expand.kernels import flat, role

    text = next(p for p in EXAMPLES if p.name == "attention.cake").read_text(encoding="utf-8")
    parsed = parse(text.replace("tiles dynamic(load)", "tiles persistent"), "attention.cake")
    for causal in (True, False):
        result, found = expand_kernel(parsed, parsed.kernels[0], {"CAUSAL": causal})
        assert result is not None, [(d.code, d.message) for d in found]
        body = role(result, "math").body
        walk = next(n for n in body if n.kind == "for").body
        loops = [n for n in flat(walk) if n.kind == "for"]
        assert {n.piece for n in loops} <= {0, 1, 2, 3}
        guarded = [
            n
            for n in flat(walk)
            if n.kind == "if" and any(getattr(m, "op", "") == "wgmma" for m in flat((*n.then, *n.orelse)))
        ]
        assert all(n.reason == "tiles" for n in guarded)
