"""``cake check``: every finding of some files, and the verdicts on their kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cake.cli import sources
from cake.diagnostics import CakeError, Diagnostic

if TYPE_CHECKING:
    from cake.ir import expanded as x
    from cake.verify.engine import Effort
    from cake.verify.verdict import Verdict


def check_files(
    files: Sequence[str], effort: Effort | None, *, hints: bool = False
) -> tuple[list[Diagnostic], list[Diagnostic], dict[str, Any], str]:
    """Findings, hints (of kernels that have a verdict), the JSON result, and the text."""
    found: list[Diagnostic] = []
    advice: list[Diagnostic] = []
    verdicts: list[tuple[x.Kernel, Verdict]] = []
    for name in files:
        try:
            source = sources.read(name)
            findings, decided = _check(source, effort)
            if hints and decided:
                advice += _advise(source, decided)
        except CakeError as error:
            findings, decided = list(error.diagnostics), []
        found += findings
        verdicts += decided
    rows = [
        {
            "kernel": kernel.name,
            "target": kernel.target,
            **verdict.model_dump(mode="json", include={"status", "claim", "codes", "notes", "runs", "seconds"}),
        }
        for kernel, verdict in verdicts
    ]
    lines = [] if found else [f"{len(files)} {'file' if len(files) == 1 else 'files'} checked: no findings"]
    names = [f"{k.name} for {k.target}" for k, _ in verdicts]
    width = max(map(len, names), default=0)
    lines += [f"{n:<{width}}  {v.status}: {v.claim}" for n, (_, v) in zip(names, verdicts, strict=True)]
    return found, advice, {"files": list(files), "verdicts": rows}, "\n".join(lines)


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
