"""From the surface IR to text: the one canonical form.

Declarations come in the order const, where, assume, definitions, tiles, role, pipeline, smem, turn, do, with one blank
line between groups; parentheses only where the grammar needs them; lines of more than 120 columns broken inside
brackets; comments at the end of a line at column 52 where there is room.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cake.ir import surface as s

WIDTH = 120
COMMENT_COLUMN = 52

# Binding strength of each form, as the levels of the grammar.
_OR, _AND, _NOT, _CMP, _SUM, _TERM, _UNARY, _POSTFIX = range(8)
_LEVELS: dict[str, int] = {
    "or": _OR,
    "and": _AND,
    **dict.fromkeys(["==", "!=", "<", "<=", ">", ">="], _CMP),
    "+": _SUM,
    "-": _SUM,
    **dict.fromkeys(["*", "/", "//", "%"], _TERM),
}


def format_expr(node: s.Node) -> str:
    """An expression or slice on one line."""
    return _expr(node, _OR)


def _expr(node: s.Node, level: int) -> str:
    text, own = _unwrapped(node)
    return text if own >= level else f"({text})"


def _unwrapped(node: s.Node) -> tuple[str, int]:
    match node:
        case s.Name():
            return node.name, _POSTFIX
        case s.Number():
            return node.text, _POSTFIX
        case s.Bool():
            return str(node.value), _POSTFIX
        case s.Unary(op="neg"):
            return "-" + _expr(node.operand, _UNARY), _UNARY
        case s.Unary():
            return "not " + _expr(node.operand, _NOT), _NOT
        case s.Binary():
            own = _LEVELS[node.op]
            # All operators group to the left, and comparisons not at all.
            left = _expr(node.left, _SUM if own == _CMP else own)
            return f"{left} {node.op} {_expr(node.right, own + 1)}", own
        case s.Attribute():
            base = _expr(node.base, _POSTFIX)
            # `1.x` would be the number `1.` and a name.
            return (f"({base}).{node.name}" if isinstance(node.base, s.Number) else f"{base}.{node.name}"), _POSTFIX
        case s.Call():
            return f"{_expr(node.func, _POSTFIX)}({', '.join(_args(node.args, node.kwargs))})", _POSTFIX
        case s.Index():
            return f"{_expr(node.base, _POSTFIX)}[{', '.join(_expr(sub, _OR) for sub in node.subs)}]", _POSTFIX
        case s.Slice():
            return _slice(node), _OR
    raise TypeError(f"not an expression: {type(node).__name__}")


def _slice(node: s.Slice) -> str:
    lo, hi, step = ("" if part is None else _expr(part, _OR) for part in (node.lo, node.hi, node.step))
    colon = " : " if lo and hi else ":"
    return lo + colon + hi + (colon + step if step else "")


def _args(args: Iterable[s.Node], kwargs: Iterable[s.Kwarg]) -> list[str]:
    return [format_expr(arg) for arg in args] + [f"{kw.name}={format_expr(kw.value)}" for kw in kwargs]


def _list(nodes: Iterable[s.Node]) -> str:
    return ", ".join(format_expr(node) for node in nodes)


def _type(node: s.TypeRef) -> str:
    return f"{node.dtype}[{_list(node.dims)}]" if node.dims else node.dtype


def _attr(node: s.Attr) -> str:
    return f"{node.name}({_list(node.args)})" if node.args else node.name


def _typed(name: str, type_: s.TypeRef, attrs: Iterable[s.Attr], guard: s.Node | None = None) -> str:
    text = " ".join([f"{name}: {_type(type_)}", *map(_attr, attrs)])
    return text if guard is None else f"{text} if {format_expr(guard)}"


def _param(node: s.Param) -> str:
    text = _typed(node.name, node.type, node.attrs, node.guard)
    return text if node.direction == "in" else f"{node.direction} {text}"


def _signature(word: str, name: str, params: Sequence[s.Param], tail: str) -> str:
    return f"{word} {name}({', '.join(map(_param, params))}){tail}:"


def _wrap(text: str) -> str:
    """A line that is too long, broken after the commas of its longest bracket and aligned to the opening one.

    Newlines inside brackets mean nothing, so this needs no knowledge of what the line says.
    """
    if len(text) <= WIDTH:
        return text
    start, commas, end = _longest_bracket(text)
    if not commas:
        return text
    lines, begin = [], 0
    margin = ""
    for comma, following in zip(commas, [*commas[1:], end], strict=True):
        stop = len(text) if following == end else following + 1
        if len(margin) + stop - begin > WIDTH:
            lines.append(margin + text[begin : comma + 1])
            begin = comma + 2
            margin = " " * (start + 1)
    return "\n".join([*lines, margin + text[begin:]])


def _longest_bracket(text: str) -> tuple[int, list[int], int]:
    """Where the longest outer bracket opens, its commas, and where it closes."""
    best: tuple[int, list[int], int] = (0, [], 0)
    depth = start = 0
    commas: list[int] = []
    for i, char in enumerate(text):
        if char in "([{":
            if depth == 0:
                start, commas = i, []
            depth += 1
        elif char in ")]}":
            depth -= 1
            if depth == 0 and commas and i - start > best[2] - best[0]:
                best = (start, commas, i)
        elif char == "," and depth == 1:
            commas.append(i)
    return best


class _Printer:
    """Writes lines, with comments where their nodes put them."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.tails: dict[int, str] = {}
        self.carried: tuple[str, ...] = ()
        self.blank = False

    def text(self) -> str:
        """All lines, with the comments at their ends; long lines that follow each other share a column."""
        lines = list(self.lines)
        widths = {i: len(lines[i]) - lines[i].rfind("\n") - 1 for i in self.tails}
        run: list[int] = []
        for i in [*self.tails, -1]:
            long = i >= 0 and widths[i] > COMMENT_COLUMN - 2
            if run and not (long and i == run[-1] + 1):
                column = max(widths[k] for k in run) + 2
                for k in run:
                    lines[k] += " " * (column - widths[k]) + self.tails[k]
                run = []
            if long:
                run.append(i)
            elif i >= 0:
                lines[i] += " " * (COMMENT_COLUMN - widths[i]) + self.tails[i]
        return "\n".join(lines)

    # -- files

    def file(self, node: s.File) -> None:
        self.own_lines((*node.comments.before, *([node.comments.after] if node.comments.after else ())), 0)
        top: list[s.Const | s.Kernel | s.Sequence] = [*node.consts, *node.kernels, *node.sequences]
        for i, item in enumerate(top):
            if i and not (isinstance(item, s.Const) and isinstance(top[i - 1], s.Const)):
                self.blank = True
            last = i == len(top) - 1
            match item:
                case s.Const():
                    self.const(item, 0, last)
                case s.Kernel():
                    self.kernel(item, last)
                case s.Sequence():
                    self.sequence(item, last)
        self.own_lines(node.comments.below, 0)

    def kernel(self, node: s.Kernel, last: bool) -> None:
        tail = f" for {', '.join(node.targets)}"
        self.line(_signature("kernel", node.name, node.params, tail), 0, node.comments)
        groups: list[Sequence[s.Line]] = [
            node.consts,
            [*node.wheres, *node.assumes],
            node.defines,
            [node.tiles] if node.tiles else [],
            node.roles,
            node.pipelines,
            node.smems,
            node.turns,
            *([do] for do in node.dos),
        ]
        groups = [group for group in groups if group]
        for i, group in enumerate(groups):
            self.blank = i > 0
            for j, item in enumerate(group):
                self.declaration(item, i == len(groups) - 1 and j == len(group) - 1)
        self.below(node.comments, 0, last)

    def sequence(self, node: s.Sequence, last: bool) -> None:
        self.line(_signature("sequence", node.name, node.params, ""), 0, node.comments)
        items: list[s.Temp | s.Step] = [*node.temps, *node.steps]
        for i, item in enumerate(items):
            if isinstance(item, s.Temp):
                text = "temp " + _typed(item.name, item.type, item.attrs)
            else:
                text = f"{item.name}({', '.join(_args(item.args, item.kwargs))})"
            self.line(text, 1, item.comments)
            self.below(item.comments, 1, i == len(items) - 1)
        self.below(node.comments, 0, last)

    # -- declarations

    def const(self, node: s.Const, level: int, last: bool) -> None:
        choices = f": {{{_list(node.choices)}}}" if node.choices else ""
        self.line(f"const {node.name}{choices} = {format_expr(node.value)}", level, node.comments)
        self.below(node.comments, level, last)

    def declaration(self, node: s.Line, last: bool) -> None:
        match node:
            case s.Const():
                self.const(node, 1, last)
                return
            case s.Where() | s.Assume() | s.Define():
                self.line(_condition(node), 1, node.comments)
            case s.Tiles():
                self.line(f"tiles {_attr(node.schedule)}:", 1, node.comments)
                for i, item in enumerate(node.items):
                    text = _axis(item) if isinstance(item, s.Axis) else _condition(item)
                    self.line(text, 2, item.comments)
                    self.below(item.comments, 2, i == len(node.items) - 1)
            case s.Role():
                many = "" if node.instances is None else f"[{format_expr(node.instances)}]"
                registers = "" if node.registers is None else f", registers {format_expr(node.registers)}"
                self.line(f"role {node.name}{many}: warps {format_expr(node.warps)}{registers}", 1, node.comments)
            case s.Pipeline():
                ends = " + ".join(node.producers) + " -> " + "one " * node.one + " + ".join(node.consumers)
                ends += f" across({node.across})" if node.across is not None else ""
                colon = ":" if node.fields else ""
                self.line(f"pipeline {node.name}[{format_expr(node.stages)}] {ends}{colon}", 1, node.comments)
                for i, field in enumerate(node.fields):
                    self.line(_typed(field.name, field.type, field.attrs, field.guard), 2, field.comments)
                    self.below(field.comments, 2, i == len(node.fields) - 1)
            case s.Smem():
                self.line("smem " + _typed(node.name, node.type, node.attrs, node.guard), 1, node.comments)
            case s.Turn():
                self.line(f"turn {node.name}: {node.role}", 1, node.comments)
            case s.Do():
                self.line(f"do {node.role}{_as(node.var)}:", 1, node.comments)
                self.body(node.body, 2)
            case _:
                raise TypeError(f"not a declaration: {type(node).__name__}")
        self.below(node.comments, 1, last)

    # -- statements

    def body(self, body: Sequence[s.Node], level: int) -> None:
        for i, stmt in enumerate(body):
            self.statement(stmt, level, i == len(body) - 1)

    def statement(self, node: s.Node, level: int, last: bool) -> None:
        assert isinstance(node, s.Line)
        match node:
            case s.Declare():
                value = "" if node.value is None else f" = {format_expr(node.value)}"
                self.line(_typed(node.name, node.type, node.attrs) + value, level, node.comments)
            case s.Assign():
                self.line(f"{', '.join(node.targets)} = {format_expr(node.value)}", level, node.comments)
            case s.ExprStmt():
                self.line(format_expr(node.expr), level, node.comments)
            case s.Pass():
                self.line("pass", level, node.comments)
            case s.For():
                split = f" split({_list(node.split)})" if node.split else ""
                self.line(f"for {node.var} in {format_expr(node.iter)}{split}:", level, node.comments)
                self.body(node.body, level + 1)
            case s.With():
                self.line(f"with {format_expr(node.expr)}{_as(node.name)}:", level, node.comments)
                self.body(node.body, level + 1)
            case s.If():
                self.conditional(node, level)
            case _:
                raise TypeError(f"not a statement: {type(node).__name__}")
        self.below(node.comments, level, last)

    def conditional(self, node: s.If, level: int) -> None:
        for i, branch in enumerate(node.branches):
            comments = branch.comments
            if i == 0:
                first = node.comments
                after = " ".join(text for text in (first.after, comments.after) if text) or None
                comments = s.Comments(before=first.before + comments.before, after=after, below=comments.below)
            self.line(f"{'elif' if i else 'if'} {format_expr(branch.cond)}:", level, comments)
            self.body(branch.body, level + 1)
            self.below(comments, level, i == len(node.branches) - 1 and not node.orelse)
        if node.orelse:
            self.line("else:", level, node.else_comments)
            self.body(node.orelse, level + 1)
            self.below(node.else_comments, level, True)

    # -- lines and comments

    def line(self, text: str, level: int, comments: s.Comments) -> None:
        if self.blank:
            self.lines.append("")
            self.blank = False
        self.own_lines(self.carried + comments.before, level)
        self.carried = ()
        text = _wrap("    " * level + text)
        if comments.after:
            self.tails[len(self.lines)] = comments.after
        self.lines.append(text)

    def own_lines(self, texts: Iterable[str], level: int) -> None:
        self.lines.extend("    " * level + text for text in texts)

    def below(self, comments: s.Comments, level: int, last: bool) -> None:
        """Comments under a node; those of a node that others follow go to the next one."""
        if last:
            self.own_lines(self.carried + comments.below, level)
            self.carried = ()
        else:
            self.carried += comments.below


def _axis(node: s.Axis) -> str:
    return " ".join([f"{node.name} in {format_expr(node.extent)}", *map(_attr, node.attrs)])


def _condition(node: s.Where | s.Assume | s.Define) -> str:
    match node:
        case s.Where():
            return f"where {_list(node.conditions)}"
        case s.Assume():
            return f"assume {_list(node.predicates)}"
        case s.Define():
            return f"{node.name} = {format_expr(node.value)}"


def _as(name: str | None) -> str:
    return "" if name is None else f" as {name}"


def format_file(file: s.File) -> str:
    """The canonical text of a file; it ends with a newline unless the file is empty."""
    printer = _Printer()
    printer.file(file)
    return printer.text() + "\n" if printer.lines else ""


def format_node(node: s.Node) -> str:
    """The canonical text of any one node, for messages and diffs."""
    printer = _Printer()
    match node:
        case s.File():
            return format_file(node)
        case s.Kernel():
            printer.kernel(node, True)
        case s.Sequence():
            printer.sequence(node, True)
        case s.TypeRef():
            return _type(node)
        case s.Attr():
            return _attr(node)
        case s.Param():
            return _param(node)
        case s.Kwarg():
            return f"{node.name}={format_expr(node.value)}"
        case s.Const():
            printer.const(node, 0, True)
        case s.Axis():
            return _axis(node)
        case s.Where() | s.Assume() | s.Define():
            return _condition(node)
        case s.Declare() | s.Assign() | s.ExprStmt() | s.Pass() | s.For() | s.With() | s.If():
            printer.statement(node, 0, True)
        case s.Field():
            return _typed(node.name, node.type, node.attrs, node.guard)
        case s.Line() if type(node) in (s.Tiles, s.Role, s.Pipeline, s.Smem, s.Turn, s.Do):
            printer.declaration(node, True)
        case _:
            return format_expr(node)
    text = printer.text()
    indent = len(text) - len(text.lstrip(" "))
    return "\n".join(line[indent:] for line in text.split("\n"))
