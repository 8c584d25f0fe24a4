"""The engines share no code with what they check."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import cake

ROOT = Path(cake.__file__).parent / "verify"
ALLOWED = ("cake.ir", "cake.verify.search", "cake.verify.oracle", "cake.diagnostics")
FORBIDDEN = ("cake.ir.ops",)
"""Not even the op table: what an operation touches is said again in ``search.operations``."""


def imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
        elif isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
    return {m for m in found if m.split(".")[0] == "cake"}


def test_imports() -> None:
    files = [*(ROOT / "search").glob("*.py"), *(ROOT / "oracle").glob("*.py")]
    assert len(files) > 10
    for path in files:
        for module in imported(path):
            assert module.startswith(ALLOWED), (path.name, module)
            assert module not in FORBIDDEN, path.name
    for path in (ROOT / "search").glob("*.py"):
        assert not any(m.startswith("cake.verify.oracle") for m in imported(path))


LOWEST = Path(cake.__file__).parent / "ptx" / "interpret"
READS = ("cake.ptx.interpret", "cake.ptx.reader", "cake.diagnostics")


def test_the_interpreter_reads_the_code_alone() -> None:
    """No expanded IR, no machine, no other engine, not even the translation check: the PTX reader and nothing else."""
    files = list(LOWEST.glob("*.py"))
    assert len(files) > 10
    for path in files:
        assert all(m.startswith(READS) for m in imported(path)), path.name
    script = "import sys, cake.ptx.interpret; print(*[m for m in sys.modules if m.startswith('cake.')])"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert all(m == "cake.ptx" or m.startswith(READS) for m in loaded), loaded
