"""What a problem is: arguments, reference, peer, tolerances, shapes. A kernel or sequence is matched to its problem by name; shapes
depend on its constants, which the manifest records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Shape = tuple[int, ...]
Constants = dict[str, Any]


@dataclass(frozen=True)
class Problem:
    """``arguments(torch, shape, generator, constants)`` makes a call's arguments in order of declaration, outputs poisoned;
    ``outputs(constants)`` are their indices. ``reference`` computes each output in float64, with the error allowed for each
    element; ``peer`` writes into outputs of its own. ``checked`` shapes are tested, ``timed`` ones also timed. ``work`` counts
    the ``unit`` (FLOP or bytes) of a shape. ``measure(torch, arguments, output)`` turns an output that is a choice into what
    the choice is worth, in float64, NaN where it is none. ``scratch`` arguments may hold anything before and after."""

    name: str
    arguments: Callable[[Any, Shape, Any, Constants], list[Any]]
    outputs: Callable[[Constants], tuple[int, ...]]
    reference: Callable[[Any, list[Any], Constants], list[tuple[Any, Any]]]
    peer: Callable[[Any, list[Any], Constants], Callable[[], Any]]
    peer_name: str
    work: Callable[[Shape, Constants], float]
    unit: str
    checked: Callable[[Constants], Sequence[Shape]]
    timed: Callable[[Constants], Sequence[Shape]]
    # A second peer, where the first is only a ceiling: what torch.compile makes of the reference.
    rival: Callable[[Any, list[Any], Constants], Callable[[], Any]] | None = None
    measure: Callable[[Any, list[Any], Any], Any] | None = None
    scratch: tuple[int, ...] = ()
    # What a peer computes for each output, where ``peer`` does not write it into the arguments or is only a ceiling.
    computed: Callable[[Any, list[Any], Constants], list[Any]] | None = None

    def peer_outputs(self, torch: Any, arguments: list[Any], constants: Constants) -> list[Any]:
        """What a peer computes for each output, in the kernel's layout (None: it does not), to compare errors with.
        ``arguments`` have outputs of its own."""
        if self.computed is not None:
            return self.computed(torch, arguments, constants)
        self.peer(torch, arguments, constants)()
        return [arguments[i] for i in self.outputs(constants)]


def random_tensor(torch: Any, shape: Shape, generator: Any, dtype: Any, scale: float = 1.0) -> Any:
    """Normal values."""
    x = torch.randn(shape, generator=generator, device=generator.device, dtype=torch.float32)
    return (scale * x).to(dtype)


def poisoned(torch: Any, shape: Shape, device: Any, dtype: Any) -> Any:
    """An output filled with NaN (integers: with -7), so that an element nobody writes shows."""
    return poison(torch, torch.empty(shape, device=device, dtype=dtype))


def poison(torch: Any, tensor: Any) -> Any:
    """Fill a tensor with what no kernel writes."""
    return tensor.fill_(float("nan") if tensor.dtype.is_floating_point else -7)


def rounded(reference: Any) -> tuple[Any, Any]:
    """A bf16 output and its bound: one rounding to bf16 (half an ulp is 2**-9) with as much again to spare, and a
    thousandth of the typical element for what f32 loses inside."""
    return reference, reference.abs() * 2.0**-8 + 1e-3 * reference.square().mean().sqrt()


def identical(torch: Any, rows: Any) -> tuple[Any, Any]:
    """For each bf16 row a number that it shares with the rows of the same bits, and how many of these come before it."""
    group = torch.unique(rows.view(torch.int16), dim=0, return_inverse=True)[1]
    order = torch.argsort(group, stable=True)
    first = torch.bincount(group).cumsum(dim=0) - torch.bincount(group)
    rank = torch.empty_like(group)
    rank[order] = torch.arange(len(group), device=group.device) - first[group[order]]
    return group, rank
