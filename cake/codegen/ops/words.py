"""Words of register arrays: the values of a tile expression packed as its array packs them, and vectors of words."""

from __future__ import annotations

from cake.codegen.context import RoleContext
from cake.codegen.elementwise import NARROW, Expression
from cake.codegen.errors import unsupported
from cake.codegen.index import Index
from cake.codegen.tiles import Site, Storage, per_word, word_type
from cake.ir import expanded as x
from cake.ir.expr import Expr, Reg
from cake.ir.layout import RegisterMap, TileType, register_map


def domain_of(role: RoleContext, node: x.Op, dst: str = "dst") -> TileType:
    """The shape over which a statement that writes a register tile runs: the part of the tile that it writes."""
    reg = node.reg(dst)
    tile = role.storage(reg.name).type
    rows = reg.rows[1] - reg.rows[0] if reg.rows else tile.rows
    cols = reg.cols[1] - reg.cols[0] if reg.cols else tile.cols
    return TileType(dtype=tile.dtype, shape=(rows, cols), layout=tile.layout)


def value_domain(node: x.Op) -> TileType:
    """The domain of a statement that reads a tile expression."""
    if node.type is None:
        raise unsupported(f"A {node.op} without a type.", "the expander sets the type of tile statements", node.span)
    return TileType(dtype=node.type.dtype, shape=node.type.shape[-2:], layout=node.type.layout)


def map_of(role: RoleContext, tile: TileType) -> RegisterMap:
    """The register map of a domain in the executing instance."""
    return register_map(tile, role.threads)


def target(role: RoleContext, reg: Reg, site: Site) -> tuple[Storage, Index]:
    """Array and element index of the register of ``reg`` opposite ``site``."""
    storage = role.storage(reg.name)
    return storage, site.register(storage.type, reg) + storage.base(reg.lead)


def word(role: RoleContext, e: Expr, m: RegisterMap, at: Index, per: int) -> str:
    """C text of the word of elements ``at`` … ``at + per - 1`` of the domain."""
    site = Site(m, at)
    dtype = e.dtype
    if dtype not in NARROW and dtype not in ("i8", "u8"):
        return Expression(role, site).text(e)
    if isinstance(e, Reg):
        storage, index = target(role, e, site)
        if storage.per == per and index.mod(per) == Index():
            return f"{storage.name}[{index.div(per)}]"
    values = [Expression(role, Site(m, at + k)).unrounded(e) for k in range(per)]
    return f"pack_{dtype}({', '.join(values)})"


def words(role: RoleContext, e: Expr, m: RegisterMap, at: Index, count: int, per: int) -> list[str]:
    """``count`` consecutive words."""
    return [word(role, e, m, at + per * k, per) for k in range(count)]


def storage_per(role: RoleContext, tile: TileType) -> tuple[int, str]:
    """Elements a word and the word's type for values of a domain."""
    per = per_word(tile, role.threads)
    return per, word_type(tile.dtype, per)


def joined(*conditions: str | None) -> str | None:
    """The conjunction of C conditions; None if there is none."""
    parts = [c for c in conditions if c]
    if len(parts) < 2:
        return parts[0] if parts else None
    return " && ".join(f"({c})" if "||" in c or "?" in c else c for c in parts)
