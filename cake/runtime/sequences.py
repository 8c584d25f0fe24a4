"""Calling a built sequence: its kernels on one stream, with workspace that the caller holds.

Nothing is allocated by a call: ``w = k.workspace(x, c, ids)`` makes the workspace of these arguments once, and ``k(x, c, ids,
workspace=w)`` uses it. Calls that may run at the same time need workspace of their own.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from cake.codegen.sequences import SequenceArtifact
from cake.diagnostics import CakeError
from cake.ir import binding
from cake.ir.evaluate import compile_expr, evaluate
from cake.ir.expr import Expr, Sym
from cake.runtime import errors
from cake.runtime.driver import Driver
from cake.runtime.launcher import CALLS_KEPT, LoadedKernel
from cake.runtime.signature import Key, describe, scalar_packer, signature
from cake.runtime.tensors import torch_dtype, view

Argument = str | Callable[[Mapping[str, Any]], Any]
"""How a step gets an argument: by name, or computed from the launch values."""


class LoadedSequence:
    """A callable sequence. Arguments come in the order of declaration, or by keyword; outputs and workspace are the
    caller's. ``stream`` as for kernels."""

    def __init__(self, artifact: SequenceArtifact, *, driver: Driver | None = None) -> None:
        self.artifact = artifact
        self.sequence = artifact.sequence
        self.signature = signature(self.sequence)
        self.__name__ = self.sequence.name
        loaded: dict[str, LoadedKernel] = {}
        own = {s.name for s in self.sequence.scalars}
        self.steps = tuple(loaded.setdefault(a.kernel_hash, LoadedKernel(a, driver=driver)) for a in artifact.artifacts)
        self._plans = tuple(
            tuple(_argument(step.tensors.get(n), step.scalars.get(n), own) for n in kernel.signature)
            for step, kernel in zip(self.sequence.steps, self.steps, strict=True)
        )
        self._temps = tuple(t.name for t in self.sequence.temps)
        self._tensors = tuple(t.name for t in self.sequence.tensors)
        self._scalars = tuple(n for n in self.signature if n not in self._tensors)
        self._pack = scalar_packer(self.sequence, self.signature)
        self._known: dict[Key, Mapping[str, Any] | None] = {}

    def __repr__(self) -> str:
        return f"<cake sequence {describe(self.sequence)} for {self.sequence.target}>"

    def __call__(
        self, *args: Any, workspace: Mapping[str, Any] | None = None, stream: Any = None, **kwargs: Any
    ) -> None:
        """Check the arguments of every kernel, then launch them in order; returns without waiting."""
        named = self._named(args, kwargs)
        key = self._key(named)
        new = key is None or key not in self._known
        values = self._bind(named) if new else self._known[key]  # type: ignore[index]
        if values is not None:
            named.update(self._workspace(workspace))
            calls = [[named[a] if isinstance(a, str) else a(values) for a in plan] for plan in self._plans]
            if new:
                for kernel, call in zip(self.steps, calls, strict=True):
                    kernel.check(*call, stream=stream)
            for kernel, call in zip(self.steps, calls, strict=True):
                kernel(*call, stream=stream)
        if new and key is not None:
            if len(self._known) >= CALLS_KEPT:
                self._known.clear()
            self._known[key] = values

    def launches(
        self, *args: Any, workspace: Mapping[str, Any] | None = None, stream: Any = None, **kwargs: Any
    ) -> list[tuple[str, Callable[[], None]]]:
        """Each launch of a call by itself, with its kernel's name, to time it. The order of the list is theirs: one that reads what the
        one before writes finds whatever the workspace holds."""
        named = self._named(args, kwargs)
        values = self._bind(named)
        if values is None:
            return []
        named.update(self._workspace(workspace))
        calls = [[named[a] if isinstance(a, str) else a(values) for a in plan] for plan in self._plans]
        return [
            (step.kernel.name, partial(kernel, *call, stream=stream))
            for step, kernel, call in zip(self.sequence.steps, self.steps, calls, strict=True)
        ]

    def prepare(self, device: int | None = None) -> None:
        """Load the code of every kernel on a device: needed before a graph capture."""
        for kernel in self.steps:
            kernel.prepare(device)

    def reseed(self, seed: int) -> None:
        """Launch every kernel of a chaos build with another seed from now on."""
        for kernel in self.steps:
            kernel.reseed(seed)

    # -- workspace ----------------------------------------------------------------------------------------------------

    def workspace_shapes(self, *args: Any, **kwargs: Any) -> dict[str, tuple[tuple[int, ...], str]]:
        """Shape and dtype of each workspace tensor for a call with these arguments."""
        values = self._bind(self._named(args, kwargs))
        if values is None:
            return {t.name: ((0,) * len(t.shape), t.dtype) for t in self.sequence.temps}
        return {t.name: (tuple(int(evaluate(e, values)) for e in t.shape), t.dtype) for t in self.sequence.temps}

    def workspace(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Workspace for calls with arguments of these shapes, as torch tensors on the device of the first argument. It may be
        used again by any later call of the same shapes."""
        shapes = self.workspace_shapes(*args, **kwargs)
        torch = sys.modules.get("torch")
        named = self._named(args, kwargs)
        first = next(named[t.name] for t in self.sequence.tensors)
        if torch is None or not isinstance(first, torch.Tensor):
            raise errors.error(
                "R001",
                "Workspace is allocated by torch, and these arguments are not torch tensors.",
                "allocate what `workspace_shapes(…)` says and pass it as `workspace={name: array}`",
                span=self.sequence.span,
            )
        zero = {t.name for t in self.sequence.temps if t.zero}
        return {
            name: (torch.zeros if name in zero else torch.empty)(
                shape, dtype=torch_dtype(torch, dtype), device=first.device
            )
            for name, (shape, dtype) in shapes.items()
        }

    def _workspace(self, given: Mapping[str, Any] | None) -> Mapping[str, Any]:
        if given is not None and set(given) == set(self._temps):
            return given
        if given is None and not self._temps:
            return {}
        arguments = ", ".join(self.signature)
        has = f"has {', '.join(sorted(given))}" if given else "was not given"
        raise self._refuse(
            f"{self.__name__} needs the workspace {', '.join(self._temps) or 'of no name'}, and it {has}",
            f"allocate it once, `w = k.workspace({arguments})`, and call `k({arguments}, workspace=w)`",
        )

    # -- arguments ----------------------------------------------------------------------------------------------------

    def _key(self, named: Mapping[str, Any]) -> Key | None:
        """What decides the launch values: shapes, and the bits of scalars. None where an argument does not say."""
        try:
            scalars = self._pack(*(named[n] for n in self._scalars))
            return (*(tuple(named[n].shape) for n in self._tensors), *(named[n].dtype for n in self._tensors), scalars)
        except (struct.error, OverflowError, TypeError, AttributeError):
            return None

    def _named(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments by name; R001 for one that is missing, unknown or given twice."""
        named = dict(zip(self.signature, args, strict=False))
        wrong = [n for n in kwargs if n not in self.signature or n in named]
        missing = [n for n in self.signature if n not in named and n not in kwargs]
        if wrong or missing or len(args) > len(self.signature):
            why = f"`{wrong[0]}` is unknown or given twice" if wrong else f"missing: {', '.join(missing) or 'none'}"
            raise self._refuse(
                f"{self.__name__} takes {len(self.signature)} arguments, {len(args) + len(kwargs)} were given; {why}",
                f"call {describe(self.sequence)}",
            )
        return {n: named[n] if n in named else kwargs[n] for n in self.signature}

    def _bind(self, named: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The launch values; None where every output is empty and there is nothing to do."""
        tensors = {t.name: t.dtype for t in self.sequence.tensors}
        views = {n: view(named[n], n) for n in tensors}
        shapes = {n: v.shape for n, v in views.items()}
        dtypes = {n: tensors[n] if tensors[n] == "tf32" and v.dtype == "f32" else v.dtype for n, v in views.items()}
        try:
            values = binding.bind(self.sequence, shapes, dtypes, {n: v for n, v in named.items() if n not in tensors})
        except CakeError as e:
            way_out = f"call {describe(self.sequence)}"
            raise CakeError(*(d if d.help else d.model_copy(update={"help": way_out}) for d in e.diagnostics)) from None
        return None if binding.empty_launch(self.sequence, shapes) else values

    def _refuse(self, message: str, help: str) -> CakeError:
        return errors.error("R001", f"{message}.", help, span=self.sequence.span)


def _argument(tensor: str | None, scalar: Expr | None, own: set[str]) -> Argument:
    if tensor is not None:
        return tensor
    assert scalar is not None, "a step passes every parameter of its kernel"
    return scalar.name if isinstance(scalar, Sym) and scalar.name in own else compile_expr(scalar)
