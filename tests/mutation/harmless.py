"""Changes that are meant to do no harm (44), and those together with another fault (45)."""

from __future__ import annotations

import random
from collections.abc import Iterator

from cake.ir import expanded as x
from cake.ir.expr import Apply, integer
from tests.mutation.site import MUTATORS, mutator, sites, update

Found = Iterator[tuple[str, x.Kernel | None]]


@mutator(44, "harmless on purpose")
def harmless(k: x.Kernel) -> Found:
    fence = x.Fence(what="async_shared")
    for s in sites(k):
        if s.role is None:
            continue
        solo = k.roles[s.role].solo
        if isinstance(s.node, x.Wait | x.Arrive | x.Named | x.Op | x.SyncWarp | x.GroupWait):
            yield f"fence before {s.name}", s.put(fence, s.node)
            if not solo:
                yield f"syncwarp before {s.name}", s.put(x.SyncWarp(), s.node)
        if isinstance(s.node, x.Wait):
            yield f"{s.name} twice", s.put(s.node, s.node)
            yield f"{s.name} earlier", s.move(-1)
        if isinstance(s.node, x.Arrive) and s.node.form == "arrive":
            for by in (1, 2):
                yield f"{s.name} later by {by}", s.move(by)
        if isinstance(s.node, x.Arrive) and s.node.form == "arrive_expect":
            arrive, expect = update(s.node, form="arrive", bytes=0), update(s.node, form="expect")
            yield f"{s.name} in two", s.put(expect, arrive)
        if isinstance(s.node, x.GroupWait) and s.node.keep:
            yield f"{s.name} keeps less", s.update(keep=s.node.keep - 1)
        if isinstance(s.node, x.GroupWait) and s.node.read:
            yield f"{s.name} full", s.update(read=False)
        if isinstance(s.node, x.Named) and s.node.form == "sync":
            yield f"{s.name} twice", s.put(s.node, s.node)
        if isinstance(s.node, x.Op) and s.node.completion is not None:
            for by in (-1, 1):
                yield f"{s.name} moved {by:+}", s.move(by)
        if isinstance(s.node, x.For) and s.node.step == integer(1):
            lo = Apply(op="+", args=(s.node.lo, integer(1)), dtype="i32")
            one = Apply(op="min", args=(lo, s.node.hi), dtype="i32")
            yield f"{s.name} split", s.put(s.node.model_copy(update={"hi": one}), s.node.model_copy(update={"lo": one}))


@mutator(45, "a harmless change and a fault")
def second_order(k: x.Kernel) -> Found:
    """A random sample: all pairs would be too many."""
    rnd = random.Random(len(k.name) * 1009 + len(k.roles))
    first = [(w, m) for w, m in harmless(k) if m is not None]
    numbers = [n for n in MUTATORS if n < 44]
    for _ in range(min(60, 3 * len(first))):
        what, mutant = rnd.choice(first)
        assert mutant is not None
        options = list(rnd.choice(MUTATORS[rnd.choice(numbers)])(mutant))
        if options:
            more, both = rnd.choice(options)
            yield f"{what}; {more}", both
