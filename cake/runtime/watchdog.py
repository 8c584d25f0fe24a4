"""Run a function in a process of its own with a time limit: a kernel that hangs cannot be stopped from within.

The child is started afresh (CUDA does not survive a fork), sends back its result or its exception, and is killed when
its time is up.
"""

from __future__ import annotations

import multiprocessing
import signal
import traceback
from collections.abc import Callable
from typing import Any

from cake.diagnostics import CakeError, Diagnostic
from cake.runtime import errors


def _child(pipe: Any, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    try:
        message: tuple[str, Any] = ("result", function(*args, **kwargs))
    except CakeError as e:
        message = ("diagnostics", [d.model_dump_json() for d in e.diagnostics])
    except BaseException as e:
        message = ("exception", (f"{type(e).__name__}: {e}", traceback.format_exc()))
    try:
        pipe.send(message)
    except Exception as e:  # a result that cannot be pickled
        pipe.send(("exception", (f"the result cannot be sent: {e}", traceback.format_exc())))
    pipe.close()


def run(function: Callable[..., Any], *args: Any, timeout: float, what: str | None = None, **kwargs: Any) -> Any:
    """``function(*args, **kwargs)`` in a child process, for at most ``timeout`` seconds. The function and its values
    must be picklable. CakeError R019 if time ran out, R020 if the child died; its own CakeError is raised again
    here."""
    name = what or getattr(function, "__name__", "the function")
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(sender, function, args, kwargs), daemon=True)
    process.start()
    sender.close()
    try:
        if not receiver.poll(timeout):
            process.kill()
            raise errors.error(
                errors.TIMEOUT,
                f"{name} did not finish within {timeout:g} s.",
                "a kernel that waits for a barrier nobody completes looks like this: `cake check` it",
            )
        kind, value = receiver.recv()
    except EOFError:
        process.join(5)
        raise errors.error(
            errors.CRASHED,
            f"{name} died without an answer.",
            "run it alone to see its output",
            _exit_text(process.exitcode),
        ) from None
    finally:
        receiver.close()
        process.join(5)
        if process.is_alive():
            process.kill()
            process.join(5)
    if kind == "diagnostics":
        raise CakeError(*(Diagnostic.model_validate_json(text) for text in value))
    if kind == "exception":
        raise errors.error(
            errors.CRASHED, f"{name} failed: {value[0]}.", "see the traceback", *value[1].splitlines()[-12:]
        )
    return value


def _exit_text(code: int | None) -> str:
    if code is not None and code < 0:
        try:
            return f"killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"killed by signal {-code}"
    return f"exit status {code}"
