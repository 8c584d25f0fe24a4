"""The device functions of topk, compiled for the host and run by 32 lanes that meet at each shuffle."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from cake.codegen import emit
from cake.compiler import expand_text
from tests.machine.test_trackers import LISTS, best_of

HERE = Path(__file__).resolve().parent
SELECT = HERE.parents[1] / "cake" / "codegen" / "device" / "select.cuh"
COMPILER = shutil.which("g++") or shutil.which("clang++")
CASES = ((1, 2, 24), (2, 4, 64), (5, 8, 64), (8, 4, 128), (16, 2, 64), (31, 4, 16), (32, 4, 128))
"""Entries, group, columns of a tile."""
TILES = 5

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")

MAIN = """
// Eight rows, a quarter of the columns of each in a lane: pairs, 8 columns apart; registers as in frag, those of the lower row.
float values[8][{total}], floors[8];

template <int K, int COLS, typename Keep>
void follow(int lane, Keep keep, bool floored)
{{
    constexpr int part = (K + 3) / 4;
    float top[part], value[COLS / 2];
    int column[part];
    for (int i = 0; i < part; ++i)
        top[i] = -infinity, column[i] = -1;
    for (int j = 0; j < {tiles}; ++j) {{
        for (int i = 0; i < COLS / 4; ++i)
            value[4 * (i / 2) + i % 2] = values[lane / 4][j * COLS + 8 * (i / 2) + 2 * (lane % 4) + i % 2];
        const float last = last_of<K>(top);
        keep(top, column, value, floored ? fmaxf(last, next_below(floors[lane / 4])) : last, j * COLS, lane);
    }}
    for (int row = 0; row < 8; ++row)
        for (int i = 0; i < K; ++i)
            if (K == 1 ? lane == 4 * row : lane == 4 * row + i / part)
                out_top[row][i] = top[i % part], out_column[row][i] = column[i % part];
}}
"""


def compiled(directory: Path) -> Path:
    """One program for all cases: reads a case, floors and values, writes the lists."""
    sources, calls = [], []
    for n, (k, group, cols) in enumerate(CASES):
        kernel = expand_text(
            LISTS.format(k=k, group=group, rows=64, cols=cols, total=cols, warps=4, value="a", floor=", floor=f")
        )
        (found,) = re.findall(r"^__device__ __forceinline__ void keep_best.*?^\}", emit(kernel), re.M | re.S)
        name = re.search(r"keep_best\w+", found)
        assert name is not None
        sources.append(found)
        calls.append(f"    case {n}: follow<{k}, {cols}>(lane, {name[0]}, floored); break;")
    lists = SELECT.read_text()
    text = "\n".join(
        [
            '#include "warp.cpp"',
            "int which; bool floored; float out_top[8][32]; int out_column[8][32];",
            lists[lists.index("// ---- lists") :],
            *dict.fromkeys(sources),
            MAIN.format(total=TILES * max(cols for _, _, cols in CASES), tiles=TILES),
            "void lane_program(int lane) {\n    switch (which) {",
            *calls,
            "    }\n}",
            "int main() {",
            "    int head[2];",
            "    while (std::fread(head, 4, 2, stdin) == 2) {",
            "        which = head[0], floored = head[1];",
            "        if (std::fread(floors, sizeof floors, 1, stdin) + std::fread(values, sizeof values, 1, stdin) != 2) return 2;",
            "        warp::run(lane_program);",
            "        std::fwrite(out_top, sizeof out_top, 1, stdout), std::fwrite(out_column, sizeof out_column, 1, stdout);",
            "    }",
            "}",
        ]
    )
    (directory / "lists.cpp").write_text(text)
    assert COMPILER is not None
    command = [COMPILER, "-std=c++17", "-O1", f"-I{HERE}", "lists.cpp", "-o", "lists"]
    subprocess.run(command, cwd=directory, check=True, timeout=120)
    return directory / "lists"


def data(kind: str, cols: int, rng: np.random.Generator) -> np.ndarray:
    """Columns of eight rows."""
    n = cols * TILES
    values = np.round(4 * rng.standard_normal((8, n))).astype(np.float32)  # with ties
    match kind:
        case "equal":
            values[:] = 1.0
        case "rising":
            values[:] = np.arange(n)
        case "falling":
            values[:] = -np.arange(n)
        case "special":
            values[:] = rng.choice(np.float32([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, -1e-45, 3e38]), (8, n))
            values[0], values[1] = np.nan, -np.inf
        case "sparse":
            values[rng.random((8, n)) < 0.97] = -np.inf
    return values


def test_lists_of_a_warp(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    width = TILES * max(cols for _, _, cols in CASES)
    given, wanted = [], []
    for n, (k, _, cols) in enumerate(CASES):
        for kind in ("random", "equal", "rising", "falling", "special", "sparse"):
            values = data(kind, cols, rng)
            for floored in (False, True):
                floors = values[:, cols // 3].copy()
                given += [np.int32([n, floored]), floors, np.pad(values, ((0, 0), (0, width - values.shape[1])))]
                with np.errstate(invalid="ignore"):
                    kept = np.where(floored & (values < floors[:, None]), np.float32(-np.inf), values)
                wanted.append((k, kind, floored, best_of(kept, k)))
    program = compiled(tmp_path)
    out = subprocess.run([program], input=b"".join(g.tobytes() for g in given), capture_output=True, timeout=60)
    assert out.returncode == 0, out.stdout[-200:]
    words = np.frombuffer(out.stdout, np.float32).reshape(len(wanted), 2, 8, 32)
    for (k, kind, floored, (best, at)), (top, column) in zip(wanted, words, strict=True):
        assert np.array_equal(top[:, :k], best), (k, kind, floored)
        assert np.array_equal(column.view(np.int32)[:, :k], at), (k, kind, floored)
