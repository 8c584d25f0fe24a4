"""A difference as a finding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cake.diagnostics import Diagnostic, Label, Span
from cake.ptx.compare import Difference
from cake.ptx.events import describe
from cake.ptx.explore import Letter
from cake.ptx.reader import Instruction

HELP = "this is a bug of the compiler, not of the kernel: please report it with the source and these lines"
_SHOWN = 3


def finding(
    role: str,
    warp: int,
    elected: bool,
    d: Difference,
    files: Mapping[int, str],
    fallback: Span | None,
    note: str | None = None,
) -> Diagnostic:
    """P119 for one kind of thread. The left side of the difference is the compiled code, the right the checked kernel.
    ``fallback`` is where the finding stands if neither side has a place; ``note`` says when it happens."""
    who = f"role `{role}`, warp {warp}, {'the elected lane' if elected else 'the other lanes'}"
    compiled = d.only_left or d.left
    checked = d.only_right or d.right
    facts = [f"threads: {who}", *([note] if note else [])]
    if d.prefix is not None:
        many = "s" if d.length > 1 else ""
        facts.append(f"both agree on {d.length} instruction{many}, up to: {_shown(d.prefix, files)}")
    facts.append(f"checked kernel goes on: {_list(checked, files)}")
    facts.append(f"compiled code goes on: {_list(compiled, files)}")
    if not d.only_right:
        what = f"has an instruction that the checked kernel does not have there: {describe(compiled[0][0])}"
    elif not d.only_left:
        what = f"cannot do what the checked kernel does: {describe(checked[0][0])}"
    else:
        what = f"does {describe(compiled[0][0])} where the checked kernel does {describe(checked[0][0])}"
    span = next((s for _, place in checked if (s := _span(place)) is not None), None)
    labels: tuple[Label, ...] = ()
    if d.prefix is not None and (before := _span(d.prefix[1])) is not None:
        if span is None:
            span = before
        else:
            labels = (Label(span=before, text="the last instruction on which both agree"),)
    return Diagnostic(
        code="P119",
        severity="error",
        message=f"The compiled code of role `{role}` {what}.",
        span=span or fallback,
        labels=labels,
        facts=tuple(facts),
        help=HELP,
    )


def _list(letters: tuple[tuple[Letter, Any], ...], files: Mapping[int, str]) -> str:
    shown = [_shown(p, files) for p in letters[:_SHOWN]]
    more = len(letters) - _SHOWN
    return "; or ".join(shown) + (f"; or {more} more" if more > 0 else "")


def _shown(letter: tuple[Letter, Any], files: Mapping[int, str]) -> str:
    text, place = describe(letter[0]), letter[1]
    if isinstance(place, Instruction):
        at = f"PTX line {place.line}"
        if place.place is not None and place.place.file in files:
            at += f", {files[place.place.file]}:{place.place.line}"
        return f"{text} ({at})"
    span = _span(place)
    return f"{text} ({span.file}:{span.line})" if span is not None else text


def _span(place: Any) -> Span | None:
    span = getattr(place, "span", None)
    return span if isinstance(span, Span) else None
