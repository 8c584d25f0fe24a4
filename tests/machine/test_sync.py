"""Barriers, groups, registers and clusters, by small kernels; and what the machine says when they are misused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from cake import machine
from cake.diagnostics import CakeError
from cake.ir import expanded as x
from cake.ir.expr import Apply, Reg, Sym, integer
from tests.machine import small as s
from tests.machine.test_moves import run

ONE = s.tile("i32", 1, 1, s.UNIFORM)


def put(ref: x.Ref, value: Any) -> x.Op:
    """One thread stores a scalar."""
    return s.op("store", executor="one", dst=ref, value=value)


def get(name: str, ref: x.Ref) -> x.Op:
    """All threads load a scalar."""
    return s.op("load_scalar", dst=Sym(name=name), src=ref)


def role(name: str, first_warp: int, body: Sequence[Any], **more: Any) -> x.Role:
    """A role of one warp."""
    return x.Role.model_validate({"name": name, "first_warp": first_warp, "warps": 1, "body": tuple(body), **more})


def code(kernel: x.Kernel, arguments: dict[str, Any], seed: int = 0) -> str:
    """The code of the first finding."""
    with pytest.raises(CakeError) as caught:
        machine.run(kernel, arguments, seed=seed)
    return caught.value.diagnostics[0].code


C = {"c": s.empty("i32", 4)}
OUT = [s.tensor("c", "i32", 4, out=True)]


def turns(rounds: int, first: int = 0) -> x.Kernel:
    """Two roles take turns through two named barriers; each adds what the other left."""
    roles = []
    for me in (0, 1):
        mine, other = ("ab"[me], "ab"[1 - me])
        v = Sym(name=f"v{me}")
        body: list[x.Stmt] = []
        if me == first:
            body.append(x.Named(barrier=other, form="arrive"))
        body.append(
            x.For(
                var=f"i{me}",
                lo=integer(0),
                hi=integer(rounds),
                step=integer(1),
                body=(
                    x.Named(barrier=mine),
                    get(v.name, s.elements("t", 0)),
                    x.SyncWarp(),
                    put(s.elements("t", 0), Apply(op="+", args=(v, integer(1)), dtype="i32")),
                    x.SyncWarp(),
                    x.Named(barrier=other, form="arrive"),
                ),
            )
        )
        if me == 1 - first:
            body += [x.Named(barrier=mine), get("last", s.elements("t", 0)), put(s.elements("c", 0), Sym(name="last"))]
        roles.append(role(f"r{me}", me, body))
    return s.kernel(
        OUT,
        [],
        roles=roles,
        buffers=[s.buffer("t", "i32", 4)],
        named=tuple(x.NamedBarrier(name=n, id=2 + i, threads=64) for i, n in enumerate("ab")),
    )


def test_turns_through_named_barriers() -> None:
    kernel = turns(5)
    start = x.Op(op="store", executor="one", operands={"dst": s.elements("t", 0), "value": integer(100)})
    kernel = kernel.model_copy(update={"entry": (start, x.Named(barrier="cta"))})
    out = run(kernel, seeds=10, **C)["c"]
    assert out[0] == 110


def test_two_counts_on_one_id() -> None:
    roles = [role("p", 0, [x.Named(barrier="a")]), role("q", 1, [x.Named(barrier="b")])]
    named = (x.NamedBarrier(name="a", id=2, threads=64), x.NamedBarrier(name="b", id=2, threads=96))
    assert code(s.kernel(OUT, [], roles=roles, named=named), C) == "P114"


def test_named_barrier_that_nobody_completes() -> None:
    roles = [role("p", 0, [x.Named(barrier="a")]), role("q", 1, [])]
    kernel = s.kernel(OUT, [], roles=roles, named=(x.NamedBarrier(name="a", id=2, threads=64),))
    with pytest.raises(CakeError) as caught:
        machine.run(kernel, C)
    (found,) = caught.value.diagnostics
    assert found.code == "P101" and "32 of 64 threads came" in found.message


def test_parity_lets_an_early_wait_pass() -> None:
    """A wait for phase 1 of a fresh barrier returns at once: its parity is that of phase -1."""
    early = [x.Wait(barrier="b", slot=x.Slot(back=1)), put(s.elements("c", 0), integer(1))]
    kernel = s.kernel(OUT, early, warps=1, barriers={"b": (1, 1)})
    assert run(kernel, **C)["c"][0] == 1
    late = [x.Wait(barrier="b", slot=x.Slot(back=0)), put(s.elements("c", 0), integer(1))]
    assert code(s.kernel(OUT, late, warps=1, barriers={"b": (1, 1)}), C) == "P101"


def test_lapped_waits_miss_their_phase() -> None:
    """A slow waiter finds that two phases have passed and waits for ever: in some schedule only."""
    arrive = x.Arrive(executor="one", barrier="b")
    slow = [x.Wait(executor="one", barrier="b", slot=x.Slot(back=0))]
    kernel = s.kernel(OUT, [], roles=[role("p", 0, [arrive, arrive]), role("q", 1, slow)], barriers={"b": (1, 1)})
    outcomes = set()
    for seed in range(1, 30):
        try:
            machine.run(kernel, C, seed=seed)
            outcomes.add("passed")
        except CakeError as error:
            outcomes.add(error.diagnostics[0].code)
    assert outcomes == {"passed", "P101"}


def test_arrivals_of_all_lanes_count_threads() -> None:
    body = [x.Arrive(executor="lanes", barrier="b"), x.Wait(barrier="b"), put(s.elements("c", 0), integer(3))]
    assert run(s.kernel(OUT, body, warps=2, barriers={"b": (64, 1)}), **C)["c"][0] == 3


def test_second_initialisation() -> None:
    kernel = s.kernel(OUT, [x.Init(executor="one", barrier="b")], warps=1, barriers={"b": (1, 1)})
    assert code(kernel, C) == "P113"


def cluster_kernel(body: Sequence[Any], **more: Any) -> x.Kernel:
    tensors = [s.tensor("c", "i32", 2, out=True)]
    return s.kernel(tensors, body, warps=1, cluster=2, barriers={"b": (1, 1)}, **more)


D = {"c": s.empty("i32", 2)}


def test_remote_arrival() -> None:
    rank = Sym(name="%rank")
    body: list[x.Stmt] = [
        x.If(
            cond=s.test("==", rank, 0),
            then=(x.Arrive(executor="one", barrier="b", peers=(1,), scope="cluster"),),
            orelse=(x.Wait(barrier="b", scope="cluster"),),
        ),
        put(s.elements("c", rank), s.i32("+", rank, 5)),
        x.Cluster(),
    ]
    assert run(cluster_kernel(body), seeds=8, **D)["c"].tolist() == [5, 6]


def test_peer_shared_memory() -> None:
    rank = Sym(name="%rank")
    other = s.i32("-", 1, rank)
    remote = s.elements("t", 0).model_copy(update={"peer": other})
    body: list[x.Stmt] = [
        put(remote, s.i32("+", rank, 10)),
        x.Cluster(),
        get("v", s.elements("t", 0)),
        put(s.elements("c", rank), Sym(name="v")),
        x.Cluster(),
    ]
    kernel = cluster_kernel(body, buffers=[s.buffer("t", "i32", 4)])
    assert run(kernel, seeds=8, **D)["c"].tolist() == [11, 10]


def test_cluster_barrier_lets_exited_threads_count() -> None:
    rank = Sym(name="%rank")
    body: list[x.Stmt] = [
        x.If(cond=s.test("==", rank, 0), then=(x.Cluster(form="arrive"), x.Cluster(form="wait"))),
        put(s.elements("c", rank), integer(1)),
    ]
    assert run(cluster_kernel(body), seeds=8, **D)["c"].tolist() == [1, 1]


def test_cluster_barrier_alternates() -> None:
    assert code(cluster_kernel([x.Cluster(form="arrive"), x.Cluster(form="arrive")]), D) == "P116"
    assert code(cluster_kernel([x.Cluster(form="wait")]), D) == "P116"


def test_signals_between_clusters() -> None:
    """Cluster i waits for i - 1; the order is that of the grid, whatever the schedule."""
    cta = Sym(name="%cta")
    body: list[x.Stmt] = [
        s.op("wait_until", executor="one", flag=s.elements("f", 0), value=cta),
        x.Named(barrier="r"),
        get("v", s.elements("c", 0)),
        x.Named(barrier="r"),
        put(s.elements("c", 0), s.i32("+", s.i32("*", Sym(name="v"), 10), cta)),
        s.op("signal", executor="one", flag=s.elements("f", 0), value=s.i32("+", cta, 1)),
    ]
    tensors = [s.tensor("c", "i32", 1, inout=True), s.tensor("f", "i32", 1, inout=True)]
    kernel = s.kernel(tensors, body, warps=1, grid=4, schedule="persistent")
    zero = {"c": s.empty("i32", 1), "f": s.empty("i32", 1)}
    for seed in range(8):
        out = machine.run(kernel, zero, seed=seed, ctas=4).outputs
        assert out["c"][0] == 123 and out["f"][0] == 4
    body[0] = s.op("wait_until", executor="one", flag=s.elements("f", 0), value=integer(9))
    stuck = s.kernel(tensors, body, warps=1, grid=1)
    assert code(stuck, zero) == "P101"


@pytest.mark.parametrize("ctas", [1, 2, 3, 10])
def test_once_runs_every_position(ctas: int) -> None:
    kernel = s.kernel(
        [s.tensor("c", "i32", 7, out=True)], [put(s.elements("c", Sym(name="%cta")), Sym(name="%grid"))], grid=7
    )
    result = machine.run(kernel, {"c": s.empty("i32", 7)}, ctas=ctas)
    assert result.outputs["c"].tolist() == [7] * 7 and result.clusters == 7


def test_solo_roles_run_on_one_lane() -> None:
    recorder = machine.Recorder()
    body = [x.SetMaxNReg(form="dec", count=24), x.Arrive(executor="lanes", barrier="b"), x.SyncWarp(), x.Exit()]
    worker = [x.SetMaxNReg(form="inc", count=64), x.Wait(barrier="b"), x.Exit()]
    roles = [
        role("p", 0, body, warps=4, solo=True, registers=24),
        role("q", 4, worker, warps=4, registers=64),
    ]
    kernel = s.kernel(OUT, [], roles=roles, barriers={"b": (1, 1)}, launch_registers=48)
    machine.run(kernel, C, observer=recorder)
    contributions: Any = recorder.of("contrib")
    assert [c.by.name for c in contributions] == ["w0.0.L"]
    registers: Any = recorder.of("reg")
    assert len(registers) == 8 and {r.agent.warp for r in registers} == set(range(8))
    assert {r.amount for r in registers if r.form == "dec"} == {32 * 24}


def test_register_changes_in_the_wrong_direction() -> None:
    kernel = s.kernel(OUT, [x.SetMaxNReg(form="dec", count=80)], launch_registers=64)
    assert code(kernel, C) == "W703"


def test_bulk_groups_belong_to_a_thread() -> None:
    """Another thread's wait waits for nothing; keep counts groups, newest first."""
    t = s.tile("f32", 1, 32, s.spread(1))
    store = s.op(
        "tma.store",
        executor="one",
        completion=x.ByGroup(queue="bulk"),
        dst=s.box("o", (0, 32)),
        src=s.box("t", (0, 32)),
        _map="m",
    )
    body: list[x.Stmt] = [
        s.assign("v", t, s.f32(2.0)),
        s.store(s.elements("t", s.COL), Reg(name="v", dtype="f32"), t),
        x.Fence(what="async_shared"),
        x.Named(barrier="r"),
        store,
        x.Commit(executor="one", queue="bulk"),
        x.Commit(executor="one", queue="bulk"),
        x.GroupWait(executor="one", queue="bulk", keep=1),
        x.GroupWait(executor="lanes", queue="bulk", keep=0, read=True),
    ]
    kernel = s.kernel([s.tensor("o", "f32", 32, out=True)], body, tiles={"v": t}, buffers=[s.buffer("t", "f32", 32)])
    recorder = machine.Recorder()
    out = machine.run(kernel, {"o": s.empty("f32", 32)}, observer=recorder).outputs["o"]
    assert np.array_equal(out, np.full(32, 2, np.float32))
    waits: Any = recorder.of("gwait")
    first = next(w for w in waits if w.agent.name == "w0.0.L")
    assert not first.read and first.committed == 2 and len(first.ops) == 1
    done: Any = [e for e in recorder.of("done") if e.part == "writes"]  # type: ignore[attr-defined]
    assert done[0].id < first.id
    assert all(not w.ops and w.committed == 0 for w in waits if w.agent.name != "w0.0.L")


def test_values_do_not_depend_on_being_observed() -> None:
    kernel = turns(2)
    plain = machine.run(kernel, C, seed=3)
    watched = machine.run(kernel, C, seed=3, observer=machine.Recorder())
    assert plain.steps == watched.steps and plain.operations == watched.operations
