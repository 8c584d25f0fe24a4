"""The launcher on a real device."""

from __future__ import annotations

from pathlib import Path

from cake.runtime import watchdog
from tests.gpu import workers


def test_launching(scale: Path) -> None:
    assert watchdog.run(workers.launching, str(scale), timeout=120) == []


def test_tensor_maps(tile: Path) -> None:
    assert watchdog.run(workers.tiles, str(tile), timeout=120) == []
