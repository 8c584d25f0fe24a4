"""What a command gives back: findings and a result, as text or as one JSON object, and the exit code they mean.

The JSON of every command is ``{"ok": bool, "diagnostics": [...], "result": {...}}``: ``ok`` is the exit code 0, each
diagnostic is the schema of ``cake.diagnostics``, and ``result`` is empty where a command failed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any

from cake.diagnostics import CakeError, Diagnostic
from cake.diagnostics.text import show, summary

FINE, FINDINGS, USAGE = 0, 1, 2

INTERNAL = "X001"
BAD_USAGE = "X002"
REPORT = "run again with --debug and report the trace, with the command and the file, at the project's issue tracker"

_texts: dict[str, str] = {}
"""Texts of sources that are not files (standard input)."""


def remember(file: str, text: str) -> None:
    """Keep the text of a source that cannot be read again, for excerpts."""
    _texts[file] = text


def blocking(diagnostics: Iterable[Diagnostic]) -> bool:
    """Whether a finding blocks."""
    return any(d.severity == "error" for d in diagnostics)


def finish(
    diagnostics: Iterable[Diagnostic] = (),
    result: Mapping[str, Any] | None = None,
    *,
    as_json: bool,
    text: str = "",
    code: int | None = None,
    advice: Iterable[Diagnostic] = (),
) -> int:
    """Print an outcome; gives the exit code. ``text`` is the result for people; ``advice``: findings that do not change it,
    told after it."""
    found, more = list(diagnostics), list(advice)
    if code is None:
        code = FINDINGS if blocking(found) else FINE
    if as_json:
        _print_json([*found, *more], result or {}, code)
        return code
    _tell(found)
    if text:
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
        sys.stdout.flush()
    if more:
        sys.stderr.write("\n")
    _tell(more)
    return code


def _tell(found: list[Diagnostic]) -> None:
    if found:
        show(found, sources_of(found))
        sys.stderr.write(f"\n{summary(found)}\n")


def _print_json(found: list[Diagnostic], result: Mapping[str, Any], code: int) -> None:
    import json

    record = {"ok": code == FINE, "diagnostics": [d.model_dump(mode="json") for d in found], "result": result}
    sys.stdout.write(json.dumps(record, allow_nan=False) + "\n")


def sources_of(diagnostics: Iterable[Diagnostic]) -> dict[str, str]:
    """The texts of the files that findings point into, as far as they can be read."""
    texts: dict[str, str] = {}
    for d in diagnostics:
        spans = [d.span, *(label.span for label in d.labels)]
        spans += [edit.span for edit in d.fix.edits] if d.fix else []
        for file in {span.file for span in spans if span is not None}:
            if file in _texts:
                texts[file] = _texts[file]
            elif file not in texts:
                try:
                    with open(file, encoding="utf-8-sig", newline="") as stream:
                        texts[file] = stream.read(1 << 22)
                except (OSError, ValueError):
                    continue
    return texts


def error(code: str, message: str, help: str | None = None, *facts: str) -> CakeError:
    """A finding of the command itself, about no place in a source."""
    return CakeError(Diagnostic(code=code, severity="error", message=message, help=help, facts=facts))


class Unread(Exception):
    """Nobody reads the output. Not an OSError, because Typer would end the process for that one itself."""


class UsageError(Exception):
    """A command line that cannot be read."""

    exit_code = USAGE

    def __init__(self, message: str, help: str | None = None) -> None:
        super().__init__(message)
        self.help = help


def failed(exception: BaseException, *, as_json: bool, debug: bool) -> int:
    """The outcome of a command that raised. An exception nobody expected is one line, with the way to report it."""
    if isinstance(exception, CakeError):
        if debug:
            _trace(exception)
        return finish(exception.diagnostics, as_json=as_json, code=FINDINGS)
    message = getattr(exception, "format_message", None)
    if message is not None or isinstance(exception, UsageError):  # Typer's own errors are told by their methods
        text = str(message()) if message is not None else str(exception)
        if not text:  # no command: the help has been shown
            return USAGE
        help = getattr(exception, "help", None) or _usage_help(exception)
        finding = Diagnostic(code=BAD_USAGE, severity="error", message=_sentence(text), help=help)
        return finish([finding], as_json=as_json, code=USAGE)
    if debug:
        _trace(exception)
    finding = Diagnostic(
        code=INTERNAL,
        severity="error",
        message=f"internal error: {type(exception).__name__}: {_one_line(str(exception))}",
        help=REPORT,
    )
    return finish([finding], as_json=as_json, code=FINDINGS)


def _trace(exception: BaseException) -> None:
    import traceback

    traceback.print_exception(exception, file=sys.stderr)


def _usage_help(exception: BaseException) -> str:
    context = getattr(exception, "ctx", None)
    path = getattr(context, "command_path", "cake")
    return f"{path} --help"


def _sentence(text: str) -> str:
    text = _one_line(text).replace("Value error, ", "").replace("Input should", "it should")
    return text[:-1] if text.endswith(".") else text


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 300 else line[:297] + "..."
