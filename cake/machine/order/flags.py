"""Words in global memory that CTAs pass on: `signal` and `wait_until` as a chain of values (M402).

A word takes one value after the other, its *epochs*; the one that the launch begins with is the first. What D1, D4 and D5
are for the phases of an mbarrier, three conditions are for epochs, and with them every schedule passes the same waits on
the same signals (Theorem 1 of docs/verification.md 1.3 with a word in the place of a barrier):

- *order*: whoever changes the word knows the change before it, so the values have one order;
- *no early pass*: a wait knows of every earlier epoch with the value it waits for that the word has left it since;
- *no lap*: whoever changes the word knows that the waits for its present value have returned, since a spinning thread that
  misses the value never goes on.

A wait takes over what the signal carries (edge E17: PTX ISA 8.8, release and acquire patterns). Nothing else publishes:
a wait that passes on what an ordinary store or a relaxed atomic wrote is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from cake.diagnostics import Diagnostic, Label
from cake.ir import expanded as x
from cake.machine import events as ev
from cake.machine.order.clocks import Clock, R, V
from cake.machine.order.report import far, finding, steps
from cake.machine.program import statements

Word = tuple[str, int]
"""A tensor, and the row-major number of an element."""


@dataclass(slots=True)
class Waited:
    """A wait that has returned: who, as which event of its agent, and in which batch of clusters."""

    event: ev.Access
    column: int
    number: int
    batch: int


@dataclass(slots=True)
class Epoch:
    """A value of a word. ``value``: None where it was not written by a signal; ``event``: None for the value that the
    launch begins with; ``clock``: what the signal carries."""

    value: int | None
    event: ev.Access | ev.Issue | None
    column: int = -1
    number: int = 0
    batch: int = -1
    clock: Clock | None = None
    waits: list[Waited] = field(default_factory=list)

    @property
    def signalled(self) -> bool:
        """A signal made it."""
        return self.clock is not None


@dataclass(slots=True)
class Passed:
    """A wait, the epoch on which it passed, and the word."""

    word: Word
    wait: Waited
    epoch: Epoch


class Flags:
    """The words of the tensors that some `wait_until` or `signal` names. ``shapes``: the extents of tensors; ``first``: the
    value that a word begins with. Batches of clusters are not ordered with each other."""

    def __init__(self, tensors: frozenset[str], shapes: dict[str, tuple[int, ...]], first: int = 0) -> None:
        self.tensors = tensors
        self.shapes = shapes
        self.first = first
        self.batch = 0
        self.words: dict[Word, list[Epoch]] = {}
        self.passed: list[Passed] = []
        self.unordered: list[tuple[Word, Epoch, Epoch]] = []
        self.findings: dict[tuple[str, str], Diagnostic] = {}

    def _knows(self, clock: Clock, what: Epoch | Waited, row: int) -> bool:
        return what.batch == self.batch and clock.knows(what.column, what.number, row)

    def _chain(self, word: Word) -> list[Epoch]:
        chain = self.words.get(word)
        if chain is None:
            chain = self.words[word] = [Epoch(self.first, None)]
        return chain

    def signal(self, word: Word, event: ev.Access, column: int, number: int, clock: Clock) -> None:
        """A signal, whose agent knows ``clock``."""
        self._change(word, Epoch(event.word, event, column, number, self.batch, clock.copy()), clock)

    def written(self, words: list[Word], event: ev.Access | ev.Issue, column: int, number: int, clock: Clock) -> None:
        """Something else changes words."""
        for word in words:
            self._change(word, Epoch(None, event, column, number, self.batch), clock)

    def _change(self, word: Word, new: Epoch, clock: Clock) -> None:
        chain = self._chain(word)
        before = chain[-1]
        if _atomic(before) and _atomic(new) and not self._knows(clock, before, V):
            self.unordered.append((word, before, new))
        for wait in before.waits if _atomic(new) else ():
            if not self._knows(clock, wait, R):
                self._lapped(word, wait, new)
        chain.append(new)

    def wait(self, word: Word, event: ev.Access, column: int, number: int, clock: Clock) -> Clock | None:
        """A wait returns: what it takes over, if anything. ``clock``: what its agent knew when it began to wait."""
        chain = self._chain(word)
        seen = chain[-1]
        for at in range(len(chain) - 2, -1, -1):
            if chain[at].value in (None, event.word):
                left = chain[at + 1]
                if not self._knows(clock, left, V):
                    self._early(word, event, chain[at], left)
                break
        wait = Waited(event, column, number, self.batch)
        seen.waits.append(wait)
        self.passed.append(Passed(word, wait, seen))
        if seen.event is not None and not seen.signalled:
            self._unpublished(word, event, seen)
        return seen.clock if seen.batch == self.batch else None

    # -- telling ------------------------------------------------------------------------------------------------------

    def finish(self) -> list[Diagnostic]:
        """All findings. Changes that no signal makes must be in order only if something waits for the word."""
        waited = {passed.word for passed in self.passed}
        for word, before, new in self.unordered:
            if new.signalled or word in waited:
                self._unordered(word, before, new)
        found, self.findings, self.unordered = list(self.findings.values()), {}, []
        return found

    def _unordered(self, word: Word, before: Epoch, new: Epoch) -> None:
        self._add(
            f"{_does(new.event)} {self.name(word)} without knowing that {_did(before.event)} comes before",
            new.event,
            before.event,
            ("the two may change places, so the word may end, or be seen, with either value",),
            "let whoever changes the word wait for the value before, or give each its own word",
        )

    def _lapped(self, word: Word, wait: Waited, new: Epoch) -> None:
        value = wait.event.word
        self._add(
            f"{_does(new.event)} {self.name(word)} while {far(wait.event.agent)} may still wait for its value {value}",
            new.event,
            wait.event,
            (f"{far(wait.event.agent)}{steps(wait.event.site)} may look too late and never see {value} again",),
            "change the word only after its waits have returned (the waiting CTA passes it on), or use another word",
        )

    def _early(self, word: Word, event: ev.Access, old: Epoch, left: Epoch) -> None:
        first = "the value that the launch begins with" if old.event is None else f"what {_did(old.event)} left"
        self._add(
            f"{far(event.agent)} waits for {event.word} in {self.name(word)}, and may pass on {first}",
            event,
            left.event,
            (f"it is not known to come after {_did(left.event)}, which changes the word from that value",),
            "wait for a value that the word has not had before, or order the wait after the change",
        )

    def _unpublished(self, word: Word, event: ev.Access, seen: Epoch) -> None:
        self._add(
            f"{far(event.agent)} waits for {event.word} in {self.name(word)}, which {_did(seen.event)} wrote: that publishes "
            "nothing",
            event,
            seen.event,
            ("only `signal` is a release at gpu scope",),
            "let `signal` write the word",
        )

    def _add(
        self,
        message: str,
        at: ev.Access | ev.Issue | None,
        other: ev.Access | ev.Issue | None,
        witness: tuple[str, ...],
        help: str,
    ) -> None:
        site = at.site if at is not None else None
        there = other.site if other is not None else None
        key = site.path if site is not None else "", there.path if there is not None else ""
        if key in self.findings:
            return
        labels = () if there is None else (Label(span=there.span, text=f"the other: {_where(other)}"),)
        trace = tuple(f"{_where(e)}" for e in (other, at) if e is not None)
        self.findings[key] = finding("M402", message, site, labels=labels, witness=(*trace, *witness), help=help)

    def name(self, word: Word) -> str:
        """A word as its author writes it."""
        index = np.unravel_index(word[1], self.shapes[word[0]])
        return f"`{word[0]}[{', '.join(str(int(i)) for i in index)}]`"


def word_of(region: ev.Region) -> Word:
    """The word that a flag operation names."""
    assert isinstance(region, ev.GlobalRegion) and region.spans is not None
    return region.tensor, region.spans[0][0]


def flag_tensors(kernel: x.Kernel) -> frozenset[str]:
    """The tensors whose elements CTAs wait for or signal."""
    bodies = (kernel.entry, *(role.body for role in kernel.roles))
    nodes = [n for body in bodies for n in statements(body) if isinstance(n, x.Op)]
    return frozenset(n.ref("flag").base for n in nodes if n.op in ("wait_until", "signal"))


def _atomic(epoch: Epoch) -> bool:
    """It takes part in the chain by atomic accesses; others are compared as accesses are, and race (M401)."""
    return isinstance(epoch.event, ev.Access) and epoch.event.atomic


def _where(event: ev.Access | ev.Issue | None) -> str:
    assert event is not None
    name = event.site.node.op if event.site is not None and hasattr(event.site.node, "op") else event.kind
    value = f" {event.word}" if isinstance(event, ev.Access) and event.word is not None else ""
    return f"{far(event.agent)}: {name}{value}{steps(event.site)}"


def _does(event: ev.Access | ev.Issue | None) -> str:
    assert event is not None
    verb = "signals" if isinstance(event, ev.Access) and event.word is not None else "writes"
    return f"{far(event.agent)} {verb}"


def _did(event: ev.Access | ev.Issue | None) -> str:
    assert event is not None
    what = f"the signal {event.word}" if isinstance(event, ev.Access) and event.word is not None else "a write"
    return f"{what} by {far(event.agent)}"
