"""Sequences through the front door: simulated, built, written, read, and called against a driver in Python."""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from cake.codegen.sequences import MANIFEST, SequenceArtifact, build_sequence, read_sequence, write_sequence
from cake.compiler import expand_steps, select
from cake.diagnostics import CakeError
from cake.ir.parser import parse
from cake.ir.sequences import Sequence
from cake.machine.sequences import run_sequence
from cake.runtime import load
from cake.runtime.sequences import LoadedSequence
from tests.examples import EXAMPLES
from tests.expand.test_sequences import expanded, sequence
from tests.runtime.fakes import FakeBindings, FakeTensor, at, fake_driver

KMEANS = EXAMPLES / "kmeans.cake"


@pytest.fixture(scope="module")
def artifact() -> SequenceArtifact:
    file = parse(KMEANS.read_text(), str(KMEANS))
    return build_sequence(expand_steps(file, select(file, "kmeans_assign")))  # type: ignore[arg-type]


def loaded(artifact: SequenceArtifact) -> tuple[LoadedSequence, FakeBindings]:
    driver, library = fake_driver()
    k = load(artifact, driver=driver)
    assert isinstance(k, LoadedSequence)
    return k, library


def tensors(b: int = 2, n: int = 300, k: int = 100) -> list[FakeTensor]:
    return [
        FakeTensor((b, n, 128), pointer=at(0)),
        FakeTensor((b, k, 128), pointer=at(100)),
        FakeTensor((b, n), dtype="int32", pointer=at(200)),
    ]


def half(b: int = 2, k: int = 100) -> FakeTensor:
    return FakeTensor((b, k), dtype="float32", pointer=at(300))


def test_simulated() -> None:
    """Every step, on one memory; scalars are computed; guards are checked before the first step."""
    s: Sequence = expanded(sequence().replace("scale(x, by,", "scale(x, by + by,"))
    x = np.arange(4 * 64, dtype=np.float32).reshape(4, 64)
    out = run_sequence(s, {"x": x, "by": 0.5, "s": np.zeros(4, np.float32)})
    assert np.array_equal(out.outputs["s"], x.sum(axis=1)) and out.steps > 0
    with pytest.raises(CakeError) as e:
        run_sequence(s, {"x": x[:3], "by": 0.5, "s": np.zeros(3, np.float32)})
    assert e.value.diagnostics[0].code == "R005"


def test_directory(artifact: SequenceArtifact, tmp_path: Path) -> None:
    """A manifest for the sequence and an artifact for each step; what is read is what was written."""
    write_sequence(artifact, tmp_path)
    record = json.loads((tmp_path / MANIFEST).read_text())
    assert [step["directory"] for step in record["steps"]] == ["0-half_norms", "1-assign"]
    assert [w["name"] for w in record["workspace"]] == ["half"]
    again = read_sequence(tmp_path)
    assert again.sequence == artifact.sequence and [a.cubin for a in again.artifacts] == [
        a.cubin for a in artifact.artifacts
    ]
    (tmp_path / "0-half_norms" / "manifest.json").unlink()
    with pytest.raises(CakeError, match="usable"):
        read_sequence(tmp_path)


def test_call(artifact: SequenceArtifact) -> None:
    """Both kernels, in order, on the caller's stream, with the caller's workspace."""
    k, cuda = loaded(artifact)
    for _ in range(2):
        k(*tensors(), workspace={"half": half()}, stream=5)
    assert [launch.grid for launch in cuda.launches] == [(26, 1, 1), (4, 1, 1)] * 2
    assert {launch.stream for launch in cuda.launches} == {5}
    x, c, ids = tensors()
    k(x, c=c, ids=ids, workspace={"half": half()}, stream=5)
    assert len(cuda.launches) == 6


def test_workspace_is_explicit(artifact: SequenceArtifact) -> None:
    k, cuda = loaded(artifact)
    assert k.workspace_shapes(*tensors()) == {"half": ((2, 100), "f32")}
    for workspace in (None, {}, {"halves": half()}):
        with pytest.raises(CakeError) as e:
            k(*tensors(), workspace=workspace, stream=0)
        assert e.value.diagnostics[0].code == "R001" and "k.workspace(x, c, ids)" in (e.value.diagnostics[0].help or "")
    with pytest.raises(CakeError):
        k.workspace(*tensors())  # not torch tensors
    with pytest.raises(CakeError):
        k(*tensors(), workspace={"half": half(k=96)}, stream=0)
    assert not cuda.launches


def test_nothing_is_launched_if_a_step_refuses(artifact: SequenceArtifact) -> None:
    k, cuda = loaded(artifact)
    with pytest.raises(CakeError) as e:
        k(*tensors(k=101), workspace={"half": half(k=101)}, stream=0)
    assert e.value.diagnostics[0].code == "R005"
    with pytest.raises(CakeError) as e:
        k(tensors()[0], workspace={"half": half()}, stream=0)
    assert "missing: c, ids" in e.value.diagnostics[0].message
    assert not cuda.launches


def test_torch_workspace(artifact: SequenceArtifact) -> None:
    """Allocated once, by torch, where the arguments lie."""
    torch = pytest.importorskip("torch")
    k, _ = loaded(artifact)
    with pytest.raises(CakeError) as e:  # host tensors are refused, as by a call
        k.workspace(torch.zeros(2, 8, 128), torch.zeros(2, 8, 128), torch.zeros(2, 8))
    assert e.value.diagnostics[0].code == "R009"


def test_front_door() -> None:
    import cake

    k = cake.compile(KMEANS, kernel="kmeans_assign", BN=64)
    assert isinstance(k, LoadedSequence) and k.steps[1].kernel.constants["BN"] == 64
    assert cake.compile(KMEANS, kernel="half_norms").kernel.name == "half_norms"
    with pytest.raises(CakeError):
        cake.compile(KMEANS, kernel="kmeans_assign", BM=64)


def test_bf16_values() -> None:
    """The example end to end on the simulator."""
    from examples import kmeans

    file = parse(KMEANS.read_text(), str(KMEANS))
    s = expand_steps(file, select(file, "kmeans_assign"))  # type: ignore[arg-type]
    given = kmeans.inputs({"B": 2, "N": 130, "K": 60}, {"D": 128}, np.random.default_rng(3))
    assert given["x"].dtype == ml_dtypes.bfloat16
    out = run_sequence(s, {**given, "ids": np.zeros((2, 130), np.int32)}).outputs["ids"]
    assert np.array_equal(out, kmeans.reference(given, {}, {})["ids"])
