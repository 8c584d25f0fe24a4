"""What NVRTC and ptxas say, traced back to the author's lines.

The front end of NVRTC honours ``#line``, so its errors already name the ``.cake`` file. ptxas counts lines of the
PTX; the PTX carries ``.loc`` directives (with the chain of inlined calls), so its messages can be traced too. A place
is what is left of both: a file and a line.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from cake.diagnostics import Diagnostic, Span

Place = tuple[str, int]
"""A file as ``#line`` spelled it, and a line."""

Locate = Callable[[str, int], Span | None]
"""Turns a place into a span, for a caller that knows better columns than the whole line."""

_LINE_DIRECTIVE = re.compile(r'^\s*#\s*(?:line\s+)?(\d+)(?:\s+"([^"]*)")?', re.M)
_FRONT_END = re.compile(
    r"^(?P<file>[^\n(]+)\((?P<line>\d+)\): (?:catastrophic )?(?P<severity>error|warning)(?: #[\w-]+)?: (?P<text>.*)$"
)
_PTXAS = re.compile(r"^ptxas(?P<where>[^\n;]*;)?[^:\n]*?\b(?P<severity>error|fatal|warning|info)\s*: (?P<text>.*)$")
_PTX_LINE = re.compile(r"\bline (\d+)")
_CODE = re.compile(r"^\(C(\d{4})\)\s*(.*)$")
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]+)"', re.M)
_LOC = re.compile(r"^\s*\.loc\s+(\d+)\s+(\d+)\s+\d+(?:,\s*function_name\s+\S+,\s*inlined_at\s+(\d+)\s+(\d+)\s+\d+)?")


@dataclass(frozen=True)
class Message:
    """One message of the compiler. ``stage`` is who spoke; ``code`` the four digits of ptxas's ``(C7510)``, if any;
    ``file`` and ``line`` are the front end's, ``ptx_line`` is ptxas's; ``excerpt`` is the source line it quoted."""

    stage: str
    severity: str
    text: str
    file: str | None = None
    line: int | None = None
    ptx_line: int | None = None
    code: int | None = None
    excerpt: str | None = None


def parse(log: str) -> list[Message]:
    """The messages of a compilation log, in order; lines that are not messages (statistics) are left out."""
    out: list[Message] = []
    lines = log.splitlines()
    for i, line in enumerate(lines):
        if m := _FRONT_END.match(line):
            quoted = lines[i + 1].strip() if i + 1 < len(lines) else ""
            out.append(
                Message("nvrtc", m["severity"], m["text"], file=m["file"], line=int(m["line"]), excerpt=quoted or None)
            )
        elif line.startswith("nvrtc: error"):
            out.append(Message("nvrtc", "error", line.split(":", 2)[2].strip()))
        elif m := _PTXAS.match(line):
            coded = _CODE.match(m["text"])
            at = _PTX_LINE.search(m["where"] or "") or _PTX_LINE.search(m["text"])
            severity = "error" if m["severity"] == "fatal" else m["severity"]
            out.append(
                Message(
                    "ptxas",
                    severity,
                    coded[2] if coded else m["text"],
                    ptx_line=int(at[1]) if at else None,
                    code=int(coded[1]) if coded else None,
                )
            )
    return out


def author_files(source: str) -> tuple[str, ...]:
    """The files that ``#line`` directives of a source name, in order of first use."""
    return tuple(dict.fromkeys(m[2] for m in _LINE_DIRECTIVE.finditer(source) if m[2]))


def place_in_source(source: str, name: str, message: Message) -> Place | None:
    """Where a front-end message points: its own file where that is an author's file, else the last ``#line`` before
    it."""
    if message.file is None or message.line is None:
        return None
    authored = author_files(source)
    if message.file != name and (message.file in authored or not authored):
        return message.file, message.line
    best: Place | None = None
    current, number = name, 0
    for text in source.splitlines():
        number += 1
        if m := _LINE_DIRECTIVE.match(text):
            current, number = m[2] or current, int(m[1]) - 1
            if m[2] and m[2] != name:
                best = (m[2], int(m[1]))
        elif (current, number) == (message.file, message.line):
            return best
    return None


@dataclass
class PtxLines:
    """Maps a line of PTX to the author's place, through ``.loc`` and its chain of inlined calls."""

    ptx: str
    authored: tuple[str, ...]
    files: dict[int, str] = field(init=False)
    lines: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.files = {int(m[1]): m[2] for m in _FILE.finditer(self.ptx)}
        self.lines = self.ptx.splitlines()

    def place(self, line: int) -> Place | None:
        """The innermost author's line around a line of the PTX: of the last ``.loc`` before it, or of the call it is
        inlined at."""
        for at in range(min(line, len(self.lines)) - 1, -1, -1):
            text = self.lines[at]
            if text.lstrip().startswith((".entry", ".func", ".visible")):
                return None
            if m := _LOC.match(text):
                for index, number in ((m[1], m[2]), (m[3], m[4])):
                    if index and (found := self._author(int(index))):
                        return found, int(number)
        return None

    def first(self, instruction: str) -> Place | None:
        """The author's line of the first instruction that starts with ``instruction``."""
        for at, text in enumerate(self.lines, 1):
            if text.lstrip().startswith(instruction):
                return self.place(at)
        return None

    def _author(self, index: int) -> str | None:
        path = self.files.get(index)
        if path is None:
            return None
        for name in self.authored:
            if path == name or path == os.path.abspath(name) or os.path.basename(path) == os.path.basename(name):
                return name
        return None


def line_span(file: str, line: int) -> Span:
    """The span of a whole line; its columns are read from the file where it can be read."""
    text = ""
    try:
        with open(file, encoding="utf-8") as f:
            for number, content in enumerate(f, 1):
                if number == line:
                    text = content.rstrip("\n")
                    break
    except (OSError, UnicodeDecodeError):
        pass
    start = len(text) - len(text.lstrip()) + 1 if text.strip() else 1
    end = max(len(text.rstrip()) + 1, start + 1)
    return Span(file=file, line=line, column=start, end_line=line, end_column=end)


SERIALISED = "the tensor cores wait for each wgmma, which costs a large part of the speed"

_PTXAS_CODES: dict[int, tuple[str, str, str]] = {
    7508: (
        "G007",
        "ptxas ignored setmaxnreg",
        "the kernel needs a register cap at entry (launch_registers) and each role in one branch of a single if/else",
    ),
    7517: (
        "W713",
        "ptxas inserted a wgmma wait",
        "initialise or read an accumulator only when no wgmma that uses it is in flight",
    ),
    7511: (
        "W713",
        "ptxas serialised the wgmma pipeline: it ran out of registers",
        "let nothing be in flight across the loop's back edge while other code reads accumulators; or shrink the tile",
    ),
}
_SERIAL = (
    "W713",
    "ptxas serialised the wgmma pipeline",
    "enter and leave a run-time condition that contains a wgmma or its wait with nothing in flight; "
    "`for ... split(...)` decides such a condition at compile time",
)


def from_ptxas(message: Message, ptx: PtxLines | None, locate: Locate) -> Diagnostic | None:
    """The finding for a coded ptxas message (``C75xx``); None for any other message."""
    if message.code is None or not 7500 <= message.code < 7600:
        return None
    if 7510 <= message.code < 7520:
        code, text, help = _PTXAS_CODES.get(message.code, _SERIAL)
    else:
        code, text, help = _PTXAS_CODES.get(
            message.code, ("G008", "ptxas reports a performance loss", "see the fact below")
        )
    place = None
    if ptx is not None:
        place = ptx.place(message.ptx_line) if message.ptx_line else None
        place = place or ptx.first("setmaxnreg" if message.code == 7508 else "wgmma.mma_async")
    return Diagnostic(
        code=code,
        severity="error",
        message=f"{text}.",
        span=locate(*place) if place else None,
        facts=(f"ptxas C{message.code}: {message.text}",),
        contract=SERIALISED if code == "W713" else None,
        help=help,
    )


_DEFECT = "the emitter wrote this code, so this is a defect of Cake: `cake build --emit cu,ptx` keeps it to report"


def failures(
    messages: Iterable[Message], source: str, name: str, ptx: PtxLines | None, locate: Locate
) -> list[Diagnostic]:
    """The findings for the errors of a compilation that failed; one mistake is reported once, however often its code
    was unrolled."""
    out: dict[tuple[str, Place | None], Diagnostic] = {}
    for m in messages:
        if m.severity != "error" or m.text.startswith("Ptx assembly aborted"):
            continue
        if m.file is not None:
            place = place_in_source(source, name, m)
            code, help = "G002", _DEFECT
            text = f"The generated CUDA C++ does not compile: {m.text}."
            facts: tuple[str, ...] = (f"{m.file}:{m.line}" + (f": {m.excerpt}" if m.excerpt else ""),)
        else:
            place = ptx.place(m.ptx_line) if ptx is not None and m.ptx_line else None
            code, help = "G004", _DEFECT
            text = f"{'ptxas' if m.stage == 'ptxas' else 'NVRTC'} refuses the generated code: {m.text}."
            facts = ()
            if ptx is not None and m.ptx_line and m.ptx_line <= len(ptx.lines):
                facts = (f"PTX line {m.ptx_line}: {ptx.lines[m.ptx_line - 1].strip()}",)
            if "too much shared data" in m.text:
                code, help = "W701", "use less shared memory: fewer stages or smaller tiles"
        span = locate(*place) if place else None
        found = Diagnostic(code=code, severity="error", message=text, span=span, facts=facts, help=help)
        out.setdefault((m.text, place), found)
    return list(out.values())
