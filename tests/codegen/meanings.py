"""What the device functions of generated code mean, over arrays of threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np


def index(n: Any) -> int:
    """A constant index (the same in every thread)."""
    values = np.unique(np.asarray(n))
    assert values.size == 1, "a register index differs between threads"
    return int(values[0])


def _half(kind: Any) -> tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
    def bits(v: Any) -> Any:
        return np.asarray(v, np.float32).astype(kind).view(np.uint16).astype(np.int64)

    def at(word: Any, i: Any) -> Any:
        return (
            ((np.asarray(word, np.int64) >> (16 * np.asarray(i))) & 0xFFFF)
            .astype(np.uint16)
            .view(kind)
            .astype(np.float32)
        )

    def pack(low: Any, high: Any = None) -> Any:
        return bits(low) if high is None else bits(low) | bits(high) << 16

    return pack, at, lambda v: at(bits(v), 0)


def _f32(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def run(v: Any) -> Any:
        with np.errstate(all="ignore"):
            return f(np.asarray(v, np.float32)).astype(np.float32)

    return run


PURE: dict[str, Callable[..., Any]] = {
    "max_nan": lambda a, b: np.maximum(a, b),
    "min_nan": lambda a, b: np.minimum(a, b),
    "max": lambda a, b: np.maximum(a, b),
    "min": lambda a, b: np.minimum(a, b),
    "abs": np.abs,
    "fabsf": np.abs,
    "fmaxf": np.fmax,
    "anew": lambda x: x,
    "select": np.where,
    "divide": lambda a, b: np.asarray(a, np.float32) / np.asarray(b, np.float32),
    "cdiv": lambda a, b: -(-np.asarray(a) // b),
    "floor_div": lambda a, b: np.asarray(a) // b,
    "floor_mod": lambda a, b: np.asarray(a) % b,
    "exp2_approx": _f32(np.exp2),
    "log2_approx": _f32(np.log2),
    "exp_approx": _f32(np.exp),
    "log_approx": _f32(np.log),
    "rsqrt_approx": _f32(lambda v: 1 / np.sqrt(v)),
    "sqrt_approx": _f32(np.sqrt),
    "float": lambda v: np.asarray(v).astype(np.float32),
    "int": lambda v: np.asarray(v).astype(np.int64),
    "int64_t": lambda v: np.asarray(v).astype(np.int64),
    "unsigned": lambda v: np.asarray(v).astype(np.int64) & 0xFFFFFFFF,
    "swizzle_128": lambda o: np.asarray(o) ^ (np.asarray(o) >> 3 & 0x70),
    "swizzle_64": lambda o: np.asarray(o) ^ (np.asarray(o) >> 3 & 0x30),
    "swizzle_32": lambda o: np.asarray(o) ^ (np.asarray(o) >> 3 & 0x10),
    "join2_16": lambda a, b: np.asarray(a) | np.asarray(b) << 16,
    "join1_16": lambda a: np.asarray(a),
}
for _name, _kind in (("bf16", ml_dtypes.bfloat16), ("f16", np.float16)):
    PURE[f"pack_{_name}"], PURE[f"{_name}_at"], PURE[f"round_{_name}"] = _half(_kind)


# ---- argmax ---------------------------------------------------------------------------------------------------------


class Best:
    """A Best4 of every thread: the maximum of the best group, its members and its number."""

    def __init__(self, rows: list[np.ndarray]) -> None:
        self.rows = [np.array(r) for r in rows]
        self.top = np.fmax(np.fmax.reduce(self.rows, axis=0), -np.inf)
        self.group = np.zeros(len(rows[0]), np.int64)


def _rows(e: Any, values: tuple[Any, ...]) -> list[np.ndarray]:
    return [np.broadcast_to(v, e.threads) for v in values]


def _best4(e: Any, *values: Any) -> Best:
    return Best(_rows(e, values))


def _keep(e: Any, best: Any, *rest: Any) -> None:
    if isinstance(best, Best):
        rows = _rows(e, rest[1:])
        better = np.fmax.reduce(rows, axis=0) > best.top
        for mine, row in zip(best.rows, rows, strict=True):
            mine[better] = row[better]
        best.top[better], best.group[better] = np.fmax.reduce(best.rows, axis=0)[better], index(rest[0])
        return
    column, value, at = rest
    better = np.asarray(value) > best
    best[better] = np.broadcast_to(value, e.threads)[better]
    column[better] = np.broadcast_to(at, e.threads)[better]


def _keep_lowest(e: Any, best: np.ndarray, column: np.ndarray, other: np.ndarray, at: np.ndarray) -> None:
    better = (other > best) | ((other == best) & (at < column))
    column[better], best[better] = at[better], other[better]


def _which(e: Any, best: Best, *columns: Any) -> np.ndarray:
    first = np.argmax(np.array(best.rows) == best.top, axis=0)
    return np.array(_rows(e, columns))[first, np.arange(e.threads)]


def _keep_least(e: Any, best: np.ndarray, column: np.ndarray, value: Any, at: Any) -> None:
    better = np.asarray(value) < best
    best[better] = np.broadcast_to(value, e.threads)[better]
    column[better] = np.broadcast_to(at, e.threads)[better]


def _keep_lowest_least(e: Any, best: np.ndarray, column: np.ndarray, other: np.ndarray, at: np.ndarray) -> None:
    better = (other < best) | ((other == best) & (at < column))
    column[better], best[better] = at[better], other[better]


SELECT: dict[str, Callable[..., Any]] = {
    "best4": _best4,
    "keep": _keep,
    "keep_least": _keep_least,
    "keep_lowest": _keep_lowest,
    "keep_lowest_least": _keep_lowest_least,
    "which": _which,
}


# ---- trackers -------------------------------------------------------------------------------------------------------


class Group:
    """The group of columns that won last in each thread: where it starts (-1: none has) and its members."""

    def __init__(self, threads: int) -> None:
        self.start = np.full(threads, -1)
        self.members = np.zeros((8, threads), np.float32)


def _track(largest: bool) -> Callable[..., None]:
    def keep(e: Any, best: np.ndarray, found: Group, start: Any, *members: Any) -> None:
        rows = np.array(_rows(e, members), np.float32)
        with np.errstate(invalid="ignore"):
            extremum = (np.fmax if largest else np.fmin).reduce(rows, axis=0)
            better = e.mask & ((extremum > best) if largest else (extremum < best))
        best[better] = extremum[better]
        found.start[better] = index(start)
        found.members[: len(rows), better] = rows[:, better]

    return keep


def _column_of(e: Any, best: np.ndarray, found: Group, first: Any, before: np.ndarray) -> np.ndarray:
    inside = np.argmax(found.members == best, axis=0)
    return np.where(found.start < 0, before, first + found.start + 8 * (inside // 2) + inside % 2)


TRACK: dict[str, Callable[..., Any]] = {
    "no_group": lambda e: Group(e.threads),
    "keep_argmax": _track(True),
    "keep_argmin": _track(False),
    "column_of": _column_of,
}


def _next_below(x: Any) -> Any:
    x = np.asarray(x, np.float32)
    return np.where(np.isnan(x), np.float32(-np.inf), np.nextafter(x, np.float32(-np.inf)))


PURE["next_below"] = _next_below


def _places(e: Any, entries: int, top: Any, lanes: Any) -> list[tuple[int, int]]:
    """Where the entries of the row of four lanes are: the register after ``top`` and the lane."""
    part = -(-entries // 4)
    return [(n % part, lanes[n // part]) for n in (range(1) if entries == 1 else range(entries))]


def last_of(e: Any, entries: int, top: Any) -> Any:
    """The last entry of each row's list, in all of its lanes."""
    found = np.empty(e.threads, np.float32)
    for lanes in np.arange(e.threads).reshape(-1, 4):
        register, lane = _places(e, entries, top, lanes)[-1]
        found[lanes] = top.values[top.at + register][lane]
    return found


def keep_best(
    e: Any, entries: int, members: int, top: Any, column: Any, value: Any, least: Any, first: Any, lane: Any
) -> None:
    """The lists of the rows of each warp, taken from the four lanes that hold a part each, with the columns of the lanes."""
    offsets = np.array([8 * (k // 2) + k % 2 for k in range(members)])
    registers = [4 * (k // 2) + k % 2 for k in range(members)]
    first = np.broadcast_to(first, e.threads)
    for lanes in np.arange(e.threads).reshape(-1, 4):
        places = _places(e, entries, top, lanes)
        values = [(top.values[top.at + r][t], column.values[column.at + r][t]) for r, t in places]
        new = [
            (value.values[value.at + r][t], first[t] + 2 * (t % 4) + c)
            for t in lanes
            for r, c in zip(registers, offsets, strict=True)
        ]
        new = [(v, c) for v, c in new if v > least[lanes[0]]]  # NaN never is
        best = sorted(values, key=lambda entry: -entry[0]) + sorted(new, key=lambda entry: entry[1])
        best.sort(key=lambda entry: -entry[0])
        for (r, t), (v, c) in zip(places, best, strict=False):
            for other in lanes if entries == 1 else (t,):
                top.values[top.at + r][other], column.values[column.at + r][other] = v, c
