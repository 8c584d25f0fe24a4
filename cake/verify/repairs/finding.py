"""What a repair looks at: a finding, with the places and names that it mentions; and which families try to cure which codes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from cake.diagnostics import Diagnostic
from cake.ir import surface as s
from cake.verify.repairs.text import Repair, Statement, Text

_WORD = re.compile(r"`([A-Za-z_]\w*(?:\.\w+)*)")


@dataclass(frozen=True)
class Finding:
    """A finding as a guide. ``lines``: of its places, the primary one first. ``words``: the names in backquotes, in order."""

    diagnostic: Diagnostic
    lines: tuple[int, ...]
    words: tuple[str, ...]
    kernel_name: str = ""

    @classmethod
    def of(cls, d: Diagnostic, text: Text) -> Finding:
        """From a diagnostic of a text."""
        spans = [d.span, *(label.span for label in d.labels)]
        lines = [span.line for span in spans if span is not None and span.file == text.file]
        kernel = text.kernel_at(lines[0]) if lines else None
        told = [d.message, *(label.text for label in d.labels), *d.facts, *d.witness, d.help or ""]
        words = dict.fromkeys(w for line in told for w in _WORD.findall(line))
        return cls(d, tuple(dict.fromkeys(lines)), tuple(words), kernel.name if kernel is not None else "")

    @property
    def code(self) -> str:
        """Its code."""
        return self.diagnostic.code

    def statements(self, text: Text) -> list[Statement]:
        """The innermost statements at its places."""
        return [t for t in map(text.at, self.lines) if t is not None]

    def kernel(self, text: Text) -> s.Kernel | None:
        """The kernel that it is about."""
        if self.lines:
            return text.kernel_at(self.lines[0])
        return text.parsed.kernels[0] if len(text.parsed.kernels) == 1 else None

    def pipelines(self, text: Text) -> list[s.Pipeline]:
        """The pipelines that it names (by themselves or by a field), else those that its places use, else all."""
        kernel = self.kernel(text)
        if kernel is None:
            return []
        first = {w.split(".")[0] for w in self.words}
        named = [p for p in kernel.pipelines if p.name in first]
        if named:
            return named
        used = {n.name for t in self.statements(text) for n in s.walk(t.node) if isinstance(n, s.Name)}
        return [p for p in kernel.pipelines if p.name in used] or list(kernel.pipelines)

    def near(self, statements: Iterable[Statement]) -> list[Statement]:
        """Statements of its kernel, those nearest to one of its places first."""

        def far(t: Statement) -> int:
            return min((abs(t.first - line) for line in self.lines), default=0)

        kernel = self.kernel_name
        return sorted((t for t in statements if kernel in ("", t.kernel.name)), key=far)


Family = Callable[[Text, Finding], Iterator[Repair]]
FAMILIES: list[tuple[frozenset[str], Family]] = []


def cures(*codes: str) -> Callable[[Family], Family]:
    """Register a family of repairs for some codes."""

    def add(function: Family) -> Family:
        FAMILIES.append((frozenset(codes), function))
        return function

    return add


def in_turn(streams: list[Iterator[Repair]]) -> Iterator[Repair]:
    """One of each, and again: no family waits for another's last guess. Equal changes come once."""
    seen = set()
    while streams:
        for stream in list(streams):
            repair = next(stream, None)
            if repair is None:
                streams.remove(stream)
            elif repair.fix.edits not in seen:
                seen.add(repair.fix.edits)
                yield repair
