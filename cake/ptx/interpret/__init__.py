"""An interpreter of the emitted PTX: the third engine that checks the verifier, and the lowest."""

from cake.ptx.interpret.examine import examine, program, run
from cake.ptx.interpret.launch import Launch, Pointer, Tensor, TensorMap
from cake.ptx.interpret.outcome import Finding, Outcome, Run, Undecided

__all__ = [
    "Finding",
    "Launch",
    "Outcome",
    "Pointer",
    "Run",
    "Tensor",
    "TensorMap",
    "Undecided",
    "examine",
    "program",
    "run",
]
