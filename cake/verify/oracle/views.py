"""What an agent can be sure to see: for each atom of memory the newest version that must be visible to it.

A version is a write in the order in which the atom was written. An agent may read any version from its own bound on; the
adversary picks the oldest. So a read is right only if the bound is the newest version, and every weakness of the memory model
(a missing fence, a narrow scope, a relaxed arrival, an operation still in flight) is a bound that did not move. Bounds travel with
releases and are taken over by acquires, as in view-based operational models of release and acquire.
"""

from __future__ import annotations

from typing import Any

import numpy as np

V, F, G, K = range(4)
"""Bounds: for generic accesses; for async accesses (fences publish the fencing thread's own writes, axiom A4); the same if fences
were cumulative; and which writes have completed at all (permission to overwrite, no data: axiom A5)."""


class View:
    """Bounds, and the reads that are known to be over. ``reads``: of threads; ``fenced``: those that their thread has fenced
    since; ``operations``: reads of asynchronous operations."""

    __slots__ = ("bounds", "fenced", "operations", "reads")

    def __init__(self, bounds: Any, reads: int = 0, fenced: int = 0, operations: int = 0) -> None:
        self.bounds = bounds
        self.reads = reads
        self.fenced = fenced
        self.operations = operations

    @classmethod
    def fresh(cls, atoms: int) -> View:
        """Nothing but the initial memory."""
        return cls(np.zeros((4, atoms), dtype=np.int32))

    def copy(self) -> View:
        """As it is now."""
        return View(self.bounds.copy(), self.reads, self.fenced, self.operations)

    def join(self, other: View) -> None:
        """Release to acquire."""
        np.maximum(self.bounds, other.bounds, out=self.bounds)
        self.reads |= other.reads
        self.fenced |= other.fenced
        self.operations |= other.operations

    def join_control(self, other: View) -> None:
        """Order in time without visibility: what a relaxed message, a narrow scope or a collective carries."""
        np.maximum(self.bounds[K], other.bounds[K], out=self.bounds[K])
        self.operations |= other.operations

    def permission(self, mine: int) -> View:
        """What such a message holds; ``mine``: the sender's own reads, which it does not cover."""
        result = View.fresh(self.bounds.shape[1])
        result.bounds[K] = self.bounds[K]
        result.reads = self.reads & ~mine
        result.operations = self.operations
        return result
