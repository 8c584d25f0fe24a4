"""Words for what the grammar expected where it met something else."""

from __future__ import annotations

from collections.abc import Iterable

from lark import Token

from cake.diagnostics import Findings, Span
from cake.ir.lexer import SOFT, LogicalLine, token_span

_EXPRESSION = frozenset({"NAME", "NUMBER", "LPAR", "MINUS", "TRUE", "FALSE"})
_OPERATORS = frozenset({"PLUS", "MINUS", "MUL", "CMP", "AND", "OR"})
_SYMBOLS = {
    "LPAR": "`(`",
    "RPAR": "`)`",
    "LSQB": "`[`",
    "RSQB": "`]`",
    "LBRACE": "`{`",
    "RBRACE": "`}`",
    "COLON": "`:`",
    "COMMA": "`,`",
    "DOT": "`.`",
    "EQUAL": "`=`",
    "ARROW": "`->`",
    "PLUS": "`+`",
    "_NL": "the end of the line",
    "DIR": "`out`",
}
_DECLARATION = frozenset({"CONST", "TILES", "PIPELINE", "DO"})


def explain_unexpected(file: str, line: LogicalLine, at: int, accepts: Iterable[str], findings: Findings) -> None:
    """Report that token ``at`` of a line (its end, if there is no such token) cannot stand there."""
    tokens = line.tokens
    accepted = set(accepts)
    found = tokens[at] if at < len(tokens) else None
    end = tokens[-1]
    span = (
        token_span(file, found)
        if found is not None
        else Span(
            file=file,
            line=end.end_line or 0,
            column=end.end_column or 0,
            end_line=end.end_line or 0,
            end_column=(end.end_column or 0) + 1,
        )
    )
    if found is not None and found.type == "EQUAL" and _is_store(tokens, at):
        findings.error(
            "S120",
            "only names are assigned",
            token_span(file, tokens[0], found),
            help="memory is written by `store(ref, value)` or a block move; a register tile is assigned as a whole",
        )
        return
    what = "but the line ends" if found is None else f"found `{_short(found)}`"
    findings.error("S001", f"expected {_in_words(accepted)}, {what}", span, help=_help(tokens, at, accepted))


def _is_store(tokens: list[Token], at: int) -> bool:
    return (
        at > 1
        and tokens[0].type == "NAME"
        and tokens[1].type in ("LSQB", "DOT")
        and tokens[at - 1].type in ("RSQB", "NAME")
    )


def _short(token: Token) -> str:
    text = str(token).split("\n")[0]
    return text if len(text) <= 24 else text[:20] + "..."


def _in_words(accepted: set[str]) -> str:
    accepted = accepted - {"ERROR", "$END", "_DEDENT"}
    words: list[str] = []
    if accepted >= _DECLARATION:
        return "a declaration (const, where, assume, tiles, role, pipeline, smem, turn, do, or a definition)"
    if accepted >= {"KERNEL", "SEQUENCE"}:
        return "a const, a kernel or a sequence"
    if {"FOR", "WITH", "PASS"} <= accepted:
        return "a statement"
    if accepted >= _EXPRESSION:
        words.append("an expression")
        accepted -= _EXPRESSION | {"NOT"}
        if "COLON" in accepted:
            words.append("a slice")
            accepted.discard("COLON")
    elif accepted >= _OPERATORS:
        words.append("an operator")
        # `a if c else b` is read only to be refused.
        accepted -= _OPERATORS | {"DOT", "LPAR", "LSQB", "IF"}
    elif "NAME" in accepted:
        words.append("a name")
        accepted.discard("NAME")
    for kind in sorted(accepted, key=lambda kind: (kind != "_NL", kind)):
        words.append(_SYMBOLS.get(kind) or f"`{_keyword(kind)}`")
    if not words:
        return "nothing more"
    if len(words) > 1 and words[0] == "an operator":
        words = [*words[1:], words[0]]
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " or " + words[-1]


def _keyword(kind: str) -> str:
    return next((word for word, name in SOFT.items() if name == kind), kind.lower())


def _help(tokens: list[Token], at: int, accepted: set[str]) -> str | None:
    if accepted == {"_NL"} and at and tokens[at - 1].type == "COLON":
        return "a block starts on the next line, indented"
    if at < len(tokens) and tokens[at].type == "EQUAL" and "CMP" in accepted:
        return "equality is `==`"
    if (
        at >= len(tokens)
        and "COLON" in accepted
        and tokens[0].value in ("for", "if", "with", "do", "kernel", "elif", "else")
    ):
        return "a line that opens a block ends with `:`"
    if at < len(tokens) and tokens[at].type == "IF" and "FOR" not in accepted:
        return "`if` is a statement; `where(c, a, b)` chooses between values"
    return None
