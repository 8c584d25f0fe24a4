"""What the scripts that run on a GPU share: fresh arguments of a problem, its bounds, errors beside the peer's, and the
comparison in which outputs change hands."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.problems import Constants, Problem, Shape
from cake.evaluate import errors
from cake.evaluate.pairs import Comparison, compare

MANIFESTS = ("manifest.json", "sequence.json")
"""Of kernels and of sequences."""

References = list[tuple[Any, Any]]
"""What each output should be in float64, and the error allowed for each element."""


def built(directory: Path) -> list[Path]:
    """The directories below one that hold a built kernel or sequence, in order."""
    return sorted(p.parent for name in MANIFESTS for p in directory.glob(f"*/{name}"))


def manifest_of(directory: str | Path) -> dict[str, Any]:
    """What a built kernel or sequence says of itself."""
    path = next(p for name in MANIFESTS if (p := Path(directory) / name).exists())
    manifest: dict[str, Any] = json.loads(path.read_text())
    return manifest


def constants_of(directory: str | Path) -> Constants:
    """The constants a built kernel or sequence was expanded with."""
    constants: Constants = manifest_of(directory)["constants"]
    return constants


def fresh(torch: Any, problem: Problem, shape: Shape, seed: int, constants: Constants) -> list[Any]:
    """Arguments of a call on the device, outputs poisoned."""
    generator = torch.Generator(device="cuda")
    generator.manual_seed(seed)
    return problem.arguments(torch, shape, generator, constants)


def beside_peer(
    torch: Any, problem: Problem, kernel: Callable[..., Any], ours: list[Any], constants: Constants, pairs: int
) -> tuple[Comparison, list[Any]]:
    """The kernel on ``ours`` against the peer on outputs of its own, which change hands half-way; and the peer's arguments. At
    the end all outputs are the kernel's."""
    peer = peer_arguments(problem, ours, constants)

    def swap() -> None:
        for i in problem.outputs(constants):
            ours[i], peer[i] = peer[i], ours[i]

    call = problem.peer(torch, peer, constants)
    kernel(*peer)  # what a call with new addresses costs the host is not measured
    result = compare(torch, lambda: kernel(*ours), call, pairs=pairs, swap=swap, twin=lambda: kernel(*peer))
    return result, peer


def peer_arguments(problem: Problem, ours: list[Any], constants: Constants) -> list[Any]:
    """The same inputs with outputs of their own."""
    return [t.clone() if i in problem.outputs(constants) else t for i, t in enumerate(ours)]


def _values(torch: Any, problem: Problem, arguments: list[Any], output: Any) -> Any:
    """What is compared with the reference: an output, or what a choice is worth."""
    return problem.measure(torch, arguments, output) if problem.measure else output


def within_bounds(
    torch: Any, problem: Problem, tensors: list[Any], constants: Constants, references: References | None = None
) -> dict[str, Any]:
    """How far the outputs are from the float64 reference. ``worst``: the largest error over its bound; at most 1 is right."""
    out: dict[str, Any] = {"relative": 0.0, "worst": 0.0, "not_finite": 0}
    references = references if references is not None else problem.reference(torch, tensors, constants)
    for index, (expected, bound) in zip(problem.outputs(constants), references, strict=True):
        actual = _values(torch, problem, tensors, tensors[index]).double()
        difference = torch.where(bound.isinf(), 0.0, (actual - expected).abs())
        expected = torch.where(bound.isinf(), 0.0, expected)
        bad = ~torch.isfinite(actual) & ~bound.isinf()
        out["not_finite"] += int(bad.sum())
        over = torch.where(bad, torch.inf, difference / bound)
        at = int(over.argmax())
        if float(over.flatten()[at]) >= out["worst"]:
            out["worst"] = float(over.flatten()[at])
            place = torch.unravel_index(torch.tensor(at), over.shape)
            out["worst_at"] = [int(i) for i in place]
            out["worst_got"], out["worst_expected"] = float(actual.flatten()[at]), float(expected.flatten()[at])
        norm = float(difference.square().sum().sqrt() / expected.square().sum().sqrt())
        out["relative"] = max(out["relative"], norm) if norm == norm else norm
    return out


def accuracy(
    torch: Any, problem: Problem, ours: list[Any], peer: list[Any], constants: Constants
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Of outputs that the kernel has left in ``ours``: ``within_bounds``, and for each output its error against float64 and a
    peer's on the same inputs (``errors.beside``). Outputs in ``peer`` are written."""
    references = problem.reference(torch, ours, constants)
    bounds = within_bounds(torch, problem, ours, constants, references)
    rows = []
    theirs = problem.peer_outputs(torch, peer, constants)
    for index, (expected, bound), other in zip(problem.outputs(constants), references, theirs, strict=True):
        open_ = bound.isinf()  # any value is right there

        def error(arguments: list[Any], output: Any, expected: Any = expected, open_: Any = open_) -> errors.Error:
            values = _values(torch, problem, arguments, output)
            if bool(open_.any()):
                values, expected = (torch.where(open_, torch.zeros_like(t), t) for t in (values, expected))
            return errors.measure(torch, values, expected)

        rows.append(errors.beside(error(ours, ours[index]), None if other is None else error(peer, other)))
    return bounds, rows


def error_text(rows: Sequence[dict[str, Any]] | None) -> str:
    """Errors of a record, as the scripts print them."""
    if not rows:
        return ""
    parts = []
    for row in rows:
        ratio = [row["ratio"][name] for name in ("normwise", "worst")]
        beside = ", ".join("-" if r is None else f"{r:.3f}" for r in ratio)
        parts.append(f"normwise {row['kernel']['normwise']:.3g} worst {row['kernel']['worst']:.3g}, x peer's {beside}")
    return "; ".join(parts)
