"""Putting findings together: one of each, root causes first, at most three, with the contract that is broken."""

from __future__ import annotations

from collections.abc import Iterable

from cake.diagnostics import Diagnostic
from cake.machine.order.check import MEANINGLESS, RANK

LIMIT = 3

CONTRACTS = {
    "P101": "every wait is satisfied in every schedule",
    "P102": "the completion of a phase comes before every contribution to the next one",
    "P103": "the arrivals of each phase add up to the barrier's count",
    "P104": "the bytes announced for a phase are the bytes that land in it",
    "P105": "bytes are announced before the last arrival of their phase",
    "P106": "every wait for a phase returns before the next phase completes",
    "P107": "a wait for a phase is issued after the phase before it has completed",
    "P108": "something contributes to every phase that is waited for",
    "P109": "stages are released oldest first, each once, and none is kept past its tile",
    "P110": "fewer stages are held than the ring has",
    "P111": "the roles of a pipeline fill and empty it equally often",
    "P112": "every turn that is taken is passed on",
    "P113": "a barrier is initialised before it is used, and once",
    "P114": "one hardware barrier has one generation at a time",
    "P115": "the threads that come to a barrier are as many as it states",
    "P116": "all threads of a cluster take part in its barrier, and arrivals and waits alternate",
    "P117": "no CTA leaves while another may still signal its barriers",
    "P120": "a group wait is executed by the thread that committed the groups",
    "C605": "what a warpgroup executes belongs to a role of whole warpgroups",
    "D201": "memory is read after it was written, and after the write has become visible",
    "D202": "memory is overwritten after every read of it has completed",
    "D203": "two writes of the same memory are ordered",
    "D204": "warps of a role order what they exchange through memory",
    "D205": "what the elected lane has waited for reaches its siblings through syncwarp",
    "D206": "registers of a wgmma are left alone until its group has been waited for",
    "D207": "a buffer is rewritten after the bulk store has read it",
    "D208": "a read of a stage sees the fill that its wait was for",
    "D209": "memory, registers and scalars are written before they are read",
    "D210": "buffers that share bytes are used one after the other",
    "D213": "what touches a CTA's shared memory has ended before the CTA's last thread leaves",
    "D214": "a CTA's shared memory is reached by others only while that CTA lives",
    "D216": "lanes of a warp order what they exchange through memory",
    "F301": "generic writes are fenced by their thread before the async proxy reads or writes the bytes",
    "F302": "generic reads are fenced by their thread before the async proxy refills the bytes",
    "F303": "the fence is executed by the accessing thread, after the access and before its release",
    "F304": "data that crosses CTAs is published and acquired at cluster or gpu scope",
    "F305": "data is published by a release and taken by an acquire",
    "F306": "registers are fenced before the first wgmma that uses them after an access",
    "F308": "initialised barriers are fenced before another CTA uses them",
    "F310": "global data is complete, and fenced for the proxy that takes it, before a flag says so",
    "M401": "different CTAs touch different elements, unless a pattern orders them",
    "M402": "the values of a word that CTAs wait for have one order, are published by signals, and stay until they are seen",
    "M403": "a CTA waits only for what resident CTAs do on behalf of tiles that are not later in the list",
    "M404": "one element is combined through one proxy only",
    "M407": "a word that CTAs wait for is zero when a launch begins and when it ends",
    "M405": "inputs are read-only for the launch",
    "O501": "every element of an output is written",
    "O502": "every element of an output is written once, unless it is combined",
    "O503": "accesses stay inside the tensor or the buffer",
    "O505": "a copy, the announcement of its bytes and the waits for it are under the same conditions",
    "O508": "bounds cover the ragged edge",
    "U901": "control depends on launch values, coordinates, loop indices and inputs that nothing writes",
    "U902": "every schedule of a launch goes the same way",
    "U903": "conditions on loop indices have a form that repeats",
    "U905": "CTAs wait for each other on behalf of tiles",
    "U906": "the verifier ends within its budget",
    "W701": "shared memory fits",
    "W702": "registers of all roles fit the pool",
    "W705": "barrier ids exist",
    "W706": "threads and clusters are what the target offers",
    "W707": "boxes of block copies are what the copy engine takes",
    "W708": "a swizzled tile starts where its pattern does, and its rows are no wider",
    "W703": "setmaxnreg gives back or takes as it says",
    "W710": "counts and bytes stay in the range of an mbarrier",
    "N802": "what lies past the data, or was left out by a load, changes no result",
    "N803": "integers fit their type",
    "N807": "divisors are not zero",
}


def rank(d: Diagnostic) -> tuple[int, bool, str]:
    """Root causes first; a deadlock after the findings that may have caused it."""
    return RANK.find(d.code[0]) % len(RANK), d.code == "P101", d.code


def choose(findings: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """At most three findings: consequences and repetitions left out, contracts added."""
    kept: dict[tuple[str, object], Diagnostic] = {}
    for d in findings:
        kept.setdefault((d.code, d.span), d)
    ordered = sorted(kept.values(), key=rank)
    if any(d.code in MEANINGLESS for d in ordered):
        ordered = [d for d in ordered if d.code[0] not in "DFO" or d.code == "F308"]
    elif any(d.code[0] in "DF" for d in ordered):
        ordered = [d for d in ordered if d.code not in ("O501", "O502")]
    return tuple(
        d if d.contract or d.code not in CONTRACTS else d.model_copy(update={"contract": CONTRACTS[d.code]})
        for d in ordered[:LIMIT]
    )
