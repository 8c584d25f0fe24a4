"""Small ring programs over tiles and slabs, right ones and ones that fail first at some count (docs/verification.md 1.1)."""

from __future__ import annotations

from dataclasses import dataclass

from cake.ir import expanded as x
from cake.ir.expr import Expr, Sym, integer
from tests.litmus import build as b
from tests.litmus.build import FENCE, R32, SYNCWARP, Smem, box, cur, elements

LINE = 128
SRC = box("src", (0, 1), (0, 32))


@dataclass(frozen=True)
class Loops:
    """A producer and a consumer over ``tiles x slabs`` fills of a ring. ``lag``: stages that the consumer keeps while it
    waits for the next; ``tail``: it gives them back at the end of a tile; ``skips``: a condition on the slab under which it
    gives nothing back; ``restart``: cursors are set back in each tile."""

    slots: int = 3
    lag: int = 0
    tail: bool = True
    skips: Expr | None = None
    restart: bool = False
    tiled: bool = True

    def kernel(self) -> x.Kernel:
        """The program."""
        slabs = Sym(name="slabs")
        fill = (
            b.wait("empty", cur("f"), ahead=-1, one=True),
            b.expect("full", cur("f"), LINE),
            b.tma_load(box("x", (0, 1), (0, 32), slot=cur("f")), SRC, "full", cur("f"), LINE),
            b.step("f"),
        )
        load = b.role(
            "load",
            self._tiles("a", *self._restart("f"), b.loop("i", slabs, *fill)),
            solo=True,
            cursors={"f": self.slots},
        )
        use = b.role(
            "use",
            self._tiles("t", *self._restart("c"), b.loop("k", slabs, *self._slab()), *self._rest()),
            cursors={"c": self.slots},
            tiles={"r": R32},
        )
        return b.kernel(
            "loops",
            (load, use),
            smem={"x": Smem((1, 32), slots=self.slots)},
            mbarriers={"full": (1, self.slots), "empty": (1, self.slots)},
            tensors={"src": ((1, 32), "f32", "in")},
            boxes={"src": ((1, 32), 0)},
            rings=(x.Ring(name="ring", slots=self.slots, kind="mbarrier", fields=("x",), full="full", empty="empty"),),
            scalars=("slabs", "tiles"),
        )

    def _tiles(self, var: str, *body: x.Stmt) -> x.For:
        walk = b.loop(var, Sym(name="tiles"), *body)
        return walk.model_copy(update={"role": "tiles", "step": Sym(name="%grid")}) if self.tiled else walk

    def _restart(self, cursor: str) -> tuple[x.Stmt, ...]:
        return (b.restart(cursor),) if self.restart else ()

    def _release(self, back: int) -> tuple[x.Stmt, ...]:
        return (FENCE, SYNCWARP, b.arrive("empty", cur("c", back), executor="warp"))

    def _slab(self) -> tuple[x.Stmt, ...]:
        release: tuple[x.Stmt, ...] = self._release(self.lag)
        if self.lag:
            release = (b.when(b.test(">=", Sym(name="k"), self.lag), *release),)
        if self.skips is not None:
            release = (x.If(cond=self.skips, then=(), orelse=release),)
        return (b.wait("full", cur("c")), b.read(elements("x", cur("c")), 32), *release, b.step("c"))

    def _rest(self) -> tuple[x.Stmt, ...]:
        if not (self.lag and self.tail):
            return ()
        held = [b.when(b.test(">=", Sym(name="slabs"), back), *self._release(back)) for back in range(self.lag, 0, -1)]
        return tuple(held)


def at(value: int) -> Expr:
    """``k == value``."""
    return b.test("==", Sym(name="k"), value)


def residue(modulus: int, rest: int) -> Expr:
    """``k % modulus == rest``."""
    return b.test("==", b.i32("%", Sym(name="k"), integer(modulus)), rest)


def beyond(value: int) -> Expr:
    """``k * k > value``: a guard outside the forms of F-b."""
    k = Sym(name="k")
    return b.test(">", b.i32("*", k, k), value)
