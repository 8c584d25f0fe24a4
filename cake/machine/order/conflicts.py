"""When two conflicting accesses are ordered: the table of docs/verification.md 1.5, one function.

=========================== ============================ ==========================================
earlier                     later                        ordered if the later one's issuer knows
=========================== ============================ ==========================================
generic write               generic access               the write in V
generic write               async access                 the write in F, at issue
async write                 async write                  its completion in C
async write                 anything else                its completion in V
generic read                generic write                the read, completed, in C (row R)
generic read                async write                  that, and the read in F (conservative profile)
async read                  any write                    reads-done in C
=========================== ============================ ==========================================

The second of these rows differs from 1.5, which asks for V. Nothing is read there, so permission is enough, and axiom
A5 lets a CTA-scope arrival from another CTA carry permission: with V, litmus 22 (multicast refill) could not be safe.

cp.async writes through the generic proxy when it completes: a generic write whose place in V and F is a bit.
"""

from __future__ import annotations

from typing import Literal

from cake.machine.order.clocks import (
    DONE,
    FENCED,
    PUB,
    PUB_SEEN,
    READ,
    READS,
    SEEN,
    SEEN_S,
    SEEN_X,
    C,
    Clock,
    R,
    S,
    V,
    X,
)
from cake.machine.order.shadow import Access, same_warp

Profile = Literal["conservative", "practice"]
"""``conservative``: a proxy fence covers its own thread's accesses, and generic reads need one too (F302, F303 refuse).
``practice``: it covers all that its thread has seen, and reads need none."""

Problem = Literal[
    "unordered",  # not even in time
    "semantics",  # a relaxed arrival or wait in between
    "scope",  # a scope that does not include the receiver in between
    "fence",  # visible to threads, not to the async proxy
    "misplaced",  # the same, and there is a fence, by another thread or too early
    "refill",  # a generic read, ordered, but not before the async proxy's write
    "flight",  # the read of an asynchronous operation may still be under way
    "landing",  # the source has been read, the destination perhaps not written
    "proxies",  # read-modify-writes through different proxies
]


def compared(earlier: Access, later: Access) -> bool:
    """False where nothing has to be ordered: two reads, two atomics of one proxy, and the two halves of a warp that
    both make both accesses (each half has its own program order)."""
    if not (earlier.writes or later.writes):
        return False
    if earlier.atomic and later.atomic and earlier.asynchronous == later.asynchronous:
        return False
    if earlier.op is not None and earlier.op is later.op:
        return False
    both = earlier.lanes and later.lanes and same_warp(earlier, later)
    return not (both and earlier.agent.half != later.agent.half)


def problem(earlier: Access, later: Access, clock: Clock, profile: Profile) -> Problem | None:
    """Why ``earlier`` is not ordered before ``later``, which knows ``clock``; None if it is."""
    if earlier.atomic and later.atomic:
        return "proxies"
    if earlier.batch != later.batch:
        return "unordered"
    rule = "own" if profile == "conservative" else "seen"
    space = later.effect.region.space
    if earlier.writes:
        if earlier.bit is None:
            return _thread_write(earlier, later, clock, FENCED[rule, space], FENCED["seen", space])
        return _operation_write(earlier, earlier.bit, later, clock, PUB if rule == "own" else PUB_SEEN)
    if earlier.bit is not None:
        return None if clock.has(earlier.bit, READ) else "flight"
    if not clock.knows(earlier.column, earlier.number, R):
        return "unordered"
    if later.asynchronous and profile == "conservative":
        row = FENCED[rule, space] + READS
        return None if clock.knows(earlier.column, earlier.number, row) else "refill"
    return None


def _thread_write(earlier: Access, later: Access, clock: Clock, row: int, cumulative: int) -> Problem | None:
    column, number = earlier.column, earlier.number
    if not clock.knows(column, number, V):
        if clock.knows(column, number, S):
            return "scope"
        return "semantics" if clock.knows(column, number, X) else "unordered"
    if not later.asynchronous or clock.knows(column, number, row):
        return None
    return "misplaced" if earlier.stale or clock.knows(column, number, cumulative) else "fence"


def _operation_write(earlier: Access, bit: int, later: Access, clock: Clock, published: int) -> Problem | None:
    if earlier.asynchronous and later.asynchronous and later.effect.mode == "w" and clock.has(bit, DONE):
        return None
    if clock.has(bit, SEEN):
        if earlier.asynchronous or not later.asynchronous or clock.has(bit, published):
            return None
        return "misplaced" if clock.has(bit, PUB_SEEN) else "fence"
    if clock.has(bit, SEEN_S):
        return "scope"
    if clock.has(bit, SEEN_X):
        return "semantics"
    if clock.has(bit, DONE):
        return "unordered"
    return "landing" if clock.has(bit, READ) else "unordered"


def happened(earlier: Access, later: Access, clock: Clock) -> bool:
    """``earlier`` (an operation: its issue) comes before ``later``, which knows ``clock``, in control order."""
    return earlier.batch == later.batch and clock.knows(earlier.column, earlier.number, C)
