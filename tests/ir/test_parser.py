"""Places, recovery, and what is said about mistakes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cake.diagnostics import CakeError, Diagnostic
from cake.ir import surface as s
from cake.ir.lexer import MAX_FINDINGS, MAX_SOURCE
from cake.ir.parser import parse, parse_all, parse_file, read_source

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((Path(__file__).parent / "examples").glob("*.cake"))
HEAD = "kernel k(x: f32[M]) for sm_90a:\n"


def findings(text: str) -> list[Diagnostic]:
    with pytest.raises(CakeError) as caught:
        parse(text, "f.cake")
    assert caught.value.diagnostics
    return list(caught.value.diagnostics)


def places(text: str) -> list[tuple[str, int, int]]:
    found = findings(text)
    assert all(d.span is not None and d.span.file == "f.cake" for d in found)
    return [(d.code, d.span.line, d.span.column) for d in found if d.span]


def do(*lines: str) -> str:
    return HEAD + "    do r:\n" + "".join(f"        {line}\n" for line in lines)


# -- places


def test_spans_are_exact() -> None:
    text = "kernel k(out x: f32[M, N + 1] strided if A) for sm_90a:\n    do r as w:\n        y = f(x[a : b], c=-1).T\n"
    kernel = parse(text).kernels[0]
    lines = text.split("\n")

    def at(node: s.Node) -> str:
        assert node.span.line == node.span.end_line
        return lines[node.span.line - 1][node.span.column - 1 : node.span.end_column - 1]

    param = kernel.params[0]
    assert at(param) == "out x: f32[M, N + 1] strided if A"
    assert at(param.type) == "f32[M, N + 1]"
    assert at(param.type.dims[1]) == "N + 1"
    assert at(param.attrs[0]) == "strided"
    statement: Any = kernel.dos[0].body[0]
    assert at(statement) == "y = f(x[a : b], c=-1).T"
    assert at(statement.value) == "f(x[a : b], c=-1).T"
    assert at(statement.value.base) == "f(x[a : b], c=-1)"
    assert at(statement.value.base.args[0]) == "x[a : b]"
    assert at(statement.value.base.args[0].subs[0]) == "a : b"
    assert at(statement.value.base.kwargs[0]) == "c=-1"
    assert (kernel.span.line, kernel.span.column, kernel.span.end_line, kernel.span.end_column) == (1, 1, 3, 32)
    assert (kernel.dos[0].span.line, kernel.dos[0].span.column) == (2, 5)


def test_brackets_join_lines() -> None:
    one = parse(do("f(a[1, 2], b=3)"))
    assert parse(do("f(", "a[", "  1,", "2],", "b=3", ")")) == one
    assert parse(HEAD + "    do r:\n        f(\na[1,\n\n# why\n 2], b=3\n)\n") == one


def test_line_ends() -> None:
    text = EXAMPLES[0].read_text(encoding="utf-8")
    file = parse(text)
    assert parse(text.replace("\n", "\r\n")) == file
    assert parse(text.rstrip("\n")) == file
    assert parse("\ufeff" + text) == file
    assert parse(text + "\n\n   \n") == file


def test_words_are_names_where_no_keyword_fits() -> None:
    kernel = parse(do("split = where(one, role, tiles)", "with p:", "    pass", "const = turn.for + where")).kernels[0]
    assert len(kernel.dos[0].body) == 3


def test_a_tab_between_words_is_a_blank() -> None:
    assert parse("const\tA\t=\t1\n") == parse("const A = 1\n")


# -- mistakes


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("const A = \n", ("S001", 1, 10), "expected an expression, but the line ends"),
        ("const = 1\n", ("S001", 1, 7), "expected a name, found `=`"),
        ("hello\n", ("S001", 1, 1), "expected a const, a kernel or a sequence, found `hello`"),
        (HEAD + "    role r warps 1\n", ("S001", 2, 12), "expected `:` or `[`, found `warps`"),
        (HEAD + "    x y\n", ("S001", 2, 7), "expected `=`, found `y`"),
        (HEAD + "    else:\n        pass\n", ("S001", 2, 5), "expected a declaration"),
        (do("for i in range(3)", "    pass"), ("S001", 3, 26), "expected `:`"),
        (do("if x: y = 1"), ("S001", 3, 15), "expected the end of the line"),
        (do("x = f(1, , 2)"), ("S001", 3, 18), "found `,`"),
        (do("x = 1 2"), ("S001", 3, 15), "found `2`"),
        (HEAD + "    pipeline p[1] a -> b\n        x: f32\n", ("S001", 2, 24), "expected `:`"),
        (do("x = a[1"[:-1] + ", ]"), ("S001", 3, 15), "an expression or a slice"),
        (do("x = a[1 2]"), ("S001", 3, 17), "expected `:`, `,`, `]` or an operator"),
        (do("with p as 3:", "    pass"), ("S001", 3, 19), "expected a name"),
        (do(": f32"), ("S001", 3, 9), "expected a statement"),
        (do("x: f32 = = 1"), ("S001", 3, 18), "an expression"),
        (do("if a = b:", "    pass"), ("S001", 3, 14), "found `=`"),
        (HEAD + "    where if a\n", ("S001", 2, 11), "an expression"),
        (HEAD + "    role r: warps 1, 4\n", ("S001", 2, 22), "`registers`"),
        (do("x = " + "very_long_name" * 3 + " " + "very_long_name" * 3), ("S001", 3, 56), "..."),
        (do("x[1] = 2"), ("S120", 3, 9), "only names"),
        (do("x.y = 2"), ("S120", 3, 9), "only names"),
        (do("for i in x:"), ("S002", 3, 9), "no indented line follows"),
        (do("x = 1", "    y = 2"), ("S002", 4, 13), "opens no block"),
        (HEAD + "    do r:\n            x = 1\n        y = 2\n", ("S002", 4, 9), "fits no open block"),
        (HEAD + "    do r:\n\t\tpass\n", ("S002", 3, 1), "tab"),
        ("   const A = 1\n", ("S002", 1, 4), "opens no block"),
        (do("x = 1 $ 2"), ("S003", 3, 15), "no place"),
        (do("x = é"), ("S003", 3, 13), "`é`"),
        ("const A = 1\0\n", ("S003", 1, 12), "U+0000"),
        ("const A = \\\n  1\n", ("S003", 1, 11), "backslash"),
        (do("x = 'abc"), ("S003", 3, 13), "never closed"),
        (do("x = f(1", "y = 2"), ("S004", 3, 14), "never closed"),
        (do("x = f(1]"), ("S004", 3, 16), "does not close"),
        (do("x = f(a[1"), ("S004", 3, 14), "`(` is never closed"),
        (do("x = f(1,", "for i in x:", "    y = 2"), ("S004", 3, 14), "never closed"),
        (do("for i in range(3:", "    y = 2"), ("S004", 3, 23), "never closed"),
        (do("x = f(1,", "y = 2", "z(3)"), ("S004", 3, 14), "never closed"),
        (do("x = 1 ? 2"), ("S003", 3, 15), "no operator"),
        (do("x = 1)"), ("S004", 3, 14), "closes nothing"),
        (do("x = f(a=1, 2)"), ("S006", 3, 20), "without a name"),
        (do("x = f(a=1, a=2)"), ("S006", 3, 20), "given twice"),
        (do("x: f32 frag(a=1)"), ("S006", 3, 21), "without names"),
        (HEAD + "    tiles once:\n        a in A\n    tiles once:\n        b in B\n", ("S007", 4, 5), "one `tiles`"),
        ("const A = 1_000\n", ("S008", 1, 11), "not a number"),
        ("const A = 0x10\n", ("S008", 1, 11), "not a number"),
        ("const A = 1.5f\n", ("S008", 1, 11), "not a number"),
        ("const A = 1e999\n", ("S008", 1, 11), "out of range"),
        ("const A = 9223372036854775808\n", ("S008", 1, 11), "out of range"),
        ("const A = " + "9" * 5000 + "\n", ("S008", 1, 11), "out of range"),
        ("const class = 1\n", ("S010", 1, 7), "reserved"),
    ],
)
def test_one_mistake(text: str, place: tuple[str, int, int], words: str) -> None:
    found = findings(text)
    assert places(text) == [place]
    assert words in found[0].message


def test_independent_mistakes_are_reported_together() -> None:
    text = """\
const A = = 1
kernel one(x: f32[M] for sm_90a:
    const B = 1 1
    do r:
        x = 1 +
kernel two(x: f32[M]) sm_90a:
    role r: warps
    do r:
        for i range(3):
            y = )
            y = 1 2
        with p as 3:
            z = 1 2
        if x
            z = 3 4
kernel three(x: f32[M]) for sm_90a:
    pipeline p[2] a > b:
        x: f32[
    tiles:
        m M
    do r
        x = 5 6
"""
    found = places(text)
    lines = [line for _, line, _ in found]
    assert lines == [1, 2, 3, 5, 6, 7, 9, 10, 11, 12, 13, 14, 15, 17, 18, 19, 20, 21, 22]


def test_a_mistake_is_reported_once() -> None:
    """No finding follows from another: taking the mistake away leaves a clean text."""
    lines = EXAMPLES[0].read_text(encoding="utf-8").split("\n")
    for number, line in enumerate(lines):
        code = line.split("#")[0].rstrip()
        if not code.strip():
            continue
        broken = [*lines[:number], code + " ?" if not code.endswith(":") else code[:-1] + " ? :", *lines[number + 1 :]]
        found = parse_all("\n".join(broken))[1]
        assert [d.code for d in found] == ["S003"], (code, found)
        assert found[0].span is not None and found[0].span.line == number + 1


def test_findings_end_somewhere() -> None:
    _, found = parse_all("$ x\n" * 10_000)
    assert len(found) == MAX_FINDINGS


# -- hostile texts


@pytest.mark.parametrize(
    "text",
    [
        "(" * 100_000,
        "const A = " + "(" * 50_000 + "1" + ")" * 50_000 + "\n",
        "const A = " + "-" * 50_000 + "1\n",
        "const A = " + "1 + " * 50_000 + "1\n",
        "const A = a" + ".b" * 50_000 + "\n",
        "const A = " + "f(" * 20_000 + ")" * 20_000 + "\n",
        "const A = " + "a[" * 20_000 + "1" + "]" * 20_000 + "\n",
        "const A = " + "1 if 1 else " * 20_000 + "1\n",
        HEAD + "    do r:\n" + "".join(" " * (8 + i) + "if x:\n" for i in range(600)),
        HEAD + "    do r:\n" + "".join(" " * (8 + i) + "with x:\n" for i in range(38)) + " " * 60 + "pass\n",
        "".join(" " * i + "x\n" for i in range(600)),
        "(\n" * 20_000,
        "'" * 50_001,
        '"""' * 3_333 + "'",
        "#" * 200_000,
        "\r" * 1000,
        "\0" * 1000,
        "x" * 200_000,
        "1" * 200_000,
        "kernel " * 20_000,
        ":\n" * 20_000,
        "\ud800",
        "const A = 1 # \ud800\n",
        "a" * (MAX_SOURCE + 1),
    ],
    ids=range(24),
)
def test_hostile_texts_are_refused(text: str) -> None:
    parsed, found = parse_all(text)
    assert (parsed is None) == bool(found)
    if parsed is not None:
        # Brackets that group leave no trace, so their number has no limit.
        assert text.startswith(("#", "const A = ((("))


def test_the_deepest_text_survives_all_tools() -> None:
    """What the parser accepts can be compared, hashed, printed and written as JSON."""
    low, high = 1, 400
    while low + 1 < high:
        middle = (low + high) // 2
        parsed, _ = parse_all(do("x = " + "f(" * middle + "1" + ")" * middle))
        low, high = (middle, high) if parsed is not None else (low, middle)
    for text in (do("x = " + "f(" * low + "1" + ")" * low), _deep_blocks()):
        file = parse(text)
        assert s.File.model_validate_json(file.model_dump_json()) == file
        assert hash(file) == hash(s.strip_spans(file))
        assert s.File.model_validate(file.model_dump()) == file
        assert repr(file)


def _deep_blocks() -> str:
    best = ""
    for depth in range(2, 60):
        lines = [" " * (8 + i) + ("if x:" if i < depth else "y = f(g(h(1)))") + "\n" for i in range(depth + 1)]
        text = HEAD + "    do r:\n" + "".join(lines)
        if parse_all(text)[0] is None:
            return best
        best = text
    return best


# -- files


def test_read_source(tmp_path: Path) -> None:
    good = tmp_path / "good.cake"
    good.write_bytes(b"\xef\xbb\xbfconst A = 1\r\n")
    assert parse_file(good) == parse("const A = 1\n")
    for name, data in (("bad.cake", b"const A = 1\n# \xff\n"), ("half.cake", b"# \xc3")):
        path = tmp_path / name
        path.write_bytes(data)
        with pytest.raises(CakeError) as caught:
            read_source(path)
        (found,) = caught.value.diagnostics
        assert found.code == "S009" and found.span is not None
        assert found.span.column == 3
    for missing in (tmp_path / "missing.cake", tmp_path, "nul\0name"):
        with pytest.raises(CakeError) as caught:
            read_source(missing)
        assert caught.value.diagnostics[0].code == "S009"
    large = tmp_path / "large.cake"
    large.write_bytes(b"#" * (MAX_SOURCE + 10))
    with pytest.raises(CakeError):
        parse_file(large)


def test_without_a_place_for_tables(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    code = f"from cake.ir.parser import parse_file; parse_file({str(EXAMPLES[0])!r})"
    environment = {"PYTHONPATH": str(ROOT), "CAKE_CACHE_DIR": str(blocked / "x"), "PATH": ""}
    subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True)
