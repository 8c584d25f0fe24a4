"""The codes of diagnostics, each with a page that explains it.

A page is ``pages/<CODE>.md``: front matter with ``title`` and ``severity``, the rule in words, a block ``cake fail``
that gives the code and a block ``cake pass`` that does not. A code that the check of a text alone cannot give (it takes a
run, a launch, a compiler or a device) says in the front matter what finds it, ``source``, and needs no blocks; with
``source: verify`` they are for the verifier. What no source
text can say is shown by two programs of the litmus suite instead (``litmus``: one that has the finding, one that has not). Codes
are only ever added: one that is no longer reported keeps its page, and none gets a new meaning. Families: S surface
syntax (S1xx habits from other languages); further letters belong to the later stages.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from cake.diagnostics.model import Record, Severity

PAGES = Path(__file__).with_name("pages")

_FRONT = re.compile(r"\A---\n(.*?)\n---\n", re.DOTALL)
_BLOCK = re.compile(r"^```cake (fail|pass)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"[A-Z]+\d{3}")


class Page(Record):
    """What ``cake explain`` says about a code. ``source``: what finds it, "text" for the check of a source text. ``text`` is
    the rule; the blocks are whole source texts; ``litmus`` names a failing and a passing program."""

    code: str
    title: str
    severity: Severity
    source: str = "text"
    litmus: tuple[str, ...] = ()
    text: str
    fail: str | None
    good: str | None
    markdown: str
    """The page without its front matter."""


def all_codes() -> tuple[str, ...]:
    """Every code that has a page, sorted."""
    return tuple(sorted(path.stem for path in PAGES.glob("*.md")))


@cache
def explain(code: str) -> Page:
    """The page of a code, in either case; KeyError if there is none."""
    code = code.strip().upper()
    path = PAGES / f"{code}.md"
    if not _CODE.fullmatch(code) or not path.is_file():
        raise KeyError(code)
    return parse_page(code, path.read_text(encoding="utf-8"))


def parse_page(code: str, text: str) -> Page:
    """Read a page; ValueError if it is malformed."""
    front = _FRONT.match(text)
    if front is None:
        raise ValueError(f"{code}: the page has no front matter")
    fields = dict(line.split(": ", 1) for line in front.group(1).splitlines())
    if set(fields) - {"source", "litmus"} != {"title", "severity"}:
        raise ValueError(f"{code}: front matter has the fields title and severity, and may have source and litmus")
    body = text[front.end() :].strip() + "\n"
    blocks = dict(_BLOCK.findall(body))
    rule = re.sub(r"\n{3,}", "\n\n", _BLOCK.sub("", body)).strip()
    return Page(
        code=code,
        title=fields["title"],
        severity=fields["severity"],  # type: ignore[arg-type]
        source=fields.get("source", "text"),
        litmus=tuple(fields["litmus"].split(", ")) if "litmus" in fields else (),
        text=rule,
        fail=blocks.get("fail"),
        good=blocks.get("pass"),
        markdown=body,
    )
