"""Runs generated code on the CPU, all threads of an instance at once: each scalar is an array over threads.

It reads the C++ text that the emitter wrote, so addresses, register indices, predicates and shuffles are checked as
written. Device functions are given their documented meaning here. Only what one role does synchronously is run: no
TMA, no wgmma, and barriers are no-ops because the threads advance together.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from cake.codegen import emit, parameters
from cake.ir import expanded as x
from tests.codegen.meanings import PURE, SELECT, TRACK, index, keep_best, last_of

TOKEN = re.compile(
    r"\s+|//[^\n]*|#[^\n]*"
    r"|(?P<number>0x[0-9a-fA-F]+(?:ull|u)?|(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?(?:f|ull|ll|u)?)"
    r"|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<op><<|>>|<=|>=|==|!=|&&|\|\||\+\+|\+=|[-+*/%&|^!<>=?:()\[\]{},;.])"
)
BINARY = {
    "||": 1, "&&": 2, "|": 3, "^": 4, "&": 5, "==": 6, "!=": 6, "<": 7, ">": 7, "<=": 7, ">=": 7,
    "<<": 8, ">>": 8, "+": 9, "-": 9, "*": 10, "/": 10, "%": 10,
}  # fmt: skip
GROUPS = ("Group1", "Group2", "Group4", "Group8")
TYPES = {
    "int",
    "float",
    "bool",
    "uint32_t",
    "uint16_t",
    "uint8_t",
    "int64_t",
    "Best4",
    *GROUPS,
    "Cursor",
    "bf16",
    "f16",
    "e4m3",
}


def tokens(text: str) -> list[str]:
    """The tokens of generated code, without comments and directives."""
    out, at = [], 0
    while at < len(text):
        m = TOKEN.match(text, at)
        assert m, text[at : at + 60]
        if m.lastgroup:
            out.append(m.group())
        at = m.end()
    return out


class Pointer:
    """Global memory: elements of a flat array from an offset (per thread)."""

    def __init__(self, array: np.ndarray, offset: Any = 0) -> None:
        self.array, self.offset = array, offset

    def __add__(self, n: Any) -> Pointer:
        return Pointer(self.array, self.offset + n)


class Registers:
    """A register array: [count, threads]."""

    def __init__(self, values: np.ndarray, at: int = 0) -> None:
        self.values, self.at, self.bytes, self.kind = values, at, 4, "u"

    def __add__(self, n: Any) -> Registers:
        other = Registers(self.values, self.at + index(n))
        other.bytes, other.kind = self.bytes, self.kind
        return other


class Emulator:
    """One instance's threads. ``names`` has what the text refers to: parameters, prelude, arrays."""

    def __init__(self, text: str, threads: int, names: dict[str, Any], shared_bytes: int = 0) -> None:
        self.tokens, self.at = tokens(text), 0
        self.threads = threads
        self.scopes: list[dict[str, Any]] = [names]
        self.mask: np.ndarray = np.ones(threads, bool)
        self.shared = np.zeros(shared_bytes, np.uint8)
        self.touched = np.zeros(shared_bytes, bool)

    # -- statements ---------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run to the end of the text."""
        while self.at < len(self.tokens):
            self.statement()
        assert len(self.scopes) == 1

    @property
    def next(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self, *expected: str) -> str:
        token = self.tokens[self.at]
        assert not expected or token in expected, (expected, self.tokens[max(0, self.at - 8) : self.at + 6])
        self.at += 1
        return token

    def lookup(self, name: str) -> Any:
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        raise KeyError(name)

    def assign(self, name: str, value: Any) -> None:
        for scope in reversed(self.scopes):
            if name in scope:
                old = scope[name]
                scope[name] = value if self.mask.all() else np.where(self.mask, value, old)
                return
        raise KeyError(name)

    def skip(self) -> None:
        """Step over one statement without running it."""
        if self.next == "{":
            depth = 0
            while True:
                token = self.take()
                depth += (token == "{") - (token == "}")
                if depth == 0:
                    return
        if self.next in ("UNROLLED", "ROLLED", "for", "if"):
            while self.take() != "(":
                pass
            depth = 1
            while depth:
                token = self.take()
                depth += (token == "(") - (token == ")")
            self.skip()
            if self.next == "else":
                self.take()
                self.skip()
            return
        while self.take() != ";":
            pass

    def statement(self) -> None:
        token = self.next
        if token == "{":
            self.take()
            self.scopes.append({})
            while self.next != "}":
                self.statement()
            self.take()
            self.scopes.pop()
        elif token in ("UNROLLED", "ROLLED"):
            self.take()
            self.loop()
        elif token == "if":
            self.condition()
        elif token == "return":
            self.take()
            self.take(";")
        elif token == "const" or token in TYPES:
            self.declaration()
        else:
            self.expression_statement()

    def loop(self) -> None:
        self.take("for"), self.take("(")
        self.take("int")
        name = self.take()
        self.take("=")
        self.scopes.append({name: self.expression()})
        self.take(";")
        test = self.at
        while True:
            self.at = test
            condition = self.expression()
            self.take(";")
            step = self.at
            while self.take() != ")":
                pass
            if not index(condition):
                self.skip()
                break
            self.statement()
            end = self.at
            self.at = step
            if self.next == "++":
                self.take()
                self.scopes[-1][self.take()] += 1
            else:
                self.take()
                op = self.take("+=", "*")
                if op == "*":
                    self.take("=")
                    self.scopes[-1][name] = self.scopes[-1][name] * self.expression()
                else:
                    self.scopes[-1][name] = self.scopes[-1][name] + self.expression()
            self.at = end
        self.scopes.pop()

    def condition(self) -> None:
        self.take("if"), self.take("(")
        value = np.broadcast_to(np.asarray(self.expression(), bool), self.mask.shape)
        self.take(")")
        outer = self.mask
        start = self.at
        self.mask = outer & value
        if self.mask.any():
            self.statement()
        else:
            self.skip()
        if self.next == "else":
            self.take()
            self.mask = outer & ~value
            if self.mask.any():
                self.statement()
            else:
                self.skip()
        self.mask = outer
        assert self.at > start

    def declaration(self) -> None:
        if self.next == "const":
            self.take()
        kind = self.take(*TYPES)
        if self.next == "*":
            self.take(), self.take("const")
        name = self.take()
        if self.next == "[":
            self.take()
            count = index(self.expression())
            self.take("]"), self.take(";")
            dtype = {"float": np.float32, "bool": bool}.get(kind, np.int64)
            fill = [None] * count if kind in ("Best4", *GROUPS) else np.zeros((count, self.threads), dtype)
            array = self.scopes[-1][name] = Registers(fill)  # type: ignore[arg-type]
            array.bytes = {"uint16_t": 2, "uint8_t": 1, "int64_t": 8}.get(kind, 4)
            array.kind = "i" if kind in ("int", "int64_t") else "u"
            return
        if self.next == ";":
            self.take()
            self.scopes[-1][name] = 0
            return
        self.take("=")
        self.scopes[-1][name] = self.expression()
        self.take(";")

    def expression_statement(self) -> None:
        if self.tokens[self.at + 1] == "=":
            name = self.take()
            self.take("=")
            self.assign(name, self.expression())
        else:
            start = self.at
            target = self.expression()
            if self.next == "=":
                self.take()
                value = self.expression()
                end, self.at = self.at, start
                array = self.lookup(self.take())
                self.take("[")
                at = array.at + index(self.expression())
                self.at = end
                if isinstance(target, np.ndarray):
                    array.values[at] = np.where(self.mask, value, array.values[at])
                else:
                    array.values[at] = value
        self.take(";")

    # -- expressions --------------------------------------------------------------------------------------------------

    def expression(self, level: int = 0) -> Any:
        left = self.unary()
        while self.next in BINARY and BINARY[self.next] > level - 1 and BINARY[self.next] >= max(level, 1):
            op = self.take()
            left = apply(op, left, self.expression(BINARY[op] + 1))
        if level == 0 and self.next == "?":
            self.take()
            outer = self.mask
            self.mask = outer & np.broadcast_to(np.asarray(left, bool), outer.shape)
            a = self.expression()
            self.take(":")
            self.mask = outer & ~np.broadcast_to(np.asarray(left, bool), outer.shape)
            b = self.expression()
            self.mask = outer
            return np.where(left, a, b)
        return left

    def unary(self) -> Any:
        token = self.next
        if token == "-":
            self.take()
            return -np.asarray(self.unary())
        if token == "!":
            self.take()
            return ~np.asarray(self.unary(), bool)
        value: Any
        if token == "(":
            self.take()
            value = self.expression()
            self.take(")")
        elif re.match(r"0x|[\d.]", token):
            self.take()
            value = number(token)
        else:
            value = self.name()
        while self.next in ("[", "."):
            if self.take() == "[":
                value = value.values[value.at + index(self.expression())]
                self.take("]")
            else:
                value = self.member(value, self.take())
        return value

    def member(self, value: Any, name: str) -> Any:
        return value[name] if isinstance(value, dict) else getattr(value, name)

    def name(self) -> Any:
        name = self.take()
        width = None
        if (
            self.next == "<"
            and name not in ("i",)
            and self.tokens[self.at + 2] == ">"
            and self.tokens[self.at + 3] == "("
        ):
            self.take()
            width = self.take()
            self.take(">")
        if self.next != "(":
            return self.lookup(name)
        self.take()
        args = []
        while self.next != ")":
            args.append(self.expression())
            if self.next == ",":
                self.take()
        self.take(")")
        return self.call(name, width, args)

    # -- device functions ---------------------------------------------------------------------------------------------

    def call(self, name: str, width: str | None, args: list[Any]) -> Any:
        if name in PURE:
            return PURE[name](*args)
        if name == "elect_one":
            return np.arange(self.threads) % 32 == 0
        if name == "shuffle_xor":
            return np.asarray(args[0])[np.arange(self.threads) ^ index(args[1])]
        if name.startswith(("named_", "__syncwarp", "fence_", "advance", "setmaxnreg", "pin")):
            return None
        memory = re.fullmatch(r"(load|store|load_bits)_(global|global_nc|shared|shared_again)", name)
        if memory:
            return getattr(self, memory[1])(memory[2].split("_")[0], width, *args)
        if name.startswith(("ldmatrix", "stmatrix")):
            return self.matrix(name, args)
        if name in SELECT:
            return SELECT[name](self, *args)
        track = re.fullmatch(r"(no_group|keep_argmax|keep_argmin|column_of)(\d)", name)
        if track:
            return TRACK[track[1]](self, *args)
        if name == "last_of":
            return last_of(self, int(width or 1), *args)
        lists = re.fullmatch(r"keep_best(\d+)_of(\d+)_by\d", name)
        if lists:
            return keep_best(self, int(lists[1]), int(lists[2]), *args)
        if name.startswith("mma_m16n8k16"):
            return self.mma(*args)
        if name == "cp_async_16":
            return self.cp_async(*args)
        if name.startswith("reduce_"):
            return self.reduce(name, *args)
        if name == "descriptor":
            return int(args[0]) | int(args[1]) << 32
        if name.startswith("wgmma_m64"):
            return self.wgmma(name, *args)
        if name.startswith("wgmma_"):
            return None
        raise NotImplementedError(name)

    def view(self, space: str, where: Any, thread: Any, size: int, write: bool = False) -> np.ndarray:
        """The ``size`` bytes that a thread's access touches."""
        if space == "shared":
            at = int(np.broadcast_to(where, self.threads)[thread])
            self.touched[at : at + size] |= write
            memory = self.shared
        else:
            memory = where.array.view(np.uint8)
            at = int(np.broadcast_to(where.offset, self.threads)[thread]) * where.array.itemsize
        assert at % size == 0, f"a {size}-byte access at {at} is not aligned"
        assert at >= 0 and at + size <= memory.size, f"an access at {at} of {memory.size} bytes"
        return memory[at : at + size]

    def load(self, space: str, width: str | None, registers: Registers, where: Any) -> None:
        count = int(width or 1)
        size = registers.bytes
        for t in np.flatnonzero(self.mask):
            raw = self.view(space, where, t, size * count)
            values = raw.view(np.float32 if registers.values.dtype == np.float32 else f"{registers.kind}{size}")
            registers.values[registers.at : registers.at + count, t] = values

    def load_bits(self, space: str, width: str | None, where: Any) -> np.ndarray:
        kind = np.dtype({"float": "f4", "int": "i4", "uint32_t": "u4", "uint16_t": "u2", "uint8_t": "u1"}[width or ""])
        out = np.zeros(self.threads, np.float32 if kind == "f4" else np.int64)
        for t in np.flatnonzero(self.mask):
            out[t] = self.view(space, where, t, kind.itemsize).view(kind)[0]
        return out

    def store(self, space: str, width: str | None, where: Any, *words: Any) -> None:
        kind = np.dtype({"float": "f4", "int": "i4", "uint32_t": "u4", "uint16_t": "u2", "uint8_t": "u1"}[width or ""])
        for t in np.flatnonzero(self.mask):
            raw = self.view(space, where, t, kind.itemsize * len(words), True).view(kind)
            values = [np.broadcast_to(w, self.threads)[t] for w in words]
            raw[:] = values if kind.kind == "f" else np.array(values).astype(kind)  # integers wrap

    def reduce(self, name: str, where: Any, value: Any) -> None:
        for t in np.flatnonzero(self.mask):
            raw = self.view(name.split("_")[2], where, t, 4).view(np.float32)
            raw[0] += np.broadcast_to(value, self.threads)[t]

    def cp_async(self, dst: Any, src: Pointer, size: Any) -> None:
        for t in np.flatnonzero(self.mask):
            raw = self.view("shared", dst, t, 16, True)
            raw[:] = 0
            if np.broadcast_to(size, self.threads)[t]:
                raw[:] = self.view("global", src, t, 16)

    def matrix(self, name: str, args: list[Any]) -> None:
        count, trans = int(re.search(r"_x(\d)", name)[1]), name.endswith("trans")  # type: ignore[index]
        loading = name.startswith("ld")
        addresses = np.broadcast_to(args[1] if loading else args[0], self.threads)
        for first in range(0, self.threads, 32):
            for m in range(count):
                for r in range(8):
                    row = self.view("shared", addresses, first + 8 * m + r, 16, not loading).view("u2")
                    for c in range(8):
                        i, j = (c, r) if trans else (r, c)
                        lane = first + 4 * i + j // 2
                        shift = 16 * (j % 2)
                        if loading:
                            word = args[0].values[args[0].at + m]
                            word[lane] = int(word[lane]) & ~(0xFFFF << shift) | int(row[c]) << shift
                        else:
                            row[c] = int(args[1 + m][lane]) >> shift & 0xFFFF

    def mma(self, d: Registers, a: Registers, b0: Any, b1: Any) -> None:
        for first in range(0, self.threads, 32):
            left, right, acc = np.zeros((16, 16)), np.zeros((16, 8)), np.zeros((16, 8))
            for lane in range(32):
                q, k = lane // 4, lane % 4 * 2
                for e in range(2):
                    for h in range(2):
                        for g in range(2):
                            word = a.values[a.at + 2 * g + h][first + lane]
                            left[8 * h + q, 8 * g + k + e] = PURE["bf16_at"](word, e)
                        acc[8 * h + q, k + e] = d.values[d.at + 2 * h + e][first + lane]
                    right[k + e, q] = PURE["bf16_at"](b0[first + lane], e)
                    right[8 + k + e, q] = PURE["bf16_at"](b1[first + lane], e)
            acc += left @ right
            for lane in range(32):
                for h in range(2):
                    for e in range(2):
                        d.values[d.at + 2 * h + e][first + lane] = acc[8 * h + lane // 4, lane % 4 * 2 + e]

    def operand(self, descriptor: int, rows: int, depth: int, mn_major: bool) -> np.ndarray:
        """[rows, depth] bf16 elements of a shared operand (PTX ISA 9.7.15.5.1.2, canonical layouts)."""
        start, leading, stride = ((descriptor >> at & 0x3FFF) << 4 for at in (0, 16, 32))
        width = {1: 128, 2: 64, 3: 32}[descriptor >> 62]
        r, k = np.meshgrid(np.arange(rows), np.arange(depth), indexing="ij")
        if mn_major:
            panel = width // 2
            at = start + r // panel * leading + k // 8 * stride + k % 8 * width + r % panel * 2
        else:
            at = start + r // 8 * stride + r % 8 * width + k * 2
        at = at ^ (at >> 3 & {128: 0x70, 64: 0x30, 32: 0x10}[width])
        return self.shared.view("u2")[at // 2].view(ml_dtypes.bfloat16).astype(np.float32)

    def wgmma(self, name: str, d: Registers, a: Any, b: int, accumulate: Any) -> None:
        form = re.fullmatch(r"wgmma_m64n(\d+)k16_bf16_(ss|rs)(_ta)?(_tb)?", name)
        assert form and self.threads == 128
        n = int(form[1])
        right = self.operand(b, n, 16, form[4] is not None)
        thread = np.arange(128)
        row = thread // 32 * 16 + thread % 32 // 4
        if form[2] == "ss":
            left = self.operand(a, 64, 16, form[3] is not None)
        else:
            left = np.zeros((64, 16), np.float32)
            for w, e in itertools.product(range(4), range(2)):
                left[row + 8 * (w % 2), 8 * (w // 2) + thread % 4 * 2 + e] = PURE["bf16_at"](a.values[a.at + w], e)
        product = left @ right.T
        for i in range(n // 2):
            part = product[row + 8 * (i // 2 % 2), 8 * (i // 4) + thread % 4 * 2 + i % 2]
            d.values[d.at + i] = part + (d.values[d.at + i] if index(accumulate) else 0)


def number(token: str) -> Any:
    """The value of a literal."""
    text = token.rstrip("ul")
    if text.startswith("0x"):
        return int(text, 16)
    if text.endswith("f"):
        return np.float32(text[:-1])
    return int(text) if text.isdigit() else np.float32(text)


def apply(op: str, a: Any, b: Any) -> Any:
    """A C operator; pointers and register arrays take offsets."""
    if isinstance(a, Pointer | Registers):
        return a + b
    floats = any(np.asarray(v).dtype.kind == "f" for v in (a, b))
    functions: dict[str, Callable[[Any, Any], Any]] = {
        "+": lambda p, q: p + q,
        "-": lambda p, q: p - q,
        "*": lambda p, q: p * q,
        "/": lambda p, q: p / q if floats else p // q,
        "%": lambda p, q: p % q,
        "<<": lambda p, q: p << q,
        ">>": lambda p, q: p >> q,
        "&": lambda p, q: p & q,
        "|": lambda p, q: p | q,
        "^": lambda p, q: p ^ q,
        "&&": np.logical_and,
        "||": np.logical_or,
        "==": lambda p, q: p == q,
        "!=": lambda p, q: p != q,
        "<": lambda p, q: p < q,
        "<=": lambda p, q: p <= q,
        ">": lambda p, q: p > q,
        ">=": lambda p, q: p >= q,
    }
    with np.errstate(all="ignore"):
        return functions[op](np.asarray(a), np.asarray(b))


# ---- whole roles ----------------------------------------------------------------------------------------------------


def run(kernel: x.Kernel, tensors: dict[str, np.ndarray], shared: np.ndarray | None = None, **scalars: Any) -> Emulator:
    """Run the only role of ``kernel``, in CTA 0 of a grid of 1. Tensors are flat arrays of bits (or f32, i32),
    changed in place."""
    source = emit(kernel, lines=False)
    role = kernel.roles[0]
    start = source.index("{\n", source.index(f"void role_{role.name}(")) + 2
    body = source[start : source.index("\n}\n", start)]
    threads = role.threads * role.instances
    number = np.arange(threads)
    fields: dict[str, Any] = {q.ident: Pointer(tensors[q.name]) for q in parameters(kernel) if q.kind == "tensor"}
    fields |= {q.ident: scalars[q.name] for q in parameters(kernel) if q.kind in ("scalar", "dim")}
    names: dict[str, Any] = {k: int(v) for k, v in re.findall(r"^    (\w+) = (\d+),$", source, re.MULTILINE)}
    names |= {
        "p": fields,
        "smem": 0,
        "warp_id": number // 32,
        "threadIdx": {"x": number},
        "infinity": np.float32(np.inf),
    }
    names |= {"blockIdx": {"x": 0}, "gridDim": {"x": 1}}
    machine = Emulator(body, threads, names, kernel.shared_bytes)
    if shared is not None:
        machine.shared[:] = shared
    machine.run()
    return machine
