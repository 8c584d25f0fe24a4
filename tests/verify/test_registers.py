"""Registers that nothing has set (D209): the machine, both engines and the closure, on kernels that no typing rule has seen."""

from __future__ import annotations

from functools import partial

import pytest

from cake.compiler import expand_file
from cake.ir import expanded as x
from cake.ir.expr import Apply, Const, Expr, Reg, Sym, boolean, integer
from cake.machine.order import check
from cake.verify import verify
from cake.verify.oracle import attack
from cake.verify.search import search
from tests.litmus import build as b
from tests.litmus.test_litmus import arguments
from tests.machine.edit import edit
from tests.verify.loops import Loops
from tests.verify.test_verdicts import EXAMPLES

ACC, R = Reg(name="acc", dtype="f32"), Reg(name="r", dtype="f32")
ADD = x.Op(op="assign", operands={"dst": ACC, "value": Apply(op="+", args=(ACC, R), dtype="f32")}, type=b.R32)
ZERO = x.Op(op="assign", operands={"dst": ACC, "value": Const(value=0.0, dtype="f32")}, type=b.R32)
ODD = b.test("==", Apply(op="%", args=(Sym(name="t"), integer(2)), dtype="i32"), 1)


def sums(tile: tuple[x.Stmt, ...] = (), slab: tuple[x.Stmt, ...] = (), end: tuple[x.Stmt, ...] = ()) -> x.Kernel:
    """A ring whose consumer adds up what it reads; more at the head of each tile, before each addition and after the last."""

    def change(node: x.Stmt) -> x.Stmt | list[x.Stmt]:
        if isinstance(node, x.For) and node.role == "tiles":
            return node.model_copy(update={"body": (*tile, *node.body, *end)})
        return [node, *slab, ADD] if isinstance(node, x.Op) and node.op == "load" else node

    k = edit(Loops(2).kernel(), change, "use")
    roles = tuple(r.model_copy(update={"tiles": {**r.tiles, "acc": b.R32}}) if r.name == "use" else r for r in k.roles)
    return k.model_copy(update={"roles": roles})


READ = x.Op(op="assign", operands={"dst": R, "value": R}, type=b.R32)
RIGHT: dict[str, tuple[x.Kernel, bool]] = {
    "at the head of a tile": (sums((ZERO,)), True),
    "at the first slab": (sums(slab=(b.when(b.test("==", Sym(name="k"), 0), ZERO),)), True),
    "at every other tile, and the first": (sums((x.If(cond=ODD, then=(), orelse=(ZERO,)),)), False),
    "by slabs, of which there is one in each launch": (sums((ZERO,), end=(READ,)), False),
}


@pytest.mark.parametrize("name", RIGHT)
def test_right(name: str) -> None:
    """Accepted; a condition that the closure takes for free leaves the registers, and nothing else, to the launches."""
    k, closed = RIGHT[name]
    launch = {**arguments(k), "tiles": 3, "slabs": 3}
    assert check(k, launch, ctas=1) == [] and not search(k, launch).broken and not attack(k, launch, 2).broken
    said = verify(k)
    assert said.proved, said.diagnostics
    assert ("is set before it is read" in said.notes[0]) != closed, said.notes


WRONG: dict[str, x.Kernel] = {
    "nowhere": sums(),
    "after the first addition": sums(slab=(b.when(b.test("==", Sym(name="k"), 1), ZERO),)),
    "at odd tiles": sums((b.when(ODD, ZERO),)),
    "half of it": sums(
        (ZERO.model_copy(update={"operands": {**ZERO.operands, "dst": ACC.model_copy(update={"cols": (0, 16)})}}),)
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong(name: str) -> None:
    k = WRONG[name]
    launch = {**arguments(k), "tiles": 3, "slabs": 3}
    found = check(k, launch, ctas=1)
    assert [d.code for d in found] == ["D209"] and "`acc`" in found[0].message and found[0].help, found
    assert search(k, launch).kind == attack(k, launch, 2).kind == "register"
    said = verify(k)
    assert (said.status, said.codes) == ("unsafe", ("D209",)) and said.diagnostics[0].contract


def accumulates(when: Expr | None, node: x.Stmt) -> x.Stmt:
    """The products add where they did, and at other tiles (None: at all)."""
    if not (isinstance(node, x.Op) and node.op == "wgmma"):
        return node
    before = node.operands["use_acc"]
    assert not isinstance(before, x.Ref)
    new = boolean(True) if when is None else Apply(op="or", args=(before, when), dtype="bool")
    return node.model_copy(update={"operands": {**node.operands, "use_acc": new}})


def test_first_products() -> None:
    """The first wgmma of a tile overwrites the accumulators (PTX ISA 9.7.15.5: scale-d). Found on an H200: where it does not in
    odd tiles, a CTA whose first tile is odd adds to what nothing has set."""
    k = expand_file(EXAMPLES / "gemm.cake")
    odd = b.test("==", Apply(op="%", args=(Sym(name="t.pos"), integer(2)), dtype="i32"), 1)
    assert verify(k, effort="quick").status == "safe"
    for when in (None, odd):
        said = verify(edit(k, partial(accumulates, when)), effort="quick")
        assert (said.status, said.codes) == ("unsafe", ("D209",)), said.diagnostics
        assert "use_acc" in (said.diagnostics[0].help or "")
