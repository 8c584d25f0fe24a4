"""The three clocks of an agent, as vector clocks over warp agents and bit sets over asynchronous operations.

C says what has *happened before* (an asynchronous operation: has completed), V which writes are *visible* to my generic
accesses, F which generic accesses are *published* to asynchronous operations that I issue (docs/verification.md 1.5).
What an agent knows of another agent's accesses is always a prefix of that agent's program, since every message carries
all that its sender knows; so one number an agent and clock is enough. Operations of the async proxy complete in any
order, so what is known of them is a set: a Python integer, one bit an operation.

C is kept as two rows: control order (C) and completed generic reads (R). They differ where order comes without
completion: a relaxed arrival and a collective instruction carry C, not the sender's own reads (E5, E14).

Beside the clocks that decide, a few are kept only to name a finding: S is V if every scope were wide enough, X also if
every arrival and wait were release and acquire, and the cumulative F (a fence covers all that its thread has seen),
which is also the F of the practice profile.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

C, R, V, S, X = range(5)
"""Rows: control order, completed reads, visible writes, visible but for scopes, visible but for scopes and
semantics."""

FENCED = {("own", "shared"): 5, ("own", "global"): 6, ("seen", "shared"): 7, ("seen", "global"): 8}
"""Rows of F for writes, by fence rule and state space. ``own``: a fence publishes what its thread did (axiom A4).
``seen``: it publishes all that its thread has seen."""

READS = 4
"""The row of F for reads, by the rule ``own`` alone, lies this much after that for writes."""

ROWS = 11
BITS = 7
"""Bit sets: reads done, writes done, visible (V, S, X), published (own, seen)."""

READ, DONE, SEEN, SEEN_S, SEEN_X, PUB, PUB_SEEN = range(BITS)


class Clock:
    """All rows and sets of one agent, message or barrier phase. ``rows[row, column]``: events 1..n of the column's
    agent."""

    __slots__ = ("bits", "rows")

    def __init__(self, rows: np.ndarray, bits: list[int]) -> None:
        self.rows = rows
        self.bits = bits

    @classmethod
    def fresh(cls, columns: int) -> Clock:
        """Nothing is known."""
        return cls(np.zeros((ROWS, columns), dtype=np.int32), [0] * BITS)

    def copy(self) -> Clock:
        """An independent copy."""
        return Clock(self.rows.copy(), list(self.bits))

    def join(self, other: Clock) -> None:
        """All that ``other`` knows (release to acquire)."""
        np.maximum(self.rows, other.rows, out=self.rows)
        mine = self.bits
        for i, theirs in enumerate(other.bits):
            mine[i] |= theirs

    def join_rows(self, other: Clock, rows: Iterable[int], bits: Iterable[int]) -> None:
        """Some of what ``other`` knows."""
        for row in rows:
            np.maximum(self.rows[row], other.rows[row], out=self.rows[row])
        for i in bits:
            self.bits[i] |= other.bits[i]

    def knows(self, column: int, number: int, row: int = C) -> bool:
        """Event ``number`` of the agent in ``column`` is known in ``row``."""
        return bool(self.rows[row, column] >= number)

    def has(self, op: int, bit: int) -> bool:
        """Operation ``op`` is in the set."""
        return self.bits[bit] >> op & 1 == 1


CONTROL_ROWS, CONTROL_BITS = (C, R), (READ, DONE)


def control(clock: Clock, column: int) -> Clock:
    """What a message carries that publishes nothing: control order and completed operations, without the sender's own
    reads."""
    message = Clock.fresh(clock.rows.shape[1])
    message.join_rows(clock, CONTROL_ROWS, CONTROL_BITS)
    message.rows[R, column] = 0
    return message


def unscoped(clock: Clock, column: int, *, semantics: bool) -> Clock:
    """What a message carries whose scope does not include the receiver, or (``semantics``: False) that is relaxed:
    control, and the naming clocks S and X that pretend it were right."""
    message = control(clock, column)
    message.join_rows(clock, (S, X) if semantics else (X,), (SEEN_S, SEEN_X) if semantics else (SEEN_X,))
    return message
