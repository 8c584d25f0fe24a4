"""``cake bench`` with a device of our own: what it takes, finds, prints and writes. The kernel computes on the CPU."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cake.cli import bench as bench_module
from cake.cli import measure as measure_module
from cake.cli.companion import load_module
from cake.codegen.build import build, write
from cake.compiler import expand_file
from cake.diagnostics import CakeError
from cake.evaluate import case
from cake.evaluate.record import plain
from cake.runtime import errors, watchdog
from tests.cli.conftest import ROOT, Cake
from tests.evaluate.fakes import Torch

torch = pytest.importorskip("torch")
SMALL = ["--shape", "M=70,N=72,K=64"]


class Device:
    """How the kernel behaves on it: its time, the peer's time, and what it makes of the product."""

    def __init__(self) -> None:
        self.kernel, self.peer = 2.0, 3.0
        self.scale = 1.0
        self.hangs_at: int | None = None
        self.orders: list[measure_module.Order] = []
        self.subject: Any = None

    def measure(self, function: Any, order: measure_module.Order, *, timeout: float, what: str) -> dict[str, Any]:
        """In place of a process with a GPU."""
        assert function is measure_module.measure and timeout > 0
        self.orders.append(order)
        if order.dims["M"] == self.hangs_at:
            raise errors.error(errors.TIMEOUT, f"{what} did not finish", "look for it")
        fake = Torch()

        def bind(named: Mapping[str, Any]) -> Any:
            def call() -> None:
                fake.now += self.kernel
                named["c"].copy_(self.scale * (named["a"].float() @ named["b"].float().T))

            return call

        companion = load_module(Path(order.module), "gemm") if order.module else None
        made = measure_module.case_of(fake, self.subject, companion, order, bind, "cpu")

        def slow(*asked: Any) -> Any:
            prepared = made.prepare(*asked)

            def call() -> Any:
                fake.now += self.peer
                return prepared()

            return call

        record = case.run(fake, case.Case(**{**vars(made), "prepare": slow}), place="cpu")
        found: dict[str, Any] = plain({**record, "environment": {"device": "Fake H200"}, "built": [{"kernel": "gemm"}]})
        return found


@pytest.fixture
def device(gemm: Path, monkeypatch: pytest.MonkeyPatch) -> Device:
    """A device, in a directory with gemm.cake and its module."""
    made = Device()

    def built(kernel: Any, directory: Path) -> None:
        made.subject = kernel

    monkeypatch.setattr("cake.runtime.driver.driver", lambda: SimpleNamespace(pci_bus_id=lambda ordinal: ""))
    monkeypatch.setattr(bench_module, "build_into", built)
    monkeypatch.setattr(watchdog, "run", made.measure)
    return made


def test_record_and_text(cake: Cake, device: Device) -> None:
    done = cake("bench", "gemm.cake", *SMALL, "--const", "BN=128", "--seed", "3")
    assert done.code == 0 and done.err == ""
    for words in (
        "gemm on Fake H200: BM=128, BN=128",
        "peer: gemm.py:peer",
        "\nM=70, N=72, K=64\n",
        "2000.00 us",
        "3000.00 us",
        "1.5000 [1.5000, 1.5000] peer over kernel, 30 pairs; noise floor 1.0000",
        "error    c: normwise",
        "ratio 1.000",
        "all elements compared, agrees",
        "clocks",
    ):
        assert words in done.out, words
    result = cake("bench", "gemm.cake", *SMALL, "BN=128", "--json").json["result"]
    assert result["constants"]["BN"] == 128 and result["peer"] == "gemm.py:peer" and result["met"] is None
    (shape,) = result["shapes"]
    assert shape["dims"] == {"M": 70, "N": 72, "K": 64} and len(shape["time"]["samples"]["peer_us"]) == 30
    assert shape["outputs"][0]["ratio"]["normwise"] == 1.0 and result["environment"]["device"] == "Fake H200"
    assert result["built"] == [{"kernel": "gemm"}]
    assert device.orders[0].seed == 3 and device.subject.constants["BN"] == 128


def test_sizes_of_the_module_are_the_shape_where_none_is_given(cake: Cake, device: Device) -> None:
    assert cake("bench", "gemm.cake", "M=40", "--json").code == 0
    assert device.orders[0].dims == {"M": 40, "N": 520, "K": 200}


def test_a_goal_is_met_by_the_lower_end(cake: Cake, device: Device) -> None:
    assert cake("bench", "gemm.cake", *SMALL, "--goal", "1.4", "--json").json["result"]["met"] is True
    done = cake("bench", "gemm.cake", *SMALL, "--goal", "1.5", "--json")  # above it, not at it
    assert done.code == 1 and done.codes == ["R107"] and done.json["result"]["met"] is False
    text = cake("bench", "gemm.cake", *SMALL, "--goal", "1.5")
    assert text.code == 1 and "1.5: not met (lower end 1.5000)" in text.out and "R107" in text.err


def test_every_shape_must_meet_it_and_the_mean_is_given(cake: Cake, device: Device) -> None:
    words = ["--shape", "M=70,N=72,K=64", "--shape", "M=8,N=8,K=8", "--goal", "1.2", "--json"]
    result = cake("bench", "gemm.cake", *words).json["result"]
    assert len(result["shapes"]) == 2 and result["mean"]["median"] == pytest.approx(1.5)
    assert "geometric mean" in cake("bench", "gemm.cake", *words[:-1]).out


def test_a_wrong_kernel_is_found_whatever_its_speed(cake: Cake, device: Device) -> None:
    device.scale = 1.1
    done = cake("bench", "gemm.cake", *SMALL, "--goal", "1.2", "--json")
    assert done.codes == ["R101"] and done.json["result"]["met"] is False
    (found,) = done.json["diagnostics"]
    assert "M=70" in found["message"] and found["span"]["file"] == "gemm.cake" and "normwise 0.1" in found["facts"][0]
    assert "WRONG" in cake("bench", "gemm.cake", *SMALL).out


def test_a_shape_that_hangs_does_not_stop_the_others(cake: Cake, device: Device) -> None:
    device.hangs_at = 8
    words = ["--shape", "M=8,N=8,K=8", "--shape", "M=70,N=72,K=64"]
    done = cake("bench", "gemm.cake", *words, "--json")
    assert done.code == 1 and done.codes == ["R019"]
    first, second = done.json["result"]["shapes"]
    assert "R019" in first["failed"][0] and second["time"]["ratio"]["median"] == 1.5
    assert "R019" in cake("bench", "gemm.cake", *words).out


def test_results_are_written(cake: Cake, device: Device) -> None:
    done = cake("bench", "gemm.cake", *SMALL, "--goal", "9", "--out", "results/r.json")
    assert done.code == 1
    written = json.loads(Path("results/r.json").read_text())
    assert written["goal"] == 9 and written["met"] is False and [d["code"] for d in written["diagnostics"]] == ["R107"]
    assert len(written["shapes"][0]["time"]["samples"]["ours_us"]) == 30
    Path("file").touch()
    done = cake("bench", "gemm.cake", *SMALL, "--out", "file/r.json", "--json")
    assert done.codes == ["X004"] and done.json["result"]["shapes"]


def test_peers_of_the_command_line(cake: Cake, device: Device) -> None:
    Path("mine.py").write_text("def double(a, d, c):\n    return lambda: 2 * (a['a'] @ a['b'].T)\n")
    done = cake("bench", "gemm.cake", *SMALL, "--peer", "mine.py:double", "--json")
    assert done.code == 0 and done.codes == ["R108"] and done.json["result"]["peer"] == "mine.py:double"
    assert done.json["diagnostics"][0]["severity"] == "warning"
    assert cake("bench", "gemm.cake", *SMALL, "--peer", "mine.py:nope", "--json").codes == ["R108"]


def test_without_a_module(cake: Cake, device: Device) -> None:
    """Random inputs of the parameters' types; the peer must be named, and the error is not known."""
    Path("gemm.py").rename("other.py")
    assert cake("bench", "gemm.cake", *SMALL, "--json").codes == ["R108"]
    done = cake("bench", "gemm.cake", *SMALL, "--peer", "other.py:peer")
    assert done.code == 0 and "R102" in done.err and "with the peer: no reference" in done.out
    done = cake("bench", "gemm.cake", *SMALL, "--module", "other.py", "--json")
    assert done.code == 0 and done.codes == [] and done.json["result"]["peer"] == "other.py:peer"


def test_the_directory_of_an_artifact(cake: Cake, device: Device) -> None:
    """Nothing is compiled; what was chosen stays chosen."""
    device.subject = expand_file("gemm.cake", constants={"BN": 128})
    write(build(device.subject), "built", ("cubin", "expand"))
    done = cake("bench", "built", *SMALL, "--module", "gemm.py", "--const", "BN=128", "--json")
    assert done.code == 0 and done.json["result"]["artifact"] == "built" and device.orders[0].directory == "built"
    assert cake("bench", "built", *SMALL, "--peer", "gemm.py:peer", "--json").codes == ["R102"]
    for words, code in (
        (["--const", "BN=256"], "T009"),
        (["--const", "BNN=256"], "T001"),
        (["--const", "M=256"], "T001"),
        (["BN=256"], "T009"),
        (["--kernel", "other"], "T001"),
        (["--target", "sm_80"], "T021"),
        ([], "R108"),
    ):
        module = ["--module", "gemm.py"] if words else []
        assert cake("bench", "built", *SMALL, *module, *words, "--json").codes == [code]
    Path("empty").mkdir()
    assert cake("bench", "empty", *SMALL, "--peer", "a:b", "--json").codes == ["G010"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--shape", "M=70"], "R103"),
        (["--shape", "M=70,N=72,K=64,Q=3"], "T001"),
        (["--shape", "M=-1,N=72,K=64"], "R104"),
        (["--shape", "M"], "X002"),
        (["--const", "BN=100"], "T009"),
        (["--const", "M=70"], "T001"),
        (["--const", "BN=128", "BN=256"], "X002"),
        (["--peer", "nothing"], "X002"),
        (["--pairs", "3"], "X002"),
        (["--module", "none.py"], "R106"),
        (["--kernel", "none"], "T001"),
    ],
)
def test_what_is_refused(cake: Cake, device: Device, words: list[str], code: str) -> None:
    module = Path("gemm.py")
    module.write_text(module.read_text().replace("SIZES =", "_SIZES ="))
    shape = [] if "--shape" in words else SMALL
    done = cake("bench", "gemm.cake", *shape, *words, "--json")
    assert done.codes == [code] and done.code == (2 if code == "X002" else 1)
    assert device.orders == []


def test_no_gpu(cake: Cake, gemm: Path) -> None:
    from cake.runtime.driver import driver

    try:
        driver()
    except CakeError as error:
        assert cake("bench", "gemm.cake", *SMALL, "--json").codes == [error.diagnostics[0].code]
    else:
        pytest.skip("there is a device")


def test_every_option_is_documented() -> None:
    from typer.main import get_command

    from cake.cli.app import app

    text = (ROOT / "docs" / "measuring.md").read_text()
    command = get_command(app).get_command(None, "bench")  # type: ignore[attr-defined]
    options = {name for p in command.params for name in p.opts if name.startswith("--")}
    assert {name for name in options - {"--debug", "--help"} if f"`{name}" not in text} == set()


def test_no_cuda_in_torch() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a device")
    with pytest.raises(CakeError) as found:
        measure_module.torch_with_cuda()
    assert found.value.diagnostics[0].code == "R109"
