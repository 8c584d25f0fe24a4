"""What a stuck machine says: who waits for what, and the cycle that keeps it so.

Nothing can run and some agent has not ended. With real barrier state and operations that always finish, that is a
deadlock of this schedule (docs/verification.md H37). An agent waits for an object; whoever has not ended and may
still contribute to that object keeps it waiting; following those edges finds a cycle or a dead end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cake.diagnostics import CakeError, Diagnostic, Label
from cake.ir import expanded as x
from cake.machine.agents import Runner
from cake.machine.barriers import MBarrier
from cake.machine.faults import place
from cake.machine.program import Operation, statements
from cake.machine.synchronise import Cluster, GroupWait, Named, SetMaxNReg, Wait

if TYPE_CHECKING:
    from cake.machine.executor import Executor


@dataclass
class Blocked:
    """Some agents of one instance that wait at the same step: ``text`` says for what; ``roles`` may end it."""

    runners: list[Runner]
    text: str
    code: str
    roles: set[str]

    @property
    def first(self) -> Runner:
        """One of them."""
        return self.runners[0]

    @property
    def who(self) -> str:
        """``math[0]`` with its iteration, and which warps."""
        step = self.first.step
        assert step is not None
        names = ", ".join(r.agent.name for r in self.runners[:4]) + (", ..." if len(self.runners) > 4 else "")
        return f"{place(step)} ({names})"


def _mbarrier(barrier: MBarrier, phase: int) -> str:
    missing = []
    if barrier.pending:
        missing.append(f"{barrier.pending} of {barrier.count} arrivals")
    if barrier.tx > 0:
        missing.append(f"{barrier.tx} announced bytes")
    if barrier.tx < 0:
        missing.append(f"the announcement of {-barrier.tx} bytes that have landed")
    state = f"phase {barrier.phase} is in progress and lacks {' and '.join(missing) or 'nothing'}"
    return f"waits for {barrier.name} phase {phase}; {state}"


def contributors(kernel: x.Kernel, barrier: str) -> set[str]:
    """Roles whose program contributes to an mbarrier."""
    found = set()
    for role in kernel.roles:
        for node in statements(role.body):
            arrives = isinstance(node, x.Arrive) and node.barrier == barrier
            lands = (
                isinstance(node, x.Op)
                and isinstance(node.completion, x.ByBarrier)
                and node.completion.barrier == barrier
            )
            if arrives or lands:
                found.add(role.name)
    return found


def _users(kernel: x.Kernel, barrier: x.NamedBarrier) -> set[str]:
    found = {
        role.name
        for role in kernel.roles
        for node in statements(role.body)
        if isinstance(node, x.Named) and node.barrier == barrier.name
    }
    if any(isinstance(node, x.Named) and node.barrier == barrier.name for node in statements(kernel.entry)):
        found.add("entry")
    return found


def describe(m: Executor, runner: Runner) -> tuple[str, str, set[str]]:
    """What ``runner`` waits for, a code, and the roles that may end the wait."""
    step = runner.step
    assert step is not None
    code, inst = step.code, step.tape.instance
    if isinstance(code, Wait):
        slot, phase, _ = step.data
        barrier = inst.cta.barriers[code.node.barrier][slot]
        roles = contributors(m.kernel, code.node.barrier)
        return _mbarrier(barrier, phase), "P101", roles
    if isinstance(code, Named):
        here = inst.cta.named_barrier(step.data)
        text = f"waits at barrier `{code.declared.name}` (id {step.data}): {here.threads} of {here.count} threads came"
        return text, "P101", _users(m.kernel, code.declared)
    if isinstance(code, Cluster):
        barrier_ = inst.cta.cluster.barrier
        text = f"waits for the cluster barrier: {barrier_.arrived + barrier_.exited} of {barrier_.total} agents came"
        return text, "P101", {role.name for role in m.kernel.roles}
    if isinstance(code, GroupWait):
        return f"waits for its {code.node.queue} groups", "P101", set()
    if isinstance(code, SetMaxNReg) and inst.cta.pool is not None:
        pool = inst.cta.pool
        text = f"waits for registers: it wants {code.node.count} a thread, the pool has {pool.free} in all"
        return text, "W702", set()
    if isinstance(code, Operation) and code.node.op == "wait_until":
        where, value = step.data
        name = code.node.ref("flag").base
        index = ", ".join(str(int(np.asarray(i).reshape(-1)[0])) for i in where.index)
        now = int(np.asarray(m.memory[name][tuple(where.index)]).reshape(-1)[0])
        text = f"spins until `{name}[{index}]` is {int(value)}; it is {now}"
        return text, "P101", {role.name for role in m.kernel.roles}
    name = code.node.op if isinstance(code, Operation) else code.node.kind  # type: ignore[attr-defined]
    return f"waits for the other threads at {name}", "P101", {inst.role_name}


def blocked(m: Executor) -> list[Blocked]:
    """The waiting agents, grouped by step and reason."""
    groups: dict[tuple[int, str], Blocked] = {}
    for runner in m.runners:
        if runner.done or runner.step is None:
            continue
        text, code, roles = describe(m, runner)
        key = (id(runner.step), text)
        if key in groups:
            groups[key].runners.append(runner)
        else:
            groups[key] = Blocked([runner], text, code, roles)
    return list(groups.values())


def cycle(found: list[Blocked]) -> list[Blocked]:
    """A cycle of the wait-for graph, or the path to a dead end."""

    def next_of(b: Blocked) -> Blocked | None:
        same = [o for o in found if o is not b and o.first.agent.role in b.roles]
        near = [o for o in same if o.first.agent.cta == b.first.agent.cta]
        candidates = near or same
        return candidates[0] if candidates else None

    path: list[Blocked] = []
    current: Blocked | None = found[0]
    while current is not None and current not in path:
        path.append(current)
        current = next_of(current)
    return path[path.index(current) :] if current is not None else path


def report(m: Executor) -> None:
    """Raise the finding of a stuck machine."""
    found = blocked(m)
    found.sort(key=lambda b: b.code == "P101")
    ring = cycle(found)
    head = ring[0]
    witness = [f"{b.who} {b.text}" for b in ring]
    others = [f"{b.who} {b.text}" for b in found if b not in ring]
    ended = head.roles and not any(o.first.agent.role in head.roles for o in found)
    if ended:
        witness.append(f"nobody is left to end that wait: {', '.join(sorted(head.roles))} ended")
    if not head.roles:
        witness.append("nothing in the program can end that wait")
    step = head.first.step
    assert step is not None
    labels = tuple(
        Label(span=b.first.step.code.node.span, text=f"{b.first.agent.role} {b.text}")
        for b in ring
        if b is not head and b.first.step is not None
    )
    diagnostics = [
        Diagnostic(
            code=head.code,
            severity="error",
            message=f"deadlock: {place(step)} {head.text}",
            span=step.code.node.span,
            labels=labels,
            witness=(*witness, *others[:8]),
        )
    ]
    diagnostics += _unbalanced(m)
    raise CakeError(*diagnostics)


def _unbalanced(m: Executor) -> list[Diagnostic]:
    """Barriers all of whose arrivals have come but whose bytes do not balance."""
    found = []
    for cluster in m.clusters:
        for cta in cluster.ctas:
            for slots in cta.barriers.values():
                for barrier in slots:
                    if barrier.live and barrier.pending == 0 and barrier.tx != 0:
                        direction = "announced than landed" if barrier.tx > 0 else "landed than announced"
                        found.append(
                            Diagnostic(
                                code="P104",
                                severity="error",
                                message=f"{abs(barrier.tx)} more bytes {direction} in phase {barrier.phase} of "
                                f"{barrier.name}",
                                span=barrier.declared.span,
                                witness=tuple(f"{w} arrivals from {who}" for who, w in barrier.arrivals),
                            )
                        )
    return found[:4]
