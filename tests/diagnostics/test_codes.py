"""Every code has a page whose examples do what they say, and no code ever goes away."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from cake.codegen.build import build
from cake.compiler import decide_text
from cake.diagnostics import Diagnostic
from cake.diagnostics.codes import all_codes, explain, parse_page
from cake.hints import built_hints, hints_of
from cake.ir.parser import parse_all

ROOT = Path(__file__).parents[2]
RECORDED = Path(__file__).with_name("codes.txt")
WITHOUT_EXAMPLE = {"S009"}
"""About files, not texts: no page can show a source that is not UTF-8."""


def check(text: str) -> list[Diagnostic] | None:
    """All findings of the compiler, or None where it does not exist."""
    try:
        compiler = importlib.import_module("cake.compiler")
    except ModuleNotFoundError:
        return None
    found: list[Diagnostic] = compiler.check_text(text, "page.cake")
    return found


def hints(text: str, *, built: bool) -> set[str]:
    """The codes of all hints about a text, which must be right; ``built``: of its compiled kernel too."""
    found, decided = decide_text(text, "page.cake", "quick")
    assert [d.code for d in found] == []
    advice = hints_of(decided, None, "page.cake")
    for kernel, _ in decided if built else ():
        advice += built_hints(kernel, build(kernel, translation=False).report)
    return {d.code for d in advice}


def codes(text: str, code: str) -> set[str]:
    if code.startswith("H"):
        return hints(text, built=explain(code).source == "build")
    if code.startswith("S"):
        return {d.code for d in parse_all(text, "page.cake")[1]}
    found = check(text)
    if found is None:
        pytest.skip("needs the compiler")
    return {d.code for d in found}


@pytest.mark.parametrize("code", all_codes())
def test_page(code: str) -> None:
    page = explain(code)
    assert page.title[0].isupper() or page.title[0] == "`"
    assert not page.title.endswith(".")
    assert len(page.text) > 40
    if page.source == "verify" or (page.fail is None and (code in WITHOUT_EXAMPLE or page.source != "text")):
        return  # what the verifier finds is tested with it
    assert page.fail is not None and page.good is not None
    assert code in codes(page.fail, code)
    assert code not in codes(page.good, code)


@pytest.mark.parametrize("code", [code for code in all_codes() if code.startswith("S")])
def test_syntax_examples_are_clean(code: str) -> None:
    """The good example of a syntax page has no finding of syntax at all, and the bad one only its own."""
    page = explain(code)
    if page.fail is None or page.good is None:
        return
    assert parse_all(page.good)[1] == []
    assert {d.code for d in parse_all(page.fail)[1]} == {code}
    whole = check(page.good)
    assert not whole, "the good example is a kernel that compiles"


def test_codes_are_only_added() -> None:
    recorded = RECORDED.read_text(encoding="utf-8").split()
    assert recorded == sorted(recorded)
    missing = set(recorded) - set(all_codes())
    assert not missing, "a code was published and may not go away"


def test_reported_codes_have_pages() -> None:
    """Each code that stands as a literal in the sources is explained, and no page explains what nothing reports."""
    used: dict[str, str] = {}
    for path in sorted((ROOT / "cake").rglob("*.py")):
        for code in re.findall(r'"([A-Z]\d{3})"', path.read_text(encoding="utf-8")):
            used.setdefault(code, str(path.relative_to(ROOT)))
    assert {code: where for code, where in used.items() if code not in all_codes()} == {}
    assert {code for code in all_codes() if code.startswith("S")} - set(used) == set()


def test_unknown_code() -> None:
    with pytest.raises(KeyError):
        explain("S999")
    with pytest.raises(KeyError):
        explain("../S001")


@pytest.mark.parametrize(
    "text", ["", "---\ntitle: A\n---\nx", "no front matter", "---\ntitle: A\nseverity: loud\n---\nx"]
)
def test_malformed_page(text: str) -> None:
    with pytest.raises(ValueError):
        parse_page("S001", text)
