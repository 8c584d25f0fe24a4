"""Words for findings of the order reading."""

from __future__ import annotations

from cake.diagnostics import Diagnostic, Label
from cake.machine import events as ev


def of(who: ev.Agent | ev.AsyncOp) -> str:
    """An agent or operation in words: ``math[1] warp 5`` or ``the tma.load of load warp 0``."""
    if isinstance(who, ev.AsyncOp):
        return f"the {who.op} of {of(who.issuer)}"
    half = ", elected lane" if who.half == "L" else ""
    return f"{who.role or 'warp'} warp {who.warp}{half}"


def far(who: ev.Agent | ev.AsyncOp) -> str:
    """The same with its CTA, where several meet."""
    agent = who.issuer if isinstance(who, ev.AsyncOp) else who
    return f"{of(who)} of CTA {agent.cta}"


def steps(site: ev.Site | None) -> str:
    """The iteration of a site: `` at t.pos=2, k=3``."""
    if site is None or not site.iteration:
        return ""
    return " at " + ", ".join(f"{name}={value}" for name, value in site.iteration)


def where(event: ev.Event) -> str:
    """Who did an event, and in which iteration."""
    who = getattr(event, "agent", None) or getattr(event, "by", None)
    return (of(who) if who is not None else event.kind) + steps(event.site)


def finding(
    code: str,
    message: str,
    site: ev.Site | None,
    *,
    labels: tuple[Label, ...] = (),
    witness: tuple[str, ...] = (),
    help: str | None = None,
) -> Diagnostic:
    """An error at a site; where the node has no span, its place in the program is a fact."""
    span = site.span if site is not None else None
    facts = () if site is None else (f"at {site.path or 'entry'}{steps(site)}",)
    return Diagnostic(
        code=code, severity="error", message=message, span=span, labels=labels, facts=facts, witness=witness, help=help
    )
