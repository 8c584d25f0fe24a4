"""One shape of a kernel beside its peer: what both compute, against float64, and how long both take."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from cake.diagnostics import CakeError, Diagnostic
from cake.evaluate import pairs as protocol
from cake.evaluate.errors import Error, Measure, beside
from cake.evaluate.inputs import poison, two_sides, upload
from cake.evaluate.peer import Peer, Prepare
from cake.ir import expanded as x
from cake.ir.sequences import Sequence

PEER_SLACK = 8
"""How many times the kernel's tolerance a peer may be off. One that rounds between its steps needs some of it; one that computes
something else is further off."""

Named = Mapping[str, Any]
Piece = tuple[str, Any, Any]
"""An output's name, an index into it, and what should stand there: a tensor on the device, float64 for floats."""


@dataclass(frozen=True)
class Case:
    """What is measured. ``bind`` makes a kernel's call ready for arguments by name; ``prepare`` is the peer; ``arguments`` are
    NumPy arrays and numbers. ``reference`` gives the pieces of the outputs for inputs on the device (None: nobody knows them),
    ``tolerance`` how far an output may be off (``Error.within``)."""

    kernel: x.Kernel | Sequence
    bind: Callable[[Named], Callable[[], Any]]
    prepare: Prepare
    arguments: Named
    dims: Mapping[str, int]
    reference: Callable[[Named], Iterator[Piece]] | None
    tolerance: Callable[[str], float]
    pairs: int = protocol.PAIRS

    @property
    def outputs(self) -> list[x.Tensor]:
        """The tensors that the kernel writes."""
        return [t for t in self.kernel.tensors if t.direction != "in"]


def run(torch: Any, case: Case, *, device: int = 0, place: str | None = None) -> dict[str, Any]:
    """The record of one shape. ``outputs``: for each output the kernel's error, the peer's and their quotient, against float64
    or, where no reference is known, against the peer (``against``); ``ok``: within its tolerance (None: not judged);
    ``peer_ok``: the peer is near enough to be one. ``repeatable``: the calls that were timed last left what the first one
    computed, bit for bit (None where outputs are also read); else ``after`` has the errors that they left. ``time``:
    ``pairs.Comparison``. ``place``: where tensors live, by default the CUDA device."""
    place = place or f"cuda:{device}"
    left, right = two_sides(torch, case.kernel, case.arguments, place)
    given = {n: v for n, v in left.items() if all(n != t.name for t in case.outputs)}
    for t in case.outputs:
        if t.direction == "inout":
            given[t.name] = upload(torch, case.arguments[t.name], t.dtype, place)
    ours = [case.bind(side) for side in (left, right)]
    theirs = [Peer(case.prepare, case.kernel, side, case.dims, case.kernel.constants) for side in (left, right)]
    fresh = (
        [] if any(t.direction == "inout" for t in case.outputs) else case.outputs
    )  # others may differ from call to call
    for side in (left, right):  # making ready may have written
        _reset(torch, case, side, place)
    ours[0]()
    torch.cuda.synchronize()
    computed = theirs[1].outputs(torch.cuda.synchronize)
    outputs = _errors(torch, case, given, left, computed)
    first = {t.name: left[t.name].clone() for t in fresh}

    for side in (left, right):
        _reset(torch, case, side, place)
    turn = [0]

    def swap() -> None:
        turn[0] ^= 1

    ours[1]()  # what the first call with new addresses costs the host is not measured
    theirs[0].call()
    time = protocol.compare(
        torch,
        lambda: ours[turn[0]](),
        lambda: theirs[1 - turn[0]].call(),
        pairs=case.pairs,
        device=device,
        swap=swap,
        twin=lambda: ours[1 - turn[0]](),
    )
    same = all(_same(torch, first[t.name], side[t.name]) for t in fresh for side in (left, right))
    record: dict[str, Any] = {
        "outputs": outputs,
        "repeatable": same if fresh else None,
        "significant": time.significant,
        "time": asdict(time),
    }
    if not same:
        record["after"] = _errors(torch, case, given, left, computed, only=fresh)
    return record


def _reset(torch: Any, case: Case, side: Named, place: str) -> None:
    """Outputs as before the first call."""
    for t in case.outputs:
        if t.direction == "out":
            poison(torch, side[t.name], t.dtype)
        else:
            side[t.name].copy_(upload(torch, case.arguments[t.name], t.dtype, place))


def _same(torch: Any, a: Any, b: Any) -> bool:
    """Whether two contiguous tensors have the same bits."""
    return bool(torch.equal(a.reshape(-1).view(torch.uint8), b.reshape(-1).view(torch.uint8)))


def _errors(
    torch: Any, case: Case, given: Named, ours: Named, peer: Named, only: list[x.Tensor] | None = None
) -> list[dict[str, Any]]:
    """A row for each output."""
    tensors = only if only is not None else case.outputs
    mine = {t.name: Measure(torch, ours[t.name]) for t in tensors}
    others = {t.name: Measure(torch, peer[t.name]) for t in tensors if t.name in peer}
    for name, index, expected in case.reference(given) if case.reference else ():
        try:
            if not any(name == t.name for t in case.outputs):
                raise ValueError("there is no such output")
            for measures in (mine, others):
                if name in measures:
                    measures[name].add(index, expected)
        except (ValueError, IndexError, TypeError, AttributeError) as problem:
            message = f"the reference of `{name}` does not fit: {problem}"
            raise CakeError(Diagnostic(code="R106", severity="error", message=message)) from problem
    rows = []
    for t in tensors:
        row: dict[str, Any] = {"name": t.name, "dtype": t.dtype, "shape": list(ours[t.name].shape)}
        if case.reference is not None:
            rows.append(
                row
                | _judged(case, t.name, mine[t.name].result(), others[t.name].result() if t.name in others else None)
            )
            continue
        difference = None
        if t.name in peer:
            mine[t.name].add(..., peer[t.name])
            difference = mine[t.name].result()
        rows.append(row | {"against": "peer" if difference else None, "ok": None, **_only(difference)})
    return rows


def _judged(case: Case, name: str, ours: Error, peer: Error | None) -> dict[str, Any]:
    """Errors against float64, and whether they are within the tolerance."""
    if not ours.compared and ours.elements:
        return {"against": None, "ok": None, **_only(None)}
    tolerance = case.tolerance(name)
    choice = ours.differing is not None  # of equals a peer may take another
    plausible = None if peer is None or choice else peer.within(PEER_SLACK * tolerance)
    verdicts = {"ok": ours.within(tolerance), "peer_ok": plausible}
    return {"against": "float64", "tolerance": tolerance, **verdicts, **beside(ours, peer)}


def _only(error: Error | None) -> dict[str, Any]:
    return {"kernel": None, "peer": None, "ratio": None} if error is None else beside(error, None)
