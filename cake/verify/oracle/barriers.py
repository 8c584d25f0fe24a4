"""Barriers of an execution, with what they tell (PTX ISA 9.7.13): counts and parities as the hardware has them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cake.verify.oracle.memory import Seen
from cake.verify.oracle.views import View
from cake.verify.search.tiles import WARP

if TYPE_CHECKING:
    from cake.verify.oracle.run import Thread

WIDE = ("cluster", "gpu")


@dataclass
class Mbarrier:
    """One mbarrier. ``letter``: what the phase in progress will tell, by who may understand it."""

    count: int
    owner: Thread
    made: int
    fenced: int | None = None
    phase: int = 0
    pending: int = 0
    tx: int = 0
    letter: dict[tuple[int, str, str], View] = field(default_factory=dict)
    latest: dict[tuple[int, str, str], View] = field(default_factory=dict)

    def require(self, t: Thread, cta: int, text: str) -> None:
        """The initialisation must be known; to other CTAs, with a ``fence.mbarrier_init`` after it (PTX ISA 9.7.13.5)."""
        if not t.view.reads >> self.made & 1:
            raise Seen("lifetime", f"{text} may come before the barrier's initialisation")
        if t.agent.cta != cta and (self.fenced is None or not t.view.reads >> self.fenced & 1):
            raise Seen("lifetime", f"{text}: the initialisation is not published to other CTAs")

    def tell(self, key: tuple[int, str, str], view: View) -> None:
        """Add to the letter: sender's CTA, semantics, scope."""
        found = self.letter.get(key)
        if found is None:
            self.letter[key] = view.copy()
        else:
            found.join(view)

    def contribute(self, weight: int, tx: int, text: str) -> None:
        """Arrivals and bytes; the phase completes when both counts are zero."""
        if weight > self.pending:
            raise Seen("arrivals", f"{text}: {weight} arrivals where {self.pending} are pending")
        self.pending -= weight
        self.tx += tx
        if self.pending == 0 and self.tx == 0:
            self.phase += 1
            self.pending = self.count
            self.latest, self.letter = self.letter, {}

    def passed(self, phase: int) -> bool:
        """try_wait.parity."""
        return bool((self.phase ^ phase) & 1)

    def deliver(self, t: Thread, sem: str, scope: str) -> None:
        """The last phase's letter, as far as semantics and scopes reach."""
        for (cta, how, reach), view in self.latest.items():
            near = cta == t.agent.cta or (reach in WIDE and scope in WIDE)
            if sem == "acquire" and (how == "tx" or (how == "release" and near)):
                t.view.join(view)
            else:
                t.view.join_control(view)
                if how != "relaxed":  # E6: a store is not performed before the wait that it depends on
                    t.view.reads |= view.reads


@dataclass
class Named:
    """A hardware barrier id: threads that have come, the count they state, and who waits."""

    threads: int = 0
    count: int = 0
    waiting: list[Thread] = field(default_factory=list)
    view: View | None = None

    def come(self, team: list[Thread], threads: int, count: int, text: str, *, blocks: bool) -> list[Thread]:
        """Warps come (with their halves, ``team``); those that may go on. Pure arrivals learn nothing, and each warp that makes
        one comes for itself: it may be in the next generation."""
        if self.threads and self.count != count:
            raise Seen("named", f"{text}: {count} threads where others state {self.count}")
        if self.threads + threads > count and (blocks or count % WARP):
            raise Seen("named", f"{text}: more than {count} threads come")
        self.count, self.threads = count, self.threads + threads
        for t in team:
            if self.view is None:
                self.view = t.view.copy()
            else:
                self.view.join(t.view)
        if blocks:
            self.waiting += team
        if self.threads < count:
            return [] if blocks else team
        assert self.view is not None
        for other in self.waiting:
            other.view.join(self.view)
        going = self.waiting if blocks else [*self.waiting, *team]
        self.threads, self.waiting, self.view = self.threads % count, [], None
        if self.threads:
            self.view = team[0].view.copy()
            for t in team[1:]:
                self.view.join(t.view)
        return going


@dataclass
class Meeting:
    """The cluster barrier: who has come in this generation, and what those that may go learn."""

    came: dict[Thread, str] = field(default_factory=dict)
    view: View | None = None
    control: View | None = None
    free: dict[Thread, tuple[View | None, View | None]] = field(default_factory=dict)

    def arrive(self, t: Thread, sem: str) -> None:
        """A thread arrives; relaxed, it publishes nothing."""
        self.came[t] = sem
        part = t.view.permission(t.mine)
        if self.control is None:
            self.control = part
        else:
            self.control.join(part)
        if sem != "relaxed":
            if self.view is None:
                self.view = t.view.copy()
            else:
                self.view.join(t.view)

    def complete(self) -> None:
        """All have come."""
        for t in self.came:
            self.free[t] = self.view, self.control
        self.came, self.view, self.control = {}, None, None

    def go(self, t: Thread, sem: str) -> None:
        """A waiter goes on."""
        view, control = self.free.pop(t)
        if control is not None:
            t.view.join_control(control)
            t.view.reads |= control.reads
        if view is not None and sem != "relaxed":
            t.view.join(view)
