"""PTX text as functions of basic blocks (PTX ISA 4 "Syntax", 5.4 state spaces, 11.5 debugging directives).

Reads what NVRTC emits: one entry, register declarations, labels, guarded instructions, ``.loc`` directives, and the
bodies of inline assembly, whose braces open a scope for the registers and labels declared inside.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field


class PtxError(Exception):
    """Text that is not PTX as NVRTC writes it."""


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a source file, as ``.loc`` gives it (of the outermost caller where functions were inlined)."""

    file: int
    line: int


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction. ``operands`` is the text after the opcode; ``guard`` the predicate register and whether it is
    negated; ``line`` its line in the PTX."""

    opcode: str
    operands: str
    guard: tuple[str, bool] | None
    line: int
    place: Place | None


@dataclass(slots=True)
class Block:
    """Straight-line code. Control falls through to the next block unless the last instruction leaves."""

    instructions: list[Instruction] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A kernel parameter; ``bytes`` of an aggregate, 0 for a scalar."""

    name: str
    bytes: int


@dataclass(slots=True)
class Function:
    """An entry. ``labels`` maps a label to the block that it starts."""

    name: str
    parameters: tuple[Parameter, ...]
    blocks: list[Block]
    labels: dict[str, int]
    files: dict[int, str]


_ENTRY = re.compile(r"^\s*(?:\.visible\s+)?(?:\.weak\s+)?\.entry\s+([\w$]+)", re.MULTILINE)
_PARAM = re.compile(r"\.param\s+(?:\.align\s+\d+\s+)?\.\w+\s+([\w$]+)(?:\[(\d+)\])?")
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"', re.MULTILINE)
_LOC = re.compile(r"\.loc\s+(\d+)\s+(\d+)")
_INLINED = re.compile(r"inlined_at\s+(\d+)\s+(\d+)")
_LABEL = re.compile(r"([A-Za-z_$][\w$]*)\s*:(?!:)\s*")
_GUARD = re.compile(r"@(!?)([%\w$]+)\s+")
_REG = re.compile(r"\.reg\s+\.\w+\s+(.*)")
_ENDS = ("bra", "ret", "exit", "trap", "brx")


def read(text: str) -> list[Function]:
    """Every entry of a module."""
    files = {int(n): path for n, path in _FILE.findall(text)}
    out = []
    for match in _ENTRY.finditer(text):
        open_brace = text.find("\n{", match.end())
        if open_brace < 0:
            raise PtxError(f"the entry {match[1]} has no body")
        parameters = tuple(Parameter(p[1], int(p[2] or 0)) for p in _PARAM.finditer(text, match.end(), open_brace))
        out.append(_body(match[1], parameters, text, open_brace + 1, files))
    return out


def _body(name: str, parameters: tuple[Parameter, ...], text: str, start: int, files: dict[int, str]) -> Function:
    blocks, labels = [Block()], {}
    for item in _statements(text, start):
        if isinstance(item, str):
            if blocks[-1].instructions or item in labels:
                blocks.append(Block())
            if item in labels:
                raise PtxError(f"the label {item} occurs twice")
            labels[item] = len(blocks) - 1
            continue
        blocks[-1].instructions.append(item)
        if item.opcode.split(".", 1)[0] in _ENDS:
            blocks.append(Block())
    return Function(name, parameters, blocks, labels, files)


def _statements(text: str, start: int) -> Iterator[Instruction | str]:
    """Instructions and labels (as text) of a body, with the names of inner scopes made unique."""
    line = text.count("\n", 0, start) + 1
    depth, place = 0, None
    scopes: list[tuple[re.Pattern[str], dict[str, str]] | None] = []
    lines = text[start:].split("\n")
    for n, raw in enumerate(lines):
        stripped = raw.strip()
        if not stripped or stripped.startswith("//"):
            continue
        if stripped.startswith(".loc"):
            found = _INLINED.search(stripped) or _LOC.match(stripped)
            if found is not None and found[2] != "0":
                place = Place(int(found[1]), int(found[2]))
            continue
        if "//" in stripped:
            stripped = stripped.split("//", 1)[0].rstrip()
        if stripped == "{":
            depth += 1
            scopes.append(_scope(lines, n, line + n) if depth > 1 else None)
            continue
        if stripped == "}":
            depth -= 1
            if depth == 0:
                return
            scopes.pop()
            continue
        for scope in reversed(scopes):
            if scope is not None:
                pattern, names = scope
                stripped = pattern.sub(lambda m, names=names: names[m[0]], stripped)  # type: ignore[misc]
        while (label := _LABEL.match(stripped)) is not None:
            yield label[1]
            stripped = stripped[label.end() :]
        for piece in stripped.split(";"):
            piece = piece.strip()
            if piece and not piece.startswith("."):
                yield _instruction(piece, line + n, place)
    raise PtxError("the body of an entry does not end")


def _instruction(text: str, line: int, place: Place | None) -> Instruction:
    guard = _GUARD.match(text)
    if guard is not None:
        text = text[guard.end() :]
    opcode, _, operands = text.replace("\t", " ").partition(" ")
    return Instruction(opcode, operands.strip(), (guard[2], guard[1] == "!") if guard else None, line, place)


def _scope(lines: list[str], start: int, line: int) -> tuple[re.Pattern[str], dict[str, str]] | None:
    """Registers and labels declared directly inside the braces that open at ``start``, with names of their own."""
    names: dict[str, str] = {}
    depth = 0
    for raw in lines[start:]:
        stripped = raw.strip()
        depth += (stripped == "{") - (stripped == "}")
        if depth == 0:
            break
        if depth > 1:
            continue
        if declared := _REG.match(stripped):
            for name in declared[1].rstrip(";").split(","):
                names[name.strip()] = f"{name.strip()}${line}"
        elif label := _LABEL.match(stripped):
            names[label[1]] = f"{label[1]}${line}"
    if not names:
        return None
    alternatives = "|".join(re.escape(n) for n in sorted(names, key=len, reverse=True))
    return re.compile(rf"(?<![\w.%$])(?:{alternatives})(?![\w.$])"), names
