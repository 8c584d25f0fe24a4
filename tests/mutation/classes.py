"""All mutants of a kernel, by class."""

from __future__ import annotations

from collections.abc import Iterator

from cake.ir import expanded as x
from tests.mutation import control, harmless, meetings, memory, protocol
from tests.mutation.site import CLASSES, MUTATORS, Mutant

FAMILIES = (protocol, control, meetings, memory, harmless)

LEFT_OUT = {
    35: "tile index map: numbers, not protocol; the simulator's comparison with the reference finds it",
    37: "neutral elements, masks, narrow sums: numbers",
    38: "swizzles, boxes, descriptors: numbers and limits",
    40: "programmatic dependent launch: not in the expanded IR yet",
    41: "tokens: not in the expanded IR yet",
    43: "tensor memory: not in the expanded IR yet",
}
"""Classes of docs/verification.md 2.2 that expanded kernels cannot say or that are not the checker's."""


def mutants(k: x.Kernel, numbers: tuple[int, ...] | None = None) -> Iterator[Mutant]:
    """Every mutant of a kernel, in a fixed order."""
    for number in sorted(MUTATORS):
        if numbers is None or number in numbers:
            for function in MUTATORS[number]:
                for what, mutant in function(k):
                    if mutant is not None and mutant != k:
                        yield Mutant(number, what, mutant)


__all__ = ["CLASSES", "FAMILIES", "LEFT_OUT", "mutants"]
