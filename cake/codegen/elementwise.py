"""CUDA text of elementwise expressions, scalar or for one element of a tile.

Narrow floats are computed with as the f32 values that they convert to exactly; an operation whose result is narrow
rounds once, which is the correctly rounded result (f32 has more than twice their precision). One function per row of
``cake.ir.elementwise``.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from cake.codegen.affine import affine
from cake.codegen.index import Index
from cake.codegen.names import VALUE
from cake.codegen.tiles import AxisValue, Site, Storage
from cake.ir.expr import Apply, Axis, Const, Expr, Reg, Sym

PRIMARY, UNARY, PRODUCT, SUM, SHIFT, RELATION, EQUALITY, BITAND, AND, OR, CHOICE = range(11, 0, -1)
NARROW = ("bf16", "f16", "e4m3", "e5m2")


@dataclass(frozen=True)
class Text:
    """C text and the precedence of its outermost operator."""

    text: str
    level: int = PRIMARY

    def at(self, level: int) -> str:
        """The text as an operand where ``level`` binds."""
        return self.text if self.level >= level else f"({self.text})"


class Scope(Protocol):
    """What an expression needs to know about the program around it."""

    def symbol(self, sym: Sym) -> Text:
        """A uniform scalar."""

    def storage(self, name: str) -> Storage:
        """The array of a register tile."""

    def nonnegative(self, e: Expr) -> bool:
        """True if the value is known to be at least zero."""

    def multiple(self, e: Expr) -> int:
        """A constant that divides the value (0: always zero)."""

    def lane(self, text: str) -> str:
        """Note that a lane-dependent base is used; its C text."""

    def hoist(self, ctype: str, hint: str, value: str) -> str:
        """A constant computed before the statement's loops."""


Emit = Callable[["Expression", Apply], Text]
ELEMENTWISE: dict[str, Emit] = {}


def _op(name: str) -> Callable[[Emit], Emit]:
    def register(f: Emit) -> Emit:
        ELEMENTWISE[name] = f
        return f

    return register


class Expression:
    """Renders expressions: scalars without a ``site``, tile expressions for the element at one."""

    def __init__(self, scope: Scope, site: Site | None = None) -> None:
        self.scope = scope
        self.site = site

    def text(self, e: Expr, level: int = 0) -> str:
        """C text of the value, fit to stand where ``level`` binds."""
        return self.value(e).at(level)

    def unrounded(self, e: Expr) -> str:
        """The f32 whose rounding to ``e``'s narrow type is ``e``: what a packing conversion takes."""
        if isinstance(e, Apply) and e.dtype in NARROW:
            if e.op == "cast" and e.args[0].dtype not in ("i32", "i64"):
                return self.text(e.args[0])
            if e.op in _ROUNDED:
                return ELEMENTWISE[e.op](self, e).text
        return self.text(e)

    def value(self, e: Expr) -> Text:
        """Text and precedence of the value."""
        if isinstance(e, Const):
            return literal(e)
        if isinstance(e, Sym):
            return self.scope.symbol(e)
        if isinstance(e, Axis):
            return self._axis(e)
        if isinstance(e, Reg):
            return self._register(e)
        text = ELEMENTWISE[e.op](self, e)
        if e.dtype in NARROW and e.op in _ROUNDED:
            return Text(f"round_{e.dtype}({text.text})")
        if e.dtype in ("i8", "u8") and e.op in ("+", "-", "*", "neg", "//", "abs"):
            return Text(f"{'int8_t' if e.dtype == 'i8' else 'uint8_t'}({text.text})")
        return text

    def _axis(self, e: Axis) -> Text:
        assert self.site is not None, "an index tile in a scalar expression"
        value = self.site.axis(e.axis)
        if isinstance(value, str):
            return Text(self.scope.lane(value), PRODUCT)
        return self.sum(value.lane, value.reg)

    def sum(self, lane: str | None, reg: Index) -> Text:
        """A lane part plus a register part."""
        if lane is None:
            return Text(str(reg), SUM if " " in str(reg) or reg.const < 0 else PRIMARY)
        lane = self.scope.lane(lane)
        if reg == Index():
            return Text(lane, PRODUCT if " " in lane else PRIMARY)
        return Text(f"{lane} + {reg}", SUM)

    def _register(self, e: Reg) -> Text:
        assert self.site is not None, "a register tile in a scalar expression"
        storage = self.scope.storage(e.name)
        at = self.site.register(storage.type, e) + storage.base(e.lead)
        return self.element(storage, at)

    def element(self, storage: Storage, at: Index) -> Text:
        """The value of one element of an array."""
        word = Text(f"{storage.name}[{at.div(storage.per)}]")
        dtype = storage.type.dtype
        if dtype in NARROW or dtype in ("i8", "u8"):
            sub = at.mod(storage.per) if storage.per > 1 else Index()
            return Text(f"{dtype}_at({word.text}, {sub})")
        return word

    def args(self, e: Apply, level: int, right: int | None = None) -> tuple[str, str]:
        """Both operands of a binary operation."""
        a, b = e.args
        return self.text(a, level), self.text(b, level + 1 if right is None else right)


def literal(e: Const) -> Text:
    """A literal, exact."""
    if e.dtype == "bool":
        return Text("true" if e.value else "false")
    if VALUE[e.dtype] != "float":
        value = int(e.value)
        if value == -(2**31):
            return Text("(-2147483647 - 1)")
        text = f"{value}ll" if e.dtype == "i64" else str(value)
        return Text(text, UNARY if value < 0 else PRIMARY)
    number = float(e.value)
    if math.isnan(number):
        return Text("__int_as_float(0x7fffffff)")
    if math.isinf(number):
        return Text("-infinity" if number < 0 else "infinity", UNARY if number < 0 else PRIMARY)
    single = struct.unpack("f", struct.pack("f", number))[0]
    text = next(t for n in range(1, 18) if struct.pack("f", float(t := f"{single:.{n}g}")) == struct.pack("f", single))
    if not any(c in text for c in ".e"):
        text += ".0"
    return Text(f"{text}f", UNARY if single < 0 or text.startswith("-") else PRIMARY)


def _float(e: Apply) -> bool:
    return VALUE[e.args[0].dtype] == "float"


# ---- arithmetic -----------------------------------------------------------------------------------------------------

_ROUNDED = {"+", "-", "*", "/", "cast", "exp2", "log2", "exp", "log", "rsqrt", "sqrt", "tanh", "erf"}


def _infix(symbol: str, level: int) -> Emit:
    def emit(x: Expression, e: Apply) -> Text:
        if _integer_zero(e.args[1]) and symbol in ("+", "-"):
            return x.value(e.args[0])
        if _integer_zero(e.args[0]) and symbol == "+":
            return x.value(e.args[1])
        a, b = x.args(e, level)
        return Text(f"{a} {symbol} {b}", level)

    return emit


def _integer_zero(e: Expr) -> bool:
    return isinstance(e, Const) and e.dtype in ("i32", "i64") and e.value == 0


ELEMENTWISE["+"] = _infix("+", SUM)
ELEMENTWISE["-"] = _infix("-", SUM)
ELEMENTWISE["*"] = _infix("*", PRODUCT)
ELEMENTWISE["and"] = _infix("&&", AND)
ELEMENTWISE["or"] = _infix("||", OR)


@_op("neg")
def _neg(x: Expression, e: Apply) -> Text:
    return Text(f"-{x.text(e.args[0], PRIMARY)}", UNARY)


@_op("not")
def _not(x: Expression, e: Apply) -> Text:
    return Text(f"!{x.text(e.args[0], UNARY)}", UNARY)


@_op("abs")
def _abs(x: Expression, e: Apply) -> Text:
    return Text(f"{'fabsf' if _float(e) else 'abs'}({x.text(e.args[0])})")


@_op("/")
def _divide(x: Expression, e: Apply) -> Text:
    return Text(f"divide({x.text(e.args[0])}, {x.text(e.args[1])})")


def _shift_of(e: Expr) -> int | None:
    """log2 of a constant power of two."""
    if isinstance(e, Const) and int(e.value) > 0 and int(e.value) & (int(e.value) - 1) == 0:
        return int(e.value).bit_length() - 1
    return None


@_op("//")
def _floor_div(x: Expression, e: Apply) -> Text:
    a, b = e.args
    shift = _shift_of(b)
    if shift is not None:
        return x.value(a) if shift == 0 else Text(f"{x.text(a, SHIFT)} >> {shift}", SHIFT)
    if x.scope.nonnegative(a) and x.scope.nonnegative(b):
        return Text(f"{x.text(a, PRODUCT)} / {x.text(b, UNARY)}", PRODUCT)
    return Text(f"floor_div({x.text(a)}, {x.text(b)})")


@_op("%")
def _floor_mod(x: Expression, e: Apply) -> Text:
    a, b = e.args
    shift = _shift_of(b)
    if shift is not None:
        return Text(f"{x.text(a, SHIFT)} & {int(b.value) - 1}", BITAND)  # type: ignore[union-attr]
    if x.scope.nonnegative(a) and x.scope.nonnegative(b):
        return Text(f"{x.text(a, PRODUCT)} % {x.text(b, UNARY)}", PRODUCT)
    return Text(f"floor_mod({x.text(a)}, {x.text(b)})")


@_op("cdiv")
def _cdiv(x: Expression, e: Apply) -> Text:
    return Text(f"cdiv({x.text(e.args[0])}, {x.text(e.args[1])})")


@_op("min")
def _min(x: Expression, e: Apply) -> Text:
    return Text(f"{'min_nan' if _float(e) else 'min'}({x.text(e.args[0])}, {x.text(e.args[1])})")


@_op("max")
def _max(x: Expression, e: Apply) -> Text:
    return Text(f"{'max_nan' if _float(e) else 'max'}({x.text(e.args[0])}, {x.text(e.args[1])})")


# ---- comparisons ----------------------------------------------------------------------------------------------------


def _compare(symbol: str) -> Emit:
    level = EQUALITY if symbol in ("==", "!=") else RELATION

    def emit(x: Expression, e: Apply) -> Text:
        folded = _folded(x, e, symbol)
        if folded is not None:
            return Text(folded, level)
        a, b = x.args(e, level)
        return Text(f"{a} {symbol} {b}", level)

    return emit


def _folded(x: Expression, e: Apply, symbol: str) -> str | None:
    """An affine index comparison as ``register constant <symbol> hoisted limit``, so that unrolled code compares with
    immediates. Where the limit is a multiple of a power of two, the constant is rounded down to one: the elements of a
    vector then share one comparison."""
    if x.site is None or e.args[0].dtype != "i32":
        return None
    left, right = affine(e.args[0]), affine(e.args[1])
    if left is None or right is None:
        return None
    form = left + right.scale(-1)
    if not form.axes:
        return None
    reg, limit, step = Index(), [], form.const
    for axis, c in form.axes:
        value = x.site.axis(axis)
        if not isinstance(value, AxisValue):
            return None
        reg = reg + value.reg * c
        if value.lane is not None:
            limit.append((Text(x.scope.lane(value.lane), PRODUCT if " " in value.lane else PRIMARY), -c))
            step = math.gcd(step, c * value.step)
    limit += [(x.value(part), -c) for part, c in form.uniform]
    step = math.gcd(step, *(c * x.scope.multiple(part) for part, c in form.uniform))
    text = ""
    for part, c in sorted(limit, key=lambda item: item[1] < 0):
        term = part.at(PRODUCT) if abs(c) == 1 else f"{abs(c)} * {part.at(UNARY)}"
        text += (
            (f" {'+' if c > 0 else '-'} {term}")
            if text
            else (term if c > 0 else f"-{part.at(PRIMARY)}" if c == -1 else f"-{term}")
        )
    if form.const or not text:
        text += f" {'-' if form.const > 0 else '+'} {abs(form.const)}" if text else str(-form.const)
    constant = _rounded_down(reg, step & -step) if symbol in ("<", ">=") else str(reg)
    return f"{constant} {symbol} {x.scope.hoist('int', 'limit', text)}"


def _rounded_down(reg: Index, step: int) -> str:
    """C text of the largest multiple of ``step``, 0 or a power of two, that is at most ``reg``."""
    if step < 2:
        return str(reg)
    if all(c % step == 0 for _, c in reg.terms):
        return str(reg - reg.const % step)
    return f"({reg} & -{step})"


for _symbol in ("==", "!=", "<", "<=", ">", ">="):
    ELEMENTWISE[_symbol] = _compare(_symbol)


@_op("where")
def _where(x: Expression, e: Apply) -> Text:
    c, a, b = e.args
    if "(" in x.text(a) + x.text(b):
        return Text(f"select({x.text(c)}, {x.text(a)}, {x.text(b)})")
    return Text(f"{x.text(c, CHOICE + 1)} ? {x.text(a, CHOICE + 1)} : {x.text(b, CHOICE)}", CHOICE)


@_op("cast")
def _cast(x: Expression, e: Apply) -> Text:
    source, target = e.args[0].dtype, e.dtype
    value = x.value(e.args[0])
    if source == target:
        return value
    if target == "bool":
        return Text(f"{value.at(EQUALITY)} != 0", EQUALITY)
    if target == "tf32":
        return Text(f"round_tf32({value.text})")
    if VALUE[target] == "float":
        return value if VALUE[source] == "float" else Text(f"float({value.text})")
    if target in ("i8", "u8") and VALUE[source] == "float":
        return Text(f"to_{target}({value.text})")
    ctype = {"i8": "int8_t", "u8": "uint8_t"}.get(target, VALUE[target])
    return Text(f"{ctype}({value.text})")


# ---- functions of f32 -----------------------------------------------------------------------------------------------


def _function(name: str) -> Emit:
    return lambda x, e: Text(f"{name}({x.text(e.args[0])})")


for _name, _device in (
    ("exp2", "exp2_approx"),
    ("log2", "log2_approx"),
    ("exp", "exp_approx"),
    ("log", "log_approx"),
    ("rsqrt", "rsqrt_approx"),
    ("sqrt", "sqrt_approx"),
    ("tanh", "tanh_approx"),
    ("erf", "erff"),
):
    ELEMENTWISE[_name] = _function(_device)
