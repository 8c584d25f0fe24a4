"""Control: loops with splits, steps and unrolling, conditions, work lists with definitions and `where`, grouped walks,
and integer definitions of negative numbers."""

from __future__ import annotations

import numpy as np

from tests.ops.form import Form, add, simple
from tests.ops.pipelines import kernel
from tests.ops.values import Array, values


def _loop(name: str, header: str, count: str, reference: object) -> None:
    """Each iteration writes its number and how often the loop had come by."""
    add(
        Form(
            f"control {name}",
            simple(
                "n: i32, m: i32, inout y: i32[32]",
                "v: i32[1, 32] spread(1)\n",
                f"v = 0\nfor i in {header}:\n    v = v * 3 + where(cols(v) == (i + 64) % 32, i + 7, 1)\n"
                f"    {count}\nstore(y[cols(v)], v)",
                warps=1,
            ),
            lambda rng, kind: {"n": 11, "m": 4, "y": np.zeros(32, np.int32)},
            lambda n, m, y: {"y": _count(reference(n, m))},  # type: ignore[operator]
        )
    )


def _count(trips: list[tuple[int, int]]) -> Array:
    v = np.zeros(32, np.int64)
    for i, extra in trips:
        v = v * 3 + np.where(np.arange(32) == (i + 64) % 32, i + 7, 1)
        v = v + extra
    return v.astype(np.int32)


_loop("range", "range(n)", "v = v + 0", lambda n, m: [(i, 0) for i in range(n)])
_loop("range from below zero", "range(-m, n)", "v = v + 0", lambda n, m: [(i, 0) for i in range(-m, n)])
_loop("range with a step", "range(1, n, 3)", "v = v + 0", lambda n, m: [(i, 0) for i in range(1, n, 3)])
_loop("empty range", "range(n, m)", "v = v + 0", lambda n, m: [])
_loop("unroll", "unroll(5)", "v = v + i", lambda n, m: [(i, i) for i in range(5)])
_loop(
    "split in three", "range(n + 1) split(1, m)", "if i > 0:\n        v = v + 1\n    if i < m:\n        v = v + 5",
    lambda n, m: [(i, (i > 0) + 5 * (i < m)) for i in range(n + 1)],
)  # fmt: skip
_loop(
    "split out of range", "range(2, n) split(m - 6, n + 3)",
    "if i >= m:\n        v = v + 2\n    else:\n        v = v + 1",
    lambda n, m: [(i, 2 if i >= m else 1) for i in range(2, n)],
)  # fmt: skip
_loop(
    "elif", "range(n)",
    "if i == 3:\n        v = v + 10\n    elif i % 2 == 1 and i > m:\n        v = v + 20\n    else:\n        v = v + 30",
    lambda n, m: [(i, 10 if i == 3 else 20 if i % 2 == 1 and i > m else 30) for i in range(n)],
)  # fmt: skip

INTEGERS = {
    "d0": "(a - b) // 7", "d1": "(a - b) % 7", "d2": "cdiv(a - b, 7)", "d3": "(b - a) // b", "d4": "(b - a) % b",
    "d5": "(a - b) // (0 - b)", "d6": "(a - b) % (0 - b)", "d7": "max(min(a, b), 0 - a)", "d8": "(a - b) // 8",
    "d9": "(a - b) % 8", "d10": "where(a < b, a, b) * 3 - 1", "d11": "cdiv(b, 0 - a)",
}  # fmt: skip


def _integer(a: int, b: int) -> list[int]:
    def up(p: int, q: int) -> int:
        return -(-p // q)

    return [
        (a - b) // 7, (a - b) % 7, up(a - b, 7), (b - a) // b, (b - a) % b, (a - b) // -b, (a - b) % -b,
        max(min(a, b), -a), (a - b) // 8, (a - b) % 8, min(a, b) * 3 - 1, up(b, -a),
    ]  # fmt: skip


def _definitions(a: int, b: int) -> None:
    """Kernel-level definitions, the same again in a tile's definitions, and as tile elements."""
    lines = "\n".join(f"{name} = {text}" for name, text in INTEGERS.items())
    stores = "\n".join(f"store(y[{i}], {name})\nstore(y[{i + 12}], t.t{name})" for i, name in enumerate(INTEGERS))
    tile = "\n".join(f"        t{name} = {text}" for name, text in INTEGERS.items())
    add(
        Form(
            f"control integer definitions {a} {b}",
            "kernel k(a: i32, b: i32, out y: i32[24]) for sm_90a:\n"
            + "".join(f"    {line}\n" for line in lines.splitlines())
            + "    tiles once:\n        i in 1\n"
            + tile
            + "\n    role work: warps 1\n    do work:\n        for t in tiles:\n"
            + "".join(f"            {line}\n" for line in stores.splitlines()),
            lambda rng, kind: {"a": a, "b": b},
            lambda a, b: {"y": np.array(_integer(a, b) * 2, np.int32)},
        )
    )


for _a, _b in ((3, 17), (17, 3), (5, 5), (-9, 4), (16, 40)):
    _definitions(_a, _b)


# ---- work lists ------------------------------------------------------------------------------------------------------


def _walk(schedule: str, axis: str, grouped: bool) -> None:
    """Every kept tile writes a block once; dropped ones leave what was there."""

    def reference(x: Array, keep: Array, y: Array) -> dict[str, Array]:
        out = y.copy()
        for m in range(5):
            for n in range(3):
                if n < keep[m]:
                    r, c = slice(64 * m, min(300, 64 * m + 64)), slice(32 * n, 32 * n + 32)
                    out[r, c] = x[r, c] + np.float32(m)
        return {"y": out}

    add(
        Form(
            f"control tiles {schedule}{' grouped' if grouped else ''}",
            kernel(
                "x: f32[M, 96], keep: i32[5], inout y: f32[M, 96]",
                f"""
                assume within(keep, 0, 4)
                where M <= 320
                tiles {schedule}:
                    m in cdiv(M, 64){axis}
                    n in 3
                    many = load(keep[m], where=m < 5, other=0)
                    where n < many
                role work: warps 4
                """,
                work="""
                v: f32[64, 32] frag
                for t in tiles:
                    r = 64 * t.m + rows(v)
                    v = load(x[r, 32 * t.n + cols(v)], where=r < M) + f32(t.m)
                    store(y[r, 32 * t.n + cols(v)], v, where=r < M)
                """,
            ),
            lambda rng, kind: {
                "x": values(rng, kind, "f32", (300, 96)),
                "keep": np.array([3, 0, 2, 1, 3], np.int32),
                "y": values(rng, kind, "f32", (300, 96)),
            },
            reference,
        )
    )


for _schedule in ("once", "persistent"):
    _walk(_schedule, "", False)
    _walk(_schedule, " grouped(2)", True)
