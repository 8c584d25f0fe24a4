"""The states of register tiles, shared buffers and tensors as a launch goes on, and what each operation does to them.

States are kept in program order, which is the order of a launch that has been found free of races: an asynchronous copy or
product changes them when it is issued.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from cake.ir import expanded as x
from cake.ir.dtypes import DTYPES
from cake.ir.expr import Const, Expr, Reg
from cake.ir.layout import TileType
from cake.machine import events as ev
from cake.machine.elementwise import Array
from cake.machine.memory import clip_box
from cake.machine.references import BlockReference, Box, Elements, Tile
from cake.machine.registers import part
from cake.verify.padding import states as st
from cake.verify.padding.pairs import PairFunction, compile_pair

if TYPE_CHECKING:
    from cake.machine.instance import Instance
    from cake.machine.meanings.base import Meaning
    from cake.machine.tape import Step


@dataclass
class Taken:
    """Padding that took part: where, in which way, and the element with its value."""

    site: ev.Site
    how: str
    function: str = ""
    value: float = 0.0
    element: tuple[int, ...] = ()
    sources: frozenset[str] = frozenset()


@dataclass
class States:
    """All states of one launch. ``taken``: findings, one for each place in the program; ``born``: differences of two
    infinities, by place."""

    kernel: x.Kernel
    registers: dict[tuple[int, str], Array] = field(default_factory=dict)
    shared: dict[tuple[int, str, int, int], Array] = field(default_factory=dict)
    tensors: dict[str, Array] = field(default_factory=dict)
    sources: dict[str, frozenset[str]] = field(default_factory=dict)
    taken: dict[str, Taken] = field(default_factory=dict)
    born: dict[str, ev.Site] = field(default_factory=dict)
    site: ev.Site | None = None

    def __post_init__(self) -> None:
        self.names = frozenset(t.name for t in self.kernel.tensors)

    # -- registers ----------------------------------------------------------------------------------------------------

    def tile(self, inst: Instance, name: str) -> Array:
        """The states of a whole register tile."""
        key = id(inst), name
        found = self.registers.get(key)
        if found is None:
            found = self.registers[key] = np.zeros(inst.tiles[name].shape, dtype=np.uint8)
        return found

    def of(self, inst: Instance, reg: Reg) -> Array:
        """The states of a tile, or of the part that is named."""
        return part(self.tile(inst, reg.name), reg)

    def set(self, inst: Instance, reg: Reg, state: Array) -> None:
        """A tile, or a part of one, gets other states."""
        whole = self.tile(inst, reg.name).copy()
        part(whole, reg)[...] = state
        self.registers[id(inst), reg.name] = whole

    def pair(self, meaning: Meaning, operand: Expr | None, domain: TileType | None) -> PairFunction | None:
        """An operand as a function that gives values and states."""
        if operand is None:
            return None
        return compile_pair(operand, domain, meaning.unit.warps, self.of, self._birth)

    def _birth(self, expr: Expr) -> None:
        if self.site is not None:
            self.born.setdefault(self.site.path, self.site)

    # -- memory -------------------------------------------------------------------------------------------------------

    def tensor(self, inst: Instance, name: str) -> Array:
        """The states of a tensor's elements: data, wild unless the author says that they are finite."""
        found = self.tensors.get(name)
        if found is None:
            declared = self.kernel.tensor(name)
            assert declared is not None
            state = st.DATA
            said = [a for a in self.kernel.assumes if a.tensor == name]
            if DTYPES[declared.dtype].kind == "float" and not any(a.form in ("finite", "zero") for a in said):
                state = state | st.WILD
            if any(a.form == "within" and isinstance(a.args[0], Const) and a.args[0].value >= 0 for a in said):
                state = state | st.POSITIVE
            found = self.tensors[name] = np.full(inst.machine.memory[name].shape, state, dtype=np.uint8)
        return found

    def buffer(self, inst: Instance, tile: Tile, cta: int | None = None) -> Array:
        """The states of a tile of a buffer."""
        key = tile.cta.index if cta is None else cta, tile.name, tile.instance, tile.slot
        found = self.shared.get(key)
        if found is None:
            shape = inst.machine.layouts[tile.name].buffer.shape
            found = self.shared[key] = np.zeros(shape, dtype=np.uint8)
        return found

    def at(self, inst: Instance, base: str, where: Elements | Box) -> Array:
        """The states of a tensor or of the tile that is meant."""
        return self.tensor(inst, base) if where.tile is None else self.buffer(inst, where.tile)

    def box(self, inst: Instance, reference: BlockReference, box: Box) -> Array:
        """The states of a block, in the shape of the kept axes; padding outside a tensor."""
        held = self.at(inst, reference.ref.base, box)
        state = np.full(box.sizes, st.PAD | st.POSITIVE, dtype=np.uint8)
        inside = clip_box(held.shape, box.starts, box.sizes)
        if inside is not None:
            state[inside[1]] = held[inside[0]]
        state = state.reshape(reference.shape)
        return state.swapaxes(-1, -2) if reference.ref.transposed else state

    def put(self, inst: Instance, reference: BlockReference, box: Box, state: Array, cta: int | None = None) -> None:
        """A block gets other states, as far as it lies inside."""
        held = self.tensor(inst, reference.ref.base) if box.tile is None else self.buffer(inst, box.tile, cta)
        if reference.ref.transposed:
            state = state.swapaxes(-1, -2)
        inside = clip_box(held.shape, box.starts, box.sizes)
        if inside is not None:
            held[inside[0]] = state.reshape(box.sizes)[inside[1]]

    # -- findings -----------------------------------------------------------------------------------------------------

    def report(self, how: str, wrong: Array, value: Array, function: str = "", *names: str) -> None:
        """Padding takes part at the elements of ``wrong``."""
        assert self.site is not None
        if self.site.path in self.taken or not wrong.any():
            return
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        found = float(np.broadcast_to(np.asarray(value, dtype=np.float64), wrong.shape)[at])
        sources = frozenset().union(*(self.sources.get(n, frozenset()) for n in names))
        self.taken[self.site.path] = Taken(self.site, how, function, found, at, sources)

    def came(self, name: str, *parts: Any) -> None:
        """What ``name`` holds comes from tensors: named ones, or those that other names hold."""
        for one in parts:
            more = frozenset({one}) if one in self.names else self.sources.get(one, frozenset())
            self.sources[name] = self.sources.get(name, frozenset()) | more


class Tracked:
    """A meaning whose operation changes states, too. Everything else is the meaning's own."""

    def __init__(self, meaning: Meaning, states: States, track: Callable[[Instance, Step], bool | None]) -> None:
        """``track``: true if it has done the meaning's work, too."""
        self.meaning = meaning
        self.states = states
        self.track = track
        self.computed, self.asynchronous, self.writes = meaning.computed, meaning.asynchronous, meaning.writes

    def __getattr__(self, name: str) -> Any:
        return getattr(self.meaning, name)

    def first(self, inst: Instance, step: Step) -> None:
        """The first agent arrives."""
        self.states.site = step.site
        if not self.track(inst, step):
            self.meaning.first(inst, step)

    def issue(self, m: Any, inst: Instance, step: Step, members: Any) -> None:
        """An asynchronous operation starts."""
        self.states.site = step.site
        self.track(inst, step)
        self.meaning.issue(m, inst, step, members)
