"""Cake: typed, hardware-explicit schedules for GPU kernels, checked, simulated and compiled.

``cake.compile("gemm.cake", BN=128)`` gives a callable kernel, ``cake.check(path)`` the findings and
``cake.expanded(path)`` the expanded kernel (``cake.expand`` is the package that makes it). They are loaded when first
used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

__all__ = ["__version__", "check", "compile", "expanded"]

if TYPE_CHECKING:
    from cake.compiler import check_path as check
    from cake.compiler import compile_file as compile
    from cake.compiler import expand_file as expanded

_FRONT = {"check": "check_path", "compile": "compile_file", "expanded": "expand_file"}


def __getattr__(name: str) -> Any:
    if name not in _FRONT:
        raise AttributeError(f"module 'cake' has no attribute '{name}'")
    from cake import compiler

    return getattr(compiler, _FRONT[name])
