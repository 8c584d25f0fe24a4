"""H953: sectors of global memory that a request touches, against those that its bytes fill.

The cache moves memory in sectors of 32 bytes (CUDA C++ Best Practices Guide, "Coalesced Access to Global Memory"). The lanes of a
warp that execute one instruction are one request, and each sector that some active lane reaches is moved once for it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cake.hints.lanes import Requests

SECTOR = 32


@dataclass(frozen=True)
class Traffic:
    """Sectors of some requests: touched, and what as many bytes would fill; the most that a single request touches."""

    requests: int
    touched: int
    ideal: int
    worst: int
    worst_ideal: int


def traffic(requests: Requests, itemsize: int) -> Traffic:
    """What ``requests`` move. The tensor starts on a sector."""
    size = requests.width * itemsize
    touched = ideal = worst = worst_ideal = count = 0
    for first, active in zip(requests.first, requests.active, strict=True):
        starts = np.unique(first[active]) * itemsize
        if not starts.size:
            continue
        count += 1
        sectors = int(np.unique(np.concatenate((starts // SECTOR, (starts + size - 1) // SECTOR))).size)
        filled = -(-starts.size * size // SECTOR)
        touched, ideal = touched + sectors, ideal + filled
        if sectors * worst_ideal > worst * filled or not worst:
            worst, worst_ideal = sectors, filled
    return Traffic(count, touched, ideal, worst, worst_ideal)
