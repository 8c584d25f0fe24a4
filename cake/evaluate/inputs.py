"""The tensors of a measurement: inputs that two sides share, outputs that each has and that change hands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from cake.ir import expanded as x
from cake.ir.dtypes import DTYPES
from cake.ir.sequences import Sequence
from cake.runtime.tensors import torch_dtype

BITS = {1: np.uint8, 2: np.int16, 4: np.int32, 8: np.int64}


def upload(torch: Any, array: Any, dtype: str, device: str) -> Any:
    """A NumPy array as a torch tensor on a device, bit for bit; ``dtype`` is Cake's name, since NumPy has some of the types only
    through ml_dtypes, which torch does not read."""
    bits = np.ascontiguousarray(array).view(BITS[DTYPES[dtype].bytes]).reshape(array.shape)
    bits = bits if bits.flags.writeable else bits.copy()  # torch warns of memory that it may not write
    return torch.from_numpy(bits).to(device, copy=True).view(torch_dtype(torch, dtype))


def poison(torch: Any, tensor: Any, dtype: str) -> Any:
    """Fill a tensor with the pattern that outputs start with in the simulator, so that an element nobody writes shows."""
    from cake.machine.registers import poison as pattern

    return tensor.copy_(upload(torch, pattern(dtype, (1,)), dtype, str(tensor.device)).expand(tensor.shape))


def poisoned(torch: Any, shape: tuple[int, ...], dtype: str, device: str) -> Any:
    """An output that nothing has written."""
    return poison(torch, torch.empty(shape, dtype=torch_dtype(torch, dtype), device=device), dtype)


def two_sides(
    torch: Any, kernel: x.Kernel | Sequence, arguments: Mapping[str, Any], device: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arguments by name for two functions that run side by side: the same inputs and scalars, outputs of their own, poisoned
    (those that are also read: copies). ``arguments``: NumPy arrays and numbers."""
    left: dict[str, Any] = dict(arguments)
    right: dict[str, Any] = dict(arguments)
    for t in kernel.tensors:
        for side in (left, right):
            if t.direction == "out":
                side[t.name] = poisoned(torch, arguments[t.name].shape, t.dtype, device)
            elif side is left or t.direction == "inout":
                side[t.name] = upload(torch, arguments[t.name], t.dtype, device)
            else:
                side[t.name] = left[t.name]
    return left, right
