"""topk: running lists of the best columns of each row.

The list of a row lies in descending order in the registers of the four lanes that share the row. A column can only enter
if it is greater than the list's last entry, which every lane of the row knows, and nearly none is: so the lanes compare
their columns group by group, by the maximum, and note in the bits of a word which groups hold a candidate. One reduction
tells the warp which groups to look at; their columns are looked at in order, and the first candidate of each of the warp's
eight rows enters its list in the same few instructions (``enter_list`` in ``select.cuh``). No memory is touched, and every
branch is the whole warp's.
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
    lane = role.hoist("int", "first", f"{Expression(role).text(first, SUM)} + {role.need('frag_col')}")
    values, start = _values(role, value, m)
    with role.unrolled(results, var="r") as r:
        at = f"{values} + {_member(m, 1, r, Index()) + start}"
        lists = ", ".join(f"{s.name} + {r * part}" for s in (tops, columns))
        role.line(f"{keep}({lists}, {at}, {lane}, {role.need('lane')});")


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
    """A device function that takes the ``members`` columns of a row that a thread holds."""
    groups = [[f"value[{_register(g + k)}]" for k in range(group)] for g in range(0, members, group)]
    notes = [f"    found |= {_maximum(g)} > least ? {1 << n:#x}u : 0u;" for n, g in enumerate(groups)]
    names = _NAMES[:group]
    cases = []
    for n, g in enumerate(groups):
        label = f"case {n}" if n < len(groups) - 1 else "default"
        moves = ", ".join(f"{a} = {v}" for a, v in zip(names, g, strict=True))
        cases.append(f"        {label}: {moves}; break;")
    rounds = []
    for k in range(0, group, 2):
        at = f"first + {4 * group} * group" + (f" + {4 * k}" if k else "")
        rounds.append(
            f"        ROLLED while (enter_list<{entries}>(top, column, least, {at}, {names[k]}, {names[k + 1]}, lane)) {{}}"
        )
    lines = [
        f"// Columns {_register(0)}, 1, 8, 9, … after `first`: those greater than the last of the row's {entries} entries enter.",
        f"__device__ __forceinline__ void {name}(float *top, int *column, const float *value, int first, int lane)",
        "{",
        f"    float least = last_of<{entries}>(top);",
        "    uint32_t found = 0;",
        *notes,
        "    ROLLED for (uint32_t left = __reduce_or_sync(~0u, found); left; left &= left - 1) {",
        "        const int group = __ffs(left) - 1;",
        f"        float {', '.join(names)};",
        "        switch (group) {",
        *cases,
        "        }",
        *rounds,
        "    }",
        "}",
    ]
    return "\n".join(lines)


def _maximum(values: list[str]) -> str:
    while len(values) > 1:
        values = [f"fmaxf({a}, {b})" for a, b in zip(values[::2], values[1::2], strict=True)]
    return values[0]
