"""Random well-typed kernels: a source of blocks, some steps on register tiles, a way out; each with its NumPy meaning.

All values are small integers held in floats, so that sums and products are exact in any order and the device must agree
bit for bit. A step is a line of the language together with the same step on an array.
"""

from __future__ import annotations

import random
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from tests.ops.compare import Bound
from tests.ops.form import Form, add
from tests.ops.values import Array, Rng, rounded

COUNT = 50
LIMIT = 2**18
Step = Callable[[Array, int, Array], Array]
"""Block [64, C], number of the tile, the block's rows in the tensor -> block."""


@dataclass
class Draft:
    """A kernel while it grows. ``size`` bounds the magnitudes of the values that the steps have made."""

    rng: random.Random
    cols: int
    instances: int
    lines: list[str] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    smem: list[str] = field(default_factory=list)
    declare: list[str] = field(default_factory=list)
    size: float = 9.0

    def step(self, text: str, meaning: Step, size: float) -> None:
        """One more step; what grew too large is clamped."""
        self.lines += text.splitlines()
        self.steps.append(meaning)
        self.size = size
        if size > LIMIT:
            top = float(self.rng.choice([50, 100, 120]))
            self.lines.append(f"v = max(min(v, {top}), {-top})")
            self.steps.append(lambda v, m, rows: np.clip(v, -top, top))
            self.size = top


def _affine(d: Draft) -> None:
    a, b = d.rng.choice([-2, -1, 2, 3]), d.rng.randint(-5, 5)
    d.step(f"v = v * {float(a)} + {float(b)}", lambda v, m, rows: v * a + b, d.size * abs(a) + abs(b))


def _mask(d: Draft) -> None:
    axis, k = d.rng.choice(["rows", "cols"]), d.rng.randint(2, 7)
    j, other = d.rng.randrange(k), float(d.rng.randint(-9, 9))

    def meaning(v: Array, m: int, rows: Array) -> Array:
        at = np.arange(v.shape[0])[:, None] if axis == "rows" else np.arange(v.shape[1])[None]
        return np.where(at % k == j, v, other)

    d.step(f"v = where({axis}(v) % {k} == {j}, v, {other})", meaning, max(d.size, 9))


def _reduce(d: Draft) -> None:
    function = d.rng.choice(["sum", "max", "min"])
    partial = function == "sum" and d.rng.random() < 0.4
    inner = f"{function}({function}(v, axis=1, to=4), axis=1)" if partial else f"{function}(v, axis=1)"
    size = d.size + d.size * (d.cols if function == "sum" else 1)
    d.step(f"v = v - {inner}", lambda v, m, rows: v - getattr(v, function)(axis=1, keepdims=True), size)


def _argmax(d: Draft) -> None:
    name = d.rng.choice(["argmax", "argmin"])

    def meaning(v: Array, m: int, rows: Array) -> Array:
        at = getattr(v, name)(axis=1)[:, None]
        return np.where(np.arange(v.shape[1])[None] == at, np.take_along_axis(v, at, 1) + at, v)

    n = len(d.lines)
    text = f"best{n}, at{n} = {name}(v, axis=1)\nv = where(cols(v) == at{n}, best{n} + f32(at{n}), v)"
    d.step(text, meaning, d.size + d.cols)


def _narrow(d: Draft) -> None:
    dtype = d.rng.choice(["bf16", "f16"])
    d.step("v = max(min(v, 30000.0), -30000.0)", lambda v, m, rows: np.clip(v, -30000, 30000), min(d.size, 30000))
    d.step(f"v = f32({dtype}(v))", lambda v, m, rows: rounded(v, dtype).astype(np.float64), d.size)


def _integers(d: Draft) -> None:
    k = d.rng.choice([2, 5, 7, 16])
    op = d.rng.choice(["%", "//"])
    meaning: Step = (lambda v, m, rows: v - k * np.floor(v / k)) if op == "%" else (lambda v, m, rows: np.floor(v / k))
    d.step(f"v = f32(i32(v) {op} {k})", meaning, max(k, d.size / k))


def _loop(d: Draft) -> None:
    n, k = d.rng.randint(1, 3), d.rng.randint(1, 4)

    def meaning(v: Array, m: int, rows: Array) -> Array:
        for i in range(n):
            v = np.maximum(v, -v) - (k if i > 0 else 0)
        return v

    split = d.rng.choice(["", " split(1)"])
    text = f"for i in range({n}){split}:\n    v = max(v, -v)\n    if i > 0:\n        v = v - {float(k)}"
    d.step(text, meaning, d.size + n * k)


def _branch(d: Draft) -> None:
    k = d.rng.randint(2, 3)
    text = f"if t.m % {k} == 0:\n    v = -v\nelse:\n    v = abs(v) + f32(t.m)"
    d.step(text, lambda v, m, rows: -v if m % k == 0 else np.abs(v) + m, d.size + 16)


def _shared(d: Draft) -> None:
    """Through shared memory to other threads, its columns turned around."""
    n = len(d.smem)
    attrs = d.rng.choice(["", "pad(4)", *(["swizzle(128)"] if d.cols % 32 == 0 else [])])
    d.smem.append(f"smem s{n}: f32[{d.instances}, 64, {d.cols}] {attrs}")
    d.declare.append(f"turned{n}: f32[64, {d.cols}] frag")
    text = (
        f"store(s{n}[w, rows(v), cols(v)], v)\nsync()\n"
        f"turned{n} = load(s{n}[w, 63 - rows(v), cols(v)])\nsync()\nv = turned{n}"
    )
    d.step(text, lambda v, m, rows: v[::-1], d.size)


STEPS = [_affine, _mask, _reduce, _argmax, _narrow, _integers, _loop, _branch, _shared]


def _sources(d: Draft, kind: str, stages: int, depth: int) -> tuple[list[str], list[str], list[str], list[str]]:
    """Parameters, pipeline, body of the producer and of the consumer up to a first ``v``."""
    bm = 64 * d.instances
    if kind == "direct":
        other = f"{float(d.rng.randint(-3, 3))}"
        body = [f"v = load(x[r + rows(v), cols(v)], where=r + rows(v) < M and cols(v) < N, other={other})"]
        return [f"x: f32[M, N]:{other}"], [], [], body
    if kind == "tma":
        fields = [f"pipeline p[{stages}] load -> work:", f"    a: f32[{bm}, {d.cols}] swizzle(128)"]
        fill = ["with p.fill() as s:", f"    tma.load(s.a, x[{bm} * t.m : {bm} * t.m + {bm}, 0 : {d.cols}])"]
        body = ["s = p.wait()", "v = load(s.a[64 * w + rows(v), cols(v)])", "p.release()"]
        return ["x: f32[M, N]"], fields, fill, body
    fields = [
        f"pipeline p[{stages}] load -> work:",
        f"    a: bf16[{bm}, 64] swizzle(128)",
        f"    b: bf16[{d.cols}, 64] swizzle(128)",
    ]
    fill = [
        f"for k in range({depth}):",
        "    with p.fill() as s:",
        f"        tma.load(s.a, x[{bm} * t.m : {bm} * t.m + {bm}, 64 * k : 64 * k + 64])",
        f"        tma.load(s.b, y[0 : {d.cols}, 64 * k : 64 * k + 64])",
    ]
    keep = stages > 1 and d.rng.random() < 0.6
    body = [
        f"for k in range({depth}):",
        "    s = p.wait()",
        "    wgmma(v, s.a[64 * w : 64 * w + 64], s.b.T, use_acc=k > 0)",
        f"    wgmma.wait(keep={int(keep)})",
        f"    p.release(keep={int(keep)})",
        *(["wgmma.wait(v)", "p.release()"] if keep else []),
    ]
    return [f"x: bf16[M, {64 * depth}]", f"y: bf16[N, {64 * depth}]"], fields, fill, body


def generate(seed: int) -> Form:
    """The kernel of a seed."""
    rng = random.Random(seed)
    kind = rng.choice(["direct", "tma", "product"])
    cols, instances = rng.choice([32, 64, 96]), rng.choice([1, 2])
    d = Draft(rng, cols, instances, size=9.0 if kind != "product" else 3 * 3 * 192.0)
    stages, depth = rng.randint(1, 3), rng.randint(1, 3)
    params, fields, fill, source = _sources(d, kind, stages, depth)
    other = float(params[0].partition("]:")[2] or 0)
    params = [p.partition("]:")[0] + ("]" if "]:" in p else "") for p in params]
    for _ in range(rng.randint(2, 6)):
        rng.choice(STEPS)(d)
    ring = rng.random() < 0.4
    narrow = "bf16" if rng.random() < 0.5 else "f32"
    if narrow == "bf16":
        d.step("v = max(min(v, 120.0), -120.0)", lambda v, m, rows: np.clip(v, -120, 120), 120)
    value = "bf16(v)" if narrow == "bf16" else "v"
    per = 128 // (2 if narrow == "bf16" else 4)
    if ring and cols % per == 0:
        fields += [f"pipeline q[{rng.randint(1, 2)}] work -> store:", f"    o: {narrow}[64, {cols}] swizzle(128)"]
        out = ["with q.fill() as o:", f"    store(o.o[rows(v), cols(v)], {value})"]
        out.append(f"tma.store(z[r : r + 64, 0 : {cols}], o.o)")
    else:
        out = [f"store(z[r + rows(v), cols(v)], {value}, where=r + rows(v) < M and cols(v) < N)"]
    bm = 64 * instances
    schedule = rng.choice(["once", "persistent"])
    order = rng.choice(["", " grouped(2)"])
    axes = [f"m in cdiv(M, {bm}){order}", "one_ in 1"] if order else [f"m in cdiv(M, {bm})"]
    body = [f"r = {bm} * t.m + 64 * w", *source, *d.lines, *out]
    lines = [
        f"kernel k({', '.join(params)}, out z: {narrow}[M, N]) for sm_90a:",
        f"    where N % 8 == 0, N <= {cols}",
        f"    tiles {schedule}:",
        *(f"        {a}" for a in axes),
        *(["    role load: warps 4"] if fill else []),
        f"    role work[{instances}]: warps 4",
        *(f"    {f}" for f in fields),
        *(f"    {m}" for m in d.smem),
        *(["    do load:", "        for t in tiles:"] if fill else []),
        *(f"            {f}" for f in fill),
        "    do work as w:",
        f"        v: f32[64, {cols}] frag",
        *(f"        {text}" for text in d.declare),
        "        for t in tiles:",
        textwrap.indent("\n".join(body), " " * 12),
    ]
    rows_, width = rng.choice([64, 100, 192, 333]), cols - rng.choice([0, 8, 16])
    return Form(
        f"random {seed:02} {kind} {schedule}",
        "\n".join(lines) + "\n",
        lambda g, _: _inputs(g, kind, rows_, width, depth),
        lambda x, y=None: {"z": _meaning(d, kind, x, y, width, other, narrow)},
        lambda **_: {"z": Bound(sign=True, reason="integers are exact in any order; signs of zeros are not followed")},
        slow=seed >= COUNT // 2,
    )


def _inputs(g: Rng, kind: str, rows: int, cols: int, depth: int) -> dict[str, Array]:
    if kind != "product":
        return {"x": g.integers(-9, 10, (rows, cols)).astype(np.float32)}
    shapes = {"x": (rows, 64 * depth), "y": (cols, 64 * depth)}
    return {n: rounded(g.integers(-3, 4, shape).astype(np.float64), "bf16") for n, shape in shapes.items()}


def _meaning(d: Draft, kind: str, x: Array, y: Array | None, cols: int, other: float, narrow: str) -> Array:
    rows, bm = x.shape[0], 64 * d.instances
    full = np.full((-(-rows // bm) * bm, d.cols), other if kind == "direct" else 0.0)
    full[:rows, :cols] = x if y is None else x.astype(np.float64) @ y.astype(np.float64).T
    for first in range(0, full.shape[0], 64):
        v = full[first : first + 64]
        for step in d.steps:
            v = step(v, first // bm, np.arange(first, first + 64))
        full[first : first + 64] = v
    return rounded(full[:rows, :cols], narrow)


for _seed in range(COUNT):
    add(generate(_seed))
