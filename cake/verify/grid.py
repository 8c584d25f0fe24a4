"""CTAs that wait for each other through words in global memory: who is there to signal (M403), and what the words hold
before and after (M407).

An order of values (M402, ``cake.machine.order.flags``) lets one run of the machine speak for all schedules of the CTAs that
ran. Whether a launch of another size ends asks for more, since CTAs take tiles in the order of the list. Give every wait
and every signal a *place*: the walk over tiles that it belongs to, and the tile's position in the list. No launch is stuck if

- the CTAs of the grid are resident together, or become so (`tiles persistent`, `tiles dynamic`; otherwise a grid that is
  known to be small): of CTAs that are not resident nothing is assumed (axioms A7, A9);
- each wait passes on a signal from no later place;
- what comes before a signal in its own CTA and in those that it waited for are waits of no later place.

Take the stuck wait of the least place. What it waits for comes from no later place, and so do all waits before that. Those
of earlier places are not stuck; those of its own place belong to one tile, in the order that the run has shown to be free of
cycles. So the signal comes. The last two conditions are looked for in each launch; positions, not CTAs, are compared, so the
answer does not depend on which CTA took which tile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cake.diagnostics import CakeError, Diagnostic, Label
from cake.ir import expanded as x
from cake.ir.expr import Const
from cake.machine import events as ev
from cake.machine.order.clocks import C
from cake.machine.order.flags import Flags, Waited, Word, word_of
from cake.machine.order.report import far, steps
from cake.machine.program import statements
from cake.machine.run import run

RESIDENT = 16
"""A grid of so many CTAs is resident together on every device of the targets: each CTA fits an SM, and the smallest MIG
instance of a Hopper or Blackwell device has 16."""

CLUSTERS = (2, 6, 1, 3)
"""How many clusters share the tiles of a launch, in turn: which CTA takes which tile must not matter."""

Place = tuple[int, int]
"""Where in the walks over tiles: 2 n + 1 in walk n (from 0) with the tile's position, 2 n before it or after walk n - 1."""


def waits(kernel: x.Kernel) -> list[x.Op]:
    """The statements that wait for a word."""
    return [n for role in kernel.roles for n in statements(role.body) if isinstance(n, x.Op) and n.op == "wait_until"]


@dataclass
class Places:
    """Finds the place of a site."""

    kernel: x.Kernel
    walks: dict[str, list[tuple[str, str]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for role in self.kernel.roles:
            self.walks[role.name] = list(_walks(role.body, role.name))

    def of(self, site: ev.Site | None) -> Place:
        """The place of a dynamic step."""
        if site is None:
            return 0, 0
        before = 0
        for path, var in self.walks.get(site.role, ()):
            if site.path.startswith(path + "."):
                return 2 * before + 1, dict(site.iteration)[var]
            before += _numbers(path) < _numbers(site.path)
        return 2 * before, 0

    def text(self, site: ev.Site | None) -> str:
        """A place in words."""
        kind, position = self.of(site)
        return f"tile {position}" if kind % 2 else "no tile"


def _walks(body: tuple[x.Stmt, ...], path: str) -> Iterator[tuple[str, str]]:
    for i, node in enumerate(body):
        here = f"{path}.{i}"
        if isinstance(node, x.For):
            if node.role == "tiles":
                yield here, node.var
            else:
                yield from _walks(node.body, here)
        elif isinstance(node, x.If):
            yield from _walks(node.then, here + ".then")
            yield from _walks(node.orelse, here + ".else")


def _numbers(path: str) -> list[int]:
    return [int(part) for part in path.split(".") if part.isdigit()]


def clusters(kernel: x.Kernel, number: int) -> int:
    """How many clusters run together in launch ``number``: all of a small grid, or several that share the tiles."""
    return RESIDENT if kernel.schedule == "once" else CLUSTERS[number % len(CLUSTERS)]


# ---- M403: somebody is there to signal ------------------------------------------------------------------------------


def resident(kernel: x.Kernel) -> bool:
    """All CTAs of a launch are resident together, or will be."""
    grid = kernel.grid
    few = isinstance(grid, Const) and int(grid.value) * kernel.cluster <= RESIDENT
    return kernel.schedule != "once" or few


def progress(kernel: x.Kernel, flags: Flags) -> list[Diagnostic]:
    """M403 for what one launch has shown."""
    places = Places(kernel)
    found: dict[str, Diagnostic] = {}
    together = resident(kernel)
    for passed in flags.passed:
        if passed.epoch.event is not None:
            said = _judge(places, passed.wait.event, passed.epoch.event, together)
            if said is not None:
                found.setdefault(f"{said.span}", said)
    for word, chain in flags.words.items():
        for epoch in chain:
            if epoch.clock is None or epoch.event is None:
                continue
            own = places.of(epoch.event.site)
            for other in flags.passed:
                wait = other.wait
                known = wait.batch == epoch.batch and epoch.clock.knows(wait.column, wait.number, C)
                if known and places.of(wait.event.site) > own:
                    said = _held_back(places, flags.name(word), epoch.event, wait)
                    found.setdefault(f"{said.span}", said)
    return list(found.values())


def _judge(places: Places, wait: ev.Access, event: ev.Access | ev.Issue, together: bool) -> Diagnostic | None:
    """What is wrong with a wait that passes on a signal, if anything."""
    if not together:
        return None if wait.agent.cluster == event.agent.cluster else _absent(wait, event)
    return _later(places, wait, event) if places.of(event.site) > places.of(wait.site) else None


def _absent(wait: ev.Access, event: ev.Access | ev.Issue) -> Diagnostic:
    return _finding(
        f"{far(wait.agent)} waits for another CTA, which need not be resident: a CTA that waits keeps its place, and CTAs start "
        "in any order",
        wait.site,
        event.site,
        (
            f"waits: {far(wait.agent)}{steps(wait.site)}",
            f"signals: {far(event.agent)}{steps(event.site)}",
            "where there are more CTAs than fit the device, those that fit may all be waiting ones",
        ),
        "walk the tiles with `tiles persistent`, whose CTAs are resident together",
    )


def _later(places: Places, wait: ev.Access, event: ev.Access | ev.Issue) -> Diagnostic:
    return _finding(
        f"{far(wait.agent)} at {places.text(wait.site)} waits for a signal that comes with {places.text(event.site)}, later in "
        "the list, which nobody may have taken",
        wait.site,
        event.site,
        (
            f"waits: {far(wait.agent)}{steps(wait.site)}",
            f"signals: {far(event.agent)}{steps(event.site)}",
            "CTAs take tiles in the order of the list: those with the earlier tile may all wait, and none go on",
        ),
        "let a tile wait for tiles before it only: turn the order of the values round, or of the axes of the tiles",
    )


def _held_back(places: Places, word: str, event: ev.Access | ev.Issue, wait: Waited) -> Diagnostic:
    return _finding(
        f"the signal of {word} at {places.text(event.site)} comes after a wait for {places.text(wait.event.site)}, later in the "
        "list, so the two can keep each other waiting",
        event.site,
        wait.event.site,
        (
            f"signals: {far(event.agent)}{steps(event.site)}",
            f"only after: {far(wait.event.agent)} waits{steps(wait.event.site)}",
        ),
        "signal a tile before anything waits on behalf of a later one",
    )


def _finding(
    message: str, site: ev.Site | None, other: ev.Site | None, witness: tuple[str, ...], help: str
) -> Diagnostic:
    span = None if site is None else site.span
    labels = () if other is None else (Label(span=other.span, text="the other side"),)
    return Diagnostic(
        code="M403", severity="error", message=message, span=span, labels=labels, witness=witness, help=help
    )


# ---- a launch that is stuck -----------------------------------------------------------------------------------------


class Census:
    """An observer of a run whose waits all pass: who waits for which value of a word, and who signals it."""

    def __init__(self) -> None:
        self.waits: list[tuple[Word, ev.Access]] = []
        self.signals: dict[Word, list[ev.Access]] = {}

    def start(self, setup: ev.Setup) -> None:
        """A batch starts."""

    def event(self, event: ev.Event) -> None:
        """Keep waits and signals."""
        if isinstance(event, ev.Access) and event.word is not None and event.site is not None:
            word = word_of(event.effect.region)
            if isinstance(event.site.node, x.Op) and event.site.node.op == "signal":
                self.signals.setdefault(word, []).append(event)
            else:
                self.waits.append((word, event))

    def end(self) -> None:
        """A batch has ended."""


def stuck(
    kernel: x.Kernel, arguments: dict[str, Any], *, ctas: int, max_steps: int, first: int = 0
) -> list[Diagnostic]:
    """Why a launch that does not end cannot (P108, M403): the launch again, with waits that pass at once, shows what each of
    them needs. ``first``: the value that words begin with. Empty if the waits are not to blame."""
    if not waits(kernel):
        return []
    census = Census()
    try:
        run(kernel, arguments, ctas=ctas, observer=census, values=False, max_steps=max_steps, open_flags=True)
    except CakeError:
        return []
    places = Places(kernel)
    for word, wait in census.waits:
        if wait.word == first:
            continue
        signals = census.signals.get(word, [])
        givers = [s for s in signals if s.word == wait.word]
        if all(s.agent is wait.agent and s.id > wait.id for s in givers):
            return [_nobody(word, wait, signals)]
        giver = min(givers, key=lambda s: places.of(s.site))
        said = _judge(places, wait, giver, resident(kernel))
        if said is not None:
            return [said]
    return []


def _nobody(word: Word, wait: ev.Access, signals: list[ev.Access]) -> Diagnostic:
    values = sorted({s.word for s in signals if s.word is not None})
    given = f"values signalled: {', '.join(map(str, values))}" if values else "nothing signals that word"
    who = "only this thread signals, and afterwards" if wait.word in values else "nothing signals"
    return Diagnostic(
        code="P108",
        severity="error",
        message=f"{far(wait.agent)} waits for {wait.word} in element {word[1]} of `{word[0]}`, which {who}",
        span=None if wait.site is None else wait.site.span,
        witness=(f"waits: {far(wait.agent)}{steps(wait.site)}", given),
        help="signal the value that is waited for, once what it stands for is done",
    )


# ---- M407: what a word begins and ends with -------------------------------------------------------------------------


def unstated(kernel: x.Kernel) -> list[Diagnostic]:
    """M407 for tensors with words that are waited for and of which nothing says what they begin with."""
    zero = {a.tensor for a in kernel.assumes if a.form == "zero"}
    found: dict[str, Diagnostic] = {}
    for node in waits(kernel):
        name = node.ref("flag").base
        if name not in zero and name not in found:
            found[name] = Diagnostic(
                code="M407",
                severity="error",
                message=f"nothing says what the words of `{name}` hold when the kernel starts, and a wait may pass on it",
                span=node.span,
                help=f"`assume zero({name})`, and leave it zero at the end",
            )
    return list(found.values())


def left_over(kernel: x.Kernel, outputs: dict[str, Any], flags: Flags) -> list[Diagnostic]:
    """M407 for words that a launch leaves with another value than the next one expects."""
    zero = {a.tensor for a in kernel.assumes if a.form == "zero"}
    found = []
    for name in sorted({n.ref("flag").base for n in waits(kernel)} & zero):
        odd = np.argwhere(np.asarray(outputs[name]) != 0)
        if not len(odd):
            continue
        index = tuple(int(i) for i in odd[0])
        chain = flags.words.get((name, int(np.ravel_multi_index(index, np.asarray(outputs[name]).shape))), [])
        last = chain[-1].event if chain else None
        where = f"`{name}[{', '.join(map(str, index))}]`"
        found.append(
            Diagnostic(
                code="M407",
                severity="error",
                message=f"{where} ends as {int(outputs[name][index])}, but the next launch expects zero: its waits would pass "
                "at once",
                span=last.site.span if last is not None and last.site is not None else None,
                witness=(f"last: {far(last.agent)}{steps(last.site)}",) if last is not None else (),
                help="let the last one to use a word signal 0",
            )
        )
    return found
