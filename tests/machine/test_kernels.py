"""Whole kernels of the specification, expanded and run: what they compute, over schedules and awkward sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cake import machine
from cake.compiler import expand_text
from cake.ir import expanded as x
from cake.ir.expr import Sym
from cake.machine.elementwise import to_f32
from tests.expanded.gemm import gemm
from tests.machine import small as s
from tests.machine.edit import edit, updated, with_count

EXAMPLES = Path(__file__).parents[1] / "ir" / "examples"


def kernel(file: str, name: str, **constants: Any) -> x.Kernel:
    """A kernel of the specification."""
    return expand_text((EXAMPLES / f"{file}.cake").read_text(), kernel=name, constants=constants)


def normal(rng: np.random.Generator, *shape: int) -> Any:
    return rng.standard_normal(shape).astype(np.float32).astype(s.BF16)


def outputs(k: x.Kernel, arguments: dict[str, Any], seeds: int = 3, ctas: int = 2) -> dict[str, Any]:
    """The outputs; the same in every schedule."""
    first = machine.run(k, arguments, ctas=ctas).outputs
    for seed in range(1, seeds):
        again = machine.run(k, arguments, seed=seed, ctas=ctas).outputs
        assert all(np.array_equal(first[n].view(np.uint8), again[n].view(np.uint8)) for n in first), seed
    return first


def replaced(node: Any, old: Any, new: Any) -> Any:
    """``node`` (JSON) with each ``old`` in it replaced."""
    if node == old:
        return new
    if isinstance(node, dict):
        return {k: replaced(v, old, new) for k, v in node.items()}
    return [replaced(v, old, new) for v in node] if isinstance(node, list | tuple) else node


def clustered() -> x.Kernel:
    """The GEMM of the fixture for clusters of two row neighbours: each loads half of a B tile and sends it to both; a
    release goes to both, since both refill the slot."""
    rank = Sym(name="%rank")
    single = gemm().model_dump(mode="json")
    tiles = s.i32("cdiv", Sym(name="M"), 128).model_dump(mode="json")
    pairs = s.i32("cdiv", Sym(name="M"), 256).model_dump(mode="json")
    plain = x.Kernel.model_validate(replaced(single, tiles, pairs))

    def change(node: x.Stmt) -> x.Stmt | list[x.Stmt]:
        if isinstance(node, x.Let) and node.name == "t.m":
            return updated(node, value=s.i32("+", s.i32("*", node.value, 2), rank))
        if isinstance(node, x.Arrive) and node.barrier == "ab.empty":
            return updated(node, peers=(0, 1))
        if isinstance(node, x.Op) and node.op == "tma.load" and node.ref("src").base == "b":
            half = s.i32("*", rank, 128)
            dst = updated(node.ref("dst"), subs=(x.Range(start=half, size=128), node.ref("dst").subs[1]))
            rows = x.Range(start=s.i32("+", Sym(name="t.n0"), half), size=128)
            src = updated(node.ref("src"), subs=(rows, node.ref("src").subs[1]))
            return updated(node, operands={"dst": dst, "src": src}, attrs={**node.attrs, "multicast": 3})
        return node

    made = with_count(edit(plain, change), "ab.empty", 16)
    ends = tuple(updated(r, body=(*r.body[:-1], x.Cluster(), r.body[-1])) for r in made.roles)
    return made.model_copy(update={"cluster": 2, "entry": (*made.entry, x.Cluster()), "roles": ends})


@pytest.mark.parametrize(("m", "n", "k"), [(300, 264, 200), (520, 520, 136), (128, 256, 64)])
def test_gemm_in_a_cluster(m: int, n: int, k: int) -> None:
    """The last tile of an odd count loads zeros and stores nothing."""
    rng = np.random.default_rng(m)
    a, b = normal(rng, m, k), normal(rng, n, k)
    found = outputs(clustered(), {"a": a, "b": b, "c": s.empty("bf16", m, n)}, seeds=8)["c"]
    np.testing.assert_allclose(to_f32(found), to_f32(a) @ to_f32(b).T, rtol=1 / 128, atol=1e-2)


def test_half_norms() -> None:
    c = normal(np.random.default_rng(0), 2, 11, 128)
    found = outputs(kernel("kmeans", "half_norms"), {"c": c, "half": s.empty("f32", 2, 11)})["half"]
    np.testing.assert_allclose(found, -0.5 * (to_f32(c) ** 2).sum(axis=2), rtol=1e-5)


def test_paged_decode() -> None:
    """Four one-warp instances share stages filled by gathered pages, and combine through shared memory."""
    rng = np.random.default_rng(1)
    batch, heads, kv_heads, pages, size, most, parts, d = 3, 16, 2, 40, 16, 12, 2, 128
    q, kc, vc = (
        normal(rng, batch, heads, d),
        normal(rng, pages, size, kv_heads, d),
        normal(rng, pages, size, kv_heads, d),
    )
    table = rng.permutation(pages)[: batch * most].reshape(batch, most).astype(np.int32)
    lens = np.array([1, 77, 192], np.int32)
    scale = np.float32(np.log2(np.e) / np.sqrt(d))
    po, pl = s.empty("f32", batch, heads, parts, d), s.empty("f32", batch, heads, parts)
    arguments = {"q": q, "kc": kc, "vc": vc, "table": table, "lens": lens, "scale_log2": scale, "po": po, "pl": pl}
    found = outputs(kernel("decode", "decode_part", Z=parts), arguments)
    combined = kernel("decode", "decode_combine", Z=parts)
    y = outputs(combined, {"po": found["po"], "pl": found["pl"], "y": s.empty("bf16", batch, heads, d)})["y"]
    for b in range(batch):
        keys = to_f32(kc[table[b]]).reshape(-1, kv_heads, d)[: lens[b]]
        vals = to_f32(vc[table[b]]).reshape(-1, kv_heads, d)[: lens[b]]
        for h in range(heads):
            score = keys[:, h // 8] @ to_f32(q[b, h]) * scale
            p = np.exp2(score - score.max())
            exact = p @ vals[:, h // 8] / p.sum()
            np.testing.assert_allclose(to_f32(y[b, h]), exact, rtol=0.02, atol=0.02)


def test_delta_attention_recurrence() -> None:
    """State in registers as the left operand of wgmma, over ragged sequences (one of them empty)."""
    rng = np.random.default_rng(2)
    cu = np.array([0, 70, 70, 198], np.int32)
    t, h, d, c = int(cu[-1]), 2, 128, 64
    chunks = t // c + len(cu)
    small = {
        n: (normal(rng, t, h, w).astype(np.float32) * 0.1).astype(s.BF16)
        for n, w in (("u", d), ("w", d), ("qg", d), ("kd", d), ("attn", c))
    }
    e = rng.uniform(0.5, 1, (chunks, h, d)).astype(np.float32)
    s0 = rng.standard_normal((3, h, d, d)).astype(np.float32)
    arguments = {**small, "e": e, "cu": cu, "s0": s0, "o": s.empty("bf16", t, h, d), "s1": s.empty("f32", 3, h, d, d)}
    found = outputs(kernel("kda", "kda_recur"), arguments)
    for b in range(3):
        for head in range(h):
            state = s0[b, head].T
            for i in range(-(-(cu[b + 1] - cu[b]) // c)):
                rows = slice(cu[b] + i * c, min(cu[b] + i * c + c, cu[b + 1]))
                n = rows.stop - rows.start
                u, w, qg, kd = (to_f32(small[name][rows, head]) for name in ("u", "w", "qg", "kd"))
                attn = to_f32(small["attn"][rows, head])[:, :n]
                v = u - w @ state
                exact = qg @ state + attn @ v
                np.testing.assert_allclose(to_f32(found["o"][rows, head]), exact, rtol=0.05, atol=0.05)
                state = e[cu[b] // c + b + i, head][:, None] * state + kd.T @ v
            np.testing.assert_allclose(found["s1"][b, head].T, state, rtol=0.05, atol=0.05)
