"""The machine: executes expanded kernels on the CPU, agent by agent.

``run`` is the values reading; an observer gets every event and makes another reading of the same execution
(``cake.machine.order`` is one). From the bottom: ``memory``, ``registers`` and ``elementwise`` hold and compute
values; ``barriers`` and ``flights`` are the hardware's state; ``program`` compiles statements and ``meanings``
operations to codes; a ``tape`` produces the steps of an instance; ``executor`` lets agents walk their tapes in the
order a ``schedule`` picks; ``stuck`` explains a deadlock.

Values of an instance are computed once, as its first warp comes by; each warp's stores happen as that warp comes by.
A race between warps therefore shows as a wrong result in some schedule. Two things are coarser than hardware: a load
by all warps reads for all of them when the first one arrives (its own instance's earlier stores excepted), and the
two halves of a warp see each other's stores at once. The order reading judges both exactly.
"""

from cake.machine.events import Event, Observer, Recorder, Setup
from cake.machine.run import RunResult, run

__all__ = ["Event", "Observer", "Recorder", "RunResult", "Setup", "run"]
