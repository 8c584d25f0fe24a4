"""Tensors on the device have the bits of the host's arrays; two sides share inputs and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from cake.compiler import expand_file
from cake.evaluate.inputs import poison, poisoned, two_sides, upload
from cake.ir import expanded as x
from cake.ir.dtypes import DTYPES, numpy_dtype
from cake.ir.expr import Sym
from cake.machine.registers import poison as pattern
from cake.runtime.tensors import torch_dtype

torch = pytest.importorskip("torch")
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("dtype", list(DTYPES))
def test_bits(dtype: str) -> None:
    array = np.arange(12).reshape(3, 4).astype(numpy_dtype(dtype))
    tensor = upload(torch, array, dtype, "cpu")
    assert tensor.dtype == torch_dtype(torch, dtype) and tensor.shape == (3, 4)
    assert tensor.view(torch.uint8).numpy().tobytes() == array.tobytes()
    assert upload(torch, array.T, dtype, "cpu").shape == (4, 3)
    assert upload(torch, array[:0], dtype, "cpu").shape == (0, 4)
    fresh = poisoned(torch, (2, 3), dtype, "cpu")
    assert fresh.view(torch.uint8).numpy().tobytes() == pattern(dtype, (2, 3)).tobytes()


def test_arrays_are_copied_not_shared() -> None:
    array = np.ones(4, np.float32)
    array.flags.writeable = False
    tensor = upload(torch, array, "f32", "cpu")
    poison(torch, tensor, "f32")
    assert array[0] == 1 and tensor.isnan().all()


def test_sides() -> None:
    m = (Sym(name="M"),)
    names: dict[str, Literal["in", "inout", "out"]] = {"x": "in", "y": "inout", "z": "out"}
    tensors = tuple(x.Tensor(name=n, dtype="f32", shape=m, direction=d) for n, d in names.items())
    kernel = expand_file(ROOT / "examples" / "gemm.cake").model_copy(update={"tensors": tensors})
    arrays = {n: np.full(3, i, np.float32) for i, n in enumerate("xyz")}
    left, right = two_sides(torch, kernel, {**arrays, "s": 2.0}, "cpu")
    assert left["x"] is right["x"] and left["s"] == right["s"] == 2.0
    assert left["y"].equal(right["y"]) and left["y"].data_ptr() != right["y"].data_ptr()
    assert left["z"].isnan().all() and left["z"].data_ptr() != right["z"].data_ptr()
