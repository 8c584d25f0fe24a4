"""CUDA of the synchronising statements, one function per row of ``cake.ir.ops.SYNC``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cake.codegen.context import RoleContext
from cake.codegen.elementwise import UNARY
from cake.codegen.errors import unsupported
from cake.ir import expanded as x

Emit = Callable[[RoleContext, Any], None]
SYNC: dict[str, Emit] = {}


def _sync(kind: str) -> Callable[[Emit], Emit]:
    def register(f: Emit) -> Emit:
        SYNC[kind] = f
        return f

    return register


@_sync("init")
def _init(role: RoleContext, node: x.Init) -> None:
    b = role.kernel.barrier(node.barrier)
    name = role.unit.constant(b.name, b.offset)
    role.need("smem")
    if b.slots == 1:
        role.line(f"barrier_init(smem + {name}, {b.count});")
    else:
        with role.unrolled(b.slots) as i:
            role.line(f"barrier_init(smem + {name} + 8 * {i}, {b.count});")


@_sync("wait")
def _wait(role: RoleContext, node: x.Wait) -> None:
    b = role.kernel.barrier(node.barrier)
    role.need("smem")
    suffix = {("acquire", "cta"): "", ("acquire", "cluster"): "_cluster", ("relaxed", "cta"): "_relaxed"}.get(
        (node.sem, node.scope)
    )
    if suffix is None or (suffix and not role.unit.hopper):
        raise unsupported(f"A {node.sem}.{node.scope} wait.", "wait with acquire semantics at cta scope", node.span)
    function = f"barrier_wait{suffix}" if role.unit.hopper else "barrier_test_wait"
    role.line(f"{function}({role.barrier(node.barrier, node.slot)}, {role.parity(node.slot, b.slots, node.ahead)});")


@_sync("arrive")
def _arrive(role: RoleContext, node: x.Arrive) -> None:
    role.need("smem")
    address = role.barrier(node.barrier, node.slot)
    order = {("release", "cta"): "", ("release", "cluster"): "_cluster", ("relaxed", "cta"): "_relaxed"}.get(
        (node.sem, node.scope)
    )
    if order is None or (order and not role.unit.hopper):
        raise unsupported(
            f"A {node.sem}.{node.scope} arrival.", "arrive with release semantics at cta scope", node.span
        )
    if node.peers is not None:
        if node.form != "arrive":
            raise unsupported("Announcing bytes on another CTA's barrier.", "announce on the own barrier", node.span)
        if order == "_cluster":  # one fence for all: a release of its own is a barrier of memory each time
            role.line("fence_cluster();")
            order = "_relaxed_cluster"
        for rank in node.peers:
            role.line(f"barrier_arrive_peer{order}({address}, {rank}, {node.weight});")
    elif node.form == "arrive":
        if node.weight != 1 and order:
            raise unsupported("Several arrivals with semantics of their own.", "arrive once", node.span)
        role.line(
            f"barrier_arrive{order}({address});" if node.weight == 1 else f"barrier_arrive_n({address}, {node.weight});"
        )
    elif node.form == "expect":  # publishes nothing, whatever it says
        role.line(f"barrier_expect({address}, {node.bytes});")
    else:
        if node.weight != 1 or order == "_cluster":
            raise unsupported("Several arrivals with announced bytes, or for a cluster.", "announce once", node.span)
        role.line(f"barrier_arrive_expect{order}({address}, {node.bytes});")


@_sync("named")
def _named(role: RoleContext, node: x.Named) -> None:
    b = next(n for n in role.kernel.named if n.name == node.barrier)
    name = role.unit.constant(f"{b.name}.barrier", b.id)
    text = name
    if node.index is not None:
        index = role.expr(node.index, UNARY)
        text = name if index == "0" else f"{name} + {index}"
    elif b.per_instance and role.instance is not None:
        text = f"{name} + {role.instance}"
    role.line(f"named_{node.form}({text}, {b.threads});")


@_sync("cluster")
def _cluster(role: RoleContext, node: x.Cluster) -> None:
    relaxed = "_relaxed" if node.sem == "relaxed" else ""
    if node.form != "wait":
        role.line(f"cluster_arrive{relaxed}();")
    if node.form != "arrive":
        role.line("cluster_wait();")


@_sync("syncwarp")
def _syncwarp(role: RoleContext, node: x.SyncWarp) -> None:
    role.line("__syncwarp();")


@_sync("fence")
def _fence(role: RoleContext, node: x.Fence) -> None:
    if node.what == "thread":
        role.line(
            {"cta": "__threadfence_block();", "gpu": "__threadfence();", "cluster": "fence_cluster();"}[node.scope]
        )
    elif role.unit.hopper:
        role.line(f"fence_{node.what}();")
    elif node.what == "wgmma":
        raise unsupported("A wgmma fence without wgmma.", "target sm_90a", node.span)


@_sync("commit")
def _commit(role: RoleContext, node: x.Commit) -> None:
    role.line(f"{node.queue}_commit();")


@_sync("gwait")
def _gwait(role: RoleContext, node: x.GroupWait) -> None:
    read = "_read" if node.read and node.queue == "bulk" else ""
    role.line(f"{node.queue}_wait{read}<{node.keep}>();")
    if node.queue == "wgmma":
        for name in node.ready:
            role.line(f"pin({role.storage(name).name});")


@_sync("setmaxnreg")
def _setmaxnreg(role: RoleContext, node: x.SetMaxNReg) -> None:
    role.line(f"setmaxnreg_{node.form}<{node.count}>();")


@_sync("exit")
def _exit(role: RoleContext, node: x.Exit) -> None:
    role.line("return;")
