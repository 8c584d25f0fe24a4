"""The cluster GEMM is ordered as it needs to be, over ragged shapes; each fault in what multicast derives is found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cake.compiler import expand_file, expand_text
from cake.expand.prune import flatten
from cake.ir import expanded as x
from cake.ir.expr import Apply, Expr, Sym, integer, substitute
from cake.machine.order import check
from tests.machine.edit import Change, edit, is_arrive, updated, with_count
from tests.machine.small import BF16

SOURCE = Path(__file__).parents[2] / "examples" / "gemm_cluster.cake"
KERNEL = expand_file(SOURCE, constants={"BN": 128})
RANK = Sym(name="%rank")


def arguments(m: int, n: int, k: int) -> dict[str, Any]:
    """Zeros: the order of events does not depend on the values."""
    return {"a": np.zeros((m, k), BF16), "b": np.zeros((n, k), BF16), "c": np.zeros((m, n), BF16)}


def codes(kernel: x.Kernel, m: int = 300, n: int = 264, k: int = 456, ctas: int = 1, seed: int = 0) -> list[str]:
    """The codes found, each once: one cluster walks 2 x 3 tiles of 8 slabs unless stated."""
    return list(dict.fromkeys(d.code for d in check(kernel, arguments(m, n, k), ctas=ctas, seed=seed)))


SHAPES = [(300, 264, 200), (40, 8, 8), (128, 128, 64), (640, 256, 72)]
"""An odd number of tiles along the clustered axis; less than one tile; a single slab; several tiles a cluster."""


@pytest.mark.parametrize("cluster", [2, 4])
@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
def test_safe(cluster: int, m: int, n: int, k: int) -> None:
    for stages in (3, 6):
        kernel = expand_file(SOURCE, constants={"BN": 128, "STAGES": stages, "CLUSTER": cluster})
        assert codes(kernel, m, n, k) == []


def test_safe_in_other_schedules_and_with_several_clusters() -> None:
    assert codes(KERNEL, 900, 264, 200, ctas=3) == []
    for seed in range(1, 6):
        assert codes(KERNEL, 300, 264, 200, seed=seed) == []


READING = """
kernel reading(a: bf16[K, 64], out c: bf16[M, 64]) for sm_90a:
    tiles persistent:
        m in cdiv(M, 64) cluster(2)

    role load: warps 1
    role math: warps 4

    pipeline p[2] load -> math:
        a: bf16[64, 64] swizzle(128)
        b: bf16[64, 64] swizzle(128)

    do load:
        for t in tiles:
            for j in range(cdiv(K, 64)):
                with p.fill() as s:
                    tma.load(s.a, a[j * 64 : j * 64 + 64, :], multicast=m)
                    tma.load(s.b, a[t.m * 64 : t.m * 64 + 64, :])

    do math:
        x: f32[64, 64] frag
        for t in tiles:
            x = 0.0
            for j in range(cdiv(K, 64)):
                s = p.wait()
                x = x + f32(ldmatrix(s.FIELD))
                p.release()
            r = t.m * 64 + rows(x)
            store(c[r, cols(x)], bf16(x), where=r < M)
"""


@pytest.mark.parametrize(("field", "scope", "narrow"), [("a", "cluster", ["D202"]), ("b", "cta", [])])
def test_ordinary_reads_of_what_peers_write(field: str, scope: str, narrow: list[str]) -> None:
    """A release must tell the peers that refill the field that reading it is over, which CTA scope does not. It does
    where only the CTA itself refills it."""
    kernel = expand_text(READING.replace("FIELD", field))
    scopes = {n.scope for r in kernel.roles for n in flatten(r.body) if isinstance(n, x.Arrive) and n.peers}
    assert scopes == {scope}
    given = {"a": np.zeros((300, 64), BF16), "c": np.zeros((150, 64), BF16)}
    assert check(kernel, given) == []
    cut = edit(kernel, lambda n: updated(n, scope="cta") if is_arrive(n, "p.empty") else n)
    assert [d.code for d in check(cut, given)] == narrow


# ---- faults ---------------------------------------------------------------------------------------------------------


def _release(**values: Any) -> x.Kernel:
    return edit(KERNEL, lambda n: updated(n, **values) if is_arrive(n, "ab.empty") else n)


def _entry(kind: type[x.Node]) -> x.Kernel:
    return updated(KERNEL, entry=tuple(n for n in KERNEL.entry if not isinstance(n, kind)))


def _copies(change: Change) -> x.Kernel:
    return edit(KERNEL, lambda n: change(n) if isinstance(n, x.Op) and n.attrs.get("multicast") else n)


def _mask(mask: int) -> x.Kernel:
    return _copies(lambda n: updated(n, attrs={"map": "b.map", "multicast": mask}))


def _at(rank: Expr, size: int, bytes: int) -> x.Kernel:
    """The copy starts at another rank's share, or has another size."""

    def change(node: x.Stmt) -> x.Stmt:
        assert isinstance(node, x.Op) and isinstance(node.completion, x.ByBarrier)
        operands = {}
        for name in ("dst", "src"):
            first, rest = node.ref(name).subs
            assert isinstance(first, x.Range)
            rows = x.Range(start=substitute(first.start, {"%rank": rank}), size=size)
            operands[name] = updated(node.ref(name), subs=(rows, rest))
        return updated(node, operands=operands, completion=updated(node.completion, bytes=bytes))

    return _copies(change)


def _own_share() -> x.Kernel:
    """Each CTA announces what it loads itself, not what its peers send."""
    return edit(KERNEL, lambda n: updated(n, bytes=n.bytes - 8192) if isinstance(n, x.Arrive) and n.bytes else n)


def _drop(which: Callable[[x.Stmt], bool]) -> x.Kernel:
    return edit(KERNEL, lambda n: None if which(n) else n)


def _uneven(node: x.Stmt) -> x.Stmt:
    """The second CTA leaves out the first tile."""
    if not (isinstance(node, x.For) and node.role == "tiles"):
        return node
    here = Apply(op=">=", args=(Sym(name="t.pos"), RANK), dtype="bool")
    return updated(node, body=(x.If(cond=here, then=node.body),))


FAULTS: dict[str, tuple[Callable[[], x.Kernel], str]] = {
    "release to its own CTA only": (lambda: _release(peers=None), "P101"),
    "release to its own CTA only, counted so": (lambda: with_count(_release(peers=None), "ab.empty", 8), "P102"),
    "release to rank 0 only": (lambda: _release(peers=(0,)), "P101"),
    "a release less counted": (lambda: with_count(KERNEL, "ab.empty", 15), "P103"),
    "no end barrier": (lambda: _drop(lambda n: isinstance(n, x.Cluster)), "P117"),
    "no start barrier": (lambda: _entry(x.Cluster), "P113"),
    "no fence of the initialisation": (lambda: _entry(x.Fence), "F308"),
    "no acquire": (lambda: _drop(lambda n: isinstance(n, x.Wait) and n.barrier == "ab.empty"), "P103"),
    "mask: only itself": (lambda: _mask(1), "P104"),
    "mask: only the other": (lambda: _mask(2), "P104"),
    "no mask": (lambda: _mask(0), "P104"),
    "announces its own share only": (_own_share, "P104"),
    "each sends the whole box": (lambda: _at(integer(0), 128, 16384), "P104"),
    "both send the same share": (lambda: _at(integer(0), 64, 8192), "D203"),
    "uneven tiles": (lambda: edit(KERNEL, _uneven), "P101"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_fault(name: str) -> None:
    build, expected = FAULTS[name]
    assert expected in codes(build())


def test_the_shares_may_be_dealt_otherwise() -> None:
    other = Apply(op="-", args=(integer(1), RANK), dtype="i32")
    assert codes(_at(other, 64, 8192)) == []
