"""Equality of the languages of two automata, and the shortest sequence that tells them apart.

Subset construction on both sides at once. Every prefix of a run counts, and the end of a thread is a letter, so two
automata are equal exactly where every reachable pair of subsets offers the same letters.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

from cake.ptx.explore import Automaton, Letter, Undecided

Site = tuple[int, int]
LIMIT = 400_000


@dataclass(frozen=True, slots=True)
class Difference:
    """After the same ``prefix`` (its last letter; None at the start), one side goes on with ``only_left`` and the
    other with ``only_right`` (letters, with places) that the other side cannot."""

    prefix: tuple[Letter, Any] | None
    only_left: tuple[tuple[Letter, Any], ...]
    only_right: tuple[tuple[Letter, Any], ...]
    left: tuple[tuple[Letter, Any], ...]
    right: tuple[tuple[Letter, Any], ...]
    length: int


class _Side:
    """The letters that follow a set of sites. A site is a letter of a state."""

    def __init__(self, automaton: Automaton) -> None:
        self.states = automaton.states
        self._reach: dict[int, frozenset[Site]] = {}

    def start(self) -> frozenset[Site]:
        return self._from(0)

    def _from(self, state: int) -> frozenset[Site]:
        """Sites reachable from the start of a state without a letter."""
        found = self._reach.get(state)
        if found is not None:
            return found
        out: set[Site] = set()
        seen = {state}
        work = [state]
        while work:
            n = work.pop()
            here = self.states[n]
            if self._within(n, 0, out):
                for m in here.after:
                    if m not in seen:
                        seen.add(m)
                        work.append(m)
        result = self._reach[state] = frozenset(out)
        return result

    def _within(self, n: int, i: int, out: set[Site]) -> bool:
        """Add the sites of state ``n`` from letter ``i`` on; True if its end is reachable without a letter."""
        letters = self.states[n].letters
        while i < len(letters):
            out.add((n, i))
            if not letters[i][1]:
                return False
            i += 1
        return True

    def _after(self, site: Site) -> frozenset[Site]:
        n, i = site
        out: set[Site] = {site} if self.states[n].letters[i][1] else set()
        if self._within(n, i + 1, out):
            for m in self.states[n].after:
                out |= self._from(m)
        return frozenset(out)

    def moves(self, sites: frozenset[Site]) -> dict[Letter, list[Site]]:
        """Letters and the sites that carry them."""
        out: dict[Letter, list[Site]] = {}
        for n, i in sites:
            out.setdefault(self.states[n].letters[i][0], []).append((n, i))
        return out

    def follow(self, sites: list[Site]) -> frozenset[Site]:
        """The sites after one of ``sites``."""
        if len(sites) == 1:
            return self._after(sites[0])
        return frozenset().union(*(self._after(s) for s in sites))

    def place(self, site: Site) -> Any:
        return self.states[site[0]].letters[site[1]][2]


def difference(left: Automaton, right: Automaton, within: bool = False) -> Difference | None:
    """The first difference between two automata, None if they accept the same sequences (``within``: if the right one accepts
    what the left one does)."""
    a, b = _Side(left), _Side(right)
    start = (a.start(), b.start())
    seen = {start}
    work: deque[tuple[frozenset[Site], frozenset[Site], tuple[Letter, Any] | None, int]] = deque([(*start, None, 0)])
    while work:
        one, two, prefix, length = work.popleft()
        mine, theirs = a.moves(one), b.moves(two)
        if mine.keys() - theirs.keys() if within else mine.keys() != theirs.keys():
            letters_a = tuple((k, a.place(s[0])) for k, s in mine.items())
            letters_b = tuple((k, b.place(s[0])) for k, s in theirs.items())
            return Difference(
                prefix,
                tuple(p for p in letters_a if p[0] not in theirs),
                tuple(p for p in letters_b if p[0] not in mine),
                letters_a,
                letters_b,
                length,
            )
        for letter, sites in mine.items():
            pair = (a.follow(sites), b.follow(theirs[letter]))
            if pair not in seen:
                if len(seen) >= LIMIT:
                    raise Undecided(f"more than {LIMIT} pairs of states")
                seen.add(pair)
                work.append((*pair, (letter, b.place(theirs[letter][0])), length + 1))
    return None
