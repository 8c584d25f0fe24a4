"""The engines share no code with what they check."""

from __future__ import annotations

import ast
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
