"""Register tiles in the generated code: one array a tile, indexed by constants once the loops over it are unrolled.

Narrow elements are packed into words as far as the layout's run allows (frag: pairs, spread(8): four words), which is
how vector accesses, ldmatrix, wgmma and mma want them. ``Site`` is one element of a statement's domain; it knows
where the element of another tile that stands opposite lies, and the element's row, column and number as a lane part
plus a register part.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from cake.codegen.errors import unsupported
from cake.codegen.index import Index
from cake.codegen.names import size_of
from cake.ir.expr import Reg
from cake.ir.layout import QUAD, RegisterMap, TileType, register_map, spread_stands_opposite

_WORD = {1: "uint8_t", 2: "uint16_t", 4: "uint32_t"}


@dataclass(frozen=True)
class Storage:
    """The array ``name`` that holds a tile."""

    name: str
    type: TileType
    threads: int

    @property
    def map(self) -> RegisterMap:
        """Where the elements of the last two axes lie."""
        return register_map(self.type, self.threads)

    @property
    def per(self) -> int:
        """Elements a word."""
        return per_word(self.type, self.threads)

    @property
    def word(self) -> str:
        """C type of a word."""
        return word_type(self.type.dtype, self.per)

    @property
    def words(self) -> int:
        """Words of the array."""
        return math.prod(self.type.lead) * self.map.count // self.per

    def base(self, lead: tuple[int, ...]) -> int:
        """First element of the two-axis tile that ``lead`` selects."""
        at = 0
        for extent, i in zip(self.type.lead, lead, strict=True):
            at = at * extent + i
        return at * self.map.count

    def pointer(self, word: int | Index) -> str:
        """Address of a word."""
        return self.name if str(word) == "0" else f"{self.name} + {word}"


def per_word(tile: TileType, threads: int) -> int:
    """Elements that share a word in ``tile``'s array."""
    if tile.dtype == "bool" or size_of(tile.dtype) >= 4:
        return 1
    return math.gcd(register_map(tile, threads).run, 4 // size_of(tile.dtype))


def word_type(dtype: str, per: int) -> str:
    """C type of a word of ``per`` elements."""
    wide = {"f32": "float", "tf32": "float", "i32": "int", "i64": "int64_t", "bool": "bool"}
    return wide.get(dtype) or _WORD[per * size_of(dtype)]


@dataclass(frozen=True)
class AxisValue:
    """``lane`` (C text of product precedence, None: zero; differs between threads; a multiple of ``step``) + ``reg``
    (constant once unrolled)."""

    lane: str | None
    reg: Index
    step: int = 1


@dataclass(frozen=True)
class Site:
    """The element in register ``at`` of a domain."""

    map: RegisterMap
    at: Index

    # -- other tiles --------------------------------------------------------------------------------------------------

    def register(self, tile: TileType, reg: Reg) -> Index:
        """The register of ``tile`` whose element stands opposite this one, with NumPy broadcasting."""
        rows = reg.rows or (0, tile.rows)
        cols = reg.cols or (0, tile.cols)
        shape = (rows[1] - rows[0], cols[1] - cols[0])
        if shape == (1, 1) and (tile.rows, tile.cols) == (1, 1):
            return Index()
        mine, kind = (self.map.rows, self.map.cols), tile.layout.kind
        if any(n not in (1, m) for n, m in zip(shape, mine, strict=True)):
            raise unsupported(f"A {shape} operand cannot broadcast to {mine}.", "the shapes must agree or be 1")
        if kind != self.map.layout.kind and shape != (1, 1):
            raise unsupported(
                f"A {kind} operand in a {self.map.layout.kind} statement.",
                "go through shared memory to change the layout",
            )
        if kind == "frag":
            return self._frag_register(tile, rows[0], cols[0], shape)
        if kind == "spread":
            return self._spread_register(tile, rows[0], cols[0], shape)
        if kind == "quad":
            return self._quad_register(tile, shape)
        if kind == "perwarp":
            return Index()
        step = 128 if kind == "rowwise" else 1
        if shape == mine and rows[0] == cols[0] == 0 and shape == (tile.rows, tile.cols):
            return self.at
        row = self.at.div(self.map.cols) if mine[0] > step and shape[0] > 1 else Index()
        col = self.at.mod(self.map.cols) if shape[1] > 1 else Index()
        return (row + rows[0] // step) * tile.cols + col + cols[0]

    def _frag(self) -> tuple[Index, Index, Index, Index]:
        """Block of 16 W rows, half of 8 rows, group of 8 columns, column of the pair."""
        zero, m = Index(), self.map
        blocks = m.rows // (16 * (m.threads // 32))
        if m.cols in (1, QUAD):
            half = self.at.mod(2) if blocks > 1 else self.at
            return (self.at.div(2) if blocks > 1 else zero, half if m.rows > 1 else zero, zero, zero)
        if m.rows == 1:
            return zero, zero, self.at.div(2), self.at.mod(2)
        block, rest = (self.at.div(m.cols // 2), self.at.mod(m.cols // 2)) if blocks > 1 else (zero, self.at)
        return block, rest.div(2).mod(2), rest.div(4), rest.mod(2)

    def _frag_register(self, tile: TileType, row: int, col: int, shape: tuple[int, int]) -> Index:
        m, unit = self.map, 16 * (self.map.threads // 32)
        if row % unit or col % 8:
            raise unsupported("A slice of a frag tile off its atoms.", f"rows step by {unit} and columns by 8")
        block, half, group, pair = self._frag()
        if tile.cols in (1, QUAD):
            return block * 2 + half + 2 * (row // unit) if tile.rows > 1 else Index()
        if tile.rows == 1:
            return group * 2 + pair + 2 * (col // 8)
        if shape == (m.rows, m.cols) and (m.rows == unit or (m.cols == tile.cols)):
            return self.at + (row // unit) * (tile.cols // 2) + 4 * (col // 8)
        return (block + row // unit) * (tile.cols // 2) + (group + col // 8) * 4 + half * 2 + pair

    def _spread_register(self, tile: TileType, row: int, col: int, shape: tuple[int, int]) -> Index:
        m = self.map
        wave = m.threads * m.layout.vector
        if tile.layout.vector != m.layout.vector:
            raise unsupported("Spread tiles of different vectors in one statement.", "use one vector width")
        if shape == (m.rows, m.cols) == (tile.rows, tile.cols):
            return self.at
        if spread_stands_opposite(tile, shape, col, m):
            per_row = m.cols // m.threads
            lines = self.at.div(per_row) if shape[0] > 1 else Index()
            within = self.at.mod(per_row) if m.rows > 1 else self.at
            return (lines + row) * (tile.cols // m.threads) + within + col // m.threads
        raise unsupported(
            f"A {shape} part of {tile} in a [{m.rows}, {m.cols}] statement.",
            f"rows of spread tiles broadcast and slice only in multiples of {wave} columns",
        )

    def _quad(self) -> tuple[Index, Index]:
        """The row among those of a thread, and the column within the lane's part."""
        part = self.map.part
        return (self.at.div(part) if self.map.rows > 1 else Index()), self.at.mod(part)

    def _quad_register(self, tile: TileType, shape: tuple[int, int]) -> Index:
        if shape == (self.map.rows, self.map.cols):
            return self.at
        result, within = self._quad()
        part = register_map(tile, self.map.threads).part
        return (result * part if shape[0] > 1 else Index()) + (within if shape[1] > 1 else Index())

    # -- index tiles --------------------------------------------------------------------------------------------------

    def axis(self, axis: str) -> AxisValue | str:
        """The element's row, column or ``lin`` number; C text where it is no sum of a lane and a register part."""
        m, kind = self.map, self.map.layout.kind
        if axis == "lin" and kind == "quad":
            return self._quad_lin()
        if axis == "lin" and kind not in ("uniform", "perwarp"):
            v = m.lin_vector
            if m.count == 1 and m.rows * m.cols == 1:
                return AxisValue(None, Index())
            return AxisValue(_times(v, "thread"), self.at.div(v) * (m.threads * v) + self.at.mod(v), v)
        if axis == "lin" and kind == "uniform":
            return AxisValue(None, self.at)
        if axis == "lin":
            axis = "col"
        if (m.rows if axis == "row" else m.cols) == 1:
            return AxisValue(None, Index())
        if kind == "frag":
            block, half, group, pair = self._frag()
            if axis == "row":
                return AxisValue("frag_row", block * (16 * (m.threads // 32)) + half * 8)
            return AxisValue("lane % 4", Index()) if m.cols == QUAD else AxisValue("frag_col", group * 8 + pair, 2)
        if kind == "quad":
            result, within = self._quad()
            half, block = (result.mod(2), result.div(2)) if m.rows > m.threads // 2 else (result, Index())
            if axis == "row":
                return AxisValue("frag_row", block * (m.threads // 2) + half * 8)
            return AxisValue("lane % 4" if m.part == 1 else f"{m.part} * (lane % 4)", within)
        if kind == "perwarp":
            return AxisValue("warp", Index())
        if kind == "rowwise":
            row = self.at.div(m.cols) * 128 if m.rows > 128 else Index()
            return AxisValue("thread", row) if axis == "row" else AxisValue(None, self.at.mod(m.cols))
        if kind == "uniform":
            return AxisValue(None, self.at.div(m.cols) if axis == "row" else self.at.mod(m.cols))
        return self._spread_axis(axis)

    def _quad_lin(self) -> AxisValue:
        row, col = self.axis("row"), self.axis("col")
        assert isinstance(row, AxisValue) and isinstance(col, AxisValue)
        lanes = [_times(self.map.cols, row.lane) if row.lane else "", col.lane or ""]
        text = " + ".join(t for t in lanes if t)
        return AxisValue(f"({text})" if text else None, row.reg * self.map.cols + col.reg)

    def _spread_axis(self, axis: str) -> AxisValue | str:
        m = self.map
        v, wave = m.layout.vector, m.threads * m.layout.vector
        first = _times(v, "thread")
        flat = AxisValue(first, self.at.div(v) * wave + self.at.mod(v), v)
        if m.rows == 1 or m.cols == 1:
            return flat
        if m.cols % wave == 0:
            within = self.at.mod(m.cols // m.threads)
            if axis == "row":
                return AxisValue(None, self.at.div(m.cols // m.threads))
            return AxisValue(first, within.div(v) * wave + within.mod(v), v)
        if wave % m.cols == 0:
            if axis == "row":
                return AxisValue(f"{first} / {m.cols}", self.at.div(v) * (wave // m.cols))
            return AxisValue(f"{first} % {m.cols}", self.at.mod(v))
        return f"({first} + {flat.reg}) {'/' if axis == 'row' else '%'} {m.cols}"

    def valid(self) -> str | None:
        """C condition under which the register holds an element (last round of a spread tile, last lanes of a quad); None:
        always."""
        m = self.map
        if m.layout.kind == "quad" and m.cols > 1 and m.cols != QUAD * m.part:
            return f"lane % 4 * {m.part} + {self._quad()[1]} < {m.cols}"
        if m.layout.kind != "spread" or (m.count == 1 and m.rows * m.cols == 1):
            return None
        v, wave = m.layout.vector, m.threads * m.layout.vector
        if m.rows * m.cols % wave == 0:
            return None
        return f"{_times(v, 'thread')} + {self.at.div(v) * wave + self.at.mod(v)} < {m.rows * m.cols}"

    def first_holder(self) -> str | None:
        """C condition that picks one thread among those that hold the same element; None: there is one only."""
        m, kind = self.map, self.map.layout.kind
        if kind == "perwarp":
            return "lane == 0"
        if kind == "uniform" or (m.rows == 1 and m.cols == 1):
            return "thread == 0"
        if kind in ("frag", "quad") and m.cols == 1:
            return "lane % 4 == 0"
        if kind in ("frag", "quad") and m.rows == 1:
            return "lane < 4" if m.threads == 32 else "thread < 4"
        return "thread == 0" if kind == "rowwise" and m.rows == 1 else None


def _times(factor: int, text: str) -> str:
    return text if factor == 1 else f"{factor} * {text}"
