"""Findings on mutants of source texts name the changed operation and carry a fix that cures it (all: ``benchmarks.diagnostics``)."""

from __future__ import annotations

import pytest

from cake.diagnostics.fixes import apply_fix
from tests.mutation.diagnosed import diagnosed, errors, sources
from tests.mutation.surface import Mutant, mutants

SAMPLE = (
    ("language product", "release dropped", 0),
    ("language product", "release keeps another number", 0),
    ("language turns", "release doubled", 0),
    ("language turns", "trips of one role", 1),
    ("examples/gemm_pingpong.cake", "turn dropped", 0),
    ("blend", "skip dropped or wrong", 2),
    ("blend", "walk of other tiles", 0),
    ("language skewed", "matrix wait keeps more", 0),
    ("language pairs", "copy dropped", 0),
    ("language pairs", "copy under a condition", 0),
    ("language row_sums", "stage wait moved", 0),
    ("small fence", "fence dropped", 0),
    ("small warps", "barrier dropped", 0),
    ("small lag", "release earlier", 0),
)
"""Text, kind, and which of that kind."""

TEXTS = {source.name.removeprefix("examples/corpus/").removesuffix("_store_ring.cake"): source for source in sources()}


def chosen(name: str, kind: str, number: int) -> Mutant:
    return [m for m in mutants(TEXTS[name]) if m.kind == kind][number]


@pytest.mark.parametrize(("name", "kind", "number"), SAMPLE, ids=[f"{name}: {kind} {n}" for name, kind, n in SAMPLE])
def test_named_and_fixed(name: str, kind: str, number: int) -> None:
    found = diagnosed(chosen(name, kind, number), TEXTS[name].text)
    assert found.codes and found.named and found.fixed, found


def test_a_fix_says_where_it_is() -> None:
    """A place is shown for a fix that is none of the finding's own, and the fix was tried."""
    m = chosen("language product", "release dropped", 0)
    (found, *_) = errors(m.text, m.source)
    assert found.fix is not None and found.fix.verified
    lines = {e.span.line for e in found.fix.edits} | {e.span.line - 1 for e in found.fix.edits}
    assert lines & {s.line for s in (found.span, *(label.span for label in found.labels)) if s is not None}
    assert errors(apply_fix(m.text, found.fix), m.source) == []
