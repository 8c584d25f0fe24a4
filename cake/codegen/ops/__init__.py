"""CUDA emission of each operation of ``cake.ir.ops``, registered under its name."""

from __future__ import annotations

from cake.codegen.ops import lists, matrix, moves, registers, tma, trackers, wgmma  # noqa: F401  (they register themselves)
from cake.codegen.ops.registry import OPS

__all__ = ["OPS"]
