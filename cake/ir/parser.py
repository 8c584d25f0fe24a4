"""From text to the surface IR.

``parse`` reads a text, ``read_source`` a file. Whatever the text, they return or raise :class:`CakeError`; several
independent mistakes are reported together. Lines are the unit of recovery: a line with a mistake is replaced by an
error token (or, if it opens a block, by a plain header of its kind) and reading goes on.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedToken
from lark.lexer import Lexer as LarkLexer
from lark.parsers.lalr_analysis import Shift
from lark.parsers.lalr_interactive_parser import InteractiveParser

from cake.diagnostics import CakeError, Diagnostic, Findings, Span
from cake.ir import surface
from cake.ir.blocks import Block, nest
from cake.ir.build import Builder
from cake.ir.comments import attach
from cake.ir.expected import explain_unexpected
from cake.ir.habits import rewrite_line
from cake.ir.idioms import check_idioms
from cake.ir.lexer import MAX_SOURCE, SOFT, LimitedFindings, Source, TooManyFindings, scan, token_span


class _NoLexer(LarkLexer):
    """Stands for Lark's own lexer: tokens are handed to the parser one by one."""

    __future_interface__ = 1

    def __init__(self, conf: Any) -> None:
        del conf

    def lex(self, lexer_state: Any, parser_state: Any) -> Any:
        """Give no token."""
        return iter(())


def _cache_file() -> str | bool:
    """Where the parse tables are kept between processes, or False if there is no place for them."""
    root = os.environ.get("CAKE_CACHE_DIR") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "cake"
    )
    try:
        os.makedirs(root, exist_ok=True)
    except OSError:
        return False
    return os.path.join(root, "grammar.tables")


@cache
def grammar() -> Lark:
    """The compiled grammar."""
    text = Path(__file__).with_name("grammar.lark").read_text(encoding="utf-8")
    return Lark(
        text, parser="lalr", lexer=_NoLexer, propagate_positions=True, maybe_placeholders=True, cache=_cache_file()
    )


# What a line that opens a block is replaced by when it has a mistake, so that its block can still be read.
_HEADERS = {
    "kernel": "KERNEL NAME LPAR NAME COLON NAME RPAR FOR NAME COLON",
    "sequence": "SEQUENCE NAME LPAR NAME COLON NAME RPAR COLON",
    "tiles": "TILES NAME COLON",
    "pipeline": "PIPELINE NAME LSQB NAME RSQB NAME ARROW NAME COLON",
    "do": "DO NAME COLON",
    "for": "FOR NAME IN NAME COLON",
    "with": "WITH NAME COLON",
    "while": "IF NAME COLON",
    "if": "IF NAME COLON",
    "elif": "ELIF NAME COLON",
    "else": "ELSE COLON",
}


class _Driver:
    """Feeds the lines of a file to the LALR parser."""

    def __init__(self, source: Source, findings: Findings) -> None:
        self.file = source.file
        self.findings = findings
        self.parser: InteractiveParser = grammar().parse_interactive("")
        self.last = Token("_NL", "", 0, 1, 1, 1, 1, 0)

    def run(self, blocks: list[Block]) -> Tree[Any]:
        for block in blocks:
            self.block(block)
        tree: Tree[Any] = self.parser.feed_token(self._mark("$END"))
        return tree

    def block(self, block: Block) -> None:
        line = block.line
        before = self.parser.copy(deepcopy_values=False)
        if line.bad or not rewrite_line(line, self.file, self.findings) or not self._line(block):
            self.parser = before
            if not self.findings.errors:
                # Every way here reports something; a text must not pass because one of them forgot.
                self.findings.error("S001", "the line cannot be read", token_span(self.file, line.tokens[0]))
            if not self._stand_in(block):
                return
        if block.body is not None or block.missing:
            self._feed(self._mark("_INDENT"))
            for inner in block.body or ():
                self.block(inner)
            if not block.body:
                self._error_line()
            self._feed(self._mark("_DEDENT"))

    def _line(self, block: Block) -> bool:
        """Feed a line as it is written; False after a finding."""
        for i, token in enumerate(block.line.tokens):
            soft = SOFT.get(token.value) if token.type == "NAME" else None
            fed = token
            if soft is not None and self._can_follow(soft):
                fed = Token.new_borrow_pos(soft, token, token)
                fed.value = token.value
            try:
                self._feed(fed)
            except UnexpectedToken:
                explain_unexpected(self.file, block.line, i, self.parser.accepts(), self.findings)
                return False
            self.last = token
        try:
            self._feed(self._mark("_NL"))
        except UnexpectedToken:
            explain_unexpected(self.file, block.line, len(block.line.tokens), self.parser.accepts(), self.findings)
            return False
        if (block.body is not None or block.missing) and "_INDENT" not in self.parser.choices():
            # A pipeline without fields is a whole line; with fields it ends with a colon.
            end = block.line.tokens[-1]
            self.findings.error(
                "S001",
                "expected `:` at the end of the line, since an indented line follows",
                token_span(self.file, end),
                help="a line that opens a block ends with `:`",
            )
            return False
        return True

    def _can_follow(self, kind: str) -> bool:
        """Whether a token can come next. One entry of the table does not say: a state stands for several places."""
        state = self.parser.parser_state
        table = state.parse_conf.parse_table.states
        stack = list(state.state_stack)
        while kind in table[stack[-1]]:
            action, rule = table[stack[-1]][kind]
            if action is Shift:
                return True
            # A reduction: take the parts of the rule off, and go on from where the whole stands.
            del stack[len(stack) - len(rule.expansion) :]
            stack.append(table[stack[-1]][rule.origin.name][1])
        return False

    def _stand_in(self, block: Block) -> bool:
        """Put something plain in the place of a line with a mistake; False if its block has to be skipped."""
        if block.body is not None or block.missing:
            before = self.parser.copy(deepcopy_values=False)
            header = _HEADERS.get(block.line.tokens[0].value, "")
            try:
                for kind in [*header.split(), "_NL"]:
                    self._feed(self._mark(kind, block.line.tokens[0]))
                return True
            except UnexpectedToken:
                self.parser = before
        self._error_line()
        return False

    def _error_line(self) -> None:
        self._feed(self._mark("ERROR"))
        self._feed(self._mark("_NL"))

    def _feed(self, token: Token) -> None:
        self.parser.feed_token(token)

    def _mark(self, kind: str, at: Token | None = None) -> Token:
        """A token without text, at the end of the last token or at the start of ``at``."""
        if at is not None:
            return Token(kind, "_", at.start_pos, at.line, at.column, at.line, at.column, at.start_pos)
        end = self.last
        return Token(kind, "", end.end_pos, end.end_line, end.end_column, end.end_line, end.end_column, end.end_pos)


def read_source(path: str | os.PathLike[str]) -> str:
    """The text of a source file, which must be UTF-8."""
    name = os.fspath(path)
    try:
        with open(path, "rb") as stream:
            data = stream.read(MAX_SOURCE + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise CakeError(_file_error(name, f"{name} cannot be read: {reason}")) from None
    try:
        # A byte order mark at the start says nothing.
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if len(data) > MAX_SOURCE:
            return data.decode("utf-8", "replace")
        line = data.count(b"\n", 0, error.start) + 1
        column = len(data[data.rfind(b"\n", 0, error.start) + 1 : error.start].decode("utf-8", "replace")) + 1
        span = Span(file=name, line=line, column=column, end_line=line, end_column=column + 1)
        message = f"byte 0x{data[error.start]:02x} is not UTF-8"
        raise CakeError(_file_error(name, message, span)) from None


def _file_error(file: str, message: str, span: Span | None = None) -> Diagnostic:
    return Diagnostic(code="S009", severity="error", message=message, span=span, help="a source is text in UTF-8")


def parse(text: str, file: str = "<string>") -> surface.File:
    """Parse a source text; raise CakeError with every finding if there is a mistake in it."""
    parsed, diagnostics = parse_all(text, file)
    if parsed is None:
        raise CakeError(*diagnostics)
    return parsed


def parse_all(text: str, file: str = "<string>") -> tuple[surface.File | None, list[Diagnostic]]:
    """Parse a source text; give its file, or None, and all findings in the order of the text."""
    if len(text) > MAX_SOURCE:
        return None, [_file_error(file, f"the source has more than {MAX_SOURCE} characters")]
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        return None, [_file_error(file, f"character U+{ord(text[error.start]):04X} is half of a pair")]
    findings = LimitedFindings()
    parsed: surface.File | None = None
    try:
        source = scan(text, file, findings)
        blocks = nest(source, findings)
        tree = _Driver(source, findings).run(blocks)
        parsed = Builder(file, findings, attach(source)).file(tree)
        check_idioms(parsed, findings)
    except TooManyFindings:
        pass
    ordered = sorted(findings.items, key=lambda d: (d.span.line, d.span.column) if d.span else (0, 0))
    return (None if findings.errors else parsed), ordered


def parse_file(path: str | os.PathLike[str]) -> surface.File:
    """Parse a source file."""
    return parse(read_source(path), os.fspath(path))


__all__ = ["grammar", "parse", "parse_all", "parse_file", "read_source"]
