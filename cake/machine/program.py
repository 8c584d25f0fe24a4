"""Compiling the statements of an expanded kernel to what tapes walk: once for each role, shared by all its
instances."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cake.ir import expanded as x
from cake.ir.evaluate import Scalar, compile_expr
from cake.ir.expr import Reg, registers, walk
from cake.ir.layout import TileType
from cake.ir.ops import OPS
from cake.machine import events as ev
from cake.machine.agents import Runner
from cake.machine.faults import DIVISOR, fail
from cake.machine.footprints import footprint
from cake.machine.meanings import MEANINGS, Meaning, Needed, Unit
from cake.machine.reach import exchanged, reach
from cake.machine.synchronise import SIMPLE, Named, Statement, meet, release
from cake.machine.tape import Action, Block, Branch, Code, Control, Loop, Step
from cake.machine.unset import Uses

if TYPE_CHECKING:
    from cake.machine.executor import Executor
    from cake.machine.instance import Instance

WIDTH = {"thread": 0, "warp": 1, "warpgroup": 4}
LIMITS = {"i32": 31, "i64": 63}


class Operation(Statement):
    """An operation of the op table. Agents of a collective meet first; then it acts for those that have come."""

    node: x.Op

    def __init__(self, node: x.Op, path: str, alone: bool, unit: Unit) -> None:
        super().__init__(node, path, alone)
        meaning: Meaning = MEANINGS[node.op](node, unit)
        self.meaning = meaning
        shuffles = node.op in ("reduce", "argreduce") and node.attrs.get("scope") == "warp"
        self.width = 1 if shuffles else WIDTH[meaning.row.width]
        if not self.by_lanes:
            self.width = 0
        self.halves = 2 if self.by_lanes else 1
        self.blocks = type(meaning).ready is not Meaning.ready
        self.tells = bool(meaning.register_reads) or type(meaning).effects is not Meaning.effects
        self.atomic = node.op in ("atomic", "draw", "signal", "wait_until")
        everyone = self.by_lanes or alone
        self.private = meaning.private and everyone and not self.width and not meaning.register_reads
        bases = {v.base for v in node.operands.values() if isinstance(v, x.Ref)}
        self.exchanges = self.by_lanes and not bases.isdisjoint(unit.exchanged)
        self.uses = Uses(node)

    def prepare(self, inst: Instance) -> Any:
        return self.meaning.prepare(inst)

    def produced(self, inst: Instance, step: Step) -> None:
        if inst.unset:
            tile = self.uses.step(inst, self.meaning.accumulates(step))
            m = inst.machine
            if tile is not None and m.observer is not None:
                m.emit(ev.Unset(m.event_id(), step.site, tile))

    def act(self, inst: Instance, step: Step) -> None:
        m, meaning = inst.machine, self.meaning
        (meaning.first if meaning.computed or m.values else meaning.place)(inst, step)
        if self.tells and m.observer is not None and step.result is not None:
            m.events += self.executions(inst)  # those that nobody asks for

    def run(self, m: Executor, runner: Runner, step: Step) -> bool:
        if runner.released:
            return True
        members = [runner]
        if self.width:
            if not meet(m, runner, step, self.width, self.node.op, "control"):
                return False
            assert step.meeting is not None
            members = step.meeting[runner.warp // self.width]
        inst, meaning = step.tape.instance, self.meaning
        if self.blocks and not meaning.ready(m, runner, step):
            return False
        if meaning.asynchronous:
            meaning.issue(m, inst, step, members)
        else:
            if step.came == 0:
                (meaning.first if meaning.computed or m.values else meaning.place)(inst, step)
                if m.moved is not None:
                    self._move(m, inst, step)
            step.came += len(members)
            if meaning.writes and (m.values or meaning.computed):
                self._write(inst, step, members)
            if self.tells and m.observer is not None:
                self._tell(m, inst, step, members)
        if self.width:
            release(m, runner, step, self.width)
        return True

    def _move(self, m: Executor, inst: Instance, step: Step) -> None:
        """Tell an observer that asks where the elements lie."""
        assert m.moved is not None
        found = footprint(self.meaning, inst, step)
        if found is not None:
            m.moved(step.site, found)

    def _write(self, inst: Instance, step: Step, members: list[Runner]) -> None:
        """Whole warps write their part."""
        if self.alone or self.rank == 2:
            self.meaning.warp(inst, step, None)
            return
        if step.halves is None:
            step.halves = {}
        for member in members:
            here = step.halves.get(member.warp, 0) + 1
            step.halves[member.warp] = here
            if here == self.halves:
                self.meaning.warp(inst, step, member.warp if self.by_lanes else None)

    def _reaching(self, effect: ev.Effect, inst: Instance, step: Step, warp: int) -> ev.Effect:
        """The effect with what each lane touches."""
        if not isinstance(effect.region, ev.SharedRegion):
            return effect
        touched = reach(self.meaning, inst, step, warp)
        return ev.Effect(effect.operand, effect.mode, effect.region, effect.proxy, effect.part, touched)

    def _tell(self, m: Executor, inst: Instance, step: Step, members: list[Runner]) -> None:
        meaning, site = self.meaning, step.site
        if step.told is None:
            step.told = {}
        word = meaning.word(step) if self.atomic else None
        for member in members:
            told = step.told.get(member.warp)
            if told is None:
                told = meaning.effects(inst, step, member.warp)
                if self.exchanges:
                    told = tuple(self._reaching(e, inst, step, member.warp) for e in told)
                if meaning.register_reads:
                    told = (*told, *meaning.register_effects(inst, member.warp))
                step.told[member.warp] = told
            for effect in told:
                m.emit(ev.Access(m.event_id(), site, member.agent, effect, self.atomic, word))


@dataclass
class RoleProgram:
    """A compiled role (or the entry): in a solo role the prologue is what all its warps run."""

    role: x.Role | None
    prologue: Block
    body: Block
    tiles: dict[str, TileType]


class Compiler:
    """Compiles the statements of one role."""

    def __init__(
        self,
        kernel: x.Kernel,
        role: x.Role | None,
        tracked: frozenset[str],
        needed: Needed | None,
        untold: frozenset[str],
    ) -> None:
        warps = kernel.threads // 32 if role is None else role.warps
        self.kernel = kernel
        self.role = role
        tiles = {} if role is None else dict(role.tiles)
        body = kernel.entry if role is None else () if role.solo else role.body
        self.unit = Unit(kernel, role, warps, tiles, tracked, needed, exchanged(kernel, statements(body)), untold)
        self.named = {b.name: b for b in kernel.named}

    def compile(self) -> RoleProgram:
        """The whole role."""
        role = self.role
        name = role.name if role is not None else "entry"
        body = role.body if role is not None else self.kernel.entry
        split = 0
        if role is not None and role.solo:
            while split < len(body) and isinstance(body[split], x.SetMaxNReg):
                split += 1
        prologue = self.block(body[:split], name, False, 0)
        rest = self.block(body[split:], name, role is not None and role.solo, split)
        return RoleProgram(role, prologue, rest, self.unit.tiles)

    def block(self, body: tuple[x.Stmt, ...], path: str, alone: bool, first: int = 0) -> Block:
        """A statement list."""
        return Block([self.statement(node, f"{path}.{i}", alone) for i, node in enumerate(body, first)])

    def statement(self, node: x.Stmt, path: str, alone: bool) -> Code | Control:
        """One statement."""
        if isinstance(node, x.Op):
            return Operation(node, path, alone, self.unit)
        if isinstance(node, x.For):
            lo, hi, step = (compile_expr(e) for e in (node.lo, node.hi, node.step))
            return Loop(node, lo, hi, step, self.block(node.body, path, alone))
        if isinstance(node, x.If):
            then, orelse = self.block(node.then, path + ".then", alone), self.block(node.orelse, path + ".else", alone)
            return Branch(compile_expr(node.cond), then, orelse)
        if isinstance(node, x.Let):
            return self.let(node)
        if isinstance(node, x.Cursor):
            return self.cursor(node)
        if isinstance(node, x.Named):
            index = compile_expr(node.index) if node.index is not None else None
            return Named(node, path, alone, self.named[node.barrier], index)
        return SIMPLE[type(node)](node, path, alone)

    def let(self, node: x.Let) -> Action:
        """A scalar variable takes a value; an integer must fit its type (on the device it would wrap silently)."""
        name, value = node.name, compile_expr(node.value)
        if node.dtype not in LIMITS:
            return Action(lambda inst: _set(inst.env, name, value))
        limit = 1 << LIMITS[node.dtype]

        def act(inst: Instance) -> None:
            try:
                result = value(inst.env)
            except ZeroDivisionError:
                fail("N807", f"the value of `{name}` divides by zero", node.span, help=DIVISOR)
            if not -limit <= result < limit:
                fail("N803", f"`{name}` = {result} does not fit {node.dtype}", node.span)
            inst.env[name] = result

        return Action(act)

    def cursor(self, node: x.Cursor) -> Action:
        """A cursor moves, or a handle keeps a position."""
        name, by, source, back = node.cursor, node.by, node.source, node.back
        count = None if node.count is None else compile_expr(node.count)

        def advance(inst: Instance) -> None:
            step = by if count is None else int(count(inst.env))
            inst.cursors[name] += step
            inst.counted[name] += step

        def copy(inst: Instance) -> None:
            assert source is not None
            inst.cursors[name] = inst.cursors[source] - back
            inst.counted[name] = inst.counted[source] - back

        def put(inst: Instance) -> None:
            if inst.counted[name] == 0:  # where it starts; later it is set back, and the count goes on
                inst.counted[name] = by
            inst.cursors[name] = by

        return Action({"advance": advance, "copy": copy, "set": put}[node.form], node)


def _set(env: dict[str, Any], name: str, value: Scalar) -> None:
    env[name] = value(env)


def statements(body: tuple[x.Stmt, ...]) -> list[x.Stmt]:
    """Every statement, outer ones first."""
    found: list[x.Stmt] = []
    for node in body:
        found.append(node)
        if isinstance(node, x.For):
            found += statements(node.body)
        elif isinstance(node, x.If):
            found += statements(node.then) + statements(node.orelse)
    return found


def tracked_tiles(kernel: x.Kernel) -> frozenset[str]:
    """Register tiles that some asynchronous operation reads or writes."""
    names: set[str] = set()
    for role in kernel.roles:
        for node in statements(role.body):
            if isinstance(node, x.Op) and node.completion is not None:
                for value in node.operands.values():
                    if not isinstance(value, x.Ref):
                        names |= {n.name for n in walk(value) if isinstance(n, Reg)}
    return frozenset(names)


def needed_values(kernel: x.Kernel) -> Needed | None:
    """What decides which elements are accessed: register tiles in masks and indices, scalars that are read, words that are
    waited for, and what they are computed from. None if such a value comes out of memory that something else than a store
    writes, so that nothing may be left out.

    A run that computes only these has the same events as one that computes everything: control and the operands of
    synchronisation are scalars (docs/verification.md 1.3, F-a).
    """
    written = {t.name for t in kernel.tensors if t.direction != "in"} | {b.name for b in kernel.buffers}
    sources: dict[str, set[str]] = {}
    loads: dict[str, str] = {}
    tiles: set[str] = set()
    memories: set[str] = set()
    writers: dict[str, list[x.Op]] = {}
    for role in kernel.roles:
        for node in statements(role.body):
            if isinstance(node, x.Op):
                seen = {"load_scalar": "src", "wait_until": "flag"}.get(node.op)
                if seen is not None and node.ref(seen).base in written:
                    memories.add(node.ref(seen).base)
                _flow(node, sources, loads, tiles)
                for base in _written(node):
                    writers.setdefault(base, []).append(node)
    open_tiles, open_memories = list(tiles), list(memories)
    while open_tiles or open_memories:
        if open_tiles:
            tile = open_tiles.pop()
            read, src = sources.get(tile, set()), loads.get(tile)
            if src in written and src not in memories:
                memories.add(src)
                open_memories.append(src)
        else:
            read = set()
            for node in writers.get(open_memories.pop(), ()):
                if node.op not in ALWAYS:
                    return None
                value = node.expr("value")
                read |= registers(value) if value is not None else set()
        open_tiles += read - tiles
        tiles |= read
    return Needed(frozenset(tiles), frozenset(memories))


ALWAYS = frozenset({"store", "stmatrix", "signal", "draw"})
"""Operations that write what is needed also in a run that leaves other values out."""


def _written(node: x.Op) -> list[str]:
    """Tensors and buffers that an operation writes."""
    modes = {e.operand: e.mode for e in OPS[node.op].effects}
    return [v.base for n, v in node.operands.items() if isinstance(v, x.Ref) and modes.get(n, "r") != "r"]


def _flow(node: x.Op, sources: dict[str, set[str]], loads: dict[str, str], needed: set[str]) -> None:
    read: set[str] = set()
    for name, value in node.operands.items():
        if isinstance(value, x.Ref):
            for sub in value.subs:
                if isinstance(sub, x.Elem):
                    needed |= registers(sub.index)
        elif name == "where":
            needed |= registers(value)
        elif name not in ("dst", "index"):
            read |= registers(value)
    src = node.operands.get("src")
    for name in ("dst", "index", "d"):
        target = node.operands.get(name)
        if isinstance(target, Reg):
            sources.setdefault(target.name, set()).update(read)
            if isinstance(src, x.Ref):
                loads[target.name] = src.base
            elif node.completion is not None:
                loads[target.name] = next((v.base for v in node.operands.values() if isinstance(v, x.Ref)), "")


def compile_kernel(
    kernel: x.Kernel, needed: Needed | None = None, *, inputs: bool = True
) -> tuple[RoleProgram, dict[str, RoleProgram]]:
    """The entry and the roles. ``needed``: the only values to compute (None: all); ``inputs``: an observer wants to be told of
    loads from inputs."""
    tracked = tracked_tiles(kernel)
    untold = frozenset() if inputs else frozenset(t.name for t in kernel.tensors if t.direction == "in")
    entry = Compiler(kernel, None, tracked, needed, untold).compile()
    return entry, {role.name: Compiler(kernel, role, tracked, needed, untold).compile() for role in kernel.roles}
