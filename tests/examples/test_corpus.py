"""The expert corpus: kernels fixed by their hashes, accepted with the claim that the table states, right on ragged shapes."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cake.cli.companion import Companion
from cake.codegen import nvrtc
from cake.codegen.build import build
from cake.compiler import check_path, expand_file
from cake.diagnostics import CakeError
from cake.ir import expanded as x
from cake.ir.dtypes import numpy_dtype
from cake.ir.evaluate import evaluate
from cake.machine import run
from cake.verify import verify
from examples.corpus import references
from tests.examples import EXAMPLES

CORPUS = EXAMPLES / "corpus"
TABLE: list[dict[str, Any]] = json.loads((CORPUS / "corpus.json").read_text())
POINTS = [(row, point) for row in TABLE for point in row["points"]]

try:
    nvrtc.bindings()
    NVRTC = True
except CakeError:
    NVRTC = False


def name(value: Any) -> str:
    return (
        str(value["file"]).removesuffix(".cake") if "file" in value else ",".join(f"{n}={v}" for n, v in value.items())
    )


def kernel(row: dict[str, Any], point: dict[str, Any]) -> x.Kernel:
    return expand_file(CORPUS / row["file"], constants=point)


def close(found: Any, wanted: Any, tolerance: float) -> bool:
    """Within ``tolerance`` of the largest element; 0: the reference, rounded to the output's type."""
    if not tolerance:
        return np.array_equal(found, wanted.astype(np.float32).astype(found.dtype))
    return bool(np.abs(found.astype(np.float64) - wanted).max() <= tolerance * np.abs(wanted).max())


def test_hashes() -> None:
    """The table names every kernel of the folder, as it was chosen."""
    assert {row["file"]: row["sha256"] for row in TABLE} == {
        p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in CORPUS.glob("*.cake")
    }
    assert len(TABLE) == 7


@pytest.mark.parametrize("row", TABLE, ids=name)
def test_verdicts(row: dict[str, Any]) -> None:
    """No finding of any kind, and the claim of the table."""
    assert check_path(CORPUS / row["file"]) == []
    verdict = verify(kernel(row, {}))
    assert verdict.status == "safe"
    assert verdict.claim.split(" ")[0] == row["claim"], verdict.claim


@pytest.mark.parametrize(("row", "point"), POINTS, ids=name)
def test_values(row: dict[str, Any], point: dict[str, Any]) -> None:
    k = kernel(row, point)
    if point:
        assert verify(k, effort="quick").status == "safe"
    module = Companion(Path(references.__file__), references, k.name)
    for dims in row["shapes"]:
        values = module.find("inputs")(dims, dict(k.constants), np.random.default_rng(sum(dims.values())))
        for t in k.tensors:
            if t.direction == "out":
                shape = [int(evaluate(e, {**dims, **k.constants})) for e in t.shape]
                values[t.name] = np.zeros(shape, numpy_dtype(t.dtype))
        wanted = module.find("reference")(values, dims, dict(k.constants))
        for seed in (0, 1):
            outputs = run(k, values, seed=seed).outputs
            assert set(outputs) == set(wanted) == set(row["tolerance"])
            for output, array in outputs.items():
                assert close(array, wanted[output], row["tolerance"][output]), (dims, output, seed)


@pytest.mark.skipif(not NVRTC, reason="NVRTC is not installed")
@pytest.mark.parametrize("chaos", [None, 0], ids=["plain", "chaos"])
@pytest.mark.parametrize("row", TABLE, ids=name)
def test_machine_code(row: dict[str, Any], chaos: int | None) -> None:
    """The compiled code says what was expanded (P119), nothing is spilled, and no wgmma is serialised, with delays too."""
    built = build(kernel(row, {}), chaos=chaos)
    assert not built.report.spills and not built.diagnostics
