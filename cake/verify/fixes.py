"""Fixes of findings: edits of the source that were applied, expanded and verified before they are shown.

Each kind of finding has a few rewrites that usually cure it (a `sync()` between the warps, a fence after the write, a wait
before the release; more of them in ``cake.verify.repairs``). They are guesses about text, so only one that makes its finding go
away, and brings no other, is kept.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

from cake.diagnostics import CakeError, Diagnostic, Edit, Fix, Label, Span
from cake.diagnostics.fixes import apply_fix
from cake.ir import surface as s
from cake.verify.repairs import Repair, Text, families
from cake.verify.repairs.finding import in_turn

SECONDS = 3.0
"""Of processor time, for all trials together."""

_RANGE = re.compile(r"range\(.*\)(?= split|:)")
_KEEP = re.compile(r"keep=(\d+)")


def with_fixes(text: str, file: str, findings: list[Diagnostic]) -> list[Diagnostic]:
    """The findings, with a fix for each where one was found. A fix after which nothing is left to say is enough."""
    from cake.ir.parser import parse_all

    deadline = time.process_time() + SECONDS
    parsed = parse_all(text, file)[0]
    source = Text(text, file, parsed) if parsed is not None else None
    result = list(findings)
    for i, d in enumerate(findings):
        if d.fix is None and d.severity == "error":
            result[i], whole = _with_fix(source, text, file, d, findings, deadline)
            if whole:
                break
    return result


def _with_fix(
    source: Text | None, text: str, file: str, d: Diagnostic, findings: list[Diagnostic], deadline: float
) -> tuple[Diagnostic, bool]:
    """A finding with a fix, if one is found; whether that leaves nothing else."""
    before = {f.code for f in findings}
    plain = (Repair(fix, fix.edits[0].span.line) for fix in candidates(text, file, d))
    kernel = source.kernel_at(d.span.line) if source is not None and d.span is not None else None
    for repair in in_turn([*(families(source, d) if source is not None else []), plain]):
        if time.process_time() > deadline:
            break
        try:
            after = check(apply_fix(text, repair.fix), file, kernel.name if kernel is not None else None)
        except (ValueError, CakeError):
            continue
        if d.code not in after and after <= before:
            return _shown(d, repair, text, file), not after
    return d, False


def _shown(d: Diagnostic, repair: Repair, text: str, file: str) -> Diagnostic:
    """The finding with its fix, and with the place of the fix if it is none of its places."""
    spans = [d.span, *(label.span for label in d.labels)]
    labels = d.labels
    if not any(span is not None and span.line <= repair.line <= _named(span) for span in spans):
        line = text.split("\n")[repair.line - 1]
        column = len(line) - len(line.lstrip()) + 1
        place = Span(file=file, line=repair.line, column=column, end_line=repair.line, end_column=len(line) + 1)
        labels = (*labels, Label(span=place, text="the fix is here"))
    return d.model_copy(update={"fix": repair.fix.model_copy(update={"verified": True}), "labels": labels})


def _named(span: Span) -> int:
    """The last line that a place names: of a block only its head."""
    return span.end_line if span.end_line - span.line < 3 else span.line


def check(text: str, file: str, kernel: str | None = None) -> set[str]:
    """The codes that block a changed text, or one kernel of it."""
    from cake.compiler import check_file
    from cake.ir import expanded as x
    from cake.ir.parser import parse_all
    from cake.verify.engine import verify

    parsed, found = parse_all(text, file)
    kernels: list[x.Kernel] = []
    if parsed is not None and not any(f.severity == "error" for f in found):
        found = [*found, *check_file(_only(parsed, kernel), kernels)]
    codes = {f.code for f in found if f.severity == "error"}
    for each in kernels if not codes else ():
        codes |= set(verify(each, effort="quick").codes)
    return codes


def _only(parsed: s.File, kernel: str | None) -> s.File:
    """The file with one of its kernels (None: with all)."""
    if kernel is None:
        return parsed
    chosen = tuple(k for k in parsed.kernels if k.name == kernel)
    return parsed.model_copy(update={"kernels": chosen, "sequences": ()}) if chosen else parsed


def candidates(text: str, file: str, d: Diagnostic) -> Iterator[Fix]:
    """Rewrites that may cure a finding, likely ones first."""
    lines = text.split("\n")
    source = _Source(file, lines)
    later = d.span.line if d.span is not None and d.span.file == file else None
    places = [label.span.line for label in d.labels if label.span is not None and label.span.file == file]
    earlier = places[0] if places else None
    if d.code in ("D204", "D210"):
        for line in (later, earlier):
            if line is not None:
                yield source.before(line, "sync()", "order the warps of the instance before the access")
                for role in _roles(lines):
                    yield source.before(line, f"sync({role})", "order the warps of the role before the access")
    elif d.code == "D216":
        for line in (later, earlier):
            if line is not None:
                yield source.before(line, "sync()", "bring the lanes together before the access")
    elif d.code in ("F301", "F303", "F302"):
        if earlier is not None:
            yield source.after(earlier, "fence.async()", "fence after the access, in the threads that made it")
    elif d.code == "D207":
        if later is not None:
            for wait in ("tma.store.wait_read()\nsync()", "tma.store.wait_read()"):
                yield source.before(later, wait, "wait until the bulk stores have read the buffer")
    elif d.code == "D206":
        if later is not None:
            yield source.before(later, "wgmma.wait(keep=0)", "wait for the group before its registers are used")
    elif d.code == "D202" and earlier is not None:
        yield from _release(source, lines, earlier)
    elif d.code == "O508":
        yield from _rounded(source, lines)
    elif d.code == "P111" and later is not None and earlier is not None:
        yield from _counted(source, lines, later, earlier)
    elif d.code == "N802":
        yield from _neutral(source, lines, d)
    elif d.code in ("M401", "M403", "M407"):
        yield from _between_ctas(source, lines, d)


def _rounded(source: _Source, lines: list[str]) -> Iterator[Fix]:
    """Divisions that round down, one after the other, rounded up."""
    for number, line in enumerate(lines, 1):
        for match in re.finditer(r"(\w+) // (\w+)", line.split("#")[0]):
            new = f"cdiv({match.group(1)}, {match.group(2)})"
            yield source.replace(number, match.start(), match.group(0), new, "round up: the last part is ragged")


def _counted(source: _Source, lines: list[str], later: int, earlier: int) -> Iterator[Fix]:
    """The bound of one role's loop in the other's."""
    bounds = {n: _RANGE.search(lines[n - 1]) for n in (later, earlier)}
    for line, other in ((later, earlier), (earlier, later)):
        mine, theirs = bounds[line], bounds[other]
        if mine is not None and theirs is not None:
            message = "count the trips as the other role does"
            yield source.replace(line, mine.start(), mine.group(0), theirs.group(0), message)


def _neutral(source: _Source, lines: list[str], d: Diagnostic) -> Iterator[Fix]:
    """Another value for what a load leaves out."""
    for value in (*re.findall(r"`other=(\S+)` at the load", d.help or ""), "-inf"):
        for number, line in enumerate(lines, 1):
            code = line.split("#")[0]
            given = re.search(r", other=[^,)]+", code)
            message = f"let the load give {value} for what it leaves out"
            if "load(" not in code or "where=" not in code:
                continue
            if given is not None:
                yield source.replace(number, given.start(), given.group(0), f", other={value}", message)
            else:
                yield source.insert(number, code.rindex(")"), f", other={value}", message)


def _between_ctas(source: _Source, lines: list[str], d: Diagnostic) -> Iterator[Fix]:
    """The instance does not meet round a flag; the CTAs need not be resident; nothing says that the words are zero."""
    code = [line.split("#")[0] for line in lines]
    for number, line in enumerate(code, 1):
        tiles = re.match(r"\s*tiles (once)\b", line)
        if d.code == "M401" and "signal(" in line:
            yield source.before(number, "sync()", "gather what the instance has written before the signal")
        elif d.code == "M401" and "wait_until(" in line:
            yield source.after(number, "sync()", "let the whole instance see what the waiting thread saw")
        elif d.code == "M403" and tiles:
            yield source.replace(number, tiles.start(1), "once", "persistent", "CTAs that are resident together")
        elif d.code == "M407" and re.match(r"\s*tiles ", line):
            name = re.search(r"assume (zero\(\w+\))", d.help or "")
            if name is not None:
                yield source.before(number, f"assume {name.group(1)}", "say what the words begin with")


def _release(source: _Source, lines: list[str], earlier: int) -> Iterator[Fix]:
    """The stage is given back while it is read: wait for more, or give back less."""
    for number in range(earlier + 1, min(len(lines), earlier + 12) + 1):
        line = lines[number - 1]
        if "wgmma.wait(keep=" in line:
            yield from source.keep(number, -1, "let fewer groups stay in flight")
        if ".release(" in line:
            yield source.before(number, "wgmma.wait(keep=0)", "wait for the reads before the release")
            if "keep=" in line:
                yield from source.keep(number, 1, "keep the stage that is still read")
            else:
                at = line.index(".release(") + len(".release(")
                yield source.insert(number, at, "keep=1", "keep the stage that is still read")
            return


def _roles(lines: list[str]) -> list[str]:
    return re.findall(r"^\s*role (\w+)", "\n".join(lines), re.MULTILINE)


class _Source:
    """Edits of a text by lines."""

    def __init__(self, file: str, lines: list[str]) -> None:
        self.file = file
        self.lines = lines

    def _indented(self, line: int, statements: str) -> str:
        indent = self.lines[line - 1][: len(self.lines[line - 1]) - len(self.lines[line - 1].lstrip())]
        return "".join(f"{indent}{s}\n" for s in statements.split("\n"))

    def before(self, line: int, statements: str, message: str) -> Fix:
        """New statements before a line."""
        return self._edit(line, 1, line, 1, self._indented(line, statements), message)

    def after(self, line: int, statements: str, message: str) -> Fix:
        """New statements after a line (and after the lines that it goes on over)."""
        depth = 0
        last = line
        for number in range(line, len(self.lines) + 1):
            code = self.lines[number - 1].split("#")[0]
            depth += sum(code.count(c) for c in "([") - sum(code.count(c) for c in ")]")
            last = number
            if depth <= 0:
                break
        if last == len(self.lines):
            end = len(self.lines[-1]) + 1
            return self._edit(last, end, last, end, "\n" + self._indented(line, statements).rstrip("\n"), message)
        return self._edit(last + 1, 1, last + 1, 1, self._indented(line, statements), message)

    def keep(self, line: int, by: int, message: str) -> Iterator[Fix]:
        """Another ``keep=`` in a line."""
        match = _KEEP.search(self.lines[line - 1])
        if match is not None and int(match.group(1)) + by >= 0:
            new = f"keep={int(match.group(1)) + by}"
            yield self._edit(line, match.start() + 1, line, match.end() + 1, new, message)

    def insert(self, line: int, column: int, words: str, message: str) -> Fix:
        """Words in a line, after ``column`` characters."""
        return self._edit(line, column + 1, line, column + 1, words, message)

    def replace(self, line: int, column: int, old: str, new: str, message: str) -> Fix:
        """Other words in the place of ``old``, which starts after ``column`` characters."""
        return self._edit(line, column + 1, line, column + len(old) + 1, new, message)

    def _edit(self, line: int, column: int, end_line: int, end_column: int, new: str, message: str) -> Fix:
        span = Span(file=self.file, line=line, column=column, end_line=end_line, end_column=end_column)
        return Fix(message=message, edits=(Edit(span=span, replacement=new),))
