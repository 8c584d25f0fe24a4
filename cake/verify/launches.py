"""Small launches of a kernel: dims, scalars and the contents of inputs that control depends on.

Control depends on launch values through the constants it divides and compares by (*granules*). So values just below, at
and just above small multiples of these decide all that can be decided differently: no tile, one, several, a ragged last
one, fewer slabs than stages and more. Data that control reads (lengths, offsets, page tables) is made to fit what the kernel
assumes about it, with empty sequences among the others. Where one dim or scalar is divided by another, there are launches with
a quotient of 1 and of more, and with a remainder if the guards admit one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cake.ir import expanded as x
from cake.ir.dtypes import DTYPES, numpy_dtype
from cake.ir.evaluate import evaluate
from cake.ir.expr import Apply, Const, Expr, Sym, symbols, walk
from cake.machine.elementwise import Array
from cake.machine.program import statements as walk_statements
from cake.verify.control import LOAD, leaves, linear, sites

MAX_ELEMENTS = 1 << 22
"""Elements of all tensors of a launch together."""

ROW = 64
"""Row lengths that ``Family.whole`` takes are multiples of this: the rows of any type start on 32 bytes, a sector."""

CTAS = 2
"""CTAs that share the tiles of a launch."""

EVEN = -1
"""The pattern of data that has whole tiles only."""

ENOUGH, MANY = 5, 12
"""Tiles of the first launches, about: with two CTAs one of them meets three, and more show nothing more."""

MAX_TRIPS = 200
"""Trip counts beyond this are not run."""


@dataclass
class Launch:
    """Arguments of a launch, and its values in words."""

    arguments: dict[str, Any]
    values: dict[str, int]
    data: dict[str, Array] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The values in words."""
        parts = [f"{n}={v}" for n, v in self.values.items()]
        parts += [f"{n}={a.reshape(-1)[:6].tolist()}" for n, a in self.data.items()]
        return ", ".join(parts) or "the only launch"


class Family:
    """The launches of one kernel."""

    def __init__(self, kernel: x.Kernel) -> None:
        self.kernel = kernel
        self.granules: dict[str, set[int]] = {}
        self.limits: dict[str, set[int]] = {}
        self.control: set[str] = set()
        self.trips: set[str] = set()
        self.indices: set[str] = set()
        for site in sites(kernel):
            if isinstance(site.node, x.For):
                for e in site.exprs:
                    self._scan(e)
                    self.trips |= leaves(e) if site.node.role != "tiles" else set()
                self.indices.add(site.node.var)
            else:
                for e in site.exprs:
                    self._scan(e)
            if isinstance(site.node, x.Op):
                self._operands(site.node)
        for e in (kernel.positions, kernel.grid, *(g.expr for g in kernel.guards if g.expr is not None)):
            self._scan(e)
        for t in kernel.tensors:
            for e in t.shape:
                self._scan(e)
        self.free = [d.name for d in kernel.dims if d.name not in self._sums()]
        self.ratios = self._ratios()
        self.depth = max((r.slots for r in kernel.rings), default=1)
        self.walk = self._long_walk()

    # -- reading the kernel -------------------------------------------------------------------------------------------

    def _operands(self, node: x.Op) -> None:
        for name, value in node.operands.items():
            if isinstance(value, x.Ref):
                if node.op == "load_scalar" and self._input(value.base):
                    self.control.add(value.base)
            elif name == "where":
                self._scan(value)
                if node.type is not None:
                    for sym in leaves(value):
                        self.limits.setdefault(sym, set()).update(n for n in node.type.shape[-2:] if n > 1)

    def _input(self, name: str) -> bool:
        tensor = self.kernel.tensor(name)
        return tensor is not None and tensor.direction == "in" and DTYPES[tensor.dtype].kind == "int"

    def _scan(self, e: Expr) -> None:
        """Note what symbols are divided by and compared with."""
        for node in walk(e):
            if not isinstance(node, Apply) or len(node.args) != 2:
                continue
            for a, b in (node.args, node.args[::-1]):
                if isinstance(b, Const) and not isinstance(b.value, float) and int(b.value) > 1:
                    where = self.granules if node.op in ("cdiv", "//", "%") else self.limits
                    if node.op in ("cdiv", "//", "%", "<", "<=", ">", ">=", "=="):
                        for name in _summands(a):
                            where.setdefault(self._base(name), set()).add(int(b.value))

    @staticmethod
    def _base(name: str) -> str:
        return name[len(LOAD) :].split("[")[0] if name.startswith(LOAD) else name

    def _conditions(self, tensor: str, form: str) -> list[x.Condition]:
        return [a for a in self.kernel.assumes if a.form == form and a.tensor == tensor]

    def _sums(self) -> dict[str, str]:
        """Dims that an assumption ties to the last element of an increasing input."""
        found = {}
        for a in self.kernel.assumes:
            if a.form == "element" and a.tensor in self.control and isinstance(a.args[-1], Sym):
                found[a.args[-1].name] = a.tensor
        return {d: t for d, t in found.items() if t is not None}

    def _long_walk(self) -> int:
        """Tiles of a CTA after which every instance has met every slot of every ring again; 0 where each walks all tiles.

        Instances that take tiles in turn meet a slot only every few rounds. A ring whose stages do not divide evenly among
        them fails no earlier than that (P107)."""
        strides = {
            int(factor.value)
            for role in self.kernel.roles
            for node in walk_statements(role.body)
            if isinstance(node, x.For) and node.role == "tiles"
            for factor in walk(node.step)
            if isinstance(factor, Const) and int(factor.value) > 1
        }
        slots = [r.slots for r in self.kernel.rings]
        return max((math.lcm(s, n) + s + n for s in slots for n in strides), default=0)

    def _ratios(self) -> list[tuple[str, str]]:
        """Pairs of dims or scalars of which the first is divided by the second."""
        names = set(self._names())
        found: dict[tuple[str, str], None] = {}
        for e in _expressions(self.kernel):
            for node in walk(e):
                if isinstance(node, Apply) and node.op in ("cdiv", "//", "%"):
                    sides = [linear(a) for a in node.args]
                    terms = [[t.name for t in side if isinstance(t, Sym) and t.name in names] for side in sides]
                    if all(len(side) == len(t) == 1 for side, t in zip(sides, terms, strict=True)):
                        found[terms[0][0], terms[1][0]] = None
        return list(found)

    def _divided(
        self, values: dict[str, int], quotient: int, divisor: int = 1, rest: int = 0, among: set[str] | None = None
    ) -> dict[str, int]:
        """The same with other quotients (of what is ``among`` some names) and remainders; a divisor that tiles something
        stays."""
        values = dict(values)
        for a, b in self.ratios:
            if among is None or a in among:
                values[b] = divisor if self.unit(b) == 1 else values[b]
                values[a] = quotient * values[b] + rest
        return values

    # -- values -------------------------------------------------------------------------------------------------------

    def unit(self, name: str) -> int:
        """The granule that tiles a dim (or the lengths in an input)."""
        found = self.granules.get(name, set())
        return max((g for g in found if g <= 4096), default=1)

    def near(self, name: str, value: int) -> int:
        """The value nearest to ``value`` that the guards on this dim alone admit."""
        guards = [
            g.expr for g in self.kernel.guards if g.expr is not None and symbols(g.expr) <= {name} | self._constants
        ]
        constants = {n: v for n, v in self.kernel.constants.items() if not isinstance(v, str)}
        for distance in range(0, 4097):
            for v in (value + distance, value - distance):
                if v >= 1 and all(evaluate(g, {**constants, name: v}) for g in guards):
                    return v
        return value

    @property
    def _constants(self) -> set[str]:
        return set(self.kernel.constants)

    def launches(self) -> Iterator[Launch]:
        """First a few that differ in everything, then a grid over each trip count and number of tiles."""
        yield from self._distinct(self._wanted())

    def whole(self) -> Iterator[Launch]:
        """Launches of whole tiles: nothing ragged, and rows of tensors that start where memory is moved in."""
        rows = {leaf for t in self.kernel.tensors if len(t.shape) > 1 for leaf in leaves(t.shape[-1])}
        units = {d: math.lcm(self.unit(d), ROW) if d in rows else self.unit(d) for d in self._names()}
        for q in (2, 1):
            yield from self._distinct(
                [({d: max(self.limits.get(d, {0}) | {q * u}) // u * u for d, u in units.items()}, q, EVEN)]
            )

    def deep(self) -> Iterator[Launch]:
        """Launches with more trips, and more tiles, than any ring has slots."""
        units = {d: self.unit(d) for d in self._names()}
        trips = {d: (self.depth + 2) * u for d, u in units.items() if d in self.trips or (not self.trips and u > 1)}
        yield from self._distinct(
            (
                ({**self._tiles(2), **trips}, self.depth + 2, 0),
                (self._tiles(self.depth + 2), 1, 1),
                ({**self._tiles(3), **{d: 3 * units[d] for d in trips}}, 3, 2),
            )
        )

    def aimed(self, wanted: dict[str, int]) -> Iterator[Launch]:
        """Launches where some dims or scalars have given values: one tile and several."""
        yield from self._distinct(({**self._tiles(q), **wanted}, 1, q) for q in (1, 2, 3, 5, 8))

    def _distinct(self, wanted: Iterable[tuple[dict[str, int], int, int]]) -> Iterator[Launch]:
        seen: set[str] = set()
        for one in wanted:
            launch = self._launch(*one)
            if launch is not None and launch.text not in seen:
                seen.add(launch.text)
                yield launch

    def _names(self) -> list[str]:
        """Dims and integer scalars that can be chosen."""
        return [*self.free, *(s.name for s in self.kernel.scalars if DTYPES[s.dtype].kind == "int")]

    def _tiles(self, q: int) -> dict[str, int]:
        """Small values, with about q tiles."""
        units = {d: self.unit(d) for d in self._names()}
        return {d: 1 if d in self.trips else q * u - u // 3 for d, u in units.items()}

    def _wanted(self) -> Iterator[tuple[dict[str, int], int, int]]:
        """Values wanted of dims and scalars; scale and pattern of the data."""
        units = {d: self.unit(d) for d in self._names()}
        high = {d: max(self.limits.get(d, {0})) for d in units}
        ragged = {d: (1 + (d in self.trips)) * u + max(1, u // 2) - 1 if u > 1 else 2 for d, u in units.items()}
        exact = {d: high[d] or (2 * u if u > 1 else 2) for d, u in units.items()}
        yield self._divided(self._few(ragged, list(units)), 2), 1, 0
        yield self._divided(self._few(exact, list(units)[::-1]), 1, 2), 1, 1
        yield dict.fromkeys(units, 1), 0, 2
        tiled = [d for d in units if d not in self.trips and d in symbols(self.kernel.positions)]
        if self.walk and tiled:
            yield {**self._tiles(1), tiled[0]: CTAS * self.walk * units[tiled[0]]}, 1, 3
        if self.ratios:
            for quotient, rest in ((2, 0), (1, 1), (2, 1)):
                yield self._divided(self._tiles(1), quotient, 2, rest), 1, 0
        depth = self.depth + 3
        trips = [d for d in units if d in self.trips] or [d for d, u in units.items() if u > 1]
        counts = [*range(1, depth + 1), *sorted(self._guarded())]
        for q in counts:  # trip counts, over a few tiles
            yield self._divided({**self._tiles(2), **{d: q * units[d] for d in trips}}, q, among=self.trips), q, 3
            if any(units[d] > 1 for d in trips):
                yield {**self._tiles(1), **{d: q * units[d] + 1 for d in trips}}, q, 4
        for q in range(1, depth + 1):  # numbers of tiles
            yield self._tiles(q), 1, 5 + q
            yield {**self._tiles(q), **{d: 3 * units[d] for d in trips}}, 1, 5 + q

    def _few(self, wanted: dict[str, int], order: list[str]) -> dict[str, int]:
        """The same with 1 for dims that only count tiles, as long as there are tiles enough, and halves of what makes too many;
        dims early in ``order`` go on counting. The sequences that an input of offsets tells apart stay several."""
        kept = {d for a in self.kernel.tensors if a.name in self.control for e in a.shape for d in symbols(e)}
        counts = [d for d in order if self.unit(d) == 1 and d not in self.trips and d not in kept]
        values = {**wanted, **dict.fromkeys(counts, 1)}
        for d in counts:
            if self._count(values) >= ENOUGH:
                break
            values[d] = wanted[d]
        tiled = [d for d in values if d in symbols(self.kernel.positions) and d not in self.trips and d not in kept]
        while self._count(values) > MANY and tiled:
            d = max(tiled, key=lambda name: values[name] / self.unit(name))
            less = values[d] // 2 // self.unit(d) * self.unit(d) or 1
            if less >= values[d]:
                break
            values[d] = less + (values[d] % self.unit(d) if less >= self.unit(d) else 0)
        return values

    def _count(self, values: dict[str, int]) -> int:
        """How many tiles there are; many where dims do not decide it."""
        constants = {n: v for n, v in self.kernel.constants.items() if not isinstance(v, str)}
        env = {**constants, **values}
        return int(evaluate(self.kernel.positions, env)) if symbols(self.kernel.positions) <= set(env) else ENOUGH

    def padded(self) -> Launch | None:
        """The least launch in which every dim that is tiled is ragged, and loops over dims have a whole iteration before."""
        units = {d: self.unit(d) for d in self._names()}
        ragged = {d: (d in self.trips) * u + max(1, u // 2) - 1 if u > 1 else 2 for d, u in units.items()}
        return self._launch(self._few({d: max(1, v) for d, v in ragged.items()}, []), 0, 0)

    def _guarded(self) -> set[int]:
        """Trip counts just past what conditions on loop indices single out."""
        found: set[int] = set()
        for name in self.indices:
            found |= {c + 1 for c in self.limits.get(name, ())} | {
                m for g in self.granules.get(name, ()) for m in (g, 2 * g)
            }
        return {n for n in found if n <= MAX_TRIPS}

    def _launch(self, wanted: dict[str, int], scale: int, pattern: int) -> Launch | None:
        values = {d: self.near(d, v) for d, v in wanted.items()}
        data: dict[str, Array] = {}
        constants = {n: v for n, v in self.kernel.constants.items() if not isinstance(v, str)}
        solved = self._relations(values, constants)
        if solved is None:
            return None
        values = dict(solved)
        longest = 0
        tied = {t: d for d, t in self._sums().items()}
        for name in sorted(self.control, key=lambda n: (n not in tied, n)):
            if name in tied:
                made = self._offsets(name, {**constants, **values}, scale, pattern)
                data[name], values[tied[name]] = made, int(made[-1])
                longest = max(longest, int(np.diff(made).max()))
        if any(v < 1 for d, v in values.items() if d in {k.name for k in self.kernel.dims}):
            return None
        for name in sorted(self.control - set(tied)):
            found = self._contents(name, {**constants, **values}, scale, pattern)
            if found is None:
                return None
            data[name] = found
        scalars: dict[str, Any] = {}
        for scalar in self.kernel.scalars:
            if DTYPES[scalar.dtype].kind == "int":
                chosen = values.pop(scalar.name)
                scalars[scalar.name] = max(longest, 1) if data else max(1, chosen)
            else:
                scalars[scalar.name] = DTYPES[scalar.dtype].kind == "float" and 1.0
        return self._arguments(values, scalars, data, constants)

    def _relations(self, values: dict[str, int], constants: dict[str, Any]) -> dict[str, int] | None:
        """Change single dims until the guards between them hold."""
        guards = [
            g.expr for g in self.kernel.guards if g.expr is not None and symbols(g.expr) <= set(values) | set(constants)
        ]

        def holds(v: dict[str, int]) -> bool:
            return all(evaluate(g, {**constants, **v}) for g in guards)

        if holds(values):
            return values
        involved = sorted({n for g in guards for n in symbols(g)} & set(values))
        for name in involved:
            for v in range(1, 257):
                if holds({**values, name: v}):
                    return {**values, name: v}
        for name in involved:
            for other in involved:
                for v in range(1, 33):
                    for u in range(1, 33):
                        if name < other and holds({**values, name: v, other: u}):
                            return {**values, name: v, other: u}
        return None

    # -- data ---------------------------------------------------------------------------------------------------------

    def _shape(self, name: str, env: dict[str, Any]) -> tuple[int, ...]:
        tensor = self.kernel.tensor(name)
        assert tensor is not None
        return tuple(int(evaluate(e, env)) for e in tensor.shape)

    def _offsets(self, name: str, env: dict[str, Any], scale: int, pattern: int) -> Array:
        """Prefix sums of lengths, some of them empty, some ragged."""
        count = self._shape(name, env)[0] - 1
        unit = self.unit(name)
        options = [
            scale * unit + 1,  # its last block reaches into the next sequence
            max(1, unit // 2),
            0,
            max(1, scale * unit),
            max(0, scale * unit - 1),
            1,
            (scale + 1) * unit - unit // 3,
        ]
        if pattern == EVEN:
            options = [max(1, scale * unit)]
        lengths = [options[(i + pattern) % len(options)] for i in range(count)]
        if sum(lengths) == 0:
            lengths[-1] = max(1, unit)
        return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)

    def _contents(self, name: str, env: dict[str, Any], scale: int, pattern: int) -> Array | None:
        tensor = self.kernel.tensor(name)
        assert tensor is not None
        shape = self._shape(name, env)
        size = math.prod(shape)
        low, high = 0, 1 << 20
        for a in self._conditions(name, "within"):
            if not {n for e in a.args for n in symbols(e)} <= set(env):
                return None
            low, high = max(low, int(evaluate(a.args[0], env))), min(high, int(evaluate(a.args[1], env)))
        if low >= high:
            return None
        unit = self.unit(name)
        options = [scale * unit + 1, scale * unit, low, scale * unit - 1, high - 1 if high < 1 << 20 else 0, low + 1]
        if pattern == EVEN:
            options = [scale * unit]
        made = np.array(
            [min(max(options[(i + pattern) % len(options)], low), high - 1) for i in range(min(size, 4096))]
        )
        made = np.resize(made, size)
        if self._conditions(name, "increasing"):
            made = np.sort(made)
        if self._conditions(name, "unique"):
            made = np.arange(size) + low
        for a in self._conditions(name, "element"):
            *index, value = (int(evaluate(e, env)) for e in a.args)
            made.reshape(shape)[tuple(index)] = value
        return made.reshape(shape).astype(numpy_dtype(tensor.dtype))

    def _arguments(
        self, values: dict[str, int], scalars: dict[str, Any], data: dict[str, Array], constants: dict[str, Any]
    ) -> Launch | None:
        arguments: dict[str, Any] = dict(scalars)
        env = {**constants, **values}
        total = 0
        for tensor in self.kernel.tensors:
            if tensor.name in data:
                arguments[tensor.name] = data[tensor.name]
                continue
            if not {n for e in tensor.shape for n in symbols(e)} <= set(env):
                return None
            shape = self._shape(tensor.name, env)
            total += math.prod(shape)
            if total > MAX_ELEMENTS or any(n < 0 for n in shape):
                return None
            zero = np.zeros((), numpy_dtype(tensor.dtype))
            arguments[tensor.name] = (
                np.broadcast_to(zero, shape) if tensor.direction == "in" else np.zeros(shape, zero.dtype)
            )
        shown = {**values, **{n: v for n, v in scalars.items() if not isinstance(v, float)}}
        return Launch(arguments, shown, data)


def _expressions(kernel: x.Kernel) -> Iterator[Expr]:
    """Everything that is computed from launch values: bounds, conditions, definitions, subscripts, extents and guards."""
    yield from (kernel.positions, kernel.grid, *(g.expr for g in kernel.guards if g.expr is not None))
    yield from (e for t in kernel.tensors for e in t.shape)
    for body in (kernel.entry, *(r.body for r in kernel.roles)):
        for node in walk_statements(body):
            if isinstance(node, x.For):
                yield from (node.lo, node.hi, node.step)
            elif isinstance(node, x.If):
                yield node.cond
            elif isinstance(node, x.Let):
                yield node.value
            elif isinstance(node, x.Op):
                for value in node.operands.values():
                    if not isinstance(value, x.Ref):
                        yield value
                        continue
                    for sub in value.subs:
                        yield (
                            sub.index if isinstance(sub, x.Elem) else sub.at if isinstance(sub, x.Point) else sub.start
                        )


def _summands(e: Expr) -> Iterator[str]:
    """Symbols that count once in a sum, or in a side of a minimum, maximum or choice that stands in it."""
    for term, factor in linear(e).items():
        if factor not in (1, -1):
            continue
        if isinstance(term, Sym):
            yield term.name
        elif isinstance(term, Apply) and term.op in ("min", "max", "where"):
            for side in term.args[term.op == "where" :]:
                yield from _summands(side)


def ranges(launches: Iterable[Launch]) -> str:
    """The values that some launches covered, in words."""
    seen: dict[str, set[int]] = {}
    count = 0
    for launch in launches:
        count += 1
        for name, value in launch.values.items():
            seen.setdefault(name, set()).add(int(value))
    parts = []
    for name, found in seen.items():
        ordered = sorted(found)
        shown = ", ".join(map(str, ordered)) if len(ordered) <= 5 else f"{ordered[0]} .. {ordered[-1]}"
        parts.append(f"{name} = {shown}")
    return f"{count} launch{'es' if count != 1 else ''}" + (f" ({'; '.join(parts)})" if parts else "")
