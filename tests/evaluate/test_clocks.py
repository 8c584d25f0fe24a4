"""Clocks of a device, from a library of our own."""

from __future__ import annotations

from typing import Any

import pytest

from cake.evaluate import clocks
from cake.evaluate.clocks import Clocks
from tests.evaluate.fakes import Nvml


def test_samples_are_summed_up() -> None:
    seen = Clocks("0000:1b:00.0", library=Nvml([1980, 1500, 1710]))
    for _ in range(3):
        seen.sample()
    assert seen.summary() == {
        "sm_mhz": [1500, 1710, 1980],
        "power_w_max": 650.0,
        "temperature_c_max": 55,
        "samples": 3,
    }


def test_a_block_has_at_least_one_sample() -> None:
    with Clocks("0000:1b:00.0", library=Nvml([1500]), period=60.0) as seen:
        pass
    assert seen.summary()["samples"] == 1


class Old:
    """A library without the functions."""

    def nvmlInit_v2(self) -> int:
        return 0


@pytest.mark.parametrize(
    ("bus", "library", "said"),
    [("0000:ff:00.0", Nvml([1]), "answers 6"), ("", Old(), "nvmlDeviceGetHandleByPciBusId_v2")],
)
def test_no_answer_is_said(bus: str, library: Any, said: str) -> None:
    with Clocks(bus, library=library) as seen:
        pass
    assert said in seen.summary()["note"]


def test_errors_while_sampling_are_said() -> None:
    with Clocks("0000:1b:00.0", library=Nvml([]), period=60.0) as seen:
        pass
    assert "answers 15" in seen.summary()["note"]


def test_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clocks, "LIBRARY", "libthat-is-not-there.so.1")
    assert "libthat-is-not-there" in Clocks("0000:1b:00.0").summary()["note"]


def test_no_driver() -> None:
    from cake.diagnostics import CakeError
    from cake.runtime.driver import driver

    try:
        driver()
    except CakeError:
        assert clocks.bus_id(0) == ""
    else:
        assert clocks.bus_id(0).count(":") == 2
