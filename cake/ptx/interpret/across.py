"""Values from other lanes of the warp, and addresses in other CTAs (PTX ISA 9.7.9.6, 9.7.9.22, 9.7.13.10 to 14)."""

from __future__ import annotations

from functools import reduce

from cake.ptx.interpret.alu import LANES, Value, uniform
from cake.ptx.interpret.handlers import Handler
from cake.ptx.interpret.launch import RANK
from cake.ptx.interpret.machine import Machine
from cake.ptx.interpret.program import Step
from cake.ptx.interpret.synchronise import met
from cake.ptx.interpret.warps import ALL, Fiber, lanes


def _elect(m: Machine, fiber: Fiber, s: Step, mask: int) -> None:
    member = s.args[1]
    assert isinstance(member, int) and isinstance(s.args[0], tuple)
    chosen = lanes(m.one(fiber, member, mask, "a member mask") & ALL)[0]
    lane, predicate = s.args[0]
    if lane is not None:
        fiber.registers[lane] = chosen
    if predicate is not None:
        fiber.registers[predicate] = tuple(n == chosen for n in range(LANES))
    met(fiber)


def _shuffle(m: Machine, fiber: Fiber, s: Step, mask: int) -> None:
    """shfl.sync (9.7.9.6)."""
    regs = fiber.registers
    targets = s.args[0] if isinstance(s.args[0], tuple) else (s.args[0], None)
    source, by, clamp = (regs[a] for a in s.args[1:4] if isinstance(a, int))
    mode = s.parts[2]
    met(fiber)
    out: list[Value] = []
    valid: list[Value] = []
    for n in range(LANES):
        b, c = (v[n] if type(v) is tuple else v for v in (by, clamp))
        if b is None or c is None:
            out.append(None)
            valid.append(None)
            continue
        b, segment = b & 31, c >> 8 & 31
        low, high = n & segment, (n & segment) | (c & 31 & ~segment)
        j = {"up": n - b, "down": n + b, "bfly": n ^ b, "idx": low | (b & ~segment)}[mode]
        ok = j >= high if mode == "up" else j <= high
        j = j if ok else n
        out.append(source[j] if type(source) is tuple else source)
        valid.append(ok)
    if isinstance(targets[0], int):
        regs[targets[0]] = uniform(tuple(out))
    if targets[1] is not None:
        regs[targets[1]] = uniform(tuple(valid))


def _vote(m: Machine, fiber: Fiber, s: Step, mask: int) -> None:
    """vote.sync (9.7.13.10)."""
    target, source = s.args[0], s.args[1]
    assert isinstance(target, int) and isinstance(source, int)
    v = fiber.registers[source]
    values = [v[n] if type(v) is tuple else v for n in lanes(fiber.mask)]
    met(fiber)
    if any(x is None for x in values):
        fiber.registers[target] = None
    elif "ballot" in s.parts:
        fiber.registers[target] = sum(1 << n for n, x in zip(lanes(fiber.mask), values, strict=True) if x)
    else:
        fiber.registers[target] = (
            any(values) if "any" in s.parts else all(values) if "all" in s.parts else len(set(values)) == 1
        )


def _redux(m: Machine, fiber: Fiber, s: Step, mask: int) -> None:
    """redux.sync (9.7.13.14)."""
    target, source = s.args[0], s.args[1]
    assert isinstance(target, int) and isinstance(source, int)
    v = fiber.registers[source]
    values = [v[n] if type(v) is tuple else v for n in lanes(fiber.mask)]
    met(fiber)
    if any(type(x) is not int for x in values) or s.parts[2] not in ("or", "and", "xor", "add"):
        fiber.registers[target] = None
        return
    combine = {"or": int.__or__, "and": int.__and__, "xor": int.__xor__, "add": int.__add__}[s.parts[2]]
    fiber.registers[target] = reduce(combine, values) & 0xFFFFFFFF


def _mapa(m: Machine, fiber: Fiber, s: Step, mask: int) -> None:
    """mapa.shared::cluster (9.7.9.22)."""
    target, source, rank = s.args
    assert isinstance(target, int) and isinstance(source, int) and isinstance(rank, int)
    address, to = fiber.registers[source], fiber.registers[rank]
    if type(address) is int and type(to) is int:
        fiber.registers[target] = address & (1 << RANK) - 1 | to + 1 << RANK
    else:
        a = [address[n] if type(address) is tuple else address for n in range(LANES)]
        r = [to[n] if type(to) is tuple else to for n in range(LANES)]
        both = zip(a, r, strict=True)
        fiber.registers[target] = tuple(
            None if x is None or y is None else x & (1 << RANK) - 1 | y + 1 << RANK for x, y in both
        )


HANDLERS: dict[str, Handler] = {
    "elect.sync": Handler(_elect, sync=False, collective=True, results=(0,)),
    "shfl.sync": Handler(_shuffle, sync=False, collective=True, results=(0,), values=(1, 2, 3)),
    "vote.sync": Handler(_vote, sync=False, collective=True, results=(0,), values=(1,)),
    "redux.sync": Handler(_redux, sync=False, collective=True, results=(0,), values=(1,)),
    "mapa": Handler(_mapa, sync=False, results=(0,), values=(1, 2)),
}
