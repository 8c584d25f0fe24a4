"""Peers: how they are named, what they give, and what is said of those that cannot be used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cake.compiler import expand_file
from cake.diagnostics import CakeError
from cake.evaluate.peer import Peer, load, split

torch = pytest.importorskip("torch")
KERNEL = expand_file(Path(__file__).parents[2] / "examples" / "gemm.cake")


def refused(call: Any) -> str:
    with pytest.raises(CakeError) as found:
        call()
    (diagnostic,) = found.value.diagnostics
    assert diagnostic.code == "R108" and diagnostic.help
    return " ".join([diagnostic.message, *diagnostic.facts])


def test_names() -> None:
    assert split("a.b:c") == ("a.b", "c") and split("dir/a.py:c") == ("dir/a.py", "c")
    assert split("a.b") is None and split(":c") is None and split("a:") is None and split("a:b c") is None


def test_loading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("some_peers.py").write_text("def f(a, d, c):\n    return lambda: None\nx = 3\n")
    assert load("some_peers:f").__name__ == load("some_peers.py:f").__name__ == "f"
    assert callable(load("os.path:join"))
    assert "no function `g`" in refused(lambda: load("some_peers:g"))
    assert "no function `x`" in refused(lambda: load("some_peers.py:x"))
    assert "no_such_module" in refused(lambda: load("no_such_module:f"))
    assert "no file" in refused(lambda: load("none.py:f"))
    Path("broken.py").write_text("1 / 0\n")
    assert "broken.py:1" in refused(lambda: load("broken.py:f"))
    assert "no peer" in refused(lambda: load("broken.py"))


def made(prepare: Any, kernel: Any = KERNEL) -> Peer:
    arguments = {"a": torch.ones(2, 3), "b": torch.ones(4, 3), "c": torch.zeros(2, 4)}
    return Peer(prepare, kernel, arguments, {"M": 2, "N": 4, "K": 3}, {"BM": 128})


def outputs(prepare: Any) -> dict[str, Any]:
    return made(prepare).outputs(lambda: None)


def test_outputs() -> None:
    """Written into the arguments, or given: one tensor, a tuple, a dict."""

    def product(a: Any, dims: Any, constants: Any) -> Any:
        assert dims == {"M": 2, "N": 4, "K": 3} and constants == {"BM": 128}
        return a["a"] @ a["b"].T

    wanted = torch.full((2, 4), 3.0)
    assert torch.equal(outputs(lambda a, d, c: lambda: (a["c"].copy_(product(a, d, c)), None)[1])["c"], wanted)
    assert torch.equal(outputs(lambda a, d, c: lambda: torch.mm(a["a"], a["b"].T, out=a["c"]))["c"], wanted)
    assert torch.equal(outputs(lambda a, d, c: lambda: product(a, d, c))["c"], wanted)
    assert torch.equal(outputs(lambda a, d, c: lambda: (product(a, d, c),))["c"], wanted)
    assert torch.equal(outputs(lambda a, d, c: lambda: {"c": product(a, d, c)})["c"], wanted)
    assert outputs(lambda a, d, c: lambda: {}) == {}


@pytest.mark.parametrize(
    ("prepare", "said"),
    [
        (lambda a, d, c: a["z"], "KeyError"),
        (lambda a, d, c: a["c"], "Tensor, not a function"),
        (lambda a, d: None, "TypeError"),
        (lambda a, d, c: lambda: 1 / 0, "the peer raised ZeroDivisionError"),
        (lambda a, d, c: lambda: a["a"], "[2, 3]; it is [2, 4]"),
        (lambda a, d, c: lambda: 7, "int"),
        (lambda a, d, c: lambda: {"d": a["c"]}, "`d`, which is no output"),
        (lambda a, d, c: lambda: (a["c"], a["c"]), "the outputs are c"),
    ],
)
def test_peers_that_are_none(prepare: Any, said: str) -> None:
    assert said in refused(lambda: outputs(prepare))
