"""Every form, whichever module adds it."""

from __future__ import annotations

from tests.ops import control, elementwise, moves, pipelines, random_kernels, reductions, shared, tma, wgmma
from tests.ops.form import FORMS, Form

__all__ = [
    "FORMS",
    "Form",
    "control",
    "elementwise",
    "moves",
    "pipelines",
    "random_kernels",
    "reductions",
    "shared",
    "tma",
    "wgmma",
]
