"""Errors against float64: both measures, in pieces, with NaN, infinities and integers."""

from __future__ import annotations

import math
from typing import Any

import pytest

from cake.evaluate import errors
from cake.evaluate.errors import Measure, beside, measure, quotient

torch = pytest.importorskip("torch")


def f64(*values: float) -> Any:
    return torch.tensor(values, dtype=torch.float64)


def test_both_measures() -> None:
    e = measure(torch, torch.tensor([3.0, 4.5]), f64(3, 4))
    assert e.normwise == pytest.approx(0.5 / 5) and e.worst == pytest.approx(0.5 / 4)
    assert e.index == (1,) and e.got == 4.5 and e.expected == 4 and e.largest == 4
    assert e.compared == e.elements == 2 and e.not_finite == 0 and e.differing is None
    assert e.within(0.126) and not e.within(0.124)


def test_one_wrong_element_does_not_hide() -> None:
    y = torch.ones(10_000)
    y[1234] = 2.0
    e = measure(torch, y.view(100, 100), torch.ones(100, 100, dtype=torch.float64))
    assert e.normwise == pytest.approx(0.01) and e.worst == 1.0 and e.index == (12, 34)


def test_the_error_is_that_of_float64_not_of_the_output_type() -> None:
    y = torch.tensor([1.0, 2.0], dtype=torch.bfloat16)
    assert measure(torch, y, f64(1 + 2**-12, 2)).worst == pytest.approx(2**-13)


@pytest.mark.parametrize("block", [1, 5, 7, 1 << 20])
def test_pieces_add_up(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(errors, "BLOCK", block)
    generator = torch.Generator().manual_seed(1)
    expected = torch.randn(11, 3, 5, generator=generator, dtype=torch.float64)
    y = (expected + 1e-3 * torch.randn(expected.shape, generator=generator)).float()
    y[9, 1, 3] = 8.0
    whole = measure(torch, y, expected)
    parts = Measure(torch, y)
    for rows in (slice(0, 4), slice(4, 11)):
        parts.add(rows, expected[rows])
    assert parts.result().index == whole.index == (9, 1, 3)
    assert parts.result().normwise == pytest.approx(whole.normwise) and parts.result().compared == 165
    columns = Measure(torch, y)
    columns.add((slice(None), 1), expected[:, 1])
    assert columns.result().index == (9, 1, 3) and columns.result().compared == 55
    sample = Measure(torch, y)
    drawn = torch.tensor([2, 9, 10])
    sample.add(drawn, expected[drawn])
    assert sample.result().index == (9, 1, 3) and sample.result().compared == 45 and sample.result().elements == 165


def test_nan_and_infinities() -> None:
    inf, nan = math.inf, math.nan
    e = measure(torch, torch.tensor([nan, inf, -inf, 1.0]), f64(nan, inf, -inf, 1))
    assert (e.normwise, e.worst, e.not_finite) == (0, 0, 0)
    for got, want in ((nan, 1.0), (inf, 1.0), (inf, -inf), (1.0, inf), (1.0, nan)):
        e = measure(torch, torch.tensor([1.0, got]), f64(1, want))
        assert e.normwise == e.worst == inf and e.not_finite == 1 and e.index == (1,) and not e.within(1e9)


def test_zeros_and_nothing() -> None:
    e = measure(torch, torch.tensor([0.0, 0.25]), f64(0, 0))
    assert e.normwise == e.worst == 0.25
    e = measure(torch, torch.empty(0, 4), torch.empty(0, 4, dtype=torch.float64))
    assert (e.normwise, e.worst, e.index, e.compared) == (0, 0, None, 0)
    assert measure(torch, torch.tensor(3.0), torch.tensor(3.0, dtype=torch.float64)).compared == 1


def test_integers_are_compared_as_such() -> None:
    big = 2**60
    e = measure(torch, torch.tensor([big + 1, 5]), torch.tensor([big, 5]))
    assert e.differing == 1
    e = measure(torch, torch.tensor([4, 5], dtype=torch.int32), torch.tensor([3, 5]))
    assert e.differing == 1 and e.within(1) and not e.within(0)


def test_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\[2\].*\[3\]"):
        measure(torch, torch.zeros(3), f64(1, 2))


def test_beside_a_peer() -> None:
    ours = measure(torch, torch.tensor([1.0, 2.3]), f64(1, 2))
    peer = measure(torch, torch.tensor([1.0, 2.2]), f64(1, 2))
    row = beside(ours, peer)
    assert row["ratio"] == pytest.approx({"normwise": 1.5, "worst": 1.5}, rel=1e-5)
    assert row["kernel"]["worst"] == ours.worst and beside(ours, None)["ratio"] == {"normwise": None, "worst": None}
    assert quotient(0, 0) == 1 and quotient(1, 0) == math.inf and quotient(1, math.inf) is None
