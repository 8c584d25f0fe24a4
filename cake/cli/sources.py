"""Reading the FILE of a command: a `.cake` source or an expanded kernel's JSON, from a path or standard input (`-`)."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from cake.cli.outcome import error, remember
from cake.cli.settings import unknown
from cake.diagnostics import CakeError

if TYPE_CHECKING:
    from cake.expand.constants import Value
    from cake.ir import expanded as x
    from cake.ir import surface as s
    from cake.ir.sequences import Sequence

FILE = "S009"
STDIN = "<stdin>"


@dataclass(frozen=True)
class Source:
    """The text of one FILE. ``file`` is its name in diagnostics, ``path`` where it lies (None: standard input)."""

    file: str
    path: Path | None
    text: str

    @property
    def expanded(self) -> bool:
        """Whether it is an expanded kernel's JSON."""
        if self.path is not None:
            return self.path.suffix == ".json"
        return self.text.lstrip()[:1] == "{"

    @property
    def stem(self) -> str:
        """Its name without the suffix: names directories of results."""
        return "stdin" if self.path is None else self.path.name.split(".")[0] or self.path.stem


def read(name: str) -> Source:
    """The text of FILE, or a finding that says why there is none."""
    from cake.compiler import read_json
    from cake.ir.parser import read_source

    if name == "-":
        text = sys.stdin.buffer.read().decode("utf-8", "replace")
        remember(STDIN, text)
        return Source(STDIN, None, text)
    path = Path(name)
    if not name.strip():
        raise error(FILE, "the name of a file is empty")
    try:
        missing, directory = not os.path.lexists(path), path.is_dir()
    except (OSError, ValueError) as problem:
        raise error(FILE, f"{name} cannot be read: {problem}") from None
    if missing:
        raise error(FILE, f"there is no file {name}", _near(path))
    if directory:
        inside = sorted(p.name for p in path.iterdir() if p.suffix == ".cake")[:6]
        raise error(FILE, f"{name} is a directory", f"it has {', '.join(inside)}" if inside else "name a .cake file")
    if path.suffix not in (".cake", ".json"):
        raise error(FILE, f"{name} is neither a .cake source nor an expanded kernel (.json)", "the suffix decides")
    return Source(name, path, read_json(path) if path.suffix == ".json" else read_source(path))


@contextmanager
def trusted(source: Source) -> Iterator[None]:
    """Run what takes an expanded kernel for granted. One that was written as JSON may be none that expansion makes:
    parts that do not fit each other show only now, and are its own fault (X003)."""
    try:
        yield
    except (ArithmeticError, AssertionError, LookupError, MemoryError, TypeError, ValueError) as problem:
        if not source.expanded:
            raise
        reason = " ".join(f"{type(problem).__name__}: {problem}".split())[:200]
        message = f"{source.file} is not an expanded kernel: its parts do not fit together"
        raise error("X003", message, "expand a source and change that", reason) from problem


def _near(path: Path) -> str | None:
    try:
        names = [p.name for p in path.parent.iterdir() if p.suffix in (".cake", ".json")]
    except OSError:
        return None
    near = difflib.get_close_matches(path.name, names, n=1) or [n for n in names if n.startswith(path.name + ".")]
    return f"did you mean `{path.with_name(near[0])}`?" if near else None


@lru_cache(maxsize=4)
def parse_surface(source: Source) -> s.File:
    """The parsed file; CakeError with every mistake."""
    from cake.ir.parser import parse

    return parse(source.text, source.file)


@lru_cache(maxsize=4)
def parse_expanded(source: Source) -> x.Kernel:
    """The expanded kernel in a JSON text; CakeError with what is wrong."""
    from cake.compiler import read_expanded

    return read_expanded(source.text, source.file)


def expand(
    source: Source, kernel: str | None, constants: Mapping[str, Value], target: str | None
) -> tuple[x.Kernel, s.File | None]:
    """The expanded kernel that FILE means, and the file it came from (None: it was JSON)."""
    from cake.compiler import select_kernel
    from cake.expand.kernel import expand_kernel

    if source.expanded:
        found = parse_expanded(source)
        settled(found, kernel, constants, target)
        return found, None
    parsed = parse_surface(source)
    result, diagnostics = expand_kernel(parsed, select_kernel(parsed, kernel), constants, target)
    if result is None:
        raise CakeError(*diagnostics)
    return result, parsed


def expand_any(
    source: Source, kernel: str | None, constants: Mapping[str, Value], target: str | None
) -> x.Kernel | Sequence:
    """The expanded kernel or sequence that FILE means: the one called ``kernel``, else the only sequence, else the only
    kernel."""
    from cake.compiler import expand_steps, select
    from cake.ir import surface as s

    if not source.expanded:
        parsed = parse_surface(source)
        chosen = select(parsed, kernel)
        if isinstance(chosen, s.Sequence):
            return expand_steps(parsed, chosen, constants, target)
    return expand(source, kernel, constants, target)[0]


def settled(found: x.Kernel | Sequence, kernel: str | None, constants: Mapping[str, Value], target: str | None) -> None:
    """An expanded kernel has made its choices: asking for another is refused."""
    if kernel is not None and kernel != found.name:
        raise error("T001", f"there is no kernel `{kernel}` in the file", f"it has {found.name}")
    if target is not None and target != found.target:
        raise error("T021", f"kernel `{found.name}` was expanded for {found.target}, not {target}", "expand it again")
    unknown(constants, found.name, {"constants": found.constants})
    for name, value in constants.items():
        if found.constants[name] != value or isinstance(value, bool) != isinstance(found.constants[name], bool):
            raise error(
                "T009",
                f"`{name}` is {found.constants[name]} in this expanded kernel",
                f"expand the source again with {name}={value}",
            )
