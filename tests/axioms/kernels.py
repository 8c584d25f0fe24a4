"""Probes written as Cake kernels: where a TMA box may start along its contiguous axis, and what swizzles permute."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from cake.compiler import expand_text
from cake.ir import expanded as x
from cake.ir.dtypes import numpy_dtype

SHIFTED = """\
kernel shifted(x: DTYPE[M, N], c0: i32, out y: DTYPE[M, WIDTH]) for sm_90a:
    where N % 16 == 0, c0 % STEP == 0

    tiles once:
        m in cdiv(M, 64)

    role load: warps 4
    role math: warps 4

    pipeline p[2] load -> math:
        x: DTYPE[64, WIDTH] SWIZZLE

    do load:
        for t in tiles:
            with p.fill() as s:
                tma.load(s.x, x[t.m * 64 : t.m * 64 + 64, c0 : c0 + WIDTH])

    do math:
        v: DTYPE[64, WIDTH] frag
        for t in tiles:
            s = p.wait()
            v = load(s.x[rows(v), cols(v)])
            p.release()
            store(y[t.m * 64 + rows(v), cols(v)], v, where=t.m * 64 + rows(v) < M)
"""
"""A box that starts at column ``c0``, read by ordinary loads: the addresses of the loads swizzle as the emitter believes."""

SLOTS = """\
kernel slots(x: DTYPE[M, WIDTH], out y: DTYPE[M, WIDTH]) for sm_90a:
    tiles once:
        i in 1

    role load: warps 4
    role math: warps 4

    pipeline p[5] load -> math:
        x: DTYPE[64, WIDTH] SWIZZLE

    do load:
        for t in tiles:
            for m in range(cdiv(M, 64)):
                with p.fill() as s:
                    tma.load(s.x, x[m * 64 : m * 64 + 64, :])

    do math:
        v: DTYPE[64, WIDTH] frag
        for t in tiles:
            for m in range(cdiv(M, 64)):
                s = p.wait()
                v = load(s.x[rows(v), cols(v)])
                p.release()
                store(y[m * 64 + rows(v), cols(v)], v, where=m * 64 + rows(v) < M)
"""
"""Tiles in every slot of a ring: every base that the pattern allows."""


@dataclass(frozen=True)
class CakeProbe:
    """A kernel with launches and what they must give. ``aligned``: an inner start that is a multiple of 16 bytes."""

    name: str
    axiom: str
    title: str
    source: str
    dtype: str
    width: int
    starts: tuple[int, ...] = ()

    def kernel(self) -> x.Kernel:
        """The expanded kernel."""
        return expand_text(self.source)

    def launches(self) -> Iterator[tuple[dict[str, Any], np.ndarray]]:
        """Arguments, and what ``y`` must be."""
        rows, cols = 320, self.width if not self.starts else 256
        numbers = np.arange(rows * cols, dtype=np.int64).reshape(rows, cols) % 251
        data = numbers.astype(np.float32).astype(numpy_dtype(self.dtype))
        for start in self.starts or (None,):
            y = np.zeros((rows, self.width), data.dtype)
            if start is None:
                yield {"x": data, "y": y}, data
                continue
            expected = np.zeros_like(y)
            low, high = max(0, start), min(cols, start + self.width)
            if low < high:
                expected[:, low - start : high - start] = data[:, low:high]
            yield {"x": data, "c0": start, "y": y}, expected


def _text(source: str, dtype: str, width: int, swizzle: int) -> str:
    mode = f"swizzle({swizzle})" if swizzle else ""
    return (
        source.replace("DTYPE", dtype)
        .replace("WIDTH", str(width))
        .replace("SWIZZLE", mode)
        .replace("STEP", "4" if dtype == "f32" else "8")
    )


STARTS = (0, 8, 16, 64, 96, 104, 192, 248, -8, -16)
"""Columns, multiples of 16 bytes, also of boxes that reach past either end. On an H200 all others that were tried trap."""

KERNELS = {
    p.name: p
    for p in (
        *(
            CakeProbe(f"swizzle_{s}", "A10", f"swizzle {s}, every slot of a ring", _text(SLOTS, "bf16", s // 2, s), "bf16", s // 2)
            for s in (32, 64, 128)
        ),
        CakeProbe("start_plain", "A11", "aligned boxes, no swizzle", _text(SHIFTED, "bf16", 64, 0), "bf16", 64, STARTS),
        CakeProbe("start_swizzled", "A11", "aligned boxes, swizzle 128", _text(SHIFTED, "bf16", 64, 128), "bf16", 64, STARTS),
        CakeProbe("start_words", "A11", "aligned boxes of f32", _text(SHIFTED, "f32", 32, 0), "f32", 32, STARTS),
    )
}  # fmt: skip
