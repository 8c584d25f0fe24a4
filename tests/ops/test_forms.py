"""Every form of every operation on the simulator, against plain NumPy."""

from __future__ import annotations

import pytest

from cake.machine.run import run
from tests.ops.compare import difference
from tests.ops.form import Form
from tests.ops.table import FORMS


def cases() -> list[object]:
    """Forms with their classes of inputs; the long tail is slow."""
    return [
        pytest.param(form, kind, id=f"{form.name} {kind}", marks=pytest.mark.slow if form.slow else ())
        for form in FORMS.values()
        for kind in form.classes
    ]


@pytest.mark.parametrize(("form", "kind"), cases())
def test_simulator(form: Form, kind: str) -> None:
    case = form.case(kind)
    result = run(form.kernel, case.arguments(), ctas=form.ctas)
    assert result.outputs.keys() == case.outputs.keys()
    dtypes = {t.name: t.dtype for t in form.kernel.tensors}
    for name, expected in case.outputs.items():
        got = result.outputs[name]
        assert got.shape == expected.shape and got.dtype == expected.dtype, (name, got.dtype, expected.dtype)
        found = difference(got, expected, dtypes[name], case.bounds[name])
        assert not found.mismatches, (name, found)
