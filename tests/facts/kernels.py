"""A small reader of expressions as text, for tests: ``parse("t.m0 + 64*w + %row < M and k % 8 == 0")``."""

from __future__ import annotations

import ast
import re

from cake.ir.expr import Apply, Axis, Const, Expr, Sym

_OPS = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.And: "and",
    ast.Or: "or",
}
_AXES = {"row_": "row", "col_": "col", "lin_": "lin"}


def parse(text: str, booleans: tuple[str, ...] = ()) -> Expr:
    """The expression; ``%row`` and friends are axes, dotted names symbols, names in ``booleans`` of type bool."""
    text = re.sub(r"%(row|col|lin)\b", r"\1_", text)
    text = re.sub(r"\bwhere\(", "where_(", text)
    return _build(ast.parse(text, mode="eval").body, booleans)


def _build(n: ast.expr, booleans: tuple[str, ...]) -> Expr:
    def sub(x: ast.expr) -> Expr:
        return _build(x, booleans)

    if isinstance(n, ast.Constant):
        return Const(value=n.value, dtype="bool" if isinstance(n.value, bool) else "i32")
    if isinstance(n, ast.Name):
        if n.id in _AXES:
            return Axis(axis=_AXES[n.id])
        return Sym(name=n.id, dtype="bool" if n.id in booleans else "i32")
    if isinstance(n, ast.Attribute):
        return Sym(name=ast.unparse(n))
    if isinstance(n, ast.BinOp):
        return Apply(op=_OPS[type(n.op)], args=(sub(n.left), sub(n.right)), dtype="i32")
    if isinstance(n, ast.UnaryOp):
        if isinstance(n.op, ast.Not):
            return Apply(op="not", args=(sub(n.operand),), dtype="bool")
        if isinstance(n.operand, ast.Constant):
            return Const(value=-n.operand.value, dtype="i32")
        return Apply(op="neg", args=(sub(n.operand),), dtype="i32")
    if isinstance(n, ast.Compare):
        return Apply(op=_OPS[type(n.ops[0])], args=(sub(n.left), sub(n.comparators[0])), dtype="bool")
    if isinstance(n, ast.BoolOp):
        out = sub(n.values[0])
        for v in n.values[1:]:
            out = Apply(op=_OPS[type(n.op)], args=(out, sub(v)), dtype="bool")
        return out
    assert isinstance(n, ast.Call) and isinstance(n.func, ast.Name)
    args = tuple(sub(a) for a in n.args)
    name = n.func.id.rstrip("_")
    return Apply(op=name, args=args, dtype=args[1].dtype if name == "where" else "i32")
