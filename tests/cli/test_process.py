"""The command as a process: exit codes, signals, pipes and how fast it starts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.conftest import ROOT

COMMAND = [sys.executable, "-c", "from cake.cli import main; main()"]
GEMM = str(ROOT / "examples" / "gemm.cake")


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *words], capture_output=True, text=True, timeout=120)


def test_exit_codes() -> None:
    assert run("check", GEMM).returncode == 0
    assert run("check", "missing.cake").returncode == 1
    assert run("chek").returncode == 2


def test_output_that_nobody_reads() -> None:
    process = subprocess.Popen([*COMMAND, "expand", GEMM, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    err = process.stderr.read().decode()
    assert process.wait(60) == 141 and err == ""


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_interrupt(tmp_path: Path) -> None:
    (tmp_path / "gemm.cake").write_text(Path(GEMM).read_text())
    (tmp_path / "gemm.py").write_text(
        "import pathlib, time\n"
        "def inputs(d, c, r):\n"
        "    pathlib.Path(__file__).with_name('started').touch()\n"
        "    time.sleep(60)\n"
    )
    words = ["run", str(tmp_path / "gemm.cake"), "M=8", "N=8", "K=8"]
    process = subprocess.Popen([*COMMAND, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    for _ in range(600):
        if (tmp_path / "started").exists():
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and out == b"" and err == b""


def test_heavy_packages_are_not_loaded() -> None:
    """What makes a fresh `cake check` fast: nothing is imported that it does not need."""
    text = (
        "import sys\nfrom cake.cli import main\n"
        f"try:\n    main(['check', '--no-verify', {GEMM!r}])\nexcept SystemExit:\n    pass\n"
        "heavy = {'torch', 'numpy', 'ml_dtypes', 'rich', 'cuda', 'cake.machine', 'cake.codegen'} & set(sys.modules)\n"
        "print(sorted(heavy))\n"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]"
