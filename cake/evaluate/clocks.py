"""What the device did during a measurement: SM clock, power and temperature, read through NVML, never set.

NVML is the library that comes with the driver, called through ctypes (NVML API Reference, Device Queries); no package is
needed.
"""

from __future__ import annotations

import ctypes
import statistics
import threading
from types import TracebackType
from typing import Any

LIBRARY = "libnvidia-ml.so.1"
CLOCK_SM = 1
"""NVML_CLOCK_SM of nvmlClockType_t."""
TEMPERATURE_GPU = 0
"""NVML_TEMPERATURE_GPU of nvmlTemperatureSensors_t."""
PERIOD = 0.02
"""Seconds between two samples."""


def nvml() -> Any:
    """The library; OSError where the machine has none."""
    return ctypes.CDLL(LIBRARY)


def bus_id(ordinal: int) -> str:
    """The PCI bus id of a CUDA device; empty where there is none."""
    from cake.diagnostics import CakeError
    from cake.runtime.driver import driver

    try:
        return driver().pci_bus_id(ordinal)
    except CakeError:
        return ""


class Clocks:
    """Samples a device while a ``with`` block runs, and once at its end. ``bus``: its PCI bus id, because NVML numbers the
    devices of a machine and CUDA those that it may see. Where NVML does not answer, the summary says so and nothing fails."""

    def __init__(self, bus: str, *, library: Any = None, period: float = PERIOD) -> None:
        self._period = period
        self._samples: list[tuple[int, float, int]] = []
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._note = "no NVML samples"
        self._device = ctypes.c_void_p()
        self._library: Any = None
        try:
            found = library if library is not None else nvml()
            self._ask(found.nvmlInit_v2)
            self._ask(found.nvmlDeviceGetHandleByPciBusId_v2, ctypes.c_char_p(bus.encode()), ctypes.byref(self._device))
            self._library = found
        except (OSError, AttributeError) as problem:
            self._note = f"no NVML samples: {problem}"

    def _ask(self, function: Any, *arguments: Any) -> None:
        code = function(*arguments)
        if code:
            raise OSError(f"{getattr(function, '__name__', 'NVML')} answers {code}")

    def _number(self, function: str, *which: int) -> int:
        value = ctypes.c_uint()
        self._ask(getattr(self._library, function), self._device, *which, ctypes.byref(value))
        return value.value

    def sample(self) -> None:
        """One sample: MHz, W, degrees C. OSError where NVML refuses."""
        self._samples.append(
            (
                self._number("nvmlDeviceGetClockInfo", CLOCK_SM),
                self._number("nvmlDeviceGetPowerUsage") / 1000,
                self._number("nvmlDeviceGetTemperature", TEMPERATURE_GPU),
            )
        )

    def _loop(self) -> None:
        last = False
        while not last:
            last = self._stop.wait(self._period)
            try:
                self.sample()
            except (OSError, AttributeError) as problem:
                self._note = f"no NVML samples: {problem}"
                return

    def __enter__(self) -> Clocks:
        if self._library is not None:
            self._samples.clear()
            self._stop.clear()
            self._thread = threading.Thread(target=self._loop, daemon=True)
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def summary(self) -> dict[str, Any]:
        """Minimum, median and maximum of what was sampled; a note where nothing was."""
        if not self._samples:
            return {"note": self._note}
        sm = sorted(s[0] for s in self._samples)
        return {
            "sm_mhz": [sm[0], statistics.median(sm), sm[-1]],
            "power_w_max": max(s[1] for s in self._samples),
            "temperature_c_max": max(s[2] for s in self._samples),
            "samples": len(sm),
        }
