"""``cake run``: settings, companions, comparisons."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from cake.cli import companion as companion_module
from cake.cli.arguments import prepare
from cake.cli.compare import compare
from cake.compiler import expand_file
from cake.machine.registers import poison
from tests.cli.conftest import ROOT, Cake

SMALL = ["M=70", "N=72", "K=64"]


@pytest.fixture
def alone(gemm: Path) -> Path:
    """gemm.cake without a module."""
    Path("gemm.py").unlink()
    return gemm


def test_check(cake: Cake, gemm: Path) -> None:
    done = cake("run", "gemm.cake", *SMALL, "BN=128", "--check", "--seed", "3", "--ctas", "1")
    assert done.code == 0 and "agrees" in done.out and done.err == ""
    result = cake("run", "gemm.cake", *SMALL, "--check", "--json").json["result"]
    assert result["dims"] == {"M": 70, "K": 64, "N": 72} and result["constants"]["BN"] == 256
    assert result["steps"] > 0 and result["ctas"] == 1
    (row,) = result["outputs"]
    assert row["ok"] and row["compared"] and row["nan"] == row["unwritten"] == 0
    assert 0 < row["max_abs_error"] < row["limit"] and row["shape"] == [70, 72]


def test_sizes_are_defaults(cake: Cake, gemm: Path) -> None:
    assert cake("run", "gemm.cake", "M=8", "--json").json["result"]["dims"] == {"M": 8, "K": 200, "N": 520}


def test_several_kernels(cake: Cake) -> None:
    path = ROOT / "examples" / "softmax.cake"
    assert cake("run", path, "--json").codes == ["T018"]
    assert cake("run", path, "--kernel", "softmax", "--check").code == 0


def test_functions_of_one_kernel(cake: Cake, gemm: Path) -> None:
    module = Path("gemm.py").read_text()
    Path("gemm.py").write_text(
        module.replace("def reference(", "def reference_gemm(").replace("SIZES =", "SIZES_gemm =")
        + "\ndef reference(*_):\n    raise RuntimeError\n"
    )
    assert cake("run", "gemm.cake", "--check").code == 0


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["BN=100"], "T009"),
        (["BNN=128"], "T001"),
        (["m=8"], "T001"),
        (["M=-1"], "R104"),
        (["M=3.5"], "R104"),
        (["M=True"], "R104"),
        (["M=4294967296"], "R104"),
        (["M=2147483647", "N=2147483640"], "R105"),
        (["K=7"], "R005"),
        (["M=0"], ""),
        (["M=8", "K=0"], "R004"),
        (["--kernel", "nope"], "T001"),
    ],
)
def test_settings(cake: Cake, gemm: Path, words: list[str], code: str) -> None:
    done = cake("run", "gemm.cake", *words, "--json")
    assert set(done.codes) == ({code} if code else set())


def test_suggestion_says_the_kind(cake: Cake, gemm: Path) -> None:
    err = cake("run", "gemm.cake", "STAGE=4").err
    assert "did you mean `STAGES` (a constant)?" in err and "dims: M, K, N" in err


def test_without_a_module(cake: Cake, alone: Path) -> None:
    assert cake("run", "gemm.cake", *SMALL).code == 0
    assert cake("run", "gemm.cake", *SMALL, "--check", "--json").codes == ["R102"]
    done = cake("run", "gemm.cake", "M=8", "--json")
    assert done.codes == ["R103"]
    assert "`K`, `N`" in done.json["diagnostics"][0]["message"]


def test_wrong_result(cake: Cake, gemm: Path) -> None:
    Path("gemm.py").write_text(Path("gemm.py").read_text().replace("return {", "return {n: -v for n, v in {", 1))
    Path("gemm.py").write_text(
        "import gemm_right\nfrom gemm_right import SIZES, inputs, tolerance\n"
        "def reference(i, d, c):\n    r = gemm_right.reference(i, d, c)\n    r['c'][3, 5] += 100\n    return r\n"
    )
    shutil.copy(ROOT / "examples" / "gemm.py", "gemm_right.py")
    import sys

    sys.path.insert(0, str(gemm))
    try:
        done = cake("run", "gemm.cake", *SMALL, "--check")
        record = cake("run", "gemm.cake", *SMALL, "--check", "--json").json
    finally:
        sys.path.remove(str(gemm))
        sys.modules.pop("gemm_right", None)
    assert done.code == 1 and "c[3, 5]" in done.err and "differs" in done.out
    assert record["diagnostics"][0]["code"] == "R101" and record["result"]["outputs"][0]["wrong"] == 1


def test_unwritten_elements(cake: Cake, gemm: Path) -> None:
    """A kernel whose JSON lost a store leaves a hole, and the finding says so."""
    text = cake("expand", "gemm.cake", "--json").out
    rows = '"c", "slot": null, "subs": [{"kind": "range", "start": {"kind": "sym", "name": "r0"'
    assert rows in text
    other = rows.replace('"name": "r0"', '"name": "t.m0"')
    Path("gemm.json").write_text(text.replace(rows, other))
    done = cake("run", "gemm.json", "M=128", "N=64", "K=64", "--check", "--json")
    assert done.codes == ["R101"]
    row = done.json["result"]["outputs"][0]
    assert row["unwritten"] == 64 * 64 and not row["ok"]
    assert "never written: 4096 of 8192" in done.json["diagnostics"][0]["facts"]


@pytest.mark.parametrize(
    "text",
    [
        "def inputs(",
        "raise SystemExit(0)",
        "1 / 0",
        "def inputs(d, c, r):\n    raise KeyboardInterrupt2",
        "def inputs(d, c, r):\n    return 3",
        "def inputs(d, c, r):\n    return {}",
        "def inputs(d, c, r):\n    return {'a': 0, 'b': 0}",
        "def inputs(d, c, r):\n    return {'zz': 0}",
        "SIZES = 3",
        "SIZES = {'M': 'x'}",
        "def reference(i, d, c):\n    return 3",
        "def reference(i, d, c):\n    return {}",
        "def reference(i, d, c):\n    return {'c': 0}",
        "from numpy import ones\ndef reference(*_):\n    return {'c': ones((70, 72))}\ndef tolerance(n):\n    return n",
    ],
)
def test_module_with_a_mistake(cake: Cake, gemm: Path, text: str) -> None:
    Path("gemm.py").write_text(text + "\n")
    extra = ["--check"] if "reference" in text else []
    done = cake("run", "gemm.cake", *SMALL, *extra, "--json")
    assert done.codes == ["R106"], done.out


def test_the_line_of_the_module_is_shown(cake: Cake, gemm: Path) -> None:
    Path("gemm.py").write_text("def inputs(d, c, r):\n    x = 1\n    return x / 0\n")
    err = cake("run", "gemm.cake", *SMALL).err
    assert "gemm.py:3" in err and "return x / 0" in err and "ZeroDivisionError" in err


def test_no_gpu(cake: Cake, gemm: Path) -> None:
    from cake.diagnostics import CakeError
    from cake.runtime.driver import driver

    try:
        driver()
    except CakeError as error:
        assert cake("run", "gemm.cake", "--device", "gpu", "--json").codes == [error.diagnostics[0].code]
    else:
        pytest.skip("there is a device")


def test_a_kernel_that_does_not_fit_itself(cake: Cake, gemm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shapes are checked where they meet; what only NumPy notices is a finding about a hand-written kernel, and a
    defect of Cake where expansion made it."""
    text = cake("expand", "gemm.cake", "--json").out
    old = '"tiles": {"acc": {"dtype": "f32", "shape": [64, 256]'
    assert old in text
    Path("k.json").write_text(text.replace(old, old.replace("256", "128")))
    assert cake("run", "k.json", *SMALL, "--json").codes == ["T000"]

    def broken(*_: object, **__: object) -> None:
        raise ValueError("shapes")

    monkeypatch.setattr("cake.machine.run", broken)
    assert cake("run", "k.json", *SMALL, "--json").codes == ["X003"]
    assert cake("run", "gemm.cake", *SMALL, "--json").codes == ["X001"]


# ---- inputs and comparisons -----------------------------------------------------------------------------------------


def test_random_inputs_keep_simple_assumptions() -> None:
    kernel = expand_file(ROOT / "tests" / "ir" / "examples" / "decode.cake", kernel="decode_part")
    dims = {"B": 5, "H": 8, "P": 7, "HK": 1, "PMAX": 3}
    given = prepare(kernel, None, dims, {"scale_log2": 1.0}, seed=1)
    assert given["table"].min() >= -1 and given["table"].max() < 7
    assert given["lens"].min() >= 1 and given["lens"].max() <= 48
    kernel = expand_file(ROOT / "tests" / "ir" / "examples" / "kda.cake")
    given = prepare(kernel, None, {"T": 100, "H": 1, "NC": 9, "B": 4}, {}, seed=1)
    assert given["cu"][0] == 0 and given["cu"][-1] == 100 and np.all(np.diff(given["cu"]) >= 0)


def test_module_path(tmp_path: Path) -> None:
    (tmp_path / "k.py").write_text("")
    assert companion_module.companion_path(tmp_path / "k.cake") == tmp_path / "k.py"
    assert companion_module.companion_path(tmp_path / "k.expanded.json") == tmp_path / "k.py"
    assert companion_module.companion_path(tmp_path / "z.cake") is None
    assert companion_module.companion_path(None) is None
    assert not (tmp_path / "__pycache__").exists()


def _f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def test_compare() -> None:
    fresh = poison("f32", (3,))
    inf, nan = np.inf, np.nan
    assert compare("y", "f32", _f32(1, 2, 3), _f32(1, 2, 3), fresh, None).ok
    assert compare("y", "f32", _f32(1, inf, -inf), _f32(1, inf, -inf), fresh, None).ok
    assert compare("y", "f32", _f32(1, -nan, 3), _f32(1, nan, 3), fresh, None).ok
    c = compare("y", "f32", _f32(1, 2.5, 3), _f32(1, 2, 4), fresh, 0.2)
    assert c.wrong == 1 and c.worst == (2,) and c.max_abs == 1 and c.max_rel == 0.25 and c.limit == pytest.approx(0.8)
    for wrong in (inf, -inf, nan):
        c = compare("y", "f32", _f32(1, wrong, 3), _f32(1, 2, 3), fresh, 1e9)
        assert c.wrong == 1 and c.worst == (1,) and c.max_abs == inf
    c = compare("y", "f32", fresh, _f32(1, 2, 3), fresh, None)
    assert c.unwritten == 3 and c.nan == 3 and c.wrong == 3
    assert compare("y", "f32", _f32(), _f32(), poison("f32", (0,)), None).ok


def test_compare_integers_exactly() -> None:
    big = 2**60
    got, want = np.array([big + 1]), np.array([big])
    assert not compare("y", "i64", got, want, poison("i64", (1,)), None).ok
    assert compare("y", "i64", want, want, poison("i64", (1,)), None).ok
    assert compare("y", "bool", np.array([True]), np.array([True]), poison("bool", (1,)), None).unwritten == 0


def test_arrays_on_the_device_are_read_as_they_are() -> None:
    """The runtime sees the dtype, shape and address of what was uploaded, also of types NumPy does not have."""
    from cake.cli.device import Resident
    from cake.ir.dtypes import DTYPES, numpy_dtype
    from cake.runtime.tensors import view

    for name in DTYPES:
        seen = view(Resident(4096, np.zeros((3, 5), numpy_dtype(name))), "x")
        assert (seen.pointer, seen.shape, seen.strides) == (4096, (3, 5), (5, 1))
        assert seen.dtype == ("f32" if name == "tf32" else name)
