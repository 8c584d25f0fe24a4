"""How many elements a thread moves at once: never more than one predicate holds for."""

from __future__ import annotations

from cake.codegen import emit
from cake.compiler import expand_text
from cake.ir import expanded as x
from cake.machine.program import statements

MASKED = """\
kernel k(x: bf16[M, N], out y: bf16[M, N]) for sm_90a, sm_80:
    where N % 8 == 0, N <= 1024

    tiles once:
        m in M

    role row: warps 4

    do row:
        v: bf16[1, 1024] spread(8)
        for t in tiles:
            v = load(x[t.m, cols(v)], where=cols(v) < N, other=0.0)
            u = f32(v)
            v = load(x[t.m, cols(v)], where={where}, other=0.0)
            store(y[t.m, cols(v)], v, where=cols(v) < N)
"""


def widths(where: str) -> tuple[list[object], str]:
    """The vectors of the loads and the store, and the code."""
    kernel = expand_text(MASKED.format(where=where), target="sm_90a")
    nodes = [n for n in statements(kernel.roles[0].body) if isinstance(n, x.Op) and n.op in ("load", "store")]
    tensors = [n for n in nodes if n.ref("src" if n.op == "load" else "dst").base in ("x", "y")]
    return [n.attrs["vector"] for n in tensors], emit(kernel)


def test_a_predicate_from_a_tile_is_asked_for_each_element() -> None:
    """One test for eight elements would give all of them what the first one deserves."""
    found, code = widths("u > 0.0 and cols(v) < N")
    assert found == [8, 1, 8]
    assert "if (u[0] > 0.0f" not in code


def test_a_predicate_from_one_value_is_not() -> None:
    found, _ = widths("sum(u, axis=1) > 0.0 and cols(v) < N")
    assert found == [8, 8, 8]
