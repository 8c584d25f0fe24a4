"""How refusals are tested: a text with one marked line, the code, and a word that the message must contain."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.expand.kernels import MARK, errors, marked


@dataclass(frozen=True)
class Case:
    """``names``: parts of the message, or of the help, that name the thing. ``alone``: it is the only finding."""

    name: str
    code: str
    text: str
    names: tuple[str, ...]
    alone: bool = True


def parametrised(cases: list[Case]) -> pytest.MarkDecorator:
    """One test a case."""
    assert len({c.name for c in cases}) == len(cases)
    return pytest.mark.parametrize("case", cases, ids=lambda c: f"{c.code}-{c.name}")


def check(case: Case) -> None:
    """The text gives the code at its marked line, and the words name the thing."""
    found = errors(case.text)
    assert case.code in {d.code for d in found}, [(d.code, d.message) for d in found]
    if case.alone:
        assert {d.code for d in found} == {case.code}, [(d.code, d.message) for d in found]
    lines = {d.span.line for d in found if d.code == case.code and d.span is not None}
    if MARK in case.text:
        assert marked(case.text) in lines, lines
    words = " | ".join(f"{d.message} {d.help or ''}" for d in found if d.code == case.code)
    for name in case.names:
        assert name in words, words
