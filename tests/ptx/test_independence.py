"""The check shares nothing with what it checks against: no machine, no verifier, no expander, no op table, no
emitter."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import cake.ptx

FORBIDDEN = (
    "cake.machine",
    "cake.verify",
    "cake.expand",
    "cake.ir.ops",
    "cake.codegen",
    "cake.facts",
    "cake.costmodel",
)
PACKAGE = Path(cake.ptx.__file__).parent


def imports(path: Path) -> set[str]:
    """Modules that a file imports."""
    out: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            out |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            out |= {node.module} | {f"{node.module}.{a.name}" for a in node.names}
    return out


def test_imports() -> None:
    for path in PACKAGE.rglob("*.py"):
        found = imports(path)
        assert not [m for m in found if m.startswith(FORBIDDEN)], path
        if path.name != "check.py":
            assert not [m for m in found if m.startswith("cake.ir.expanded")], path


def test_loaded_modules() -> None:
    script = "import sys, cake.ptx.check; print(*[m for m in sys.modules if m.startswith('cake')])"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert not [m for m in loaded if m.startswith(FORBIDDEN)]
