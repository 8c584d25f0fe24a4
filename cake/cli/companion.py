"""The module beside a `.cake` file: what inputs its kernels are tried on, and what they should give.

``gemm.py`` beside ``gemm.cake`` may define, for all kernels or with ``_<kernel>`` appended for one of them:

- ``SIZES``: default dims and scalars;
- ``inputs(dims, constants, rng) -> {name: array or scalar}``;
- ``reference(inputs, dims, constants) -> {output: array}``, in float64 or float32; an ``inout`` that it leaves out is workspace;
- ``tolerance(output) -> float``, relative to the largest element of the reference;

and for ``cake bench``, with torch tensors on the device in place of arrays:

- ``peer(arguments, dims, constants) -> function``: makes ready what the kernel is compared with (``cake.evaluate.peer``);
- ``device_reference(inputs, dims, constants)``: pieces ``(output, index, tensor)`` of the reference in float64, one after another,
  where NumPy takes too long. What no piece covers is not compared.

It is the author's code: what goes wrong in it is a finding (R106) at the line of the module.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cake.cli.settings import Value
from cake.diagnostics import CakeError, Diagnostic, Span

CODE = "R106"


class Companion:
    """The functions of one module that are about one kernel."""

    def __init__(self, path: Path, module: Any, kernel: str) -> None:
        self.path = path
        self.kernel = kernel
        self._module = module

    def find(self, name: str) -> Any:
        """``name_<kernel>`` of the module, else ``name``, else None."""
        special = getattr(self._module, f"{name}_{self.kernel}", None)
        return special if special is not None else getattr(self._module, name, None)

    @property
    def sizes(self) -> dict[str, Value]:
        """Default dims and scalars."""
        sizes = self.find("SIZES")
        if sizes is None:
            return {}
        if not isinstance(sizes, Mapping) or not all(isinstance(v, bool | int | float) for v in sizes.values()):
            raise self.wrong("SIZES is no dict of numbers")
        return dict(sizes)

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What the module's function gives; R106 where it raises."""
        try:
            return function(*arguments)
        except (Exception, SystemExit) as exception:
            raise _raised(self.path, exception) from exception

    def wrong(self, message: str, *facts: str) -> CakeError:
        """R106 about the module itself."""
        text = f"{self.path}: {message}"
        return CakeError(Diagnostic(code=CODE, severity="error", message=text, facts=facts, help=_contract()))


def _contract() -> str:
    return "inputs(dims, constants, rng) gives every input and scalar, reference(inputs, dims, constants) every output"


def companion_path(source: Path | None) -> Path | None:
    """The module beside a source, if there is one."""
    if source is None:
        return None
    path = source.with_name(source.name.split(".")[0] + ".py")
    return path if path.is_file() else None


def load(source: Path | None, kernel: str) -> Companion | None:
    """The companion of a kernel; None where no module lies beside its source."""
    path = companion_path(source)
    return None if path is None else load_module(path, kernel)


def load_module(path: Path, kernel: str) -> Companion:
    """The functions of the module at ``path`` that are about one kernel; R106 where it cannot be loaded."""
    spec = importlib.util.spec_from_file_location(f"cake_companion_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    written = sys.dont_write_bytecode
    sys.dont_write_bytecode = True  # no __pycache__ beside the author's kernels
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as exception:
        raise _raised(path, exception) from exception
    finally:
        sys.dont_write_bytecode = written
    return Companion(path, module, kernel)


def _raised(path: Path, exception: BaseException) -> CakeError:
    """The finding of an exception in the module, at its line."""
    span = None
    trace = exception.__traceback__
    while trace is not None:
        if Path(trace.tb_frame.f_code.co_filename).absolute() == path.absolute():
            line = trace.tb_lineno
            span = Span(file=str(path), line=line, column=1, end_line=line, end_column=1)
        trace = trace.tb_next
    if span is None and isinstance(exception, SyntaxError) and exception.lineno:
        line, column = exception.lineno, exception.offset or 1
        span = Span(file=str(path), line=line, column=column, end_line=line, end_column=column + 1)
    if span is not None:
        span = _whole_line(span)
    text = " ".join(f"{type(exception).__name__}: {exception}".split())[:300]
    return CakeError(
        Diagnostic(code=CODE, severity="error", message=f"the module {path} raised {text}", span=span, help=_contract())
    )


def _whole_line(span: Span) -> Span:
    try:
        line = Path(span.file).read_text(encoding="utf-8").splitlines()[span.line - 1]
    except (OSError, ValueError, IndexError):
        return span
    start = len(line) - len(line.lstrip())
    return span.model_copy(update={"column": start + 1, "end_column": max(start + 2, len(line) + 1)})
