"""A source text with its statements, and edits of it that keep what their author wrote."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from cake.diagnostics import Edit, Fix, Span
from cake.ir import surface as s
from cake.ir.printer import format_expr


@dataclass(frozen=True)
class Repair:
    """A proposed change, and the line (of the text as it is) that it is about."""

    fix: Fix
    line: int


@dataclass(eq=False)
class Statement:
    """A statement, where it stands: its block and place in it, the statement around it, the role whose program it is in.
    ``first`` and ``last``: its lines."""

    node: s.Stmt
    block: tuple[s.Stmt, ...]
    index: int
    around: Statement | None
    role: str
    kernel: s.Kernel
    first: int
    last: int

    @property
    def call(self) -> s.Call | None:
        """The call that it consists of, or whose result it names; of a ``with``, its head."""
        node = self.node
        value = (
            node.expr
            if isinstance(node, s.ExprStmt | s.With)
            else node.value
            if isinstance(node, s.Assign | s.Declare)
            else None
        )
        return value if isinstance(value, s.Call) else None

    @property
    def function(self) -> str:
        """What it calls, as written."""
        return format_expr(self.call.func) if self.call is not None else ""

    def is_method(self, pipeline: str, name: str) -> bool:
        """``pipeline.name(…)``; ``""``: of any pipeline."""
        base, _, last = self.function.rpartition(".")
        return last == name and (base == pipeline or (not pipeline and base in {p.name for p in self.kernel.pipelines}))

    def outward(self) -> Iterator[Statement]:
        """The statements round it, the nearest first."""
        at = self.around
        while at is not None:
            yield at
            at = at.around


@dataclass
class Text:
    """A text and what it parses to."""

    text: str
    file: str
    parsed: s.File
    lines: list[str] = field(default_factory=list)
    statements: list[Statement] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lines = self.text.split("\n")
        for kernel in self.parsed.kernels:
            for do in kernel.dos:
                self._walk(do.body, None, do.role, kernel)

    def _walk(self, body: tuple[s.Stmt, ...], around: Statement | None, role: str, kernel: s.Kernel) -> None:
        for i, node in enumerate(body):
            last = node.span.end_line - (1 if node.span.end_column == 1 else 0)
            here = Statement(node, body, i, around, role, kernel, node.span.line, last)
            self.statements.append(here)
            if isinstance(node, s.For | s.With):
                self._walk(node.body, here, role, kernel)
            elif isinstance(node, s.If):
                for branch in node.branches:
                    self._walk(branch.body, here, role, kernel)
                self._walk(node.orelse, here, role, kernel)

    # -- looking up ---------------------------------------------------------------------------------------------------

    def at(self, line: int) -> Statement | None:
        """The innermost statement on a line."""
        found = None
        for statement in self.statements:
            if statement.first <= line <= statement.last:
                found = statement
        return found

    def of(self, statement: Statement, index: int) -> Statement:
        """Another statement of the same block."""
        node = statement.block[index]
        return next(t for t in self.statements if t.node is node)

    def kernel_at(self, line: int) -> s.Kernel | None:
        """The kernel that a line belongs to."""
        found = None
        for kernel in self.parsed.kernels:
            if kernel.span.line <= line:
                found = kernel
        return found

    def indent(self, line: int) -> str:
        """What a line begins with."""
        code = self.lines[line - 1]
        return code[: len(code) - len(code.lstrip())]

    # -- edits --------------------------------------------------------------------------------------------------------

    def _fix(self, message: str, line: int, *edits: Edit) -> Repair:
        return Repair(Fix(message=message, edits=edits), line)

    def _edit(self, line: int, column: int, end_line: int, end_column: int, new: str) -> Edit:
        span = Span(file=self.file, line=line, column=column, end_line=end_line, end_column=end_column)
        return Edit(span=span, replacement=new)

    def _insertion(self, line: int, words: str) -> Edit:
        """New lines before a line, which may be one after the last."""
        if line > len(self.lines):
            end = len(self.lines[-1]) + 1
            return self._edit(len(self.lines), end, len(self.lines), end, "\n" + words.rstrip("\n"))
        return self._edit(line, 1, line, 1, words)

    def _removal(self, first: int, last: int) -> Edit:
        if last < len(self.lines):
            return self._edit(first, 1, last + 1, 1, "")
        return self._edit(first, 1, last, len(self.lines[-1]) + 1, "")

    def before(self, there: Statement, words: str, message: str) -> Repair:
        """A new statement before another."""
        return self._fix(message, there.first, self._insertion(there.first, f"{self.indent(there.first)}{words}\n"))

    def after(self, there: Statement, words: str, message: str) -> Repair:
        """A new statement after another."""
        return self._fix(message, there.last, self._insertion(there.last + 1, f"{self.indent(there.first)}{words}\n"))

    def drop(self, there: Statement, message: str) -> Repair:
        """Without a statement."""
        if len(there.block) == 1:
            indent = self.indent(there.first)
            new = self._edit(there.first, len(indent) + 1, there.last, len(self.lines[there.last - 1]) + 1, "pass")
            return self._fix(message, there.first, new)
        return self._fix(message, there.first, self._removal(there.first, there.last))

    def move(self, there: Statement, to: int, message: str) -> Repair:
        """A statement before place ``to`` of its block (the length: at its end)."""
        words = "\n".join(self.lines[there.first - 1 : there.last]) + "\n"
        line = self.of(there, to).first if to < len(there.block) else self.of(there, len(there.block) - 1).last + 1
        return self._fix(message, there.first, self._removal(there.first, there.last), self._insertion(line, words))

    def put(self, node: s.Node, new: str, message: str) -> Repair:
        """Other words for an expression."""
        span = node.span
        edit = self._edit(span.line, span.column, span.end_line, span.end_column, new)
        return self._fix(message, span.line, edit)

    def unwrap(self, there: Statement, body: tuple[s.Stmt, ...], message: str) -> Repair:
        """The body of a block statement without its head."""
        outer, inner = self.indent(there.first), self.indent(body[0].span.line)
        first, last = body[0].span.line, there.last
        words = [
            outer + line[len(inner) :] if line.startswith(inner) else line for line in self.lines[first - 1 : last]
        ]
        text = "\n".join(words)
        return self._fix(message, there.first, self._edit(there.first, 1, last, len(self.lines[last - 1]) + 1, text))

    def wrap(self, first: Statement, last: Statement, head: str, message: str) -> Repair:
        """Statements of one block under a head."""
        indent = self.indent(first.first)
        body = [f"    {line}" if line.strip() else line for line in self.lines[first.first - 1 : last.last]]
        text = "\n".join([f"{indent}{head}", *body])
        end = len(self.lines[last.last - 1]) + 1
        return self._fix(message, first.first, self._edit(first.first, 1, last.last, end, text))


def names(node: s.Node) -> set[str]:
    """All names that an expression or statement mentions."""
    return {n.name for n in s.walk(node) if isinstance(n, s.Name)}
