"""From text to logical lines: tokens, indentation, and the comments that belong to each line.

A logical line ends at a newline outside brackets. Findings made here mark their line as ``bad``, so that the parser
does not complain about it a second time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from lark import Token

from cake.diagnostics import Diagnostic, Edit, Findings, Fix, Label, Span

MAX_SOURCE = 4 * 1024 * 1024
"""Larger sources are refused; the largest kernel known has 8 KiB."""

MAX_FINDINGS = 50
"""After so many, one more says nothing new."""

MAX_UNCLOSED = 20
"""Each unclosed bracket costs a second look at the rest of the text; after so many, lines end where they end."""

RESERVED = {
    "and": "AND",
    "as": "AS",
    "elif": "ELIF",
    "else": "ELSE",
    "for": "FOR",
    "if": "IF",
    "in": "IN",
    "not": "NOT",
    "or": "OR",
    "pass": "PASS",
    "with": "WITH",
    "True": "TRUE",
    "False": "FALSE",
}
"""Words that are keywords everywhere, with their token types."""

SOFT = {
    "kernel": "KERNEL",
    "sequence": "SEQUENCE",
    "const": "CONST",
    "where": "WHERE",
    "assume": "ASSUME",
    "tiles": "TILES",
    "role": "ROLE",
    "warps": "WARPS",
    "registers": "REGISTERS",
    "pipeline": "PIPELINE",
    "one": "ONE",
    "across": "ACROSS",
    "smem": "SMEM",
    "turn": "TURN",
    "do": "DO",
    "temp": "TEMP",
    "split": "SPLIT",
    "out": "DIR",
    "inout": "DIR",
}
"""Words that are keywords only where the grammar has room for them; elsewhere they are names."""

FOREIGN = frozenset(
    [
        *("None", "async", "await", "break", "class", "continue", "def", "del", "except", "finally", "from", "global"),
        *("import", "is", "lambda", "nonlocal", "raise", "return", "try", "while", "yield"),
    ]
)
"""Python's other reserved words: never names in Cake, so that habits can be recognised."""

OPERATORS = {
    "(": "LPAR",
    ")": "RPAR",
    "[": "LSQB",
    "]": "RSQB",
    "{": "LBRACE",
    "}": "RBRACE",
    ":": "COLON",
    ",": "COMMA",
    ".": "DOT",
    "=": "EQUAL",
    "+": "PLUS",
    "-": "MINUS",
    "->": "ARROW",
    **dict.fromkeys(["*", "/", "//", "%"], "MUL"),
    **dict.fromkeys(["==", "!=", "<", "<=", ">", ">="], "CMP"),
}

CLOSERS = {")": "(", "]": "[", "}": "{"}

LOOKALIKES = {
    "\u00a0": " ",
    "\u2003": " ",
    "\u200b": "",
    "\ufeff": "",
    "\u2018": "'",
    "\u2019": "'",
    "\u201c": '"',
    "\u201d": '"',
    "\u2212": "-",
    "\u2013": "-",
    "\u2014": "-",
    "\u00d7": "*",
    "\u00b7": "*",
    "\u2264": "<=",
    "\u2265": ">=",
    "\u2260": "!=",
    "\u2192": "->",
    "\uff08": "(",
    "\uff09": ")",
    "\uff0c": ",",
    "\uff1a": ":",
}
"""Characters that word processors and chat windows put in, and what was meant."""

_TOKEN = re.compile(
    r"""
      (?P<space>[ \t]+)
    | (?P<comment>\#[^\n]*)
    | (?P<newline>\n)
    | (?P<number>(?:\d+\.\d*(?:e[+-]?\d+)?|\d+e[+-]?\d+|\d+)(?P<junk>[\w.]*))
    | (?P<string>[A-Za-z]{0,2}(?:'{3}(?:[^\\]|\\.)*?'{3}|"{3}(?:[^\\]|\\.)*?"{3}
                                |'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"))
    | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<op>->|==|!=|<=|>=|//=|\*\*=|<<=|>>=|//|\*\*|<<|>>|[-+*/%@&|^]=|:=|&&|\|\||[-+*/%<>=()\[\]{}:,.@&|^~!;?])
    | (?P<continuation>\\[ \t]*\n)
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)


class TooManyFindings(Exception):
    """Ends the reading of a text that is not a Cake program."""


class LimitedFindings(Findings):
    """Findings that end the reading at some number, so that reporting on garbage takes no longer than on a program."""

    def add(self, diagnostic: Diagnostic) -> None:
        """Record a finding, and stop if it was the last one worth making."""
        super().add(diagnostic)
        if len(self.items) >= MAX_FINDINGS:
            raise TooManyFindings


_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_STATEMENT = re.compile(
    r"(?:for|with|pass|elif|else)\b|(?:kernel|sequence|const|tiles|role|pipeline|smem|turn|do|temp)[ \t]+[A-Za-z_]"
)
_HEADER = re.compile(
    r"[ \t]*(?:kernel|sequence|tiles|pipeline|do|for|with|if|elif|else|while|def)\b[^#\n]*:[ \t]*(?:\#[^\n]*)?$",
    re.MULTILINE,
)


@dataclass(slots=True)
class LogicalLine:
    """The tokens of one logical line (at least one), where it is indented, and its comments."""

    tokens: list[Token]
    indent: int
    comments: list[tuple[int, str]]
    """Own-line comments before it and those inside its brackets, with their columns from 0."""
    after: str | None = None
    bad: bool = False


@dataclass(slots=True)
class Source:
    """The lines of a file, and the comments that follow the last one."""

    file: str
    lines: list[LogicalLine] = field(default_factory=list)
    tail: list[tuple[int, str]] = field(default_factory=list)


def token_span(file: str, first: Token, last: Token | None = None) -> Span:
    """The span from ``first`` to ``last`` (or of ``first`` alone)."""
    last = last or first
    return Span(
        file=file,
        line=first.line or 0,
        column=first.column or 0,
        end_line=last.end_line or 0,
        end_column=last.end_column or 0,
    )


class Lexer:
    """Makes the logical lines of one text; see :func:`scan`."""

    def __init__(self, text: str, file: str, findings: Findings) -> None:
        self.text = text
        self.source = Source(file)
        self.findings = findings
        self.pos = 0
        self.line = 1
        self.line_start = 0
        self.tokens: list[Token] = []
        self.indent = 0
        self.open: list[Token] = []
        self.comments: list[tuple[int, str]] = []
        self.bad = False
        self.start_state = (0, 1, 0, 0)
        self.unclosed = 0
        self.fresh = True
        """No token since the last line end."""

    def run(self) -> Source:
        """Scan the whole text."""
        while True:
            while self.pos < len(self.text):
                self._step()
            if not self.open:
                break
            self._unclosed()
        self._end_line(None)
        self.source.tail = self.comments
        return self.source

    # -- one token

    def _step(self) -> None:
        match = _TOKEN.match(self.text, self.pos)
        if match is None:
            self._invalid()
            return
        kind = match.lastgroup
        value = match.group()
        if kind == "junk":
            kind = "number"
        if kind == "space":
            self.pos = match.end()
        elif kind == "comment":
            self._comment(value)
        elif kind == "newline":
            self._newline()
        elif kind == "continuation":
            self._finding(
                "S003", "a line is not continued by a backslash", self.pos, self.pos + 1, "put it in brackets"
            )
            self._skip(match.end())
        elif kind == "number":
            self._number(match)
        elif kind == "name":
            # After a dot every word is a name: `fence.async`.
            plain = bool(self.tokens) and self.tokens[-1].type == "DOT"
            kind = "NAME" if plain else RESERVED.get(value) or ("FOREIGN" if value in FOREIGN else "NAME")
            self._add(kind, match.end())
        elif kind == "string":
            self._add("STRING", match.end())
        else:
            self._operator(value)

    def _add(self, kind: str, end: int) -> Token:
        start = self.pos
        if self.open and self.fresh and self._starts_statement():
            self._close_line()
        self.fresh = False
        if not self.tokens:
            self._begin()
        line, column = self.line, start - self.line_start + 1
        self._skip(end)
        token = Token(kind, self.text[start:end], start, line, column, self.line, end - self.line_start + 1, end)
        self.tokens.append(token)
        return token

    def _begin(self) -> None:
        self.start_state = (self.pos, self.line, self.line_start, len(self.comments))
        lead = self.text[self.line_start : self.pos]
        self.indent = len(lead.expandtabs(4))
        if "\t" in lead:
            edit = Edit(span=self._span(self.line_start, self.pos), replacement=lead.expandtabs(4))
            self.findings.error(
                "S002",
                "a line is indented with a tab",
                self._span(self.line_start, self.pos),
                help="indent with spaces, four a level",
                fix=Fix(message="use spaces", edits=(edit,)),
            )

    def _skip(self, end: int) -> None:
        newlines = self.text.count("\n", self.pos, end)
        if newlines:
            self.line += newlines
            self.line_start = self.text.rindex("\n", self.pos, end) + 1
        self.pos = end

    def _comment(self, text: str) -> None:
        column = self.pos - self.line_start
        self.pos += len(text)
        text = text.rstrip()
        if self.tokens and not self.open:
            self._end_line(text)
        else:
            self.comments.append((column if not self.tokens else self.indent, text))

    def _newline(self) -> None:
        if self.open and self.unclosed >= MAX_UNCLOSED:
            self.bad = True
            self._end_line(None)
        elif self.open and _HEADER.match(self.text, self.line_start, self.pos):
            self._close_line()
        elif not self.open:
            self._end_line(None)
        self.fresh = True
        self.pos += 1
        self.line += 1
        self.line_start = self.pos

    def _end_line(self, comment: str | None) -> None:
        if self.tokens:
            self.source.lines.append(LogicalLine(self.tokens, self.indent, self.comments, comment, self.bad))
            self.comments = []
        self.tokens = []
        self.open = []
        self.bad = False

    def _number(self, match: re.Match[str]) -> None:
        text = match.group()
        if match.group("junk"):
            self._finding("S008", f"`{_shorten(text)}` is not a number", self.pos, match.end(), _number_help(text))
        elif len(text) > 400 or float(text) == float("inf") or (text.isdigit() and int(text) >= 2**63):
            self._finding("S008", f"`{_shorten(text)}` is out of range", self.pos, match.end(), "integers have 64 bits")
        else:
            self._add("NUMBER", match.end())
            return
        token = self._add("NUMBER", match.end())
        token.value = "0"

    def _operator(self, value: str) -> None:
        token = self._add(OPERATORS.get(value, "HABIT"), self.pos + len(value))
        if value in "([{":
            self.open.append(token)
        elif value in CLOSERS:
            if self.open and self.open[-1].value == CLOSERS[value]:
                self.open.pop()
                return
            self.bad = True
            labels = (Label(span=token_span(self.source.file, self.open[-1]), text="opened here"),) if self.open else ()
            if self.open:
                message = f"`{value}` does not close `{self.open[-1].value}`"
                self.open.pop()
            else:
                message = f"`{value}` closes nothing"
            self.findings.error("S004", message, token_span(self.source.file, token), labels=labels)

    # -- findings

    def _span(self, start: int, end: int) -> Span:
        column = start - self.line_start + 1
        return Span(
            file=self.source.file, line=self.line, column=column, end_line=self.line, end_column=column + end - start
        )

    def _finding(self, code: str, message: str, start: int, end: int, help: str | None, fix: Fix | None = None) -> None:
        self.findings.error(code, message, self._span(start, end), help=help, fix=fix)

    def _invalid(self) -> None:
        char = self.text[self.pos]
        if char in "\"'":
            end = self.text.find("\n", self.pos)
            end = len(self.text) if end < 0 else end
            self._finding("S003", "a quoted text is never closed", self.pos, end, "Cake has no text values")
            self.bad = True
            self._add("STRING", end)
            return
        end = self.pos + 1
        # A run of characters that no token starts with is one mistake.
        while end < len(self.text) and self.text[end] not in "\n\"'" and not _TOKEN.match(self.text, end):
            end += 1
        run = self.text[self.pos : end]
        meant = "".join(LOOKALIKES.get(c, "?") for c in run)
        fix = None
        if "?" not in meant:
            edit = Edit(span=self._span(self.pos, end), replacement=meant)
            fix = Fix(message=f"write `{meant}`" if meant.strip() else "use a plain space", edits=(edit,))
        what = f"character U+{ord(char):04X}" if not char.isprintable() or char.isspace() else f"`{_shorten(run)}`"
        self._finding("S003", f"{what} has no place outside comments", self.pos, end, None, fix)
        self.bad = True
        if self.tokens or meant.strip():
            self._add("HABIT", end)
        else:
            self.pos = end

    def _starts_statement(self) -> bool:
        """Whether the token at hand, the first of a line inside brackets, shows that they should have been closed."""
        if _STATEMENT.match(self.text, self.pos) or _HEADER.match(self.text, self.pos):
            return True
        # Two operands in a row make no expression: the line before was complete.
        word = _WORD.match(self.text, self.pos)
        complete = self.tokens[-1].type in ("NAME", "NUMBER", "RPAR", "RSQB", "RBRACE", "TRUE", "FALSE")
        level = len(self.text[self.line_start : self.pos].expandtabs(4))
        return word is not None and word.group() not in RESERVED and complete and level <= self.indent

    def _close_line(self) -> None:
        """End a line whose brackets should have been closed, and report the outermost."""
        opener = self.open[0]
        self.findings.error(
            "S004",
            f"`{opener.value}` is never closed",
            token_span(self.source.file, opener),
            help="a line goes on until its brackets are closed",
        )
        self.bad = True
        self._end_line(None)

    def _unclosed(self) -> None:
        """At the end of the text with a bracket open: report it, and end its line where the line of text ends."""
        opener = self.open[0]
        self.unclosed += 1
        self.pos, self.line, self.line_start, comments = self.start_state
        self.comments = self.comments[:comments]
        self.tokens, self.open = [], []
        while self.pos < len(self.text) and (self.text[self.pos] != "\n" or self.line < (opener.line or 0)):
            self._step()
        if self.open:
            self._close_line()


def _shorten(text: str) -> str:
    return text if len(text) <= 24 else text[:20] + "..."


def _number_help(text: str) -> str:
    if text[:2].lower() == "0x":
        return "numbers are decimal"
    if "_" in text:
        return "write the digits without `_`"
    return "a number is digits, an optional fraction, and an optional exponent such as e-30"


def scan(text: str, file: str, findings: Findings) -> Source:
    """Split ``text`` into logical lines, reporting what cannot be a token."""
    if text.startswith("\ufeff"):
        text = text[1:]
    return Lexer(text.replace("\r\n", "\n"), file, findings).run()
