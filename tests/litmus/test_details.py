"""The details of the order reading, one program each, in both profiles."""

from __future__ import annotations

import pytest

from cake.machine.order import check
from tests.litmus.details import Detail, catalogue
from tests.litmus.test_litmus import arguments

CASES = catalogue()


@pytest.mark.parametrize("detail", CASES, ids=[d.name for d in CASES])
def test_codes(detail: Detail) -> None:
    for profile in ("conservative", "practice"):
        codes = detail.codes if profile == "conservative" or detail.practice is None else detail.practice
        found = check(detail.kernel, arguments(detail.kernel), ctas=detail.ctas, profile=profile)
        assert {d.code for d in found} == set(codes), found
