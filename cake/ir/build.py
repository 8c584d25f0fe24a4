"""From Lark's tree to surface nodes."""

from __future__ import annotations

from typing import Any

from lark import Token, Tree

from cake.diagnostics import Edit, Findings, Fix, Span
from cake.ir import surface as s
from cake.ir.lexer import token_span
from cake.ir.printer import format_expr

MAX_DEPTH = 150
"""Levels of objects and lists in the JSON form; common readers of JSON refuse more than about 200."""

Part = Any
"""A subtree or token, as Lark gives it."""


class Builder:
    """Builds the nodes of one file. Lines with mistakes (``error``) are left out."""

    def __init__(self, file: str, findings: Findings, comments: dict[int, s.Comments]) -> None:
        self.name = file
        self.findings = findings
        self.comments = comments

    # -- files

    def file(self, tree: Part) -> s.File:
        """The whole file."""
        parts: dict[str, list[Any]] = {"const": [], "kernel": [], "sequence": [], "error": []}
        for child in tree.children:
            parts[child.data].append(None if child.data == "error" else getattr(self, child.data)(child, 2))
        return s.File.trusted(
            span=self.span(tree) if tree.children else s.NOWHERE,
            comments=self.comments.get(0, s.NO_COMMENTS),
            consts=tuple(parts["const"]),
            kernels=tuple(parts["kernel"]),
            sequences=tuple(parts["sequence"]),
        )

    def kernel(self, tree: Part, depth: int) -> s.Kernel:
        name, params, targets, *decls = tree.children
        parts: dict[str, list[Any]] = {kind: [] for kind in _DECLARATIONS}
        seen: set[int] = set()
        for decl in decls:
            # Recovery from a mistake may leave a declaration in the tree twice.
            if decl.data == "error" or decl.meta.line in seen:
                continue
            seen.add(decl.meta.line)
            if decl.data == "tiles" and parts["tiles"]:
                self.findings.error(
                    "S007", "a kernel has one `tiles` block", self.header(decl), help="put its axes into the first"
                )
            parts[decl.data].append(getattr(self, decl.data)(decl, depth + 2))
        tiles = parts.pop("tiles")
        fields: dict[str, Any] = {_DECLARATIONS[kind]: tuple(nodes) for kind, nodes in parts.items()}
        return s.Kernel.trusted(
            **self.place(tree),
            name=str(name),
            params=self.params(params, depth),
            targets=tuple(str(target) for target in targets.children),
            tiles=tiles[0] if tiles else None,
            **fields,
        )

    def sequence(self, tree: Part, depth: int) -> s.Sequence:
        name, params, *items = tree.children
        return s.Sequence.trusted(
            **self.place(tree),
            name=str(name),
            params=self.params(params, depth),
            temps=tuple(self.temp(item, depth + 2) for item in items if item.data == "temp"),
            steps=tuple(self.step(item, depth + 2) for item in items if item.data == "step"),
        )

    def temp(self, tree: Part, depth: int) -> s.Temp:
        name, type_, attrs = tree.children
        return s.Temp.trusted(
            **self.place(tree), name=str(name), type=self.type(type_, depth + 1), attrs=self.attrs(attrs, depth)
        )

    def step(self, tree: Part, depth: int) -> s.Step:
        name, args = tree.children
        positional, keywords = self.args(args, depth)
        return s.Step.trusted(**self.place(tree), name=str(name), args=positional, kwargs=keywords)

    def params(self, tree: Part, depth: int) -> tuple[s.Param, ...]:
        params = []
        for child in tree.children:
            direction, name, type_, attrs, guard = child.children
            params.append(
                s.Param.trusted(
                    span=self.span(child),
                    direction=str(direction) if direction else "in",
                    name=str(name),
                    type=self.type(type_, depth + 3),
                    attrs=self.attrs(attrs, depth + 2),
                    guard=self.guard(guard, depth + 3),
                )
            )
        return tuple(params)

    # -- declarations

    def const(self, tree: Part, depth: int) -> s.Const:
        name, choices, value = tree.children
        return s.Const.trusted(
            **self.place(tree),
            name=str(name),
            choices=self.exprs(choices.children[0], depth) if choices else (),
            value=self.expr(value, depth + 1),
        )

    def where(self, tree: Part, depth: int) -> s.Where:
        return s.Where.trusted(**self.place(tree), conditions=self.exprs(tree, depth))

    def assume(self, tree: Part, depth: int) -> s.Assume:
        return s.Assume.trusted(**self.place(tree), predicates=self.exprs(tree, depth))

    def define(self, tree: Part, depth: int) -> s.Define:
        name, value = tree.children
        return s.Define.trusted(**self.place(tree), name=str(name), value=self.expr(value, depth + 1))

    def tiles(self, tree: Part, depth: int) -> s.Tiles:
        schedule, *items = tree.children
        nodes = tuple(getattr(self, item.data)(item, depth + 2) for item in items if item.data != "error")
        return s.Tiles.trusted(**self.place(tree), schedule=self.attr(schedule, depth + 1), items=nodes)

    def axis(self, tree: Part, depth: int) -> s.Axis:
        name, extent, attrs = tree.children
        return s.Axis.trusted(
            **self.place(tree), name=str(name), extent=self.expr(extent, depth + 1), attrs=self.attrs(attrs, depth)
        )

    def role(self, tree: Part, depth: int) -> s.Role:
        name, instances, warps, registers = tree.children
        return s.Role.trusted(
            **self.place(tree),
            name=str(name),
            instances=self.optional(instances, depth + 1),
            warps=self.expr(warps, depth + 1),
            registers=self.optional(registers, depth + 1),
        )

    def pipeline(self, tree: Part, depth: int) -> s.Pipeline:
        name, stages, producers, one, consumers, across, fields = tree.children
        return s.Pipeline.trusted(
            **self.place(tree),
            name=str(name),
            stages=self.expr(stages, depth + 1),
            producers=_names(producers),
            consumers=_names(consumers),
            one=one is not None,
            across=_maybe(across),
            fields=tuple(s.Field.trusted(**self.buffer(f, depth + 2)) for f in fields.children if f.data == "field"),
        )

    def smem(self, tree: Part, depth: int) -> s.Smem:
        return s.Smem.trusted(**self.buffer(tree, depth))

    def buffer(self, tree: Part, depth: int) -> dict[str, Any]:
        name, type_, attrs, guard = tree.children
        return {
            **self.place(tree),
            "name": str(name),
            "type": self.type(type_, depth + 1),
            "attrs": self.attrs(attrs, depth),
            "guard": self.guard(guard, depth + 1),
        }

    def turn(self, tree: Part, depth: int) -> s.Turn:
        del depth
        name, role = tree.children
        return s.Turn.trusted(**self.place(tree), name=str(name), role=str(role))

    def do(self, tree: Part, depth: int) -> s.Do:
        role, var, body = tree.children
        return s.Do.trusted(**self.place(tree), role=str(role), var=_maybe(var), body=self.body(body, depth))

    # -- statements

    def body(self, tree: Part, depth: int) -> tuple[Any, ...]:
        if depth > MAX_DEPTH:
            self.too_deep(tree)
            return ()
        return tuple(
            getattr(self, f"{child.data}_stmt", getattr(self, child.data, None))(child, depth + 2)  # type: ignore[misc]
            for child in tree.children
            if child.data != "error"
        )

    def declare(self, tree: Part, depth: int) -> s.Declare:
        name, type_, attrs, value = tree.children
        return s.Declare.trusted(
            **self.place(tree),
            name=str(name),
            type=self.type(type_, depth + 1),
            attrs=self.attrs(attrs, depth),
            value=self.optional(value, depth + 1),
        )

    def assign(self, tree: Part, depth: int) -> s.Assign:
        names, value = tree.children
        return s.Assign.trusted(**self.place(tree), targets=_names(names), value=self.expr(value, depth + 1))

    def expr_stmt(self, tree: Part, depth: int) -> s.ExprStmt:
        return s.ExprStmt.trusted(**self.place(tree), expr=self.expr(tree.children[0], depth + 1))

    def pass_stmt(self, tree: Part, depth: int) -> s.Pass:
        del depth
        return s.Pass.trusted(**self.place(tree))

    def for_stmt(self, tree: Part, depth: int) -> s.For:
        var, iterated, split, body = tree.children
        pieces, keywords = self.args(split, depth)
        self.no_keywords(keywords, "split")
        return s.For.trusted(
            **self.place(tree),
            var=str(var),
            iter=self.expr(iterated, depth + 1),
            split=pieces,
            body=self.body(body, depth),
        )

    def with_stmt(self, tree: Part, depth: int) -> s.With:
        expr, name, body = tree.children
        return s.With.trusted(
            **self.place(tree), expr=self.expr(expr, depth + 1), name=_maybe(name), body=self.body(body, depth)
        )

    def if_stmt(self, tree: Part, depth: int) -> s.If:
        branches = []
        orelse: tuple[Any, ...] = ()
        else_comments = s.NO_COMMENTS
        for i, child in enumerate(tree.children):
            if child is None:
                continue
            if child.data == "else":
                orelse = self.body(child.children[0], depth)
                else_comments = self.comments.get(child.meta.line, s.NO_COMMENTS)
                continue
            cond, body = child.children
            # The comments of the first line are those of the statement.
            place = self.place(child) if i else {"span": self.span(child)}
            branches.append(s.Branch.trusted(**place, cond=self.expr(cond, depth + 3), body=self.body(body, depth + 2)))
        return s.If.trusted(**self.place(tree), branches=tuple(branches), orelse=orelse, else_comments=else_comments)

    # -- types and attributes

    def type(self, tree: Part, depth: int) -> s.TypeRef:
        dtype, dims = tree.children
        return s.TypeRef.trusted(span=self.span(tree), dtype=str(dtype), dims=self.exprs(dims, depth) if dims else ())

    def attrs(self, tree: Part, depth: int) -> tuple[s.Attr, ...]:
        return tuple(self.attr(child, depth + 2) for child in tree.children)

    def attr(self, tree: Part, depth: int) -> s.Attr:
        name, args = tree.children
        positional, keywords = self.args(args, depth)
        self.no_keywords(keywords, str(name))
        return s.Attr.trusted(span=self.span(tree), name=str(name), args=positional)

    def guard(self, tree: Part, depth: int) -> Any:
        return None if tree is None else self.expr(tree.children[0], depth)

    # -- expressions

    def exprs(self, tree: Part, depth: int) -> tuple[Any, ...]:
        return tuple(self.expr(child, depth + 2) for child in tree.children)

    def optional(self, tree: Part, depth: int) -> Any:
        return None if tree is None else self.expr(tree, depth)

    def expr(self, tree: Part, depth: int) -> Any:
        """An expression at ``depth`` levels of the JSON form."""
        if depth > MAX_DEPTH:
            self.too_deep(tree)
            return s.Name.trusted(name="_")
        kids = tree.children
        span = self.span(tree)
        match tree.data:
            case "name":
                return s.Name.trusted(span=span, name=str(kids[0]))
            case "number":
                text = kids[0].value
                return s.Number.trusted(span=span, value=int(text) if text.isdigit() else float(text), text=text)
            case "bool":
                return s.Bool.trusted(span=span, value=kids[0] == "True")
            case "neg" | "not":
                return s.Unary.trusted(span=span, op=str(tree.data), operand=self.expr(kids[0], depth + 1))
            case "and" | "or":
                return self.binary(span, str(tree.data), kids[0], kids[1], depth)
            case "binary":
                return self.binary(span, kids[1].value, kids[0], kids[2], depth)
            case "cmp":
                return self.comparison(tree, span, depth)
            case "attribute":
                return s.Attribute.trusted(span=span, base=self.expr(kids[0], depth + 1), name=str(kids[1]))
            case "call":
                positional, keywords = self.args(kids[1], depth)
                return s.Call.trusted(span=span, func=self.expr(kids[0], depth + 1), args=positional, kwargs=keywords)
            case "index":
                subs = tuple(self.sub(child, depth + 2) for child in kids[1].children)
                return s.Index.trusted(span=span, base=self.expr(kids[0], depth + 1), subs=subs)
            case "ternary":
                return self.ternary(tree, span, depth)
        raise AssertionError(tree.data)

    def binary(self, span: Span, op: str, left: Part, right: Part, depth: int) -> s.Binary:
        return s.Binary.trusted(
            span=span,
            op=op,
            left=self.expr(left, depth + 1),
            right=self.expr(right, depth + 1),
        )

    def sub(self, tree: Part, depth: int) -> Any:
        if tree.data != "slice":
            return self.expr(tree, depth)
        lo, hi, step = (self.optional(child, depth + 1) for child in tree.children)
        return s.Slice.trusted(span=self.span(tree), lo=lo, hi=hi, step=step)

    def args(self, tree: Part, depth: int) -> tuple[tuple[Any, ...], tuple[s.Kwarg, ...]]:
        """Positional and keyword arguments."""
        positional: list[Any] = []
        keywords: list[s.Kwarg] = []
        for child in tree.children if tree is not None else ():
            if child.data == "kwarg":
                name, value = child.children
                if any(name == keyword.name for keyword in keywords):
                    self.findings.error("S006", f"the argument `{name}` is given twice", token_span(self.name, name))
                value_node = self.expr(value, depth + 3)
                keywords.append(s.Kwarg.trusted(span=self.span(child), name=str(name), value=value_node))
            else:
                if keywords:
                    self.findings.error(
                        "S006",
                        "an argument without a name follows one with a name",
                        self.span(child),
                        help="put the arguments without a name first",
                    )
                positional.append(self.expr(child, depth + 2))
        return tuple(positional), tuple(keywords)

    # -- forms that exist only to be reported

    def comparison(self, tree: Part, span: Span, depth: int) -> Any:
        first, op, second, *rest = tree.children
        node = self.binary(span, op.value, first, second, depth)
        if rest:
            operands = [self.expr(child, depth + 1) for child in tree.children[::2]]
            ops = [token.value for token in tree.children[1::2]]
            pairs = zip(operands, ops, operands[1:], strict=False)
            parts = [format_expr(s.Binary.trusted(op=o, left=a, right=b)) for a, o, b in pairs]
            edit = Edit(span=span, replacement=" and ".join(parts))
            self.findings.error(
                "S105",
                "comparisons are not chained",
                span,
                help="write two comparisons and `and`",
                fix=Fix(message="compare twice", edits=(edit,)),
            )
        return node

    def ternary(self, tree: Part, span: Span, depth: int) -> Any:
        value, cond, other = (self.expr(child, depth + 1) for child in tree.children)
        node = s.Call.trusted(span=span, func=s.Name(span=span, name="where"), args=(cond, value, other))
        self.findings.error(
            "S119",
            "`a if c else b` is not an expression of Cake",
            span,
            help="`where(c, a, b)` chooses, for scalars and for each element of tiles",
            fix=Fix(message="use `where`", edits=(Edit(span=span, replacement=format_expr(node)),)),
        )
        return node

    def no_keywords(self, keywords: tuple[s.Kwarg, ...], what: str) -> None:
        for keyword in keywords:
            self.findings.error("S006", f"`{what}` takes arguments without names", keyword.span)

    def too_deep(self, tree: Part) -> None:
        self.findings.error(
            "S005", "the text is nested too deeply", self.span(tree), help="name the inner parts, or flatten the blocks"
        )

    # -- places

    def span(self, tree: Tree[Any]) -> Span:
        meta = tree.meta
        return Span(
            file=self.name,
            line=meta.line,
            column=meta.column,
            end_line=meta.end_line,
            end_column=meta.end_column,
        )

    def header(self, tree: Tree[Any]) -> Span:
        """The place where a declaration starts."""
        meta = tree.meta
        return Span(file=self.name, line=meta.line, column=meta.column, end_line=meta.line, end_column=meta.column + 1)

    def place(self, tree: Tree[Any]) -> dict[str, Any]:
        """The span and comments of a node with lines of its own."""
        return {"span": self.span(tree), "comments": self.comments.get(tree.meta.line, s.NO_COMMENTS)}


_DECLARATIONS = {
    "const": "consts",
    "where": "wheres",
    "assume": "assumes",
    "define": "defines",
    "tiles": "tiles",
    "role": "roles",
    "pipeline": "pipelines",
    "smem": "smems",
    "turn": "turns",
    "do": "dos",
}


def _names(tree: Part) -> tuple[str, ...]:
    return tuple(str(token) for token in tree.children)


def _maybe(token: Token | None) -> str | None:
    return None if token is None else str(token)
