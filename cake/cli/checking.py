"""``cake check``: every finding of some files, and the verdicts on their kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cake.cli import sources
from cake.cli.outcome import UsageError, blocking, error
from cake.diagnostics import CakeError, Diagnostic

if TYPE_CHECKING:
    from cake.ir import expanded as x
    from cake.verify.engine import Effort
    from cake.verify.verdict import Verdict


@dataclass(frozen=True)
class Drawing:
    """Where a timeline goes, and of which kernel it is (None: the first that fails, else the first)."""

    path: str
    kernel: str | None = None


def check_files(
    files: Sequence[str], effort: Effort | None, *, hints: bool = False, drawing: Drawing | None = None
) -> tuple[list[Diagnostic], list[Diagnostic], dict[str, Any], str]:
    """Findings, hints (of kernels that have a verdict), the JSON result, and the text."""
    if drawing is not None and len(files) != 1:
        raise UsageError("--timeline draws a kernel of one file", "check the files one by one")
    if drawing is not None and effort is None:
        raise UsageError("--timeline shows what the verifier ran", "leave --no-verify out")
    found: list[Diagnostic] = []
    advice: list[Diagnostic] = []
    verdicts: list[tuple[x.Kernel, Verdict]] = []
    drawn = ""
    for name in files:
        try:
            source = sources.read(name)
            findings, decided = _check(source, effort)
            if hints and decided:
                advice += _advise(source, decided)
            if drawing is not None:
                drawn = _draw(source, decided, drawing, findings)
        except CakeError as error:
            findings, decided = list(error.diagnostics), []
        found += findings
        verdicts += decided
    rows = [
        {
            "kernel": kernel.name,
            "target": kernel.target,
            **verdict.model_dump(
                mode="json", include={"status", "claim", "codes", "notes", "runs", "seconds", "effort"}
            ),
        }
        for kernel, verdict in verdicts
    ]
    lines = [] if found else [f"{len(files)} {'file' if len(files) == 1 else 'files'} checked: no findings"]
    names = [f"{k.name} for {k.target}" for k, _ in verdicts]
    width = max(map(len, names), default=0)
    lines += [f"{n:<{width}}  {v.status}: {v.claim}" for n, (_, v) in zip(names, verdicts, strict=True)]
    if any(v.open for _, v in verdicts):
        lines.append("a quick check; with --prove it takes the time that build takes, and claims what build claims")
    result: dict[str, Any] = {"files": list(files), "verdicts": rows}
    if drawn and drawing is not None:
        lines.append(f"timeline of {drawn} written to {drawing.path}")
        result["timeline"] = drawing.path
    return found, advice, result, "\n".join(lines)


def _draw(
    source: sources.Source, decided: list[tuple[x.Kernel, Verdict]], drawing: Drawing, findings: list[Diagnostic]
) -> str:
    """Write the timeline; the name of its kernel, or nothing where findings kept every kernel from being judged."""
    from cake.timeline import timeline

    known = list(dict.fromkeys(kernel.name for kernel, _ in decided))
    if not known and blocking(findings):
        return ""
    if drawing.kernel is not None and drawing.kernel not in known:
        raise error("T001", f"there is no kernel `{drawing.kernel}` to draw", f"it has {', '.join(known) or 'none'}")
    of = [pair for pair in decided if drawing.kernel in (None, pair[0].name)]
    if not of:
        raise error("T018", "the file has no kernel to draw")
    kernel, verdict = next((pair for pair in of if pair[1].status != "safe"), of[0])
    with sources.trusted(source):
        text = timeline(kernel, verdict, None if source.expanded else source.text)
    try:
        Path(drawing.path).write_text(text, encoding="utf-8")
    except (OSError, ValueError) as problem:
        raise error(
            "G010", f"{drawing.path} cannot be written: {getattr(problem, 'strerror', None) or problem}"
        ) from None
    return kernel.name


def _advise(source: sources.Source, decided: list[tuple[x.Kernel, Verdict]]) -> list[Diagnostic]:
    from cake.hints import hints_of

    with sources.trusted(source):
        return hints_of(decided, None if source.expanded else source.text, source.file)


def _check(source: sources.Source, effort: Effort | None) -> tuple[list[Diagnostic], list[tuple[x.Kernel, Verdict]]]:
    from cake.compiler import check_text, decide_text

    if not source.expanded:
        if effort is None:
            return check_text(source.text, source.file), []
        return decide_text(source.text, source.file, effort)
    kernel = sources.parse_expanded(source)
    if effort is None:
        return [], []
    from cake.verify.store import decide

    with sources.trusted(source):
        verdict = decide(kernel, effort=effort)
    return list(verdict.diagnostics), [(kernel, verdict)]
