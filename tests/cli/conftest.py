"""Running the command line in this process: what a command prints and its exit code."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cake.cli import main

ROOT = Path(__file__).parents[2]


@dataclass
class Done:
    """One command that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """Standard output, which must be one object of the schema."""
        record: dict[str, Any] = json.loads(self.out)
        assert set(record) == {"ok", "diagnostics", "result"}
        assert record["ok"] is (self.code == 0)
        assert isinstance(record["result"], dict)
        return record

    @property
    def codes(self) -> list[str]:
        """The codes of the findings of a --json run."""
        return [d["code"] for d in self.json["diagnostics"]]


Cake = Callable[..., Done]


@pytest.fixture
def cake(capsys: pytest.CaptureFixture[str]) -> Cake:
    """Run a command."""

    def call(*words: str | Path) -> Done:
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main([str(w) for w in words])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.out + captured.err
        code = end.value.code
        return Done(code if isinstance(code, int) else 0, captured.out, captured.err)

    return call


@pytest.fixture
def gemm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with gemm.cake and the module beside it, as the current one."""
    for name in ("gemm.cake", "gemm.py"):
        shutil.copy(ROOT / "examples" / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path
