"""The command line. ``main`` is the process: whatever happens in a command, it ends with an exit code and a diagnostic.

Exit codes: 0 fine, 1 findings that block, 2 a command line that cannot be read, 130 interrupted, 141 nobody reads the
output.
"""

from __future__ import annotations

import os
import sys

__all__ = ["main"]

INTERRUPTED = 130
UNREAD = 141


def main(arguments: list[str] | None = None) -> None:
    """Run one command and end the process."""
    words = sys.argv[1:] if arguments is None else arguments
    try:
        code = _run(words)
        sys.stdout.flush()
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:
        code = UNREAD
    if code == UNREAD:
        _discard_output()
    sys.exit(code)


def _run(words: list[str]) -> int:
    from cake.cli import outcome

    try:
        from cake.cli.app import app

        result = app(words, standalone_mode=False, prog_name="cake")
        return result if isinstance(result, int) else 0
    except BrokenPipeError:
        raise
    except Exception as error:
        if isinstance(error, outcome.Unread):
            return UNREAD
        if type(error).__name__ == "Abort":  # how Typer passes on an interrupt
            return INTERRUPTED
        if type(error).__name__ == "Exit":
            return int(getattr(error, "exit_code", 0))
        return outcome.failed(error, as_json="--json" in words, debug="--debug" in words)


def _discard_output() -> None:
    """Let nothing be written at exit to a pipe that nobody reads."""
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            os.dup2(null, stream.fileno())
        except (OSError, ValueError):
            continue
