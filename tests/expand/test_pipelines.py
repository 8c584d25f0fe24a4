"""Refusals of pipelines: endpoints, held counts, fills and their coverage, store rings, turns."""

from __future__ import annotations

from tests.expand.cases import Case, check, parametrised
from tests.expand.kernels import GOOD_LOAD, GOOD_MATH, GOOD_PRODUCT, expand, flat, found, product, ring, role

PLAIN = "pipeline p[2] load -> math:\n    a: bf16[64, 64] swizzle(128)"
SIGNAL = PLAIN + "\npipeline d[1] math -> load"
STORE = PLAIN + "\npipeline q[2] math -> store:\n    c: bf16[64, 64] swizzle(128)"
BOX = "a[t.m * 64 : t.m * 64 + 64, j * 64 : j * 64 + 64]"


def filled(body: str) -> str:
    """A loader whose fill has this body."""
    lines = "\n".join("        " + line for line in body.splitlines())
    return f"for j in range(kt):\n    with p.fill() as s:\n{lines}"


def stored(body: str) -> str:
    """A kernel with a store ring ``q`` next to ``p``; ``f`` is a fragment to store."""
    return ring(math=GOOD_MATH + "\n" + body, pipeline=STORE, more="", var="w")


LAST = "\nf = ldmatrix(b)"

CASES = [
    Case("wait by the producer", "T024", ring("s = p.wait()  # here"), ("`load`", "`p`", "math"), alone=False),
    Case(
        "fill by the consumer",
        "T024",
        ring(math="with p.fill() as s:  # here\n    pass"),
        ("`math`", "`p`", "load"),
        alone=False,
    ),
    Case("release by the producer", "T024", ring(GOOD_LOAD + "p.release()  # here"), ("`load`", "`p`")),
    Case("wait on a store ring", "T024", stored("s = q.wait()  # here"), ("`q`", "store engine"), alone=False),
    Case(
        "never filled",
        "P108",
        ring("pass").replace("pipeline p[2] load -> math:", "pipeline p[2] load -> math:  # here"),
        ("`load`", "`p`", "fill"),
    ),
    Case(
        "never taken",
        "P108",
        ring(math="pass").replace("pipeline p[2] load -> math:", "pipeline p[2] load -> math:  # here"),
        ("`math`", "`p`", "wait"),
    ),
    Case(
        "kept at the end of a tile",
        "P109",
        ring(math="for j in range(kt):\n    s = p.wait()\n    p.release(keep=1)").replace(
            "    do math:\n        for t in tiles:", "    do math:\n        for t in tiles:  # here"
        ),
        ("`p`", "`p.release()`"),
    ),
    Case("never released", "P109", ring(math="for j in range(kt):  # here\n    s = p.wait()"), ("`p`", "+1")),
    Case(
        "released twice",
        "P109",
        ring(math="for j in range(kt):\n    s = p.wait()\n    p.release()\n    p.release()  # here"),
        ("`p`",),
    ),
    Case("nothing held", "P109", ring(math="p.release()  # here\n" + GOOD_MATH), ("`p`",)),
    Case(
        "released on one path",
        "P109",
        ring(math="for j in range(kt):\n    s = p.wait()\n    if j > 2:  # here\n        p.release()"),
        ("`p`", "condition"),
    ),
    Case(
        "kept by an inner loop",
        "P109",
        ring(
            math="for i in range(3):\n    for j in range(kt):  # here\n        s = p.wait()\n        p.release(keep=1)\np.release()"
        ),
        ("around it",),
    ),
    Case(
        "loop that may not run",
        "P109",
        ring(math="for j in range(t.m):  # here\n    s = p.wait()\n    p.release(keep=1)\np.release()"),
        ("`p`",),
    ),
    Case(
        "all stages held",
        "P110",
        ring(math="s = p.wait()\nr = p.wait()\nq = p.wait()  # here\np.release()"),
        ("`math`", "`p`", "2"),
    ),
    Case(
        "one stage and a lag",
        "P110",
        ring(
            pipeline=PLAIN.replace("[2]", "[1]"),
            math="for j in range(kt):\n    s = p.wait()  # here\n    p.release(keep=1)\np.release()",
        ),
        ("`p`", "all 1"),
    ),
    Case(
        "used after its release",
        "D212",
        ring(math="for j in range(kt):\n    s = p.wait()\n    p.release()\n    f = ldmatrix(s.a)  # here"),
        ("`s`", "`p`"),
    ),
    Case(
        "used after a later release",
        "D212",
        ring(math="for j in range(kt):\n    s = p.wait()\n    r = s\n    p.release()\n    f = ldmatrix(r.a)  # here"),
        ("`r`", "`p`"),
    ),
    Case("unknown field", "T014", ring(filled(f"tma.load(s.b, {BOX})  # here")), ("`b`", "`a`")),
    Case("unknown method", "T014", ring(math=GOOD_MATH + "\np.drain()  # here"), ("`drain`", "`wait`")),
    Case("fill without a block", "T019", ring(GOOD_LOAD + "\np.fill()  # here"), ("p.fill() as s",)),
    Case(
        "nested fills", "T019", ring(filled(f"tma.load(s.a, {BOX})\nwith p.fill() as r:  # here\n    pass")), ("nest",)
    ),
    Case(
        "load outside a fill",
        "T019",
        ring(GOOD_LOAD + "\ntma.load(b, a[0 : 64, 0 : 64])  # here", more="smem b: bf16[64, 64] swizzle(128)"),
        ("`tma.load`", "fill"),
    ),
    Case(
        "conditional fill",
        "T099",
        ring("for j in range(kt):\n    with p.fill(when=j > 0) as s:  # here\n        pass"),
        ("conditional",),
    ),
    Case(
        "cp_async",
        "T099",
        ring(GOOD_LOAD + "\ncp_async(b, a[0 : 64, 0 : 64])  # here", more="smem b: bf16[64, 64] swizzle(128)"),
        ("`cp_async`",),
    ),
    Case(
        "never stored",
        "T019",
        stored("with q.fill() as o:  # here\n    stmatrix(o.c, f)")
        .replace("f)", "z)")
        .replace("    do math as w:", "    do math as w:\n        z: bf16[64, 64] frag = 0.0"),
        ("`q`", "tma.store"),
    ),
    Case(
        "filled twice before the store",
        "T019",
        ring(
            pipeline=STORE,
            math=GOOD_MATH
            + "\nwith q.fill() as o:\n    stmatrix(o.c, z)\nwith q.fill() as o:  # here\n    stmatrix(o.c, z)\ntma.store(c[t.m * 64 : t.m * 64 + 64, :], o.c)",
        ).replace("    do math:", "    do math:\n        z: bf16[64, 64] frag = 0.0"),
        ("`q`", "never stored"),
    ),
    Case(
        "stored inside its fill",
        "T019",
        ring(
            pipeline=STORE,
            math=GOOD_MATH
            + "\nwith q.fill() as o:\n    stmatrix(o.c, z)\n    tma.store(c[t.m * 64 : t.m * 64 + 64, :], o.c)  # here",
        ).replace("    do math:", "    do math:\n        z: bf16[64, 64] frag = 0.0"),
        ("dedent",),
    ),
    Case(
        "read while it is filled",
        "D201",
        ring(filled(f"tma.load(s.a, {BOX})\ntma.store(c[t.m * 64 : t.m * 64 + 64, :], s.a)  # here")),
        ("being filled",),
    ),
    Case(
        "half a field",
        "D209",
        ring(
            "for j in range(kt):\n    with p.fill() as s:  # here\n        tma.load(s.a[0 : 32], a[t.m * 64 : t.m * 64 + 32, j * 64 : j * 64 + 64])"
        ),
        ("`p`", "2048 of the 4096", "`a`"),
    ),
    Case(
        "a field left out",
        "D209",
        ring(
            "for j in range(kt):\n    with p.fill() as s:  # here\n        tma.load(s.a, " + BOX + ")",
            pipeline=PLAIN + "\n    h: f32[64]",
        ),
        ("`h`",),
    ),
    Case(
        "loaded under a condition",
        "D209",
        ring(filled(f"if t.m > 3:\n    tma.load(s.a, {BOX})  # here")),
        ("`p`", "condition"),
    ),
    Case(
        "loaded in a loop",
        "D209",
        ring(
            filled(
                "for i in range(2):\n    tma.load(s.a[32 * i : 32 * i + 32], a[t.m * 64 + 32 * i : t.m * 64 + 32 * i + 32, j * 64 : j * 64 + 64])  # here"
            )
        ),
        ("`p`", "unroll"),
    ),
    Case("written twice", "D203", ring(filled(f"tma.load(s.a, {BOX})\ntma.load(s.a, {BOX})  # here")), ("`a`",)),
    Case(
        "overlapping halves",
        "D203",
        ring(
            filled(
                "tma.load(s.a[0 : 40], a[t.m * 64 : t.m * 64 + 40, j * 64 : j * 64 + 64])\ntma.load(s.a[32 : 64], a[t.m * 64 + 32 : t.m * 64 + 64, j * 64 : j * 64 + 64])  # here"
            )
        ),
        ("`a`",),
    ),
    Case(
        "turn of another role",
        "T024",
        ring(more="turn x: math", load="with x:  # here\n    pass\n" + GOOD_LOAD),
        ("`x`", "`math`"),
    ),
    Case(
        "turn with a name",
        "T011",
        ring(more="turn x: math", math="with x as y:  # here\n    pass\n" + GOOD_MATH),
        ("turn",),
    ),
]


@parametrised(CASES)
def test_refused(case: Case) -> None:
    check(case)


def test_a_kept_handle_stays_usable() -> None:
    """``prev = s`` names a held stage; releases stay oldest first."""
    text = product(
        """
        s = p.wait()
        wgmma(acc, s.a, s.b.T, use_acc=False)
        wgmma.wait(acc)
        prev = s
        s = p.wait()
        wgmma(acc, s.a, s.b.T)
        wgmma(acc, prev.a, s.b.T)
        wgmma.wait(acc)
        p.release()
        """,
        load=PAIR,
    )
    assert found(text) == []
    body = flat(role(expand(text), "math").body)
    arrivals = [n.slot.back for n in body if n.kind == "arrive"]
    assert arrivals == [2, 1]


PAIR = """
for j in unroll(2):
    with p.fill() as s:
        tma.load(s.a, a[t.m * 64 : t.m * 64 + 64, j * 64 : j * 64 + 64])
        tma.load(s.b, b[t.n * 64 : t.n * 64 + 64, j * 64 : j * 64 + 64])
"""


def test_the_first_iteration_holds_fewer() -> None:
    """``release(keep=1)`` gives back nothing in the first iteration: the arrival is guarded, the tail one is not."""
    body = role(expand(product(GOOD_PRODUCT)), "math").body
    guarded = [n for n in flat(body) if n.kind == "if" and any(m.kind == "arrive" for m in n.then)]
    assert len(guarded) == 1 and guarded[0].reason == "first iteration holds fewer"
    arrivals = [n for n in flat(body) if n.kind == "arrive"]
    assert [(n.barrier, n.slot.back, n.executor) for n in arrivals] == [("p.empty", 2, "warp"), ("p.empty", 1, "warp")]


def test_counts_of_barriers() -> None:
    """full: one arrival a filling instance; empty: one a consuming warp, over all instances."""
    text = product(GOOD_PRODUCT, roles="role load: warps 4\nrole math[2]: warps 4")
    kernel = expand(text)
    assert {b.name: b.count for b in kernel.barriers} == {"p.full": 1, "p.empty": 8}
    announced = [n.bytes for n in flat(role(kernel, "load").body) if n.kind == "arrive"]
    assert announced == [2 * 64 * 64 * 2]


def test_a_signal_pipeline_has_no_bytes() -> None:
    """A pipeline without fields is a pure signal: every warp of the filling instance arrives."""
    text = ring(
        pipeline=SIGNAL,
        load="x = d.wait()\nd.release()\n" + GOOD_LOAD,
        math="with d.fill() as s:\n    pass\n" + GOOD_MATH,
    )
    assert found(text) == []
    kernel = expand(text)
    assert {b.name: (b.count, b.slots) for b in kernel.barriers} == {
        "p.full": (1, 2),
        "p.empty": (4, 2),
        "d.full": (4, 1),
        "d.empty": (1, 1),
    }


STORING = """
z = bf16(acc)
with q.fill() as o:
    stmatrix(o.c, z)
tma.store(c[t.m * 64 : t.m * 64 + 64, t.n * 64 : t.n * 64 + 64], o.c)
"""


def store_ring(instances: int = 2) -> str:
    """A product that stores through a ring of two slots."""
    head, _, _ = GOOD_PRODUCT.rpartition("store(")
    return product(
        head + STORING,
        params="a: bf16[M, K], b: bf16[N, K], out c: bf16[M, N]",
        roles=f"role load: warps 4\nrole math[{instances}]: warps 4",
        more="pipeline q[2] math -> store:\n    c: bf16[64, 64] swizzle(128)",
    )


def test_store_ring() -> None:
    """Acquire waits for the reads of the slot's last store and a barrier follows; leaving fences, then a barrier; the role
    drains at its end; each instance has slots of its own."""
    kernel = expand(store_ring())
    body = role(kernel, "math").body
    order = [
        (n.kind, getattr(n, "queue", getattr(n, "what", getattr(n, "op", ""))), getattr(n, "keep", None))
        for n in flat(body)
        if (n.kind, n.reason) != ("op", "broadcast")
        and (
            n.kind in ("named", "syncwarp")
            or getattr(n, "queue", "") == "bulk"
            or getattr(n, "what", "") == "async_shared"
            or getattr(n, "op", "") in ("stmatrix", "tma.store")
        )
    ]
    tail = order[-8:]
    assert [t[0] for t in tail] == ["gwait", "named", "op", "fence", "named", "op", "commit", "gwait"]
    assert tail[0][2] == 1 and tail[-1][2] == 0
    assert kernel.buffer("q.c").instances == 2 and kernel.buffer("q.c").slots == 2


def test_turns() -> None:
    """n ids for n instances; each enters at its own and passes to the next; the last gives the first pass."""
    text = product(
        GOOD_PRODUCT.replace("    wgmma(acc", "    with x:\n        wgmma(acc").replace(
            "\n    wgmma.wait(keep=1)", "\n    wgmma.wait(keep=1)"
        ),
        roles="role load: warps 4\nrole math[3]: warps 4",
        more="turn x: math",
        var="w",
    )
    assert found(text) == []
    kernel = expand(text)
    turn = next(b for b in kernel.named if b.name == "x")
    assert (turn.size, turn.threads) == (3, 256)
    named = [(n.form, n.reason) for n in flat(role(kernel, "math").body) if n.kind == "named" and n.barrier == "x"]
    assert named == [("arrive", "the turn's first pass"), ("sync", "enter the turn"), ("arrive", "pass the turn")]


def test_a_turn_of_one_instance_is_nothing() -> None:
    text = product(GOOD_PRODUCT.replace("    wgmma(acc", "    with x:\n        wgmma(acc"), more="turn x: math")
    assert all(b.name != "x" for b in expand(text).named)


def test_fill_by_stores_arrives_by_warp() -> None:
    """A fill by ordinary stores fences for the async proxy and arrives once a warp."""
    text = ring(
        "for j in range(kt):\n    with p.fill() as s:\n        stmatrix(s.a, z)".replace(
            "stmatrix(s.a, z)", "store(s.a[rows(z), cols(z)], z)"
        ),
        pipeline=PLAIN,
    ).replace("    do load:\n", "    do load:\n        z: bf16[64, 64] frag = 0.0\n")
    assert found(text) == []
    kernel = expand(text)
    assert {b.name: b.count for b in kernel.barriers} == {"p.full": 4, "p.empty": 4}
    kinds = [n.kind for n in flat(role(kernel, "load").body)]
    assert kinds[-6:-1] == ["op", "fence", "syncwarp", "arrive", "cursor"] or "fence" in kinds


def test_two_stages_kept() -> None:
    """A lag of two is written with the first iteration split off."""
    math = GOOD_PRODUCT.replace("range(kt):", "range(kt) split(1):").replace("keep=1", "keep=2")
    text = product(math, head="where N % 8 == 0, K > 64")
    assert found(text) == []
    arrivals = [n.slot.back for n in flat(role(expand(text), "math").body) if n.kind == "arrive"]
    assert arrivals == [3, 2, 1]
