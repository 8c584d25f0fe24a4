"""Integer tile expressions as constant + axis parts + uniform parts.

Index tiles are nearly always affine: ``t.m0 + 64 * w + rows(acc)``. Split so, an address needs one hoisted base and
constants, and a mask needs one hoisted limit that registers' constants are compared with.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from cake.ir import expanded as x
from cake.ir.expr import Apply, Axis, Const, Expr, Sym, is_scalar


@dataclass(frozen=True)
class Affine:
    """``const`` + sum of coefficient x axis + sum of coefficient x uniform expression."""

    const: int = 0
    axes: tuple[tuple[str, int], ...] = ()
    uniform: tuple[tuple[Expr, int], ...] = ()

    def __add__(self, other: Affine) -> Affine:
        axes = dict(self.axes)
        for a, c in other.axes:
            axes[a] = axes.get(a, 0) + c
        uniform = dict(self.uniform)
        for e, c in other.uniform:
            uniform[e] = uniform.get(e, 0) + c
        return Affine(
            self.const + other.const,
            tuple((a, c) for a, c in axes.items() if c),
            tuple((e, c) for e, c in uniform.items() if c),
        )

    def scale(self, k: int) -> Affine:
        """Every part times ``k``."""
        if k == 0:
            return Affine()
        return Affine(
            self.const * k, tuple((a, c * k) for a, c in self.axes), tuple((e, c * k) for e, c in self.uniform)
        )


def affine(e: Expr) -> Affine | None:
    """The decomposition of an integer expression; None where a tile part is not affine."""
    if isinstance(e, Const):
        return Affine(int(e.value))
    if isinstance(e, Axis):
        return Affine(0, ((e.axis, 1),))
    if isinstance(e, Sym):
        return Affine(0, (), ((e, 1),))
    if isinstance(e, Apply) and e.dtype in ("i32", "i64"):
        if e.op in ("+", "-"):
            left, right = affine(e.args[0]), affine(e.args[1])
            if left is not None and right is not None:
                return left + right.scale(1 if e.op == "+" else -1)
        elif e.op == "neg":
            inner = affine(e.args[0])
            return inner.scale(-1) if inner is not None else None
        elif e.op == "*":
            left, right = affine(e.args[0]), affine(e.args[1])
            if left is not None and right is not None:
                for a, b in ((left, right), (right, left)):
                    if not a.axes and not a.uniform:
                        return b.scale(a.const)
    return Affine(0, (), ((e, 1),)) if is_scalar(e) else None


def multiple(e: Expr, known: Callable[[str], int]) -> int:
    """A constant that divides the value of a scalar expression (0: always zero). ``known`` answers for symbols."""
    form = affine(e)
    if form is None:
        return 1
    result = abs(form.const)
    for part, c in form.uniform:
        if isinstance(part, Sym):
            factor = known(part.name)
        elif isinstance(part, Apply) and part.op == "*":
            factor = multiple(part.args[0], known) * multiple(part.args[1], known)
        elif isinstance(part, Apply) and part.op in ("min", "max"):
            factor = math.gcd(multiple(part.args[0], known), multiple(part.args[1], known))
        else:
            factor = 1
        result = math.gcd(result, c * factor)
    return result


def guarded_multiples(kernel: x.Kernel) -> dict[str, int]:
    """What divides a dim because the host refuses other launches: ``where N % 8 == 0``."""
    known: dict[str, int] = {}
    for guard in kernel.guards:
        match guard.expr:
            case Apply(op="==", args=(Apply(op="%", args=(Sym(name=name), Const(value=by))), Const(value=0))) if by > 0:
                known[name] = math.lcm(known.get(name, 1), int(by))
    return known
