"""Conflicting accesses that are not ordered as their kinds need: found cell by cell, named at the end.

What a race is called depends on what else happened at its sites (D204: a sister warp was ordered, this one not; D205:
the elected lane was, its siblings not), so pairs are kept until the run has ended and told once for each pair of
places in the program.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from cake.diagnostics import Diagnostic, Label
from cake.machine import events as ev
from cake.machine.order.clocks import Clock
from cake.machine.order.conflicts import Problem, Profile, compared, happened, problem
from cake.machine.order.report import far, finding, of, steps
from cake.machine.order.shadow import Access, Memory

LIMIT = 500
"""Dynamic pairs of sites that are kept; a program with more has long been told."""


@dataclass(slots=True)
class Pair:
    """A race between two dynamic sites: its first instance, and who was unordered on either side."""

    earlier: Access
    later: Access
    problem: Problem
    ordered_in_time: bool
    sisters: bool
    first: set[int] = field(default_factory=set)
    second: set[int] = field(default_factory=set)


class Races:
    """Checks accesses against shadow memory. ``progress[column][n]``: how far that agent's program was at its event
    n."""

    def __init__(
        self, memory: Memory, profile: Profile, progress: list[list[int]], agents: tuple[ev.Agent, ...]
    ) -> None:
        self.memory = memory
        self.profile = profile
        self.progress = progress
        self.agents = agents
        self.pairs: dict[tuple[int, int, str], Pair] = {}
        self.stale: list[tuple[Access, Access]] = []
        self.unwritten: list[Access] = []
        self.sites: dict[int, set[int]] = {}
        self.racers: dict[tuple[int, int], set[int]] = {}
        self.misdirected: set[tuple[str, str]] = set()

    def access(self, access: Access, clocks: list[Clock], others: list[Access]) -> None:
        """Check one access under the clocks of all that make it (``others``: its twins for the other agents), and
        remember it."""
        cells = self.memory.cells(access.effect.region)
        if not cells:
            return
        if access.site is not None:
            self.sites.setdefault(id(access.site), set()).add(access.column)
        twins = [access, *others]
        reads, writes = access.effect.mode != "w", access.writes
        shared = access.effect.region.space == "shared"
        met: set[int] = set()  # many cells were last touched by the same accesses
        for cell in cells:
            for rival in cell.rivals(access):
                if id(rival) in met:
                    continue
                met.add(id(rival))
                for twin, clock in zip(twins, clocks, strict=True):
                    if compared(rival, twin):
                        found = problem(rival, twin, clock, self.profile)
                        if found is not None:
                            self._race(rival, twin, found, clock)
            if reads and shared:
                self._fresh(cell.writes, access, met)
                if not cell.writes:
                    self.unwritten.append(access)
            if writes:
                cell.write(access)
            else:
                cell.read(access)

    def _fresh(self, writes: list[Access], access: Access, met: set[int]) -> None:
        """D10: a read of a ring's slot sees the fill of its position, not another one's nor another buffer's bytes."""
        region = access.effect.region
        if not isinstance(region, ev.SharedRegion) or region.position is None:
            return
        for write in writes:
            if -id(write) in met:
                continue
            met.add(-id(write))
            wrote = write.effect.region
            if isinstance(wrote, ev.SharedRegion) and (wrote.position, wrote.buffer) != (
                region.position,
                region.buffer,
            ):
                key = (_path(write), _path(access))
                if key not in self.misdirected:
                    self.misdirected.add(key)
                    self.stale.append((write, access))

    def _race(self, earlier: Access, later: Access, found: Problem, clock: Clock) -> None:
        key = (id(earlier.site), id(later.site), found)
        pair = self.pairs.get(key)
        if pair is None:
            if len(self.pairs) >= LIMIT:
                return
            pair = self.pairs[key] = Pair(
                earlier, later, found, happened(earlier, later, clock), self._sister(earlier, later, clock)
            )
        pair.first.add(earlier.column)
        pair.second.add(later.column)

    def _sister(self, earlier: Access, later: Access, clock: Clock) -> bool:
        """Another warp of the earlier access's instance is known to have come past that place; its own is not."""
        if earlier.site is None or earlier.batch != later.batch or happened(earlier, later, clock):
            return False
        mine = earlier.agent
        for column, agent in enumerate(self.agents):
            same = (agent.cta, agent.role, agent.instance) == (mine.cta, mine.role, mine.instance)
            if same and agent.warp != mine.warp:
                number = int(clock.rows[0, column])
                if number and self.progress[column][number - 1] > earlier.site.place:
                    return True
        return False

    # -- telling
    # ----------------------------------------------------------------------------------------------------------

    def finish(self) -> list[Diagnostic]:
        """All findings, one for each code and pair of places."""
        told: dict[tuple[str, str, str], Diagnostic] = {}
        for pair in self.pairs.values():
            for access, racers, rival in (
                (pair.earlier, pair.first, pair.later),
                (pair.later, pair.second, pair.earlier),
            ):
                self.racers.setdefault((id(access.site), id(rival.site)), set()).update(racers)
        named = [(*self._name(pair), pair) for pair in self.pairs.values()]
        late = {_path(pair.later) for code, _, pair in named if code[0] == "D"}
        for code, help, pair in named:
            if code[0] == "F" and _path(pair.later) in late:
                continue  # what is not even ordered in time comes first
            a, b = sorted((_path(pair.earlier), _path(pair.later)))
            if (code, a, b) not in told:
                told[code, a, b] = self._tell(code, help, pair)
        raced = {
            (_path(a), _path(b)) for p in self.pairs.values() for a, b in ((p.earlier, p.later), (p.later, p.earlier))
        }
        for write, read in self.stale:
            if (_path(write), _path(read)) not in raced:
                told["D208", _path(write), _path(read)] = self._stale(write, read)
        readers = {_path(a) for p in self.pairs.values() for a in (p.earlier, p.later) if not a.writes}
        for read in self.unwritten:
            if _path(read) not in readers and ("D209", "", _path(read)) not in told:
                message = f"{of(read.op or read.agent)} reads bytes of {_what(read)} that nothing has written"
                told["D209", "", _path(read)] = finding("D209", message, read.site)
        return list(told.values())

    def _name(self, pair: Pair) -> tuple[str, str]:
        earlier, later, found = pair.earlier, pair.later, pair.problem
        everywhere = later.effect.region.space == "global"
        if found == "fence":
            return ("F310", _FENCE) if everywhere else ("F301", _FENCE)
        if found == "misplaced":
            return "F303", "the thread that accessed the memory fences after the access and before its release"
        if found == "refill":
            return "F302", "fence.async_shared by the reading threads before the release"
        if found == "semantics":
            return "F305", "use release and acquire where data is published"
        if found == "scope":
            return "F304", "use cluster (or gpu) scope on both sides of an edge that carries data"
        if found == "proxies":
            return "M404", "combine one element through one proxy only"
        sees = later.effect.mode != "w"
        if sees and (found == "landing" or (everywhere and earlier.op is not None and pair.ordered_in_time)):
            return "F310", "wait for the full completion of the store, not only for its reads, before the flag"
        if earlier.agent.cluster != later.agent.cluster or (everywhere and _tiles_differ(earlier, later)):
            return "M401", "order the two through one of the patterns between clusters, or keep them apart"
        code, help = self._named_race(pair)
        if code in ("D201", "D202", "D203", "D204") and _aliases(earlier, later):
            return (
                "D210",
                "order the last use of the one buffer before the first of the other, or give each its own bytes",
            )
        return code, help

    def _named_race(self, pair: Pair) -> tuple[str, str]:
        earlier, later = pair.earlier, pair.later
        if self._siblings(pair):
            return "D205", "syncwarp after what the elected lane waited for, or let all lanes wait"
        if pair.problem == "flight" and earlier.queue == "bulk":
            return "D207", "wait for the store's reads in the thread that issued it, then meet at a barrier"
        one_role = (earlier.agent.cta, earlier.agent.role) == (later.agent.cta, later.agent.role)
        if one_role and (earlier.op is None or earlier.op.op == "cp_async"):
            warps = {self.agents[c].warp for c in pair.first | pair.second}
            if len(warps) == 1:
                return "D205", "syncwarp between the elected lane and its siblings"
            return "D204", "sync() between the warps of the role"
        if pair.sisters:
            return "D204", "sync() between the warps of the role, then release"
        if earlier.writes and later.writes:
            return "D203", "order the two writes, or give each its own bytes"
        if earlier.writes or earlier.unwritten:
            return "D201", "wait for what fills these bytes"
        return "D202", "finish the read (wait for its group), then release"

    def _siblings(self, pair: Pair) -> bool:
        """On one side only the rest of the warps raced: their elected lanes did the same and were ordered."""
        for access, rival in ((pair.earlier, pair.later), (pair.later, pair.earlier)):
            if not access.lanes or access.site is None:
                continue
            agents = [self.agents[c] for c in self.racers[id(access.site), id(rival.site)]]
            made = self.sites.get(id(access.site), set())
            elected = {(a.cta, a.warp) for c in made for a in (self.agents[c],) if a.half == "L"}
            if all(a.half == "R" and (a.cta, a.warp) in elected for a in agents):
                return True
        return False

    def _tell(self, code: str, help: str, pair: Pair) -> Diagnostic:
        earlier, later = pair.earlier, pair.later
        name = far if earlier.agent.cluster != later.agent.cluster else of
        message = f"{_does(later, name)} {_VERB[pair.problem]} {_did(earlier, name)}"
        if code == "D201" and earlier.unwritten:
            message = f"{_does(earlier)} {_VERB['unordered']} {_did(later)}"
        labels = tuple(
            Label(span=a.site.span if a.site is not None else None, text=f"{when}: {_does(a, name)}")
            for when, a in (("first here", earlier), ("then", later))
        )
        witness = (
            f"{_does(earlier, name)}{steps(earlier.site)}",
            f"{_does(later, name)}{steps(later.site)}",
            _bytes(earlier, later),
        )
        return finding(code, message, later.site, labels=labels, witness=witness, help=help)

    def _stale(self, write: Access, read: Access) -> Diagnostic:
        wrote, meant = write.effect.region, read.effect.region
        assert isinstance(wrote, ev.SharedRegion) and isinstance(meant, ev.SharedRegion)
        holds = f"fill {wrote.position}" if wrote.buffer == meant.buffer else f"what was written to `{wrote.buffer}`"
        message = (
            f"{of(read.op or read.agent)} reads fill {meant.position} of `{meant.buffer}`, but the slot holds {holds}"
        )
        witness = (f"{_does(write)}{steps(write.site)}", f"{_does(read)}{steps(read.site)}")
        return finding(
            "D208", message, read.site, witness=witness, help="use the handle of the wait that guards the read"
        )


_FENCE = "fence.async by the writing threads, after the write and before their release or barrier"

_VERB: dict[Problem, str] = {
    "unordered": "is not ordered after",
    "semantics": "follows, through a relaxed arrival or wait,",
    "scope": "follows, through a scope that is too narrow,",
    "fence": "goes through the async proxy without a fence after",
    "misplaced": "goes through the async proxy, and the fence is misplaced, after",
    "refill": "goes through the async proxy without a fence after",
    "flight": "may come before the end of",
    "landing": "may come before the writes of",
    "proxies": "combines, through another proxy, what is combined by",
}


def _path(access: Access) -> str:
    return access.site.path if access.site is not None else ""


def _what(access: Access) -> str:
    region = access.effect.region
    if isinstance(region, ev.SharedRegion):
        position = "" if region.position is None else f" (position {region.position})"
        return f"`{region.buffer}`[{region.slot}]{position}"
    assert isinstance(region, ev.GlobalRegion)
    return f"`{region.tensor}`"


def _aliases(earlier: Access, later: Access) -> bool:
    """The same bytes under two names."""
    a, b = earlier.effect.region, later.effect.region
    return isinstance(a, ev.SharedRegion) and isinstance(b, ev.SharedRegion) and a.buffer != b.buffer


def _tiles_differ(earlier: Access, later: Access) -> bool:
    """Instances of a role make them for different tiles, which CTAs of other launches may take."""
    a, b = earlier.site, later.site
    if a is None or b is None or (a.role, a.instance) == (b.role, b.instance):
        return False
    return a.iteration[:1] != b.iteration[:1]


Namer = Callable[[ev.Agent | ev.AsyncOp], str]


def _does(access: Access, name: Namer = of) -> str:
    verb = {"r": "reads", "w": "writes", "rw": "updates"}[access.effect.mode]
    return f"{name(access.op or access.agent)} {verb} {_what(access)}"


def _did(access: Access, name: Namer = of) -> str:
    verb = {"r": "the read of", "w": "the write of", "rw": "the update of"}[access.effect.mode]
    return f"{verb} {_what(access)} by {name(access.op or access.agent)}"


def _bytes(earlier: Access, later: Access) -> str:
    a, b = earlier.effect.region, later.effect.region
    if isinstance(a, ev.SharedRegion) and isinstance(b, ev.SharedRegion):
        both = [(max(p, r), min(q, s)) for p, q in a.spans for r, s in b.spans if max(p, r) < min(q, s)]
        if both:
            return f"both touch bytes {both[0][0]} .. {both[0][1] - 1} of the CTA's shared memory"
    return "both touch the same elements"
