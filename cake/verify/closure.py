"""Theorem 3: explore the graph of abstract states at the heads of the walk over tiles until it closes.

Every node is a state (``state``), every edge a tile with some choice of counts and flags, and from every node the program
is also run to its end. Edges with large counts need not be run: where two cuts inside the loops of a tile have the same
state, the iterations between them repeat, and a tile with more of them ends as one with fewer does. That has to be so in
every execution of a loop that the tile comes to, each in one pair of cuts: a second loop over the same count has states of
its own. So for each node counts are raised until the tile that was run has such repetitions; every greater count is then
covered.

The claim covers order and visibility inside a CTA (conditions D0-D10 for barriers, shared memory and registers).
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cake.diagnostics import CakeError, Diagnostic
from cake.ir import expanded as x
from cake.ir.dtypes import numpy_dtype
from cake.machine.instance import Instance
from cake.machine.meanings import Needed
from cake.machine.order.reader import Order
from cake.machine.program import compile_kernel
from cake.machine.schedule import scheduler
from cake.verify.gates import Explorer, Gate, Place, gated
from cake.verify.rings import Rings
from cake.verify.shifts import Key, Shifts, Watched, skips
from cake.verify.skeleton import Count, Plan, Unfit
from cake.verify.state import Cut, State

Choice = tuple[tuple[str, Any], ...]
"""Values of counts and flags; flags that differ between instances have a tuple."""

EMPTY: Choice = ()
MAX_COUNT = 40
"""Counts beyond this are not tried."""
DRIFT = 400
"""States of one count after which cursors that skip stages are taken to drift apart: right ones come back together."""


@dataclass(eq=False)
class Node:
    """A state at the head of the walk. ``edges``: choices that lead to exactly the state of a node, ``covered``: those
    that lead to a state that a node covers; ``open``: choices to try; ``ended``: the program has been run to its end
    here (after each number of tiles that the last round may have). ``ahead``: cursors that are ahead of their rings (``shifts``)."""

    number: int
    cut: Cut
    edges: dict[Choice, Node] = field(default_factory=dict)
    covered: set[Choice] = field(default_factory=set)
    open: deque[Choice] = field(default_factory=deque)
    ended: set[int] = field(default_factory=set)
    ahead: dict[Key, int] = field(default_factory=dict)
    visited: bool = False


@dataclass
class Closed:
    """The outcome of an exploration: findings (none: the graph closed), its size, and the counts of the failing run.
    ``unset``: register tiles that some run of the skeleton reads before it sets them."""

    findings: list[Diagnostic]
    nodes: int
    edges: int
    runs: int
    steps: int
    failing: dict[str, int] = field(default_factory=dict)
    unset: frozenset[str] = frozenset()


def explore(plan: Plan, *, max_steps: int, seconds: float, profile: Any = "conservative") -> Closed:
    """Close the graph of ``plan``; Unfit if it does not close within the budget."""
    return _Exploration(plan, max_steps, seconds, profile).run()


class _Exploration:
    def __init__(self, plan: Plan, max_steps: int, seconds: float, profile: Any) -> None:
        self.plan = plan
        self.profile = profile
        self.tiled = any(isinstance(n, x.For) and n.role == "tiles" for r in plan.kernel.roles for n in r.body)
        if self.tiled and plan.outside:
            raise Unfit("a condition outside the walk over tiles is decided at run time")
        if len(plan.counts) > 1:
            raise Unfit("several trip counts vary independently of each other")
        self.count: Count | None = plan.counts[0] if plan.counts else None
        self.rings = Rings(plan.kernel)
        self.left = max_steps
        self.deadline = time.process_time() + seconds
        self.nodes: dict[bytes, list[Node]] = {}
        self.steps = self.runs = self.tried = self.closed = self.count_nodes = self.ended = 0
        self.launch = self.count is not None and self.count.launch and self.tiled
        self.outer: Choice = EMPTY
        self.walked: list[Choice | int] = []
        self.unset: set[str] = set()
        self.settled = True
        kernel = plan.kernel
        self.skips = self.count is not None and skips(kernel)
        self.programs = gated(compile_kernel(kernel, Needed(frozenset(), frozenset())), self.skips)
        self.memory = {t.name: np.zeros((1,) * len(t.shape), numpy_dtype(t.dtype)) for t in kernel.tensors}

    def run(self) -> Closed:
        """Explore."""
        if not self.tiled:
            return self._once()
        fixed = [f for f in self.plan.flags if f in self.plan.fixed]
        for flags in self._combinations(fixed):
            for q, ragged in self.sizes() if self.launch else [(0, False)]:
                self.outer = self.choice(flags, q, ragged) if self.launch else flags
                self.nodes, self.settled, self.count_nodes = {}, True, 0
                findings = self._graph()
                if findings:
                    return self._closed(findings)
                if self.launch and self.settled and not ragged:
                    break
            else:
                if self.launch:
                    raise Unfit(f"no repetition within {MAX_COUNT} iterations")
        return self._closed([])

    def _graph(self) -> list[Diagnostic]:
        """The graph for one choice of what all tiles of a launch share. Where the count is shared, ``settled`` says
        that in every tile two cuts in a row had the same state: then every greater count has the same graph."""
        root: Node | None = None
        while True:
            target = None if root is None else self._target(root)
            if root is not None and target is None:
                self.closed += self.count_nodes
                return []
            walk = _Walk(self, root, target)
            walk.outer = self.outer
            before = self.tried, self.ended
            findings = walk.run()
            if findings:
                return findings
            if before == (self.tried, self.ended):
                raise Unfit("two states that should be one behave differently")
            root = root or walk.root

    def _closed(self, findings: list[Diagnostic]) -> Closed:
        failing: dict[str, int] = {}
        for name, value in (pair for choice in self.walked if not isinstance(choice, int) for pair in choice):
            if self.count is not None and name == self.count.name:
                failing[name] = max(value, failing.get(name, 0))
        unset = frozenset(self.unset)
        return Closed(findings, self.closed, self.tried, self.runs, self.steps, failing if findings else {}, unset)

    def _once(self) -> Closed:
        """A kernel with one tile a CTA: every choice is a run."""
        for flags in self._combinations(list(self.plan.flags)):
            for q, ragged in self.sizes():
                walk = _Walk(self, None, None)
                walk.outer = self.choice(flags, q, ragged)
                findings = walk.run()
                self.tried += 1
                if findings:
                    return self._closed(findings)
                if walk.repeated and not ragged:
                    break
            else:
                if self.count is not None:
                    raise Unfit(f"no repetition within {MAX_COUNT} iterations")
        return self._closed([])

    # -- choices ------------------------------------------------------------------------------------------------------

    def _combinations(self, names: list[str]) -> list[Choice]:
        """All values of some flags."""
        sizes = [self.plan.flags[n] or 1 for n in names]
        if sum(sizes) > 6:
            return self._few_flags()
        values = [list(itertools.product((False, True), repeat=n)) for n in sizes]
        return [tuple(zip(names, combination, strict=True)) for combination in itertools.product(*values)]

    def tiles(self) -> list[Choice]:
        """What to try first at a new node: all flags of a tile, and the least count."""
        flags = self._combinations([f for f in self.plan.flags if f not in self.plan.fixed])
        if self.count is None or self.launch:
            return flags
        least = self.sizes()[: 2 if self.count.ragged else 1]
        return [self.choice(f, q, r) for f in flags for q, r in least]

    def _few_flags(self) -> list[Choice]:
        """Too many: instances that do not meet each other may be taken one at a time."""
        if self.plan.kernel.barriers or self.count is not None or len(self.plan.flags) > 1:
            raise Unfit("too many conditions vary independently of each other")
        (name, size), *_ = self.plan.flags.items()
        found = [tuple(i == j for j in range(size)) for i in range(size)]
        return [((name, v),) for v in (*found, (False,) * size, (True,) * size)]

    def sizes(self) -> list[tuple[int, bool]]:
        """Counts to try, ascending."""
        if self.count is None:
            return [(0, False)]
        ragged = (True, False) if self.count.ragged else (False,)
        granule, least = self.count.granule, self.count.least
        every = ((q, r) for q in range(least // granule, MAX_COUNT) for r in ragged)
        return [(q, r) for q, r in every if granule * q + r >= least]

    def choice(self, flags: Choice, q: int, ragged: bool) -> Choice:
        """One choice."""
        if self.count is None:
            return flags
        return (*flags, (self.count.name, self.count.granule * q + ragged))

    def values(self, choice: Choice, inst: Instance) -> dict[str, Any]:
        """What a choice means for an instance."""
        return {n: (v[inst.index if len(v) > 1 else 0] if isinstance(v, tuple) else v) for n, v in choice}

    # -- the graph ----------------------------------------------------------------------------------------------------

    def node(self, cut: Cut) -> tuple[Node, bool]:
        """The node of a state, or one that covers it; whether it is its own."""
        alike = self.nodes.setdefault(cut.structure, [])
        for node in alike:
            if node.cut.covers(cut):
                return node, cut.covers(node.cut)
        self.count_nodes += 1
        if self.skips and self.count_nodes > DRIFT:
            raise Unfit("cursors that skip stages drift apart")
        node = Node(self.count_nodes, cut)
        node.open.extend(self.tiles())
        alike.append(node)
        return node, True

    def tried_all_of(self, node: Node, choice: Choice, repeated: bool) -> None:
        """After a tile: the next greater count, unless greater ones repeat what has been run."""
        if self.count is None or repeated:
            return
        if self.launch:
            self.settled = False
            return
        *flags, (name, value) = choice
        value += self.count.granule
        if value // self.count.granule >= MAX_COUNT:
            raise Unfit(f"no repetition within {MAX_COUNT} iterations")
        node.open.append((*flags, (name, value)))

    def _target(self, root: Node) -> Node | None:
        """A node that needs a visit: the nearest with untried choices, else one where no run has ended."""
        order = [root]
        for node in order:
            order += [n for n in node.edges.values() if n not in order]
        return next((n for n in order if n.open), None) or next(
            (n for n in order if len(n.ended) < self.plan.round), None
        )

    def path(self, start: Node, target: Node) -> list[Choice] | None:
        """The choices that lead from one node to another."""
        ways: dict[Node, list[Choice]] = {start: []}
        queue = deque([start])
        while queue:
            node = queue.popleft()
            if node is target:
                return ways[node]
            for choice, following in node.edges.items():
                if following not in ways:
                    ways[following] = [*ways[node], choice]
                    queue.append(following)
        return None

    def nearest_open(self, start: Node) -> list[Choice] | None:
        """The way to the nearest node with untried choices."""
        seen, queue = {start}, deque([(start, [])])  # type: ignore[var-annotated]
        while queue:
            node, way = queue.popleft()
            if node.open:
                return way  # type: ignore[no-any-return]
            for choice, following in node.edges.items():
                if following not in seen:
                    seen.add(following)
                    queue.append((following, [*way, choice]))
        return None


class _Walk:
    """One run of the skeleton along the graph."""

    def __init__(self, exploration: _Exploration, root: Node | None, target: Node | None) -> None:
        self.e = exploration
        self.root = root
        self.goal = target
        self.way: list[Choice] = [] if root is None or target is None else exploration.path(root, target) or []
        self.at: Node | None = None
        self.fresh = False
        self.plan: list[Choice | int] = []
        self.outer: Choice = EMPTY
        self.last: tuple[dict[Place, int], dict[Key, int], Cut] | None = None
        self.covered: set[Place] = set()

    @property
    def repeated(self) -> bool:
        """Every execution of a loop since the tile began has an iteration that repeats, and every cursor moves as its ring."""
        astray = self.machine.shifts is not None and self.machine.shifts.astray
        return bool(self.covered) and self.machine.entered <= self.covered and not astray

    def run(self) -> list[Diagnostic]:
        e = self.e
        kernel = e.plan.kernel
        self.order = Order(e.profile, tensors=False, unset=False, forgetful=True)
        env = {**kernel.constants, "%sms": 1, "%resident": 1, "%grid": 1, "%clusters": 1}
        machine = Explorer(
            kernel,
            e.programs,
            e.memory,
            env,
            scheduler(0),
            self.order,
            values=False,
        )
        machine.cut, machine.choose, machine.round = self._cut, self._choose, e.plan.round
        if e.skips:
            assert e.count is not None
            machine.instances = Watched
            machine.shifts = Shifts(e.rings, e.count.name, e.count.granule)
        self.machine = machine
        machine.add_cluster(0, 0)
        if self.outer:
            for runner in machine.runners:
                for inst in (runner.instance, runner.place):
                    if inst is not None:
                        inst.env.update(e.values(self.outer, inst))
        e.runs += 1
        try:
            machine.run(max(1, e.left))
        except CakeError as error:
            self._account()
            if any(d.code == "U906" for d in error.diagnostics):
                raise Unfit(f"{e.steps} steps and {e.count_nodes} states did not close the graph") from None
            e.walked = [self.outer, *self.plan]
            self.order.finish(complete=False)
            return [*error.diagnostics, *self.order.findings]
        self._account()
        e.walked = [self.outer, *self.plan]
        last = self.plan[-1] if self.plan else 0
        self._settle()
        if self.at is not None and isinstance(last, int) and last not in self.at.ended:
            self.at.ended.add(last)
            e.ended += 1
        return self.order.findings

    def _account(self) -> None:
        self.e.unset |= self.order.registers.unset_tiles
        self.e.steps += self.machine.steps
        self.e.left -= self.machine.steps
        if time.process_time() > self.e.deadline:
            raise Unfit(f"{self.e.steps} steps and {self.e.count_nodes} states did not close the graph in time")

    def _settle(self) -> None:
        """Loops before the first tile, in the last round or after it say something about greater counts only if they repeat."""
        if self.e.count is not None and self.machine.entered and not self.repeated:
            self.e.settled = False

    def _state(self, ahead: Collection[Key] = ()) -> Cut | None:
        return State(self.machine, self.order, self.e.rings, self.e.plan.reach, self.e.plan.moduli, ahead).cut()

    def _cursors(self) -> dict[Key, int]:
        """Where all cursors are."""
        live = {id(r.instance): r.instance for r in self.machine.runners if r.instance is not None}
        return {(i.role_name, i.index, n): v for i in live.values() for n, v in i.cursors.items()}

    def _ahead(self) -> dict[Key, int]:
        """Cursors that are ahead of their rings, and how much."""
        shifts = self.machine.shifts
        found = {} if shifts is None else {key: shifts.ahead(*key) for key in self._cursors()}
        return {key: by for key, by in found.items() if by}

    def _cut(self, tiles: bool) -> None:
        if not tiles:
            if self.fresh or not self.e.tiled or self.e.skips or not self.plan or isinstance(self.plan[-1], int):
                self._inner()
            return
        state = self._state()
        if state is None:
            raise Unfit("an order that only the future decides")
        if time.process_time() > self.e.deadline:
            raise Unfit(
                f"{self.e.steps + self.machine.steps} steps and {self.e.count_nodes} states did not close it in time"
            )
        before, choice = self.at, self.plan[-1] if self.plan else 0
        node, own = self.e.node(state)
        ahead = self._ahead()
        if not node.visited:
            node.ahead, node.visited = ahead, True
        if node.ahead != ahead:
            self.e.settled = False
        if before is None:
            self._settle()
        if before is not None and not isinstance(choice, int) and choice not in (*before.edges, *before.covered):
            if own:
                before.edges[choice] = node
            else:
                before.covered.add(choice)
            self.e.tried += 1
            self.e.tried_all_of(before, choice, self.repeated)
        self.root = self.root or node
        self.at = node if own else None
        self._decide(self.at)

    def _decide(self, node: Node | None) -> None:
        """Where to go from here: along the way, then to what is open, then out. A state that another covers needs no
        visit (and shows nothing about the other)."""
        self.last, self.fresh = None, False
        self.covered, self.machine.entered = set(), set()
        choice: Choice | int = 0
        if node is None:
            self.way = []
        elif self.way:
            choice = self.way.pop(0)
        elif node is self.goal and not node.open and len(node.ended) < self.e.plan.round:
            choice = min(set(range(self.e.plan.round)) - node.ended)
        elif node.open:
            choice, self.fresh = node.open.popleft(), True
        elif way := self.e.nearest_open(node):
            choice, self.way = way[0], way[1:]
        self.plan.append(choice)

    def _choose(self, number: int, inst: Instance) -> tuple[dict[str, Any], int]:
        if number >= len(self.plan):
            raise Unfit("the roles cannot be brought to the head of the same tile together")
        choice = self.plan[number]
        return ({}, choice) if isinstance(choice, int) else (self.e.values(choice, inst), self.e.plan.round)

    def _inner(self) -> None:
        """A cut inside loops. Of those that are too far from the loops' ends for any guard to see them, the last two are
        compared: if they are alike and an iteration apart, greater counts only repeat what lies between them."""
        if self.e.count is None:
            return
        inside: dict[Place, int] = {}
        nearest = MAX_COUNT
        for runner in self.machine.runners:
            if runner.done or runner.step is None:
                continue
            code = runner.step.code
            if not isinstance(code, Gate) or code.tile:
                continue
            before, after, _ = runner.step.data
            nearest = min(nearest, after - self.e.plan.reach)
            if inside.setdefault(code.place(runner.step), before) != before:
                return
        if not inside or not 0 < nearest <= 2 or inside.keys() & self.covered:
            return
        state, cursors = self._state(self._ahead()), self._cursors()
        if state is None:
            return
        if self.last is not None:
            earlier, were, cut = self.last
            if {p: n + 1 for p, n in earlier.items()} == inside and cut.covers(state):
                self.covered |= inside.keys()
                if self.machine.shifts is not None:
                    self.machine.shifts.moved({key: at - were[key] for key, at in cursors.items()})
        self.last = inside, cursors, state
