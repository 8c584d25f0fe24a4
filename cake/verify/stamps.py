"""Whether a kernel may be built, and what its artifact says about it."""

from __future__ import annotations

from collections.abc import Collection

from cake.codegen.build import Stamp
from cake.diagnostics import CakeError, Diagnostic
from cake.ir import expanded as x
from cake.verify.store import decide
from cake.verify.verdict import Verdict

POLICY = frozenset({"F302", "F303"})
"""Refused by axiom A4, which is conservative: not known to fail, so they may be allowed like an unknown."""


def stamp_of(verdict: Verdict, allow: Collection[str] = ()) -> Stamp:
    """The stamp of an artifact; CakeError where the kernel may not be built. ``allow`` has codes of what need not be
    known; what is known to fail is not built."""
    if verdict.status == "safe":
        return Stamp(proved=verdict.proved, unproved=(), claim=verdict.claim)
    open_ = verdict.status == "unknown" or set(verdict.codes) <= POLICY
    if open_ and set(verdict.codes) <= set(allow):
        reasons = tuple(f"{d.code} {d.message}" for d in verdict.diagnostics)
        return Stamp(proved=False, unproved=verdict.codes, claim=verdict.claim, reasons=reasons)
    found = verdict.diagnostics
    if open_:
        codes = " ".join(f"--allow {c}" for c in verdict.codes)
        found = tuple(_with_help(d, f"`cake build {codes}` builds it, stamped as unproved") for d in found)
    raise CakeError(*found)


def checked_stamp(kernel: x.Kernel, allow: Collection[str] = ()) -> Stamp:
    """Decide ``kernel`` and give its stamp."""
    return stamp_of(decide(kernel), allow)


def _with_help(d: Diagnostic, more: str) -> Diagnostic:
    return d.model_copy(update={"help": f"{d.help}; {more}" if d.help else more})
