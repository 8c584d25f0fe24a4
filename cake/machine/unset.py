"""Registers that nothing has set: what an operation takes out of register tiles and puts into them, in the order of the program.

Registers belong to threads, and all threads of an instance execute its operations in one order. So whether a tile has been set
where it is read does not depend on the schedule: it is asked when the instance's tape produces the step, of each element that is
named, and an observer is told of reads that nothing came before (``Unset``). A product that does not accumulate (``use_acc``
false: scale-d of wgmma, PTX ISA 9.7.15.5) reads no accumulators.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cake.ir import expanded as x
from cake.ir.expr import Reg, walk
from cake.ir.ops import OPS
from cake.machine.elementwise import Array
from cake.machine.registers import part

if TYPE_CHECKING:
    from cake.machine.instance import Instance

Unset = dict[str, Array | None]
"""Tiles of an instance of which something is unset: None where all is, else what is set."""


class Uses:
    """The register tiles that an operation reads and sets. ``accumulators``: read only where it accumulates."""

    def __init__(self, op: x.Op) -> None:
        modes = {e.operand: e.mode for e in OPS[op.op].effects if e.proxy == "register"}
        self.reads: list[Reg] = []
        self.sets: list[Reg] = []
        self.accumulators: list[Reg] = []
        for name, value in op.operands.items():
            if isinstance(value, x.Ref):
                for sub in value.subs:
                    if isinstance(sub, x.Elem):
                        self.reads += [n for n in walk(sub.index) if isinstance(n, Reg)]
                continue
            mode = modes.get(name, "r")
            if mode == "w" and isinstance(value, Reg):
                self.sets.append(value)
                continue
            if mode == "rw" and isinstance(value, Reg):
                self.sets.append(value)
            found = self.accumulators if name == "d" and "use_acc" in op.operands else self.reads
            found += [n for n in walk(value) if isinstance(n, Reg)]

    def step(self, inst: Instance, accumulates: bool) -> str | None:
        """The operation is the next one of the instance: the first tile that it reads and that is not set, if there is one."""
        unset = inst.unset
        bad = next((r.name for r in self.reads if r.name in unset and not _is_set(unset[r.name], r)), None)
        if bad is None and accumulates:
            bad = next((r.name for r in self.accumulators if r.name in unset and not _is_set(unset[r.name], r)), None)
        for reg in self.sets:
            if reg.name in unset:
                _set(inst, reg)
        return bad


def _is_set(known: Array | None, reg: Reg) -> bool:
    return known is not None and bool(part(known, reg).all())


def _set(inst: Instance, reg: Reg) -> None:
    unset, name = inst.unset, reg.name
    if reg.lead or reg.rows is not None or reg.cols is not None:
        known = unset[name]
        if known is None:
            known = unset[name] = np.zeros(inst.tiles[name].shape, dtype=bool)
        part(known, reg)[...] = True
        if not known.all():
            return
    del unset[name]
