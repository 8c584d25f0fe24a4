"""Cake: typed, hardware-explicit schedules for GPU kernels, checked, simulated and compiled."""

__version__ = "0.1.0"
