"""Code generation: expanded kernels to CUDA C++, and to cubins through NVRTC."""

from cake.codegen.emit import emit
from cake.codegen.parameters import Parameter, parameters

__all__ = ["Parameter", "emit", "parameters"]
