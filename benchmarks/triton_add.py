"""z = x + y in Triton, to measure what a cached launch of three tensors costs the host. A module of its own, because
Triton looks up names among a module's globals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator,unused-ignore]
def _add(x, y, z, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)


def add(x: Any, y: Any, z: Any) -> Callable[[], Any]:
    """A launch of one CTA."""
    grid, n = (1,), x.numel()
    return lambda: _add[grid](x, y, z, n, BLOCK=1024)
