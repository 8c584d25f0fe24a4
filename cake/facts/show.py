"""Expressions as the author would write them, with no more parentheses than the grammar needs."""

from __future__ import annotations

from cake.ir.expr import Apply, Axis, Const, Expr, Reg, Sym

_INFIX = {"or": 1, "and": 2, **dict.fromkeys(("==", "!=", "<", "<=", ">", ">="), 4), "+": 5, "-": 5}
_INFIX |= dict.fromkeys(("*", "/", "//", "%"), 6)
_NOT, _COMPARE, _UNARY, _ATOM = 3, 4, 7, 9
_AXES = {"row": "rows", "col": "cols", "lin": "lin"}


def show(e: Expr) -> str:
    """The text of an expression. An axis leaf, which has no tile to name, prints as ``rows``, ``cols`` or ``lin``."""
    return _show(e)[0]


def _wrap(e: Expr, least: int) -> str:
    text, level = _show(e)
    return text if level >= least else f"({text})"


def _show(e: Expr) -> tuple[str, int]:
    if isinstance(e, Const):
        negative = not isinstance(e.value, bool) and e.value < 0
        return str(e.value), _UNARY if negative else _ATOM
    if isinstance(e, Sym):
        return e.name, _ATOM
    if isinstance(e, Axis):
        return _AXES[e.axis], _ATOM
    if isinstance(e, Reg):
        return _register(e), _ATOM
    return _application(e)


def _register(e: Reg) -> str:
    parts = [str(n) for n in e.lead]
    if e.rows is not None or e.cols is not None:
        parts += [":" if r is None else f"{r[0]} : {r[1]}" for r in (e.rows, e.cols)]
    return f"{e.name}[{', '.join(parts)}]" if parts else e.name


def _application(e: Apply) -> tuple[str, int]:
    level = _INFIX.get(e.op)
    if level is not None and len(e.args) == 2:
        a, b = e.args
        # Comparisons do not chain, and the other operators associate to the left.
        left = _wrap(a, level + 1 if level == _COMPARE else level)
        return f"{left} {e.op} {_wrap(b, level + 1)}", level
    if e.op == "neg":
        return f"-{_wrap(e.args[0], _UNARY)}", _UNARY
    if e.op == "not":
        return f"not {_wrap(e.args[0], _NOT)}", _NOT
    name = e.dtype if e.op == "cast" else e.op
    return f"{name}({', '.join(show(x) for x in e.args)})", _ATOM
