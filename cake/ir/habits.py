"""Habits from Python and CUDA that show in the tokens of a line.

Each gets a diagnostic of its own with the rewrite. Where the line means something after the rewrite, its tokens are
replaced, so that the rest of it is still read.
"""

from __future__ import annotations

from collections.abc import Callable

from lark import Token

from cake.diagnostics import Edit, Findings, Fix, Span
from cake.ir.lexer import LogicalLine, token_span

_ARITHMETIC = frozenset({"PLUS", "MINUS", "MUL"})
_OPENING = frozenset({"LPAR", "LSQB", "LBRACE"})
_CLOSING = frozenset({"RPAR", "RSQB", "RBRACE"})
_LOGICAL = {
    "&": ("AND", "and"),
    "&&": ("AND", "and"),
    "|": ("OR", "or"),
    "||": ("OR", "or"),
    "!": ("NOT", "not"),
    "~": ("NOT", "not"),
}


_MAKERS = frozenset({"zeros", "ones", "full", "empty", "zeros_like", "ones_like", "full_like", "empty_like"})
_DTYPES = {
    **{name: name for name in ("f32", "f16", "bf16", "i32", "i64")},
    **{"float32": "f32", "float16": "f16", "bfloat16": "bf16", "int32": "i32", "int64": "i64"},
}


def rewrite_line(line: LogicalLine, file: str, findings: Findings) -> bool:
    """Report the habits in a line and rewrite its tokens; False if the line says nothing that could be parsed."""
    first = line.tokens[0]
    second = line.tokens[1].type if len(line.tokens) > 1 else "_NL"
    named = second in ("EQUAL", "COMMA", "DOT") or (first.type == "NAME" and second not in ("NAME", "_NL"))
    statement = _STATEMENTS.get(first.value) if first.type in ("FOREIGN", "NAME") and not named else None
    if statement is not None:
        statement(first, token_span(file, first), findings)
        return False
    if any(token.value in _MAKERS for token in line.tokens) and _maker(line, file, findings):
        return False
    if not any(token.type in ("HABIT", "FOREIGN", "STRING") for token in line.tokens):
        return True
    readable = True
    for i, token in enumerate(list(line.tokens)):
        if token.type == "STRING":
            _string(file, token, findings)
            line.tokens[i] = _retyped(token, "NAME", "_")
        elif token.type == "FOREIGN":
            readable = _foreign(file, line, i, findings) and readable
        elif token.type == "HABIT":
            readable = _operator(file, line, i, findings) and readable
    return readable


def _maker(line: LogicalLine, file: str, findings: Findings) -> bool:
    """Report `zeros(...)` and the like; the shape of a register tile belongs to its declaration."""
    tokens = line.tokens
    for i, token in enumerate(tokens[:-1]):
        if token.type != "NAME" or token.value not in _MAKERS or tokens[i + 1].type != "LPAR":
            continue
        findings.error(
            "S108",
            f"register tiles are declared, not made by `{token.value}`",
            token_span(file, token),
            help="write `acc: f32[64, 128] frag = 0.0`; assigning a number to a declared tile fills it",
            fix=_declaration(tokens, i, file),
        )
        return True
    return False


def _declaration(tokens: list[Token], i: int, file: str) -> Fix | None:
    """`name = zeros((a, b), f32)` as a declaration, where its parts are plain."""
    if i < 2 or tokens[0].type != "NAME":
        return None
    name, equal, *prefix = tokens[:i]
    call = tokens[i + 2 :]
    if (
        tokens[i].value not in ("zeros", "ones")
        or equal.type != "EQUAL"
        or [t.type for t in prefix] not in ([], ["NAME", "DOT"])
    ):
        return None
    depth = 0
    parts: list[list[str]] = [[]]
    for token in call[:-1]:
        depth += (token.type in _OPENING) - (token.type in _CLOSING)
        if depth <= 1 and token.type == "COMMA":
            parts.append([])
        elif token.type not in ("LPAR", "RPAR", "LSQB", "RSQB") and depth <= 1:
            parts[-1].append(str(token))
        elif depth > 1:
            return None
    if not call or call[-1].type != "RPAR" or depth != 0:
        return None
    dtype = "f32"
    dims: list[str] = []
    for part in parts:
        text = " ".join(part)
        if part[:2] == ["dtype", "="] or (part and part[-1] in _DTYPES):
            dtype = _DTYPES.get(part[-1], part[-1])
        elif text:
            dims.append(text)
    if not dims:
        return None
    value = "0.0" if tokens[i].value == "zeros" else "1.0"
    text = f"{name}: {dtype}[{', '.join(dims)}] frag = {value}"
    return _replace(token_span(file, tokens[0], tokens[-1]), text, "declare the tile")


def _retyped(token: Token, kind: str, value: str) -> Token:
    """A token that stands for ``token`` in the grammar; messages still quote the text."""
    made = Token.new_borrow_pos(kind, str(token), token)
    made.value = value
    return made


def _replace(span: Span, text: str, message: str) -> Fix:
    return Fix(message=message, edits=(Edit(span=span, replacement=text),))


def _string(file: str, token: Token, findings: Findings) -> None:
    form = "an f-string" if token.value[0] in "fF" or token.value[1:2] in "fF" else "a text in quotes"
    findings.error(
        "S116",
        f"Cake has no values of text; {form} has no place here",
        token_span(file, token),
        help="names stand without quotes; explanations go into comments",
    )


def _foreign(file: str, line: LogicalLine, i: int, findings: Findings) -> bool:
    token = line.tokens[i]
    span = token_span(file, token)
    if token.value == "None":
        line.tokens[i] = _retyped(token, "NAME", "None")
        return True
    if token.value == "lambda":
        findings.error(
            "S118", "Cake has no functions, so no `lambda`", span, help="write the expression where it is used"
        )
        return False
    if line.tokens[i - 1].type == "COLON" and token.value in _STATEMENTS:
        _STATEMENTS[token.value](token, span, findings)
        return False
    help = "compare by `==`" if token.value == "is" else "choose another name"
    findings.error("S010", f"`{token.value}` is reserved, as it is in Python", span, help=help)
    return False


# -- operators


def _operator(file: str, line: LogicalLine, i: int, findings: Findings) -> bool:
    token = line.tokens[i]
    value = token.value
    span = token_span(file, token)
    if value == "@":
        findings.error(
            "S102",
            "`@` does not say which instruction multiplies",
            span,
            help="write `wgmma(acc, a, b)`, `mma(acc, a, b)` or `tcgen05.mma(d, a, b)`; the accumulator is an operand",
        )
        line.tokens[i] = _retyped(token, "MUL", "*")
    elif value in _LOGICAL:
        kind, word = _LOGICAL[value]
        findings.error(
            "S104",
            f"conditions and masks are combined by words, not by `{value}`",
            span,
            help="`and`, `or`, `not` work on scalars and on each element of tiles",
            fix=_replace(span, _spaced(line, i, word), f"write `{word}`"),
        )
        line.tokens[i] = _retyped(token, kind, word)
    elif value == "**":
        findings.error("S121", "there is no power operator", span, help="multiply, or use `exp2`")
        line.tokens[i] = _retyped(token, "MUL", "*")
    elif value in ("^", "<<", ">>"):
        findings.error(
            "S122",
            f"there is no bit operator `{value}`",
            span,
            help="use `*`, `//` and `%`; slots and phases of pipelines are kept by Cake",
        )
        line.tokens[i] = _retyped(token, "MUL", "*")
    elif value == ":=":
        findings.error("S123", "`:=` is not part of Cake", span, help="assign on a line of its own")
        return False
    elif value == ";":
        findings.error("S125", "one statement a line", span, help="start a new line")
        return False
    elif value.endswith("=") and len(value) > 1:
        return _augmented(file, line, i, findings)
    else:
        # Characters that the lexer could not use are reported by it.
        if len(value) == 1 and value.isascii() and value.isprintable():
            findings.error("S003", f"`{value}` is no operator of Cake", span)
        return False
    return True


def _spaced(line: LogicalLine, i: int, word: str) -> str:
    """``word``, with the blanks that it needs and the symbol did not."""
    token = line.tokens[i]
    left = (
        " " if i and line.tokens[i - 1].end_pos == token.start_pos and line.tokens[i - 1].type not in _OPENING else ""
    )
    right = " " if i + 1 < len(line.tokens) and line.tokens[i + 1].start_pos == token.end_pos else ""
    return left + word + right


def _augmented(file: str, line: LogicalLine, i: int, findings: Findings) -> bool:
    token = line.tokens[i]
    op = token.value[:-1]
    simple = i == 1 and line.tokens[0].type == "NAME" and len(line.tokens) > 2
    fix = None
    if simple and op in ("+", "-", "*", "/", "//", "%"):
        name = line.tokens[0].value
        edits = [Edit(span=token_span(file, token), replacement=f"= {name} {op}")]
        rest = line.tokens[i + 1 :]
        if _needs_brackets(op, rest):
            start, end = token_span(file, rest[0]), token_span(file, rest[-1])
            edits.append(
                Edit(
                    span=start.model_copy(update={"end_line": start.line, "end_column": start.column}), replacement="("
                )
            )
            edits.append(
                Edit(span=end.model_copy(update={"line": end.end_line, "column": end.end_column}), replacement=")")
            )
        fix = Fix(message="assign", edits=tuple(edits))
    findings.error(
        "S101",
        f"`{token.value}` is not part of Cake",
        token_span(file, token),
        help=f"write `x = x {op} …`; tiles in memory are written by `store`",
        fix=fix,
    )
    line.tokens[i] = _retyped(token, "EQUAL", "=")
    return simple


def _needs_brackets(op: str, rest: list[Token]) -> bool:
    depth = 0
    for token in rest:
        depth += (token.type in _OPENING) - (token.type in _CLOSING)
        loose = token.type in ("PLUS", "MINUS", "MUL", "CMP", "AND", "OR", "NOT", "IF", "HABIT")
        if depth == 0 and loose and (op != "+" or token.type not in _ARITHMETIC):
            return True
    return False


# -- statements of Python


def _while(_: Token, span: Span, findings: Findings) -> None:
    findings.error(
        "S112",
        "Cake has no `while`: every loop has a trip count",
        span,
        help="write `for i in range(n):`, with n from a definition if the data decide it",
    )


def _jump(word: Token, span: Span, findings: Findings) -> None:
    findings.error(
        "S113",
        f"Cake has no `{word}`: all warps of an instance run every iteration",
        span,
        help="bound the loop, or put the rest of the body under an `if`",
    )


def _function(word: Token, span: Span, findings: Findings) -> None:
    findings.error(
        "S114",
        f"Cake has no `{word}`: a kernel is one text",
        span,
        help="write a loop or a definition; kernels that follow each other form a `sequence`",
    )


def _return(word: Token, span: Span, findings: Findings) -> None:
    findings.error(
        "S115",
        f"Cake has no `{word}`: results leave through `out` parameters",
        span,
        help="write results by `store` or `tma.store`; drop tiles by `where` in `tiles`",
    )


def _import(word: Token, span: Span, findings: Findings) -> None:
    findings.error(
        "S124",
        f"`{word}` is a statement of Python, not of Cake",
        span,
        help="a file stands alone; all operations are known without an import",
    )


_STATEMENTS: dict[str, Callable[[Token, Span, Findings], None]] = {
    "while": _while,
    "break": _jump,
    "continue": _jump,
    "def": _function,
    "class": _function,
    "async": _function,
    "return": _return,
    "yield": _return,
    **dict.fromkeys(
        ["import", "from", "try", "except", "finally", "raise", "del", "global", "nonlocal", "assert", "await"], _import
    ),
}
