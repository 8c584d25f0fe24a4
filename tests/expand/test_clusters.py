"""Clusters of more than one CTA: what multicast derives, and what is refused."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cake.compiler import expand_text
from cake.expand.prune import flatten
from cake.expand.show import show_kernel
from cake.expand.wellformed import problems
from cake.ir import expanded as x
from cake.ir.evaluate import evaluate
from cake.verify import verify
from tests.expand.cases import Case, check, parametrised
from tests.expand.compare import skeleton
from tests.expand.kernels import errors, ring
from tests.machine.edit import edit

GEMM = (
    (Path(__file__).parents[1] / "ir" / "examples" / "gemm.cake").read_text().replace("{1, 2} = 1", "{1, 2, 4, 8} = 1")
)

LOAD = """
for j in range(kt):
    with p.fill() as s:
        tma.load(s.a, a[j * 64 : j * 64 + 64, :], multicast=m)
"""
TILES = "tiles persistent:\n    m in cdiv(M, 64) cluster(2)\n    n in 3"


def gemm(cluster: int, **constants: Any) -> x.Kernel:
    return expand_text(GEMM, constants={"CLUSTER": cluster, **constants})


def shared(load: str = LOAD, math: str | None = None, tiles: str = TILES, **more: str) -> str:
    """A ring whose stages all CTAs along m fill together: the same 64 rows for each of them."""
    arguments = {"params": "a: bf16[K, 64], l: i32[M], out c: bf16[M, 64]", **more}
    return ring(load, **({"math": math} if math else {}), tiles=tiles, **arguments)


def nodes(kernel: x.Kernel, role: str) -> list[x.Stmt]:
    return flatten(next(r for r in kernel.roles if r.name == role).body)


# ---- what is derived ------------------------------------------------------------------------------------------------


def test_a_cluster_of_one_changes_nothing() -> None:
    plain = GEMM.replace(" cluster(CLUSTER)", "").replace(", multicast=m", "")
    assert skeleton(gemm(1)) == skeleton(expand_text(plain))
    without = gemm(1).model_dump(exclude={"roles": {"__all__": {"body"}}})
    assert without["cluster"] == 1 and "%clusters" not in str(without["grid"])


@pytest.mark.parametrize("cluster", [2, 4, 8])
def test_shares_bytes_and_counts(cluster: int) -> None:
    kernel = gemm(cluster)
    assert kernel.cluster == cluster
    a, b = (n for n in nodes(kernel, "load") if isinstance(n, x.Op))
    assert "multicast" not in a.attrs and b.attrs["multicast"] == (1 << cluster) - 1
    assert isinstance(b.completion, x.ByBarrier)
    assert b.completion.bytes == 256 * 64 * 2 // cluster
    for ref in (b.ref("dst"), b.ref("src")):
        rows = ref.subs[0]
        assert isinstance(rows, x.Range) and rows.size == 256 // cluster
        starts = [evaluate(rows.start, {"%rank": rank, "t.n0": 0}) for rank in range(cluster)]
        assert starts == [256 // cluster * rank for rank in range(cluster)]
    (announce,) = (n for n in nodes(kernel, "load") if isinstance(n, x.Arrive))
    assert announce.peers is None and announce.bytes == (128 + 256) * 64 * 2, "all that lands here, whoever sent it"
    releases = [n for n in nodes(kernel, "math") if isinstance(n, x.Arrive)]
    assert releases and all(n.peers == tuple(range(cluster)) and n.scope == "cta" for n in releases)
    assert kernel.barrier("ab.empty").count == 8 * cluster and kernel.barrier("ab.full").count == 1
    assert next(m for m in kernel.maps if m.tensor == "b").box == (256 // cluster, 64)


def test_barriers_of_the_cluster() -> None:
    """At the start after the fence; at the end of the role that signals peers, after its last store; none elsewhere."""
    kernel = gemm(2)
    assert [n.kind for n in kernel.entry[-2:]] == ["fence", "cluster"]
    assert all(n.name != "cta" for n in kernel.named)
    math = next(r for r in kernel.roles if r.name == "math")
    assert [n.kind for n in math.body[-3:]] == ["gwait", "cluster", "exit"]
    assert all(n.kind != "cluster" for n in nodes(kernel, "load"))


def test_only_rings_with_a_multicast_field_go_to_peers() -> None:
    text = GEMM.replace(", multicast=m", "")
    kernel = expand_text(text, constants={"CLUSTER": 2})
    assert kernel.cluster == 2 and kernel.barrier("ab.empty").count == 8
    assert all(n.peers is None for n in nodes(kernel, "math") if isinstance(n, x.Arrive))
    assert all(n.kind != "cluster" for r in kernel.roles for n in nodes(kernel, r.name))
    assert kernel.entry[-1].kind == "named"


def test_multicast_along_another_axis_is_a_plain_load() -> None:
    kernel = expand_text(GEMM.replace("multicast=m", "multicast=n"), constants={"CLUSTER": 2})
    assert all("multicast" not in n.attrs for n in nodes(kernel, "load") if isinstance(n, x.Op))


@pytest.mark.parametrize("schedule", ["once", "persistent"])
@pytest.mark.parametrize("group", [1, 3, 4])
@pytest.mark.parametrize("cluster", [2, 3])
@pytest.mark.parametrize("order", ["m n", "n m"])
def test_walk(schedule: str, group: int, cluster: int, order: str) -> None:
    """Every tile is met once; the CTAs of a cluster are neighbours along its axis."""
    axes = {"m": f"m in cdiv(M, 64) cluster({cluster}) grouped({group})", "n": "n in 3 grouped(2)"}
    text = "\n        ".join([f"tiles {schedule}:", *(axes[a] for a in order.split())])
    math = "x: f32[64, 64] frag = 0.0\nfor t in tiles:\n    r = t.m * 64 + rows(x)\n    x = f32(t.n) + x"
    math += "\n    store(c[r, cols(x)], x, where=r < M)"
    kernel = expand_text(
        f"kernel k(out c: f32[M, 64]) for sm_90a:\n    {text}\n    role math: warps 4\n    do math:\n        "
        + math.replace("\n", "\n        ")
        + "\n"
    )
    body = next(iter(kernel.roles)).body
    loop = [n for n in flatten(body) if isinstance(n, x.For)]
    lets = [
        n for n in (flatten(loop[0].body) if loop else flatten(body)) if isinstance(n, x.Let) and n.reason == "tiles"
    ]
    for tiles in (1, 2, 5, 7):
        seen = []
        env: dict[str, Any] = {"M": 64 * tiles}
        for position in range(int(evaluate(kernel.positions, env))):
            for rank in range(cluster):
                env |= {"%rank": rank, "%cta": position, "t.pos": position}
                for n in lets:
                    env[n.name] = int(evaluate(n.value, env))
                seen.append((env["t.m"], env["t.n"]))
        wide = -(-tiles // cluster) * cluster
        assert sorted(seen) == [(m, n) for m in range(wide) for n in range(3)]
        assert all(a[0] % cluster == i % cluster for i, a in enumerate(seen))


def test_grid_counts_clusters() -> None:
    kernel = gemm(2)
    env = {"M": 900, "N": 300, "%clusters": 66, "%sms": 132, "%resident": 1}
    assert evaluate(kernel.positions, env) == 8 and evaluate(kernel.grid, env) == 8
    assert evaluate(kernel.grid, {**env, "M": 100_000}) == 66


def narrowed(kind: type[x.Wait] | type[x.Arrive], node: x.Stmt) -> x.Stmt:
    """Of CTA scope, whatever it was."""
    return node.model_copy(update={"scope": "cta"}) if isinstance(node, kind) else node


def test_ordinary_reads_take_the_scope_of_the_cluster() -> None:
    """What a thread has read by ordinary loads is not known to a peer through a CTA-scope arrival."""
    kernel = expand_text(shared())
    load, math = nodes(kernel, "load"), nodes(kernel, "math")
    assert [n.scope for n in load if isinstance(n, x.Wait)] == ["cluster"]
    assert [n.scope for n in math if isinstance(n, x.Arrive)] == ["cluster"]
    assert [n.scope for n in math if isinstance(n, x.Wait)] == ["cta"]
    for kind in (x.Wait, x.Arrive):  # and it is no wider than needed
        assert "D202" in verify(edit(kernel, partial(narrowed, kind)), effort="quick").codes


def test_expand_says_why() -> None:
    text = show_kernel(gemm(2))
    for part in ("at ranks 0, 1", "multicast 3", "no CTA leaves while peers may still signal it", "at 2 CTAs"):
        assert part in text


def test_ranks_exist() -> None:
    """An expanded kernel written by hand may not name ranks that the cluster lacks."""
    assert problems(gemm(2)) == []
    found = problems(gemm(2).model_copy(update={"cluster": 1}))
    assert any("multicast mask 3" in text for text in found) and any("[0, 1]" in text for text in found)


# ---- what is refused, and what is not -------------------------------------------------------------------------------

PLAIN = "tma.load(s.a, a[j * 64 : j * 64 + 64, :])"
MATH_IF = (
    "for j in range(kt):\n    if {c}:  # here\n        s = p.wait()\n        f = ldmatrix(s.a)\n        p.release()"
)


@parametrised(
    [
        Case("too-many", "W706", shared(tiles="tiles once:\n    m in cdiv(M, 64) cluster(16)  # here"), ("at most 8",)),
        Case(
            "no-clusters",
            "W711",
            "kernel k(out c: f32[M]) for sm_80:\n    tiles once:\n        m in M cluster(2)  # here\n"
            "    role r: warps 1\n    do r:\n        for t in tiles:\n            if t.m < M:\n"
            "                store(c[t.m], 0.0)\n",
            ("sm_80",),
        ),
        Case("zero", "T008", shared(tiles="tiles once:\n    m in cdiv(M, 64) cluster(0)  # here"), ("at least 1",)),
        Case("where", "C604", shared(tiles=f"{TILES}\n    where m * 64 < M  # here"), ("`m`", "zeros")),
        Case(
            "where-of-a-definition",
            "C604",
            shared(tiles=f"{TILES}\n    m0 = m * 64\n    where m0 < M, m0 >= 0  # here"),
            ("`m`",),
        ),
        Case(
            "where-of-data",
            "C604",
            shared(tiles=f"{TILES}\n    len = load(l[min(m, M - 1)])\n    where len > 0  # here"),
            ("`m`",),
        ),
        Case(
            "source",
            "C606",
            shared(
                LOAD.replace(
                    "a[j * 64 : j * 64 + 64, :], multicast=m)", "a[t.m * 64 : t.m * 64 + 64, :], multicast=m)  # here"
                )
            ),
            ("source", "`m`"),
        ),
        Case(
            "loop",
            "C604",
            shared(
                LOAD.replace("range(kt):", "range(kt + t.m):  # here"),
                "for j in range(kt + t.m):\n    s = p.wait()\n    f = ldmatrix(s.a)\n    p.release()",
            ),
            ("loop", "`m`"),
        ),
        Case(
            "condition",
            "C604",
            shared(
                "for j in range(kt):\n    if j > t.m:  # here\n"
                + LOAD.split("\n", 2)[2].replace("    with", "        with").replace("        tma", "            tma")
            ),
            ("condition", "`m`"),
        ),
        Case(
            "shares",
            "W707",
            shared(tiles=TILES.replace("cluster(2)", "cluster(3)")).replace("multicast=m)", "multicast=m)  # here"),
            ("3 CTAs", "64 rows"),
        ),
        Case(
            "small-shares",
            "W707",
            shared(
                "with p.fill() as s:\n    tma.load(s.a, a[0 : 8, :], multicast=m)  # here",
                "s = p.wait()\np.release()",
                pipeline="pipeline p[2] load -> math:\n    a: bf16[8, 64] swizzle(128)",
            ),
            ("multiple of 8",),
        ),
        Case(
            "axis",
            "T003",
            shared(LOAD.replace("multicast=m", "multicast=q")).replace("multicast=q)", "multicast=q)  # here"),
            ("m, n",),
        ),
        Case(
            "element-store",
            "O503",
            "kernel k(out c: f32[M]) for sm_90a:\n    tiles once:\n        m in M cluster(2)\n"
            "    role r: warps 1\n    do r:\n        for t in tiles:\n            store(c[t.m], 0.0)  # here\n",
            ("where",),
        ),
    ]
)
def test_refused(case: Case) -> None:
    check(case)


@pytest.mark.parametrize(
    "text",
    [
        shared(tiles=f"{TILES}\n    where n < 2"),
        shared(tiles=f"{TILES}\n    where m // 2 < M"),  # the same for both values of a cluster
        shared(tiles=f"{TILES}\n    pair = m // 2\n    len = load(l[min(pair, M - 1)])\n    where len > 0"),
        shared(
            LOAD.replace("range(kt)", "range(kt + t.m // 2)"),
            "for j in range(kt + t.m // 2):\n    s = p.wait()\n    f = ldmatrix(s.a)\n    p.release()",
        ),
        shared(
            LOAD.replace(", multicast=m", "").replace("range(kt)", "range(kt + t.m)"),
            "for j in range(kt + t.m):\n    s = p.wait()\n    f = ldmatrix(s.a)\n    p.release()",
        ),
        "kernel k(out c: f32[M]) for sm_90a:\n    tiles once:\n        m in M cluster(2)\n    where M % 2 == 0\n"
        "    role r: warps 1\n    do r:\n        for t in tiles:\n            store(c[t.m], 0.0)\n",
    ],
    ids=["other-axis", "same-in-a-cluster", "same-load", "same-trips", "not-shared", "divisible"],
)
def test_not_refused(text: str) -> None:
    assert errors(text) == []
