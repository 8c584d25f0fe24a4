"""CUDA emission of each operation of ``cake.ir.ops``, registered under its name."""

from __future__ import annotations

from cake.codegen.ops.registry import OPS
from cake.codegen.ops import matrix, moves, registers, tma, wgmma  # noqa: E402,F401,I001  (they register themselves)

__all__ = ["OPS"]
