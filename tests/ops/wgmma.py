"""wgmma: widths, blocks of rows, operands in shared memory and registers, majors, swizzles, panels, accumulation."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

import numpy as np

from tests.ops.form import FORMS, Form, add
from tests.ops.shared import factors, product, product_bound
from tests.ops.values import Array, values


@dataclass(frozen=True)
class Shape:
    """One product. ``a``: k (rows of A are K long), m ([K, M]) or r (registers); ``b``: k ([N, K]) or n ([K, N]).
    ``acc``: over (``use_acc=False``), both (a second product accumulates), kept (onto a loaded accumulator)."""

    dtype: str
    m: int
    n: int
    k: int
    a: str = "k"
    b: str = "k"
    a_swizzle: int = 128
    b_swizzle: int = 128
    acc: str = "over"

    @property
    def name(self) -> str:
        """The form's name."""
        where = f"A {self.a}{self.a_swizzle if self.a != 'r' else ''} B {self.b}{self.b_swizzle}"
        return f"wgmma {self.dtype} {self.m}x{self.n}x{self.k} {where} {self.acc}"

    @property
    def a_shape(self) -> tuple[int, int]:
        """As stored."""
        return (self.k, self.m) if self.a == "m" else (self.m, self.k)

    @property
    def b_shape(self) -> tuple[int, int]:
        """As stored."""
        return (self.n, self.k) if self.b == "k" else (self.k, self.n)


def _boxes(shape: tuple[int, int]) -> str:
    return f"0 : {shape[0]}, 0 : {shape[1]}"


def text(s: Shape) -> str:
    """The kernel: one fill of both operands, one or two products, elements stored."""
    (ar, ac), (br, bc) = s.a_shape, s.b_shape
    a = {"k": "s.a", "m": "s.a.T", "r": "p"}[s.a]
    b = "s.b.T" if s.b == "k" else "s.b"
    fields = [f"b: {s.dtype}[{br}, {bc}] swizzle({s.b_swizzle})"]
    loads = [f"tma.load(s.b, y[{_boxes(s.b_shape)}])"]
    if s.a != "r":
        fields.insert(0, f"a: {s.dtype}[{ar}, {ac}] swizzle({s.a_swizzle})")
        loads.insert(0, f"tma.load(s.a, x[{_boxes(s.a_shape)}])")
    math = []
    if s.a == "r":
        math.append("p = load(x[rows(p), cols(p)])")
    if s.acc == "kept":
        math.append("acc = load(c[rows(acc), cols(acc)])")
    math += ["s = q.wait()", f"wgmma(acc, {a}, {b}{'' if s.acc == 'kept' else ', use_acc=False'})"]
    if s.acc == "both":
        math.append(f"wgmma(acc, {a}, {b}, use_acc=True)")
    math += ["wgmma.wait(acc)", "q.release()", "store(z[rows(acc), cols(acc)], acc)"]
    lines = [
        f"kernel k(x: {s.dtype}[{ar}, {ac}], y: {s.dtype}[{br}, {bc}], c: f32[{s.m}, {s.n}],",
        f"         out z: f32[{s.m}, {s.n}]) for sm_90a:",
        "    tiles once:",
        "        i in 1",
        "    role load: warps 4",
        "    role work: warps 4",
        "    pipeline q[1] load -> work:",
        *(f"        {f}" for f in fields),
        "    do load:",
        "        for t in tiles:",
        "            with q.fill() as s:",
        *(f"                {line}" for line in loads),
        "    do work:",
        *([f"        p: {s.dtype}[{s.m}, {s.k}] frag"] if s.a == "r" else []),
        f"        acc: f32[{s.m}, {s.n}] frag",
        "        for t in tiles:",
        textwrap.indent("\n".join(math), " " * 12),
    ]
    return "\n".join(lines) + "\n"


def _sides(s: Shape, x: Array, y: Array) -> tuple[Array, Array]:
    return (x.T if s.a == "m" else x), (y.T if s.b == "k" else y)


def _add(s: Shape, slow: bool = False) -> None:
    if s.name in FORMS:
        return
    times = 2 if s.acc == "both" else 1

    def operands(x: Array, y: Array) -> tuple[Array, Array]:
        a, b = _sides(s, x, y)
        return np.concatenate([a] * times, axis=1), np.concatenate([b] * times, axis=0)

    add(
        Form(
            s.name,
            text(s),
            lambda rng, kind: {
                **dict(zip("xy", factors(rng, kind, s.dtype, s.a_shape, s.b_shape), strict=True)),
                "c": values(rng, "random", "f32", (s.m, s.n)),
            },
            lambda x, y, c: {"z": product(*operands(x, y), c if s.acc == "kept" else 0.0)},
            lambda x, y, c: {"z": product_bound(*operands(x, y), "wgmma", c if s.acc == "kept" else None)},
            ("random", "extreme", "nan") if s.n <= 64 else ("random",),
            slow,
        )
    )


for _n in (8, 16, 24, 40, 64, 80, 96, 128, 160, 176, 192, 224, 248, 256):
    _add(Shape("bf16", 64, _n, 64), slow=_n in (24, 40, 96, 160, 192, 224, 248))
for _dtype in ("bf16", "f16"):
    for _a in ("k", "m", "r"):
        for _b in ("k", "n"):
            _add(Shape(_dtype, 64, 64, 64, _a, _b, acc="kept"))
            _add(Shape(_dtype, 128, 128, 128, _a, _b, acc="both"), slow=_dtype == "f16")
for _swizzle in (32, 64, 128):
    _panel = _swizzle // 2
    for _a in ("k", "m"):
        for _b in ("k", "n"):
            # rows as wide as the swizzle, and several panels of it along K, M and N
            _add(Shape("bf16", 64, max(_panel, 16), max(_panel, 16), _a, _b, _swizzle, _swizzle, "kept"))
            _add(Shape("bf16", 128, 2 * _panel if _b == "n" else 48, 2 * _panel, _a, _b, _swizzle, _swizzle))
_add(Shape("bf16", 64, 192, 192, "k", "n"))
_add(Shape("bf16", 64, 32, 64, "k", "k", 64, 32), slow=True)
for _dtype in ("e4m3", "e5m2"):
    _add(Shape(_dtype, 64, 64, 128))
    _add(Shape(_dtype, 128, 32, 256, acc="both"))
    _add(Shape(_dtype, 64, 16, 64, a_swizzle=64, b_swizzle=64))
    _add(Shape(_dtype, 64, 24, 32, a_swizzle=32, b_swizzle=32, acc="kept"))
