"""A child that hangs, dies or fails becomes a diagnostic."""

from __future__ import annotations

import os
import signal
import time

import pytest

from cake.diagnostics import CakeError
from cake.runtime import errors, watchdog


def add(a: int, b: int) -> int:
    return a + b


def hang() -> None:
    time.sleep(60)


def die() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def fail() -> None:
    raise ValueError("no such thing")


def refuse() -> None:
    raise errors.error(errors.GRID, "too many", "fewer")


def unsendable() -> object:
    return lambda: None


def test_result() -> None:
    assert watchdog.run(add, 2, b=3, timeout=60) == 5


@pytest.mark.parametrize(
    ("function", "limit", "code", "text"),
    [
        (hang, 2, "R019", "did not finish within 2 s"),
        (die, 60, "R020", "died without an answer"),
        (fail, 60, "R020", "ValueError: no such thing"),
        (refuse, 60, "R013", "too many"),
        (unsendable, 60, "R020", "cannot be sent"),
    ],
)
def test_failures(function: object, limit: float, code: str, text: str) -> None:
    with pytest.raises(CakeError) as e:
        watchdog.run(function, timeout=limit)  # type: ignore[arg-type]
    found = e.value.diagnostics[0]
    assert found.code == code and text in found.message
    assert found.help


def test_a_signal_is_named() -> None:
    with pytest.raises(CakeError) as e:
        watchdog.run(die, timeout=60)
    assert "SIGSEGV" in e.value.diagnostics[0].facts[0]
