"""topk: running lists of the best columns of each row.

The list of a row lies in descending order in the registers of the four lanes that share the row. A column can only enter
if it is greater than the list's last entry, which every lane of the row knows, and no less than the floor; nearly none is: so
the lanes compare their columns group by group, by the maximum, and note in the bits of a word which groups hold a candidate.
One reduction tells the warp which groups to look at, another which columns of a group. These enter the lists of all eight rows
of the warp in order (``enter_list`` in ``select.cuh``): the column's number is the same for all, and where a row's value is no
candidate its list stays as it is. No memory is touched, every branch is the whole warp's, and from one column to the next only
the lists depend on each other.
"""

from __future__ import annotations

from cake.codegen.context import RoleContext
from cake.codegen.elementwise import SUM, Expression
from cake.codegen.index import Index
from cake.codegen.ops.registers import _groups, _member
from cake.codegen.ops.registry import op
from cake.codegen.ops.words import map_of, target, value_domain
from cake.codegen.tiles import Site
from cake.ir import expanded as x
from cake.ir.expr import Expr, Reg
from cake.ir.layout import RegisterMap

_NAMES = "abcdefgh"


@op("topk")
def _topk(role: RoleContext, node: x.Op) -> None:
    best, column = node.reg("best"), node.reg("column")
    value, first = node.expr("value"), node.expr("first")
    assert value is not None and first is not None
    m = map_of(role, value_domain(node))
    group = int(node.attrs["group"])
    results, members = _groups(m, 1)
    tops, columns = role.storage(best.name), role.storage(column.name)
    entries, part = tops.type.cols, tops.map.part
    name = f"keep_best{entries}_of{members}_by{group}"
    keep = role.unit.function(name, _keep(name, entries, members, group))
    floor = node.expr("floor")
    start = Expression(role).text(first, SUM)
    values, base = _values(role, value, m)
    with role.unrolled(results, var="r") as r:
        at = _member(m, 1, r, Index())
        lists = ", ".join(f"{s.name} + {r * part}" for s in (tops, columns))
        least = f"last_of<{entries}>({tops.name} + {r * part})"
        if floor is not None:
            least = f"fmaxf({least}, next_below({Expression(role, Site(m, at)).text(floor)}))"
        role.line(f"{keep}({lists}, {values} + {at + base}, {least}, {start}, {role.need('lane')});")


def _values(role: RoleContext, value: Expr, m: RegisterMap) -> tuple[str, int]:
    """The array that holds the values as the registers of the domain, and where in it they start: that of the tile itself, or
    one made for the statement."""
    if isinstance(value, Reg):
        storage, at = target(role, value, Site(m, Index.var("i")))
        if at.terms == (("i", 1),):
            return storage.name, at.const
    name = role.fresh("value")
    role.hoists_array("float", name, m.count)
    with role.unrolled(m.count) as i:
        role.line(f"{name}[{i}] = {Expression(role, Site(m, i)).text(value)};")
    return name, 0


def _register(k: int) -> int:
    """The register of a row's member ``k``: pairs, and between them those of the row eight below (frag)."""
    return 4 * (k // 2) + k % 2


def _keep(name: str, entries: int, members: int, group: int) -> str:
    """A device function that takes the ``members`` columns of a row that a thread holds.

    The four lanes of a row hold the pairs of ``frag``: of a group's columns, member ``k`` of lane ``l`` is column
    ``8 (k // 2) + 2 l + k % 2``, which is also the bit that stands for it.
    """
    groups = [[f"value[{_register(g + k)}]" for k in range(group)] for g in range(0, members, group)]
    notes = [f"    found |= {_maximum(g)} > least ? {1 << n:#x}u : 0u;" for n, g in enumerate(groups)]
    names = _NAMES[:group]
    cases = []
    for n, g in enumerate(groups):
        label = f"case {n}" if n < len(groups) - 1 else "default"
        moves = ", ".join(f"{a} = {v}" for a, v in zip(names, g, strict=True))
        cases.append(f"        {label}: {moves}; break;")
    bits = [f"        candidates |= {a} > least ? {1 << 8 * (k // 2) + k % 2:#x}u : 0u;" for k, a in enumerate(names)]
    lines = [
        f"// Columns {_register(0)}, 1, 8, 9, … after `first` and twice the lane: those greater than `least`, which is no less than",
        f"// the last of the row's {entries} entries, enter.",
        f"__device__ __forceinline__ void {name}(float *top, int *column, const float *value, float least, int first, int lane)",
        "{",
        "    uint32_t found = 0;",
        *notes,
        "    ROLLED for (uint32_t left = __reduce_or_sync(~0u, found); left; left &= left - 1) {",
        "        const int group = __ffs(left) - 1;",
        f"        float {', '.join(names)};",
        "        switch (group) {",
        *cases,
        "        }",
        "        uint32_t candidates = 0;",
        *bits,
        "        candidates = __reduce_or_sync(~0u, candidates << 2 * (lane & 3));",
        "        ROLLED for (; candidates; candidates &= candidates - 1) {",
        "            const int at = __ffs(candidates) - 1;",
        f"            const float value = __shfl_sync(~0u, {_picked(list(names), 'at')}, at >> 1 & 3, 4);",
        f"            enter_list<{entries}>(top, column, value > least ? value : -infinity, first + {4 * group} * group + at, lane);",
        "        }",
        f"        least = fmaxf(least, last_of<{entries}>(top));",
        "    }",
        "}",
    ]
    return "\n".join(lines)


def _picked(names: list[str], at: str) -> str:
    """The member of a group whose column is bit ``at``: the lowest bit chooses within pairs, those from 8 on the pair."""
    pairs = [f"{at} & 1 ? {b} : {a}" for a, b in zip(names[::2], names[1::2], strict=True)]
    bit = 8
    while len(pairs) > 1:
        pairs = [f"{at} & {bit} ? ({b}) : ({a})" for a, b in zip(pairs[::2], pairs[1::2], strict=True)]
        bit *= 2
    return pairs[0]


def _maximum(values: list[str]) -> str:
    while len(values) > 1:
        values = [f"fmaxf({a}, {b})" for a, b in zip(values[::2], values[1::2], strict=True)]
    return values[0]
