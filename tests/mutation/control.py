"""Mutators of loops and conditions (13, 14, 32, 33, 36), and of resources (34)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from cake.ir import expanded as x
from cake.ir.expr import Apply, Expr, Sym, integer, rewrite
from tests.mutation.site import mutator, sites, test, update

Found = Iterator[tuple[str, x.Kernel | None]]


def _plus(e: Expr, by: int) -> Expr:
    return Apply(op="+", args=(e, integer(by)), dtype="i32")


@mutator(13, "trip count of one role")
def trips(k: x.Kernel) -> Found:
    for s in sites(k, x.For):
        for by in (-1, 1):
            yield f"{s.name} hi {by:+}", s.update(hi=_plus(s.node.hi, by))
        yield f"{s.name} lo +1", s.update(lo=_plus(s.node.lo, 1))


@mutator(14, "floor for ceil, min for max")
def rounding(k: x.Kernel) -> Found:
    other = {"cdiv": "//", "//": "cdiv", "min": "max", "max": "min"}
    for s in sites(k, x.For, x.Let):
        fields = ("hi", "lo") if isinstance(s.node, x.For) else ("value",)
        for name in fields:
            e = getattr(s.node, name)
            for op, instead in other.items():
                new = rewrite(e, partial(_swapped, op=op, instead=instead))
                if new != e:
                    yield f"{s.name} {name} {instead} for {op}", s.update(**{name: new})


def _swapped(n: Expr, op: str, instead: str) -> Expr | None:
    return Apply(op=instead, args=n.args, dtype=n.dtype) if isinstance(n, Apply) and n.op == op else None


@mutator(32, "predicate on the CTA's rank, or on an instance")
def ranks(k: x.Kernel) -> Found:
    for s in sites(k, x.Arrive, x.Wait, x.Op, x.Named, x.Commit, x.GroupWait):
        if s.role is None or (isinstance(s.node, x.Op) and s.node.completion is None):
            continue
        if k.cluster > 1:
            for rank in range(k.cluster):
                yield f"{s.name} in rank {rank}", s.when(test("==", Sym(name="%rank"), rank))
        role = k.roles[s.role]
        if role.var is not None:
            yield f"{s.name} not in instance 0", s.when(test(">", Sym(name=role.var), 0))


@mutator(33, "early exit")
def early(k: x.Kernel) -> Found:
    """A role, or one of its instances, leaves out the last round of a loop."""
    for s in sites(k, x.For):
        if s.role is None:
            continue
        role = k.roles[s.role]
        v = Sym(name=s.node.var)
        goes_on = test("<", _plus(v, 1), s.node.hi)
        stays = (
            [goes_on]
            if role.var is None
            else [goes_on, Apply(op="or", args=(goes_on, test("==", Sym(name=role.var), 0)), dtype="bool")]
        )
        for number, cond in enumerate(stays):
            kept = tuple(n for n in s.node.body if isinstance(n, x.Let))
            rest = tuple(n for n in s.node.body if not isinstance(n, x.Let))
            yield (
                f"{s.name} {'all' if not number else 'one instance'}",
                s.update(body=(*kept, x.If(cond=cond, then=rest))),
            )
        for at in range(1, len(s.node.body)):
            if any(isinstance(n, x.Let) for n in s.node.body[at:]):
                continue
            tail = x.If(cond=goes_on, then=s.node.body[at:])
            yield f"{s.name} from {at}", s.update(body=(*s.node.body[:at], tail))


@mutator(36, "predicate on the copy and not on its wait")
def predicates(k: x.Kernel) -> Found:
    for s in sites(k, x.Op, x.Arrive, x.Wait):
        if isinstance(s.node, x.Op) and s.node.completion is None:
            continue
        for loop in s.loops[-1:]:
            v = Sym(name=loop.var)
            yield f"{s.name} not at the last", s.when(test("<", _plus(v, 1), loop.hi))
            yield f"{s.name} not at the second", s.when(test("!=", v, _plus(loop.lo, 1)))
            yield f"{s.name} at even ones", s.when(test("==", Apply(op="%", args=(v, integer(2)), dtype="i32"), 0))


@mutator(34, "register budget")
def registers(k: x.Kernel) -> Found:
    for s in sites(k, x.SetMaxNReg):
        yield f"{s.name} dropped", s.drop()
        for by in (-8, 8, 16):
            yield f"{s.name} {by:+}", s.update(count=s.node.count + by)
        yield f"{s.name} later", s.move(1)
    if k.launch_registers is not None:
        for by in (-8, 8):
            yield f"launch {by:+}", update(k, launch_registers=k.launch_registers + by)
