"""An entry made ready to run: registers by number, arithmetic as closures, the rest as steps for the machine.

Arithmetic that decides neither control, nor an operand of a synchronising instruction, nor an address is dropped; what
is left of it is which registers it touches, since those of a wgmma in flight are not to be touched.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from cake.ptx.interpret.alu import LANES, Compute, Value, function, uniform, width
from cake.ptx.interpret.launch import SHARED
from cake.ptx.interpret.outcome import Undecided
from cake.ptx.reader import Function, Instruction

EFFECTS = frozenset(
    (
        *("mbarrier", "barrier", "bar", "fence", "membar", "cp", "wgmma", "setmaxnreg", "ldmatrix", "stmatrix"),
        *("red", "atom", "griddepcontrol", "ld", "st", "elect", "shfl", "vote", "match", "redux", "activemask", "mapa"),
        *("mma", "createpolicy", "prefetch", "call", "tcgen05", "multimem", "clusterlaunchcontrol", "discard"),
        *("applypriority", "nanosleep", "trap", "brx", "isspacep", "getctarank", "tensormap", "st_async", "suld"),
    )
)
"""First words of what a handler executes; all else is arithmetic."""

STRONG = ("relaxed", "acquire", "release", "acq_rel")
_SPECIAL = re.compile(r"%(tid|ntid|ctaid|nctaid|laneid|warpid|nwarpid|cluster|dynamic_smem|total_smem|lanemask|clock)")
_LITERAL = re.compile(r"-?(?:0[xX][0-9a-fA-F]+|\d+)U?$")
_FLOAT = re.compile(r"0[fFdD][0-9a-fA-F]+$")
_ADDRESS = re.compile(r"\[\s*([^+\]]+?)\s*(?:\+\s*(-?\d+))?\s*\]$")


@dataclass(frozen=True, slots=True)
class At:
    """An address: a register, a byte offset, and the coordinates of a box."""

    register: int
    offset: int = 0
    coordinates: tuple[int, ...] = ()


Operand = int | At | tuple[int | None, ...] | None
"""A register's number, an address, a vector, or ``_``."""


@dataclass(slots=True)
class Step:
    """One instruction. ``kind``: arithmetic, touch (arithmetic that was left out), branch, exit, effect. ``run`` of
    arithmetic; ``handler`` of effects with their operands; ``target`` of a branch. ``guard``: a register and the value
    that it must have. ``touches``: registers that a wgmma may have in flight. ``after``: the place of the next step."""

    kind: str
    at: int
    instruction: Instruction | None = None
    run: Compute | None = None
    handler: Any = None
    args: tuple[Operand, ...] = ()
    parts: tuple[str, ...] = ()
    guard: tuple[int, bool] | None = None
    target: int = 0
    touches: frozenset[str] = frozenset()
    sets: tuple[int, ...] = ()
    after: int = 0


@dataclass
class Program:
    """Steps in the order of the text. ``initial``: constants in their registers; ``special``: registers such as %tid.x;
    ``parameters``: the register that holds each parameter's address; ``live``: registers that matter somewhere;
    ``valued``: kinds of memory (see ``kept``) whose values do."""

    name: str
    steps: list[Step]
    initial: list[Value]
    special: dict[str, int]
    parameters: dict[int, int]
    files: dict[int, str]
    live: frozenset[int]
    valued: set[tuple[str, bool]]
    _joins: dict[int, tuple[int, tuple[int, ...]] | None] = field(default_factory=dict)
    _lists: dict[int, tuple[int, ...]] = field(default_factory=dict)
    _before: list[int] = field(default_factory=list)

    def widths(self, space: str) -> int:
        """Bytes of the smallest element access of a state space."""
        found = 8  # an mbarrier
        for s in self.steps:
            if s.kind != "effect":
                continue
            if s.parts[0] in ("ld", "st", "red", "atom") and _space(s.parts) == space:
                found = min(found, max(width(s.parts[-1]) // 8, 1))
            elif s.parts[0] in ("ldmatrix", "stmatrix") and space == "shared":
                found = min(found, 4)  # of a lane
        return found

    def live_at(self, at: int) -> tuple[int, ...]:
        """Registers whose values matter before the step at ``at``."""
        if not self._before:
            self._before = _liveness(self.steps, self.live)
        if at not in self._lists:
            bits = self._before[at]
            self._lists[at] = tuple(r for r in sorted(self.live) if bits >> r & 1)
        return self._lists[at]

    def join(self, at: int) -> tuple[int, tuple[int, ...]] | None:
        """Where both ways of the branch at ``at`` meet again if nothing but arithmetic lies between, and the registers
        set there."""
        if at not in self._joins:
            self._joins[at] = self._join(at)
        return self._joins[at]

    def _join(self, at: int) -> tuple[int, tuple[int, ...]] | None:
        ways = [self._straight(at + 1), self._straight(self.steps[at].target)]
        meet = next((n for n, _ in ways[0] if n in dict(ways[1])), None)
        if meet is None:
            return None
        registers: set[int] = set()
        for way in ways:
            for n, sets in way:
                if n == meet:
                    break
                registers |= set(sets)
        return meet, tuple(registers)

    def _straight(self, at: int) -> list[tuple[int, tuple[int, ...]]]:
        """Places reached by arithmetic alone, with what is set there, and the first that is something else. A branch
        whose ways meet again counts as its arithmetic."""
        out: dict[int, tuple[int, ...]] = {}
        while at not in out:
            s = self.steps[at]
            out[at] = s.sets if s.kind in ("arithmetic", "touch") else ()
            if s.kind == "branch" and s.guard is None:
                at = s.target
            elif s.kind in ("arithmetic", "touch"):
                at += 1
            elif s.kind == "branch" and (inner := self.join(at)) is not None:
                out[at], at = inner[1], inner[0]
            else:
                break
        return list(out.items())


def _space(parts: tuple[str, ...]) -> str:
    for p in parts:
        if p.startswith("shared"):
            return "shared"
        if p in ("param", "const", "local"):
            return p
    return "global"


def kept(s: Step) -> tuple[str, bool]:
    """The kind of memory of an access, for which values are kept: its space, and for global memory whether it is for
    synchronisation (strong); what one kind wrote the other does not find."""
    space = _space(s.parts)
    strong = s.parts[0] == "atom" or any(p in STRONG for p in s.parts[1:3])
    return space, strong and space == "global"


def split(text: str) -> list[str]:
    """Operands at the top level."""
    out, depth, last = [], 0, 0
    for i, ch in enumerate(text):
        if ch in "[{(":
            depth += 1
        elif ch in "]})":
            depth -= 1
        elif ch == "," and depth == 0:
            out.append(text[last:i].strip())
            last = i + 1
    rest = text[last:].strip()
    return [*out, rest] if rest else out


class _Decoder:
    """Numbers registers and constants, and makes steps."""

    def __init__(self, f: Function, handler: Callable[[str], Any]) -> None:
        self.f, self.handler = f, handler
        self.numbers: dict[str, int] = {}
        self.constants: dict[tuple[type, Value], int] = {}
        self.initial: list[Value] = []
        self.addresses = {p.name: i for i, p in enumerate(f.parameters)}
        self.parameters: dict[int, int] = {}
        self.accumulators: set[str] = set()

    def register(self, name: str) -> int:
        if name not in self.numbers:
            self.numbers[name] = len(self.initial)
            self.initial.append(None)
        return self.numbers[name]

    def constant(self, v: Value) -> int:
        key = (type(v), v)
        if key not in self.constants:
            self.constants[key] = len(self.initial)
            self.initial.append(v)
        return self.constants[key]

    def operand(self, text: str, bits: int = 32) -> int:
        """The register of a name or literal."""
        if _LITERAL.match(text):
            value = int(text.rstrip("U"), 0)
            return self.constant(bool(value) if bits == 1 else value & (1 << bits) - 1)
        if _FLOAT.match(text):
            return self.constant(None)
        if text == "shared_memory":
            return self.constant(SHARED)
        if text in self.addresses:
            number = self.addresses[text]
            found = self.register(f"address of parameter {number}")
            self.parameters[number] = found
            return found
        return self.register(text)

    def any(self, text: str) -> Operand:
        """An operand of an effect."""
        if text == "_":
            return None
        if text.startswith("{"):
            return tuple(None if t == "_" or t.startswith("%f") else self.operand(t) for t in split(text[1:-1]))
        if text.startswith("["):
            inner = split(text[1:-1])
            if len(inner) == 2 and inner[1].startswith("{"):
                coordinates = tuple(self.operand(t) for t in split(inner[1][1:-1]))
                return At(self.operand(inner[0], 64), 0, coordinates)
            found = _ADDRESS.match(text)
            if found is None:
                raise Undecided(f"the address {text}")
            return At(self.operand(found[1], 64), int(found[2] or 0))
        if "|" in text:
            return tuple(None if t == "_" else self.operand(t) for t in text.split("|"))
        return self.operand(text, 64)

    def arithmetic(self, i: Instruction) -> tuple[tuple[int, ...], tuple[int, ...], Compute]:
        """Registers set and read, and the closure."""
        ops = split(i.operands)
        bits = _operand_bits(i.opcode)
        if i.opcode.startswith("mov.") and any(o.startswith("{") for o in ops):
            return self._pack(ops, width(i.opcode.rsplit(".", 1)[1]))
        dst = self.register(ops[0].split("|")[0])
        more = tuple(self.register(t) for t in ops[0].split("|")[1:])
        kinds = [bits] * (len(ops) - 1)
        if i.opcode.startswith("selp."):
            kinds[-1] = 1
        elif i.opcode.startswith("mad.wide."):
            kinds[-1] = 2 * bits
        elif i.opcode.startswith("setp.") and len(ops) == 4:
            kinds[-1] = 1
        sources = tuple(self.operand(t, n) for t, n in zip(ops[1:], kinds, strict=True))
        f = function(i.opcode) if not more else None

        def unknown(regs: list[Value]) -> None:
            regs[dst] = None
            for m in more:
                regs[m] = None

        if f is None:
            return (dst, *more), sources, unknown
        compute = f
        if len(sources) == 1:
            (a,) = sources

            def one(regs: list[Value]) -> None:
                regs[dst] = compute(regs[a])

            return (dst,), sources, one
        if len(sources) == 2:
            a, b = sources

            def two(regs: list[Value]) -> None:
                regs[dst] = compute(regs[a], regs[b])

            return (dst,), sources, two

        def many(regs: list[Value]) -> None:
            regs[dst] = compute(*[regs[s] for s in sources])

        return (dst,), sources, many

    def _pack(self, ops: list[str], bits: int) -> tuple[tuple[int, ...], tuple[int, ...], Compute]:
        """mov between a register and a vector of its parts (9.7.9.1)."""
        left, right = ops
        parts = split((left if left.startswith("{") else right)[1:-1])
        part = bits // len(parts)
        if left.startswith("{"):
            source = self.operand(right, bits)
            outs = [None if t == "_" else self.register(t) for t in parts]

            def unpack(regs: list[Value]) -> None:
                v = regs[source]
                for n, out in enumerate(outs):
                    if out is not None:
                        regs[out] = v >> part * n & (1 << part) - 1 if type(v) is int else None

            return tuple(o for o in outs if o is not None), (source,), unpack
        dst = self.register(left)
        sources = tuple(self.operand(t, part) for t in parts)

        def pack(regs: list[Value]) -> None:
            values = [regs[s] for s in sources]
            known = all(type(v) is int for v in values)
            regs[dst] = sum(v << part * n for n, v in enumerate(values)) if known else None

        return (dst,), sources, pack


def _operand_bits(opcode: str) -> int:
    """Width of the literals of an instruction."""
    parts = opcode.split(".")
    return width(parts[-1])


def _registers(operand: Operand) -> Iterator[int]:
    if isinstance(operand, At):
        yield operand.register
        yield from operand.coordinates
    elif isinstance(operand, tuple):
        yield from (r for r in operand if r is not None)
    elif operand is not None:
        yield operand


def _guarded(run: Compute, sets: tuple[int, ...], guard: tuple[int, bool]) -> Compute:
    """Arithmetic under a predicate."""
    register, wanted = guard

    def go(regs: list[Value]) -> None:
        p = regs[register]
        if p is wanted:
            run(regs)
        elif p is not (not wanted):
            before = [regs[s] for s in sets]
            run(regs)
            for s, old in zip(sets, before, strict=True):
                regs[s] = _merged(p, wanted, regs[s], old)

    return go


def _merged(p: Value, wanted: bool, new: Value, old: Value) -> Value:
    if p is None:
        return new if new == old else None
    lane = lambda v, n: v[n] if type(v) is tuple else v  # noqa: E731
    return uniform(
        tuple((lane(new, n) if p[n] is wanted else lane(old, n)) if p[n] is not None else None for n in range(LANES))
    )


def decode(f: Function, handler: Callable[[str], Any]) -> Program:
    """``handler`` finds who executes an opcode; None: nobody does."""
    d = _Decoder(f, handler)
    flat: list[Instruction] = []
    starts: dict[int, int] = {}
    for n, block in enumerate(f.blocks):
        starts[n] = len(flat)
        flat += block.instructions
    labels = {label: starts[n] for label, n in f.labels.items()}
    for i in flat:
        if i.opcode.startswith("wgmma.mma_async"):
            d.accumulators |= set(re.findall(r"%\w+", i.operands[: i.operands.rindex("}")]))
    steps = [_step(d, n, i, labels) for n, i in enumerate(flat)]
    steps.append(Step("exit", len(steps)))
    live, valued = _drop_unneeded(steps)
    _link(steps)
    special = {name: n for name, n in d.numbers.items() if _SPECIAL.match(name)}
    return Program(f.name, steps, d.initial, special, d.parameters, f.files, frozenset(live), valued)


def _step(d: _Decoder, n: int, i: Instruction, labels: dict[str, int]) -> Step:
    base = i.opcode.split(".", 1)[0]
    guard = (d.register(i.guard[0]), not i.guard[1]) if i.guard is not None else None
    touches = frozenset(d.accumulators & set(re.findall(r"%\w+", i.operands))) if d.accumulators else frozenset()
    if base == "bra":
        return Step("branch", n, i, guard=guard, target=labels[i.operands.strip()])
    if base in ("ret", "exit"):
        return Step("exit", n, i, guard=guard)
    if base in EFFECTS:
        found = d.handler(i.opcode)
        if found is None:
            raise Undecided(f"the instruction {i.opcode}")
        args = tuple(d.any(t) for t in split(i.operands))
        return Step(
            "effect", n, i, handler=found, args=args, parts=tuple(i.opcode.split(".")), guard=guard, touches=touches
        )
    sets, reads, run = d.arithmetic(i)
    step = Step("arithmetic", n, i, run=run, guard=guard, touches=touches, sets=sets)
    if guard is not None:
        step.run, reads = _guarded(run, sets, guard), (*reads, guard[0])
    step.args = tuple(reads)
    return step


def _link(steps: list[Step]) -> None:
    """Runs of left-out arithmetic become one step, at the start and wherever a branch enters."""
    entered = {s.target for s in steps if s.kind == "branch"}
    end, touched = len(steps), frozenset[str]()
    for n in range(len(steps) - 1, -1, -1):
        s = steps[n]
        if s.kind != "touch":
            s.after, end, touched = n + 1, n, frozenset()
            continue
        touched |= s.touches
        s.after = end
        if n in entered or n == 0 or steps[n - 1].kind != "touch":
            s.touches = touched


def _liveness(steps: list[Step], live: frozenset[int]) -> list[int]:
    """For each step, as bits, the registers that are read from there on before they are set."""
    uses, sets = [], []
    for s in steps:
        u = 0
        read: Iterable[Operand] = () if s.kind == "touch" else s.args
        if s.kind == "effect":
            _, values, rest = s.handler.roles(s)
            read = (*values, *rest)
        for o in read:
            for r in _registers(o):
                u |= 1 << r if r in live else 0
        if s.guard is not None:
            u |= 1 << s.guard[0]
        plain = s.guard is None and s.kind in ("arithmetic", "effect")
        kills = sum(1 << r for r in set(s.sets)) if plain else 0
        uses.append(u)
        sets.append(kills)
    before = [0] * (len(steps) + 1)
    changed = True
    while changed:
        changed = False
        for n in range(len(steps) - 1, -1, -1):
            s = steps[n]
            after = before[s.target] if s.kind == "branch" else 0
            if (s.kind != "exit" and not (s.kind == "branch" and s.guard is None)) or (
                s.kind == "exit" and s.guard is not None
            ):
                after |= before[s.after]
            now = uses[n] | after & ~sets[n]
            if now != before[n]:
                before[n], changed = now, True
    return before


def _drop_unneeded(steps: list[Step]) -> tuple[set[int], set[tuple[str, bool]]]:
    """Leave out arithmetic whose results steer nothing; loaded values and, through them, stored ones may steer. The
    registers that are left, and the kinds of memory whose values matter."""
    makers: dict[int, list[Step]] = {}
    needed: set[int] = set()
    work: list[int] = []

    def need(register: int) -> None:
        if register not in needed:
            needed.add(register)
            work.append(register)

    stores: dict[tuple[str, bool], list[Step]] = {}
    valued: set[tuple[str, bool]] = set()
    for s in steps:
        for r in s.sets:
            makers.setdefault(r, []).append(s)
        if s.guard is not None and s.kind != "arithmetic":
            need(s.guard[0])
        if s.kind != "effect":
            continue
        results, values, rest = s.handler.roles(s)
        s.sets = tuple(r for o in results for r in _registers(o))
        for r in s.sets:
            makers.setdefault(r, []).append(s)
        for o in rest:
            for r in _registers(o):
                need(r)
        if values and s.parts[0] in ("st", "atom"):
            stores.setdefault(kept(s), []).append(s)
    while work:
        for s in makers.get(work.pop(), ()):
            if s.kind == "arithmetic":
                for o in s.args:
                    for r in _registers(o):
                        need(r)
                continue
            _, values, _ = s.handler.roles(s)
            feeding: list[Step] = []
            if s.parts[0] in ("ld", "atom"):
                valued.add(kept(s))
                feeding = stores.get(kept(s), [])
            for other in [s, *feeding]:
                for o in other.handler.roles(other)[1]:
                    for r in _registers(o):
                        need(r)
    for s in steps:
        if s.kind == "arithmetic" and not any(r in needed for r in s.sets):
            s.kind = "touch"
    return needed, valued
