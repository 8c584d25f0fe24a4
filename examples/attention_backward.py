"""Inputs and reference of attention_backward.cake: packed sequences whose lengths are drawn to add up to TQ and TK, with the output and
the log sums that attention.cake computes for them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

from cake.ir.layout import Layout, RegisterMap

SIZES = {"B": 3, "H": 4, "HK": 2, "TQ": 300, "TK": 420}


def inputs(dims: dict[str, int], constants: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Standard normal operands; O in bf16 and LSE, in powers of two, as the forward pass leaves them."""
    cu_q, cu_k = (_lengths(dims[n], dims["B"], rng) for n in ("TQ", "TK"))
    return packed(cu_q, cu_k, dims["H"], dims["HK"], constants, rng)


def _lengths(total: int, parts: int, rng: np.random.Generator) -> Any:
    """Prefix sums of ``parts`` lengths that add up to ``total``; empty sequences are allowed."""
    cuts = np.sort(rng.integers(0, total + 1, parts - 1))
    return np.concatenate([[0], cuts, [total]]).astype(np.int32)


def packed(
    cu_q: Any, cu_k: Any, heads: int, key_heads: int, constants: dict[str, Any], rng: np.random.Generator
) -> dict[str, Any]:
    """Operands for sequences with these prefix sums."""
    d = constants["D"]

    def normal(*shape: int) -> Any:
        return rng.standard_normal(shape, dtype=np.float32).astype(ml_dtypes.bfloat16)

    tq, tk = int(cu_q[-1]), int(cu_k[-1])
    values = {
        "q": normal(tq, heads, d),
        "k": normal(tk, key_heads, d),
        "v": normal(tk, key_heads, d),
        "do": normal(tq, heads, d),
        "cu_q": cu_q,
        "cu_k": cu_k,
        "max_q": max(1, int(np.diff(cu_q).max())),
        "max_k": max(1, int(np.diff(cu_k).max())),
        "scale_log2": float(np.log2(np.e) / np.sqrt(d)),
    }
    o = np.zeros(values["q"].shape)
    lse = np.full((heads, tq), -np.inf, np.float32)
    for rows, keys, h, g, p, total in _weights(values, constants):
        o[rows, h] = p @ values["v"][keys, g].astype(np.float64)
        lse[h, rows] = total
    return values | {"o": o.astype(ml_dtypes.bfloat16), "lse": lse}


def _weights(values: dict[str, Any], constants: dict[str, Any]) -> Iterator[tuple[slice, slice, int, int, Any, Any]]:
    """For each sequence and head: its rows, its keys, both heads' numbers, the softmax and log2 of the sums, in float64. Rows that
    see no key have no weights."""
    q, k = (values[n].astype(np.float64) for n in ("q", "k"))
    cu_q, cu_k = values["cu_q"], values["cu_k"]
    share = q.shape[1] // k.shape[1]
    for b in range(len(cu_q) - 1):
        rows, keys = slice(cu_q[b], cu_q[b + 1]), slice(cu_k[b], cu_k[b + 1])
        nq, nk = rows.stop - rows.start, keys.stop - keys.start
        if nq == 0 or nk == 0:
            continue
        for h in range(q.shape[1]):
            s = q[rows, h] @ k[keys, h // share].T * values["scale_log2"]
            if constants.get("CAUSAL"):
                s = np.where(np.arange(nk) <= np.arange(nq)[:, None] + (nk - nq), s, -np.inf)
            top = s.max(axis=1, keepdims=True)
            top = np.where(np.isinf(top), 0, top)
            p = np.exp2(s - top)
            total = p.sum(axis=1, keepdims=True)
            with np.errstate(divide="ignore"):
                yield rows, keys, h, h // share, p / np.where(total > 0, total, 1), (top + np.log2(total))[:, 0]


def reference(arguments: dict[str, Any], dims: dict[str, int], constants: dict[str, Any]) -> dict[str, Any]:
    """Gradients in float64, sequence by sequence and head by head."""
    q, k, v, do = (arguments[n].astype(np.float64) for n in ("q", "k", "v", "do"))
    scale = arguments["scale_log2"] * np.log(2.0)
    dq, dk, dv = np.zeros(q.shape), np.zeros(k.shape), np.zeros(v.shape)
    for rows, keys, h, g, p, _ in _weights(arguments, constants):
        dp = do[rows, h] @ v[keys, g].T
        ds = p * (dp - (p * dp).sum(axis=1, keepdims=True))
        dv[keys, g] += p.T @ do[rows, h]
        dk[keys, g] += ds.T @ q[rows, h] * scale
        dq[rows, h] = ds @ k[keys, g] * scale
    return {"dq": dq, "dk": dk, "dv": dv}


# ---- the launches one by one ----------------------------------------------------------------------------------------


def inputs_prepare(dims: dict[str, int], constants: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """What the forward pass left."""
    return inputs({**dims, "HK": dims["H"], "TK": dims["TQ"]}, constants, rng)


def reference_prepare(arguments: dict[str, Any], dims: dict[str, int], constants: dict[str, Any]) -> dict[str, Any]:
    """Log sums and delta in blocks, and a cleared sum."""
    lse = np.where(np.isinf(arguments["lse"]), 1e30, arguments["lse"])
    delta = (arguments["do"].astype(np.float64) * arguments["o"].astype(np.float64)).sum(axis=2).T
    stats = [
        _blocks(x[:, :, None], arguments["cu_q"], constants, pad)[..., 0] for x, pad in ((lse, 1e30), (delta, 0.0))
    ]
    heads, blocks = stats[0].shape[:2]
    return {
        "stats": np.stack(stats, axis=2),
        "dq_sum": np.zeros((heads, blocks, 2, constants["BM"] * constants["D"] // 512, 256)),
    }


def inputs_backward(dims: dict[str, int], constants: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Operands, and what the first launch prepares for them."""
    values = inputs(dims, constants, rng)
    made = {n: x.astype(np.float32) for n, x in reference_prepare(values, dims, constants).items()}
    return values | made | {"tile_counter": np.zeros(1, np.int32)}


def reference_backward(arguments: dict[str, Any], dims: dict[str, int], constants: dict[str, Any]) -> dict[str, Any]:
    """dK and dV, and dQ before its scale, as the registers of the warpgroups hold it."""
    found = reference(arguments, dims, constants)
    dq = found.pop("dq") / (arguments["scale_log2"] * np.log(2.0))
    return found | {"dq_sum": _parked(dq, arguments["cu_q"], constants), "tile_counter": np.zeros(1)}


def inputs_finish(dims: dict[str, int], constants: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Some sum."""
    values = inputs_prepare(dims, constants, rng)
    dq = rng.standard_normal(values["q"].shape)
    return values | {"dq_sum": _parked(dq, values["cu_q"], constants).astype(np.float32), "expected": dq}


def reference_finish(arguments: dict[str, Any], dims: dict[str, int], constants: dict[str, Any]) -> dict[str, Any]:
    """The sum, scaled."""
    return {"dq": arguments["expected"] * (arguments["scale_log2"] * np.log(2.0))}


def _blocks(x: Any, cu_q: Any, constants: dict[str, Any], pad: float) -> Any:
    """[H, TQ, C] in blocks of BM queries of one sequence, [H, TQ // BM + B, BM, C]; ``pad`` where a block has no query."""
    bm, sequences = constants["BM"], len(cu_q) - 1
    out = np.full((x.shape[0], x.shape[1] // bm + sequences, bm, x.shape[2]), pad)
    for b in range(sequences):
        for row in range(cu_q[b], cu_q[b + 1]):
            block, place = divmod(row - cu_q[b], bm)
            out[:, cu_q[b] // bm + b + block, place] = x[:, row]
    return out


@cache
def _register_order(cols: int) -> Any:
    """The row-major number of each element of a [64, cols] tile, in the order in which its threads park it."""
    tile = RegisterMap(64, cols, Layout(kind="frag"), 128)
    order = np.zeros(64 * cols, np.int64)
    for thread in range(128):
        for register in range(tile.count):
            row, col = tile.element(thread, register) or (0, 0)
            order[tile.lin(thread, register)] = row * cols + col
    return order


def _parked(dq: Any, cu_q: Any, constants: dict[str, Any]) -> Any:
    """[TQ, H, D] as the workspace has it: blocks, each in two transposed parts of 64 columns."""
    bm, d = constants["BM"], constants["D"]
    blocks = _blocks(dq.transpose(1, 0, 2), cu_q, constants, 0.0)
    if d == 128:
        parts = blocks.reshape(*blocks.shape[:2], bm, 2, 64).transpose(0, 1, 3, 4, 2)
    else:
        parts = blocks.reshape(*blocks.shape[:2], 2, bm // 2, 64).transpose(0, 1, 2, 4, 3)
    flat = parts.reshape(*parts.shape[:3], -1)
    return flat[..., _register_order(parts.shape[-1])].reshape(*flat.shape[:-1], -1, 256)


def tolerance(name: str) -> float:
    """Relative to the largest element: P and dS are rounded to bf16 before their products, O before delta, each result once more."""
    return 2**-6
