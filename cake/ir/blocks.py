"""From indentation to blocks: a tree of logical lines, each with the lines indented under it."""

from __future__ import annotations

from dataclasses import dataclass, field

from lark import Token

from cake.diagnostics import Findings
from cake.ir.lexer import LogicalLine, Source, token_span

OPENERS = frozenset(
    [
        *("kernel", "sequence", "tiles", "pipeline", "do", "for", "with", "if", "elif", "else"),
        *("while", "def", "class", "try", "finally", "except", "match", "async"),
    ]
)
"""First words of lines that open a block when they end with a colon."""

MAX_BLOCKS = 40
"""Levels of indentation that are looked into."""


@dataclass(slots=True)
class Block:
    """A line and the lines of its block; ``body`` is None where the line opens no block."""

    line: LogicalLine
    body: list[Block] | None = None
    missing: bool = field(default=False)
    """The line announces a block and none follows (reported)."""


def opens_block(line: LogicalLine) -> bool:
    """Whether the line announces a block."""
    return len(line.tokens) > 1 and line.tokens[-1].type == "COLON" and line.tokens[0].value in OPENERS


def _lacks_colon(line: LogicalLine) -> bool:
    """Whether a line that is followed by a deeper one only forgot its colon; the parser will say so."""
    first = line.tokens[0]
    return (
        first.value in OPENERS
        and line.tokens[-1].type != "COLON"
        and (first.type != "NAME" or (len(line.tokens) > 1 and line.tokens[1].type == "NAME"))
    )


def nest(source: Source, findings: Findings) -> list[Block]:
    """Arrange the lines in blocks, reporting indentation that fits none."""
    top: list[Block] = []
    # Columns and lists of the blocks that are open. An unexpected indent opens a level that shares the list.
    levels: list[tuple[int, list[Block]]] = [(0, top)]
    previous: Block | None = None
    for line in source.lines:
        first = line.tokens[0]
        deeper = line.indent > levels[-1][0]
        if previous is not None and (opens_block(previous.line) or (deeper and _lacks_colon(previous.line))):
            if deeper:
                previous.body = []
                levels.append((line.indent, previous.body))
            else:
                _report_missing(source.file, previous, findings)
        elif deeper:
            findings.error(
                "S002",
                "the line is indented, but the line before it opens no block",
                token_span(source.file, first),
                help="a block follows a line that ends with `:`" if previous else "a file starts at the left margin",
            )
            levels.append((line.indent, levels[-1][1]))
        if line.indent < levels[-1][0]:
            _dedent(source.file, line, first, levels, findings)
        if len(levels) > MAX_BLOCKS:
            findings.error("S005", "blocks are nested too deeply", token_span(source.file, first))
            return top
        previous = Block(line)
        levels[-1][1].append(previous)
    if previous is not None and opens_block(previous.line):
        _report_missing(source.file, previous, findings)
    return top


def _dedent(
    file: str, line: LogicalLine, first: Token, levels: list[tuple[int, list[Block]]], findings: Findings
) -> None:
    while line.indent < levels[-1][0]:
        column, body = levels.pop()
    if line.indent > levels[-1][0]:
        findings.error(
            "S002",
            "the indentation fits no open block",
            token_span(file, first),
            help=f"indent by {levels[-1][0]} or by {column} spaces",
        )
        levels.append((line.indent, body))


def _report_missing(file: str, block: Block, findings: Findings) -> None:
    block.missing = True
    findings.error(
        "S002",
        "the line announces a block, but no indented line follows",
        token_span(file, block.line.tokens[0], block.line.tokens[-1]),
        help="indent the block by four spaces, or write `pass`",
    )
