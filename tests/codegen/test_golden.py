"""The CUDA C++ of the examples, as recorded: a change of the emitter shows as a difference that somebody reads.

``CAKE_UPDATE_GOLDEN=1`` records anew.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cake.codegen import emit
from cake.compiler import expand_file

ROOT = Path(__file__).parents[2]
GOLDEN = Path(__file__).parent / "golden"

EXAMPLES = {
    "gemm_example": ("gemm", None),
    "softmax": ("softmax", "softmax"),
    "softmax_long": ("softmax", "softmax_long"),
    "rmsnorm": ("rmsnorm", None),
    "attention": ("attention", None),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples(name: str) -> None:
    stem, kernel = EXAMPLES[name]
    text = emit(expand_file(ROOT / "examples" / f"{stem}.cake", kernel=kernel), lines=False)
    path = GOLDEN / f"{name}.cu"
    if os.environ.get("CAKE_UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
