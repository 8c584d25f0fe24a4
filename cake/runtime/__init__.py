"""Launching built kernels from Python: checks, tensor maps, parameters, streams. Needs the CUDA driver and nothing
else; torch and CuPy are used where the caller uses them."""

from cake.runtime.launcher import LoadedKernel, load

__all__ = ["LoadedKernel", "load"]
