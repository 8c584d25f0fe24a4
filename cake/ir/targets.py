"""What each target offers: the numbers that the hardware checks compare with.

Sources: CUDA C++ Programming Guide 13.0, "Technical Specifications per Compute Capability" (shared memory, registers, threads),
"Thread Block Clusters" (portable cluster size 8); PTX ISA 9.0, 9.7.13.1 (16 named barriers a CTA), 9.7.20.5 (setmaxnreg in
steps of 8 from 24 to 256), 9.7.16 (512 tensor memory columns).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """One architecture. ``shared_bytes``: most shared memory a CTA may ask for (opt-in); ``shared_per_sm`` includes the 1 KiB
    that each resident CTA costs the system. ``features``: instruction families."""

    name: str
    shared_bytes: int
    shared_per_sm: int
    threads_per_sm: int
    features: frozenset[str]
    registers_per_sm: int = 65536
    registers_per_thread: int = 255
    threads_per_cta: int = 1024
    ctas_per_sm: int = 32
    named_barriers: int = 16
    cluster_size: int = 1
    tmem_columns: int = 0


_AMPERE = frozenset({"mma", "cp_async", "ldmatrix"})
_HOPPER = _AMPERE | {"tma", "mbarrier", "wgmma", "stmatrix", "setmaxnreg", "cluster", "pdl", "red_vector"}
_BLACKWELL = (_HOPPER - {"wgmma"}) | {"tcgen05", "clc"}

TARGETS: dict[str, Target] = {
    t.name: t
    for t in (
        Target("sm_80", 166_912, 167_936, 2048, _AMPERE),
        Target("sm_86", 101_376, 102_400, 1536, _AMPERE, ctas_per_sm=16),
        Target("sm_89", 101_376, 102_400, 1536, _AMPERE, ctas_per_sm=24),
        Target("sm_90a", 232_448, 233_472, 2048, _HOPPER, cluster_size=8),
        Target("sm_100a", 232_448, 233_472, 2048, _BLACKWELL, cluster_size=8, tmem_columns=512),
    )
}

REFUSED: dict[str, str] = {
    "sm_103a": "Blackwell Ultra has no row in the target table yet; write for sm_100a",
    "sm_120a": "consumer Blackwell has neither wgmma nor tcgen05; it has no row in the target table yet",
    "sm_90": "wgmma and setmaxnreg exist only on the exact target: write sm_90a",
    "sm_100": "tcgen05 exists only on the exact target: write sm_100a",
}
"""Targets that are known by name and refused, with the reason."""
