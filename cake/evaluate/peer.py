"""What a kernel is compared with: ``peer(arguments, dims, constants)``, named ``module:callable`` or ``path.py:callable``.

It is called once for each set of outputs, with the kernel's arguments by name (torch tensors on the device, and numbers), and gives
the function that is timed. So what a peer needs made ready (layouts, plans, compilation) is not timed. The function writes into
``arguments`` or gives the outputs: a tensor, a tuple in order of declaration, or a dict by name.

It is somebody's code: what goes wrong in it is a finding (R108).
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cake.diagnostics import CakeError, Diagnostic, Severity
from cake.ir import expanded as x
from cake.ir.sequences import Sequence

CODE = "R108"
CONTRACT = "peer(arguments, dims, constants) gives a function of no arguments that does what the kernel does"

Prepare = Callable[[Mapping[str, Any], Mapping[str, int], Mapping[str, Any]], Callable[[], Any]]


def finding(message: str, *facts: str, severity: Severity = "error") -> Diagnostic:
    """R108."""
    return Diagnostic(code=CODE, severity=severity, message=message, facts=facts, help=CONTRACT)


def wrong(message: str, *facts: str) -> CakeError:
    """R108 as an exception."""
    return CakeError(finding(message, *facts))


def split(text: str) -> tuple[str, str] | None:
    """Module (or path) and callable of ``module:callable``; None if it is not of this form."""
    module, colon, name = text.rpartition(":")
    return (module, name) if colon and module and name.isidentifier() else None


def load(text: str) -> Prepare:
    """The callable that ``module:callable`` names. Modules are also looked for in the current directory. CakeError R108."""
    parts = split(text)
    if parts is None:
        raise wrong(f"`{text}` names no peer", "write module:callable, or path/to/module.py:callable")
    place, name = parts
    with _guarded(f"loading the peer's module {place}"):
        module = _module(place)
    function = getattr(module, name, None)
    if not callable(function):
        raise wrong(f"{place} has no function `{name}`")
    return function  # type: ignore[no-any-return]


def _module(place: str) -> Any:
    if not place.endswith(".py"):
        here = str(Path.cwd())
        sys.path.insert(0, here)
        try:
            return importlib.import_module(place)
        finally:
            sys.path.remove(here)
    path = Path(place)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    spec = importlib.util.spec_from_file_location(f"cake_peer_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@contextmanager
def _guarded(what: str) -> Iterator[None]:
    """R108 for what the peer's code raises, with the end of its trace."""
    try:
        yield
    except (Exception, SystemExit) as problem:
        if isinstance(problem, CakeError):
            raise
        text = " ".join(f"{type(problem).__name__}: {problem}".split())[:300]
        frames = traceback.extract_tb(problem.__traceback__)[-4:]
        raise wrong(f"{what} raised {text}", *(f"{f.filename}:{f.lineno} in {f.name}" for f in frames)) from problem


class Peer:
    """A peer made ready for one set of arguments; calling it is what is timed."""

    def __init__(
        self,
        prepare: Prepare,
        kernel: x.Kernel | Sequence,
        arguments: Mapping[str, Any],
        dims: Mapping[str, int],
        constants: Mapping[str, Any],
    ) -> None:
        self._outputs = [t.name for t in kernel.tensors if t.direction != "in"]
        self._arguments = arguments
        with _guarded("preparing the peer"):
            self.call = prepare(dict(arguments), dict(dims), dict(constants))
        if not callable(self.call):
            raise wrong(f"the peer gave {type(self.call).__name__}, not a function to time")

    def outputs(self, synchronize: Callable[[], Any]) -> dict[str, Any]:
        """The outputs of one call, by name; those that it does not compute are missing. CakeError R108 if it raises or gives
        something else than outputs of the right shapes."""
        with _guarded("the peer"):
            given = self.call()
            synchronize()
        found = self._named(given)
        for name, tensor in found.items():
            if tuple(tensor.shape) != tuple(self._arguments[name].shape):
                expected = list(self._arguments[name].shape)
                raise wrong(f"the peer gave `{name}` as {list(tensor.shape)}; it is {expected}")
        return found

    def _named(self, given: Any) -> dict[str, Any]:
        names = self._outputs
        if given is None:
            return {n: self._arguments[n] for n in names}
        if isinstance(given, Mapping):
            unknown = [str(n) for n in given if n not in names]
            if unknown:
                raise wrong(f"the peer gave `{unknown[0]}`, which is no output")
            return dict(given)
        tensors = list(given) if isinstance(given, tuple | list) else [given]
        if len(tensors) > len(names) or not all(hasattr(t, "shape") for t in tensors):
            raise wrong(f"the peer gave {type(given).__name__}; the outputs are {', '.join(names)}")
        return dict(zip(names, tensors, strict=False))
