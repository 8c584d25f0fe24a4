"""One launch with values, read for padding that takes part (N802).

The launch is ragged, and its inputs are random numbers away from zero. What padding holds, not whether it wins in this
launch, is compared with the neutral element. It runs after the launch has been found free of races.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cake.diagnostics import CakeError, Diagnostic
from cake.ir import expanded as x
from cake.ir.dtypes import DTYPES, numpy_dtype
from cake.machine.order.report import steps
from cake.machine.program import Operation, RoleProgram, statements
from cake.machine.run import run
from cake.machine.tape import Block, Branch, Loop
from cake.verify.padding.operations import TRACKS
from cake.verify.padding.tracking import States, Taken, Tracked

COMBINES = frozenset({"reduce", "argreduce", "track", "topk", "mma", "wgmma", "atomic", "tma.reduce"})
FILLS = frozenset({"tma.load", "cp_async"})


def concerned(kernel: x.Kernel) -> bool:
    """Something is combined, and something may bring padding."""
    nodes = [n for role in kernel.roles for n in statements(role.body) if isinstance(n, x.Op)]
    combined = any(n.op in COMBINES for n in nodes)
    fills = any(n.op in FILLS or (n.op == "load" and n.operands.get("where") is not None) for n in nodes)
    return combined and fills


def padding(
    kernel: x.Kernel, arguments: dict[str, Any], given: set[str], *, ctas: int, max_steps: int
) -> list[Diagnostic]:
    """The findings of one launch; ``given``: tensors whose contents decide control and stay as they are."""
    states = States(kernel)

    def watch(programs: tuple[RoleProgram, dict[str, RoleProgram]]) -> None:
        for program in programs[1].values():
            _attach(program.body, states)

    try:
        result = run(kernel, filled(kernel, arguments, given), ctas=ctas, max_steps=max_steps, prepare=watch)
    except CakeError:
        return []
    found = {taken.site.path: _tell(kernel, taken) for taken in states.taken.values()}
    if states.born and any(_not_numbers(a) for a in result.outputs.values()):
        for path, site in states.born.items():
            found.setdefault(path, _difference(site.span, steps(site)))
    return list(found.values())


def filled(kernel: x.Kernel, arguments: dict[str, Any], given: set[str]) -> dict[str, Any]:
    """The arguments with numbers in the float inputs, of either sign and between 0.5 and 2."""
    rng = np.random.default_rng(1)
    result = dict(arguments)
    for tensor in kernel.tensors:
        zero = any(a.tensor == tensor.name and a.form == "zero" for a in kernel.assumes)
        if tensor.direction != "in" or tensor.name in given or zero or DTYPES[tensor.dtype].kind != "float":
            continue
        shape = np.shape(arguments[tensor.name])
        kind = numpy_dtype(tensor.dtype)
        sign = rng.choice(np.asarray([-1.0, 1.0]), shape)
        result[tensor.name] = (sign * rng.uniform(0.5, 2.0, shape)).astype(np.float32).astype(kind)
    return result


def _attach(block: Block, states: States) -> None:
    for item in block.items:
        if isinstance(item, Loop):
            _attach(item.body, states)
        elif isinstance(item, Branch):
            _attach(item.then, states)
            _attach(item.orelse, states)
        elif isinstance(item, Operation) and item.node.op in TRACKS:
            track = TRACKS[item.node.op](item.meaning, states)
            item.meaning = Tracked(item.meaning, states, track)  # type: ignore[assignment]


def _not_numbers(a: Any) -> bool:
    """An output holds something that is not a number, though no input did."""
    array = np.asarray(a)
    return array.dtype.kind not in "iub" and bool(np.isnan(array.astype(np.float32)).any())


# ---- telling --------------------------------------------------------------------------------------------------------


def _tell(kernel: x.Kernel, taken: Taken) -> Diagnostic:
    message, help = _words(kernel, taken)
    witness = [f"element {list(taken.element)}{steps(taken.site)}"]
    if taken.sources:
        witness.append(f"loaded from: {', '.join(sorted(taken.sources))}")
    return Diagnostic(
        code="N802", severity="error", message=message, span=taken.site.span, witness=tuple(witness), help=help
    )


def _words(kernel: x.Kernel, taken: Taken) -> tuple[str, str]:
    value = f"{taken.value:g}"
    function = taken.function.removeprefix("arg")
    neutral = {"sum": "0", "add": "0", "max": "-inf", "min": "inf"}.get(function.replace(".", " ").split(" ")[-1], "0")
    if taken.how == "reduced":
        return (
            f"`{taken.function}` takes in elements that stand for no data: they lie past the end, or were left out by a load, "
            f"and hold {value}",
            f"give them {neutral} first: `where(<inside>, x, {neutral})`, or `other={neutral}` at the load",
        )
    if taken.how == "combined":
        return (
            f"`{taken.function}` combines elements that stand for no data, and hold {value}, with memory",
            f"leave them out with `where=`, or give them {neutral}",
        )
    if taken.how == "stored":
        return (
            "what is stored is the maximum or minimum of data and of elements that stand for no data",
            "give the elements past the end the neutral value (-inf for max, inf for min) before they are combined",
        )
    if taken.how == "multiplied":
        return (
            "a product takes in elements that stand for no data, and are not zero",
            "give them 0 first: `where(<inside>, x, 0)`",
        )
    open_ = sorted(s for s in taken.sources if not any(a.tensor == s and a.form == "finite" for a in kernel.assumes))
    return (
        "a factor is masked to 0 where the other one is whatever lies in memory: 0 times infinity is not a number",
        f"`assume finite({open_[0] if open_ else 'x'})` if it is, or mask the other factor, too",
    )


def _difference(span: Any, where: str) -> Diagnostic:
    return Diagnostic(
        code="N802",
        severity="error",
        message="an infinity is taken from itself, which is not a number, and reaches an output",
        span=span,
        witness=(f"both operands are infinite{where}",),
        help="let the maximum that is subtracted start at a finite value: `max(max(x, axis=1), -1e30)`",
    )
