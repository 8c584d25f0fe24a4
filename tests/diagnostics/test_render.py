"""Text, JSON and fixes derive from one object and agree."""

from __future__ import annotations

import io
import json

import pytest

from cake.diagnostics import Diagnostic, Edit, Fix, Label, Span
from cake.diagnostics.fixes import apply_edits, apply_fix, apply_fixes
from cake.diagnostics.jsonout import from_json, to_json
from cake.diagnostics.sarif import to_sarif
from cake.diagnostics.text import render, show, summary

SOURCE = "one\n    acc += x * y\nthree\n"


def span(line: int, column: int, end: int, end_line: int | None = None, file: str = "a.cake") -> Span:
    return Span(file=file, line=line, column=column, end_line=end_line or line, end_column=end)


FULL = Diagnostic(
    code="S101",
    severity="error",
    message="no augmented assignment",
    span=span(2, 9, 11),
    labels=(Label(span=span(1, 1, 4), text="first seen here"), Label(span=None, text="without a place")),
    contract="tiles are assigned as a whole",
    facts=("x >= 1", "y <= 3\nand more"),
    witness=("warp 0 writes", "warp 1 reads"),
    help="assign",
    fix=Fix(message="assign", edits=(Edit(span=span(2, 9, 11), replacement="= acc +"),), verified=True),
)


def test_everything_is_rendered() -> None:
    assert render([FULL], {"a.cake": SOURCE}) == (
        "error[S101]: no augmented assignment\n"
        " --> a.cake:2:9\n"
        "  |\n"
        "2 |     acc += x * y\n"
        "  |         ^^\n"
        "  |\n"
        "1 | one\n"
        "  | --- first seen here\n"
        "  = contract: tiles are assigned as a whole\n"
        "  = note: without a place\n"
        "  = fact: x >= 1\n"
        "  = fact: y <= 3\n"
        "          and more\n"
        "  = witness:\n"
        "      1. warp 0 writes\n"
        "      2. warp 1 reads\n"
        "  = help: assign\n"
        "  = fix: assign (checked)\n"
        "      -     acc += x * y\n"
        "      +     acc = acc + x * y\n"
    )


def test_without_source_and_without_span() -> None:
    text = render([FULL, Diagnostic(code="S009", severity="warning", message="no place")])
    assert " --> a.cake:2:9\n" in text
    assert "first seen here" in text
    assert text.endswith("\nwarning[S009]: no place\n")


def test_places_outside_the_source() -> None:
    for place in (span(99, 1, 2), span(0, 0, 0), span(2, 500, 501), span(4, 1, 1), span(2, 5, 1, end_line=7)):
        text = render([FULL.model_copy(update={"span": place})], {"a.cake": SOURCE})
        assert text.startswith("error[S101]")


def test_long_lines_are_cut_around_the_place() -> None:
    line = "x" * 5000 + "HERE" + "y" * 5000
    shown = render([Diagnostic(code="S001", severity="error", message="m", span=span(1, 5001, 5005))], {"a.cake": line})
    excerpt, carets = shown.split("\n")[3:5]
    assert len(excerpt) < 200
    assert excerpt[carets.index("^") :].startswith("HERE")
    assert carets.count("^") == 4


def test_a_fix_in_a_long_line_is_shown_to_its_end() -> None:
    line, new = "x" * 130 + " = a if b else c if d else e", "where(b, a, where(d, c, e))"
    place = span(1, 134, 159)
    fix = Fix(message="use `where`", edits=(Edit(span=place, replacement=new),))
    found = Diagnostic(code="S119", severity="error", message="m", span=place, fix=fix)
    assert f"+ {'x' * 130} = {new}\n" in render([found], {"a.cake": line})


def test_a_terminal_cannot_be_steered() -> None:
    text = render(
        [Diagnostic(code="S001", severity="error", message="bad \x1b[2J", span=span(1, 1, 2))], {"a.cake": "\x1b[31m\0"}
    )
    assert "\x1b" not in text and "\0" not in text


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_colour_only_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    plain, terminal = io.StringIO(), Terminal()
    show([FULL], {"a.cake": SOURCE}, plain)
    show([FULL], {"a.cake": SOURCE}, terminal)
    assert "\x1b" not in plain.getvalue()
    assert "\x1b[" in terminal.getvalue()
    monkeypatch.setenv("NO_COLOR", "1")
    quiet = Terminal()
    show([FULL], {"a.cake": SOURCE}, quiet)
    assert "\x1b[31" not in quiet.getvalue()


def test_summary() -> None:
    warning = FULL.model_copy(update={"severity": "warning"})
    assert summary([]) == "no findings"
    assert summary([FULL, warning, warning]) == "1 error, 2 warnings"


def test_json_is_stable_and_complete() -> None:
    text = to_json([FULL, Diagnostic(code="S009", severity="hint", message="m")])
    assert text == to_json(from_json(text))
    data = json.loads(text)
    assert data["version"] == 1
    assert list(data["diagnostics"][0]) == list(data["diagnostics"][1]) == list(Diagnostic.model_fields)
    with pytest.raises(ValueError):
        from_json(text.replace('"version":1', '"version":2'))


def test_sarif() -> None:
    other = Diagnostic(code="X999", severity="hint", message="no page, no place")
    log = json.loads(to_sarif([FULL, other]))
    (run,) = log["runs"]
    assert log["version"] == "2.1.0"
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["S101", "X999"]
    first, second = run["results"]
    assert first["locations"][0]["physicalLocation"]["region"]["startColumn"] == 9
    assert first["relatedLocations"][0]["message"]["text"] == "first seen here"
    assert first["fixes"][0]["artifactChanges"][0]["replacements"][0]["insertedContent"]["text"] == "= acc +"
    assert (second["level"], second["locations"]) == ("note", [])


def test_edits() -> None:
    assert FULL.fix is not None
    assert apply_fix(SOURCE, FULL.fix) == "one\n    acc = acc + x * y\nthree\n"
    insert = Edit(span=span(1, 4, 4), replacement="!")
    delete = Edit(span=span(2, 1, 1, end_line=3), replacement="")
    assert apply_edits(SOURCE, [delete, insert]) == "one!\nthree\n"
    with pytest.raises(ValueError):
        apply_edits(SOURCE, [Edit(span=span(1, 1, 3), replacement=""), Edit(span=span(1, 2, 4), replacement="")])
    for bad in (span(9, 1, 1), span(1, 9, 9), span(0, 1, 1), span(1, 3, 1)):
        with pytest.raises(ValueError):
            apply_edits(SOURCE, [Edit(span=bad, replacement="")])


def test_overlapping_fixes_wait() -> None:
    other = FULL.model_copy(
        update={"fix": Fix(message="m", edits=(Edit(span=span(2, 10, 12), replacement="?"),)), "code": "S102"}
    )
    text, count = apply_fixes(SOURCE, [FULL, other, Diagnostic(code="S001", severity="error", message="m")])
    assert (text, count) == ("one\n    acc = acc + x * y\nthree\n", 1)
