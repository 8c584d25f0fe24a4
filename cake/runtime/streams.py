"""Which stream a call goes to: the caller's, or the current one of the framework whose tensors it is given."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from cake.runtime import errors
from cake.runtime.tensors import View


def stream_handle(stream: Any) -> int:
    """The driver's handle of a stream: an integer, or a torch, CuPy or ``__cuda_stream__`` object."""
    for attribute in ("cuda_stream", "ptr", "handle"):
        value = getattr(stream, attribute, None)
        if value is not None:
            return int(value)
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        return int((protocol() if callable(protocol) else protocol)[1])
    if hasattr(stream, "__int__"):
        return int(stream)
    raise errors.error(
        errors.NOT_A_TENSOR,
        f"`stream` is {type(stream).__name__}, not a CUDA stream.",
        "pass a torch or CuPy stream, or the handle of one as an integer",
    )


def raw_torch_stream(torch: Any) -> Callable[[int], int]:
    """The cheapest way to ask torch for the handle of a device's current stream."""
    raw: Callable[[int], int] | None = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    return raw if raw is not None else lambda device: int(torch.cuda.current_stream(device).cuda_stream)


def current_stream(tensor: Any, seen: View) -> int:
    """The stream that work on ``tensor`` goes to now; the default stream where its framework has no notion of it."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(tensor, torch.Tensor):
        return int(raw_torch_stream(torch)(tensor.get_device()))
    if type(tensor).__module__.partition(".")[0] == "cupy":
        return int(sys.modules["cupy"].cuda.get_current_stream().ptr)
    return seen.stream or 0
