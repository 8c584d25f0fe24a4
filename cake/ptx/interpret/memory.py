"""Ordinary accesses of threads: ld, st, red, atom, ldmatrix, stmatrix, of shared and global memory (PTX ISA 9.7.9, 9.7.13.6).

Values are kept only where they are known integers: inputs with contents, flags, counters, numbers handed over in
shared memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cake.ptx.interpret.alu import LANES, Value, signed, uniform, width
from cake.ptx.interpret.barriers import WIDE
from cake.ptx.interpret.cta import Cta, Word
from cake.ptx.interpret.handlers import Handler
from cake.ptx.interpret.lanes import SEVERAL, Apart, Lanes, matrix, spread
from cake.ptx.interpret.launch import MAP, RANK, SHARED, TENSOR
from cake.ptx.interpret.machine import Machine
from cake.ptx.interpret.outcome import Broken, Finding, Undecided
from cake.ptx.interpret.program import STRONG, At, Step, kept
from cake.ptx.interpret.regions import Region, elements
from cake.ptx.interpret.shadow import Access, Memory
from cake.ptx.interpret.synchronise import met, scope
from cake.ptx.interpret.warps import Fiber, Strand, Watched, lanes


def space_of(s: Step) -> str:
    """Shared, global or param."""
    for p in s.parts:
        if p.startswith("shared"):
            return "shared"
        if p in ("global", "param"):
            return p
    raise Undecided(f"an access to no stated space, {'.'.join(s.parts)}")


def _size(s: Step) -> tuple[int, int]:
    """Bytes of an element, and elements of a lane."""
    count = next((int(p[1:]) for p in s.parts if p in ("v2", "v4", "v8")), 1)
    return max(width(s.parts[-1]) // 8, 1), count


def access_of(m: Machine, s: Step, strand: Strand, *, write: bool, atomic: bool = False) -> Access:
    """The record of a strand's access in its present epoch."""
    key = (s.at, write)
    found = strand.accesses.get(key)
    if found is None:
        line, place = m.place(s)
        text = f"the {'write' if write else 'read'} by {strand} ({s.parts[0]})"
        name = (strand.key, strand.epoch)
        found = Access(strand.component, strand.epoch, text, name, write, atomic=atomic, line=line, place=place)
        strand.accesses[key] = found
    return found


def touch(
    m: Machine, fiber: Fiber, s: Step, where: dict[int, int], size: int, *, write: bool, atomic: bool = False
) -> None:
    """Lanes access ``size`` bytes each, at the addresses of ``where``."""
    if not where:
        return
    shared = space_of(s) == "shared"
    for strand in fiber.strands():
        here = [n for n in where if strand.mask >> n & 1]
        mine = [where[n] for n in here]
        if not mine:
            continue
        access = access_of(m, s, strand, write=write, atomic=atomic)
        if shared and max(mine) < 1 << RANK:
            crossed(m, fiber, strand, access, *spread(mine, here, size, m.ctas[fiber.warp.cta].memory.piece))
        knows = m.know([strand])
        for memory, offsets in _places(m, fiber, strand, mine, size, shared):
            region = elements(tuple(offsets), size, memory.piece)
            _apply(m, s, strand, memory, region, access, knows)


def crossed(m: Machine, fiber: Fiber, strand: Strand, access: Access, region: Region, held: Lanes) -> None:
    """Lanes of a strand touch shared memory of their CTA: report those that meet each other there unordered. A cp.async
    is only compared: what it writes is there once it has been waited for."""
    memory = m.ctas[fiber.warp.cta].memory
    if strand.mask.bit_count() == 1 or int(region.max()) >= len(memory.writer) or int(region.min()) < 0:
        return  # nobody to meet; or reported as an access outside
    apart = strand.apart
    if apart is None:
        apart = strand.apart = Apart(len(memory.writer))
    if access.copy:
        bad = apart.overwrites(region, held)
    elif access.write:
        bad = apart.write(region, held, strand.epoch, atomic=access.atomic)
    else:
        bad = apart.read(region, held, strand.epoch)
    if bad:
        m.report("lanes", f"{access.text} crosses what other lanes of the warp do, and they have not met since")


def _apply(
    m: Machine, s: Step, strand: Strand, memory: Memory, region: Region, access: Access, knows: list[Any]
) -> None:
    if access.write:
        memory.write(region, access, knows, m.report)
        return
    found = memory.read(region, access, knows, m.report)
    if not access.atomic:
        m.note(strand, s, found)
    if "nc" in s.parts and found:
        m.report(
            "readonly", f"{access.text} goes through the read-only path, but {memory.what} is written in the launch"
        )


def _places(
    m: Machine, fiber: Fiber, strand: Strand, addresses: list[int], size: int, shared: bool
) -> list[tuple[Memory, list[int]]]:
    """Memories and offsets there."""
    out: dict[int, tuple[Memory, list[int]]] = {}
    low, high = min(addresses), max(addresses)
    if shared and high < 1 << RANK:  # the CTA's own
        cta = m.ctas[fiber.warp.cta]
        _inside(cta, low, high - low + size)
        return [(cta.memory, addresses)]
    if not shared and low >> TENSOR == high >> TENSOR:
        number, first = m.tensor_of(low, high - low + size)
        if m.launch.tensors[number].constant:
            return []
        return [(m.tensors[number], [a - low + first for a in addresses])]
    for a in addresses:
        if not shared:
            number, at = m.tensor_of(a, size)
            if not m.launch.tensors[number].constant:
                out.setdefault(-1 - number, (m.tensors[number], []))[1].append(at)
            continue
        cta, at = m.cta_of(fiber, a)
        if cta.done:
            raise Broken(Finding("peer", f"shared memory of CTA {cta.number} is accessed after it has ended"))
        _inside(cta, at, size)
        if cta.number not in out and cta.number != fiber.warp.cta:
            cta.touches.append((strand.component, strand.epoch, f"an access of warp {fiber.warp.number}"))
        out.setdefault(cta.number, (cta.memory, []))[1].append(at)
    return list(out.values())


def _inside(cta: Cta, at: int, size: int) -> None:
    if not SHARED <= at <= cta.memory.size - size:
        raise Broken(Finding("address", f"an access at byte {at - SHARED} of shared memory, outside of it"))


# ---- values -------------------------------------------------------------------------------------------------------------


def _fetch(m: Machine, fiber: Fiber, address: int, size: int, shared: bool) -> int | None:
    """A known integer, or None."""
    if shared:
        cta, at = m.cta_of(fiber, address)
        return cta.words.get(at) if size == 4 else None
    number, at = m.tensor_of(address, size)
    if m.launch.tensors[number].data is None:
        return None
    if address in m.globals:
        return m.globals[address] if size == 4 else None
    data = m.launch.tensors[number].data
    return int.from_bytes(data[at : at + size], "little") if data is not None else None


def _keep(m: Machine, fiber: Fiber, address: int, size: int, value: Value, shared: bool) -> None:
    known = value if type(value) is int and size == 4 else None
    if shared:
        cta, at = m.cta_of(fiber, address)
        for word in range(at & ~3, at + size, 4):
            cta.words.pop(word, None)
        if known is not None:
            cta.words[at] = known
        return
    number, _ = m.tensor_of(address, size)
    if m.launch.tensors[number].data is None:
        return
    for word in range(address & ~3, address + size, 4):
        m.globals[word] = None
    m.globals[address] = known


def _lane(v: Value, n: int) -> Value:
    return v[n] if type(v) is tuple else v


# ---- ld, st -------------------------------------------------------------------------------------------------------------


def _load(m: Machine, fiber: Fiber, s: Step, mask: int) -> Watched | None:
    at = s.args[1]
    assert isinstance(at, At)
    targets = s.args[0] if isinstance(s.args[0], tuple) else (s.args[0],)
    size, count = _size(s)
    if space_of(s) == "param":
        number = m.address(fiber, at, mask) - MAP
        value = m.launch.value(number) if number >= 0 else None
        bits = width(s.parts[-1])
        for t in targets:
            if isinstance(t, int):
                fiber.registers[t] = value & (1 << bits) - 1 if type(value) is int else None
        return None
    shared = space_of(s) == "shared"
    where = m.addresses(fiber, at, mask)
    strong = [p for p in s.parts[1:3] if p in STRONG]
    if strong and not shared:
        return _flag(m, fiber, s, mask, where)
    touch(m, fiber, s, where, size * count, write=False, atomic=bool(strong))
    for i, t in enumerate(targets):
        if isinstance(t, int) and t in m.live:
            values = {n: _fetch(m, fiber, a + i * size, size, shared) for n, a in where.items()}
            old = fiber.registers[t]
            fiber.registers[t] = uniform(tuple(values.get(n, _lane(old, n)) for n in range(LANES)))
            if mask == fiber.mask:
                fiber.registers[t] = m.value(fiber, t, mask)
    return None


def _flag(m: Machine, fiber: Fiber, s: Step, mask: int, where: dict[int, int]) -> Watched | None:
    """A strong load of a word that threads synchronise by. The same again that finds the same value blocks."""
    (address,) = set(where.values()) if len(set(where.values())) == 1 else (None,)
    target = s.args[0]
    if address is None or not isinstance(target, int):
        raise Undecided("a strong load of several words")
    word = m.words.setdefault(address, Word())
    here = (s.at, id(word), word.version)
    if fiber.polled == here:
        return word
    fiber.polled = here
    touch(m, fiber, s, where, 4, write=False, atomic=True)
    fiber.registers[target] = _fetch(m, fiber, address, 4, False)
    if word.message is not None:
        sent, cta, knowledge = word.message
        for strand in fiber.strands(mask):
            same = cta == fiber.warp.cta
            mine = scope(s)
            together = same or (sent in WIDE and mine in WIDE and _reaches(m, sent, mine, cta, fiber.warp.cta))
            if not together:
                continue
            if "acquire" in s.parts:
                strand.knowledge.join(knowledge)
            else:
                strand.pending.append((mine, knowledge))
    return None


def _reaches(m: Machine, sent: str, mine: str, a: int, b: int) -> bool:
    """Whether both scopes include CTAs ``a`` and ``b`` (8.5)."""
    one_cluster = a // m.launch.cluster == b // m.launch.cluster
    return all(x in ("gpu", "sys") or one_cluster for x in (sent, mine))


def _store(m: Machine, fiber: Fiber, s: Step, mask: int) -> None:
    at = s.args[0]
    assert isinstance(at, At)
    sources = s.args[1] if isinstance(s.args[1], tuple) else (s.args[1],)
    size, count = _size(s)
    shared = space_of(s) == "shared"
    where = m.addresses(fiber, at, mask)
    strong = [p for p in s.parts[1:3] if p in STRONG]
    touch(m, fiber, s, where, size * count, write=True, atomic=bool(strong))
    for n, a in where.items() if kept(s) in m.program.valued else ():
        for i, source in enumerate(sources):
            value = _lane(fiber.registers[source], n) if isinstance(source, int) else None
            _keep(m, fiber, a + i * size, size, value, shared)
    if strong and not shared:
        for a in set(where.values()):
            _publish(m, fiber, s, mask, a)


def _publish(m: Machine, fiber: Fiber, s: Step, mask: int, address: int) -> None:
    """A strong store: what its readers may learn."""
    word = m.words.setdefault(address, Word())
    for strand in fiber.strands(mask):
        if "release" in s.parts:
            word.message = (scope(s), fiber.warp.cta, strand.settle().copy())
        elif strand.fenced is not None:
            word.message = (strand.fenced[0], fiber.warp.cta, strand.fenced[1])
        else:
            word.message = None
    word.changed()


# ---- red, atom ----------------------------------------------------------------------------------------------------------


def _reduce(m: Machine, fiber: Fiber, s: Step, mask: int) -> None:
    size, count = _size(s)
    where = m.addresses(fiber, s.args[0], mask)
    touch(m, fiber, s, where, size * count, write=True, atomic=True)
    for a in (first + size * i for first in where.values() for i in range(count)):
        _keep(m, fiber, a, size, None, space_of(s) == "shared")
        if a in m.words:
            m.words[a].changed()


def _atomic(m: Machine, fiber: Fiber, s: Step, mask: int) -> None:
    """atom.global: the order among CTAs is a race by design, so what depends on it may differ between schedules."""
    target, at, *operands = s.args
    size, _ = _size(s)
    shared = space_of(s) == "shared"
    where = m.addresses(fiber, at, mask)
    touch(m, fiber, s, where, size, write=True, atomic=True)
    m.atomics = True
    out: list[Value] = [None] * LANES
    for n, a in where.items():
        old = _fetch(m, fiber, a, size, shared)
        given = [_lane(fiber.registers[o], n) for o in operands if isinstance(o, int)]
        out[n] = old
        _keep(m, fiber, a, size, _combined(s, old, given), shared)
        m.words.setdefault(a, Word()).changed()
    if isinstance(target, int):
        fiber.registers[target] = uniform(tuple(out))
        fiber.registers[target] = m.value(fiber, target, mask)
    for a in set(where.values()):
        if "relaxed" not in s.parts:
            _publish(m, fiber, s, mask, a)


def _combined(s: Step, old: int | None, given: list[Value]) -> int | None:
    """The new value (9.7.13.6)."""
    if old is None or any(type(g) is not int for g in given):
        return None
    kind = s.parts[-1]
    bits = width(kind)
    mask = (1 << bits) - 1
    (g, *more) = given
    for op in s.parts:
        if op == "add":
            return old + g & mask
        if op == "inc":
            return 0 if old >= g else old + 1
        if op == "dec":
            return g if old == 0 or old > g else old - 1
        if op == "exch":
            return int(g)
        if op == "cas":
            return int(more[0]) if old == g else old
        if op in ("min", "max"):
            key = (lambda v: signed(v, bits)) if kind.startswith("s") else (lambda v: v)
            return (min if op == "min" else max)(old, g, key=key)
        if op in ("and", "or", "xor"):
            return {"and": old & g, "or": old | g, "xor": old ^ g}[op]
    return None


# ---- ldmatrix, stmatrix (9.7.14.5.15, 16) -----------------------------------------------------------------------------------


def _matrix(m: Machine, fiber: Fiber, s: Step, mask: int) -> None:
    """Rows of 16 bytes, whose addresses the first 8, 16 or 32 lanes give. Row r is of lanes 4 (r % 8) to + 3; the first
    of these stands for the four."""
    count = 8 * int(next(p for p in s.parts if p in ("x1", "x2", "x4"))[1:])
    met(fiber)
    load = s.parts[0] == "ldmatrix"
    rows = list(m.addresses(fiber, s.args[1 if load else 0], (1 << count) - 1).values())
    cta = m.ctas[fiber.warp.cta]
    for strand in fiber.strands():
        mine = tuple(a for r, a in enumerate(rows) if strand.mask >> 4 * (r % 8) & 1)
        if mine:
            _inside(cta, max(mine), 16)
            access = access_of(m, s, strand, write=not load)
            _crossed_rows(m, fiber, s, strand, access, rows)
            _apply(m, s, strand, cta.memory, elements(mine, 16, cta.memory.piece), access, m.know([strand]))
    if not load and cta.words:
        for a in rows:
            for word in range(a, a + 16, 4):
                cta.words.pop(word, None)


def _crossed_rows(m: Machine, fiber: Fiber, s: Step, strand: Strand, access: Access, rows: list[int]) -> None:
    """The same of the rows of matrices."""
    region, held = matrix(rows, m.ctas[fiber.warp.cta].memory.piece, transposed="trans" in s.parts)
    own = np.isin(held, (*lanes(strand.mask), SEVERAL))
    if own.any():
        crossed(m, fiber, strand, access, region[own], held[own])


HANDLERS: dict[str, Handler] = {
    "ld": Handler(_load, sync=False, results=(0,)),
    "ld.acquire": Handler(_load, results=(0,)),
    "ld.relaxed": Handler(_load, results=(0,)),
    "st": Handler(_store, sync=False, values=(1,)),
    "st.release": Handler(_store, values=(1,)),
    "st.relaxed": Handler(_store, values=(1,)),
    "red": Handler(_reduce, sync=False, ignored=(1,)),
    "atom": Handler(_atomic, results=(0,), values=(2, 3)),
    "ldmatrix": Handler(_matrix, sync=False, collective=True, ignored=(0,)),
    "stmatrix": Handler(_matrix, sync=False, collective=True, ignored=(1,)),
}
