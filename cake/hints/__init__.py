"""Hints: what a kernel that is right could do better. They never block, and never change a verdict.

``hints_of`` looks at kernels that have been decided: H951 synchronisation that nothing needs (``synchronisation``), H952 bank
conflicts (``banks``), H953 sectors (``sectors``), H956 registers (``registers``). ``built_hints`` looks at what the compiler made:
H955 occupancy (``occupancy``), H956. Each says only what can be computed exactly without a model of time; exposed latency (H954)
needs one. Everything is found in one launch of whole tiles on the machine, so that nothing ragged stands for the rest.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from cake.cache import Cache
from cake.diagnostics import CakeError, Diagnostic
from cake.diagnostics.jsonout import from_json, to_json

if TYPE_CHECKING:
    from cake.codegen.report import Report
    from cake.ir import expanded as x
    from cake.verify.verdict import Verdict

PARTS = ("codegen", "diagnostics", "hints", "ir", "machine", "verify")
"""Packages whose sources decide what is hinted at."""


def hints_of(decided: Iterable[tuple[x.Kernel, Verdict]], text: str | None, file: str) -> list[Diagnostic]:
    """The hints about kernels with their verdicts, each once. ``text``: the source, for fixes (None: there is none)."""
    found: list[Diagnostic] = []
    for kernel, verdict in decided:
        found += [d for d in _stored(kernel, verdict) if not any(_same(d, known) for known in found)]
    if text is not None and any(d.code == "H951" for d in found):
        from cake.hints.fixes import with_removals

        found = with_removals(text, file, found)
    return found


def _same(a: Diagnostic, b: Diagnostic) -> bool:
    """About one place, whatever the launch or target that showed it."""
    return (a.code, a.span, a.message) == (b.code, b.span, b.message)


def _stored(kernel: x.Kernel, verdict: Verdict) -> Sequence[Diagnostic]:
    """The hints about one kernel, from the cache where it has them."""
    from cake.verify.store import revision

    if verdict.status == "unsafe":
        return ()
    text = f"hints {verdict.status} {revision(PARTS)} {kernel.model_dump_json()}"
    key, store = hashlib.sha256(text.encode()).hexdigest(), Cache()
    entry = store.get(key)
    if entry is not None:
        with contextlib.suppress(KeyError, ValueError):
            return from_json(entry["hints"].decode())
    found = kernel_hints(kernel, safe=verdict.status == "safe")
    store.put(key, {"hints": to_json(found).encode()})
    return found


def kernel_hints(kernel: x.Kernel, *, safe: bool) -> list[Diagnostic]:
    """The hints about one kernel that is not known to fail. ``safe``: it is known not to."""
    from cake.hints.accesses import access_hints
    from cake.hints.registers import predicted_hints
    from cake.hints.synchronisation import synchronisation_hints
    from cake.hints.watch import watch

    found = predicted_hints(kernel)
    seen = watch(kernel)
    if seen is None:
        return found
    found += access_hints(kernel, seen)
    if safe:
        with contextlib.suppress(CakeError):
            found += synchronisation_hints(kernel, seen)
    return sorted(found, key=lambda d: (d.code, d.span.line if d.span is not None else 0))


def built_hints(kernel: x.Kernel, report: Report) -> list[Diagnostic]:
    """The hints about a compiled kernel."""
    from cake.hints.occupancy import occupancy_hints
    from cake.hints.registers import spill_hints

    return [*occupancy_hints(kernel, report), *spill_hints(kernel, report)]
