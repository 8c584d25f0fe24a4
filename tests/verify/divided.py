"""Rings whose tiles are divided among instances, each of which skips the stages of the others' tiles."""

from __future__ import annotations

from dataclasses import dataclass

from cake.ir import expanded as x
from cake.ir.expr import Expr, Sym, integer
from tests.litmus import build as b
from tests.litmus.build import FENCE, R32, SYNCWARP, Smem, box, cur, elements

LINE = 128
TILES, SLABS, CTAS = Sym(name="tiles"), Sym(name="slabs"), Sym(name="%grid")
ME = Sym(name="use.w")


@dataclass(frozen=True)
class Divided:
    """A producer fills ``slabs`` stages for each tile; ``teams`` instances take the tiles in turn. ``turn``: one after the other;
    ``skip``: what each skips after its tile, and ``first``: before its first one (None: as it must be). ``lag``: stages that are
    given back late."""

    slots: int = 3
    teams: int = 2
    turn: bool = True
    skip: Expr | None = None
    first: Expr | None = None
    lag: int = 0

    def kernel(self) -> x.Kernel:
        """The program."""
        fill = (
            b.wait("empty", cur("f"), ahead=-1, one=True),
            b.expect("full", cur("f"), LINE),
            b.tma_load(box("x", (0, 1), (0, 32), slot=cur("f")), box("src", (0, 1), (0, 32)), "full", cur("f"), LINE),
            b.step("f"),
        )
        walk = b.loop("a", TILES, b.loop("i", SLABS, *fill))
        load = b.role("load", _tiles(walk, 1, None), solo=True, cursors={"f": self.slots})
        first = b.i32("*", ME, SLABS) if self.first is None else self.first
        begin: tuple[x.Stmt, ...] = (x.Cursor(cursor="c", by=0, count=first),)
        if self.turn:
            begin = (b.when(b.test("==", ME, self.teams - 1), b.come("turn", integer(0))), *begin)
        use = b.role(
            "use",
            *begin,
            _tiles(b.loop("t", TILES, *self._tile()), self.teams, ME),
            instances=self.teams,
            cursors={"c": self.slots, "s": self.slots},
            tiles={"r": R32},
        )
        return b.kernel(
            "divided",
            (load, use),
            smem={"x": Smem((1, 32), slots=self.slots)},
            mbarriers={"full": (1, self.slots), "empty": (1, self.slots)},
            named=(x.NamedBarrier(name="turn", id=1, size=self.teams, threads=64),),
            tensors={"src": ((1, 32), "f32", "in")},
            boxes={"src": ((1, 32), 0)},
            rings=(x.Ring(name="ring", slots=self.slots, kind="mbarrier", fields=("x",), full="full", empty="empty"),),
            scalars=("slabs", "tiles"),
        )

    def _release(self, back: int) -> tuple[x.Stmt, ...]:
        return (FENCE, SYNCWARP, b.arrive("empty", cur("c", back), executor="warp"))

    def _tile(self) -> tuple[x.Stmt, ...]:
        handle = x.Cursor(cursor="s", form="copy", source="c")
        release = self._release(self.lag + 1)
        if self.lag:
            release = (b.when(b.test(">=", Sym(name="k"), self.lag), *release),)
        slab = (b.wait("full", cur("c")), handle, b.step("c"), b.read(elements("x", cur("s")), 32), *release)
        rest = [b.when(b.test(">=", SLABS, back), *self._release(back)) for back in range(self.lag, 0, -1)]
        others = b.i32("*", SLABS, self.teams - 1) if self.skip is None else self.skip
        following = b.i32("%", b.i32("+", ME, 1), self.teams)
        enter, leave = ((b.sync("turn", ME),), (b.come("turn", following),)) if self.turn else ((), ())
        return (*enter, b.loop("k", SLABS, *slab), *leave, *rest, x.Cursor(cursor="c", by=0, count=others))


def _tiles(loop: x.For, teams: int, own: Sym | None) -> x.For:
    """A walk over the CTA's tiles, or over every ``teams``-th of them."""
    first: Expr = Sym(name="%cta")
    step: Expr = CTAS
    if own is not None:
        first, step = b.i32("+", first, b.i32("*", own, CTAS)), b.i32("*", CTAS, teams)
    return loop.model_copy(update={"role": "tiles", "lo": first, "step": step})
