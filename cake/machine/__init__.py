"""The machine: executes expanded kernels on the CPU. ``run`` is the values reading; observers get every event."""

from cake.machine.events import Event, Observer, Recorder, Setup
from cake.machine.run import RunResult, run

__all__ = ["Event", "Observer", "Recorder", "RunResult", "Setup", "run"]
