"""Lines of the generated source, with indentation and ``#line`` directives."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cake.diagnostics import Span

WIDTH = 120


def _breaks(text: str, depth: int, signs: str) -> list[int]:
    """Where a line may be broken: after ``signs`` at a depth of brackets, outside strings."""
    level, out, quoted = 0, [], False
    for n, c in enumerate(text):
        quoted ^= c == '"'
        if quoted:
            continue
        level += c in "([{"
        level -= c in ")]}"
        if c in signs and level == depth and text[n + 1 : n + 2] == " ":
            out.append(n + 1)
    return out


def _wrapped(text: str, depth: int) -> list[str]:
    """The indented line; a call that is too long is broken after commas of its argument list, a sum after its signs."""
    pad = "    " * depth
    if not text:
        return [""]
    if len(pad) + len(text) <= WIDTH or not text.endswith((";", ")", "{")):
        return [pad + text]
    breaks = _breaks(text, 1, ",") or sorted(_breaks(text, 0, "+^") + _breaks(text, 1, "+^"))
    pieces = [text[a:b].strip() for a, b in zip([0, *breaks], [*breaks, len(text)], strict=True)]
    rows = [pad + pieces[0]]
    for piece in pieces[1:]:
        if len(rows[-1]) + 1 + len(piece) <= WIDTH:
            rows[-1] += f" {piece}"
        else:
            rows.append(f"{pad}    {piece}")
    return rows


def _silent(text: str) -> bool:
    """True for lines that make no instructions: they need no place in the source."""
    return text in ("", "{", "}", "else {") or text.startswith("//")


class Writer:
    """Collects lines. A directive is written only where the compiler's own count would be wrong."""

    def __init__(self) -> None:
        self.lines: list[tuple[int, str, Span | None]] = []
        self.depth = 0
        self.span: Span | None = None

    def line(self, text: str = "") -> None:
        """One line, or several (split at line ends), at the present depth."""
        for part in text.split("\n"):
            self.lines.append((self.depth, part, self.span))

    @contextmanager
    def block(self, head: str, tail: str = "}") -> Iterator[None]:
        """``head {`` … ``}``."""
        self.line(f"{head} {{" if head else "{")
        self.depth += 1
        yield
        self.depth -= 1
        self.line(tail)

    def splice(self, other: Writer) -> None:
        """Append the lines of ``other`` at the present depth."""
        for depth, text, span in other.lines:
            self.lines.append((self.depth + depth, text, span))

    def render(self, source_name: str, lines: bool = True) -> str:
        """The text. Generated lines without a span belong to ``source_name`` at their own number; without ``lines``
        all do."""
        out: list[str] = []
        expect: tuple[str, int] | None = None  # what the compiler takes the next line for; None: this file's own count
        for depth, text, span in self.lines:
            if span is None:
                if expect is not None:
                    out.append(f'#line {len(out) + 2} "{source_name}"')
                    expect = None
            elif expect != (span.file, span.line) and lines and not _silent(text):
                out.append(f'#line {span.line} "{span.file}"')
                expect = (span.file, span.line)
            rows = _wrapped(text, depth)
            out += rows
            if expect is not None:
                expect = (expect[0], expect[1] + len(rows))
        return "\n".join(out) + "\n"
