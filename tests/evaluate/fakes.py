"""torch on the CPU with a CUDA of our own: its events read a clock that the functions under test set forward."""

from __future__ import annotations

import ctypes
from typing import Any

from cake.evaluate.pairs import FLUSH_BYTES


class Event:
    """An event that records when it was made, on the fake's clock."""

    def __init__(self, torch: Torch) -> None:
        self.torch, self.at = torch, 0.0

    def record(self) -> None:
        self.at = self.torch.now

    def elapsed_time(self, later: Event) -> float:
        return later.at - self.at


class Torch:
    """``now`` is in milliseconds. What is not about the device is torch's own."""

    def __init__(self) -> None:
        import torch

        self.real: Any = torch
        self.now = 0.0
        self.cuda = self

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["real"], name)

    def Event(self, enable_timing: bool) -> Event:
        return Event(self)

    def synchronize(self) -> None: ...

    def empty(self, *shape: Any, dtype: Any, device: str) -> Any:
        """Tensors are made on the CPU; what clears the L2 is small."""
        return self.real.empty(*((1,) if shape == (FLUSH_BYTES,) else shape), dtype=dtype)


class Nvml:
    """NVML with one device; ``clocks`` are what it answers in turn, and then an error."""

    def __init__(self, clocks: list[int], bus: str = "0000:1b:00.0") -> None:
        self.clocks, self.bus = list(clocks), bus

    def nvmlInit_v2(self) -> int:
        return 0

    def nvmlDeviceGetHandleByPciBusId_v2(self, bus: ctypes.c_char_p, device: Any) -> int:
        device._obj.value = 7
        return 0 if bus.value == self.bus.encode() else 6

    def nvmlDeviceGetClockInfo(self, device: ctypes.c_void_p, kind: int, out: Any) -> int:
        assert device.value == 7 and kind == 1
        if not self.clocks:
            return 15
        out._obj.value = self.clocks.pop(0)
        return 0

    def nvmlDeviceGetPowerUsage(self, device: ctypes.c_void_p, out: Any) -> int:
        out._obj.value = 650_000
        return 0

    def nvmlDeviceGetTemperature(self, device: ctypes.c_void_p, sensor: int, out: Any) -> int:
        out._obj.value = 55
        return 0
