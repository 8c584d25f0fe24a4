"""From an expanded kernel and launch values to the steps of every instance."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from cake.ir import expanded as x
from cake.ir.binding import bind
from cake.ir.dtypes import DTYPES, numpy_dtype
from cake.ir.evaluate import Scalar, compile_expr, evaluate
from cake.ir.expr import Expr
from cake.verify.search.operations import touches_of
from cake.verify.search.regions import Regions
from cake.verify.search.steps import Agent, Fault, Instance, Step, Undecided
from cake.verify.search.tiles import WARP

SMS = 132
STEPS = 400_000
_COMPILED: dict[int, tuple[Expr, Scalar]] = {}


def _scalar(e: Expr) -> Scalar:
    found = _COMPILED.get(id(e))
    if found is None or found[0] is not e:
        if len(_COMPILED) > 20_000:
            _COMPILED.clear()
        found = _COMPILED[id(e)] = (e, compile_expr(e))
    return found[1]


class Launch:
    """One launch: ``clusters`` of it, simulated together."""

    def __init__(
        self,
        kernel: x.Kernel,
        values: Mapping[str, Any],
        *,
        ctas: int = 1,
        clusters: tuple[int, ...] | None = None,
        all_warps: bool = False,
        halves: bool = False,
        lanes: bool = False,
    ) -> None:
        """``halves``: the elected lane of a warp is an agent, and its siblings one. ``lanes``: each lane is one."""
        self.kernel = kernel
        self.all_warps = all_warps
        self.split = tuple(map(str, range(WARP))) if lanes else ("L", "R") if halves else ("LR",)
        self.arrays = {t.name: np.asarray(values[t.name]) for t in kernel.tensors if t.name in values}
        env = self._values(values)
        env |= {"%sms": SMS, "%resident": 1, "%clusters": SMS // kernel.cluster}
        grid = int(evaluate(kernel.grid, env))
        if kernel.schedule == "persistent":
            grid = min(grid, ctas)
        env["%grid"] = grid
        self.grid = grid
        self.env = env
        self.shapes = {t.name: tuple(int(evaluate(e, env)) for e in t.shape) for t in kernel.tensors}
        self.clusters = tuple(range(min(grid, ctas))) if clusters is None else clusters
        self.cta_count = len(self.clusters) * kernel.cluster
        self.regions = Regions(kernel, self.shapes, self.cta_count)
        for b in kernel.buffers:
            last = b.offset + b.slot_bytes * (b.slots - 1) + b.instance_bytes * (b.instances - 1)
            size = int(self.regions.maps[b.name].addresses.max()) + self.regions.maps[b.name].item
            if last + size > kernel.shared_bytes:
                raise Fault(f"W701: `{b.name}` leaves the kernel's shared memory")
        self.counts = {b.name: (b.count, b.slots) for b in kernel.barriers}
        self.named = {b.name: b for b in kernel.named}
        self.rings = {f: r.name for r in kernel.rings for f in r.fields}
        self.instances: list[Instance] = []
        self.entries: list[Instance] = []
        self.total = 0
        for number, cluster in enumerate(self.clusters):
            for rank in range(kernel.cluster):
                self._cta(number, cluster, rank)
        self.agents = self._agents()
        self.regions.partition()

    def _values(self, values: Mapping[str, Any]) -> dict[str, Any]:
        kernel = self.kernel
        if all(t.name in values for t in kernel.tensors):
            shapes = {n: tuple(map(int, a.shape)) for n, a in self.arrays.items()}
            scalars = {n: v for n, v in values.items() if n not in shapes}
            return bind(kernel, shapes, {t.name: t.dtype for t in kernel.tensors}, scalars)
        return {**{n: v for n, v in kernel.constants.items() if not isinstance(v, str)}, **values}

    def _cta(self, number: int, cluster: int, rank: int) -> None:
        kernel = self.kernel
        cta = number * kernel.cluster + rank
        env = {**self.env, "%cta": cluster, "%rank": rank}
        entry = Instance(number, cta, rank, None, 0, 0, kernel.threads // 32)
        entry.steps = Walk(self, entry, dict(env)).run(kernel.entry)
        self.entries.append(entry)
        for role in kernel.roles:
            for index in range(role.instances):
                first = role.first_warp + index * role.warps
                instance = Instance(number, cta, rank, role, index, first, role.warps)
                values = dict(env)
                if role.var is not None:
                    values[role.var] = index
                instance.steps = Walk(self, instance, values).run(role.body)
                self.instances.append(instance)

    def groups(self, role: x.Role) -> list[tuple[int, ...]]:
        """The warps of an instance that go together: each alone, or two representatives (the first, and the others)."""
        if self.all_warps:
            return [(w,) for w in range(role.warps)]
        return [(0,), tuple(range(1, role.warps))] if role.warps > 1 else [(0,)]

    def places(self) -> list[tuple[x.Role | None, int, tuple[int, ...], tuple[int, ...]]]:
        """For each group of warps of a CTA: role, instance, numbers in the instance, numbers in the CTA."""
        found: list[tuple[x.Role | None, int, tuple[int, ...], tuple[int, ...]]] = []
        taken: set[int] = set()
        for role in self.kernel.roles:
            for index in range(role.instances):
                first = role.first_warp + index * role.warps
                for group in self.groups(role):
                    absolute = tuple(first + w for w in group)
                    taken |= set(absolute)
                    found.append((role, index, group, absolute))
        idle = tuple(w for w in range(self.kernel.threads // 32) if w not in taken)
        return [*found, (None, 0, idle, idle)] if idle else found

    def _agents(self) -> list[Agent]:
        found: list[Agent] = []
        for entry in self.entries:
            mine = {(i.role.name, i.index): i for i in self.instances if i.cta == entry.cta and i.role is not None}
            for role, index, group, absolute in self.places():
                instance = entry if role is None else mine[role.name, index]
                for half in self.split:
                    agent = Agent(len(found), entry.cluster, entry.cta, instance, group, half)
                    begin = Agent(0, 0, 0, entry, absolute, half)
                    for step in entry.steps:
                        if begin.executes(step):
                            agent.add(step, absolute)
                    if role is not None:
                        for step in instance.steps:
                            if agent.executes(step):
                                agent.add(step, group)
                    found.append(agent)
        return found


class Walk:
    """Interprets the control of one instance."""

    def __init__(self, launch: Launch, instance: Instance, env: dict[str, Any]) -> None:
        self.launch = launch
        self.instance = instance
        self.env = env
        role = instance.role
        self.cursors = {} if role is None else dict.fromkeys(role.cursors, 0)
        self.counted = dict(self.cursors)
        self.iteration: tuple[int, ...] = ()
        self.steps: list[Step] = []
        groups = [p[3] for p in launch.places()] if role is None else launch.groups(role)
        self.picks = [(group, half) for group in groups for half in launch.split]

    def run(self, body: tuple[x.Stmt, ...]) -> list[Step]:
        """The steps of a program."""
        role = self.instance.role
        name = role.name if role is not None else "entry"
        alone = self.instance.solo
        split = 0
        while alone and split < len(body) and isinstance(body[split], x.SetMaxNReg):
            split += 1
        self.block(body[:split], name, False, 0)
        self.block(body[split:], name, alone, split)
        return self.steps

    def block(self, body: tuple[x.Stmt, ...], path: str, alone: bool, first: int = 0) -> None:
        """A statement list."""
        for i, node in enumerate(body, first):
            here = f"{path}.{i}"
            if isinstance(node, x.For):
                outer = self.iteration
                for v in range(*(self.integer(e) for e in (node.lo, node.hi, node.step))):
                    self.env[node.var] = v
                    self.iteration = (*outer, v)
                    self.block(node.body, here, alone)
                self.iteration = outer
            elif isinstance(node, x.If):
                taken = self.scalar(node.cond)
                if taken is None:
                    raise Undecided("U901: control depends on data that the launch values do not give")
                self.block(node.then if taken else node.orelse, f"{here}.{'then' if taken else 'else'}", alone)
            elif isinstance(node, x.Let):
                self.env[node.name] = self.scalar(node.value)
            elif isinstance(node, x.Cursor):
                self.cursor(node)
            else:
                self.step(node, here, alone)

    def scalar(self, e: Expr) -> Any:
        """A uniform value; None where data decides it."""
        try:
            return _scalar(e)(self.env)
        except (KeyError, TypeError):
            return None
        except ZeroDivisionError:
            raise Fault("arithmetic: a division by zero") from None

    def integer(self, e: Expr) -> int:
        """A uniform integer that must be known."""
        found = self.scalar(e)
        if found is None:
            raise Undecided("U901: a bound or subscript depends on data that the launch values do not give")
        return int(found)

    def cursor(self, node: x.Cursor) -> None:
        """Move a cursor, or keep a position."""
        name = node.cursor
        if node.form == "advance":
            by = node.by if node.count is None else self.integer(node.count)
            self.cursors[name] += by
            self.counted[name] += by
        elif node.form == "copy":
            assert node.source is not None
            self.cursors[name] = self.cursors[node.source] - node.back
            self.counted[name] = self.counted[node.source] - node.back
        else:
            if self.counted[name] == 0:
                self.counted[name] = node.by
            self.cursors[name] = node.by

    def position(self, slot: x.Slot) -> int:
        """Where a slot reference points."""
        return slot.back if slot.cursor is None else self.cursors[slot.cursor] - slot.back

    def number(self, slot: x.Slot) -> int:
        """The same, counted since the kernel's start."""
        return slot.back if slot.cursor is None else self.counted[slot.cursor] - slot.back

    def barrier(self, name: str, slot: x.Slot, ranks: tuple[int, ...] | None) -> tuple[tuple[int, str, int], ...]:
        """The mbarriers that a reference names, of this CTA or of peers."""
        slots = self.launch.counts[name][1]
        base = self.instance.cta - self.instance.rank
        ctas = [self.instance.cta] if ranks is None else [base + r for r in ranks]
        return tuple((cta, name, self.position(slot) % slots) for cta in ctas)

    def step(self, node: x.Stmt, path: str, alone: bool) -> None:
        """One dynamic step."""
        self.launch.total += 1
        if self.launch.total > STEPS:
            raise Undecided(f"U906: more than {STEPS} dynamic steps")
        step = Step(node.kind, node.executor, alone, path, self.iteration, node)
        if isinstance(node, x.Wait | x.Arrive | x.Init):
            self._mbarrier(step, node)
        elif isinstance(node, x.Named):
            declared = self.launch.named[node.barrier]
            index = (
                self.integer(node.index)
                if node.index is not None
                else self.instance.index
                if declared.per_instance
                else 0
            )
            step.ident, step.count, step.form = declared.id + index, declared.threads, node.form
        elif isinstance(node, x.Cluster):
            step.form, step.sem = node.form, node.sem
        elif isinstance(node, x.Fence):
            step.what, step.scope = node.what, node.scope
        elif isinstance(node, x.Commit):
            step.queue = node.queue
        elif isinstance(node, x.GroupWait):
            step.queue, step.keep, step.read = node.queue, node.keep, node.read
        elif isinstance(node, x.SetMaxNReg):
            step.form, step.count = node.form, node.count
        elif isinstance(node, x.Op):
            touches_of(self, step, node)
        self.steps.append(step)

    def _mbarrier(self, step: Step, node: x.Wait | x.Arrive | x.Init) -> None:
        slots = self.launch.counts[node.barrier][1]
        if isinstance(node, x.Init):
            step.barriers = tuple((self.instance.cta, node.barrier, s) for s in range(slots))
            return
        position, number = self.position(node.slot), self.number(node.slot)
        same = position % slots == number % slots and (position // slots - number // slots) % 2 == 0
        step.sem, step.scope = node.sem, node.scope
        if isinstance(node, x.Wait):
            step.barriers = self.barrier(node.barrier, node.slot, None)
            step.phase = position // slots + node.ahead
            step.meant = number // slots + node.ahead if same else None
        else:
            step.barriers = self.barrier(node.barrier, node.slot, node.peers)
            step.form, step.weight, step.bytes = node.form, node.weight, node.bytes
            step.meant = number // slots if same else None

    # -- for operations -----------------------------------------------------------------------------------------------

    def load_scalar(self, node: x.Op) -> Any:
        """The value of a scalar that is loaded from a read-only input; None where it is not given."""
        ref = node.ref("src")
        tensor = self.launch.kernel.tensor(ref.base)
        where = node.expr("where")
        if where is not None and self.scalar(where) is False:
            other = node.expr("other")
            return self.scalar(other) if other is not None else 0
        if tensor is None or tensor.direction != "in" or ref.base not in self.launch.arrays:
            return None
        index = tuple(self.integer(s.at) for s in ref.subs if isinstance(s, x.Point))
        array = self.launch.arrays[ref.base]
        if len(index) != array.ndim or any(not 0 <= i < n for i, n in zip(index, array.shape, strict=True)):
            raise Fault("O503: a scalar is loaded from outside its tensor")
        value = array[index]
        return int(value) if DTYPES[tensor.dtype].kind == "int" else numpy_dtype(tensor.dtype).type(value)

    def box_bytes(self, sizes: tuple[int, ...], dtype: str) -> int:
        """Bytes of a box."""
        return prod(sizes) * DTYPES[dtype].bytes
