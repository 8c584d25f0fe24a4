"""Explicit-state search: an interpreter of expanded kernels at warp granularity that shares no code with the machine.

It decides protocol and execution order (deadlock, over-arrival, races, wrong fills, what is in flight at exit) for one launch by
trying every interleaving. Fences, scopes and proxies are not its affair: see ``cake.verify.oracle``.
"""

from cake.verify.search.explore import search
from cake.verify.search.outcome import Outcome

__all__ = ["Outcome", "search"]
