"""What ``cake bench`` runs in a process of its own: one shape of a built kernel, on the inputs of its module or random ones."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cake.cli.arguments import prepare
from cake.cli.companion import Companion, load_module
from cake.cli.compare import TOLERANCE
from cake.cli.outcome import error
from cake.cli.settings import Value
from cake.evaluate import case, peer
from cake.evaluate.record import environment, plain
from cake.ir import expanded as x
from cake.ir.sequences import Sequence
from cake.runtime import LoadedKernel, LoadedSequence, load

TORCH = "R109"


@dataclass(frozen=True)
class Order:
    """One shape to measure. ``directory`` has the artifact; ``module`` is the path of the companion, ``peer`` as on the command
    line (None: the companion's)."""

    directory: str
    module: str | None
    peer: str | None
    dims: Mapping[str, int]
    scalars: Mapping[str, Value]
    seed: int
    pairs: int


def measure(order: Order) -> dict[str, Any]:
    """The record of one shape (``cake.evaluate.case.run``), the ``environment`` and what was ``built``, as JSON has them."""
    torch = torch_with_cuda()
    loaded = load(order.directory)
    kernel = loaded.sequence if isinstance(loaded, LoadedSequence) else loaded.kernel
    companion = load_module(Path(order.module), kernel.name) if order.module else None
    made = case_of(torch, kernel, companion, order, functools.partial(bind, loaded), "cuda:0")
    artifacts = loaded.artifact.artifacts if isinstance(loaded, LoadedSequence) else (loaded.artifact,)
    built = [
        {"kernel": a.kernel.name, "kernel_sha256": a.kernel_hash, "compiler": a.compiler_version} for a in artifacts
    ]
    record: dict[str, Any] = plain({**case.run(torch, made), "environment": environment(torch), "built": built})
    return record


def torch_with_cuda() -> Any:
    """The module; R109 where it is missing or has no CUDA."""
    help = "pip install torch, in a build with CUDA"
    try:
        import torch
    except ImportError as problem:
        raise error(TORCH, "measuring needs torch, which is not installed", help, str(problem)) from problem
    if not torch.cuda.is_available():
        raise error(
            TORCH, f"torch {torch.__version__} sees no CUDA device", help, f"built for CUDA {torch.version.cuda}"
        )
    return torch


def bind(loaded: LoadedKernel | LoadedSequence, named: Mapping[str, Any]) -> Callable[[], None]:
    """A call that repeats without looking up names, with workspace of its own where the kernel needs some."""
    arguments = [named[n] for n in loaded.signature]
    if isinstance(loaded, LoadedSequence):
        return functools.partial(loaded, *arguments, workspace=loaded.workspace(*arguments))
    return functools.partial(loaded, *arguments)


def case_of(
    torch: Any,
    kernel: x.Kernel | Sequence,
    companion: Companion | None,
    order: Order,
    bind: Callable[[Mapping[str, Any]], Callable[[], Any]],
    place: str,
) -> case.Case:
    """What is measured: the companion's functions, or what stands for them. ``place``: where tensors live."""
    arguments = prepare(kernel, companion, order.dims, order.scalars, order.seed)
    own = companion.find("peer") if companion else None
    prepare_peer = peer.load(order.peer) if order.peer else own
    if prepare_peer is None:
        raise peer.wrong(f"there is nothing to compare {kernel.name} with")
    return case.Case(
        kernel=kernel,
        bind=bind,
        prepare=prepare_peer,
        arguments=arguments,
        dims=order.dims,
        reference=_reference(torch, kernel, companion, arguments, order.dims, place) if companion else None,
        tolerance=functools.partial(_tolerance, kernel, companion),
        pairs=order.pairs,
    )


def _tolerance(kernel: x.Kernel | Sequence, companion: Companion | None, name: str) -> float:
    """The companion's, else that of the dtype, as for ``cake run --check``."""
    tolerance = companion.find("tolerance") if companion else None
    if companion is not None and tolerance is not None:
        return float(companion.call(tolerance, name))
    tensor = kernel.tensor(name)
    return TOLERANCE.get(tensor.dtype, 0.0) if tensor is not None else 0.0


def _reference(
    torch: Any,
    kernel: x.Kernel | Sequence,
    companion: Companion,
    arguments: Mapping[str, Any],
    dims: Mapping[str, int],
    place: str,
) -> Callable[[Mapping[str, Any]], Iterator[case.Piece]] | None:
    """The companion's ``device_reference``, else its ``reference``, moved to the device."""
    on_device, on_host = companion.find("device_reference"), companion.find("reference")
    outputs = [t.name for t in kernel.tensors if t.direction != "in"]

    def pieces(given: Mapping[str, Any]) -> Iterator[case.Piece]:
        found = iter(companion.call(on_device, dict(given), dict(dims), dict(kernel.constants)))
        while (piece := companion.call(next, found, None)) is not None:
            if not isinstance(piece, tuple) or len(piece) != 3:
                raise companion.wrong("device_reference gave no (output, index, tensor)")
            yield piece

    def whole(_: Mapping[str, Any]) -> Iterator[case.Piece]:
        import numpy as np

        given = {n: v for n, v in arguments.items() if (t := kernel.tensor(n)) is None or t.direction != "out"}
        wanted = companion.call(on_host, given, dict(dims), dict(kernel.constants))
        if not isinstance(wanted, Mapping):
            raise companion.wrong(f"reference gave {type(wanted).__name__}, not a dict")
        for name in outputs:
            if name in wanted:
                array = np.asarray(wanted[name])
                exact = array if array.dtype.kind in "iub" else array.astype(np.float64)
                yield name, ..., torch.from_numpy(np.ascontiguousarray(exact)).to(place)

    return pieces if on_device is not None else whole if on_host is not None else None
