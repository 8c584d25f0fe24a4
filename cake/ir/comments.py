"""Which node a comment belongs to.

A comment at the end of a line belongs to the line. One on a line of its own belongs to the line below it if that is
indented at least as far, and otherwise to the node that it is written under: the nearest line above that is not
indented further than the comment.
"""

from __future__ import annotations

from cake.ir.lexer import Source
from cake.ir.surface import Comments


def attach(source: Source) -> dict[int, Comments]:
    """The comments of each logical line, by the number of the line it starts on; 0 for a file that has no lines."""
    before: dict[int, list[str]] = {}
    below: dict[int, list[str]] = {}
    after: dict[int, str] = {}
    above: list[tuple[int, int]] = []  # (indent, line) of the lines that a comment could be under, outermost first

    def place(comments: list[tuple[int, str]], indent: int, line: int) -> None:
        limit = max((column for column, _ in comments), default=0)
        for column, text in comments:
            # Comments keep their order: none goes further in than the one before it.
            column = limit = min(column, limit)
            owner = next((number for level, number in reversed(above) if level <= column), None)
            if column <= indent or owner is None:
                before.setdefault(line, []).append(text)
            else:
                below.setdefault(owner, []).append(text)

    for logical in source.lines:
        number = logical.tokens[0].line or 0
        place(logical.comments, logical.indent, number)
        while above and above[-1][0] >= logical.indent:
            above.pop()
        above.append((logical.indent, number))
        if logical.after is not None:
            after[number] = logical.after
    place(source.tail, -1, 0)
    return {
        number: Comments(
            before=tuple(before.get(number, ())), after=after.get(number), below=tuple(below.get(number, ()))
        )
        for number in before.keys() | below.keys() | after.keys()
    }
