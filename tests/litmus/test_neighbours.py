"""Conditions that the 37 programs do not reach, each by a small change of one of them, with its safe twin."""

from __future__ import annotations

import numpy as np

from cake.ir import expanded as x
from cake.ir.expr import Sym, integer
from cake.machine.order import check
from tests.litmus import build as b
from tests.litmus.build import CLUSTER, FENCE, R32, SYNCWARP, Smem, at, box, elements
from tests.litmus.catalogue import kernel
from tests.litmus.test_litmus import arguments
from tests.machine.edit import edit

PAIR = x.NamedBarrier(name="pair", id=1, threads=64)


def codes(k: x.Kernel, ctas: int = 1, **values: int) -> list[str]:
    """The codes found, each once, in order."""
    return list(dict.fromkeys(d.code for d in check(k, {**arguments(k), **values}, ctas=ctas)))


def without(k: x.Kernel, kind: type[x.Node], role: str | None = None) -> x.Kernel:
    """``k`` without the statements of one kind."""
    return edit(k, lambda node: None if isinstance(node, kind) else node, role)


# ---- data ------------------------------------------------------------------------------------------------------------


def _two_writers(synced: bool) -> x.Kernel:
    meet: tuple[x.Stmt, ...] = (b.sync("pair"),) if synced else ()
    first = b.role("p", b.write(elements("x"), 32), *meet)
    second = b.role("q", *meet, b.write(elements("x"), 32, 2.0))
    return b.kernel("writers", (first, second), smem={"x": Smem((1, 32))}, named=(PAIR,))


def test_two_writes_unordered() -> None:
    assert codes(_two_writers(False)) == ["D203"]
    assert codes(_two_writers(True)) == []


def test_two_warps_of_a_role_write_the_same_bytes() -> None:
    write = b.role("p", b.write(b.x.Ref(base="x", subs=elements("x").subs), 32, executor="warp"), warps=2)
    assert codes(b.kernel("sisters", (write,), smem={"x": Smem((1, 32))})) == ["D204"]


def test_reading_what_nothing_wrote() -> None:
    use = b.role("use", b.read(elements("x"), 32), tiles={"r": R32})
    assert codes(b.kernel("poison", (use,), smem={"x": Smem((1, 32))})) == ["D209"]


def test_elected_lane_writes_and_siblings_read() -> None:
    def build(*between: x.Stmt) -> x.Kernel:
        use = b.role("use", b.write(elements("y"), 1, executor="one"), *between, b.read_scalar(b.first("y"), "v"))
        return b.kernel("elected", (use,), smem={"y": Smem((1, 1))})

    assert codes(build()) == ["D205"]
    assert codes(build(SYNCWARP)) == []


def test_two_ctas_write_one_element() -> None:
    def build(row: b.Expr | int) -> x.Kernel:
        subs = (x.Point(at=integer(row) if isinstance(row, int) else row), x.Elem(index=b.Axis(axis="col")))
        write = b.role("p", b.write(x.Ref(base="out", subs=subs), 32))
        return b.kernel("grid", (write,), tensors={"out": ((2, 32), "f32", "out")}, grid=2)

    assert codes(build(0), ctas=2) == ["M401"]
    assert codes(build(Sym(name="%cta")), ctas=2) == []


def test_ordinary_store_then_tma_load_of_global_data() -> None:
    def build(*fence: x.Stmt) -> x.Kernel:
        use = b.role(
            "use",
            b.write(elements("data"), 32),
            *fence,
            SYNCWARP,
            b.expect("full", at(), 128),
            b.tma_load(box("x", (0, 1), (0, 32)), box("data", (0, 1), (0, 32)), "full", at(), 128),
            b.wait("full", at()),
            b.read(elements("x"), 32),
            tiles={"r": R32},
        )
        return b.kernel(
            "global",
            (use,),
            smem={"x": Smem((1, 32))},
            mbarriers={"full": (1, 1)},
            tensors={"data": ((1, 32), "f32", "inout")},
            boxes={"data": ((1, 32), 0)},
        )

    assert codes(build()) == ["F310"]
    assert codes(build(FENCE)) == ["F310"]
    assert codes(build(b.fence("async_global"))) == []


# ---- cp.async with an arrival -------------------------------------------------------------------------------------


def _triggered(count: int) -> x.Kernel:
    """Each thread's copies arrive on a barrier when they are complete (``.noinc``): 128 arrivals."""
    line = box("a", (0, 64), (0, 64))
    copy = b.cp_async(line, box("ga", (0, 64), (0, 64))).model_copy(
        update={"completion": x.ByBarrier(barrier="full", slot=at())}
    )
    tile = b.TileType(dtype="bf16", shape=(64, 64), layout=b.FRAG)
    use = b.role("use", copy, b.wait("full", at()), b.ldmatrix("v", line), warps=4, tiles={"v": tile})
    return b.kernel(
        "triggered",
        (use,),
        smem={"a": Smem((64, 64), "bf16", swizzle=128)},
        mbarriers={"full": (count, 1)},
        tensors={"ga": ((64, 64), "bf16", "in")},
        target="sm_80",
    )


def test_cp_async_arrivals() -> None:
    assert codes(_triggered(128)) == []
    assert codes(_triggered(129)) == ["P103", "P101"]
    assert codes(without(_triggered(128), x.Wait)) == ["D204", "D213"]


# ---- barriers and lifetimes -------------------------------------------------------------------------------------


def test_announcing_is_not_arriving() -> None:
    def only_expect(node: x.Stmt) -> x.Stmt:
        return node.model_copy(update={"form": "expect"}) if isinstance(node, x.Arrive) else node

    assert codes(edit(kernel("05_tma_load_wait_read"), only_expect)) == ["P103", "P101"]


def test_copy_before_its_announcement_is_legal() -> None:
    k = kernel("05_tma_load_wait_read")
    load = k.roles[0]
    announce, copy, end = load.body
    swapped = load.model_copy(update={"body": (copy, announce, end)})
    assert codes(k.model_copy(update={"roles": (swapped, k.roles[1])})) == []


def test_barrier_used_without_a_published_initialisation() -> None:
    k = kernel("05_tma_load_wait_read")
    assert codes(k.model_copy(update={"entry": k.entry[:-1]})) == ["P113"]


def test_remote_use_needs_the_init_fence() -> None:
    k = kernel("21_remote_write_cluster_scope")
    entry = tuple(n for n in k.entry if not isinstance(n, x.Fence))
    assert codes(k.model_copy(update={"entry": entry})) == ["F308"]


def test_peer_may_have_ended() -> None:
    assert codes(without(kernel("22_remote_release_cta_scope_multicast_refill"), x.Cluster)) == ["P117"]


def test_peer_may_not_have_started() -> None:
    """A remote write without the cluster barrier at the start."""
    write = b.when(b.test("==", b.RANK, 0), b.write(elements("x", peer=integer(1)), 32))
    use = b.role("use", write, CLUSTER)
    k = b.kernel("start", (use,), smem={"x": Smem((1, 32))}, cluster=2)
    assert codes(k) == []
    entry = (x.Named(barrier="cta"),)
    assert codes(k.model_copy(update={"entry": entry})) == ["D214"]


def test_relaxed_cluster_arrival_publishes_nothing() -> None:
    def build(sem: str) -> x.Kernel:
        use = b.role(
            "use",
            b.when(b.test("==", b.RANK, 0), b.write(elements("x", peer=integer(1)), 32)),
            x.Cluster.model_validate({"form": "arrive", "sem": sem}),
            x.Cluster(form="wait"),
            b.when(b.test("==", b.RANK, 1), b.read(elements("x"), 32)),
            tiles={"r": R32},
        )
        return b.kernel("relaxed", (use,), smem={"x": Smem((1, 32))}, cluster=2)

    assert codes(build("release_acquire")) == []
    assert codes(build("relaxed")) == ["F305"]


def test_fewer_threads_than_a_named_barrier_counts() -> None:
    short = x.NamedBarrier(name="pair", id=1, threads=96)
    k = _two_writers(True)
    assert codes(k.model_copy(update={"named": (k.named[0], short)})) == ["P101"]


def test_arriving_twice_at_a_named_barrier_without_a_way_back() -> None:
    """An arrival does not block: two generations of one id need an order between them."""

    def build(*back: x.Stmt) -> x.Kernel:
        answer: tuple[x.Stmt, ...] = (b.come("back"),) if back else ()
        p = b.role("p", b.come("pair"), *back, b.come("pair"))
        q = b.role("q", b.sync("pair"), *answer, b.sync("pair"))
        other = x.NamedBarrier(name="back", id=2, threads=64)
        return b.kernel("twice", (p, q), named=(PAIR, other))

    assert codes(build(b.sync("back"))) == []
    assert codes(build()) in (["P114"], ["P115"])


def test_profiles_have_the_same_codes_for_plain_races() -> None:
    k = _two_writers(False)
    found = check(k, {n: np.asarray(v) for n, v in arguments(k).items()}, profile="practice")
    assert [d.code for d in found] == ["D203"]
