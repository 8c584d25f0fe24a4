"""A picture of one launch: warps and roles as lanes, asynchronous operations as bars, slots of rings, edges, and the finding.

``timeline`` runs the launch that a verdict's finding names (else a small one) on the machine, and gives one self-contained HTML
file made from the event stream that the order reading judged.
"""

from __future__ import annotations

from cake.diagnostics import CakeError, Diagnostic
from cake.ir import expanded as x
from cake.timeline.model import model
from cake.timeline.page import page
from cake.timeline.recording import choose
from cake.verify.verdict import Verdict


def timeline(kernel: x.Kernel, verdict: Verdict, source: str | None) -> str:
    """The page of one kernel. ``source``: the text that its spans point into, if there is one. CakeError (U904) if no small
    launch can be run."""
    recording = choose(kernel, verdict)
    if recording is None:
        message = f"no small launch of {kernel.name} could be run, so there is nothing to draw"
        raise CakeError(Diagnostic(code="U904", severity="error", message=message, span=kernel.span))
    return page(model(kernel, verdict, recording, source))
