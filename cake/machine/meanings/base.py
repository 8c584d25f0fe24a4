"""What the meaning of an operation consists of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from cake.ir import expanded as x
from cake.ir.expr import Expr, Reg, walk
from cake.ir.layout import TileType
from cake.ir.ops import OPS, OpRow
from cake.machine import events as ev
from cake.machine import owners
from cake.machine.elementwise import Array
from cake.machine.registers import TileFunction, compile_tile, part

if TYPE_CHECKING:
    from cake.machine.agents import Runner
    from cake.machine.executor import Executor
    from cake.machine.instance import Instance
    from cake.machine.tape import Step


@dataclass(frozen=True)
class Needed:
    """Register tiles whose values matter in a run without values (masks and indices), and the tensors and buffers that they,
    or scalars, are read from."""

    tiles: frozenset[str]
    memories: frozenset[str]


@dataclass
class Unit:
    """Where an operation is compiled: the kernel, the role (None: the entry) and its warps. ``tracked``: register
    tiles that observers are told about."""

    kernel: x.Kernel
    role: x.Role | None
    warps: int
    tiles: dict[str, TileType] = field(default_factory=dict)
    tracked: frozenset[str] = frozenset()
    needed: Needed | None = None
    """What matters in a run without values; None: a run with values."""
    exchanged: frozenset[str] = frozenset()
    """Shared buffers in which lanes of the role may cross (``cake.machine.reach``)."""
    untold: frozenset[str] = frozenset()
    """Tensors whose loads no observer asks for: inputs, which no access can conflict with."""


class Meaning:
    """One operation of the program, compiled. An operation acts at the first arrival of an agent (``first``), and for
    each warp when the whole warp has come (``warp``)."""

    asynchronous = False
    writes = False
    private = False
    """It touches nothing that others change or see: registers of its instance, and inputs of the launch."""

    def __init__(self, op: x.Op, unit: Unit) -> None:
        self.op = op
        self.unit = unit
        self.row: OpRow = OPS[op.op]
        self.computed = unit.needed is None or any(
            value.name in unit.needed.tiles if isinstance(value, Reg) else value.base in unit.needed.memories
            for name, value in op.operands.items()
            if name in ("dst", "index", "d") and isinstance(value, Reg | x.Ref)
        )
        self.register_reads = self._registers(op)
        self.held: dict[tuple[int, bool], Array | None] = {}

    # -- to be defined ------------------------------------------------------------------------------------------------

    def prepare(self, inst: Instance) -> Any:
        """The operands that are known when the step is produced."""
        return None

    def ready(self, m: Executor, runner: Runner, step: Step) -> bool:
        """Whether the operation can proceed (only ``wait_until`` ever blocks)."""
        return True

    def first(self, inst: Instance, step: Step) -> None:
        """The first agent arrives: read memory and compute."""

    def place(self, inst: Instance, step: Step) -> None:
        """What ``first`` does where values do not matter: find out which memory is meant."""

    def issue(self, m: Executor, inst: Instance, step: Step, members: list[Runner]) -> None:
        """Start an asynchronous operation."""
        raise NotImplementedError

    def warp(self, inst: Instance, step: Step, warp: int | None) -> None:
        """Warp ``warp`` of the instance has arrived (None: everyone who executes it)."""

    def effects(self, inst: Instance, step: Step, warp: int) -> tuple[ev.Effect, ...]:
        """What an agent of ``warp`` accesses in memory, for observers."""
        return ()

    def accumulates(self, step: Step) -> bool:
        """Whether the step adds to what its accumulators hold."""
        return True

    def word(self, step: Step) -> int | None:
        """The value of the flag that the operation stores or has seen."""
        return None

    # -- helpers ------------------------------------------------------------------------------------------------------

    def tile(self, name: str, domain: TileType | None) -> TileFunction | None:
        """Operand ``name`` as a function of the instance; None where it was left out."""
        value = self.op.operands.get(name)
        if value is None:
            return None
        assert not isinstance(value, x.Ref)
        return compile_tile(value, domain, self.unit.warps)

    def reg_type(self, reg: Reg) -> TileType:
        """The type of the part of a tile that ``reg`` names."""
        whole = self.unit.tiles[reg.name]
        shape = list(whole.shape[len(reg.lead) :])
        for axis, bounds in ((-2, reg.rows), (-1, reg.cols)):
            if bounds is not None:
                shape[axis] = bounds[1] - bounds[0]
        return TileType(dtype=whole.dtype, shape=tuple(shape), layout=whole.layout)

    def holders(self, domain: TileType | None, warp: int | None, first_only: bool) -> Array | None:
        """Which elements of the domain ``warp`` holds, None for all."""
        if domain is None or warp is None or self.op.executor != "lanes":
            return None
        key = warp, first_only
        if key not in self.held:
            mask = owners.holders(domain, self.unit.warps, warp, first_only)
            self.held[key] = mask if mask is None else np.broadcast_to(mask, domain.shape)
        return self.held[key]

    def register_effects(self, inst: Instance, warp: int) -> tuple[ev.Effect, ...]:
        """Accesses to the tracked register tiles."""
        return tuple(
            ev.Effect(operand, mode, register_region(inst, reg, warp), "register")
            for operand, mode, reg in self.register_reads
        )

    def _registers(self, op: x.Op) -> list[tuple[str, ev.Mode, Reg]]:
        """The tracked register tiles that the operands name. Asynchronous operations report theirs with their issue."""
        if self.asynchronous:
            return []
        modes: dict[str, ev.Mode] = {e.operand: e.mode for e in self.row.effects if e.proxy == "register"}
        found: list[tuple[str, ev.Mode, Reg]] = []
        for name, value in op.operands.items():
            mode = "r" if isinstance(value, x.Ref) else modes.get(name, "r")
            for expr in _subscripts(value) if isinstance(value, x.Ref) else [value]:
                found += [(name, mode, n) for n in walk(expr) if isinstance(n, Reg) and n.name in self.unit.tracked]
        return found


def _subscripts(ref: x.Ref) -> list[Expr]:
    return [sub.index for sub in ref.subs if isinstance(sub, x.Elem)]


def register_region(inst: Instance, reg: Reg, warp: int) -> ev.RegisterRegion:
    """The registers of ``warp`` that ``reg`` names."""
    return ev.RegisterRegion(
        inst.cta.index, inst.role_name, inst.index, inst.first_warp + warp, reg.name, reg.lead, reg.rows, reg.cols
    )


def set_tile(inst: Instance, reg: Reg, value: Array) -> None:
    """Assign (and broadcast) to a tile or a part of it. Whole tiles get a new array, so that values captured before
    stay."""
    old = inst.tiles[reg.name]
    if reg.lead or reg.rows is not None or reg.cols is not None:
        new = old.copy()
        part(new, reg)[...] = value
    else:
        new = np.empty_like(old)
        new[...] = value
    inst.tiles[reg.name] = new
