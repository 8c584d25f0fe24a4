"""Mutators of named barriers, turns, warps and clusters (15-19, 27, 30, 31)."""

from __future__ import annotations

from collections.abc import Iterator

from cake.ir import expanded as x
from cake.ir.expr import Apply, Sym, integer
from tests.mutation.site import Site, mutator, sites, test, update

Found = Iterator[tuple[str, x.Kernel | None]]


def _turns(k: x.Kernel) -> Iterator[Site]:
    return (s for s in sites(k, x.Named) if s.node.form == "arrive")


@mutator(15, "a turn not passed")
def not_passed(k: x.Kernel) -> Found:
    for s in _turns(k):
        for loop in s.loops:
            last = Apply(op="+", args=(Sym(name=loop.var), integer(1)), dtype="i32")
            yield f"{s.name} at the last", s.when(test("<", last, loop.hi))
            yield f"{s.name} at the first", s.when(test(">", Sym(name=loop.var), loop.lo))
        var = k.roles[s.role].var if s.role is not None else None
        if var is not None:
            yield f"{s.name} to itself", s.update(index=Sym(name=var))


@mutator(16, "drop or move a turn")
def turn(k: x.Kernel) -> Found:
    turns = {s.node.barrier for s in _turns(k)}
    for s in sites(k, x.Named):
        if s.node.barrier not in turns:
            continue
        yield f"{s.name} dropped", s.drop()
        for by in (-3, -2, -1, 1, 2, 3):
            yield f"{s.name} moved {by:+}", s.move(by)


@mutator(17, "named barrier ids and counts")
def ids(k: x.Kernel) -> Found:
    for n in k.named:
        for other in k.named:
            if other.id != n.id:
                yield f"{n.name} on the id of {other.name}", _named(k, n, id=other.id)
        for by in (-32, 32):
            if n.threads + by >= 32:
                yield f"{n.name} {by:+}", _named(k, n, threads=n.threads + by)
        if n.per_instance:
            yield f"{n.name} one for all", _named(k, n, per_instance=False, size=1)
    for s in sites(k, x.Named):
        if s.node.index is not None:
            yield f"{s.name} index 0", s.update(index=integer(0))
        for n in k.named:
            if n.name != s.node.barrier:
                yield f"{s.name} on {n.name}", s.update(barrier=n.name, index=None)


def _named(k: x.Kernel, n: x.NamedBarrier, **fields: object) -> x.Kernel:
    return update(k, named=tuple(update(b, **fields) if b is n else b for b in k.named))


@mutator(18, "sync for arrive, arrive for sync")
def forms(k: x.Kernel) -> Found:
    for s in sites(k, x.Named, entry=True):
        yield s.name, s.update(form="arrive" if s.node.form == "sync" else "sync")


@mutator(19, "drop a barrier of a role")
def meeting(k: x.Kernel) -> Found:
    for s in sites(k, x.Named, entry=True):
        if s.node.form == "sync":
            yield f"{s.name} dropped", s.drop()
            yield f"{s.name} a syncwarp", s.put(x.SyncWarp())
            for by in (-3, -2, -1, 1, 2, 3):
                yield f"{s.name} moved {by:+}", s.move(by)


@mutator(27, "elected block widened or narrowed, rejoin dropped")
def elected(k: x.Kernel) -> Found:
    for s in sites(k, x.SyncWarp):
        yield f"{s.name} dropped", s.drop()
        for by in (-2, -1, 1, 2):
            yield f"{s.name} moved {by:+}", s.move(by)
    for s in sites(k, x.Wait, x.Fence, x.Named, x.GroupWait, x.Commit):
        if s.role is None or k.roles[s.role].solo or (isinstance(s.node, x.Fence) and s.node.what == "wgmma"):
            continue
        for executor in ("one", "warp", "lanes"):
            if executor != s.node.executor:
                yield f"{s.name} by {executor}", s.update(executor=executor)


@mutator(30, "multicast and peers")
def multicast(k: x.Kernel) -> Found:
    if k.cluster == 1:
        return
    for s in sites(k, x.Op):
        mask = int(s.node.attrs.get("multicast", 0) or 0)
        if mask:
            for other in range(0, 1 << k.cluster):
                if other != mask:
                    yield f"{s.name} mask {other}", s.update(attrs={**s.node.attrs, "multicast": other})
    for s in sites(k, x.Arrive):
        ranks = [None, *((r,) for r in range(k.cluster)), tuple(range(k.cluster))]
        for peers in ranks:
            if peers != s.node.peers:
                yield f"{s.name} to {peers}", s.update(peers=peers)


@mutator(31, "drop or weaken a cluster barrier")
def cluster(k: x.Kernel) -> Found:
    for s in sites(k, x.Cluster, entry=True):
        yield f"{s.name} dropped", s.drop()
        yield f"{s.name} relaxed", s.update(sem="relaxed")
        yield f"{s.name} arrives only", s.update(form="arrive")
        for by in (-3, -2, -1, 1):
            yield f"{s.name} moved {by:+}", s.move(by)
    for s in sites(k, x.Init, entry=True):
        yield f"{s.name} dropped", s.drop()
        yield f"{s.name} doubled", s.put(s.node, s.node)
        yield f"{s.name} late", s.move(2)
