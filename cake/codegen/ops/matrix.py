"""ldmatrix, stmatrix and mma (PTX ISA 9.7.14.5).

A 16x16 block of a frag tile is four words a lane, in the order (group 0, half 0), (group 0, half 1), (group 1, half
0), (group 1, half 1): the four 8x8 matrices of an x4 instruction and the A operand of mma.m16n8k16. Lane l names row
l % 8 of matrix l / 8. For a transposed view the same matrices lie transposed in memory and `.trans` turns them back.
The right operand of a warp's mma may end in a block of eight rows: it has two words for 16 columns, group 0 and group 1.
"""

from __future__ import annotations

from collections.abc import Callable

from cake.codegen.address import Part, SharedView
from cake.codegen.context import RoleContext
from cake.codegen.index import Index
from cake.codegen.ops.registry import op
from cake.codegen.ops.words import domain_of, map_of, value_domain, words
from cake.codegen.tiles import Site
from cake.ir import expanded as x
from cake.ir.expr import Reg
from cake.ir.layout import TileType


def _blocks(role: RoleContext, ref: x.Ref, tile: TileType, body: Callable[[str, Index, int, str], None]) -> None:
    """Call ``body`` for each 16x16 (at an odd end 16x8 or 8x16) block: address text, first register, words, suffix."""
    view = SharedView(role, ref)
    row0, col0, _, _ = view.starts()
    unit = 16 * role.warps
    blocks, pairs, odd = tile.rows // unit, tile.cols // 16, tile.cols % 16 // 8
    suffix = "_trans" if ref.transposed else ""
    role.lane("lane")
    warp = f"16 * {role.need('warp')}" if role.warps > 1 else ""

    def emit(b: Index, group: Index, count: int) -> None:
        # In the view: matrix m of the block has rows 8 * (m % 2) and columns 8 * (m / 2).
        tile_row, tile_col = b * unit, group * 8
        if ref.transposed:
            low = "lane % 8 + lane / 16 * 8" if count == 4 else "lane % 8"
            row = Part(row0.uniform, row0.multiple, low, 0, tile_col + row0.reg)
            uniform = " + ".join(t for t in (col0.uniform, warp) if t)
            stored = Part(uniform, col0.multiple, "lane / 8 % 2 * 8", 16, tile_row + col0.reg)
            if warp and view.swizzle and view.row_length > view.swizzle // view.size:
                stored = Part(uniform, 1, "lane / 8 % 2 * 8", 0, tile_row + col0.reg)
            elif warp:
                stored = Part(col0.uniform, col0.multiple, "16 * warp + lane / 8 % 2 * 8", 64, tile_row + col0.reg)
        else:
            lanes = " + ".join(t for t in (warp, "lane % 16") if t)
            row = Part(row0.uniform, row0.multiple, lanes, 0, tile_row + row0.reg)
            stored = Part(col0.uniform, col0.multiple, "lane / 16 * 8" if count == 4 else "", 16, tile_col + col0.reg)
        register = b * (tile.cols // 2) + group * 4
        body(view.address(row, stored), register, count, suffix)

    def emit_half(group: Index) -> None:
        tile_row, tile_col = Index.of(blocks * unit), group * 8
        if ref.transposed:
            row = Part(row0.uniform, row0.multiple, "lane % 16", 0, tile_col + row0.reg)
            stored = Part(col0.uniform, col0.multiple, "", 16, tile_row + col0.reg)
        else:
            row = Part(row0.uniform, row0.multiple, "lane % 8", 0, tile_row + row0.reg)
            stored = Part(col0.uniform, col0.multiple, "lane / 8 % 2 * 8", 16, tile_col + col0.reg)
        body(view.address(row, stored), Index.of(blocks * (tile.cols // 2)) + group * 2, 2, suffix)

    if blocks:
        with role.unrolled(blocks, var="i") as b:
            if pairs:
                with role.unrolled(pairs, 2, var="j") as group:
                    emit(b, group, 4)
            if odd:
                emit(b, Index.of(2 * pairs), 2)
    if tile.rows % unit:
        with role.unrolled(pairs, 2, var="j") as group:
            emit_half(group)


@op("ldmatrix")
def _ldmatrix(role: RoleContext, node: x.Op) -> None:
    reg, tile = node.reg("dst"), domain_of(role, node)
    m = map_of(role, tile)
    storage = role.storage(reg.name)

    def body(address: str, register: Index, count: int, suffix: str) -> None:
        at = Site(m, register).register(storage.type, reg) + storage.base(reg.lead)
        role.line(f"ldmatrix_x{count}{suffix}({storage.pointer(at.div(2))}, {address});")

    _blocks(role, node.ref("src"), tile, body)


@op("stmatrix")
def _stmatrix(role: RoleContext, node: x.Op) -> None:
    tile, value = value_domain(node), node.expr("value")
    assert value is not None
    m = map_of(role, tile)

    def body(address: str, register: Index, count: int, suffix: str) -> None:
        parts = ", ".join(words(role, value, m, register, count, 2))
        role.line(f"stmatrix_x{count}{suffix}({address}, {parts});")

    _blocks(role, node.ref("dst"), tile, body)


@op("mma")
def _mma(role: RoleContext, node: x.Op) -> None:
    d, a, b = node.reg("d"), node.reg("a"), node.reg("b")
    acc, left, right = (role.storage(r.name) for r in (d, a, b))
    rows = d.rows[1] - d.rows[0] if d.rows else acc.type.rows
    cols = d.cols[1] - d.cols[0] if d.cols else acc.type.cols
    depth = a.cols[1] - a.cols[0] if a.cols else left.type.cols

    def first(reg: Reg, row: int) -> Index:
        """Element index of (row, column 0) of a slice, in its whole tile."""
        storage = role.storage(reg.name)
        at = (reg.rows[0] // 16 if reg.rows else 0) * (storage.type.cols // 2) + 4 * (
            (reg.cols[0] if reg.cols else 0) // 8
        )
        return Index.of(storage.base(reg.lead) + at + row // 16 * (storage.type.cols // 2))

    function = f"mma_m16n8k16_{left.type.dtype}"
    with role.unrolled(depth // 16, var="k") as k, role.unrolled(rows // 16, var="i") as i:
        a_word = (first(a, 0) + i * (left.type.cols // 2) + k * 8).div(2)
        d_row = first(d, 0) + i * (acc.type.cols // 2)

        def product(j: Index, b_word: Index, second: int) -> None:
            """Columns 8 j of d, from the words of b that hold its rows 8 j."""
            words = f"{right.name}[{b_word}], {right.name}[{b_word + second}]"
            role.line(f"{function}({acc.pointer(d_row + j * 4)}, {left.pointer(a_word)}, {words});")

        whole = min(cols // 8, right.type.rows // 16 * 2)
        if whole:
            with role.unrolled(whole, var="j") as j:  # half j % 2 of block j / 2
                block = first(b, 0) + j.div(2) * (right.type.cols // 2) + j.mod(2) * 2 + k * 8
                product(j, block.div(2), 2)
        if cols // 8 > whole:  # the block of eight rows
            last = first(b, 0) + whole // 2 * (right.type.cols // 2) + k * 4
            product(Index.of(whole), last.div(2), 1)
