"""From PTX blocks to the reduced program: integer instructions become functions, synchronising ones events."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from cake.ptx import values as v
from cake.ptx.events import FAMILIES, event_of
from cake.ptx.flow import Event, Node, Operand, Program, Set
from cake.ptx.reader import Function, Instruction, PtxError
from cake.ptx.values import Value

_NUMBER = re.compile(r"-?(?:0[xX][0-9a-fA-F]+|\d+)U?")
_NO_RESULT = frozenset({"nanosleep"})
"""Instructions whose first operand is read (9.7.20.1)."""
_TYPE = re.compile(r"\.([usb])(8|16|32|64)\b")


def split(text: str) -> list[str]:
    """Operands, at commas outside brackets and braces."""
    if "{" not in text and "[" not in text:
        return [p.strip() for p in text.split(",")] if text else []
    out, depth, start = [], 0, 0
    for i, c in enumerate(text):
        if c in "[{":
            depth += 1
        elif c in "]}":
            depth -= 1
        elif c == "," and depth == 0:
            out.append(text[start:i].strip())
            start = i + 1
    out.append(text[start:].strip())
    return out


def thread_inputs(warp: int, elected: bool, elects: bool) -> dict[str, Value]:
    """Registers at the start of a thread of ``warp``. ``elected``: the lane that elect.sync picks, always the same
    one for the same mask; where there is no such instruction (``elects`` False), lane 0."""
    if elects:
        return {"%tid.x": v.Lanes(warp), "elected": elected}
    if elected:
        return {"%tid.x": 32 * warp, "%laneid": 0, "elected": True}
    return {"%tid.x": v.Lanes(warp, v.Least(1)), "%laneid": v.Least(1), "elected": False}


class Lowering:
    """One entry, block by block."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.nodes: list[Node] = []
        self.inputs = {p.name: f"parameter {i}" for i, p in enumerate(function.parameters) if not p.bytes}
        aggregates = [p.name for p in function.parameters if p.bytes]
        self.names: dict[str, Value] = {name: f"map {i}" for i, name in enumerate(aggregates)}

    def program(self) -> Program:
        """The whole entry."""
        first: list[int] = []
        ends: list[tuple[Node, str | None, int]] = []
        for b, block in enumerate(self.function.blocks):
            first.append(len(self.nodes))
            self._start()
            target: str | None = None
            for instruction in block.instructions:
                base = instruction.opcode.split(".", 1)[0]
                if base == "bra":
                    target = instruction.operands
                    if instruction.guard is not None:
                        self.nodes[-1].predicate = instruction.guard[0]
                        self.nodes[-1].other = -2 if instruction.guard[1] else -1
                elif base in ("ret", "exit", "trap"):
                    self._leave(instruction, base)
                else:
                    try:
                        self._instruction(instruction, base)
                    except (ValueError, IndexError, AssertionError) as e:
                        what = f"line {instruction.line} is not understood: {instruction.opcode} ({e})"
                        raise PtxError(what) from e
            ends.append((self.nodes[-1], target, b + 1))
        first.append(len(self.nodes))
        self.nodes.append(Node([Event(("end of code",))]))
        for node, target, following in ends:
            if node.then == -1:  # the thread has ended here
                node.then = None
                continue
            if target is None:
                node.then = first[following]
                continue
            if target not in self.function.labels:
                raise PtxError(f"a branch to {target}, which is not a label")
            there, here = first[self.function.labels[target]], first[following]
            if node.predicate is None:
                node.then = there
            elif node.other == -1:
                node.then, node.other = there, here
            else:
                node.then, node.other = here, there
        self._prune()
        return Program(self.nodes)

    def _prune(self) -> None:
        """Drop what is said of registers of which nothing is ever known."""
        steps = [s for node in self.nodes for s in node.steps if isinstance(s, Set)]
        known = {s.dst for s in steps if s.function is not v.unknown}
        for node in self.nodes:
            node.steps = [s for s in node.steps if isinstance(s, Event) or s.dst in known]

    def _start(self) -> Node:
        self.nodes.append(Node())
        return self.nodes[-1]

    def _leave(self, instruction: Instruction, base: str) -> None:
        event = Event(("exit",) if base != "trap" else ("trap",), where=instruction)
        if instruction.guard is None:
            self.nodes[-1].steps.append(event)
            self.nodes[-1].then = -1
            return
        self._guarded(instruction, event, leaves=True)

    def _guarded(self, instruction: Instruction, event: Event, leaves: bool = False) -> None:
        """An event under a predicate: a block of its own, with a branch around it."""
        assert instruction.guard is not None
        name, negated = instruction.guard
        at = len(self.nodes)
        head = self.nodes[-1]
        head.predicate, head.then, head.other = name, at, at + 1
        if negated:
            head.then, head.other = at + 1, at
        inner = self._start()
        inner.steps.append(event)
        inner.then = None if leaves else at + 1
        self._start()

    def _instruction(self, i: Instruction, base: str) -> None:
        if base in FAMILIES or (base in ("ld", "st") and (".acquire" in i.opcode or ".release" in i.opcode)):
            if base in ("ld", "shfl"):
                self._kill(split(i.operands)[0])
            event = event_of(i, split, self._operand)
            if event is None:
                return
            if i.guard is not None:
                self._guarded(i, event)
            else:
                self.nodes[-1].steps.append(event)
            return
        if i.operands.startswith("[") or base in _NO_RESULT:
            return
        ops = split(i.operands)
        if not ops or (ops[0][:1] not in "%{_" and "$" not in ops[0]):
            return
        made = self._function(i.opcode, base, ops)
        if made is None:
            self._kill(ops[0])
            return
        dst, function, args, step, compares = made
        if i.guard is not None:
            name, negated = i.guard
            self._add(f"{dst}'", function, args, False, compares)
            new, old = (f"{dst}'", dst) if not negated else (dst, f"{dst}'")
            self._add(dst, v.select, (new, old, name), False, False)
            return
        self._add(dst, function, args, step, compares)

    def _add(self, dst: str, f: v.Function, args: tuple[Operand, ...], step: bool, compares: bool) -> None:
        self.nodes[-1].steps.append(Set(dst, f, args, step, compares))

    def _kill(self, dst: str) -> None:
        """Registers of which nothing is known from here on."""
        for name in re.findall(r"[%\w$.]+", dst):
            if name != "_":
                self._add(name, v.unknown, (), False, False)

    def _operand(self, text: str) -> Operand:
        """A register, a literal, or the address of a variable (through a register that holds it)."""
        text = text.strip()
        if _NUMBER.fullmatch(text):
            return int(text.rstrip("U"), 0)
        if text.startswith("["):
            inner, _, offset = text[1:-1].partition("+")
            base = self._operand(inner)
            if not offset:
                return base
            name = f"{inner}+{offset}"
            self._add(name, v.add(64), (base, int(offset, 0)), False, False)
            return name
        if text.startswith("%") or "$" in text:
            return text
        value = self.names.get(text, 0 if text in ("shared_memory",) else None)
        name = f"&{text}"
        self._add(name, lambda value=value: value, (), False, False)
        return name

    def _function(
        self, opcode: str, base: str, ops: list[str]
    ) -> tuple[str, v.Function, tuple[Operand, ...], bool, bool] | None:
        """What an integer instruction computes; None where nothing is known of it."""
        found = _TYPE.findall(opcode)
        if base == "elect":
            return ops[0].partition("|")[2], v.same, ("elected",), False, False
        if base == "shfl":
            if ".idx." not in opcode:
                return None
            dst, _, valid = ops[0].partition("|")
            if valid:
                self._kill(valid)
            return dst, _uniform, (self._operand(ops[1]),), False, False
        if base == "ld":
            return self._load(opcode, ops)
        if "pred" in opcode.split("."):
            if base in ("and", "or", "xor", "not"):
                return ops[0], v.logical(base), tuple(self._operand(o) for o in ops[1:]), False, False
            return (ops[0], v.same, (self._operand(ops[1]),), False, False) if base == "mov" else None
        if base == "cvta":
            return ops[0], v.same, (self._operand(ops[1]),), True, False
        if not found or "|" in ops[0] or "{" in ops[0]:
            return None
        kind, bits = found[0][0], int(found[0][1])
        parts = opcode.split(".")
        simple: dict[str, v.Function] = {
            "mov": v.same, "add": v.add(bits), "sub": v.sub(bits), "shl": v.shl(bits),
            "shr": v.shr(bits, kind == "s"), "and": v.bitwise("and", bits), "or": v.bitwise("or", bits),
            "xor": v.bitwise("xor", bits), "not": v.bitwise("not", bits), "selp": v.select,
        }  # fmt: skip
        f: v.Function
        if base in simple and len(parts) == 2:
            f = simple[base]
        elif base == "mul" and "hi" in parts:
            f = v.mul_high(bits, kind == "s")
        elif base in ("mul", "mad") and "hi" not in parts:
            width = 2 * bits if "wide" in parts else bits
            f = v.mul(width) if base == "mul" else v.mad(width)
            if base == "mul" and "wide" in parts and kind == "u":
                f = v.mul_wide(bits)
        elif base in ("div", "rem", "min", "max") and kind != "b" and len(parts) == 2:
            f = {"div": v.divide, "rem": v.remainder, "min": v.low, "max": v.high}[base]
            f = f if kind == "s" else _nonnegative(f)
        elif base == "neg":
            f = v.mul(bits)
            ops = [*ops, "-1"]
        elif base == "cvt" and len(found) == 2:
            f = v.convert(bits, int(found[1][1]), found[1][0] == "s")
        elif base == "setp" and len(parts) == 3:
            f = v.compare(parts[1], bits if kind == "u" else 0)
        elif base == "mapa":
            f = lambda a, rank: v.Peer(rank, a)  # noqa: E731
        else:
            return None
        args = tuple(self._operand(o) for o in ops[1:])
        return ops[0], f, args, base in ("mov", "add", "sub", "cvt"), base == "setp"

    def _load(self, opcode: str, ops: list[str]) -> tuple[str, v.Function, tuple[Operand, ...], bool, bool] | None:
        """A launch parameter, or a word of global memory (known in sampled launches only)."""
        parts = opcode.split(".")
        if "param" in parts and ops[1][1:-1] in self.inputs:
            return ops[0], v.same, (self.inputs[ops[1][1:-1]],), False, False
        if "global" in parts and parts[-1] in ("u32", "s32", "b32") and "{" not in ops[0]:
            return ops[0], v.word, (self._operand(ops[1]),), False, False
        return None


def _uniform(a: Value) -> Value:
    """shfl.idx of a value that all lanes share."""
    return a if isinstance(a, int) else None


def _nonnegative(f: v.Function) -> v.Function:
    """The unsigned form, known where the operands are not negative."""

    def g(a: Value, b: Value) -> Value:
        for x in (a, b):
            if (type(x) is int and x < 0) or isinstance(x, v.Least):
                return None
        return f(a, b)

    return g


def lower(function: Function) -> Program:
    """The reduced program of an entry."""
    return Lowering(function).program()


class Invariants:
    """What of a thread's run depends on its number alone: registers set once, from such registers and literals. Threads
    for which those that anything else uses agree run alike."""

    def __init__(self, program: Program, inputs: Iterable[str]) -> None:
        makers: dict[str, list[Set | None]] = {}
        for node in program.nodes:
            for s in node.steps:
                if isinstance(s, Set):
                    makers.setdefault(s.dst, []).append(s)
                elif s.result is not None:
                    makers.setdefault(s.result, []).append(None)
        fixed = set(inputs) - set(makers)
        self.order: list[Set] = []
        once = [m[0] for m in makers.values() if len(m) == 1 and m[0] is not None and m[0].function is not v.unknown]
        while True:
            more = [s for s in once if s.dst not in fixed and all(not isinstance(a, str) or a in fixed for a in s.args)]
            if not more:
                break
            fixed |= {s.dst for s in more}
            self.order += more
        used: set[str] = set()
        for node in program.nodes:
            if isinstance(node.predicate, str):
                used.add(node.predicate)
            for s in node.steps:
                if isinstance(s, Event) or s.dst not in fixed:
                    used |= {a for a in s.args if isinstance(a, str)}
        self.used = sorted(used & fixed)

    def of(self, inputs: Mapping[str, Value]) -> tuple[Value, ...]:
        """The values for one thread."""
        known = dict(inputs)
        for s in self.order:
            known[s.dst] = s.function(*[known[a] if isinstance(a, str) else a for a in s.args])
        return tuple(known[name] for name in self.used)
