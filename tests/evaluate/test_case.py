"""One shape from inputs to record, with kernels and peers that compute on the CPU and take the time they are told to."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from cake.cli.companion import Companion, load_module
from cake.cli.measure import Order, case_of
from cake.compiler import expand_file
from cake.diagnostics import CakeError
from cake.evaluate import case
from cake.evaluate.record import plain
from tests.evaluate.fakes import Torch

torch = pytest.importorskip("torch")
EXAMPLES = Path(__file__).parents[2] / "examples"
GEMM = expand_file(EXAMPLES / "gemm.cake")
DIMS = {"M": 70, "N": 72, "K": 64}

Bind = Callable[[Mapping[str, Any]], Callable[[], None]]


class Module:
    """A companion of functions that a test brings along."""

    path = Path("gemm.py")

    def __init__(self, **functions: Any) -> None:
        companion = load_module(EXAMPLES / "gemm.py", "gemm")
        self.call, self.wrong = companion.call, companion.wrong
        self._find, self._functions = companion.find, functions

    def find(self, name: str) -> Any:
        return self._functions[name] if name in self._functions else self._find(name)


def gemm(fake: Torch, milliseconds: float = 2.0, change: Callable[[Any], Any] = lambda c: c) -> Bind:
    """A kernel that computes the product."""

    def bind(named: Mapping[str, Any]) -> Callable[[], None]:
        def call() -> None:
            fake.now += milliseconds
            named["c"].copy_(change(named["a"].float() @ named["b"].float().T))

        return call

    return bind


def peer(fake: Torch, milliseconds: float = 3.0, change: Callable[[Any], Any] = lambda c: c) -> Any:
    def prepare(arguments: Mapping[str, Any], dims: Any, constants: Any) -> Callable[[], None]:
        return gemm(fake, milliseconds, change)(arguments)

    return prepare


def run(fake: Torch, bind: Bind, companion: Any, pairs: int = 6) -> dict[str, Any]:
    order = Order("", None, None, DIMS, {}, seed=1, pairs=pairs)
    record = case.run(fake, case_of(fake, GEMM, companion, order, bind, "cpu"), place="cpu")
    json.dumps(plain(record), allow_nan=False)
    return record


def test_record() -> None:
    fake = Torch()
    record = run(fake, gemm(fake), Module(peer=peer(fake)))
    (row,) = record["outputs"]
    assert (
        row["name"] == "c" and row["shape"] == [70, 72] and row["against"] == "float64" and row["ok"] and row["peer_ok"]
    )
    assert 0 < row["kernel"]["normwise"] < 2**-8 and row["kernel"]["compared"] == 70 * 72
    assert row["ratio"] == {"normwise": 1.0, "worst": 1.0}
    assert record["repeatable"] is True and "after" not in record and record["significant"]
    assert record["time"]["ratio"]["median"] == pytest.approx(1.5) and record["time"]["pairs"] == 6
    assert len(record["time"]["samples"]["ours_us"]) == 6


@pytest.mark.parametrize("reference", ["device_reference", "reference"])
def test_errors_are_against_float64(reference: str) -> None:
    """The device's reference or the host's: a kernel twice as far from it as its peer shows as such."""
    fake = Torch()
    other = {"device_reference": "reference", "reference": "device_reference"}[reference]
    module = Module(peer=peer(fake, change=lambda c: c * (1 + 2**-5)), **{other: None})
    (row,) = run(fake, gemm(fake, change=lambda c: c * (1 + 2**-4)), module)["outputs"]
    assert row["kernel"]["normwise"] == pytest.approx(2**-4, rel=0.05)
    assert row["ratio"] == pytest.approx({"normwise": 2.0, "worst": 2.0}, rel=0.15)
    assert row["ok"] is False and row["peer_ok"] is True  # less exact than the kernel must be, but the same function


def test_a_peer_that_computes_something_else() -> None:
    fake = Torch()
    (row,) = run(fake, gemm(fake), Module(peer=peer(fake, change=lambda c: c.relu())))["outputs"]
    assert row["ok"] is True and row["peer_ok"] is False and row["ratio"]["normwise"] < 0.01


def test_an_element_nobody_writes_shows() -> None:
    fake = Torch()

    def bind(named: Mapping[str, Any]) -> Callable[[], None]:
        return lambda: setattr(fake, "now", fake.now + 1.0)

    (row,) = run(fake, bind, Module(peer=peer(fake)))["outputs"]
    assert row["kernel"]["not_finite"] == 70 * 72 and row["ok"] is False and row["peer_ok"]


def test_outputs_change_hands() -> None:
    """Kernel and peer write both sets of outputs, each prepared for each."""
    fake = Torch()
    written: dict[str, list[int]] = {"kernel": [], "peer": []}

    def recording(who: str, milliseconds: float) -> Bind:
        def bind(named: Mapping[str, Any]) -> Callable[[], None]:
            inner = gemm(fake, milliseconds)(named)
            return lambda: (written[who].append(named["c"].data_ptr()), inner())[1]  # type: ignore[func-returns-value]

        return bind

    theirs = recording("peer", 3.0)
    run(fake, recording("kernel", 2.0), Module(peer=lambda a, d, c: theirs(a)), pairs=30)
    places = set(written["peer"])
    assert len(places) == 2 and set(written["kernel"]) == places
    paired = written["peer"][-30:]  # the last calls of the peer are those of the pairs
    assert len(set(paired[:15])) == len(set(paired[15:])) == 1 and paired[0] != paired[-1]


def test_results_that_change_are_measured_again() -> None:
    fake = Torch()
    calls: list[int] = []

    def drifting(c: Any) -> Any:
        calls.append(1)
        return c if len(calls) == 1 else c * 2

    record = run(fake, gemm(fake, change=drifting), Module(peer=peer(fake)))
    assert record["repeatable"] is False and record["outputs"][0]["ok"]
    (row,) = record["after"]
    assert row["ok"] is False and row["kernel"]["normwise"] == pytest.approx(1.0, rel=0.01)


def test_part_of_the_reference_is_said() -> None:
    fake = Torch()

    def some(inputs: Any, dims: Any, constants: Any) -> Any:
        rows = torch.arange(0, dims["M"], 7)
        yield "c", rows, inputs["a"][rows].double() @ inputs["b"].double().T

    (row,) = run(fake, gemm(fake), Module(peer=peer(fake), device_reference=some))["outputs"]
    assert row["kernel"]["compared"] == 10 * 72 and row["kernel"]["elements"] == 70 * 72 and row["ok"]


def test_without_a_reference_kernel_and_peer_are_compared() -> None:
    fake = Torch()
    module = Module(peer=peer(fake, change=lambda c: c * 2), reference=None, device_reference=None)
    (row,) = run(fake, gemm(fake), module)["outputs"]
    assert row["against"] == "peer" and row["ok"] is None and row["peer"] is None
    assert row["kernel"]["normwise"] == pytest.approx(0.5, rel=0.01)


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        (lambda i, d, c: [("z", ..., None)], "no such output"),
        (lambda i, d, c: [("c", ..., torch.zeros(3, 3))], "[3, 3]"),
        (lambda i, d, c: [("c", 1000, torch.zeros(72))], "1000"),
        (lambda i, d, c: [("c", ..., 3)], "does not fit"),
        (lambda i, d, c: [3], "(output, index, tensor)"),
        (lambda i, d, c: (1 / 0 for _ in range(3)), "ZeroDivisionError"),
    ],
)
def test_references_with_a_mistake(reference: Any, said: str) -> None:
    fake = Torch()
    with pytest.raises(CakeError) as found:
        run(fake, gemm(fake), Module(peer=peer(fake), device_reference=reference))
    assert found.value.diagnostics[0].code == "R106" and said in str(found.value)


# ---- the examples -----------------------------------------------------------------------------------------------------

BESIDE = ["gemm", "batched_gemm", "gemm_bias_gelu", "softmax", "rmsnorm", "layernorm"]


@pytest.mark.parametrize("name", BESIDE)
def test_peers_and_references_of_examples(name: str) -> None:
    """The device's reference is the host's, and the peer computes it, too."""
    kernel = expand_file(EXAMPLES / f"{name}.cake", kernel="softmax" if name == "softmax" else None)
    companion: Companion = load_module(EXAMPLES / f"{name}.py", kernel.name)
    dims = {n: int(v) for n, v in companion.sizes.items()}
    fake = Torch()

    def bind(named: Mapping[str, Any]) -> Callable[[], None]:
        """In place of the kernel: the host's reference, in the output's type."""
        names = [t.name for t in kernel.tensors if t.direction == "in"] + [s.name for s in kernel.scalars]
        given = {n: v.float().numpy() if hasattr(v := named[n], "numpy") else v for n in names}
        wanted = companion.find("reference")(given, dims, dict(kernel.constants))

        def call() -> None:
            fake.now += 1.0
            for output, array in wanted.items():
                named[output].copy_(torch.from_numpy(array))

        return call

    order = Order("", None, None, dims, {}, seed=2, pairs=2)
    record = case.run(fake, case_of(fake, kernel, companion, order, bind, "cpu"), place="cpu")
    for row in record["outputs"]:
        assert row["ok"] and row["peer_ok"] and row["kernel"]["compared"] == row["kernel"]["elements"]
        # One rounding to bf16 of the exact value is the least there can be.
        assert row["kernel"]["worst"] < 2**-8 and row["ratio"]["normwise"] <= 1.0001
